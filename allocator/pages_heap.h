/*
 * pages_heap.h - the pages heap: best fit over addresses, and memory that moves to where it is needed.
 *
 * A heap has one reservation of addresses in two regions, so that small requests (up to 1 MiB) do not hold the
 * pages of large ones. The memory behind the addresses consists of handles of one or more pages of 2 MiB, and a
 * handle is mapped and unmapped as a whole. A free block that fits no request keeps its addresses, but its whole
 * handles can move to other addresses. The backend chooses the sizes of handles (the array of ops->reserve).
 *
 *	addresses   |live|free|live|   unmapped   |live|  free   |live|free|            up to the region's end
 *	pages       |  p  |  p  | p |             |  p |  p  | p |  p  |                (p: memory is behind it)
 *
 * A request is served from the smallest sufficient free block with memory. If there is none, the heap chooses the
 * place where the fewest pages are missing, between other blocks or at the end of the region. The missing pages
 * come from the driver until the heap has a 64th more than the most that was ever live (GM_PAGES_SLACK). After
 * that they come from free blocks, and from the driver only when free blocks have none.
 *
 * Streams: a free block belongs to the stream in whose order it was freed, and that stream may use it at once. When
 * every stream is past the block's free (ops->passed), any stream may use the block. Each page has a point of its own,
 * so a page that was freed earlier than the rest of the block may move earlier. With several streams, a stream's own
 * free blocks are used or moved before the heap grows, because other streams cannot use them for a while.
 *
 *   pages_heap.c    finding, cutting, joining; the class
 *   pages_place.c   choose the place of a request that no free block serves
 *   pages_move.c    choose the pages that move there
 *   pages_grow.c    the driver: growth, giving back
 *
 * Context: as heap.h.
 */
#ifndef GM_ALLOCATOR_PAGES_HEAP_H
#define GM_ALLOCATOR_PAGES_HEAP_H

#include "allocator/heap.h"

#define GM_PAGES_ANY UINT64_MAX		/* in the place of a free block's stream: every stream may use the block */
/* A heap takes memory from the driver, rather than move pages, until it has the most that was ever live plus 1/64 of
 * that; plus 1/4 while moving takes too much time (ops->costly). */
#define GM_PAGES_SLACK 64u
#define GM_PAGES_SLACK_COSTLY 4u

struct gm_pages_region {
	uint64_t base, top, end;	/* blocks tile [base, top); addresses up to @end are unused */
	uint32_t segment;		/* GM_NONE: no request yet */
	uint32_t last;			/* the block with the highest address */
	struct gm_free_set unmapped;	/* unmapped blocks by the sizes of their holes (pages_place.c) */
	uint32_t changed;		/* list of unmapped blocks outside that set, by links[].left and .right */
	uint64_t listed;		/* how many blocks have ever become unmapped */
	uint64_t *freed;		/* by page from @base on: the last point at which a part of it was freed */
	const uint32_t *handles;	/* by page from @base on: see gm_heap_ops.reserve */
};

struct gm_pages_heap {
	struct gm_heap heap;
	struct gm_free_set pool[2];	/* 0 small, 1 large, as the regions */
	struct gm_pages_region region[2];
	uint64_t live, live_peak;	/* bytes whose free is not complete */
	uint64_t spare;			/* bytes that ops->unmap keeps for ops->map; read unlocked */
	uint64_t spare_freed;		/* the last point at which some of @spare was freed */
	uint64_t unused;		/* bytes that have been idle since the period began, as far as is known */
	uint64_t moved;			/* pages that were taken from free blocks for requests elsewhere */
	uint64_t scanned;		/* every free block that belongs to a stream was freed at this point or later
					 * (gm_pages_look_again); 0: not known */
	uint64_t stream;		/* the only stream so far, unless @several */
	bool used, several;
	uint64_t addresses, address_bytes;	/* the reservation; 0: none yet */
	const uint32_t *handles;		/* for each page of the reservation */
	void *(*memory)(void *arg, size_t bytes);	/* as in the setup */
	void *memory_arg;
};

static inline struct gm_pages_heap *gm_pages(struct gm_heap *heap)
{
	return (struct gm_pages_heap *)(void *)heap;
}

static inline void gm_pages_set_spare(struct gm_pages_heap *own, uint64_t bytes)
{
	__atomic_store_n(&own->spare, bytes, __ATOMIC_RELAXED);
}

static inline uint64_t gm_pages_spare(const struct gm_heap *heap)
{
	return __atomic_load_n(&((const struct gm_pages_heap *)(const void *)heap)->spare, __ATOMIC_RELAXED);
}

static inline uint64_t gm_pages_down(uint64_t address)
{
	return address & ~(GM_HEAP_PAGE - 1);
}

static inline uint64_t gm_pages_up(uint64_t address)
{
	return (address + GM_HEAP_PAGE - 1) & ~(GM_HEAP_PAGE - 1);
}

static inline uint64_t gm_pages_end(const struct gm_block *block)
{
	return block->address + block->size;
}

static inline uint64_t gm_pages_index(const struct gm_pages_region *region, uint64_t address)
{
	return (address - region->base) / GM_HEAP_PAGE;
}

/* Return where the handle that is mapped at @address begins, and its bytes. */
static inline uint64_t gm_pages_handle(const struct gm_pages_region *region, uint64_t address, uint64_t *ret_bytes)
{
	uint64_t first = gm_pages_index(region, address);

	if (region->handles[first] & GM_HANDLE_REST)
		first -= region->handles[first] & ~GM_HANDLE_REST;
	*ret_bytes = region->handles[first] * GM_HEAP_PAGE;
	return region->base + first * GM_HEAP_PAGE;
}

/* Return the bytes of the whole handles in [@from, @to), and where they begin. All of [@from, @to) has memory. */
static inline uint64_t gm_pages_whole(const struct gm_pages_region *region, uint64_t from, uint64_t to,
				      uint64_t *ret_at)
{
	uint64_t first, last, bytes;

	*ret_at = from;
	if (gm_pages_up(from) >= gm_pages_down(to))
		return 0;
	first = gm_pages_handle(region, from, &bytes);
	if (first < from)
		first += bytes;
	last = gm_pages_handle(region, to - 1, &bytes);
	if (last + bytes <= to)
		last += bytes;
	*ret_at = first;
	return last > first ? last - first : 0;
}

static inline bool gm_pages_is_free(const struct gm_block *block)
{
	return block->state == GM_BLOCK_INACTIVE || block->state == GM_BLOCK_UNMAPPED;
}

/* May @stream use the free block now? */
static inline bool gm_pages_usable(const struct gm_block *block, uint64_t stream)
{
	return block->stream == stream || block->stream == GM_PAGES_ANY;
}

/* Return the bytes of the pages from @from on, at most up to @to, that were last freed at point @done or before. */
static inline uint64_t gm_pages_past(const struct gm_pages_region *region, uint64_t from, uint64_t to,
				     uint64_t done)
{
	uint64_t at = from;

	while (at < to && region->freed[(at - region->base) / GM_HEAP_PAGE] <= done)
		at += GM_HEAP_PAGE;
	return at - from;
}

/* As gm_pages_past, for whole handles. @from and @to are beginnings of handles. */
static inline uint64_t gm_pages_handles_past(const struct gm_pages_region *region, uint64_t from, uint64_t to,
					     uint64_t done)
{
	uint64_t at, bytes;

	for (at = from; at < to; at += bytes) {
		gm_pages_handle(region, at, &bytes);
		if (gm_pages_past(region, at, at + bytes, done) < bytes)
			break;
	}
	return at - from;
}

/* ---- pages_heap.c ---- */

/* Call ops->point and ops->passed. Without them every free has point 1, and no point is passed. @stream GM_PAGES_ANY:
 * the frees of all streams. */
uint64_t gm_pages_point(const struct gm_heap *heap);
uint64_t gm_pages_passed(const struct gm_heap *heap, uint64_t stream);

/* Return the last point that is passed for the frees of free block @id, which are in the order of its stream. @known
 * caches the result for the next block of that stream; zeroed at first. */
struct gm_pages_done { uint64_t stream, done; };
uint64_t gm_pages_done(const struct gm_heap *heap, uint32_t id, struct gm_pages_done *known);

/* Give the free blocks whose frees every stream is past to all streams. Returns false when there is no such block. */
bool gm_pages_look_again(struct gm_heap *heap);

int gm_pages_find(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);

/* Has @stream a free block of its own with @least bytes? */
bool gm_pages_freed_on(struct gm_heap *heap, uint64_t stream, uint64_t least);

/* Give stream @to the free blocks that stream @from freed up to the point @until, as if @to freed them now. The caller
 * ensures that all later work of @to comes after these frees. Returns the bytes of the blocks. */
uint64_t gm_pages_take_over(struct gm_heap *heap, uint64_t from, uint64_t to, uint64_t until);

/* Insert a free block with memory into its set, or remove it. @born: the point of its last free. gm_pages_insert
 * returns 0; -ENOMEM when the stream is new in the set and there is no memory. */
int gm_pages_insert(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t born);
void gm_pages_remove(struct gm_heap *heap, unsigned int pool, uint32_t id);

/* gm_heap_join for blocks of a region. */
uint32_t gm_pages_join(struct gm_heap *heap, unsigned int pool, uint32_t first, uint32_t second);

/* Join block @id with its free neighbours, and insert the result into its set as a block of @stream that was freed at
 * point @born. The set must have had a block of @stream before. Returns the id of the joined block. */
uint32_t gm_pages_settle(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t stream,
			 uint64_t born);

/* A transaction can log only a limited number of words (undo.h). may_join: is there room to join two more blocks and
 * then to hand one out? may_tidy: is there room to give a free block to all streams, because hardly anything has been
 * logged yet? */
#define GM_PAGES_HAND_OUT 96u
#define GM_PAGES_TIDY 16u
static inline bool gm_pages_may_join(const struct gm_heap *heap)
{
	return !heap->undo->base || heap->undo->used + GM_PAGES_HAND_OUT < heap->undo->room;
}

static inline bool gm_pages_may_tidy(const struct gm_heap *heap)
{
	return !heap->undo->base || heap->undo->used < GM_PAGES_TIDY;
}

/* Serve the request with free block @id, which is in no set, and cut it to @size. Returns 0 and the block; -ENOSPC, and
 * @id is in its set again. */
int gm_pages_hand_out(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t size,
		      const struct gm_heap_request *request, uint32_t *ret_block);

/* Make @stream the stream of block @id. This also gives the stream a tree in the set, so that no later insert can fail.
 * Returns 0; -ENOSPC, and nothing has changed. */
int gm_pages_adopt(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t stream);

void gm_pages_set_stream(struct gm_block *block, uint64_t stream);

/* ---- pages_place.c ---- */

struct gm_pages_place {
	uint64_t from, to;		/* the addresses for the request; @to 0: there is no place */
	uint64_t missing;		/* bytes of pages to map there */
	uint64_t hole;			/* bytes of the hole that contains the place */
	uint64_t listed;		/* @listed of the region when the first block there was unmapped */
	uint32_t first;			/* the block that contains @from; GM_NONE: the end of the region */
};

/* A hole is a run of adjacent free blocks, with or without memory. Unmapped blocks are in a set by the size of their
 * hole, which counts the free blocks of all streams. Unmapped blocks whose hole has changed are in a list until
 * gm_pages_choose() sorts them into the set again. list and unlist: add block @id to the list, or remove it from the
 * list or set. */
void gm_pages_list(struct gm_heap *heap, unsigned int pool, uint32_t id);
void gm_pages_unlist(struct gm_heap *heap, unsigned int pool, uint32_t id);
#define GM_PAGES_CHANGED 0u		/* in the place of links[].size: the block is in the list */

/* Note that the hole around unmapped block @id has changed. */
void gm_pages_change_hole(struct gm_heap *heap, unsigned int pool, uint32_t id);

/* How many blocks on either side of an unmapped block can belong to its hole: as many as one transaction can join. With
 * a log they are fewer, because a transaction can log only a limited number of words. */
#define GM_PAGES_BESIDE 23u
#define GM_PAGES_BESIDE_LOGGED 7u
static inline unsigned int gm_pages_beside(const struct gm_heap *heap)
{
	return heap->undo->base ? GM_PAGES_BESIDE_LOGGED : GM_PAGES_BESIDE;
}

/* Note that the block between @before and @after becomes free or ceases to be, which changes the holes beside it. */
static inline void gm_pages_change_holes(struct gm_heap *heap, unsigned int pool, uint32_t before, uint32_t after)
{
	unsigned int most = gm_pages_beside(heap);

	for (unsigned int i = 1; i < most && before && heap->blocks[before].state == GM_BLOCK_INACTIVE; i++)
		before = heap->blocks[before].prev;
	for (unsigned int i = 1; i < most && after && heap->blocks[after].state == GM_BLOCK_INACTIVE; i++)
		after = heap->blocks[after].next;
	if (heap->blocks[before].state == GM_BLOCK_UNMAPPED && heap->links[before].size != GM_PAGES_CHANGED)
		gm_pages_change_hole(heap, pool, before);
	if (heap->blocks[after].state == GM_BLOCK_UNMAPPED && heap->links[after].size != GM_PAGES_CHANGED)
		gm_pages_change_hole(heap, pool, after);
}

/* Choose the place where the fewest pages are missing; among equal ones the place in the smallest hole; among these
 * the place that was unmapped last. Does not look at all holes, so another place may be a little better. Returns false
 * when there is no place. */
bool gm_pages_choose(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t stream,
		     struct gm_pages_place *ret);

/* Is all of @place covered by adjacent free blocks with memory that @stream may use? @id is one of these blocks. If so,
 * sets place->first. */
bool gm_pages_is_whole(const struct gm_heap *heap, uint32_t id, uint64_t stream,
		       struct gm_pages_place *place);

/* Serve the request from @place, all of which has memory: join its blocks and free neighbours that the request's stream
 * may use. Returns as gm_pages_hand_out. */
int gm_pages_claim(struct gm_heap *heap, unsigned int pool, const struct gm_pages_place *place, uint64_t size,
		   const struct gm_heap_request *request, uint32_t *ret_block);

/* Serve the request from adjacent free blocks, at least one of which belongs to its stream. Called before blocks of
 * GM_PAGES_ANY are searched, so that a stream uses its own memory first. Returns as gm_heap_find. */
int gm_pages_find_beside(struct gm_heap *heap, unsigned int pool, uint64_t size,
			 const struct gm_heap_request *request, uint32_t *ret_block);

/* ---- pages_move.c: both unmap pages, which become spare; they return 0 and the bytes; -ENOSPC; or -ETIMEDOUT ---- */

/* Take @bytes of pages, or as many as there are, from free blocks whose pages may move for a request of @stream. Takes
 * no pages at @keep, the place of that request. */
int gm_pages_steal(struct gm_heap *heap, uint64_t stream, uint64_t bytes, const struct gm_pages_place *keep,
		   uint64_t *ret_bytes);
/* Take the whole handles of free blocks whose frees every stream is past and that may go back (ops->may_go): all of
 * them, or @most bytes. */
int gm_pages_strip_idle(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes);

/* ---- pages_grow.c ---- */

static inline bool gm_pages_lock(const struct gm_heap *heap, bool grown)
{
	return !heap->ops->lock || heap->ops->lock(heap->ops->arg, grown);
}

static inline void gm_pages_unlock(const struct gm_heap *heap)
{
	if (heap->ops->unlock)
		heap->ops->unlock(heap->ops->arg);
}

/* Report pages that have been mapped, or are about to be unmapped (ops->page_event). */
static inline void gm_pages_report(const struct gm_heap *heap, unsigned int pool, bool mapped, uint64_t address,
				 uint64_t bytes)
{
	const struct gm_pages_region *region = &gm_pages((struct gm_heap *)(uintptr_t)heap)->region[pool];

	if (heap->ops->page_event)
		heap->ops->page_event(heap->ops->arg, mapped, region->segment, address, bytes);
}

/* Make block @id, which is in no set or list, an unmapped block, and join it with unmapped neighbours. */
void gm_pages_make_unmapped(struct gm_heap *heap, unsigned int pool, uint32_t id);

int gm_pages_alloc(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);
int gm_pages_release(struct gm_heap *heap, uint64_t most, bool synchronize, uint64_t *ret_bytes);
void gm_pages_begin_period(struct gm_heap *heap);
int gm_pages_release_unused(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes);
/* As gm_heap_detach, for any free block: the block loses its memory, and if it is then the region's last block, the
 * region is shortened. Only for a heap that is about to end, because the rules about pages do not hold afterwards. */
void gm_pages_detach(struct gm_heap *heap, uint32_t id);

#endif
