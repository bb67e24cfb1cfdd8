/*
 * page_map_granule.h - a granule of a page map (page_map.h): its words, and where its blocks begin.
 *
 * Thread context: one writer at a time, the holder of the domain's lock; readers hold nothing.
 * Private to page_map.c and page_map_find.c.
 */
#ifndef GM_ALLOCATOR_PAGE_MAP_GRANULE_H
#define GM_ALLOCATOR_PAGE_MAP_GRANULE_H

#include "allocator/lock.h"
#include "allocator/page_map.h"

#define GM_PAGE_MAP_UNIT_SHIFT 9		/* 512 bytes */
#define GM_PAGE_MAP_GRANULE_SHIFT 21
#define GM_PAGE_MAP_UNITS 4096u		/* of a granule */
#define GM_PAGE_MAP_LEAF_SHIFT 13		/* granules of a leaf: 16 GiB */
#define GM_PAGE_MAP_TOP_SHIFT 15
#define GM_PAGE_MAP_LEAF_BITS (GM_PAGE_MAP_GRANULE_SHIFT + GM_PAGE_MAP_LEAF_SHIFT)
#define GM_PAGE_MAP_ADDRESS_LIMIT (UINT64_C(1) << (GM_PAGE_MAP_LEAF_BITS + GM_PAGE_MAP_TOP_SHIFT))

struct gm_page_map_page {
	uint64_t top;			/* bit per word of @map that is not zero */
	uint64_t map[GM_PAGE_MAP_UNITS / 64];	/* bit per unit where a block begins */
	uint64_t slot[GM_PAGE_MAP_UNITS];
	struct gm_page_map_page *next;		/* list of unused ones; lock: store */
};

struct gm_granule {
	uint64_t cover;			/* words: see page_map.h; 0 none */
	uint64_t inner[2];
	struct gm_page_map_page *page;
	uint32_t changes;		/* of anything here */
	uint32_t owns;			/* changes of @page */
};

struct gm_page_map_leaf { struct gm_granule granules[1u << GM_PAGE_MAP_LEAF_SHIFT]; };

struct gm_page_map {
	struct gm_page_map_leaf *leaves[1u << GM_PAGE_MAP_TOP_SHIFT];
	struct gm_lock store;		/* of the pages, of making leaves */
	struct gm_page_map_page *unused;
	void *(*memory)(void *arg, size_t bytes);
	void *arg;
};

/* ---- words ---- */

static inline uint64_t gm_word_of(uint32_t block, uint32_t begin, uint32_t end)
{
	return (uint64_t)block << 32 | (uint64_t)begin << 16 | end;
}

static inline uint32_t gm_word_block(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static inline uint32_t gm_word_begin(uint64_t word)
{
	return (uint32_t)(word >> 16 & 0x1fff);
}

static inline uint32_t gm_word_end(uint64_t word)
{
	return (uint32_t)(word & 0x1fff);
}

static inline bool gm_word_has(uint64_t word, uint32_t unit)
{
	return gm_word_begin(word) <= unit && unit < gm_word_end(word);
}

static inline uint64_t gm_word_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* The count before the store, and both before what follows. One writer at a time. */
static inline void gm_word_put(struct gm_granule *g, uint64_t *word, uint64_t value)
{
	__atomic_store_n(&g->changes, g->changes + 1, __ATOMIC_RELEASE);
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint32_t gm_unit_of(uint64_t address)
{
	return (uint32_t)(address >> GM_PAGE_MAP_UNIT_SHIFT) & (GM_PAGE_MAP_UNITS - 1);
}

static inline struct gm_granule *gm_granule_at(const struct gm_page_map *map, uint64_t address)
{
	uint64_t number = address >> GM_PAGE_MAP_GRANULE_SHIFT;
	struct gm_page_map_leaf *leaf;

	if (address >= GM_PAGE_MAP_ADDRESS_LIMIT)
		return NULL;
	leaf = __atomic_load_n(&map->leaves[number >> GM_PAGE_MAP_LEAF_SHIFT], __ATOMIC_ACQUIRE);
	return leaf ? &leaf->granules[number & ((1u << GM_PAGE_MAP_LEAF_SHIFT) - 1)] : NULL;
}

/* ---- pages ---- */

static inline uint64_t gm_bits_up_to(uint32_t bit)
{
	return ~UINT64_C(0) >> (63 - bit);
}

/* The slot of the last beginning up to @unit; NULL: none. */
static inline uint64_t *gm_page_find(struct gm_page_map_page *page, uint32_t unit)
{
	uint32_t w = unit / 64;
	uint64_t bits = gm_word_load(&page->map[w]) & gm_bits_up_to(unit % 64);
	uint64_t words = w && !bits ? gm_word_load(&page->top) & gm_bits_up_to(w - 1) : 0;

	while (!bits && words) {
		w = 63 - (uint32_t)__builtin_clzll(words);
		words &= ~(UINT64_C(1) << w);
		bits = gm_word_load(&page->map[w]);
	}
	return bits ? &page->slot[w * 64 + 63 - (uint32_t)__builtin_clzll(bits)] : NULL;
}

/* The block that the words of @g say @unit is of; 0: none, or they were being changed. */
uint32_t gm_granule_look(struct gm_granule *g, uint32_t unit);

#endif
