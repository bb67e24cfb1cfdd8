/*
 * flags.h - the library's options as flags of a command line: --stacks=none is GPUMEM_STACKS=none.
 */
#ifndef GM_TOOLS_FLAGS_H
#define GM_TOOLS_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

/* Take argv[*@index] (and the word after it, when the value stands there) as an option of the
 * library, put it into the environment, and leave *@index at the last word taken. Returns 0, or
 * -EINVAL after one line on stderr that says what is wrong. */
int gm_flags_take(int argc, char **argv, int *index);

/* Judge the values that were taken, as the library will (preload/options/options.c): by the rest of the
 * environment, too, where one option limits another. Returns 0, or -EINVAL after a line on stderr for
 * each that it would not accept. */
int gm_flags_check(void);

/* Is @word (of @length) the name of an option? */
bool gm_flags_is(const char *word, size_t length);

#endif
