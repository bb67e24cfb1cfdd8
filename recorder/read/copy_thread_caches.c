/*
 * copy_thread_caches.c - what thread caches held (preload/cache/thread_cache.c), in a copy: their
 * tallies are counted, and their blocks are free ones. A flush in the process would also have made
 * them one with their free neighbours; in a copy each stays a block of its own.
 *
 * Works on a private copy that it may change; every id is checked before it is followed. Thread
 * context: one thread a copy.
 */
#include "recorder/read/copy_internal.h"

#include <string.h>

void gm_copy_count(struct gm_copy *copy, const struct gm_counted *of, const struct gm_flow *flow)
{
	struct gm_domain *domain = gm_copy_domain(copy, of->domain);

	domain->live_bytes[of->kind] += flow->in_bytes - flow->out_bytes;
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_USAGE); i++) {
		struct gm_usage *row = (struct gm_usage *)gm_copy_usage(copy, i);
		bool of_all = row->kind == GM_USAGE_ALL_KINDS && of->kind != GM_KIND_IPC;

		if (row->used == 1 && row->domain == of->domain &&
		    (row->kind == of->kind || of_all) &&
		    (row->module == of->module || row->module == GM_USAGE_ALL_MODULES))
			gm_usage_move(row, flow);
	}
}

static void count_tally(struct gm_copy *copy, uint8_t d, const struct gm_tally *tally)
{
	struct gm_counted of = { tally->module, d, tally->kind };
	struct gm_flow flow = gm_tally_flow(tally);

	if (!flow.in && !flow.out)
		return;
	if (tally->kind >= GM_KIND_COUNT) {
		copy->damage++;
		return;
	}
	gm_tally_count(tally, &gm_copy_domain(copy, d)->stats);
	gm_copy_count(copy, &of, &flow);
}

static void count_thread_cache(struct gm_copy *copy, struct gm_tcache_record *tcache)
{
	struct gm_domain *domain = gm_copy_domain(copy, tcache->domain);

	if (!domain) {
		copy->damage++;
		return;
	}
	domain->counts.events += tcache->counts.events;
	domain->counts.small += tcache->counts.small;
	domain->counts.left_out += tcache->counts.left_out;
	domain->counts.paused += tcache->counts.paused;
	for (unsigned int i = 0; i < GM_TALLIES; i++)
		count_tally(copy, tcache->domain, &tcache->tallies[i]);
	memset(&tcache->counts, 0, sizeof(tcache->counts));
	memset(tcache->tallies, 0, sizeof(tcache->tallies));
}

static void free_block(const struct gm_copy *copy, struct gm_block *block)
{
	struct gm_domain *domain = gm_copy_domain(copy, block->domain);

	block->state = GM_BLOCK_INACTIVE;
	if (!domain || !(block->prev || block->next))
		return;
	gm_stats_move(&domain->stats, GM_POOL_SMALL, GM_STAT_INACTIVE_SPLIT, 1, 0);
	gm_stats_move(&domain->stats, GM_POOL_SMALL, GM_STAT_INACTIVE_SPLIT_BYTES, block->size, 0);
}

void gm_resolve_thread_caches(struct gm_copy *copy)
{
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_TCACHES); i++)
		count_thread_cache(copy, gm_copy_tcache(copy, i));
	for (uint32_t id = 1; id < gm_copy_items(copy, GM_REGION_BLOCKS); id++) {
		struct gm_block *block = gm_copy_block(copy, id);

		if (block && block->state == GM_BLOCK_CACHED)
			free_block(copy, block);
	}
}
