/*
 * embed.h - files of the source tree that become part of the command; texts in which words are replaced when the text
 * is printed. One thread.
 */
#ifndef GM_TOOLS_EMBED_H
#define GM_TOOLS_EMBED_H

#include <stdio.h>
#include <string.h>

/* Embed the file at @path as the bytes from @name up to @name##_end, and a NUL there. */
#define GM_EMBED(name, path) \
	__asm__(".pushsection .rodata\n" \
		".balign 16\n" \
		".globl " #name ", " #name "_end\n" \
		".hidden " #name ", " #name "_end\n" \
		#name ": .incbin \"" path "\"\n" \
		#name "_end: .byte 0\n" \
		".popsection\n"); \
	extern const char name[], name##_end[]

struct gm_part { const char *word; void (*put)(FILE *out); };

/* Print @text with each word of @parts replaced by the output of its function. The last part's word is NULL. A line end
 * right behind such a word is left out, because the output ends with one. */
static inline void gm_put_parts(FILE *out, const char *text, const struct gm_part *parts)
{
	while (*text) {
		const struct gm_part *part = parts;

		while (part->word && strncmp(text, part->word, strlen(part->word)))
			part++;
		if (!part->word) {
			putc(*text++, out);
			continue;
		}
		part->put(out);
		text += strlen(part->word);
		text += *text == '\n';
	}
}

#endif
