/*
 * cache_heap_whole.c - functions for a heap as a whole: its idle segments, its counters, its end.
 *
 * Thread context: any, inside a hook; the counters without a lock. Signal context: none.
 * Lock: the domain's, released now and then.
 */
#include "preload/cache/cache_heap_internal.h"
#include "preload/cache/thread_cache.h"

#include "allocator/page_map.h"
#include "allocator/pages_heap.h"

#define BATCH 32u			/* blocks dropped before the lock is released */

enum way { SYNCHRONIZE, AT_ONCE, UNUSED };

/* Give memory of at most @most bytes back to the driver. */
static uint64_t give_back(struct gm_cache_heap *heap, enum way way, uint64_t most)
{
	struct gm_section section = { .alloc = NULL };
	uint64_t bytes = 0;

	if (way != UNUSED)
		gm_tcache_flush(heap->domain);
	heap->grower = &section;
	if (gm_section_begin(heap, &section, 0) == 0) {
		if (way == UNUSED)
			gm_heap_release_unused(heap->core, most, &bytes);
		else
			gm_heap_release(heap->core, most, way == SYNCHRONIZE, &bytes);
		if (section.held)
			gm_section_end(heap, &section);
	}
	heap->grower = NULL;
	return bytes;
}

uint64_t gm_cache_heap_empty(struct gm_cache_heap *heap, uint64_t most)
{
	return give_back(heap, SYNCHRONIZE, most);
}

uint64_t gm_cache_heap_release(struct gm_cache_heap *heap)
{
	return give_back(heap, AT_ONCE, UINT64_MAX);
}

uint64_t gm_cache_heap_release_unused(struct gm_cache_heap *heap, uint64_t most)
{
	return give_back(heap, UNUSED, most);
}

void gm_cache_heap_begin_period(struct gm_cache_heap *heap)
{
	struct gm_section section = { .alloc = NULL };

	if (gm_section_begin(heap, &section, 0) < 0)
		return;
	gm_heap_begin_period(heap->core);
	gm_section_cancel(heap, &section);
}

bool gm_cache_heap_freed_on(struct gm_cache_heap *heap, uint64_t stream, uint64_t least)
{
	struct gm_section section = { .alloc = NULL };
	bool found;

	if (gm_section_begin(heap, &section, 0) < 0)
		return false;
	found = gm_pages_freed_on(heap->core, stream, least);
	gm_section_cancel(heap, &section);
	return found;
}

uint64_t gm_cache_heap_take_over(struct gm_cache_heap *heap, uint64_t from, uint64_t to, uint64_t until)
{
	struct gm_section section = { .alloc = NULL };
	uint64_t bytes;

	if (gm_section_begin(heap, &section, 0) < 0)
		return 0;
	bytes = gm_pages_take_over(heap->core, from, to, until);
	gm_section_cancel(heap, &section);
	return bytes;
}

uint64_t gm_cache_heap_idle_bytes(const struct gm_cache_heap *heap)
{
	uint64_t spare = gm_cache_heap_in_pages(heap) ? gm_pages_spare(heap->core) : 0;

	if (gm_tcache_any(heap->domain))
		gm_tcache_flush(heap->domain);
	return __atomic_load_n(&heap->core->idle, __ATOMIC_RELAXED) + spare;
}

uint64_t gm_cache_heap_live_bytes(const struct gm_cache_heap *heap)
{
	return __atomic_load_n(&heap->live, __ATOMIC_RELAXED);
}

void gm_cache_heap_used(const struct gm_cache_heap *heap, uint64_t *ret_used, uint64_t *ret_high)
{
	if (gm_tcache_any(heap->domain))
		gm_tcache_flush(heap->domain);
	*ret_used = __atomic_load_n(&heap->used, __ATOMIC_RELAXED);
	*ret_high = __atomic_load_n(&heap->used_high, __ATOMIC_RELAXED);
}

void gm_cache_heap_reset_high(struct gm_cache_heap *heap)
{
	struct gm_section section = { .alloc = NULL };

	if (gm_section_enter(heap, &section, 0) < 0)
		return;
	gm_tcache_empty_all(&section);
	gm_section_turn(heap, &section);
	__atomic_store_n(&heap->used_high, heap->used, __ATOMIC_RELAXED);
	gm_section_cancel(heap, &section);
}

uint64_t gm_cache_heap_largest_free(struct gm_cache_heap *heap)
{
	struct gm_section section = { .alloc = NULL };
	uint64_t largest = 0;

	gm_tcache_flush(heap->domain);
	if (gm_section_begin(heap, &section, 0) < 0)
		return 0;
	largest = gm_heap_largest(heap->core);
	gm_section_cancel(heap, &section);
	return largest;
}

static void set_thread_cache(struct gm_cache_heap *heap)
{
	gm_set(&heap->thread_cache, heap->thread_cache_wanted && !heap->suspended && !gm_heap_collects(heap->core));
}

void gm_cache_heap_set_limit(struct gm_cache_heap *heap, uint64_t limit, uint64_t shared_most)
{
	struct gm_section section = { .moves_nothing = true };

	if (gm_section_begin(heap, &section, 0) < 0)
		return;
	heap->core->config.limit = limit;
	heap->core->config.shared_most = shared_most;
	set_thread_cache(heap);
	gm_section_cancel(heap, &section);
}

/* ---- the end of the heap's context, or what was announced as one ---- */

/* Return the first block of @segment whose completed free was postponed; GM_NONE: there is none. */
static uint32_t find_put_off(const struct gm_segment *segment)
{
	uint32_t id = segment->first_block;

	while (id && !(gm_get(&gm_rec.blocks[id].state) == GM_BLOCK_PENDING &&
		       gm_rec.blocks[id].flags & GM_BLOCK_DONE))
		id = gm_rec.blocks[id].next;
	return id;
}

static void complete_put_off(struct gm_cache_heap *heap, struct gm_section *section)
{
	uint32_t id, s = section->change.domain->first_segment;

	for (; s; s = gm_rec.segments[s].next) {
		if (gm_get(&gm_rec.segments[s].heap) != heap->number)
			continue;
		while ((id = find_put_off(&gm_rec.segments[s])) != GM_NONE) {
			/* @seen is false, because the block may have been freed in stream order alone. */
			gm_cache_heap_complete_pending(heap, section, id, gm_stamp(), false);
			gm_section_next(heap, section);
		}
	}
	heap->put_off = false;
}

void gm_cache_heap_suspend(struct gm_cache_heap *heap, bool on)
{
	struct gm_section section = { .moves_nothing = true };

	if (gm_section_enter(heap, &section, 0) < 0)
		return;
	if (on) {
		gm_set(&heap->thread_cache, false);
		gm_tcache_drop(heap, &section);
	}
	heap->suspended = on;
	gm_section_turn(heap, &section);
	if (!on) {
		set_thread_cache(heap);
		if (heap->put_off)
			complete_put_off(heap, &section);
	}
	gm_section_cancel(heap, &section);
}

void gm_cache_heap_address_reused(struct gm_page_map *map, uint8_t domain, uint64_t address, uint64_t bytes)
{
	uint64_t first = address & ~(GM_GRANULE - 1);
	struct gm_change change;

	if (gm_change_enter(&change, domain, 0) < 0)
		return;
	gm_page_map_remove(map, first, (address + bytes - first + GM_GRANULE - 1) & ~(GM_GRANULE - 1));
	gm_change_leave(&change);
}

/* Do one step to remove a heap's segment from the tables: free a block, or, if the segment is one free block by now,
 * remove the segment. */
static void drop_step(struct gm_cache_heap *heap, struct gm_section *section, uint32_t segment,
		      unsigned int *live)
{
	struct gm_cache_free how = { .tsc = section->tsc, .stack = section->stack,
				      .stream = gm_rec.segments[segment].stream };
	bool in_pages = gm_rec.segments[segment].flags & GM_SEGMENT_EXPANDABLE;
	uint32_t id = gm_rec.segments[segment].first_block;
	uint8_t state = gm_get(&gm_rec.blocks[id].state);

	/* If the first block is free, the next one is not, because free neighbours are merged. In pages, a free block
	 * loses its memory first and is then merged with unmapped neighbours. */
	if (state == (in_pages ? GM_BLOCK_UNMAPPED : GM_BLOCK_INACTIVE) && gm_rec.blocks[id].next)
		id = gm_rec.blocks[id].next;
	state = gm_get(&gm_rec.blocks[id].state);
	if (state == GM_BLOCK_INACTIVE || state == GM_BLOCK_UNMAPPED) {
		gm_heap_detach(heap->core, id);
		return;
	}
	if (gm_get(&gm_rec.blocks[id].state) == GM_BLOCK_CACHED) {	/* its thread cache could not be entered */
		gm_cache_heap_site_out(heap, &gm_rec.blocks[id]);
		gm_heap_put_back(heap->core, id);
		return;
	}
	if (!gm_cache_heap_is_live(&gm_rec.blocks[id])) {
		gm_cache_heap_complete_pending(heap, section, id, section->tsc, true);
		return;
	}
	gm_cache_heap_rows(heap, gm_rec.blocks[id].module, false);	/* found at the allocation */
	gm_cache_heap_free_now(heap, section, id, &how);
	++*live;
}

/* Remove up to BATCH blocks. Returns true if there may be more. */
static bool drop_some(struct gm_cache_heap *heap, struct gm_section *section, unsigned int *live)
{
	uint32_t id = section->change.domain->first_segment, next;

	for (unsigned int steps = 0; id; id = next) {
		const struct gm_segment *segment = &gm_rec.segments[id];

		next = segment->next;
		if (gm_get(&segment->heap) != heap->number)
			continue;
		while (segment->used && steps < BATCH) {
			drop_step(heap, section, id, live);
			gm_section_next(heap, section);
			steps++;
		}
		if (steps >= BATCH)
			return true;
	}
	return false;
}

/* Remove the heap's blocks from the page map, because the driver has taken the memory back and may have given it to
 * another heap by now. */
static void forget_map(struct gm_cache_heap *heap, const struct gm_section *section)
{
	uint32_t id = section->change.domain->first_segment;

	for (; heap->core->map && id; id = gm_rec.segments[id].next) {
		const struct gm_segment *segment = &gm_rec.segments[id];

		if (gm_get(&segment->heap) != heap->number)
			continue;
		for (uint32_t b = segment->first_block; b; b = gm_rec.blocks[b].next)
			gm_page_map_forget(heap->core->map, gm_rec.blocks[b].address,
				       gm_rec.blocks[b].size, b);
	}
	heap->core->map = NULL;
}

unsigned int gm_cache_heap_drop(struct gm_cache_heap *heap, uint64_t tsc, uint32_t stack)
{
	struct gm_section section = { .tsc = tsc ? tsc : gm_stamp_before(), .stack = stack,
				      .drops = true };
	unsigned int live = 0;
	bool more = true;

	gm_record_late_frees(heap->domain, GM_LOCK_LIMIT_NS);	/* first, because they could not find the heap later */
	/* Every transaction takes a number of its own, as at the end of a context. */
	gm_cache_heap_retire(heap);
	while (more) {
		if (gm_section_enter(heap, &section, 0) < 0)
			return live;
		gm_set(&heap->dead, true);
		gm_set(&heap->thread_cache, false);
		heap->suspended = false;
		forget_map(heap, &section);
		gm_tcache_drop(heap, &section);
		gm_section_turn(heap, &section);
		more = drop_some(heap, &section, &live);
		gm_cache_heap_drop_records(heap);
		more |= heap->kept_count > 0;
		gm_section_cancel(heap, &section);
	}
	gm_arena_free(&heap->arena);
	gm_cache_heap_recycle(heap);
	return live;
}

/* ---- the segment that a block lies in ---- */

bool gm_cache_heap_segment(uint32_t block, struct gm_segment *ret_copy)
{
	struct gm_block copy;
	struct gm_change change;
	bool found = false;

	if (!gm_cache_heap_of(block, &copy) || gm_change_enter(&change, copy.domain, 0))
		return false;
	if (gm_rec.blocks[block].state != GM_BLOCK_UNUSED && gm_rec.blocks[block].segment) {
		*ret_copy = gm_rec.segments[gm_rec.blocks[block].segment];
		found = ret_copy->used;
	}
	gm_change_leave(&change);
	return found;
}
