/*
 * embed.h - files of the source tree that are part of the command, and texts with words that are replaced when they
 * are printed. One thread.
 */
#ifndef GM_TOOLS_EMBED_H
#define GM_TOOLS_EMBED_H

#include <stdio.h>
#include <string.h>

/* The bytes of the file at @path, which is a text, from @name up to @name##_end, where a 0 follows. */
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

/* Print @text with each word of @parts replaced by what its function prints; the last part has no word. The end of a
 * line behind such a word is left out: what is printed has its own. */
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
