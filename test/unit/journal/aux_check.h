/*
 * aux_check.h - does a journal keep every structural rule? Without the Check library, so that programs and
 * fuzz targets have it, too.
 */
#ifndef GM_TEST_AUX_CHECK_H
#define GM_TEST_AUX_CHECK_H

#include "recorder/read/copy.h"

/* Count violations of a consistent journal copy: overlapping segments, blocks that do not tile, counters
 * that disagree with the tables, dangling ids. 0 if sound. */
int gm_copy_check(const struct gm_copy *copy,
		  void (*report)(void *arg, const char *what, uint64_t where), void *arg);

/* The same of the journal of this process, by a copy of it, and of what only its writer has: the chunk
 * pool, and how far the regions have grown. Takes the locks. */
int gm_recorder_check(void);

#endif
