/*
 * stats_table.h - one device's statistics as PyTorch shows them: the table of memory_summary(), line by
 * line, and the names and values of memory_stats().
 *
 * No stdio, no malloc; snprintf with integers and texts only. Any context that may call it.
 */
#ifndef GM_RECORDER_STATS_TABLE_H
#define GM_RECORDER_STATS_TABLE_H

#include "allocator/table.h"

/* Calls @line for each line, without its newline, at most 80 bytes. @pool: the name of a pool of the program's,
 * which is cut to 24 bytes, and the statistics that are known of it; NULL: of the device itself. */
void gm_stats_table(const struct gm_stats *stats, const char *pool, int device,
		    void (*line)(void *arg, const char *text), void *arg);

/* Calls @put for each statistic, sorted by name, as "allocated_bytes.all.current"; a name has at most 55
 * bytes. */
void gm_stats_list(const struct gm_stats *stats,
		   void (*put)(void *arg, const char *name, int64_t value), void *arg);

/* The same for a pool of the program's, with the statistics that are known of it
 * (allocator/table.h). */
void gm_stats_list_pool(const struct gm_stats *stats,
			void (*put)(void *arg, const char *name, int64_t value), void *arg);

typedef void gm_stats_lister(const struct gm_stats *stats,
			     void (*put)(void *arg, const char *name, int64_t value), void *arg);

#endif
