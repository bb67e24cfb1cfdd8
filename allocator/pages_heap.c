/*
 * pages_heap.c - the pages heap: finding, cutting, joining; and its class. See pages_heap.h.
 *
 * This file serves requests from free blocks with memory, and takes freed blocks back. It neither releases the lock
 * nor calls the driver. A request that needs pages moved or mapped goes to pages_grow.c.
 */
#include "allocator/pages_heap.h"

#include <errno.h>

static int init(struct gm_heap *heap, const struct gm_heap_setup *setup)
{
	struct gm_pages_heap *own = gm_pages(heap);

	heap->stats->max_split_size = -1;
	/* Ignore roundup_power2_divisions: rounding would only waste memory, because blocks of many sizes do no harm
	 * here. */
	heap->plain = true;
	own->live = own->live_peak = own->moved = own->spare = own->scanned = own->unused = 0;
	own->used = own->several = false;
	own->addresses = 0;
	own->handles = NULL;
	own->stream = 0;
	own->memory = setup->memory;
	own->memory_arg = setup->memory_arg;
	for (int p = 0; p < 2; p++) {
		own->region[p] = (struct gm_pages_region){ .base = 0 };
		if (gm_free_set_init(&own->pool[p], heap->blocks, heap->links, setup->memory,
				     setup->memory_arg) ||
		    gm_free_set_init(&own->region[p].unmapped, heap->blocks, heap->links, setup->memory,
				     setup->memory_arg) ||
		    gm_free_set_expect(&own->region[p].unmapped, GM_PAGES_ANY))
			return -ENOMEM;
	}
	return 0;
}

/* ---- records ---- */

/* Set the stream of a free block. Not logged, because readers ignore the stream of a free block. */
void gm_pages_set_stream(struct gm_block *block, uint64_t stream)
{
	if (block->stream != stream)
		__atomic_store_n(&block->stream, stream, __ATOMIC_RELAXED);
}

/* Count the whole handles of a free block as idle, because they could be unmapped. @sign -1: no longer. */
static void count_free(struct gm_heap *heap, unsigned int pool, const struct gm_block *block, int64_t sign)
{
	const struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	uint64_t at, whole = gm_pages_whole(region, block->address, gm_pages_end(block), &at);

	gm_heap_count_idle(heap, sign * (int64_t)whole);
}

uint64_t gm_pages_point(const struct gm_heap *heap)
{
	return heap->ops->point ? heap->ops->point(heap->ops->arg) : 1;
}

uint64_t gm_pages_passed(const struct gm_heap *heap, uint64_t stream)
{
	return heap->ops->passed ? heap->ops->passed(heap->ops->arg, stream) : 0;
}

uint64_t gm_pages_done(const struct gm_heap *heap, uint32_t id, struct gm_pages_done *known)
{
	uint64_t stream = heap->blocks[id].stream;

	if (stream == GM_PAGES_ANY)
		return UINT64_MAX;
	if (!known->done || known->stream != stream)
		*known = (struct gm_pages_done){ stream, gm_pages_passed(heap, stream) };
	return known->done;
}

int gm_pages_insert(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t born)
{
	int r = gm_free_set_insert(&gm_pages(heap)->pool[pool], id, born);

	if (!r)
		count_free(heap, pool, &heap->blocks[id], 1);
	return r;
}

void gm_pages_remove(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	gm_free_set_remove(&gm_pages(heap)->pool[pool], id);
	count_free(heap, pool, &heap->blocks[id], -1);
}

uint32_t gm_pages_join(struct gm_heap *heap, unsigned int pool, uint32_t first, uint32_t second)
{
	struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	bool last = region->last == second;
	uint32_t id = gm_heap_join(heap, first, second);

	if (last)
		region->last = id;
	return id;
}

/* ---- finding ---- */

/* Give free block @id, which is in its set, to all streams, and join it with free neighbours that all streams may use.
 * If there is no memory for the set, the block stays with its stream. */
static void hand_to_all(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	uint64_t stream = heap->blocks[id].stream;
	const uint32_t beside[] = { heap->blocks[id].prev, heap->blocks[id].next };

	gm_pages_remove(heap, pool, id);
	gm_pages_set_stream(&heap->blocks[id], GM_PAGES_ANY);
	if (gm_pages_insert(heap, pool, id, 0)) {
		gm_pages_set_stream(&heap->blocks[id], stream);
		gm_pages_insert(heap, pool, id, heap->links[id].born);
		return;
	}
	for (unsigned int i = 0; i < 2; i++) {
		uint32_t other = beside[i];

		if (!other || heap->blocks[other].state != GM_BLOCK_INACTIVE ||
		    heap->blocks[other].stream != GM_PAGES_ANY)
			continue;
		gm_pages_remove(heap, pool, id);
		gm_pages_remove(heap, pool, other);
		id = i ? gm_pages_join(heap, pool, id, other) : gm_pages_join(heap, pool, other, id);
		gm_pages_insert(heap, pool, id, 0);
	}
}

/* Is every stream past all frees in free block @id, when point @done is passed? If the block is the rest of a larger
 * one, links[].born can be later than its own frees, so the points of its pages count, too. */
static bool is_past(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t done)
{
	const struct gm_block *block = &heap->blocks[id];
	uint64_t end = block->address + block->size, from = block->address & ~(GM_HEAP_PAGE - 1);

	return heap->links[id].born <= done ||
	       from + gm_pages_past(&gm_pages(heap)->region[pool], from, end, done) >= end;
}

bool gm_pages_look_again(struct gm_heap *heap)
{
	struct gm_pages_heap *own = gm_pages(heap);
	uint64_t done = gm_pages_passed(heap, GM_PAGES_ANY), oldest = UINT64_MAX;
	struct gm_pages_done known = { 0 };
	bool any = false;
	uint32_t id;

	if (!own->several || done < own->scanned)
		return false;
	for (unsigned int p = 0; p < 2; p++)
		for (struct gm_free_cursor at = { 0 }; (id = gm_free_set_next(&own->pool[p], &at));) {
			if (!gm_pages_may_tidy(heap))
				return any;	/* another call does the rest: the log of a transaction is limited */
			if (heap->blocks[id].stream == GM_PAGES_ANY)
				break;		/* GM_PAGES_ANY is the last stream in the set's order */
			if (is_past(heap, p, id, gm_pages_done(heap, id, &known))) {
				hand_to_all(heap, p, id);
				any = true;
			} else if (heap->links[id].born < oldest) {
				oldest = heap->links[id].born;
			}
		}
	own->scanned = oldest == UINT64_MAX ? done + 1 : oldest;
	return any;
}

int gm_pages_adopt(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t stream)
{
	if (heap->blocks[id].stream == stream)
		return 0;
	if (gm_free_set_expect(&gm_pages(heap)->pool[pool], stream))
		return -ENOSPC;
	gm_pages_set_stream(&heap->blocks[id], stream);
	return 0;
}

/* Remove the smallest sufficient free block of @stream from its set and return it; GM_NONE: none. */
static uint32_t take(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t stream)
{
	uint32_t id = gm_free_set_take(&gm_pages(heap)->pool[pool], stream, size, UINT64_MAX);

	if (id)
		count_free(heap, pool, &heap->blocks[id], -1);
	return id;
}

int gm_pages_hand_out(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t size,
		      const struct gm_heap_request *request, uint32_t *ret_block)
{
	struct gm_pages_heap *own = gm_pages(heap);
	uint64_t before = heap->blocks[id].stream, born = heap->links[id].born;
	uint32_t front = GM_NONE;

	if (gm_pages_adopt(heap, pool, id, request->stream)) {
		gm_pages_insert(heap, pool, id, born);	/* as before the call */
		return -ENOSPC;
	}
	gm_pages_change_holes(heap, pool, heap->blocks[id].prev, heap->blocks[id].next);
	if (heap->blocks[id].size > size) {
		front = gm_heap_cut(heap, id, size, false);
		if (!front) {
			gm_pages_settle(heap, pool, id, before, born);
			return -ENOSPC;
		}
	}
	if (front) {
		gm_pages_set_stream(&heap->blocks[id], before);
		gm_pages_insert(heap, pool, id, born);
		id = front;
	} else {
		gm_heap_set_state(heap, &heap->blocks[id], GM_BLOCK_ACTIVE);
	}
	/* Not logged, because readers ignore it in a free block. */
	__atomic_store_n(&heap->blocks[id].requested, request->bytes, __ATOMIC_RELAXED);
	gm_heap_count_out(heap, pool, heap->blocks[id].size, request->bytes);
	own->live += heap->blocks[id].size;
	if (own->live > own->live_peak)
		own->live_peak = own->live;
	if (heap->idle < own->unused)
		own->unused = heap->idle;
	*ret_block = id;
	return 0;
}

int gm_pages_find(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block)
{
	struct gm_pages_heap *own = gm_pages(heap);
	uint64_t size = gm_heap_rounded(heap, request->bytes);
	unsigned int pool = gm_heap_pool_of(size);
	uint32_t id;

	if (__builtin_expect(own->stream != request->stream, 0)) {
		own->several |= own->used;	/* unless this is the heap's first request */
		own->stream = request->stream;
	}
	own->used = true;
	id = take(heap, pool, size, request->stream);
	if (!id && own->several) {
		if (pool && !gm_pages_find_beside(heap, pool, size, request, ret_block))
			return 0;
		id = take(heap, pool, size, GM_PAGES_ANY);
		if (!id && gm_pages_look_again(heap)) {	/* comes last, because it visits all free blocks */
			if (pool && !gm_pages_find_beside(heap, pool, size, request, ret_block))
				return 0;
			id = take(heap, pool, size, GM_PAGES_ANY);
		}
	}
	if (!id)
		return -EAGAIN;
	return gm_pages_hand_out(heap, pool, id, size, request, ret_block);
}

/* ---- freeing ---- */

/* Can block @id (or GM_NONE) join its neighbour, a free block of @stream? @done: the point that every stream passed. */
static bool joins(const struct gm_heap *heap, uint32_t id, uint64_t stream, uint64_t done)
{
	const struct gm_block *block = &heap->blocks[id];

	if (!id || block->state != GM_BLOCK_INACTIVE)
		return false;
	if (block->stream == stream || block->stream == GM_PAGES_ANY)
		return true;
	return stream == GM_PAGES_ANY && heap->links[id].born <= done;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

uint32_t gm_pages_settle(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t stream,
			 uint64_t born)
{
	uint32_t prev = heap->blocks[id].prev, next = heap->blocks[id].next;
	uint64_t own_stream = heap->blocks[id].stream;
	/* With a single stream, no block becomes GM_PAGES_ANY. */
	uint64_t done = gm_pages(heap)->several ? gm_pages_passed(heap, GM_PAGES_ANY) : 0;

	if (gm_pages(heap)->several && done >= born)
		stream = GM_PAGES_ANY;
	for (; joins(heap, prev, stream, done) && gm_pages_may_join(heap); prev = heap->blocks[id].prev) {
		born = later(born, heap->links[prev].born);
		gm_pages_remove(heap, pool, prev);
		id = gm_pages_join(heap, pool, prev, id);
	}
	for (; joins(heap, next, stream, done) && gm_pages_may_join(heap); next = heap->blocks[id].next) {
		born = later(born, heap->links[next].born);
		gm_pages_remove(heap, pool, next);
		id = gm_pages_join(heap, pool, id, next);
	}
	if (heap->blocks[id].state != GM_BLOCK_INACTIVE)
		gm_heap_set_state(heap, &heap->blocks[id], GM_BLOCK_INACTIVE);
	gm_pages_set_stream(&heap->blocks[id], stream);
	if (gm_pages_insert(heap, pool, id, born)) {	/* GM_PAGES_ANY is new in the set, and there is no memory */
		gm_pages_set_stream(&heap->blocks[id], own_stream);
		gm_pages_insert(heap, pool, id, born);
	}
	gm_pages_change_holes(heap, pool, prev, next);
	return id;
}

/* Note for each page that contains a part of the block that this part was freed at point @now; 0: keep the points. */
static void stamp(struct gm_heap *heap, unsigned int pool, const struct gm_block *block, uint64_t now)
{
	const struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	uint64_t first = (block->address - region->base) / GM_HEAP_PAGE;
	uint64_t last = (gm_pages_end(block) - 1 - region->base) / GM_HEAP_PAGE;

	if (block->address < region->base || gm_pages_end(block) > region->top)
		return;				/* somebody has truncated the journal: the block's record is empty */
	for (uint64_t i = first; now && i <= last; i++)
		region->freed[i] = now;		/* points never fall, so this is the latest */
}

static void put_back(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	uint64_t now = gm_pages_point(heap);

	gm_pages(heap)->live -= heap->blocks[id].size;
	stamp(heap, pool, &heap->blocks[id], now);
	gm_pages_settle(heap, pool, id, heap->blocks[id].stream, now);
}

static void put_back_cached(struct gm_heap *heap, uint32_t id)
{
	put_back(heap, gm_heap_pool_of_block(heap, &heap->blocks[id]), id);
}

bool gm_pages_freed_on(struct gm_heap *heap, uint64_t stream, uint64_t least)
{
	struct gm_pages_heap *own = gm_pages(heap);

	return gm_free_set_at_least(&own->pool[1], stream, least, 0) ||
	       gm_free_set_at_least(&own->pool[0], stream, least, 0);
}

uint64_t gm_pages_take_over(struct gm_heap *heap, uint64_t from, uint64_t to, uint64_t until)
{
	uint64_t now = gm_pages_point(heap), bytes = 0;
	uint32_t id;

	for (unsigned int p = 0; p < 2; p++)
		for (uint64_t size = 0, address = 0;
		     (id = gm_free_set_at_least(&gm_pages(heap)->pool[p], from, size, address));) {
			uint64_t born = heap->links[id].born;

			size = heap->links[id].size;
			address = heap->links[id].address + 1;
			if (born > until)
				continue;
			gm_pages_remove(heap, p, id);
			gm_pages_set_stream(&heap->blocks[id], to);
			if (gm_pages_insert(heap, p, id, now)) {
				gm_pages_set_stream(&heap->blocks[id], from);
				gm_pages_insert(heap, p, id, born);
				continue;
			}
			stamp(heap, p, &heap->blocks[id], now);
			bytes += size;
		}
	return bytes;
}

static void free_requested(struct gm_heap *heap, uint32_t id)
{
	struct gm_block *block = &heap->blocks[id];

	gm_heap_set_state(heap, block, GM_BLOCK_PENDING);
	gm_heap_count_asked(heap, gm_heap_pool_of_block(heap, block), block->size);
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
	put_back(heap, pool, id);
}

static uint64_t largest(struct gm_heap *heap)
{
	return gm_heap_largest_of(gm_pages(heap)->pool);
}

const struct gm_heap_class gm_pages_class = {
	.name = "pages", .bytes = sizeof(struct gm_pages_heap), .init = init,
	.alloc = gm_pages_alloc, .find = gm_pages_find, .free_requested = free_requested,
	.free_completed = free_completed, .free = free_at_once, .put_back = put_back_cached,
	.detach = gm_pages_detach, .release = gm_pages_release,
	.begin_period = gm_pages_begin_period, .release_unused = gm_pages_release_unused, .largest = largest,
};
