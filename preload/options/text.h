/*
 * text.h - slices of text, and lines that are built in a buffer. No malloc, no stdio, no locale.
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
struct gm_slice gm_slice_trim(struct gm_slice slice);	/* removes blanks at both ends */

/* Are the texts equal, without regard to case? */
bool gm_slice_equals(struct gm_slice a, struct gm_slice b);
bool gm_slice_is(struct gm_slice slice, const char *word);

/* Does @slice differ from @word by at most one letter (missing, added or wrong), or by two neighbours
 * swapped? */
bool gm_slice_is_near(struct gm_slice slice, const char *word);

/* Cut *@rest at the next @separator outside brackets. Returns the part before it, trimmed, and sets
 * *@rest to the part behind it. */
struct gm_slice gm_slice_cut(struct gm_slice *rest, char separator);

/* A NUL-terminated text that is being built. @used also counts bytes that did not fit and were left out. */
struct gm_line { char *text; size_t room, used; };

void gm_line_add(struct gm_line *line, const char *text);
void gm_line_add_slice(struct gm_line *line, struct gm_slice slice);
void gm_line_add_number(struct gm_line *line, uint64_t number);

#endif
