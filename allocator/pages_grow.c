/*
 * pages_grow.c - the pages heap and the driver: memory behind addresses, growth, giving back. See
 * pages_heap.h.
 *
 * The lock is released around every call of the driver. What was read before the call is checked again after it. The
 * caller holds the device's growth lock, so no other thread changes unmapped blocks, the ends of the regions or spare
 * memory.
 */
#include "allocator/pages_heap.h"

#include <errno.h>

#define RESERVE (UINT64_C(1) << 40)	/* bytes of addresses to reserve: unused addresses cost nothing */
#define SMALL_SHARE 8u			/* an eighth of the addresses is for small requests */
#define ATTEMPTS 128u			/* most steps of a request; other threads may undo a step by taking its place */

void gm_pages_make_unmapped(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	uint32_t prev = heap->blocks[id].prev, next = heap->blocks[id].next;

	gm_heap_set_state(heap, &heap->blocks[id], GM_BLOCK_UNMAPPED);
	if (prev && heap->blocks[prev].state == GM_BLOCK_UNMAPPED) {
		gm_pages_unlist(heap, pool, prev);
		id = gm_pages_join(heap, pool, prev, id);
	}
	if (next && heap->blocks[next].state == GM_BLOCK_UNMAPPED) {
		gm_pages_unlist(heap, pool, next);
		id = gm_pages_join(heap, pool, id, next);
	}
	gm_pages_list(heap, pool, id);
}

/* Cut unmapped block *@id, which is in no list, down to [@from, @to), and set *@id to that part. The parts before and
 * after it become unmapped blocks in the list. Returns 0 or -ENOSPC. */
static int isolate(struct gm_heap *heap, unsigned int pool, uint32_t *id, uint64_t from, uint64_t to)
{
	uint32_t front;

	if (heap->blocks[*id].address < from) {
		front = gm_heap_cut(heap, *id, from - heap->blocks[*id].address, false);
		if (!front)
			return -ENOSPC;
		gm_heap_set_state(heap, &heap->blocks[front], GM_BLOCK_UNMAPPED);
		gm_pages_list(heap, pool, front);
	}
	if (gm_pages_end(&heap->blocks[*id]) > to) {
		front = gm_heap_cut(heap, *id, to - heap->blocks[*id].address, false);
		if (!front)
			return -ENOSPC;
		gm_heap_set_state(heap, &heap->blocks[front], GM_BLOCK_UNMAPPED);
		gm_pages_list(heap, pool, *id);
		*id = front;
	}
	return 0;
}

/* ---- serving ---- */

/* Move the region's end up to @to, and add these addresses as an unmapped block. Makes the region's segment if there is
 * none. Returns 0; -ENOSPC, and nothing has changed. */
static int extend(struct gm_heap *heap, unsigned int pool, uint64_t to)
{
	struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	uint32_t segment = region->segment, id;
	struct gm_block *block;

	if (!segment) {
		segment = heap->ops->segment_new(heap->ops->arg);
		if (!segment)
			return -ENOSPC;
	}
	id = heap->ops->block_new(heap->ops->arg, false);
	if (!id || (heap->map && gm_page_map_add(heap->map, region->top, to - region->top, true, id))) {
		if (id)
			heap->ops->block_drop(heap->ops->arg, id);
		if (!region->segment)
			heap->ops->segment_drop(heap->ops->arg, segment);
		return -ENOSPC;
	}
	block = &heap->blocks[id];
	__atomic_store_n(&block->domain, heap->domain, __ATOMIC_RELAXED);
	block->prev = region->last;
	__atomic_store_n(&block->address, region->top, __ATOMIC_RELAXED);
	__atomic_store_n(&block->size, to - region->top, __ATOMIC_RELAXED);
	__atomic_store_n(&block->stream, GM_PAGES_ANY, __ATOMIC_RELAXED);
	__atomic_store_n(&block->segment, segment, __ATOMIC_RELAXED);
	if (!region->segment) {
		struct gm_segment *s = &heap->segments[segment];

		s->address = region->base;
		s->domain = heap->domain;
		s->flags = (uint8_t)(GM_SEGMENT_EXPANDABLE | (pool ? 0 : GM_SEGMENT_SMALL));
		s->first_block = id;
		region->segment = segment;
		gm_heap_count_segment(heap, pool, 0, true);
	} else {
		GM_PUT(heap->undo, heap->blocks[region->last].next, id);
	}
	GM_PUT(heap->undo, heap->segments[segment].size, to - region->base);
	region->last = id;
	region->top = to;
	gm_pages_make_unmapped(heap, pool, id);
	return 0;
}

/* Map memory behind unmapped block @id, which is in no list, and make it a free block of @stream. *@ret_free: that
 * block, joined with free neighbours. Returns 0; -ENOMEM (also over the limit), -ENOSPC or the error of ops->map, with
 * the block in the list again; -ETIMEDOUT: the lock is lost. */
static int map(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t stream, uint32_t *ret_free)
{
	struct gm_pages_heap *own = gm_pages(heap);
	uint64_t address = heap->blocks[id].address, bytes = heap->blocks[id].size;
	uint64_t again = own->spare < bytes ? own->spare : bytes, limit = heap->config.limit;
	uint64_t born = own->spare ? own->spare_freed : 0, first = (address - own->region[pool].base) / GM_HEAP_PAGE;
	int r = gm_pages_adopt(heap, pool, id, stream);

	if (!r && limit != GM_HEAP_UNLIMITED &&
	    (bytes > limit || heap->reserved + own->spare - again > limit - bytes))
		r = -ENOMEM;
	if (!r) {
		gm_pages_list(heap, pool, id);
		gm_pages_unlock(heap);
		r = heap->ops->map(heap->ops->arg, address, bytes);
		if (!gm_pages_lock(heap, false)) {
			if (!r)
				heap->ops->unmap(heap->ops->arg, address, bytes);
			heap->ops->trim(heap->ops->arg);	/* no other thread would give it back */
			gm_pages_set_spare(own, 0);
			return -ETIMEDOUT;
		}
		gm_pages_unlist(heap, pool, id);
		gm_pages_set_stream(&heap->blocks[id], stream);	/* gm_pages_list had set GM_PAGES_ANY */
	}
	if (r) {
		gm_pages_make_unmapped(heap, pool, id);
		return r;
	}
	gm_pages_set_spare(own, own->spare - again);
	own->spare_freed = own->spare ? own->spare_freed : 0;
	for (uint64_t i = 0; i < bytes / GM_HEAP_PAGE; i++)
		own->region[pool].freed[first + i] = born;
	own->moved += again / GM_HEAP_PAGE;
	heap->reserved += bytes;
	gm_heap_count_reserved(heap, pool, bytes, true);
	if (bytes > again)
		gm_heap_count_one(heap, &heap->stats->num_device_alloc);
	gm_pages_report(heap, pool, true, address, bytes);
	*ret_free = gm_pages_settle(heap, pool, id, stream, born);
	return 0;
}

/* Take one step to give @place memory: if it ends beyond the region's end, extend the region (*@ret_free: GM_NONE);
 * else map memory behind its first unmapped block. Returns as map(). */
static int fill(struct gm_heap *heap, unsigned int pool, const struct gm_pages_place *place, uint64_t stream,
		uint32_t *ret_free)
{
	uint32_t id = place->first;
	int r;

	*ret_free = GM_NONE;
	if (place->to > gm_pages(heap)->region[pool].top)
		return extend(heap, pool, gm_pages_up(place->to));	/* may change place->first, so choose again */
	while (heap->blocks[id].state != GM_BLOCK_UNMAPPED)
		id = heap->blocks[id].next;
	gm_pages_unlist(heap, pool, id);
	r = isolate(heap, pool, &id, gm_pages_down(place->from), gm_pages_up(place->to));
	if (r) {
		gm_pages_make_unmapped(heap, pool, id);
		return r;
	}
	return map(heap, pool, id, stream, ret_free);
}

/* Allocate the array @freed of a region of @bytes. Returns false when there is no memory. */
static bool make_pages(struct gm_pages_heap *own, struct gm_pages_region *region, uint64_t bytes)
{
	if (!region->freed)
		region->freed = own->memory(own->memory_arg, bytes / GM_HEAP_PAGE * sizeof(*region->freed));
	return region->freed;
}

/* Reserve the addresses of both regions. Returns 0; -ENOMEM; the error of ops->reserve; -ETIMEDOUT: the lock is
 * lost. */
static int reserve(struct gm_heap *heap)
{
	struct gm_pages_heap *own = gm_pages(heap);
	struct gm_pages_region *region = own->region;
	uint64_t small;
	int r = 0;

	if (!own->addresses) {
		const uint32_t *handles = NULL;
		uint64_t address = 0, bytes = 0;

		gm_pages_unlock(heap);
		r = heap->ops->reserve(heap->ops->arg, RESERVE, &address, &bytes, &handles);
		if (!gm_pages_lock(heap, !r))
			return -ETIMEDOUT;
		if (r)
			return r;
		own->addresses = address;
		own->address_bytes = bytes;
		own->handles = handles;
	}
	small = gm_pages_down(own->address_bytes / SMALL_SHARE);
	if (!make_pages(own, &region[0], small) || !make_pages(own, &region[1], own->address_bytes - small))
		return -ENOMEM;
	region[1].base = region[1].top = own->addresses;
	region[0].base = region[0].top = own->addresses + own->address_bytes - small;
	region[0].end = own->addresses + own->address_bytes;
	region[1].end = region[0].base;
	region[1].handles = own->handles;
	region[0].handles = own->handles + gm_pages_index(&region[1], region[0].base);
	return 0;
}

/* Return how many bytes the heap may take from the driver before it moves pages, if @size more bytes become live. */
static uint64_t budget(const struct gm_heap *heap, uint64_t size, bool costly)
{
	const struct gm_pages_heap *own = gm_pages((struct gm_heap *)heap);
	uint64_t live = own->live + size > own->live_peak ? own->live + size : own->live_peak;
	uint64_t slack = live / (costly ? GM_PAGES_SLACK_COSTLY : GM_PAGES_SLACK);
	uint64_t most = live + slack + GM_HEAP_PAGE, has = heap->reserved + own->spare;

	return most > has ? gm_pages_down(most - has) : 0;
}

/* Release the lock and take it again, so that handing out the block is a transaction of its own. */
static bool turn(struct gm_heap *heap)
{
	gm_pages_unlock(heap);
	return gm_pages_lock(heap, true);
}

/* Serve the request from @place, all of which had memory; block @id is a part of it. Returns as gm_pages_claim;
 * -EAGAIN: another thread has changed @place meanwhile; -ETIMEDOUT: the lock is lost. */
static int serve(struct gm_heap *heap, unsigned int pool, uint32_t id, struct gm_pages_place *place, uint64_t size,
		 const struct gm_heap_request *request, uint32_t *ret_block)
{
	if (!turn(heap))
		return -ETIMEDOUT;
	if (heap->ops->lock)
		id = heap->map ? gm_page_map_find(heap->map, place->from) : GM_NONE;
	if (!id || !gm_pages_is_whole(heap, id, request->stream, place))
		return -EAGAIN;
	return gm_pages_claim(heap, pool, place, size, request, ret_block);
}

static int find(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block)
{
	return turn(heap) ? gm_pages_find(heap, request, ret_block) : -ETIMEDOUT;
}

/* Take one step towards the request: move pages, map pages, or serve it. Returns 0 when it is served; -EAGAIN: take
 * another step; -EBUSY: the request shall wait (ops->waits); or another error. */
static int step(struct gm_heap *heap, unsigned int pool, uint64_t size,
		const struct gm_heap_request *request, uint32_t *ret_block)
{
	struct gm_pages_heap *own = gm_pages(heap);
	struct gm_pages_place place;
	bool costly = heap->ops->costly && heap->ops->costly(heap->ops->arg);
	uint64_t fresh, got;
	uint32_t id;
	int r;

	if (!gm_pages_choose(heap, pool, size, request->stream, &place))
		return -ENOMEM;
	if (!place.missing)
		return gm_pages_claim(heap, pool, &place, size, request, ret_block);
	/* With several streams, move idle pages before growing, because other streams cannot use them for a while. */
	fresh = own->several && !costly ? 0 : budget(heap, size, costly);
	if (place.missing > own->spare + fresh) {
		r = gm_pages_steal(heap, request->stream, place.missing - own->spare - fresh, &place, &got);
		if (r == -ETIMEDOUT || got)
			return r == -ETIMEDOUT ? r : -EAGAIN;
	}
	fresh = budget(heap, size, costly);
	if (place.missing > own->spare + fresh && heap->ops->waits && heap->ops->waits(heap->ops->arg)) {
		r = gm_pages_steal(heap, request->stream, place.missing - own->spare, &place, &got);
		return r == -ETIMEDOUT ? r : got ? -EAGAIN : -EBUSY;
	}
	r = fill(heap, pool, &place, request->stream, &id);
	if (!r && id && gm_pages_is_whole(heap, id, request->stream, &place))
		return serve(heap, pool, id, &place, size, request, ret_block);
	if (r == -ENOMEM) {
		r = gm_pages_steal(heap, request->stream, place.missing, &place, &got);
		return r ? r : got ? -EAGAIN : -ENOMEM;
	}
	return r ? r : -EAGAIN;
}

static bool trim(struct gm_heap *heap)
{
	gm_pages_set_spare(gm_pages(heap), 0);
	gm_pages(heap)->spare_freed = 0;
	gm_pages_unlock(heap);
	heap->ops->trim(heap->ops->arg);
	return gm_pages_lock(heap, false);
}

/* Give all free blocks whose frees every stream is past to all streams, in as many transactions as needed. A page can
 * only be unmapped when the free blocks on it are joined. Returns false when the lock is lost. */
static bool tidy(struct gm_heap *heap)
{
	bool locked = true;

	gm_pages(heap)->scanned = 0;
	while (locked && gm_pages_look_again(heap)) {
		gm_pages_unlock(heap);
		locked = gm_pages_lock(heap, false);
	}
	return locked;
}

static bool synchronize(struct gm_heap *heap)
{
	gm_heap_count_one(heap, &heap->stats->num_sync_all_streams);
	if (!heap->ops->synchronize)
		return tidy(heap);
	gm_pages_unlock(heap);
	heap->ops->synchronize(heap->ops->arg);
	return gm_pages_lock(heap, false) && tidy(heap);
}

int gm_pages_alloc(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block)
{
	bool synchronized = false;
	int r;

	if (request->bytes >= GM_HEAP_REQUEST_LIMIT)
		return -E2BIG;
	r = gm_pages_find(heap, request, ret_block);
	if (r == -EAGAIN && !gm_pages(heap)->region[1].end) {
		r = reserve(heap);
		r = r ? r : -EAGAIN;
	}
	for (unsigned int i = 0; r == -EAGAIN && i < ATTEMPTS; i++) {
		uint64_t size = gm_heap_rounded(heap, request->bytes);

		r = step(heap, gm_heap_pool_of(size), size, request, ret_block);
		if (r == -ENOMEM && !synchronized) {
			gm_heap_count_one(heap, &heap->stats->num_alloc_retries);
			synchronized = true;
			if (!synchronize(heap))
				return -ETIMEDOUT;
			r = find(heap, request, ret_block);
		}
	}
	if (r == -ETIMEDOUT || r == -EBUSY)
		return r;
	if (gm_pages(heap)->spare && !trim(heap))
		return -ETIMEDOUT;
	if (r == -EAGAIN)
		r = -ENOMEM;
	if (r == -ENOMEM)
		gm_heap_count_one(heap, &heap->stats->num_ooms);
	return r;
}

/* ---- giving back ---- */

/* If the region's last block is unmapped, drop it and shorten the region. The region's segment ends with its last
 * block. */
static void shorten(struct gm_heap *heap, unsigned int pool)
{
	struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	uint32_t id = region->last, before = id ? heap->blocks[id].prev : GM_NONE;
	struct gm_segment *s = &heap->segments[region->segment];

	if (!id || heap->blocks[id].state != GM_BLOCK_UNMAPPED)
		return;
	gm_pages_unlist(heap, pool, id);
	region->top = heap->blocks[id].address;
	region->last = before;
	if (heap->map)
		gm_page_map_remove(heap->map, region->top, heap->blocks[id].size);
	heap->ops->block_drop(heap->ops->arg, id);
	if (before) {
		GM_PUT(heap->undo, heap->blocks[before].next, GM_NONE);
		GM_PUT(heap->undo, s->size, region->top - region->base);
		return;
	}
	gm_heap_count_segment(heap, pool, 0, false);
	heap->ops->segment_drop(heap->ops->arg, region->segment);
	region->segment = GM_NONE;
}

void gm_pages_detach(struct gm_heap *heap, uint32_t id)
{
	unsigned int pool = gm_heap_pool_of_block(heap, &heap->blocks[id]);
	uint64_t address = heap->blocks[id].address, bytes = heap->blocks[id].size;

	if (heap->blocks[id].state == GM_BLOCK_INACTIVE) {
		gm_pages_remove(heap, pool, id);
		gm_pages_make_unmapped(heap, pool, id);
		gm_heap_count_reserved(heap, pool, bytes, false);
		gm_pages_report(heap, pool, false, address, bytes);
		heap->reserved -= bytes;
	}
	shorten(heap, pool);
}

/* Give whole free pages (@most bytes, and all spare memory) back to the driver, and shorten both regions. */
static int give_back(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes)
{
	int r = gm_pages_strip_idle(heap, most, ret_bytes);

	if (r == -ETIMEDOUT)
		return r;
	shorten(heap, 0);
	shorten(heap, 1);
	*ret_bytes = gm_pages(heap)->spare;	/* includes memory that a waiting request has left */
	if (*ret_bytes)
		gm_heap_count_one(heap, &heap->stats->num_device_free);
	return *ret_bytes && !trim(heap) ? -ETIMEDOUT : 0;
}

int gm_pages_release(struct gm_heap *heap, uint64_t most, bool first_synchronize, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	if (first_synchronize && !synchronize(heap))
		return -ETIMEDOUT;
	if (!first_synchronize && !tidy(heap))
		return -ETIMEDOUT;
	return give_back(heap, most, ret_bytes);
}

void gm_pages_begin_period(struct gm_heap *heap)
{
	gm_pages(heap)->unused = heap->idle;
}

/* Pages are interchangeable, so @unused counts bytes that the heap did not need at any time of the period, and any idle
 * pages may go back for them. */
int gm_pages_release_unused(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes)
{
	struct gm_pages_heap *own = gm_pages(heap);
	uint64_t unused = own->unused < heap->idle ? own->unused : heap->idle;
	int r;

	*ret_bytes = 0;
	if (!unused)
		return 0;
	if (!tidy(heap))
		return -ETIMEDOUT;
	r = give_back(heap, unused < most ? unused : most, ret_bytes);
	own->unused = unused > *ret_bytes ? unused - *ret_bytes : 0;
	return r;
}
