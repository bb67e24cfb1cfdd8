/*
 * manual.h - manual pages and shell completion, from the tables of verbs and options.
 * Single-threaded.
 */
#ifndef GM_TOOLS_MANUAL_H
#define GM_TOOLS_MANUAL_H

#include <stdio.h>

/* The source of a page: of a verb, of "gpumem" or of "libgpumem". Returns 0 or -ENOENT. */
int gm_manual_page(FILE *out, const char *name);

/* completion.c: what a shell sources. Returns 0, or -ENOENT for another shell than bash and zsh. */
int gm_manual_completion(FILE *out, const char *shell);

/* manual_library.c: libgpumem(7). */
void gm_manual_library(FILE *out);

/* Text in a page: what troff would obey is made harmless. gm_manual_text: paragraphs, where lines
 * that begin with a blank stay as they are; "`words`" are set bold. */
void gm_manual_words(FILE *out, const char *text, size_t length);
void gm_manual_text(FILE *out, const char *text);
void gm_manual_head(FILE *out, const char *name, const char *section, const char *title);

#endif
