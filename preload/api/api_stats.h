/*
 * api_stats.h - statistics, copied into the array that a caller of gpumem.h gave.
 *
 * Thread context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_API_STATS_H
#define GM_PRELOAD_API_STATS_H

#include "preload/api/gpumem.h"
#include "recorder/record/stats_table.h"

/* Store the statistics that @lister lists of @stats into @items (NULL: nowhere), at most @max.
 * Returns how many statistics there are. */
int gm_stats_into(const struct gm_stats *stats, gm_stats_lister *lister, struct gpumem_stat *items,
		  int max);

#endif
