/*
 * free_set.h - the free blocks of one pool, ordered by (stream, size, address): best fit.
 *
 * Sizes fall into classes (exact up to 64 KiB, 64 to the octave above). Each class is a treap ordered by
 * (size, address), and a bitmap has the classes that are not empty. So the smallest sufficient block is found
 * by one bit scan and a descent in a small tree, whatever the number of blocks. Links are in private memory
 * beside the table of blocks, because a reader can rebuild them.
 *
 *	stream ─> bitmap of classes ─> root[class] ─> treap of block ids
 *
 * Context: the caller holds the lock of the domain. Calls no malloc: memory comes from @memory.
 */
#ifndef GM_ALLOCATOR_FREE_SET_H
#define GM_ALLOCATOR_FREE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/table.h"

#define GM_GRANULE UINT64_C(512)	/* PyTorch's kMinBlockSize: every size is a multiple of it */
#define GM_SIZE_CLASSES 3200u		/* enough for every 64-bit size */
#define GM_CLASS_WORDS (GM_SIZE_CLASSES / 64)

/* A block's node in a treap, one for each block id. Size and address are repeated here, so that a search does
 * not touch the table of blocks. */
struct gm_free_link {
	uint64_t size, address;
	uint32_t left, right;
	uint64_t born;			/* when the block became free: the heap's clock (pages heap: its point) */
};

/* Return the treap priority of an id. It depends on the id only, so that runs are repeatable. No two ids have
 * the same priority. The formula is quadratic, so that ids at equal distances do not form a chain. */
static inline uint32_t gm_free_priority(uint32_t id)
{
	return id * (2 * id + 1) * 0x9e3779b1u;
}

struct gm_free_stream {
	uint64_t stream;
	struct gm_free_stream *next;	/* in the list of unused structs */
	uint32_t blocks;		/* how many free blocks the stream has */
	uint64_t top;			/* a bit for each word of @map that is not zero */
	uint64_t map[GM_CLASS_WORDS];
	uint32_t root[GM_SIZE_CLASSES];
};

struct gm_free_set {
	const struct gm_block *blocks;
	struct gm_free_link *links;
	struct gm_free_stream **streams;	/* hash table by stream, open addressing */
	uint32_t streams_mask, streams_count;
	struct gm_free_stream *last;	/* the stream used last */
	struct gm_free_stream *spare;	/* list of unused structs */
	void *(*memory)(void *arg, size_t bytes);	/* returns zeroed memory for good, or NULL */
	void *arg;
	uint32_t count;
};

/* Make an empty set over @blocks and @links. @memory returns zeroed memory for good, or NULL. Returns 0 or -ENOMEM. */
int gm_free_set_init(struct gm_free_set *set, const struct gm_block *blocks,
		     struct gm_free_link *links, void *(*memory)(void *, size_t), void *arg);

/* Make room for the blocks of @stream. Inserts of them cannot fail until another new stream appears. Returns 0 or
 * -ENOMEM. */
int gm_free_set_expect(struct gm_free_set *set, uint64_t stream);

/* Insert a block that is in no set. Returns 0; -ENOMEM when its stream is new and there is no memory. */
int gm_free_set_insert(struct gm_free_set *set, uint32_t block, uint64_t born);

/* Insert a block as if it had @size bytes. */
int gm_free_set_insert_as(struct gm_free_set *set, uint32_t block, uint64_t size, uint64_t born);

/* Remove a block that is in the set. */
void gm_free_set_remove(struct gm_free_set *set, uint32_t block);

/* Return the first block of @stream with (size, address) >= (@size, @address); 0: none. */
uint32_t gm_free_set_at_least(struct gm_free_set *set, uint64_t stream, uint64_t size,
			      uint64_t address);

/* Remove and return the first block of @stream with size >= @size; 0: there is none, or its size is @below or
 * more. */
uint32_t gm_free_set_take(struct gm_free_set *set, uint64_t stream, uint64_t size, uint64_t below);

/* Return the last block of @stream with (size, address) < (@size, @address); 0: none. */
uint32_t gm_free_set_below(struct gm_free_set *set, uint64_t stream, uint64_t size, uint64_t address);

/* A position in the order of the whole set. It stays valid when the set changes. */
struct gm_free_cursor { uint64_t stream, size, address; bool begun; };

/* Return the next block in the order (stream, size, address) and move @cursor to it; 0 at the end. Begin with a
 * zeroed cursor. */
uint32_t gm_free_set_next(struct gm_free_set *set, struct gm_free_cursor *cursor);

/* Skip the remaining blocks below @size of the cursor's stream; there may be none. @size must not be 0. */
static inline void gm_free_cursor_skip(struct gm_free_cursor *cursor, uint64_t size)
{
	if (cursor->size >= size)
		return;
	cursor->size = size - 1;
	cursor->address = UINT64_MAX - 1;
}

/* Return the bytes of the largest block of any stream; 0: there is none. O(streams). */
uint64_t gm_free_set_largest(struct gm_free_set *set);

#endif
