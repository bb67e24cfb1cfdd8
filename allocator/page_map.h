/*
 * page_map.h - find the block that covers any address inside cached memory, in O(1) and without a lock.
 *
 * Addresses are divided into granules of 2 MiB. The entry of a granule has a word for the block that covers its
 * first byte and two words for blocks that begin inside it. If blocks may be small, it also has a page with a
 * word for each 512 bytes and a bitmap of beginnings. Every word says which part of the granule it describes, so
 * that a reader notices a half-done change and reads again:
 *
 *   63         32 31  29 28      16 15  13 12       0
 *   | block id   |   0  | begin    |   0  | end       |   in 512 bytes from the granule's start
 *
 *   address >> 34 ──> leaf ──(>> 21)──> granule: cover, inner[2], page ──> bitmap, slot[4096]
 *
 * The map knows where blocks begin, free and used ones alike. So handing out a block or taking it back does not
 * change the map; only adding and removing segments, splits and merges do. A split or merge takes one store for
 * each granule of the part that changes its block.
 *
 * Writers hold the domain's lock; segments that share a granule have one domain. Readers hold no lock: the answer
 * was true at some instant during the call. A caller that needs more reads the block's record under the lock.
 * Memory comes from @memory and is kept for the life of the process; the pages of removed segments are reused.
 * Thread context: any. Signal context: only gm_page_map_find, which waits for no writer. Lock: its own (rank leaf),
 * for leaves and pages.
 */
#ifndef GM_ALLOCATOR_PAGE_MAP_H
#define GM_ALLOCATOR_PAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_page_map;

/* Make a map. @memory returns zeroed memory for good, or NULL. Returns NULL when there is no memory. */
struct gm_page_map *gm_page_map_new(void *(*memory)(void *arg, size_t bytes), void *arg);

/* Add a segment [@address, +@bytes) with one block; both are multiples of 512. @small: its blocks may have any size;
 * otherwise each has more than 1 MiB. Reserves the memory that splits may need, so that gm_page_map_split cannot
 * fail. Returns 0; -ENOMEM (also for addresses past 2^49), and nothing has changed. */
int gm_page_map_add(struct gm_page_map *map, uint64_t address, uint64_t bytes, bool small,
		uint32_t block);

/* Remove @block with its segment. Another segment may already be at these addresses, so only words that still name
 * @block are cleared. (gm_page_map_add overwrites words that an earlier segment left.) */
void gm_page_map_forget(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t block);

/* Remove a segment with all its blocks. */
void gm_page_map_remove(struct gm_page_map *map, uint64_t address, uint64_t bytes);

/* Split the block that begins at @address: its first @bytes bytes become block @front. */
void gm_page_map_split(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t front);

/* Merge the block [@address, +@bytes) into @into, the block before or after it. */
void gm_page_map_merge(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t into);

/* Return the block that covers @address; 0: none in this map. */
uint32_t gm_page_map_find(const struct gm_page_map *map, uint64_t address);

#endif
