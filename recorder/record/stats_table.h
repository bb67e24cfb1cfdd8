/*
 * stats_table.h - the statistics of one device or pool as PyTorch shows them: the lines of memory_summary(), and
 * the names and values of memory_stats().
 *
 * Thread and signal context: any in which snprintf with integers and strings is allowed. No malloc, no other stdio.
 */
#ifndef GM_RECORDER_STATS_TABLE_H
#define GM_RECORDER_STATS_TABLE_H

#include "allocator/table.h"

/* Call @line for each line of the table: without its newline, at most 80 bytes. @pool: NULL for the device itself; else
 * the name of an application pool, cut to 24 bytes, whose table has only the statistics that pools have. */
void gm_stats_table(const struct gm_stats *stats, const char *pool, int device,
		    void (*line)(void *arg, const char *text), void *arg);

/* Call @put for each statistic, sorted by name. A name such as "allocated_bytes.all.current" has at most 55
 * bytes. */
void gm_stats_list(const struct gm_stats *stats,
		   void (*put)(void *arg, const char *name, int64_t value), void *arg);

/* As gm_stats_list, for an application pool: only the statistics that pools have (allocator/table.h). */
void gm_stats_list_pool(const struct gm_stats *stats,
			void (*put)(void *arg, const char *name, int64_t value), void *arg);

typedef void gm_stats_lister(const struct gm_stats *stats,
			     void (*put)(void *arg, const char *name, int64_t value), void *arg);

#endif
