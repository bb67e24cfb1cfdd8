/*
 * heap.c - the segments heap: finding, splitting, merging. See heap.h.
 *
 * Source of the rules: PyTorch's CUDACachingAllocator (get_free_block, should_split,
 * alloc_found_block, free_block, try_merge_blocks). Where an order looks odd, it is PyTorch's, and
 * a counter of the traces depends on it.
 */
#include "allocator/heap.h"

#include <errno.h>

int gm_heap_init(struct gm_heap *heap, const struct gm_heap_setup *setup)
{
	*heap = (struct gm_heap){
		.config = *setup->config, .ops = setup->ops, .undo = setup->undo,
		.stats = setup->stats, .segments = setup->segments, .blocks = setup->blocks,
		.links = setup->links, .span = setup->span, .domain = setup->domain,
	};
	heap->stats->max_split_size = heap->config.max_split_size == GM_HEAP_UNLIMITED
		? -1 : (int64_t)heap->config.max_split_size;
	for (int p = 0; p < 2; p++)
		if (gm_free_set_init(&heap->pool[p], heap->blocks, heap->links, setup->memory,
				     setup->memory_arg))
			return -ENOMEM;
	return 0;
}

/* ---- records ---- */

static unsigned int pool_of_block(const struct gm_heap *heap, const struct gm_block *block)
{
	return !(heap->segments[block->segment].flags & GM_SEGMENT_SMALL);
}

static void set_state(struct gm_heap *heap, struct gm_block *block, enum gm_block_state state)
{
	gm_undo_note(heap->undo, &block->state);
	__atomic_store_n((uint8_t *)&block->state, (uint8_t)state, __ATOMIC_RELEASE);
}

/* A block into its pool. Its stream was seen when its segment was made: no memory is needed. */
static int insert(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	return gm_free_set_insert(&heap->pool[pool], id, heap->lookups[pool]);
}

/* A free block alone in its segment comes (+) or goes (-). */
static void count_idle(struct gm_heap *heap, int64_t bytes)
{
	__atomic_store_n(&heap->idle, heap->idle + (uint64_t)bytes, __ATOMIC_RELAXED);
}

/* ---- finding ---- */

static uint32_t get_free_block(struct gm_heap *heap, unsigned int pool, uint64_t size,
			       uint64_t stream)
{
	const struct gm_heap_config *config = &heap->config;
	uint32_t id;
	uint64_t found;

	if (gm_heap_collects(heap))
		heap->lookups[pool]++;
	id = gm_free_set_at_least(&heap->pool[pool], stream, size, 0);
	if (!id)
		return GM_NONE;
	found = heap->blocks[id].size;
	if (size < config->max_split_size && found >= config->max_split_size)
		return GM_NONE;
	if (size >= config->max_split_size && found >= size + config->max_non_split_rounding)
		return GM_NONE;
	gm_free_set_remove(&heap->pool[pool], id);
	if (!gm_heap_is_split(&heap->blocks[id]))
		count_idle(heap, -(int64_t)found);
	return id;
}

static bool should_split(const struct gm_heap *heap, unsigned int pool,
			 const struct gm_block *block, uint64_t size)
{
	uint64_t remaining = block->size - size;

	if (!pool)
		return remaining >= GM_GRANULE;
	return size < heap->config.max_split_size && remaining > GM_HEAP_SMALL_REQUEST;
}

/* Cut @size bytes off the front of free block @rest: a new block before it. GM_NONE: no record. */
static uint32_t cut(struct gm_heap *heap, uint32_t rest, uint64_t size)
{
	struct gm_undo *undo = heap->undo;
	uint32_t id = heap->ops->block_new(heap->ops->arg);
	struct gm_block *front = &heap->blocks[id], *back = &heap->blocks[rest];

	if (!id)
		return GM_NONE;
	GM_PUT(undo, front->address, back->address);
	GM_PUT(undo, front->size, size);
	GM_PUT(undo, front->stream, back->stream);
	GM_PUT(undo, front->segment, back->segment);
	GM_PUT(undo, front->domain, back->domain);
	GM_PUT(undo, front->kind, back->kind);
	GM_PUT(undo, front->prev, back->prev);
	GM_PUT(undo, front->next, rest);
	if (back->prev)
		GM_PUT(undo, heap->blocks[back->prev].next, id);
	else
		GM_PUT(undo, heap->segments[back->segment].first_block, id);
	GM_PUT(undo, back->prev, id);
	GM_PUT(undo, back->address, back->address + size);
	GM_PUT(undo, back->size, back->size - size);
	if (heap->span)
		gm_span_split(heap->span, front->address, size, id);
	return id;
}

/* PyTorch's alloc_found_block: @id is free, in no pool, and large enough. Returns the block. With
 * no record left for a cut, the block goes out whole. */
static uint32_t hand_out(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t size,
			 uint64_t requested)
{
	struct gm_block *block = &heap->blocks[id];
	bool already_split = gm_heap_is_split(block);
	uint32_t front = should_split(heap, pool, block, size) ? cut(heap, id, size) : GM_NONE;

	if (front) {
		insert(heap, pool, id);
		if (already_split) {
			gm_heap_stat_sub(heap, pool, GM_STAT_INACTIVE_SPLIT_BYTES, (int64_t)size);
		} else {
			gm_heap_stat_add(heap, pool, GM_STAT_INACTIVE_SPLIT_BYTES,
					 (int64_t)block->size);
			gm_heap_stat_add(heap, pool, GM_STAT_INACTIVE_SPLIT, 1);
		}
		id = front;
		block = &heap->blocks[id];
	} else if (already_split) {
		gm_heap_stat_sub(heap, pool, GM_STAT_INACTIVE_SPLIT_BYTES, (int64_t)block->size);
		gm_heap_stat_sub(heap, pool, GM_STAT_INACTIVE_SPLIT, 1);
	}
	set_state(heap, block, GM_BLOCK_ACTIVE);
	GM_PUT(heap->undo, block->requested, requested);
	gm_heap_stat_add(heap, pool, GM_STAT_ALLOCATION, 1);
	gm_heap_stat_add(heap, pool, GM_STAT_ALLOCATED_BYTES, (int64_t)block->size);
	gm_heap_stat_add(heap, pool, GM_STAT_ACTIVE, 1);
	gm_heap_stat_add(heap, pool, GM_STAT_ACTIVE_BYTES, (int64_t)block->size);
	gm_heap_stat_add(heap, pool, GM_STAT_REQUESTED_BYTES, (int64_t)requested);
	if (block->size >= heap->config.max_split_size)
		gm_heap_stat_oversize(heap, &heap->stats->oversize_allocations, 1);
	return id;
}

int gm_heap_find(struct gm_heap *heap, const struct gm_heap_request *request,
		 uint32_t *ret_block)
{
	uint64_t size = gm_heap_round(&heap->config, request->bytes);
	unsigned int pool = gm_heap_pool_of(size);
	uint32_t id = get_free_block(heap, pool, size, request->stream);

	if (!id)
		return -EAGAIN;
	*ret_block = hand_out(heap, pool, id, size, request->bytes);
	return 0;
}

/* ---- segments ---- */

int gm_heap_adopt(struct gm_heap *heap, const struct gm_heap_request *request, uint64_t size,
		  uint64_t address, uint64_t bytes, uint32_t *ret_block)
{
	struct gm_undo *undo = heap->undo;
	unsigned int pool = gm_heap_pool_of(size);
	uint32_t segment = heap->ops->segment_new(heap->ops->arg);
	uint32_t id = segment ? heap->ops->block_new(heap->ops->arg) : GM_NONE;
	struct gm_segment *s = &heap->segments[segment];
	struct gm_block *block = &heap->blocks[id];

	if (!id) {
		if (segment)
			heap->ops->segment_drop(heap->ops->arg, segment);
		return -ENOSPC;
	}
	GM_PUT(undo, s->address, address);
	GM_PUT(undo, s->size, bytes);
	GM_PUT(undo, s->stream, request->stream);
	GM_PUT(undo, s->first_block, id);
	GM_PUT(undo, s->domain, heap->domain);
	GM_PUT(undo, s->flags, (uint8_t)(pool ? 0 : GM_SEGMENT_SMALL));
	GM_PUT(undo, block->address, address);
	GM_PUT(undo, block->size, bytes);
	GM_PUT(undo, block->stream, request->stream);
	GM_PUT(undo, block->segment, segment);
	GM_PUT(undo, block->domain, heap->domain);
	set_state(heap, block, GM_BLOCK_INACTIVE);
	/* In the pool and out again: so that the stream's tree exists and no later insert can fail. */
	if (insert(heap, pool, id)) {
		heap->ops->block_drop(heap->ops->arg, id);
		heap->ops->segment_drop(heap->ops->arg, segment);
		return -ENOSPC;
	}
	gm_free_set_remove(&heap->pool[pool], id);
	if (heap->span && gm_span_add(heap->span, address, bytes, !pool, id)) {
		heap->ops->block_drop(heap->ops->arg, id);
		heap->ops->segment_drop(heap->ops->arg, segment);
		return -ENOSPC;
	}
	heap->reserved += bytes;
	gm_heap_stat_add(heap, pool, GM_STAT_SEGMENT, 1);
	gm_heap_stat_add(heap, pool, GM_STAT_RESERVED_BYTES, (int64_t)bytes);
	if (bytes >= heap->config.max_split_size)
		gm_heap_stat_oversize(heap, &heap->stats->oversize_segments, 1);
	gm_heap_stat_count(heap, &heap->stats->num_device_alloc);
	if (heap->ops->segment_event)
		heap->ops->segment_event(heap->ops->arg, true, segment);
	*ret_block = hand_out(heap, pool, id, size, request->bytes);
	return 0;
}

void gm_heap_detach(struct gm_heap *heap, uint32_t id)
{
	struct gm_block *block = &heap->blocks[id];
	uint32_t segment = block->segment;
	unsigned int pool = pool_of_block(heap, block);
	uint64_t bytes = block->size;

	gm_free_set_remove(&heap->pool[pool], id);
	count_idle(heap, -(int64_t)bytes);
	heap->reserved -= bytes;
	gm_heap_stat_count(heap, &heap->stats->num_device_free);
	gm_heap_stat_sub(heap, pool, GM_STAT_SEGMENT, 1);
	gm_heap_stat_sub(heap, pool, GM_STAT_RESERVED_BYTES, (int64_t)bytes);
	if (bytes >= heap->config.max_split_size)
		gm_heap_stat_oversize(heap, &heap->stats->oversize_segments, -1);
	if (heap->ops->segment_event)
		heap->ops->segment_event(heap->ops->arg, false, segment);
	if (heap->span)
		gm_span_remove(heap->span, block->address, bytes);
	heap->ops->block_drop(heap->ops->arg, id);
	heap->ops->segment_drop(heap->ops->arg, segment);
}

/* ---- freeing ---- */

void gm_heap_free_requested(struct gm_heap *heap, uint32_t id)
{
	struct gm_block *block = &heap->blocks[id];
	unsigned int pool = pool_of_block(heap, block);

	set_state(heap, block, GM_BLOCK_PENDING);
	gm_heap_stat_sub(heap, pool, GM_STAT_ALLOCATION, 1);
	gm_heap_stat_sub(heap, pool, GM_STAT_ALLOCATED_BYTES, (int64_t)block->size);
	if (block->size >= heap->config.max_split_size)
		gm_heap_stat_oversize(heap, &heap->stats->oversize_allocations, -1);
}

/* Let @id take in its free neighbour @other; returns the bytes gained, 0 when it is not free. */
static uint64_t merge(struct gm_heap *heap, unsigned int pool, uint32_t id, uint32_t other)
{
	struct gm_undo *undo = heap->undo;
	struct gm_block *block = &heap->blocks[id], *gone = &heap->blocks[other];
	uint64_t bytes = gone->size;

	if (!other || gone->state != GM_BLOCK_INACTIVE)
		return 0;
	gm_free_set_remove(&heap->pool[pool], other);
	if (block->prev == other) {
		GM_PUT(undo, block->address, gone->address);
		GM_PUT(undo, block->prev, gone->prev);
		if (gone->prev)
			GM_PUT(undo, heap->blocks[gone->prev].next, id);
		else
			GM_PUT(undo, heap->segments[block->segment].first_block, id);
	} else {
		GM_PUT(undo, block->next, gone->next);
		if (gone->next)
			GM_PUT(undo, heap->blocks[gone->next].prev, id);
	}
	GM_PUT(undo, block->size, block->size + bytes);
	if (heap->span)
		gm_span_merge(heap->span, gone->address, bytes, id);
	heap->ops->block_drop(heap->ops->arg, other);
	return bytes;
}

static void change(struct gm_heap *heap, unsigned int pool, enum gm_stat_name name,
		   int64_t amount)
{
	if (amount > 0)
		gm_heap_stat_add(heap, pool, name, amount);
	else if (amount < 0)
		gm_heap_stat_sub(heap, pool, name, -amount);
}

void gm_heap_free_completed(struct gm_heap *heap, uint32_t id)
{
	struct gm_block *block = &heap->blocks[id];
	unsigned int pool = pool_of_block(heap, block);
	int64_t size = (int64_t)block->size, requested = (int64_t)block->requested;
	int64_t split_count = 0, split_bytes = 0;
	uint64_t gained;

	gained = merge(heap, pool, id, block->prev);
	split_count -= gained > 0;
	split_bytes -= (int64_t)gained;
	gained = merge(heap, pool, id, block->next);
	split_count -= gained > 0;
	split_bytes -= (int64_t)gained;
	set_state(heap, block, GM_BLOCK_INACTIVE);
	insert(heap, pool, id);
	if (gm_heap_is_split(block)) {
		split_count++;
		split_bytes += (int64_t)block->size;
	} else {
		count_idle(heap, (int64_t)block->size);
	}
	change(heap, pool, GM_STAT_INACTIVE_SPLIT, split_count);
	change(heap, pool, GM_STAT_INACTIVE_SPLIT_BYTES, split_bytes);
	gm_heap_stat_sub(heap, pool, GM_STAT_ACTIVE, 1);
	gm_heap_stat_sub(heap, pool, GM_STAT_ACTIVE_BYTES, size);
	gm_heap_stat_sub(heap, pool, GM_STAT_REQUESTED_BYTES, requested);
}
