/*
 * image_kept.c - what threads had kept out of a heap's free sets (cached_keep.c), in a copy: counted, and
 * one with its free neighbours, as a flush in the process would have done it.
 *
 * Works on a private copy that it may change; every id is checked before it is followed and every
 * walk is bounded by the size of a table. Thread context: one thread an image.
 */
#include "recorder/image_internal.h"

#include <string.h>

static void add(int64_t *to, uint64_t by)
{
	*to = (int64_t)((uint64_t)*to + by);
}

static void count(struct gm_stats *stats, enum gm_stat_name name, uint64_t in, uint64_t out)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct gm_stat *stat = &stats->stat[name][i ? GM_POOL_SMALL : GM_POOL_ALL];

		add(&stat->current, in - out);
		add(&stat->allocated, in);
		add(&stat->freed, out);
		if (stat->peak < stat->current)
			stat->peak = stat->current;
	}
}

static void count_rows(struct gm_image *image, unsigned int domain, const struct gm_tally *tally)
{
	for (size_t i = 1; i < gm_image_items(image, GM_REGION_USAGE); i++) {
		struct gm_usage *row = (struct gm_usage *)gm_image_usage(image, i);
		bool of_kind = row->kind == tally->kind;

		if (row->used != 1 || row->domain != domain || !(of_kind || row->kind == 0xff) ||
		    (row->module != tally->module && row->module != 0xffff))
			continue;
		add(&row->current_bytes, (tally->takes - tally->puts) * tally->size);
		add(&row->allocated_bytes, tally->takes * tally->size);
		add(&row->freed_bytes, tally->puts * tally->size);
		add(&row->allocations, tally->takes);
		add(&row->frees, tally->puts);
	}
}

static void count_tally(struct gm_image *image, unsigned int d, struct gm_domain *domain,
			struct gm_tally *tally)
{
	struct gm_stats *stats = &domain->stats;
	uint64_t takes = tally->takes, puts = tally->puts, size = tally->size;

	if (!takes && !puts)
		return;
	if (tally->kind >= GM_KIND_COUNT) {
		image->damage++;
		return;
	}
	count(stats, GM_STAT_ALLOCATION, takes, puts);
	count(stats, GM_STAT_ALLOCATED_BYTES, takes * size, puts * size);
	count(stats, GM_STAT_ACTIVE, takes, puts);
	count(stats, GM_STAT_ACTIVE_BYTES, takes * size, puts * size);
	count(stats, GM_STAT_REQUESTED_BYTES, tally->taken_bytes, tally->put_bytes);
	domain->live_bytes[tally->kind] += (takes - puts) * size;
	count_rows(image, d, tally);
	tally->takes = tally->puts = tally->taken_bytes = tally->put_bytes = 0;
}

struct splits { uint64_t blocks, bytes; };

/* Free blocks of a segment with others; those that are kept do not count as free yet. */
static bool count_splits(struct gm_image *image, uint32_t segment, struct splits *ret)
{
	struct gm_block_walk walk = { 0 };
	uint32_t at = GM_NONE;

	*ret = (struct splits){ 0, 0 };
	while ((at = gm_image_next_block(image, segment, at, &walk)) != GM_NONE) {
		const struct gm_block *block = gm_image_block(image, at);

		if (block->state != GM_BLOCK_INACTIVE || !(block->prev || block->next))
			continue;
		ret->blocks++;
		ret->bytes += block->size;
	}
	return !walk.broken;
}

/* Free neighbours of a segment that was walked to its end. */
static void merge(struct gm_image *image, uint32_t segment)
{
	struct gm_block_walk walk = { 0 };
	uint32_t at = gm_image_next_block(image, segment, GM_NONE, &walk);

	while (at != GM_NONE) {
		struct gm_block *block = gm_image_block(image, at);
		struct gm_block *next = gm_image_block(image, block->next);
		struct gm_block *beyond = next ? gm_image_block(image, next->next) : NULL;

		if (block->state == GM_BLOCK_KEPT)
			block->state = GM_BLOCK_INACTIVE;
		if (next && next->state == GM_BLOCK_KEPT)
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

static void settle_segment(struct gm_image *image, uint32_t id, const struct gm_segment *segment)
{
	struct gm_domain *domain = gm_image_domain(image, segment->domain);
	struct splits before, after;

	if (!domain || !segment->heap || !count_splits(image, id, &before))
		return;
	merge(image, id);
	count_splits(image, id, &after);
	count(&domain->stats, GM_STAT_INACTIVE_SPLIT,
	      after.blocks > before.blocks ? after.blocks - before.blocks : 0,
	      before.blocks > after.blocks ? before.blocks - after.blocks : 0);
	count(&domain->stats, GM_STAT_INACTIVE_SPLIT_BYTES,
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

static void count_shard(struct gm_image *image, struct gm_shard *shard)
{
	struct gm_domain *domain = gm_image_domain(image, shard->domain);

	if (!domain) {
		image->damage++;
		return;
	}
	count_events(&domain->counts, &shard->counts);
	for (unsigned int i = 0; i < GM_TALLIES; i++)
		count_tally(image, shard->domain, domain, &shard->tallies[i]);
}

void gm_settle_kept(struct gm_image *image)
{
	size_t blocks = gm_image_items(image, GM_REGION_BLOCKS);

	for (size_t i = 1; i < gm_image_items(image, GM_REGION_SHARDS); i++)
		count_shard(image, gm_image_shard(image, i));
	for (uint32_t id = 1; id < blocks; id++) {
		struct gm_block *block = gm_image_block(image, id);
		struct gm_segment *segment;

		if (!block || block->state != GM_BLOCK_KEPT)
			continue;
		segment = gm_image_segment(image, block->segment);
		if (segment)
			settle_segment(image, block->segment, segment);
		if (block->state == GM_BLOCK_KEPT)	/* in no segment that can be walked */
			block->state = GM_BLOCK_INACTIVE;
	}
}
