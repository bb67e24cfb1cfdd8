/*
 * segments_heap.c - the segments heap: finding, splitting, merging; and its class. See segments_heap.h.
 *
 * Source of the rules: PyTorch's CUDACachingAllocator (get_free_block, should_split, alloc_found_block, free_block,
 * try_merge_blocks). Steps that are in an odd order are in PyTorch's order, because a counter in the traces
 * (test/traces) depends on it.
 */
#include "allocator/segments_heap.h"

#include <errno.h>

#define LOOKS 16u			/* most blocks that next_that_fits() tries */

static int init(struct gm_heap *heap, const struct gm_heap_setup *setup)
{
	struct gm_segments_heap *own = gm_segments(heap);

	heap->stats->max_split_size = heap->config.max_split_size == GM_HEAP_UNLIMITED
		? -1 : (int64_t)heap->config.max_split_size;
	own->shared = 0;
	for (int p = 0; p < 2; p++) {
		own->lookups[p] = 0;
		if (gm_free_set_init(&own->pool[p], heap->blocks, heap->links, setup->memory,
				     setup->memory_arg))
			return -ENOMEM;
	}
	return 0;
}

/* ---- records ---- */

static inline void store_state(struct gm_block *block, enum gm_block_state state)
{
	__atomic_store_n((uint8_t *)&block->state, (uint8_t)state, __ATOMIC_RELEASE);
}

/* Store a word of a block atomically, because look-ups of possibly stale pointers read it without the lock. */
static void set_word(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static void set_segment(struct gm_block *block, uint32_t segment, uint8_t domain)
{
	__atomic_store_n(&block->segment, segment, __ATOMIC_RELAXED);
	__atomic_store_n(&block->domain, domain, __ATOMIC_RELAXED);
}

/* Insert a free block into its pool. Returns 0; -ENOMEM only in gm_segments_adopt, which inserts the first block of a
 * stream and so makes the stream's tree. */
static int insert(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	return gm_free_set_insert(&gm_segments(heap)->pool[pool], id, gm_segments(heap)->lookups[pool]);
}

/* ---- finding ---- */

/* Return the bound below which a free block may serve @size bytes. */
static inline uint64_t below_of(const struct gm_heap_config *config, uint64_t size)
{
	if (__builtin_expect(size < config->max_split_size, 1))
		return config->max_split_size;
	return size + config->max_non_split_rounding;
}

/* Is the block to be cut for the request? PyTorch's rule, within the bound of config.shared_most. */
static bool should_split(const struct gm_heap *heap, unsigned int pool,
			 const struct gm_block *block, uint64_t size, bool whole)
{
	uint64_t remaining = block->size - size;

	if (!pool)
		return remaining >= GM_GRANULE;
	return !whole && size < heap->config.max_split_size && remaining > GM_HEAP_SMALL_REQUEST &&
	       (gm_heap_is_split(block) || gm_segments_may_share(heap, block->size, size));
}

/* May block @id serve a request of @size bytes? A whole large segment serves a much smaller request only if it may be
 * cut. @whole: only an uncut segment of nearly @size bytes may. */
static inline bool fits(const struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t size, bool whole)
{
	const struct gm_block *block = &heap->blocks[id];

	if (__builtin_expect(whole && pool, 0))
		return block->size - size < GM_HEAP_ROUND_LARGE && !gm_heap_is_split(block);
	return !pool || block->size - size < GM_HEAP_ROUND_LARGE || gm_heap_is_split(block) ||
	       gm_segments_may_share(heap, block->size, size);
}

/* Block @id, which has been removed from the set, does not fit. Insert it again, and remove and return the next block
 * in the set's order that fits; GM_NONE: none of the next LOOKS blocks does. */
static __attribute__((noinline)) uint32_t next_that_fits(struct gm_heap *heap, unsigned int pool, uint32_t id,
							  uint64_t size, uint64_t below,
							  const struct gm_heap_request *request)
{
	struct gm_free_set *set = &gm_segments(heap)->pool[pool];

	gm_free_set_insert(set, id, heap->links[id].born);
	for (unsigned int i = 0; id && i < LOOKS; i++) {
		const struct gm_block *block = &heap->blocks[id];

		id = gm_free_set_at_least(set, request->stream, block->size, block->address + 1);
		if (!id || heap->blocks[id].size >= below)
			return GM_NONE;
		if (fits(heap, pool, id, size, request->whole)) {
			gm_free_set_remove(set, id);
			return id;
		}
	}
	return GM_NONE;
}

/* Remove the best free block for the request from @pool and return it; GM_NONE: none. */
static uint32_t get_free_block(struct gm_heap *heap, unsigned int pool, uint64_t size,
			       const struct gm_heap_request *request)
{
	uint64_t below = below_of(&heap->config, size);
	uint32_t id;

	if (gm_heap_collects(heap))
		gm_segments(heap)->lookups[pool]++;
	id = gm_free_set_take(&gm_segments(heap)->pool[pool], request->stream, size, below);
	if (__builtin_expect(id && !fits(heap, pool, id, size, request->whole), 0))
		id = next_that_fits(heap, pool, id, size, below, request);
	if (id && !gm_heap_is_split(&heap->blocks[id]))
		gm_heap_count_idle(heap, -(int64_t)heap->blocks[id].size);
	return id;
}

/* Logs only the state of the new record, because the record was unused. */
uint32_t gm_heap_cut(struct gm_heap *heap, uint32_t rest, uint64_t size, bool goes_back)
{
	uint32_t id = heap->ops->block_new(heap->ops->arg, goes_back);
	struct gm_block *front = &heap->blocks[id], *back = &heap->blocks[rest];
	uint32_t *link = back->prev ? &heap->blocks[back->prev].next :
			 &heap->segments[back->segment].first_block;
	struct gm_undo_log log;

	if (!id)
		return GM_NONE;
	set_word(&front->address, back->address);
	set_word(&front->size, size);
	set_word(&front->stream, back->stream);
	set_segment(front, back->segment, back->domain);
	front->kind = back->kind;
	front->prev = back->prev;
	front->next = rest;
	if (gm_undo_open(heap->undo, 5, &log)) {
		gm_undo_save(&log, gm_undo_word((const void *)&front->state));
		gm_undo_save(&log, gm_undo_word(link));
		gm_undo_save(&log, gm_undo_word(&back->prev));
		gm_undo_save(&log, &back->address);
		gm_undo_save(&log, &back->size);
		gm_undo_close(heap->undo, &log);
	}
	*link = id;
	back->prev = id;
	set_word(&back->address, back->address + size);
	set_word(&back->size, back->size - size);
	if (heap->map)
		gm_page_map_split(heap->map, front->address, size, id);
	store_state(front, GM_BLOCK_ACTIVE);
	return id;
}

/* Serve the request with free block @id, which is in no pool and large enough (PyTorch's alloc_found_block). Returns
 * the active block; GM_NONE: no record is left for a cut, and nothing has changed. */
static uint32_t hand_out(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t size,
			 const struct gm_heap_request *request)
{
	struct gm_block *block = &heap->blocks[id];
	bool already_split = gm_heap_is_split(block);
	bool splits = should_split(heap, pool, block, size, request->whole);
	uint32_t front = splits ? gm_heap_cut(heap, id, size, false) : GM_NONE;

	if (splits && !front)
		return GM_NONE;
	if (front) {
		gm_segments(heap)->shared += pool && !already_split ? size + block->size : 0;
		insert(heap, pool, id);
		gm_heap_count_splits(heap, pool, !already_split,
				     already_split ? -(int64_t)size : (int64_t)block->size);
		id = front;
		block = &heap->blocks[id];
	} else {
		if (already_split)
			gm_heap_count_splits(heap, pool, -1, -(int64_t)block->size);
		gm_heap_set_state(heap, block, GM_BLOCK_ACTIVE);
	}
	set_word(&block->requested, request->bytes);	/* not logged, because readers ignore it in a free block */
	gm_heap_count_out(heap, pool, block->size, request->bytes);
	if (block->size >= heap->config.max_split_size)
		gm_heap_count_oversize(heap, &heap->stats->oversize_allocations, 1);
	return id;
}

int gm_segments_find(struct gm_heap *heap, const struct gm_heap_request *request,
		     uint32_t *ret_block)
{
	uint64_t size = gm_heap_rounded(heap, request->bytes);
	unsigned int pool = gm_heap_pool_of(size);
	uint32_t id = get_free_block(heap, pool, size, request), block;

	if (!id && !request->whole && gm_segments_pool(heap, size) != pool) {
		pool = 0;
		id = get_free_block(heap, pool, size, request);
	}
	block = id ? hand_out(heap, pool, id, size, request) : GM_NONE;
	if (block) {
		*ret_block = block;
		return 0;
	}
	if (gm_heap_collects(heap))	/* a request that was not served does not age the free blocks */
		gm_segments(heap)->lookups[pool]--;
	if (!id)
		return -EAGAIN;
	insert(heap, pool, id);
	if (!gm_heap_is_split(&heap->blocks[id]))
		gm_heap_count_idle(heap, (int64_t)heap->blocks[id].size);
	return -ENOSPC;
}

/* ---- segments ---- */

int gm_segments_adopt(struct gm_heap *heap, const struct gm_heap_request *request, uint64_t size,
		      uint64_t address, uint64_t bytes, uint32_t *ret_block)
{
	bool small = bytes == GM_HEAP_SMALL_SEGMENT && size < bytes && !request->whole;
	unsigned int pool = small ? 0 : gm_heap_pool_of(size);
	uint32_t segment = heap->ops->segment_new(heap->ops->arg);
	uint32_t id = segment ? heap->ops->block_new(heap->ops->arg, false) : GM_NONE;
	struct gm_segment *s = &heap->segments[segment];
	struct gm_block *block = &heap->blocks[id];

	if (!id) {
		if (segment)
			heap->ops->segment_drop(heap->ops->arg, segment);
		return -ENOSPC;
	}
	s->address = address;			/* not logged, because both records were unused */
	s->size = bytes;
	s->stream = request->stream;
	s->first_block = id;
	s->domain = heap->domain;
	s->flags = pool ? 0 : GM_SEGMENT_SMALL;
	set_word(&block->address, address);
	set_word(&block->size, bytes);
	set_word(&block->stream, request->stream);
	set_segment(block, segment, heap->domain);
	gm_heap_set_state(heap, block, GM_BLOCK_INACTIVE);
	/* Insert and remove the block, so that the stream's tree exists and no later insert can fail. */
	if (insert(heap, pool, id)) {
		heap->ops->block_drop(heap->ops->arg, id);
		heap->ops->segment_drop(heap->ops->arg, segment);
		return -ENOSPC;
	}
	gm_free_set_remove(&gm_segments(heap)->pool[pool], id);
	if (heap->map && gm_page_map_add(heap->map, address, bytes, !pool, id)) {
		heap->ops->block_drop(heap->ops->arg, id);
		heap->ops->segment_drop(heap->ops->arg, segment);
		return -ENOSPC;
	}
	heap->reserved += bytes;
	gm_heap_count_segment(heap, pool, bytes, true);
	if (bytes >= heap->config.max_split_size)
		gm_heap_count_oversize(heap, &heap->stats->oversize_segments, 1);
	gm_heap_count_one(heap, &heap->stats->num_device_alloc);
	if (heap->ops->segment_event)
		heap->ops->segment_event(heap->ops->arg, true, segment);
	*ret_block = hand_out(heap, pool, id, size, request);
	if (*ret_block)
		return 0;
	insert(heap, pool, id);
	gm_heap_count_idle(heap, (int64_t)bytes);
	gm_segments_detach(heap, id);
	return -ENOSPC;
}

void gm_segments_detach(struct gm_heap *heap, uint32_t id)
{
	struct gm_block *block = &heap->blocks[id];
	uint32_t segment = block->segment;
	unsigned int pool = gm_heap_pool_of_block(heap, block);
	uint64_t bytes = block->size;

	gm_free_set_remove(&gm_segments(heap)->pool[pool], id);
	gm_heap_count_idle(heap, -(int64_t)bytes);
	heap->reserved -= bytes;
	gm_heap_count_one(heap, &heap->stats->num_device_free);
	gm_heap_count_segment(heap, pool, bytes, false);
	if (bytes >= heap->config.max_split_size)
		gm_heap_count_oversize(heap, &heap->stats->oversize_segments, -1);
	if (heap->ops->segment_event)
		heap->ops->segment_event(heap->ops->arg, false, segment);
	if (heap->map)
		gm_page_map_remove(heap->map, block->address, bytes);
	heap->ops->block_drop(heap->ops->arg, id);
	heap->ops->segment_drop(heap->ops->arg, segment);
}

/* ---- freeing ---- */

/* Keeps the id of the larger block, so that the page map has to relabel only the smaller one. */
uint32_t gm_heap_join(struct gm_heap *heap, uint32_t first, uint32_t second)
{
	struct gm_block *a = &heap->blocks[first], *b = &heap->blocks[second];
	bool first_stays = a->size >= b->size;
	uint32_t stays = first_stays ? first : second, goes = first_stays ? second : first;
	struct gm_block *into = &heap->blocks[stays], *gone = &heap->blocks[goes];
	uint32_t beyond = first_stays ? b->next : a->prev;
	uint32_t *near = first_stays ? &a->next : &b->prev;
	uint32_t *far = first_stays ? &heap->blocks[beyond].prev :
			beyond ? &heap->blocks[beyond].next : &heap->segments[a->segment].first_block;
	bool linked = beyond || !first_stays;
	struct gm_undo_log log;

	if (gm_undo_open(heap->undo, 4, &log)) {
		gm_undo_save(&log, gm_undo_word(near));
		gm_undo_save(&log, &into->size);
		if (linked)
			gm_undo_save(&log, gm_undo_word(far));
		if (!first_stays)
			gm_undo_save(&log, &into->address);
		gm_undo_close(heap->undo, &log);
	}
	*near = beyond;
	if (linked)
		*far = stays;
	if (!first_stays)
		set_word(&into->address, gone->address);
	set_word(&into->size, into->size + gone->size);
	if (heap->map)
		gm_page_map_merge(heap->map, gone->address, gone->size, stays);
	heap->ops->block_drop(heap->ops->arg, goes);
	return stays;
}

/* Merge block @id, whose free is complete, with its free neighbours and insert the result into @pool. */
static void put_back(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	uint32_t prev = heap->blocks[id].prev, next = heap->blocks[id].next;
	bool was_split = gm_heap_is_split(&heap->blocks[id]);
	int64_t splits = 0, split_bytes = 0;
	struct gm_block *block;

	if (prev && heap->blocks[prev].state == GM_BLOCK_INACTIVE) {
		splits--;
		split_bytes -= (int64_t)heap->blocks[prev].size;
		gm_free_set_remove(&gm_segments(heap)->pool[pool], prev);
		id = gm_heap_join(heap, prev, id);
	}
	if (next && heap->blocks[next].state == GM_BLOCK_INACTIVE) {
		splits--;
		split_bytes -= (int64_t)heap->blocks[next].size;
		gm_free_set_remove(&gm_segments(heap)->pool[pool], next);
		id = gm_heap_join(heap, id, next);
	}
	block = &heap->blocks[id];
	if (block->state != GM_BLOCK_INACTIVE)
		gm_heap_set_state(heap, block, GM_BLOCK_INACTIVE);
	insert(heap, pool, id);
	if (gm_heap_is_split(block)) {
		splits++;
		split_bytes += (int64_t)block->size;
	} else {
		gm_segments(heap)->shared -= pool && was_split ? block->size : 0;
		gm_heap_count_idle(heap, (int64_t)block->size);
	}
	gm_heap_count_splits(heap, pool, splits, split_bytes);
}

static void put_back_cached(struct gm_heap *heap, uint32_t id)
{
	put_back(heap, gm_heap_pool_of_block(heap, &heap->blocks[id]), id);
}

static void count_oversize(struct gm_heap *heap, uint64_t size)
{
	if (size >= heap->config.max_split_size)
		gm_heap_count_oversize(heap, &heap->stats->oversize_allocations, -1);
}

static void free_requested(struct gm_heap *heap, uint32_t id)
{
	struct gm_block *block = &heap->blocks[id];

	gm_heap_set_state(heap, block, GM_BLOCK_PENDING);
	gm_heap_count_asked(heap, gm_heap_pool_of_block(heap, block), block->size);
	count_oversize(heap, block->size);
}

static void free_completed(struct gm_heap *heap, uint32_t id)
{
	const struct gm_block *block = &heap->blocks[id];
	unsigned int pool = gm_heap_pool_of_block(heap, block);

	gm_heap_count_done(heap, pool, block->size, block->requested);
	put_back(heap, pool, id);
}

static void free_at_once(struct gm_heap *heap, uint32_t id)
{
	const struct gm_block *block = &heap->blocks[id];
	unsigned int pool = gm_heap_pool_of_block(heap, block);

	gm_heap_count_asked(heap, pool, block->size);
	gm_heap_count_done(heap, pool, block->size, block->requested);
	count_oversize(heap, block->size);
	put_back(heap, pool, id);
}

static uint64_t largest(struct gm_heap *heap)
{
	return gm_heap_largest_of(gm_segments(heap)->pool);
}

const struct gm_heap_class gm_segments_class = {
	.name = "segments", .bytes = sizeof(struct gm_segments_heap), .init = init,
	.alloc = gm_segments_alloc, .find = gm_segments_find, .free_requested = free_requested,
	.free_completed = free_completed, .free = free_at_once, .put_back = put_back_cached,
	.detach = gm_segments_detach, .release = gm_segments_release, .begin_period = gm_segments_begin_period,
	.release_unused = gm_segments_release_unused, .largest = largest,
};
