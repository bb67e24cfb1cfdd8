/*
 * held.h - the pieces of memory that a pool holds, by address.
 *
 * A sorted list in memory of its own (mmap, grows): pools hold tens to thousands of pieces, and new
 * ones come mostly behind the others. Thread context: the caller's lock. Signal context: none.
 */
#ifndef GM_PRELOAD_POOLS_HELD_H
#define GM_PRELOAD_POOLS_HELD_H

#include <stddef.h>
#include <stdint.h>

struct gm_held_piece {
	uint64_t address, end;
	uint32_t block;			/* its record */
	uint32_t context;		/* with which it dies; 0: it outlives contexts */
	uint8_t kind;			/* enum gm_kind */
};

struct gm_held_list { struct gm_held_piece *at; size_t count, bytes, last; };

/* The first piece that ends after @address: its index, @list->count when there is none. Blocks are mostly
 * handed out where the last one was, which is looked at first. */
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

/* Insert @piece at @index, where it belongs. 0 or -ENOMEM. */
int gm_held_insert(struct gm_held_list *list, size_t index, const struct gm_held_piece *piece);
void gm_held_remove(struct gm_held_list *list, size_t index);

#endif
