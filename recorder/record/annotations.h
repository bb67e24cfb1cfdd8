/*
 * annotations.h - what the program says about itself: moments, and ranges of time with a name.
 *
 * Annotations are events in the one history, so that they have their place among the others; they
 * may be a share of it only, and what is more is counted (a library that names each of its calls
 * shall not drive the allocations out). A range that begins is recorded with its end, or neither.
 *
 * Thread context: any, no lock of ours held. Signal context: none, but harmless.
 */
#ifndef GM_RECORDER_ANNOTATIONS_H
#define GM_RECORDER_ANNOTATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/journal/format.h"

#define GM_RANGES_OPEN 64u		/* of a thread, nested; deeper ones are counted as lost */

/* Where an annotation belongs: @scope tells the stacks of a thread's ranges apart (0: the common
 * one), @scope_name is a string id shown with the text, @device a domain of the journal. */
struct gm_annotation {
	uint32_t name;			/* string id; GM_NONE: it could not be kept */
	uint32_t scope_name;
	uint16_t scope;
	uint8_t device;
};

/* A moment. Returns 0; -ENODEV when nothing is recorded, -EAGAIN when annotations have had their
 * share (counted), -ETIMEDOUT. */
int gm_annotate_mark(const struct gm_annotation *what);

/* Ranges that nest: each end is that of the newest one of its scope in this thread. @what NULL:
 * the range is not to be recorded, nor its end. */
void gm_annotate_push(const struct gm_annotation *what, uint16_t scope);
void gm_annotate_pop(uint16_t scope, uint32_t scope_name);

/* Ranges that do not: the number to end it by, from any thread; never 0. */
#define GM_RANGE_NONE UINT64_C(1)	/* one that was not recorded */
uint64_t gm_annotate_start(const struct gm_annotation *what);
/* Returns false for what is the number of no range. */
bool gm_annotate_end(uint64_t range, uint32_t scope_name);

/* A new journal, of @events at most. */
void gm_annotations_begin(uint64_t events);

#endif
