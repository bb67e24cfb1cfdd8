/*
 * annotations.h - annotations by the program: named marks and named ranges of time.
 *
 * Annotations are events of the history. They may fill only a share of the history, so that a library that
 * annotates each of its calls does not displace the allocations. Annotations beyond the share are counted
 * and not recorded. Either both ends of a range are recorded or neither end is.
 *
 * Thread context: any, no lock of ours held. Signal context: none; a call from a handler does no harm.
 */
#ifndef GM_RECORDER_ANNOTATIONS_H
#define GM_RECORDER_ANNOTATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/journal/format.h"

#define GM_RANGES_OPEN 64u		/* nested ranges of a thread; deeper ones are counted as lost */

/* The text of an annotation and where it belongs. A thread has a stack of nested ranges for each @scope (0:
 * the common scope). @scope_name is a string id that is shown with the text. @device is a domain of the
 * journal. */
struct gm_annotation {
	uint32_t name;			/* string id; GM_NONE: the strings had no room for the text */
	uint32_t scope_name;
	uint16_t scope;
	uint8_t device;
};

/* Record a mark, stamped now. Returns 0; -ENODEV when nothing is recorded; -EAGAIN when annotations have
 * used up their share (counted); -ETIMEDOUT. */
int gm_annotate_mark(const struct gm_annotation *what);

/* Begin a nested range. gm_annotate_pop ends this thread's newest range of @scope. @what NULL: record
 * neither end of the range. */
void gm_annotate_push(const struct gm_annotation *what, uint16_t scope);
void gm_annotate_pop(uint16_t scope, uint32_t scope_name);

/* Begin a range that need not nest. Returns its number, by which any thread may end it; GM_RANGE_NONE when
 * the range is not recorded; never 0. */
#define GM_RANGE_NONE UINT64_C(1)
uint64_t gm_annotate_start(const struct gm_annotation *what);
/* End a range. Returns false when @range cannot be the number of a recorded range, or nothing is recorded. */
bool gm_annotate_end(uint64_t range, uint32_t scope_name);

/* Set up the share for a new journal, whose history has at most @events events. */
void gm_annotations_begin(uint64_t events);

#endif
