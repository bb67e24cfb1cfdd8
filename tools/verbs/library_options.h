/*
 * library_options.h - the library's options, from their own table: to be listed, and as flags of a
 * command line, where --stacks=none is GPUMEM_STACKS=none. Single-threaded.
 */
#ifndef GM_TOOLS_LIBRARY_OPTIONS_H
#define GM_TOOLS_LIBRARY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* @values: the unit, or the words that it takes, with | between them. */
struct gm_library_option { const char *name, *type, *initial, *values, *help; };
bool gm_library_option_has_words(const struct gm_library_option *one);

/* All of them, in the order of the table; the last has a NULL name. */
extern const struct gm_library_option gm_library_options[];

/* The option called @word (of @length), '-' standing for '_'; NULL: there is none. */
const struct gm_library_option *gm_library_option(const char *word, size_t length);

/* Take argv[*@index] (and the word after it, when the value stands there) as an option of the
 * library, put it into the environment, and leave *@index at the last word taken. Returns 0, or
 * -EINVAL after one line on stderr that says what is wrong. */
int gm_library_option_take(int argc, char **argv, int *index);

/* Judge the values that were taken, as the library will (preload/options/options.c): by the rest of the
 * environment, too, where one option limits another. Returns 0, or -EINVAL after a line on stderr for
 * each that it would not accept. */
int gm_library_options_check(void);

#endif
