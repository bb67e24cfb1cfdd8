/*
 * api_stats.h - statistics into the array of a caller of gpumem.h.
 */
#ifndef GM_PRELOAD_API_STATS_H
#define GM_PRELOAD_API_STATS_H

#include "preload/api/gpumem.h"
#include "recorder/record/stats_table.h"

/* What @lister lists of @stats, at most @max of them into @items (NULL: none). Returns how many there
 * are. */
int gm_stats_into(const struct gm_stats *stats, gm_stats_lister *lister, struct gpumem_stat *items,
		  int max);

#endif
