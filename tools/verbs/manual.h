/*
 * manual.h - manual pages, from the tables of verbs and options. Single-threaded.
 */
#ifndef GM_TOOLS_MANUAL_H
#define GM_TOOLS_MANUAL_H

#include <stdio.h>

/* The source of a page: of a verb, of "gpumem" or of "libgpumem". Returns 0 or -ENOENT. */
int gm_manual_page(FILE *out, const char *name);

#endif
