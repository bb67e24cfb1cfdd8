/*
 * text.h - spans of text, and lines put together in a buffer: no malloc, no stdio, no locale.
 *
 * Thread and signal context: any.
 */
#ifndef GM_PRELOAD_TEXT_H
#define GM_PRELOAD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_span { const char *text; size_t length; };

struct gm_span gm_span_of(const char *text);
struct gm_span gm_span_trim(struct gm_span span);	/* blanks at both ends */
bool gm_span_is(struct gm_span span, const char *word);	/* whatever the case of letters */

/* The part up to the next @separator outside brackets, trimmed; *@rest is what follows it. */
struct gm_span gm_span_cut(struct gm_span *rest, char separator);

/* Text being put together, NUL terminated; what does not fit is counted and left out. */
struct gm_line { char *text; size_t room, used; };

void gm_line_add(struct gm_line *line, const char *text);
void gm_line_add_span(struct gm_line *line, struct gm_span span);
void gm_line_add_number(struct gm_line *line, uint64_t number);

#endif
