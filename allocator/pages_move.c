/*
 * pages_move.c - the pages heap: choose the pages that move to a request or go back to the driver, and unmap them. See
 * pages_heap.h.
 *
 * The lock is released around each call of the driver. What was read before the call is checked again after it.
 */
#include "allocator/pages_heap.h"

#include <errno.h>

/* Return the bytes of the block's whole handles outside of [@from, @to), and where they begin: the handles before that
 * range or, if there are none, the handles after it. */
static uint64_t outside(const struct gm_pages_region *region, const struct gm_block *block, uint64_t from, uint64_t to,
			uint64_t *ret_at)
{
	uint64_t begin = block->address, end = gm_pages_end(block), bytes;

	if (end <= from || begin >= to)
		return gm_pages_whole(region, begin, end, ret_at);
	bytes = gm_pages_whole(region, begin, from, ret_at);
	return bytes ? bytes : gm_pages_whole(region, to, end, ret_at);
}

/* Return the last point at which a part of the pages in [@from, @to) was freed. */
static uint64_t last_freed(const struct gm_pages_region *region, uint64_t from, uint64_t to)
{
	uint64_t last = 0;

	for (; from < to; from += GM_HEAP_PAGE) {
		uint64_t freed = region->freed[(from - region->base) / GM_HEAP_PAGE];

		last = freed > last ? freed : last;
	}
	return last;
}

/* Unmap @bytes of whole handles at @at, inside free block @id, which is in its set; their memory becomes spare. Returns
 * 0; -ENOSPC, and nothing has changed; -ETIMEDOUT: the lock is lost. */
static int strip(struct gm_heap *heap, unsigned int pool, uint32_t id, uint64_t at, uint64_t bytes)
{
	struct gm_pages_heap *own = gm_pages(heap);
	uint64_t born = heap->links[id].born, freed = last_freed(&own->region[pool], at, at + bytes);
	uint32_t before = GM_NONE, front;

	gm_pages_remove(heap, pool, id);
	if (heap->blocks[id].address < at) {
		before = gm_heap_cut(heap, id, at - heap->blocks[id].address, true);
		if (!before)
			goto out_whole;
		gm_heap_set_state(heap, &heap->blocks[before], GM_BLOCK_INACTIVE);
		gm_pages_insert(heap, pool, before, born);
	}
	if (heap->blocks[id].size > bytes) {
		front = gm_heap_cut(heap, id, bytes, true);
		if (!front)
			goto out_whole;
		gm_pages_insert(heap, pool, id, born);
		id = front;
	}
	gm_pages_make_unmapped(heap, pool, id);
	gm_heap_count_reserved(heap, pool, bytes, false);
	gm_pages_report(heap, pool, false, at, bytes);
	heap->reserved -= bytes;
	gm_pages_set_spare(own, own->spare + bytes);
	if (own->spare_freed < freed)
		own->spare_freed = freed;
	gm_pages_unlock(heap);
	heap->ops->unmap(heap->ops->arg, at, bytes);
	return gm_pages_lock(heap, false) ? 0 : -ETIMEDOUT;
out_whole:
	if (before) {				/* undo the first cut, because no record is left for the second */
		gm_pages_remove(heap, pool, before);
		id = gm_pages_join(heap, pool, before, id);
	}
	gm_pages_insert(heap, pool, id, born);
	return -ENOSPC;
}

/* Whole handles [@at, +@bytes) inside free block @id, which can be unmapped; @place: the block's place in the set. */
struct victim { uint32_t id; unsigned int pool; uint64_t at, bytes; struct gm_free_cursor place; };

/* Replace *@best by the new candidate if it is better: the smaller one of two that have @wanted bytes, else the larger
 * one. */
static void prefer(struct victim *best, uint32_t id, unsigned int pool, uint64_t at, uint64_t bytes,
		   uint64_t wanted)
{
	if (best->bytes >= wanted ? bytes >= wanted && bytes < best->bytes : bytes > best->bytes)
		*best = (struct victim){ .id = id, .pool = pool, .at = at, .bytes = bytes };
}

/* Find the smallest free block of @stream in @pool with @bytes of whole handles outside of @keep; if there is none, the
 * block with the most. */
static void find_victim(struct gm_heap *heap, unsigned int pool, uint64_t stream, uint64_t bytes,
			const struct gm_pages_place *keep, struct victim *best)
{
	const struct gm_pages_region *region = &gm_pages(heap)->region[pool];
	struct gm_free_set *set = &gm_pages(heap)->pool[pool];
	uint64_t size = bytes, address = 0, at, gives;
	uint32_t id;

	while ((id = gm_free_set_at_least(set, stream, size, address))) {
		size = heap->links[id].size;
		address = heap->links[id].address + 1;
		gives = outside(region, &heap->blocks[id], gm_pages_down(keep->from), gm_pages_up(keep->to), &at);
		if (gives >= bytes) {
			prefer(best, id, pool, at, gives, bytes);
			return;
		}
	}
	if (bytes <= GM_HEAP_PAGE)
		return;
	for (size = UINT64_MAX, address = 0; (id = gm_free_set_below(set, stream, size, address));) {
		size = heap->links[id].size;
		address = heap->links[id].address;
		if (gm_pages_down(size) <= best->bytes || best->bytes >= bytes)
			return;
		gives = outside(region, &heap->blocks[id], gm_pages_down(keep->from), gm_pages_up(keep->to), &at);
		prefer(best, id, pool, at, gives, bytes);
	}
}

/* Find the best run of handles whose frees every stream is past, outside of @keep (NULL: anywhere). Searches the free
 * blocks behind cursor @at: with @stream those that *@stream may not use; with NULL those that may go back
 * (ops->may_go). Ends when a run has @enough bytes. */
static void find_past(struct gm_heap *heap, unsigned int pool, const uint64_t *stream, uint64_t bytes, uint64_t enough,
		      const struct gm_pages_place *keep, struct gm_free_cursor at, struct victim *best)
{
	struct gm_pages_heap *own = gm_pages(heap);
	const struct gm_pages_region *region = &own->region[pool];
	uint64_t keep_from = keep ? gm_pages_down(keep->from) : 0, keep_to = keep ? gm_pages_up(keep->to) : 0;
	struct gm_pages_done known = { 0 };
	uint64_t step, later, from, to;
	uint32_t id;

	while (best->bytes < enough && best->bytes != bytes &&	/* an exact fit is the best */
	       (id = gm_free_set_next(&own->pool[pool], &at))) {
		const struct gm_block *block = &heap->blocks[id];

		if ((stream && gm_pages_usable(block, *stream)) ||
		    (!stream && heap->ops->may_go && !heap->ops->may_go(heap->ops->arg, block->stream))) {
			gm_free_cursor_skip(&at, UINT64_MAX);
			continue;
		}
		if (block->size < GM_HEAP_PAGE) {
			gm_free_cursor_skip(&at, GM_HEAP_PAGE);
			continue;
		}
		to = outside(region, block, keep_from, keep_to, &from);
		for (to += from; from < to; from += step + later) {
			step = gm_pages_handles_past(region, from, to, gm_pages_done(heap, id, &known));
			prefer(best, id, pool, from, step, bytes);
			later = 0;
			if (from + step < to)
				gm_pages_handle(region, from + step, &later);
		}
	}
}

/* Find the best run of handles whose frees every stream is past. @last: the run that was taken before. If it was no
 * longer than the @bytes that are still wanted, it was the longest run, so look behind it for a run of the same length:
 * in this way one pass over the set finds many. Else, or if there is none, search the whole set. */
static struct victim next_past(struct gm_heap *heap, uint64_t bytes, const struct gm_pages_place *keep,
			       const struct victim *last)
{
	struct victim best = { .bytes = 0 };

	if (last->bytes && last->bytes <= bytes)
		find_past(heap, last->pool, NULL, bytes, last->bytes, keep, last->place, &best);
	if (!best.bytes || best.bytes < last->bytes) {
		best.bytes = 0;
		for (unsigned int i = 0; i < 2; i++)
			find_past(heap, !i, NULL, bytes, UINT64_MAX, keep, (struct gm_free_cursor){ 0 }, &best);
	}
	best.place = (struct gm_free_cursor){ heap->blocks[best.id].stream, heap->links[best.id].size,
					      heap->links[best.id].address, true };
	return best;
}

/* Drop the victim's surplus handles from the end; if the left neighbour has memory, from the front. @enough: keep at
 * least @wanted bytes; else keep at most @wanted bytes. */
static void shorten(const struct gm_heap *heap, struct victim *victim, uint64_t wanted, bool enough)
{
	const struct gm_pages_region *region = &gm_pages((struct gm_heap *)heap)->region[victim->pool];
	uint32_t before = heap->blocks[victim->id].prev;
	bool end = before && heap->blocks[before].state != GM_BLOCK_UNMAPPED;
	uint64_t bytes;

	while (victim->bytes > wanted) {
		gm_pages_handle(region, end ? victim->at : victim->at + victim->bytes - 1, &bytes);
		if (enough && victim->bytes - bytes < wanted)
			return;
		victim->at += end ? bytes : 0;
		victim->bytes -= bytes;
	}
}

int gm_pages_steal(struct gm_heap *heap, uint64_t stream, uint64_t bytes, const struct gm_pages_place *keep,
		 uint64_t *ret_bytes)
{
	const uint64_t streams[] = { stream, GM_PAGES_ANY };
	struct victim victim = { .bytes = 0 };
	int r = 0;

	*ret_bytes = 0;
	while (!r && *ret_bytes < bytes && heap->idle) {
		uint64_t wanted = bytes - *ret_bytes;

		if (heap->ops->moves_passed) {
			victim = next_past(heap, wanted, keep, &victim);
		} else {
			victim.bytes = 0;
			for (unsigned int i = 0; i < 4 && !(i == 2 && victim.bytes); i++)	/* own blocks first */
				find_victim(heap, !(i & 1), streams[i / 2], wanted, keep, &victim);
			for (unsigned int i = 0; !victim.bytes && gm_pages(heap)->several && i < 2; i++)
				find_past(heap, !i, &stream, wanted, UINT64_MAX, NULL, (struct gm_free_cursor){ 0 },
					  &victim);
		}
		if (!victim.bytes)
			break;
		shorten(heap, &victim, wanted, true);
		r = strip(heap, victim.pool, victim.id, victim.at, victim.bytes);
		if (r != -ENOSPC)
			*ret_bytes += victim.bytes;
	}
	return r;
}

int gm_pages_strip_idle(struct gm_heap *heap, uint64_t most, uint64_t *ret_bytes)
{
	struct victim victim = { .bytes = 0 };
	int r = 0;

	*ret_bytes = 0;
	while (!r && heap->idle && *ret_bytes < most) {
		victim = next_past(heap, most - *ret_bytes, NULL, &victim);
		shorten(heap, &victim, most - *ret_bytes, false);
		if (!victim.bytes)
			break;
		r = strip(heap, victim.pool, victim.id, victim.at, victim.bytes);
		*ret_bytes += r ? 0 : victim.bytes;
	}
	return r;
}
