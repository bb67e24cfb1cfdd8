/*
 * pages_place.c - the pages heap: where a request goes that no free block serves. See pages_heap.h.
 *
 * Nothing here calls the driver or gives up the lock.
 */
#include "allocator/pages_heap.h"

#include <errno.h>

#define PIECES 48u			/* blocks that are joined at most */
#define PIECES_LOGGED 16u		/* the same where stores are logged: a transaction has an end */
#define LOOKS 32u			/* at free blocks that are too small by themselves */

static unsigned int pieces_most(const struct gm_heap *heap)
{
	return heap->undo->base ? PIECES_LOGGED : PIECES;
}

/* ---- choosing ---- */

/* Look at [@from, @to), which begins in free block @id or, GM_NONE, at the region's end. Better than @best? */
static void consider(const struct gm_heap *heap, const struct gm_pages_region *region, uint32_t id,
		     uint64_t from, uint64_t to, uint64_t hole, struct gm_pages_place *best)
{
	struct gm_pages_place place = { from, to, 0, hole, GM_NONE };
	unsigned int pieces = 0;

	while (id && gm_pages_end(&heap->blocks[id]) <= from)
		id = heap->blocks[id].next;
	place.first = id;
	for (; id && heap->blocks[id].address < to; id = heap->blocks[id].next) {
		const struct gm_block *block = &heap->blocks[id];
		uint64_t a = block->address > from ? block->address : gm_pages_down(from);
		uint64_t b = gm_pages_end(block) < to ? gm_pages_end(block) : gm_pages_up(to);

		if (block->state == GM_BLOCK_UNMAPPED)
			place.missing += b - a;
		pieces++;
	}
	if (to > region->top)
		place.missing += gm_pages_up(to) - region->top;
	if (pieces <= pieces_most(heap) && (!best->to || place.missing < best->missing ||
				 (place.missing == best->missing && hole < best->hole)))
		*best = place;
}

/* The free blocks around unmapped block @id, or the region's end (GM_NONE), as places for @size bytes. */
static void consider_hole(const struct gm_heap *heap, const struct gm_pages_region *region, uint32_t id,
			  uint64_t size, uint64_t stream, struct gm_pages_place *best)
{
	uint32_t first = id, before = id ? heap->blocks[id].prev : region->last, last = id;
	uint64_t from, to;

	for (; before && gm_pages_is_free(&heap->blocks[before]) &&
	       gm_pages_usable(&heap->blocks[before], stream); before = heap->blocks[before].prev) {
		if (heap->blocks[before].state == GM_BLOCK_UNMAPPED)
			return;			/* it comes, or came, itself */
		first = before;
	}
	while (last && heap->blocks[last].next && gm_pages_is_free(&heap->blocks[heap->blocks[last].next]) &&
	       gm_pages_usable(&heap->blocks[heap->blocks[last].next], stream))
		last = heap->blocks[last].next;
	from = first ? heap->blocks[first].address : region->top;
	to = last && last != region->last ? gm_pages_end(&heap->blocks[last]) : region->end;
	if (to - from < size)
		return;
	consider(heap, region, first, from, from + size, to - from, best);
	if (to < region->end)
		consider(heap, region, first, to - size, to, to - from, best);
}

bool gm_pages_choose(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t stream,
		   struct gm_pages_place *ret)
{
	const struct gm_pages_region *region = &gm_pages(heap)->region[pool];

	*ret = (struct gm_pages_place){ .to = 0 };
	for (uint32_t id = region->unmapped; id; id = heap->links[id].left)
		consider_hole(heap, region, id, size, stream, ret);
	consider_hole(heap, region, GM_NONE, size, stream, ret);
	return ret->to;
}

/* ---- taking ---- */

/* Is @id, which may be GM_NONE, a free block with memory that @stream may use? */
static bool is_usable(const struct gm_heap *heap, uint32_t id, uint64_t stream)
{
	return id && heap->blocks[id].state == GM_BLOCK_INACTIVE && gm_pages_usable(&heap->blocks[id], stream);
}

bool gm_pages_is_whole(const struct gm_heap *heap, uint32_t id, uint64_t stream, struct gm_pages_place *place)
{
	while (id && heap->blocks[id].address > place->from)
		id = heap->blocks[id].prev;
	place->first = id;
	for (; id; id = heap->blocks[id].next) {
		if (!is_usable(heap, id, stream))
			return false;
		if (gm_pages_end(&heap->blocks[id]) >= place->to)
			return true;
	}
	return false;
}

/* A free block with memory beside @id that @stream may use; GM_NONE. */
static uint32_t beside(const struct gm_heap *heap, uint32_t id, uint64_t stream)
{
	uint32_t prev = heap->blocks[id].prev, next = heap->blocks[id].next;

	return is_usable(heap, prev, stream) ? prev : is_usable(heap, next, stream) ? next : GM_NONE;
}

static bool reaches(const struct gm_block *block, const struct gm_pages_place *place)
{
	return block->address <= place->from && gm_pages_end(block) >= place->to;
}

int gm_pages_claim(struct gm_heap *heap, unsigned int pool, const struct gm_pages_place *place, uint64_t size,
		   const struct gm_heap_request *request, uint32_t *ret_block)
{
	uint32_t id = place->first, other;
	uint64_t born = heap->links[id].born;

	gm_pages_remove(heap, pool, id);
	while ((gm_pages_may_join(heap) || !reaches(&heap->blocks[id], place)) &&
	       (other = beside(heap, id, request->stream))) {
		bool before = heap->blocks[other].address < heap->blocks[id].address;

		gm_pages_remove(heap, pool, other);
		born = heap->links[other].born > born ? heap->links[other].born : born;
		id = before ? gm_pages_join(heap, pool, other, id) : gm_pages_join(heap, pool, id, other);
	}
	heap->links[id].born = born;
	if (gm_pages_adopt(heap, pool, id, request->stream)) {
		gm_pages_insert(heap, pool, id, born);
		return -ENOSPC;
	}
	if (heap->blocks[id].address < place->from) {
		other = gm_heap_cut(heap, id, place->from - heap->blocks[id].address);
		if (other) {
			gm_heap_set_state(heap, &heap->blocks[other], GM_BLOCK_INACTIVE);
			gm_pages_insert(heap, pool, other, born);
		}
	}
	return gm_pages_hand_out(heap, pool, id, size, request, ret_block);
}

/* The blocks with memory around free block @id that @stream may use, one beside another, as a place for @size bytes. */
static struct gm_pages_place run_around(const struct gm_heap *heap, uint32_t id, uint64_t size, uint64_t stream)
{
	uint32_t first = id, last = id;
	unsigned int pieces = 1, most = pieces_most(heap);
	struct gm_pages_place run;

	for (uint32_t other = heap->blocks[id].prev; pieces < most && is_usable(heap, other, stream);
	     other = heap->blocks[other].prev, pieces++)
		first = other;
	for (uint32_t other = heap->blocks[id].next; pieces < most && is_usable(heap, other, stream);
	     other = heap->blocks[other].next, pieces++)
		last = other;
	run = (struct gm_pages_place){ .from = heap->blocks[first].address, .first = first,
			      .hole = gm_pages_end(&heap->blocks[last]) - heap->blocks[first].address };
	run.to = run.from + size;
	return run;
}

int gm_pages_find_beside(struct gm_heap *heap, unsigned int pool, uint64_t size,
			 const struct gm_heap_request *request, uint32_t *ret_block)
{
	struct gm_free_set *set = &gm_pages(heap)->pool[pool];
	struct gm_pages_place best = { .to = 0 };
	uint64_t below = size, address = 0;
	uint32_t id;

	for (unsigned int i = 0; i < LOOKS && (id = gm_free_set_below(set, request->stream, below, address)); i++) {
		struct gm_pages_place run = run_around(heap, id, size, request->stream);

		below = heap->links[id].size;
		address = heap->links[id].address;
		if (run.hole >= size && (!best.to || run.hole < best.hole))
			best = run;
	}
	return best.to ? gm_pages_claim(heap, pool, &best, size, request, ret_block) : -EAGAIN;
}
