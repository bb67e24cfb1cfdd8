/*
 * text.h - slices of text, and lines put together in a buffer: no malloc, no stdio, no locale.
 *
 * Thread and signal context: any.
 */
#ifndef GM_PRELOAD_TEXT_H
#define GM_PRELOAD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_slice { const char *text; size_t length; };

struct gm_slice gm_slice_of(const char *text);
struct gm_slice gm_slice_trim(struct gm_slice slice);	/* blanks at both ends */

/* Are the texts equal, apart from the case of letters? */
bool gm_slice_equals(struct gm_slice a, struct gm_slice b);
bool gm_slice_is(struct gm_slice slice, const char *word);

/* Does it differ from @word by one letter that is missing, added, wrong, or swapped with the next
 * one? */
bool gm_slice_is_near(struct gm_slice slice, const char *word);

/* The part of *@rest up to the next @separator outside brackets, trimmed; *@rest becomes what
 * follows it. */
struct gm_slice gm_slice_cut(struct gm_slice *rest, char separator);

/* Text being put together, NUL terminated; what does not fit is counted and left out. */
struct gm_line { char *text; size_t room, used; };

void gm_line_add(struct gm_line *line, const char *text);
void gm_line_add_slice(struct gm_line *line, struct gm_slice slice);
void gm_line_add_number(struct gm_line *line, uint64_t number);

#endif
