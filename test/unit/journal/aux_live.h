/*
 * aux_live.h - what is live in a journal: by its tables, and by replaying its trace.
 */
#ifndef GM_TEST_AUX_LIVE_H
#define GM_TEST_AUX_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/read/copy.h"

#define AUX_CELLS 24u

/* Of AUX_CELLS places at equal distances; size 0: not live. */
struct aux_live { uint64_t address[AUX_CELLS], size[AUX_CELLS]; };

/* Says a violation that gm_copy_check() found; for its @report. */
void aux_complain(void *arg, const char *what, uint64_t where);

/* Copy, settle and check the journal behind @fd; the test fails when it is not sound. */
void aux_read_journal(int fd, struct gm_copy *copy);

/* What the tables say of the places @first, @first + @stride ... */
struct aux_live aux_live_in(const struct gm_copy *copy, uint64_t first, uint64_t stride);

/* The same by replaying the trace, which is whole: no event may have been dropped. The test fails
 * when the trace takes away what it did not bring. */
struct aux_live aux_replayed(const struct gm_copy *copy, uint64_t first, uint64_t stride);

bool aux_same(const struct aux_live *a, const struct aux_live *b);

#endif
