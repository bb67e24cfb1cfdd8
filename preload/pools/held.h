/*
 * held.h - the pieces of memory that a pool holds, sorted by address.
 *
 * The list is an array in its own memory (mmap, grows). A sorted array suffices, because pools hold tens to
 * thousands of pieces, and most new pieces have the highest address.
 *
 * Thread context: the caller holds the pool's lock. Signal context: none.
 */
#ifndef GM_PRELOAD_POOLS_HELD_H
#define GM_PRELOAD_POOLS_HELD_H

#include <stddef.h>
#include <stdint.h>

struct gm_held_piece {
	uint64_t address, end;
	uint32_t block;			/* id of the piece's record in the pool's domain */
	uint32_t context;		/* id of the context that ends the piece; 0: outlives contexts */
	uint8_t kind;			/* enum gm_kind */
};

struct gm_held_list { struct gm_held_piece *at; size_t count, bytes, last; };	/* @last: index found last */

/* Return the index of the first piece that ends after @address; @list->count: none. Tries the piece of the last
 * search first, because most blocks lie in the same piece as the block before. */
static inline size_t gm_held_from(struct gm_held_list *list, uint64_t address)
{
	size_t low = 0, high = list->count;

	if (list->last < high && address >= list->at[list->last].address &&
	    address < list->at[list->last].end)
		return list->last;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list->at[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	list->last = low;
	return low;
}

/* Insert @piece at @index, which must keep the list sorted. Returns 0 or -ENOMEM. */
int gm_held_insert(struct gm_held_list *list, size_t index, const struct gm_held_piece *piece);
void gm_held_remove(struct gm_held_list *list, size_t index);

#endif
