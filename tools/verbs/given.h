/*
 * given.h - what a verb was given, or a line on standard error of what is wrong with it. One thread.
 */
#ifndef GM_TOOLS_GIVEN_H
#define GM_TOOLS_GIVEN_H

#include <stdbool.h>

#include "tools/read/load.h"

/* "gpumem VERB: WORD: WHY", harmless to a terminal. Returns GM_EXIT_INPUT. */
int gm_given_bad(const char *verb, const char *word, const char *why);

/* Is @device (a number, "host", NULL for all) in one of the @count snapshots, of which @word is the
 * last? 0, or GM_EXIT_INPUT after a line: nothing is live on a device that is not there, which is no
 * answer. */
int gm_given_device(const char *verb, const char *device, const char *word,
		    const struct gm_loaded *loaded, size_t count);
bool gm_given_has_device(const json_t *root, const char *device);

/* Does the name @path (NULL, "-": none) end as a file of another format would, packed or a picture? @own are
 * the endings that are right, parted by blanks, the usual one first. 0, or GM_EXIT_USAGE after a line. */
int gm_given_output(const char *verb, const char *path, const char *own);

/* A number of something, at most SIZE_MAX. Returns 0, or -EINVAL when @text is none. */
int gm_given_count(const char *text, size_t *ret);

#endif
