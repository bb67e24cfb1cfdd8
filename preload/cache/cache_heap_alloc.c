/*
 * cache_heap_alloc.c - hand out blocks of a heap: see cache_heap.h.
 *
 * Every operation except a hit in the thread's own cache (thread_cache.c) consists of one or more locked sections
 * (cache_heap_internal.h): the heap's change, the statistics, the usage rows and the events are one transaction each
 * time.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the domain's.
 */
#include "preload/cache/thread_cache.h"

#include <errno.h>

#include "preload/cache/cache_heap_internal.h"

static void hand_over(struct gm_cache_heap *heap, struct gm_section *section, struct gm_alloc *alloc,
		      uint32_t id)
{
	struct gm_block *block = &gm_rec.blocks[id];
	uint32_t site = gm_site_find(heap->domain, alloc->stack, alloc->module, heap->kind,
				     section->change.writer.nested);

	gm_cache_heap_move(heap, &(struct gm_flow){ .in = 1, .in_bytes = block->size },
			block->requested);
	gm_undo_note(&heap->undo, &gm_rec.sites[site].live);
	gm_site_in(section->change.domain, block, site, alloc->stack, block->requested);
	/* Without history nothing is ordered by this stamp. */
	gm_cache_heap_describe(&section->change, alloc, id,
			   gm_rec.history ? gm_stamp() : gm_stamp_before());
}

/* Find a free block, within a locked section with the operation's number. Returns -EAGAIN if there is none. */
static int find(struct gm_cache_heap *heap, struct gm_section *section, struct gm_alloc *alloc,
		uint32_t *ret_block)
{
	struct gm_heap_request request = { alloc->requested, alloc->stream, alloc->whole };
	int r;

	if (gm_unlikely(!gm_cache_heap_rows(heap, alloc->module, section->change.writer.nested)))
		return gm_cache_heap_lost(-ETIMEDOUT);
	r = gm_heap_find(heap->core, &request, ret_block);
	if (gm_likely(r == 0))
		hand_over(heap, section, alloc, *ret_block);
	return r;
}

/* Would @by more raise the peak of the total or of the size class @pool? */
static bool rises(const struct gm_stat *stat, unsigned int pool, uint64_t by)
{
	const struct gm_stat *all = &stat[GM_POOL_ALL];
	const struct gm_stat *one = &stat[pool ? GM_POOL_LARGE : GM_POOL_SMALL];

	return all->current + (int64_t)by > all->peak || one->current + (int64_t)by > one->peak;
}

/* May a block for @alloc raise a peak, if cached blocks count as live? The usage rows are known. A large block may
 * exceed its request by a rest that is not worth a cut. */
static bool raises_peak(const struct gm_cache_heap *heap, const struct gm_alloc *alloc)
{
	const struct gm_heap_config *config = &heap->core->config;
	uint64_t size = gm_heap_round(config, alloc->requested);
	const struct gm_stats *stats = heap->core->stats;
	unsigned int pool = gm_heap_pool_of(size);

	if (pool)
		size += size < config->max_split_size ? GM_HEAP_SMALL_REQUEST
						      : config->max_non_split_rounding;
	for (unsigned int i = 0; i < 3; i++)
		if (heap->rows[i] &&
		    heap->rows[i]->current_bytes + (int64_t)size > heap->rows[i]->peak_bytes)
			return true;
	return rises(stats->stat[GM_STAT_ALLOCATION], pool, 1) ||
	       rises(stats->stat[GM_STAT_ACTIVE], pool, 1) ||
	       rises(stats->stat[GM_STAT_ALLOCATED_BYTES], pool, size) ||
	       rises(stats->stat[GM_STAT_ACTIVE_BYTES], pool, size) ||
	       rises(stats->stat[GM_STAT_REQUESTED_BYTES], pool, alloc->requested) ||
	       heap->used + alloc->requested > heap->used_high;
}

/* Begin another transaction under operation @op, and find a block. */
static int find_again(struct gm_cache_heap *heap, struct gm_section *section, struct gm_alloc *alloc,
		      uint64_t op, uint32_t *ret_block)
{
	section->change.op = op;
	gm_section_open(heap, section);
	return find(heap, section, alloc, ret_block);
}

/* Find a free block with the lock held. Flush this thread's cache before searching. Flush every thread's cache before
 * reporting that nothing is free, or if a peak could be overstated. */
static int find_flushed(struct gm_cache_heap *heap, struct gm_section *section, struct gm_alloc *alloc,
			uint32_t *ret_block)
{
	bool others = gm_tcache_others(section), nested = section->change.writer.nested;
	uint64_t op = section->change.op;
	int r;

	gm_tcache_tidy_own(section);
	if (others && gm_cache_heap_rows(heap, alloc->module, nested) && raises_peak(heap, alloc)) {
		gm_tcache_empty_all(section);
		others = false;
	}
	r = find_again(heap, section, alloc, op, ret_block);
	if (r != -EAGAIN || !others || !gm_tcache_any(heap->domain))
		return r;
	if (section->change.writer.slot)
		section->change.writer.slot->last_op = section->last_op;
	gm_section_close(heap, section);
	gm_tcache_empty_all(section);
	return find_again(heap, section, alloc, op, ret_block);
}

int gm_cache_heap_alloc(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc,
		    uint32_t *ret_block)
{
	struct gm_section section;
	int r;

	*ret_block = GM_NONE;
	if (gm_unlikely(alloc->requested >= GM_HEAP_REQUEST_LIMIT))
		return -E2BIG;
	if (gm_unlikely(!gm_header_get()))
		return -ENODEV;
	if (gm_tcache_has(heap->domain)) {
		*ret_block = gm_tcache_take(heap, op, alloc);
		if (gm_likely(*ret_block))
			return 0;
	}
	gm_section_make(&section, false);
	r = gm_section_enter(heap, &section, op);
	if (gm_unlikely(r < 0))
		return r;
	r = find_flushed(heap, &section, alloc, ret_block);
	if (gm_likely(r == 0))
		gm_section_end(heap, &section);
	else
		gm_section_cancel(heap, &section);
	return r;
}

/* Grow the heap: locked sections with driver calls between them. The caller holds the growth lock. */
static int grow(struct gm_cache_heap *heap, struct gm_section *section, struct gm_alloc *alloc,
		uint32_t *ret_block)
{
	struct gm_heap_request request = { alloc->requested, alloc->stream, alloc->whole };
	int64_t *ooms = &heap->core->stats->num_ooms;
	int r;

	gm_cache_heap_rows(heap, alloc->module, false);	/* these rows were found before, so this cannot fail */
	r = gm_heap_alloc(heap->core, &request, ret_block);
	if (!section->held)
		return r;		/* the lock was lost between driver calls, which is counted */
	if (r == 0) {
		hand_over(heap, section, alloc, *ret_block);
	} else if (r == -ENOMEM) {
		GM_PUT(&heap->undo, *ooms, *ooms - 1);	/* not counted here, because gm_record_failure does */
	}
	gm_section_end(heap, section);
	return r;
}

int gm_cache_heap_grow(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc,
		   uint32_t *ret_block)
{
	struct gm_section section = { .alloc = alloc, .op = op };
	int r;

	*ret_block = GM_NONE;
	if (alloc->requested >= GM_HEAP_REQUEST_LIMIT)
		return -E2BIG;
	gm_tcache_flush(heap->domain);
	r = gm_section_enter(heap, &section, op);
	if (r < 0)
		return r;
	r = find_flushed(heap, &section, alloc, ret_block);
	if (r == 0) {
		gm_section_end(heap, &section);
		return 0;
	}
	gm_section_cancel(heap, &section);
	if (r != -EAGAIN)
		return r;
	heap->grower = &section;
	r = gm_section_enter(heap, &section, 0);
	if (r == 0) {
		gm_tcache_empty_all(&section);	/* blocks that were cached meanwhile */
		gm_section_turn(heap, &section);
		if (gm_cache_heap_in_pages(heap))
			gm_cache_heap_keep_records(heap);
		r = grow(heap, &section, alloc, ret_block);
	}
	heap->grower = NULL;
	return r;
}
