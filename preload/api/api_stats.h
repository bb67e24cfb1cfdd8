/*
 * api_stats.h - copy statistics into the array of a caller of gpumem.h.
 *
 * Thread context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_API_STATS_H
#define GM_PRELOAD_API_STATS_H

#include "preload/api/gpumem.h"
#include "recorder/record/stats_table.h"

/* Copy the statistics that @lister lists from @stats to @items, at most @max of them; NULL: copy none. Returns how
 * many statistics there are. */
int gm_stats_into(const struct gm_stats *stats, gm_stats_lister *lister, struct gpumem_stat *items,
		  int max);

#endif
