/*
 * pages_place.c - the pages heap: choose the place of a request that no free block serves. See pages_heap.h.
 *
 * Nothing here calls the driver or releases the lock.
 */
#include "allocator/pages_heap.h"

#include <errno.h>

#define LOOKS 32u			/* looks at free blocks that are too small alone, and at holes */
#define TOGETHER 2u			/* seldom more such blocks lie in one hole */

/* ---- holes ---- */

struct hole { uint64_t from, to; uint32_t first; };

/* Return the adjacent free blocks around free block @id that @stream may use (NULL: of any stream). Returns no more
 * than can be joined, so any place among them can be taken. */
static struct hole hole_at(const struct gm_heap *heap, const struct gm_pages_region *region, uint32_t id,
			   const uint64_t *stream)
{
	uint32_t first = id, last = id, other;
	unsigned int most = gm_pages_beside(heap);

	for (unsigned int i = most; i-- && (other = heap->blocks[first].prev) &&
	     gm_pages_is_free(&heap->blocks[other]) && (!stream || gm_pages_usable(&heap->blocks[other], *stream));)
		first = other;
	for (unsigned int i = most; i-- && (other = heap->blocks[last].next) &&
	     gm_pages_is_free(&heap->blocks[other]) && (!stream || gm_pages_usable(&heap->blocks[other], *stream));)
		last = other;
	return (struct hole){ heap->blocks[first].address,
			      last == region->last ? region->end : gm_pages_end(&heap->blocks[last]), first };
}

static void list(struct gm_heap *heap, struct gm_pages_region *region, uint32_t id)
{
	heap->links[id].size = GM_PAGES_CHANGED;
	heap->links[id].left = region->changed;
	heap->links[id].right = GM_NONE;
	if (region->changed)
		heap->links[region->changed].right = id;
	region->changed = id;
}

void gm_pages_list(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	struct gm_pages_region *region = &gm_pages(heap)->region[pool];

	gm_pages_set_stream(&heap->blocks[id], GM_PAGES_ANY);
	heap->links[id].born = ++region->listed;
	list(heap, region, id);
}

void gm_pages_unlist(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	uint32_t after = heap->links[id].left, before = heap->links[id].right;

	if (heap->links[id].size != GM_PAGES_CHANGED) {
		gm_free_set_remove(&region->unmapped, id);
		return;
	}
	if (before)
		heap->links[before].left = after;
	else
		region->changed = after;
	if (after)
		heap->links[after].right = before;
}

void gm_pages_change_hole(struct gm_heap *heap, unsigned int pool, uint32_t id)
{
	gm_pages_unlist(heap, pool, id);
	list(heap, &gm_pages(heap)->region[pool], id);
}

/* Move the unmapped blocks of the list into the set. An insert cannot fail, because the set has only one stream. */
static void sort(struct gm_heap *heap, unsigned int pool)
{
	struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	uint32_t id;

	while ((id = region->changed)) {
		struct hole hole = hole_at(heap, region, id, NULL);

		for (id = hole.first; id && heap->blocks[id].address < hole.to; id = heap->blocks[id].next) {
			if (heap->blocks[id].state != GM_BLOCK_UNMAPPED)
				continue;
			gm_pages_unlist(heap, pool, id);
			gm_free_set_insert_as(&region->unmapped, id, hole.to - hole.from, heap->links[id].born);
		}
	}
}

/* ---- choosing ---- */

static bool is_better(const struct gm_pages_place *a, const struct gm_pages_place *b)
{
	return a->missing != b->missing ? a->missing < b->missing :
	       a->hole != b->hole ? a->hole < b->hole : a->listed > b->listed;
}

/* Make [@from, @to) in @hole the best place if it is better than @best. If the hole's first block is GM_NONE, the
 * hole is the end of the region. */
static void consider(const struct gm_heap *heap, const struct gm_pages_region *region, const struct hole *hole,
		     uint64_t from, uint64_t to, struct gm_pages_place *best)
{
	struct gm_pages_place place = { from, to, 0, hole->to - hole->from, 0, hole->first };
	unsigned int pieces = 0;

	while (place.first && gm_pages_end(&heap->blocks[place.first]) <= from)
		place.first = heap->blocks[place.first].next;
	for (uint32_t id = place.first; id && heap->blocks[id].address < to; id = heap->blocks[id].next) {
		const struct gm_block *block = &heap->blocks[id];
		uint64_t a = block->address > from ? block->address : gm_pages_down(from);
		uint64_t b = gm_pages_end(block) < to ? gm_pages_end(block) : gm_pages_up(to);

		if (block->state == GM_BLOCK_UNMAPPED) {
			place.missing += b - a;
			place.listed = place.listed ? place.listed : heap->links[id].born;
		}
		pieces++;
	}
	if (to > region->top)
		place.missing += gm_pages_up(to) - region->top;
	if (pieces <= 2 * gm_pages_beside(heap) + 1 && (!best->to || is_better(&place, best)))
		*best = place;
}

/* Consider both ends of @hole as places for @size bytes. */
static void consider_hole(const struct gm_heap *heap, const struct gm_pages_region *region, const struct hole *hole,
			  uint64_t size, struct gm_pages_place *best)
{
	if (hole->to - hole->from < size)
		return;
	consider(heap, region, hole, hole->from, hole->from + size, best);
	if (hole->to < region->end)
		consider(heap, region, hole, hole->to - size, hole->to, best);
}

static bool is_beside_free(const struct gm_heap *heap, uint32_t id)
{
	return gm_pages_is_free(&heap->blocks[heap->blocks[id].prev]) ||
	       gm_pages_is_free(&heap->blocks[heap->blocks[id].next]);
}

/* Consider the holes with the largest free blocks of stream @of, because the memory of these blocks is not missing. */
static void choose_largest(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t stream, uint64_t of,
			   struct gm_pages_place *best)
{
	const struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	struct gm_free_set *set = &gm_pages(heap)->pool[pool];
	uint64_t below = size, address = 0;
	uint32_t id;

	for (unsigned int i = 0; region->unmapped.count && i < LOOKS &&
	     (id = gm_free_set_below(set, of, below, address)); i++) {
		struct hole hole;

		below = heap->links[id].size;
		address = heap->links[id].address;
		if (below < GM_HEAP_PAGE || (best->to && best->missing + TOGETHER * below < size))
			return;
		if (!is_beside_free(heap, id))
			continue;		/* too small alone; the region's end is considered anyway */
		hole = hole_at(heap, region, id, &stream);
		consider_hole(heap, region, &hole, size, best);
	}
}

/* Consider the smallest holes that are large enough, at least one. A place without a whole page of memory lacks at best
 * one page less than the request takes, because the place begins or ends in a page that has memory. In a hole that is
 * smaller than these pages it lacks at best two less. So the search ends when no larger hole can be better. */
static void choose_smallest(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t stream,
			    struct gm_pages_place *best)
{
	const struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	uint64_t pages = gm_pages_up(size), above = size, address = 0;
	bool several = gm_pages(heap)->several;		/* one stream may be able to use only a part of a hole */
	uint32_t id;

	for (unsigned int i = 0; (i < LOOKS || !best->to) &&
	     (id = gm_free_set_at_least(&gm_pages(heap)->region[pool].unmapped, GM_PAGES_ANY, above, address)); i++) {
		struct hole hole;
		uint64_t saved, least;

		above = heap->links[id].size;
		address = heap->links[id].address + 1;
		saved = above < pages ? 2 * GM_HEAP_PAGE : GM_HEAP_PAGE;
		least = pages > saved ? pages - saved : GM_HEAP_PAGE;
		if (best->to && (best->missing < least || (best->missing == least && !several && best->hole < above)))
			return;
		hole = hole_at(heap, region, id, &stream);
		consider_hole(heap, region, &hole, size, best);
	}
}

bool gm_pages_choose(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t stream,
		   struct gm_pages_place *ret)
{
	const struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	struct hole end = { region->top, region->end, GM_NONE };

	*ret = (struct gm_pages_place){ .to = 0 };
	sort(heap, pool);
	choose_largest(heap, pool, size, stream, stream, ret);
	if (gm_pages(heap)->several)
		choose_largest(heap, pool, size, stream, GM_PAGES_ANY, ret);
	choose_smallest(heap, pool, size, stream, ret);
	if (region->last && gm_pages_is_free(&heap->blocks[region->last]) &&
	    gm_pages_usable(&heap->blocks[region->last], stream))
		end = hole_at(heap, region, region->last, &stream);
	consider_hole(heap, region, &end, size, ret);
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

/* Return a free block with memory beside @id that @stream may use; GM_NONE: none. */
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
		other = gm_heap_cut(heap, id, place->from - heap->blocks[id].address, false);
		if (!other) {
			gm_pages_settle(heap, pool, id, request->stream, born);
			return -ENOSPC;
		}
		gm_heap_set_state(heap, &heap->blocks[other], GM_BLOCK_INACTIVE);
		gm_pages_insert(heap, pool, other, born);
	}
	return gm_pages_hand_out(heap, pool, id, size, request, ret_block);
}

/* Return the adjacent blocks with memory around free block @id that @stream may use, as a place for @size bytes. */
static struct gm_pages_place run_around(const struct gm_heap *heap, uint32_t id, uint64_t size, uint64_t stream)
{
	uint32_t first = id, last = id;
	unsigned int pieces = 1, most = gm_pages_beside(heap);
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
