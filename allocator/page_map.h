/*
 * page_map.h - from any address inside cached memory to the block that covers it: O(1), without a
 * lock.
 *
 * Addresses are cut into granules of 2 MiB. A granule's entry has a word for the block that covers
 * its first byte, two for blocks that begin inside it, and, where blocks may be small, a page with
 * a word for each 512 bytes and a bitmap of beginnings. Every word says which part of the granule
 * it is about, so that a reader notices a change that is half done and reads again:
 *
 *   63         32 31  29 28      16 15  13 12       0
 *   | block id   |   0  | begin    |   0  | end       |   in 512 bytes from the granule's start
 *
 *   address >> 34 ──> leaf ──(>> 21)──> granule: cover, inner[2], page ──> bitmap, slot[4096]
 *
 * Blocks are known by where they begin, free and used ones alike, so that handing a block out or
 * taking it back changes nothing here: only segments that come and go, splits and merges do. A
 * split or merge takes a store for each granule of the part that changes its block.
 *
 * Writers hold the domain's lock; segments that share a granule have one domain. Readers hold
 * nothing: the answer was true at some moment of the call, and a caller that needs more reads the
 * block's record under the lock. Memory is taken from @memory and kept for the life of the process;
 * removed segments' pages are used again. Thread context: any. Signal context: gm_page_map_find
 * only (it waits for no writer). Lock: one of its own (rank leaf) for leaves and pages.
 */
#ifndef GM_ALLOCATOR_PAGE_MAP_H
#define GM_ALLOCATOR_PAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_page_map;

/* @memory: zeroed, never given back; NULL: none left. Returns NULL when there is none. */
struct gm_page_map *gm_page_map_new(void *(*memory)(void *arg, size_t bytes), void *arg);

/* A segment [@address, +@bytes) appears with one block; multiples of 512. @small: its blocks may
 * be of any size; else of more than 1 MiB each. 0 or -ENOMEM (nothing changed, also for addresses
 * past 2^49). It reserves what its splits may need, so that gm_page_map_split cannot fail. */
int gm_page_map_add(struct gm_page_map *map, uint64_t address, uint64_t bytes, bool small,
		uint32_t block);

/* @block goes with its segment, at whose addresses there may be another segment already: only words
 * that still name @block are cleared. (gm_page_map_add overwrites what a segment that has gone left
 * there.) */
void gm_page_map_forget(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t block);

/* The segment goes, whatever blocks it has. */
void gm_page_map_remove(struct gm_page_map *map, uint64_t address, uint64_t bytes);

/* The block that begins at @address now begins @bytes later; the bytes before that belong to
 * @front. */
void gm_page_map_split(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t front);

/* The block of [@address, +@bytes) ends: its bytes belong to @into, the block before or after
 * it. */
void gm_page_map_merge(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t into);

/* The block that covers @address; 0: no block in this map does. */
uint32_t gm_page_map_find(const struct gm_page_map *map, uint64_t address);

#endif
