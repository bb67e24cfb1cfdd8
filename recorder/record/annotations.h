/*
 * annotations.h - annotations by the program: moments, and ranges of time with a name.
 *
 * Annotations are events of the history as all others are. They may take a share of it only;
 * further ones are counted and not recorded, so that a library which annotates each of its calls
 * does not displace the allocations. Either both ends of a range are recorded, or neither is.
 *
 * Thread context: any, no lock of ours held. Signal context: none, but harmless.
 */
#ifndef GM_RECORDER_ANNOTATIONS_H
#define GM_RECORDER_ANNOTATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/journal/format.h"

#define GM_RANGES_OPEN 64u		/* of a thread, nested; deeper ones are counted as lost */

/* Where an annotation belongs. A thread has a stack of nested ranges for each @scope (0: the common
 * one); @scope_name is a string id that is shown with the text; @device is a domain of the
 * journal. */
struct gm_annotation {
	uint32_t name;			/* string id; GM_NONE: it could not be kept */
	uint32_t scope_name;
	uint16_t scope;
	uint8_t device;
};

/* Annotate this moment. Returns 0; -ENODEV when nothing is recorded, -EAGAIN when annotations have
 * used up their share (counted), -ETIMEDOUT. */
int gm_annotate_mark(const struct gm_annotation *what);

/* Ranges that nest: gm_annotate_pop ends the newest one of its scope in this thread. @what NULL:
 * neither end of the range is recorded. */
void gm_annotate_push(const struct gm_annotation *what, uint16_t scope);
void gm_annotate_pop(uint16_t scope, uint32_t scope_name);

/* Ranges that need not nest: returns the number by which any thread ends it; never 0. */
#define GM_RANGE_NONE UINT64_C(1)	/* one that was not recorded */
uint64_t gm_annotate_start(const struct gm_annotation *what);
/* Returns false where @range is not the number of a range. */
bool gm_annotate_end(uint64_t range, uint32_t scope_name);

/* For a new journal, whose history has @events at most. */
void gm_annotations_begin(uint64_t events);

#endif
