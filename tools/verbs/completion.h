/*
 * completion.h - completion of gpumem's command line, from the tables of verbs and options. Single-threaded.
 */
#ifndef GM_TOOLS_COMPLETION_H
#define GM_TOOLS_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

/* What a shell sources: bash or, with @zsh, zsh. */
void gm_completion(FILE *out, bool zsh);

#endif
