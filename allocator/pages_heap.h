/*
 * pages_heap.h - the pages heap: best fit over addresses, with memory moved to where it is needed.
 *
 * One reservation of addresses, in two regions, so that small requests (up to 1 MiB) do not hold
 * the pages of large ones. Memory is behind the addresses in handles of one or more pages of 2 MiB,
 * which come and go whole: a free block that no request fits keeps its addresses and gives its whole
 * handles away. How large handles are the backend decides, and says in an array (ops->reserve).
 *
 *	addresses   |live|free|live|   unmapped   |live|  free   |live|free|            up to the region's end
 *	pages       |  p  |  p  | p |             |  p |  p  | p |  p  |                (p: memory is behind it)
 *
 * A request is served from a free block with memory behind it: the smallest that is large enough.
 * Else a place is chosen where the fewest pages are missing, between other blocks or at the end,
 * and pages come from the driver as long as the heap has no more than a 64th over what was
 * ever live (GM_PAGES_SLACK); from then on from under free blocks, and from the driver again only where those have
 * none.
 *
 * Streams: a free block belongs to the stream in whose order it was freed, which may use it at
 * once. When every stream is past its free (ops->passed), any stream may use it; a whole page of it
 * may be used earlier, if it was itself freed earlier. With several streams, a stream's own free
 * blocks are used, or moved, before more memory is got: other streams cannot use them for a while.
 *
 *   pages_heap.c    finding, cutting, joining; the class
 *   pages_place.c   where a request goes that no free block serves
 *   pages_move.c    whose pages it gets
 *   pages_grow.c    the driver: growth, giving back
 *
 * Context: as heap.h.
 */
#ifndef GM_ALLOCATOR_PAGES_HEAP_H
#define GM_ALLOCATOR_PAGES_HEAP_H

#include "allocator/heap.h"

#define GM_PAGES_ANY UINT64_MAX		/* in place of a stream: of a free block that every stream may use */
/* A heap may have so much of the most that was ever live on top of that before pages are moved rather than the driver
 * asked: one part of so many; and while moving takes too much time (ops->costly). */
#define GM_PAGES_SLACK 64u
#define GM_PAGES_SLACK_COSTLY 4u

struct gm_pages_region {
	uint64_t base, top, end;	/* blocks tile [base, top); more addresses are up to @end */
	uint32_t segment;		/* GM_NONE: no request yet */
	uint32_t last;			/* its block with the highest address */
	struct gm_free_set unmapped;	/* its unmapped blocks, by the sizes of their holes (pages_place.c) */
	uint32_t changed;		/* list of those that are not in there now, by links[].left and .right */
	uint64_t listed;		/* so many blocks have come to be unmapped */
	uint64_t *freed;		/* for each page from @base on: the last moment at which some of it was freed */
	const uint32_t *handles;	/* for each page likewise: see gm_heap_ops.reserve */
};

struct gm_pages_heap {
	struct gm_heap heap;
	struct gm_free_set pool[2];	/* 0 small, 1 large, as the regions */
	struct gm_pages_region region[2];
	uint64_t live, live_peak;	/* bytes whose free is not complete */
	uint64_t spare;			/* bytes that ops->unmap took and ops->map has not used; read unlocked */
	uint64_t spare_freed;		/* the last moment at which some of them were freed */
	uint64_t moved;			/* pages that were taken from a free block for a request elsewhere */
	uint64_t scanned;		/* gm_pages_look_again found no stream's free block freed before this moment;
					 * 0: it has to look again */
	uint64_t stream;		/* the only stream so far, unless @several */
	bool used, several;
	uint64_t addresses, address_bytes;	/* the reservation; 0: none yet */
	const uint32_t *handles;		/* for each of its pages */
	void *(*memory)(void *arg, size_t bytes);	/* as in its setup */
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

/* Where the handle begins that is behind @address, and its bytes. */
static inline uint64_t gm_pages_handle(const struct gm_pages_region *region, uint64_t address, uint64_t *ret_bytes)
{
	uint64_t first = gm_pages_index(region, address);

	if (region->handles[first] & GM_HANDLE_REST)
		first -= region->handles[first] & ~GM_HANDLE_REST;
	*ret_bytes = region->handles[first] * GM_HEAP_PAGE;
	return region->base + first * GM_HEAP_PAGE;
}

/* Whole handles of [@from, @to), which has memory all over: their bytes, and where they begin. */
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

/* Bytes of the whole pages from @from on, up to @to at most, whose frees every stream is past at
 * moment @done. */
static inline uint64_t gm_pages_past(const struct gm_pages_region *region, uint64_t from, uint64_t to,
				     uint64_t done)
{
	uint64_t at = from;

	while (at < to && region->freed[(at - region->base) / GM_HEAP_PAGE] <= done)
		at += GM_HEAP_PAGE;
	return at - from;
}

/* The same of whole handles: @from and @to are where some begin. */
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

/* ops->moment and ops->passed; without them every free is of moment 1 and none is passed. @stream
 * GM_PAGES_ANY: in the order of whatever stream. */
uint64_t gm_pages_moment(const struct gm_heap *heap);
uint64_t gm_pages_passed(const struct gm_heap *heap, uint64_t stream);

/* The last moment that is passed for the frees of which free block @id is made, which are in the order of
 * its stream. @known: what was found for the block before, zeroed to begin with. */
struct gm_pages_done { uint64_t stream, done; };
uint64_t gm_pages_done(const struct gm_heap *heap, uint32_t id, struct gm_pages_done *known);

/* Free blocks whose free every stream is past are given to all streams. False: there is no new
 * one. */
bool gm_pages_look_again(struct gm_heap *heap);

int gm_pages_find(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);

/* Has @stream a free block of its own with @least bytes? */
bool gm_pages_freed_on(struct gm_heap *heap, uint64_t stream, uint64_t least);

/* All that stream @to does from now on comes after what stream @from freed up to the moment @until: free blocks of
 * that are @to's, as if freed now. Returns their bytes. */
uint64_t gm_pages_take_over(struct gm_heap *heap, uint64_t from, uint64_t to, uint64_t until);

/* Put a free block with memory into its set (0; -ENOMEM: its stream is new there, and there is no
 * memory), or take it out. */
int gm_pages_insert(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t born);
void gm_pages_remove(struct gm_heap *heap, unsigned int pool, uint32_t id);

/* gm_heap_join for blocks of a region. */
uint32_t gm_pages_join(struct gm_heap *heap, unsigned int pool, uint32_t first, uint32_t second);

/* Put block @id into its set as one of @stream's, freed at moment @born, after joining it with its
 * free neighbours. The set has had a block of @stream before. Returns the id of the joined
 * block. */
uint32_t gm_pages_settle(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t stream,
			 uint64_t born);

/* A transaction can log a limited number of words (undo.h). Is there room to join two more blocks
 * and still hand one out? Is there room to give free blocks to all streams, before the transaction
 * has done anything else? */
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

/* Serve the request with free block @id, which is in no set: cut it to size. Returns 0 and the
 * block, or -ENOSPC; then @id is in its set again. */
int gm_pages_hand_out(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t size,
		      const struct gm_heap_request *request, uint32_t *ret_block);

/* The block belongs to @stream from here on. That gives the stream a tree in the set, so that no
 * later insert can fail. 0, or -ENOSPC and nothing has changed. */
int gm_pages_adopt(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t stream);

void gm_pages_set_stream(struct gm_block *block, uint64_t stream);

/* ---- pages_place.c ---- */

struct gm_pages_place {
	uint64_t from, to;		/* the addresses that the request takes; @to 0: there is no place */
	uint64_t missing;		/* bytes of pages to be mapped there */
	uint64_t hole;			/* bytes of the adjacent free blocks in which it lies */
	uint64_t listed;		/* of its first unmapped block: how many there had been */
	uint32_t first;			/* the block that @from lies in; GM_NONE: it lies at the region's end */
};

/* A hole is free blocks one beside another, of which some have no memory. Unmapped blocks are in a set by the size of
 * the hole in which each lies, whichever streams may use its parts; those whose hole has changed are in a list until a
 * place is looked for. */
void gm_pages_list(struct gm_heap *heap, unsigned int pool, uint32_t id);
void gm_pages_unlist(struct gm_heap *heap, unsigned int pool, uint32_t id);
#define GM_PAGES_CHANGED 0u		/* in place of the size, of a block in the list */

/* The hole around unmapped block @id has changed. */
void gm_pages_change_hole(struct gm_heap *heap, unsigned int pool, uint32_t id);

/* A hole has so many blocks on either side of an unmapped one at most, so that all of them can be joined: fewer where
 * stores are logged, since a transaction has an end. */
#define GM_PAGES_BESIDE 23u
#define GM_PAGES_BESIDE_LOGGED 7u
static inline unsigned int gm_pages_beside(const struct gm_heap *heap)
{
	return heap->undo->base ? GM_PAGES_BESIDE_LOGGED : GM_PAGES_BESIDE;
}

/* What lies between @before and @after becomes free, or is no more: the holes beside it change. */
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

/* The place where the fewest pages are missing; of several such, the one in the smallest hole; of several of these,
 * the one that was unmapped last. Not all holes are looked at: another place may be a little better. False: there is
 * none. */
bool gm_pages_choose(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t stream,
		     struct gm_pages_place *ret);

/* Is all of @place covered by adjacent free blocks with memory that @stream may use? @id is one of
 * these blocks. If so, place->first is set. */
bool gm_pages_is_whole(const struct gm_heap *heap, uint32_t id, uint64_t stream,
		       struct gm_pages_place *place);

/* All of @place has memory. Join its blocks, and free neighbours that the request's stream may use,
 * and serve the request from the result. Returns as gm_pages_hand_out. */
int gm_pages_claim(struct gm_heap *heap, unsigned int pool, const struct gm_pages_place *place, uint64_t size,
		   const struct gm_heap_request *request, uint32_t *ret_block);

/* Serve the request from adjacent free blocks of which at least one is its stream's own, so that
 * these are used before blocks that all streams may use. Returns as gm_heap_find. */
int gm_pages_find_beside(struct gm_heap *heap, unsigned int pool, uint64_t size,
			 const struct gm_heap_request *request, uint32_t *ret_block);

/* ---- pages_move.c: both return 0 and how many bytes they took, -ENOSPC or -ETIMEDOUT ---- */

/* Take @bytes of pages, or as many as there are, from free blocks whose pages may move for a
 * request of @stream, but none at @keep. */
int gm_pages_steal(struct gm_heap *heap, uint64_t stream, uint64_t bytes, const struct gm_pages_place *keep,
		   uint64_t *ret_bytes);
/* Take all whole pages of free blocks whose frees every stream is past and that may go
 * (ops->may_go). */
int gm_pages_strip_idle(struct gm_heap *heap, uint64_t *ret_bytes);

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

/* Pages have come, or are going: report them (ops->page_event). */
static inline void gm_pages_tell(const struct gm_heap *heap, unsigned int pool, bool mapped, uint64_t address,
				 uint64_t bytes)
{
	const struct gm_pages_region *region = &gm_pages((struct gm_heap *)(uintptr_t)heap)->region[pool];

	if (heap->ops->page_event)
		heap->ops->page_event(heap->ops->arg, mapped, region->segment, address, bytes);
}

/* Block @id, which is in no set or list, has no memory any more: join it with neighbours that have
 * none. */
void gm_pages_make_unmapped(struct gm_heap *heap, unsigned int pool, uint32_t id);

int gm_pages_alloc(struct gm_heap *heap, const struct gm_heap_request *request, uint32_t *ret_block);
int gm_pages_release(struct gm_heap *heap, bool synchronize, uint64_t *ret_bytes);
/* As gm_heap_detach, for any free block: it has no memory any more, and the region ends before it
 * where all blocks behind it are free. For a heap that is about to end: the rules about pages no
 * longer hold. */
void gm_pages_detach(struct gm_heap *heap, uint32_t id);

#endif
