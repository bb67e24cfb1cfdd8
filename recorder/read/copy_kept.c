/*
 * copy_kept.c - what threads had kept out of a heap's free sets (thread_cache.c), in a copy: counted, and
 * one with its free neighbours, as a flush in the process would have done it; and what heaps had not
 * put into the statistics yet (cached_ledger.c).
 *
 * Works on a private copy that it may change; every id is checked before it is followed and every
 * walk is bounded by the size of a table. Thread context: one thread a copy.
 */
#include "recorder/read/copy_internal.h"

#include <string.h>

#define SETTLED 1u			/* in the copy, of a segment that was walked */

static void add(int64_t *to, uint64_t by)
{
	*to = (int64_t)((uint64_t)*to + by);
}

static void count_in(struct gm_stats *stats, enum gm_pool_class class, enum gm_stat_name name,
		     uint64_t in, uint64_t out)
{
	struct gm_stat *stat = &stats->stat[name][class];

	add(&stat->current, in - out);
	add(&stat->allocated, in);
	add(&stat->freed, out);
}

static void count(struct gm_stats *stats, bool small, enum gm_stat_name name, uint64_t in,
		  uint64_t out)
{
	const enum gm_pool_class classes[] = { GM_POOL_ALL, small ? GM_POOL_SMALL : GM_POOL_LARGE };

	for (unsigned int i = 0; i < 2; i++) {
		struct gm_stat *stat = &stats->stat[name][classes[i]];

		count_in(stats, classes[i], name, in, out);
		if (stat->peak < stat->current)
			stat->peak = stat->current;
	}
}

/* Blocks of one module and kind that came and went, and their bytes. */
struct flow { uint64_t module, kind, in, in_bytes, out, out_bytes; };

static void count_rows(struct gm_copy *copy, unsigned int domain, const struct flow *flow)
{
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_USAGE); i++) {
		struct gm_usage *row = (struct gm_usage *)gm_copy_usage(copy, i);
		bool of_kind = row->kind == flow->kind;

		if (row->used != 1 || row->domain != domain || !(of_kind || row->kind == 0xff) ||
		    (row->module != flow->module && row->module != 0xffff))
			continue;
		add(&row->current_bytes, flow->in_bytes - flow->out_bytes);
		add(&row->allocated_bytes, flow->in_bytes);
		add(&row->freed_bytes, flow->out_bytes);
		add(&row->allocations, flow->in);
		add(&row->frees, flow->out);
	}
}

static void count_tally(struct gm_copy *copy, unsigned int d, struct gm_domain *domain,
			struct gm_tally *tally)
{
	struct gm_stats *stats = &domain->stats;
	uint64_t takes = tally->takes, puts = tally->puts, size = tally->size;
	bool small = size <= GM_SMALL_BYTES;
	struct flow flow = { tally->module, tally->kind, takes, takes * size, puts, puts * size };

	if (!takes && !puts)
		return;
	if (tally->kind >= GM_KIND_COUNT) {
		copy->damage++;
		return;
	}
	count(stats, small, GM_STAT_ALLOCATION, takes, puts);
	count(stats, small, GM_STAT_ALLOCATED_BYTES, takes * size, puts * size);
	count(stats, small, GM_STAT_ACTIVE, takes, puts);
	count(stats, small, GM_STAT_ACTIVE_BYTES, takes * size, puts * size);
	count(stats, small, GM_STAT_REQUESTED_BYTES, tally->taken_bytes, tally->put_bytes);
	domain->live_bytes[tally->kind] += (takes - puts) * size;
	count_rows(copy, d, &flow);
	tally->takes = tally->puts = tally->taken_bytes = tally->put_bytes = 0;
}

struct splits { uint64_t blocks, bytes; };

/* Free blocks of a segment with others; those that are kept do not count as free yet. */
static bool count_splits(struct gm_copy *copy, uint32_t segment, struct splits *ret)
{
	struct gm_block_walk walk = { 0 };
	uint32_t at = GM_NONE;

	*ret = (struct splits){ 0, 0 };
	while ((at = gm_copy_next_block(copy, segment, at, &walk)) != GM_NONE) {
		const struct gm_block *block = gm_copy_block(copy, at);

		if (block->state != GM_BLOCK_INACTIVE || !(block->prev || block->next))
			continue;
		ret->blocks++;
		ret->bytes += block->size;
	}
	return !walk.broken;
}

/* Free neighbours of a segment that was walked to its end. */
static void merge(struct gm_copy *copy, uint32_t segment)
{
	struct gm_block_walk walk = { 0 };
	uint32_t at = gm_copy_next_block(copy, segment, GM_NONE, &walk);

	while (at != GM_NONE) {
		struct gm_block *block = gm_copy_block(copy, at);
		struct gm_block *next = gm_copy_block(copy, block->next);
		struct gm_block *beyond = next ? gm_copy_block(copy, next->next) : NULL;

		if (block->state == GM_BLOCK_CACHED)
			block->state = GM_BLOCK_INACTIVE;
		if (next && next->state == GM_BLOCK_CACHED)
			next->state = GM_BLOCK_INACTIVE;
		if (!next || block->state != GM_BLOCK_INACTIVE ||
		    next->state != GM_BLOCK_INACTIVE ||
		    next->address != block->address + block->size) {
			at = block->next;
			continue;
		}
		block->size += next->size;
		block->next = next->next;
		if (beyond)
			beyond->prev = at;
		next->state = GM_BLOCK_UNUSED;
	}
}

static void settle_segment(struct gm_copy *copy, uint32_t id, const struct gm_segment *segment)
{
	struct gm_domain *domain = gm_copy_domain(copy, segment->domain);
	bool small = segment->flags & GM_SEGMENT_SMALL;
	struct splits before, after;

	if (!domain || !segment->heap || !count_splits(copy, id, &before))
		return;
	merge(copy, id);
	count_splits(copy, id, &after);
	count(&domain->stats, small, GM_STAT_INACTIVE_SPLIT,
	      after.blocks > before.blocks ? after.blocks - before.blocks : 0,
	      before.blocks > after.blocks ? before.blocks - after.blocks : 0);
	count(&domain->stats, small, GM_STAT_INACTIVE_SPLIT_BYTES,
	      after.bytes > before.bytes ? after.bytes - before.bytes : 0,
	      before.bytes > after.bytes ? before.bytes - after.bytes : 0);
}

static void count_events(struct gm_event_counts *to, struct gm_event_counts *from)
{
	to->events += from->events;
	to->small += from->small;
	to->left_out += from->left_out;
	to->paused += from->paused;
	memset(from, 0, sizeof(*from));
}

static void count_tcache(struct gm_copy *copy, struct gm_tcache_record *tcache)
{
	struct gm_domain *domain = gm_copy_domain(copy, tcache->domain);

	if (!domain) {
		copy->damage++;
		return;
	}
	count_events(&domain->counts, &tcache->counts);
	for (unsigned int i = 0; i < GM_TALLIES; i++)
		count_tally(copy, tcache->domain, domain, &tcache->tallies[i]);
}

static void count_pool(struct gm_stats *stats, enum gm_pool_class class,
		       const struct gm_ledger_pool *l)
{
	count_in(stats, class, GM_STAT_ALLOCATION, l->outs, l->asked);
	count_in(stats, class, GM_STAT_ALLOCATED_BYTES, l->out_bytes, l->asked_bytes);
	count_in(stats, class, GM_STAT_ACTIVE, l->outs, l->done);
	count_in(stats, class, GM_STAT_ACTIVE_BYTES, l->out_bytes, l->done_bytes);
	count_in(stats, class, GM_STAT_REQUESTED_BYTES, l->out_requested, l->done_requested);
	count_in(stats, class, GM_STAT_INACTIVE_SPLIT, l->splits, l->joins);
	count_in(stats, class, GM_STAT_INACTIVE_SPLIT_BYTES, l->split_bytes, l->join_bytes);
}

/* What the heaps of a domain did that is not in its statistics yet. It passes no peak. */
static void count_ledger(struct gm_copy *copy, unsigned int d, struct gm_domain *domain)
{
	struct gm_ledger *ledger = &domain->ledger;
	uint32_t kind = ledger->key >> 16 & 15;

	if (!ledger->key)
		return;
	if (kind >= GM_KIND_COUNT) {
		copy->damage++;
		return;
	}
	for (unsigned int p = 0; p < 2; p++) {
		const struct gm_ledger_pool *l = &ledger->pool[p];
		struct flow flow = { ledger->key & 0xffff, kind, l->outs, l->out_bytes, l->asked,
				     l->asked_bytes };

		count_pool(&domain->stats, GM_POOL_ALL, l);
		count_pool(&domain->stats, p ? GM_POOL_LARGE : GM_POOL_SMALL, l);
		domain->live_bytes[kind] += l->out_bytes - l->asked_bytes;
		count_rows(copy, d, &flow);
	}
	memset(ledger, 0, sizeof(*ledger));
}

void gm_settle_kept(struct gm_copy *copy)
{
	size_t blocks = gm_copy_items(copy, GM_REGION_BLOCKS);

	for (unsigned int d = 0; d < GM_DOMAINS; d++)
		if (gm_copy_domain(copy, d))
			count_ledger(copy, d, gm_copy_domain(copy, d));
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_TCACHES); i++)
		count_tcache(copy, gm_copy_tcache(copy, i));
	for (uint32_t id = 1; id < blocks; id++) {
		struct gm_block *block = gm_copy_block(copy, id);
		struct gm_segment *segment;

		if (!block || block->state != GM_BLOCK_CACHED)
			continue;
		segment = gm_copy_segment(copy, block->segment);
		if (segment && segment->reserved32 != SETTLED)
			settle_segment(copy, block->segment, segment);
		if (segment)
			segment->reserved32 = SETTLED;
		if (block->state == GM_BLOCK_CACHED)	/* in no segment that can be walked */
			block->state = GM_BLOCK_INACTIVE;
	}
}
