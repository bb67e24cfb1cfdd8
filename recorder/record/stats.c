/*
 * stats.c - read and reset the statistics of a domain for the program itself: see journal/recorder.h.
 * Lock: the domain's.
 */
#include "recorder/record/sites.h"
#include "recorder/record/tables.h"

#include <errno.h>

int gm_record_stats(uint8_t domain, struct gm_stats *ret_stats)
{
	struct gm_change change;
	int r;

	gm_caches_flush(domain);
	r = gm_change_enter(&change, domain, 0);
	if (r)
		return r;
	*ret_stats = change.domain->stats;
	if (change.domain->pool.source)
		gm_pool_count(&change.domain->pool, ret_stats);
	gm_change_leave(&change);
	return 0;
}

int gm_record_used(uint8_t domain, uint32_t *ret_device)
{
	struct gm_change change;
	bool pool;
	int r = gm_change_enter(&change, domain, 0);

	if (r)
		return r;
	pool = change.domain->pool.source != GM_POOL_NONE;
	*ret_device = pool ? change.domain->pool.device : domain;
	r = pool || change.domain->present ? 0 : -ENODEV;
	gm_change_leave(&change);
	return r;
}

/* The number of struct gm_stat at the start of struct gm_stats, where they lie one after the other. */
#define STATS (GM_STAT_COUNT * GM_POOL_CLASSES + 2)
_Static_assert(offsetof(struct gm_stats, num_alloc_retries) == STATS * sizeof(struct gm_stat),
	       "a row of statistics, then the counters");

static void reset(struct gm_domain *domain, struct gm_txn *txn, enum gm_reset which)
{
	struct gm_stats *stats = &domain->stats;
	struct gm_stat *stat = &stats->stat[0][0];

	gm_txn_save_range(txn, stats, sizeof(*stats) / sizeof(uint64_t));
	gm_txn_save(txn, &domain->stats_resets);
	gm_txn_arm(txn);
	for (unsigned int i = 0; i < STATS; i++) {
		if (which == GM_RESET_PEAK)
			stat[i].peak = stat[i].current;
		else
			stat[i].allocated = stat[i].freed = 0;
	}
	if (which == GM_RESET_PEAK) {
		gm_site_reset_peak(domain, domain->pool.source ? gm_get(&domain->pool.live_bytes) :
				   stats->stat[GM_STAT_REQUESTED_BYTES][GM_POOL_ALL].current);
		return;
	}
	stats->num_alloc_retries = stats->num_ooms = stats->num_sync_all_streams = 0;
	stats->num_device_alloc = stats->num_device_free = 0;
	domain->stats_resets++;
}

/* Reset the counters of a pool's blocks. The domain's lock is held, but threads go on counting without it. */
static void reset_pool(struct gm_pool *pool, enum gm_reset which)
{
	int64_t all_blocks = 0;

	for (unsigned int i = 0; i < 2; i++) {
		struct gm_pool_counts *class = &pool->classes[i];
		int64_t blocks = gm_pool_live_blocks(class), bytes = gm_pool_live_bytes(class);

		all_blocks += blocks;
		if (which == GM_RESET_PEAK) {
			gm_set(&class->peak_blocks, blocks);
			gm_set(&class->peak_bytes, bytes);
		} else {
			pool->reset[i] = class->sums;
		}
	}
	if (which == GM_RESET_PEAK) {
		gm_set(&pool->peak_blocks, all_blocks);
		gm_set(&pool->peak_bytes, gm_get(&pool->live_bytes));
	}
}

int gm_record_reset_stats(uint8_t domain, enum gm_reset which)
{
	struct gm_change change;
	struct gm_txn txn;
	int r;

	gm_caches_flush(domain);
	r = gm_change_enter(&change, domain, 0);
	if (r)
		return r;
	gm_change_begin(&change, &txn);
	reset(change.domain, &txn, which);
	if (change.domain->pool.source)
		reset_pool(&change.domain->pool, which);
	gm_txn_end(&txn);
	gm_change_leave(&change);
	return 0;
}
