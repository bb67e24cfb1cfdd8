/*
 * page_map.c - find the block that covers an address: see page_map.h.
 *
 * A reader never gets a wrong answer. After each store of a writer the map answers every address with the block
 * that covers it before or after the whole change: a beginning is added before the word in front of it shrinks, and
 * removed after that word has grown. A reader whose loads see one such state, or two that differ by one store, gets
 * an answer of that kind. Before each store the writer increments the granule's count of changes. A reader that
 * finds no word for its address, and sees that the count has changed, reads again. A reader that finds a word has
 * its answer from one atomic load.
 *
 * Thread context: the holder of the domain's lock; gm_page_map_find: any. Signal context: only gm_page_map_find,
 * which never waits. Lock: "store", a leaf, for pages and leaves.
 */
#include "allocator/page_map.h"

#include <errno.h>

#include "allocator/lock.h"

#define PAGES_AT_ONCE 16u		/* pages taken from @memory at once; only used ones are touched */
#define UNIT_SHIFT 9			/* 512 bytes */
#define GRANULE_SHIFT 21
#define UNITS 4096u		/* in a granule */
#define LEAF_SHIFT 13		/* granules in a leaf: 16 GiB of addresses */
#define TOP_SHIFT 15
#define LEAF_BITS (GRANULE_SHIFT + LEAF_SHIFT)
#define ADDRESS_LIMIT (UINT64_C(1) << (LEAF_BITS + TOP_SHIFT))

struct page {
	uint64_t top;			/* a bit for each word of @map that is not zero */
	uint64_t map[UNITS / 64];	/* a bit for each unit where a block begins */
	uint64_t slot[UNITS];
	struct page *next;		/* list of unused pages; lock: store */
};

struct granule {
	uint64_t cover;			/* words: see page_map.h; 0: none */
	uint64_t inner[2];
	struct page *page;
	uint32_t changes;		/* counts changes of any member */
	uint32_t owns;			/* counts changes of @page */
};

struct leaf { struct granule granules[1u << LEAF_SHIFT]; };

struct gm_page_map {
	struct leaf *leaves[1u << TOP_SHIFT];
	struct gm_lock store;		/* for pages, and for making leaves */
	struct page *unused;
	void *(*memory)(void *arg, size_t bytes);
	void *arg;
};

/* ---- words ---- */

static inline uint64_t word_of(uint32_t block, uint32_t begin, uint32_t end)
{
	return (uint64_t)block << 32 | (uint64_t)begin << 16 | end;
}

static inline uint32_t word_block(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static inline uint32_t word_begin(uint64_t word)
{
	return (uint32_t)(word >> 16 & 0x1fff);
}

static inline uint32_t word_end(uint64_t word)
{
	return (uint32_t)(word & 0x1fff);
}

static inline bool word_has(uint64_t word, uint32_t unit)
{
	return word_begin(word) <= unit && unit < word_end(word);
}

static inline uint64_t word_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Increment the count, then store; both before later stores. One writer at a time. */
static inline void word_put(struct granule *g, uint64_t *word, uint64_t value)
{
	__atomic_store_n(&g->changes, g->changes + 1, __ATOMIC_RELEASE);
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint32_t unit_of(uint64_t address)
{
	return (uint32_t)(address >> UNIT_SHIFT) & (UNITS - 1);
}

static inline struct granule *granule_at(const struct gm_page_map *map, uint64_t address)
{
	uint64_t number = address >> GRANULE_SHIFT;
	struct leaf *leaf;

	if (address >= ADDRESS_LIMIT)
		return NULL;
	leaf = __atomic_load_n(&map->leaves[number >> LEAF_SHIFT], __ATOMIC_ACQUIRE);
	return leaf ? &leaf->granules[number & ((1u << LEAF_SHIFT) - 1)] : NULL;
}

/* ---- pages ---- */

static inline uint64_t bits_up_to(uint32_t bit)
{
	return ~UINT64_C(0) >> (63 - bit);
}

/* Return the slot of the last beginning up to @unit; NULL: none. */
static inline uint64_t *page_find(struct page *page, uint32_t unit)
{
	uint32_t w = unit / 64;
	uint64_t bits = word_load(&page->map[w]) & bits_up_to(unit % 64);
	uint64_t words = w && !bits ? word_load(&page->top) & bits_up_to(w - 1) : 0;

	while (!bits && words) {
		w = 63 - (uint32_t)__builtin_clzll(words);
		words &= ~(UINT64_C(1) << w);
		bits = word_load(&page->map[w]);
	}
	return bits ? &page->slot[w * 64 + 63 - (uint32_t)__builtin_clzll(bits)] : NULL;
}

static inline void page_begin(struct granule *g, struct page *page, uint64_t word)
{
	uint32_t unit = word_begin(word), w = unit / 64;

	word_put(g, &page->slot[unit], word);
	word_put(g, &page->map[w], page->map[w] | UINT64_C(1) << unit % 64);
	if (!(page->top >> w & 1))
		word_put(g, &page->top, page->top | UINT64_C(1) << w);
}

static inline void page_end(struct granule *g, struct page *page, uint32_t unit)
{
	uint32_t w = unit / 64;

	/* Keep the slot, because a reader that saw the bit before may still read it. */
	word_put(g, &page->map[w], page->map[w] & ~(UINT64_C(1) << unit % 64));
	if (!page->map[w])
		word_put(g, &page->top, page->top & ~(UINT64_C(1) << w));
}

static void change_page(struct granule *g, struct page *page)
{
	__atomic_store_n(&g->changes, g->changes + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&g->owns, g->owns + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&g->page, page, __ATOMIC_RELEASE);
}

static __attribute__((noinline)) struct page *page_new(struct gm_page_map *map)
{
	struct page *page;

	if (!gm_lock(&map->store))
		return NULL;
	page = map->unused;
	if (page) {
		map->unused = page->next;
	} else {
		page = map->memory(map->arg, PAGES_AT_ONCE * sizeof(*page));
		for (uint32_t i = 1; page && i < PAGES_AT_ONCE; i++) {
			page[i].next = map->unused;
			map->unused = &page[i];
		}
	}
	gm_unlock(&map->store);
	return page;
}

/* Drop the page of a granule without blocks. A page that cannot be put into the list is lost. */
static void page_drop(struct gm_page_map *map, struct granule *g)
{
	struct page *page = g ? g->page : NULL;

	if (!page || page->top || g->cover || g->inner[0] || g->inner[1])
		return;
	change_page(g, NULL);
	if (!gm_lock(&map->store))
		return;
	page->next = map->unused;
	map->unused = page;
	gm_unlock(&map->store);
}

/* ---- from an address to its block, beside a writer ---- */

/* Does @page, which was seen in @g when the count was @owns, still belong to @g? The count alone is not enough, because
 * it is incremented before the page leaves, and may have been read in between. */
static bool still_owns(const struct granule *g, const struct page *page, uint32_t owns)
{
	return __atomic_load_n(&g->page, __ATOMIC_ACQUIRE) == page &&
	       __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE) == owns;
}

static uint32_t find_in(struct granule *g, uint32_t unit)
{
	uint32_t owns = __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE);
	struct page *page = __atomic_load_n(&g->page, __ATOMIC_ACQUIRE);
	uint64_t word = word_load(&g->cover);
	const uint64_t *slot;

	if (word_has(word, unit))
		return word_block(word);
	for (int i = 0; i < 2; i++) {
		word = word_load(&g->inner[i]);
		if (word_has(word, unit))
			return word_block(word);
	}
	slot = page ? page_find(page, unit) : NULL;
	word = slot ? word_load(slot) : 0;
	if (!word_has(word, unit))
		return 0;
	return still_owns(g, page, owns) ? word_block(word) : 0;
}

/* Return the block that begins at @unit if the page has its beginning; else 0. While blocks are cut or joined, two
 * words may cover the unit: this one, which find_in reads last, and another. Either is a right answer: one names the
 * block before the change, the other the block after it. */
static inline uint32_t look_at_start(struct granule *g, uint32_t unit)
{
	uint32_t owns = __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE);
	struct page *page = __atomic_load_n(&g->page, __ATOMIC_ACQUIRE);
	uint64_t word;

	if (!page || !(word_load(&page->map[unit / 64]) >> unit % 64 & 1))
		return 0;
	word = word_load(&page->slot[unit]);
	return word_has(word, unit) && still_owns(g, page, owns) ? word_block(word) : 0;
}

uint32_t gm_page_map_find(const struct gm_page_map *map, uint64_t address)
{
	struct granule *g = granule_at(map, address);
	uint32_t changes, block;

	if (!g)
		return 0;
	/* Try the beginning of a block first, because frees pass it. */
	block = look_at_start(g, unit_of(address));
	if (block)
		return block;
	do {
		changes = __atomic_load_n(&g->changes, __ATOMIC_ACQUIRE);
		block = find_in(g, unit_of(address));
	} while (!block && __atomic_load_n(&g->changes, __ATOMIC_ACQUIRE) != changes);
	return block;
}

/* ---- the words of a granule ---- */

/* Return the place of the word that covers @unit; NULL: none. For the writer. */
static uint64_t *place_of(struct granule *g, uint32_t unit)
{
	uint64_t *slot;

	if (word_has(g->cover, unit))
		return &g->cover;
	for (int i = 0; i < 2; i++)
		if (word_has(g->inner[i], unit))
			return &g->inner[i];
	slot = g->page ? page_find(g->page, unit) : NULL;
	return slot && word_has(*slot, unit) ? slot : NULL;
}

/* Return the place of the word of the block that begins at @unit; NULL: none. Needs no search. */
static inline uint64_t *start_at(struct granule *g, uint32_t unit)
{
	if (!unit)
		return g->cover ? &g->cover : NULL;
	if (g->page && (g->page->map[unit / 64] >> unit % 64 & 1))
		return &g->page->slot[unit];
	for (int i = 0; i < 2; i++)
		if (g->inner[i] && word_begin(g->inner[i]) == unit)
			return &g->inner[i];
	return NULL;
}

/* Add a block that begins in @g and has the word @word. */
static void begin(struct gm_page_map *map, struct granule *g, uint64_t word)
{
	if (!word_begin(word)) {
		word_put(g, &g->cover, word);
		return;
	}
	if (!g->page) {
		for (int i = 0; i < 2; i++)
			if (!g->inner[i]) {
				word_put(g, &g->inner[i], word);
				return;
			}
		/* The blocks are smaller than the segment promised. */
		change_page(g, page_new(map));
	}
	if (g->page)
		page_begin(g, g->page, word);
}

/* Remove the beginning at @unit, which is not the granule's first unit. Another block's word has its bytes already. */
static void end(struct granule *g, uint32_t unit)
{
	uint64_t *place = start_at(g, unit);

	if (place == &g->inner[0] || place == &g->inner[1])
		word_put(g, place, 0);
	else if (place)
		page_end(g, g->page, unit);
}

/* Remove all beginnings in the units [@from, @to). */
static void clear(struct granule *g, uint32_t from, uint32_t to)
{
	uint64_t *slot;

	if (!from && g->cover)
		word_put(g, &g->cover, 0);
	for (int i = 0; i < 2; i++)
		if (g->inner[i] && word_begin(g->inner[i]) >= from && word_begin(g->inner[i]) < to)
			word_put(g, &g->inner[i], 0);
	while (g->page && (slot = page_find(g->page, to - 1)) &&
	       slot - g->page->slot >= (ptrdiff_t)from)
		page_end(g, g->page, (uint32_t)(slot - g->page->slot));
}

/* ---- a part of a segment ---- */

struct part {
	struct granule *granule;
	uint32_t begin, end;		/* in units of the granule */
};

/* Return the part of [*at, @limit) in the granule of *at, and move *at behind it. */
static struct part next_part(const struct gm_page_map *map, uint64_t *at, uint64_t limit)
{
	uint64_t stop = ((*at >> GRANULE_SHIFT) + 1) << GRANULE_SHIFT;
	struct part part = { granule_at(map, *at), unit_of(*at), UNITS };

	if (stop > limit) {
		stop = limit;
		part.end = unit_of(limit);
	}
	*at = stop;
	return part;
}

/* Give the bytes [@at, @limit) to @block. In each granule they begin and end with a block. */
static void relabel(struct gm_page_map *map, uint64_t at, uint64_t limit, uint32_t block)
{
	while (at < limit) {
		struct part part = next_part(map, &at, limit);
		uint64_t *place = part.granule ? start_at(part.granule, part.begin) : NULL;

		if (place)
			word_put(part.granule, place, word_of(block, part.begin, part.end));
	}
}

/* ---- segments come and go ---- */

struct gm_page_map *gm_page_map_new(void *(*memory)(void *arg, size_t bytes), void *arg)
{
	struct gm_page_map *map = memory(arg, sizeof(*map));

	if (!map)
		return NULL;
	map->memory = memory;
	map->arg = arg;
	map->store.rank = GM_RANK_LEAF;
	return map;
}

static bool make_leaf(struct gm_page_map *map, uint64_t address)
{
	struct leaf **place = &map->leaves[address >> LEAF_BITS];
	struct leaf *leaf = __atomic_load_n(place, __ATOMIC_ACQUIRE);

	if (leaf)
		return true;
	if (!gm_lock(&map->store))
		return false;
	leaf = *place ? *place : map->memory(map->arg, sizeof(*leaf));
	__atomic_store_n(place, leaf, __ATOMIC_RELEASE);
	gm_unlock(&map->store);
	return leaf != NULL;
}

/* Drop the pages of granules that are empty now. */
static void drop_pages(struct gm_page_map *map, uint64_t address, uint64_t limit)
{
	for (uint64_t at = address; at < limit;)
		page_drop(map, next_part(map, &at, limit).granule);
}

/* Reserve leaves, and pages for granules whose blocks may be small or more than an entry has room for. */
static bool reserve(struct gm_page_map *map, uint64_t address, uint64_t limit, bool small)
{
	for (uint64_t at = address; at < limit;) {
		uint64_t here = at;
		struct page *page;
		struct part part;
		bool needed;

		if (!make_leaf(map, at)) {
			drop_pages(map, address, here);
			return false;
		}
		part = next_part(map, &at, limit);
		needed = small || (part.begin && part.granule->inner[0] && part.granule->inner[1]);
		if (!needed || part.granule->page)
			continue;
		page = page_new(map);
		if (!page) {
			drop_pages(map, address, here);
			return false;
		}
		change_page(part.granule, page);
	}
	return true;
}

int gm_page_map_add(struct gm_page_map *map, uint64_t address, uint64_t bytes, bool small,
		uint32_t block)
{
	uint64_t limit = address + bytes;

	if (limit < address || limit > ADDRESS_LIMIT || !reserve(map, address, limit, small))
		return -ENOMEM;
	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(map, &at, limit);

		clear(part.granule, part.begin, part.end);
		begin(map, part.granule, word_of(block, part.begin, part.end));
	}
	return 0;
}

void gm_page_map_forget(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t block)
{
	uint64_t limit = address + bytes;

	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(map, &at, limit);

		if (part.granule && find_in(part.granule, part.begin) == block)
			clear(part.granule, part.begin, part.end);
		page_drop(map, part.granule);
	}
}

void gm_page_map_remove(struct gm_page_map *map, uint64_t address, uint64_t bytes)
{
	uint64_t limit = address + bytes;

	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(map, &at, limit);

		if (part.granule)
			clear(part.granule, part.begin, part.end);
	}
	drop_pages(map, address, limit);
}

/* ---- blocks are cut and joined ---- */

void gm_page_map_split(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t front)
{
	uint64_t back = address + bytes;
	bool inside = address >> GRANULE_SHIFT == back >> GRANULE_SHIFT;
	struct granule *g = granule_at(map, back);
	uint32_t unit = unit_of(back);
	/* In the granule where the block begins its word is found by that unit; in a later granule the block covers the
	 * first byte. */
	uint64_t *place = !g || !unit ? NULL : inside ? start_at(g, unit_of(address)) : &g->cover;

	if (place && !word_has(*place, unit))
		place = NULL;
	/* At the edge of a granule the block's word already exists. */
	if (place)
		begin(map, g, word_of(word_block(*place), unit, word_end(*place)));
	if (place && inside)
		word_put(g, place, word_of(front, word_begin(*place), unit));
	else
		relabel(map, address, back, front);
}

/* Extend @into, which ends at @address, up to @limit. */
static void grow(struct gm_page_map *map, uint64_t address, uint64_t limit, uint32_t into)
{
	uint32_t unit = unit_of(address);
	uint64_t at = address, *place;

	if (unit) {
		struct part part = next_part(map, &at, limit);

		place = place_of(part.granule, unit - 1);
		if (place)
			word_put(part.granule, place, word_of(into, word_begin(*place), part.end));
		end(part.granule, unit);
	}
	relabel(map, at, limit, into);
}

void gm_page_map_merge(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t into)
{
	uint64_t back = address + bytes;
	struct granule *g = granule_at(map, back);
	uint32_t unit = unit_of(back);
	uint64_t *place = g ? start_at(g, unit) : NULL;
	uint64_t word = place ? *place : 0, last;

	if (word_block(word) != into) {
		grow(map, address, back, into);
		return;
	}
	/* @into begins at @back. First let the word in front grow over the rest of the granule. */
	if (!unit) {
		relabel(map, address, back, into);
		return;
	}
	last = back >> GRANULE_SHIFT << GRANULE_SHIFT;
	if (last > address)
		relabel(map, address, last, into);
	else
		last = address;
	place = start_at(g, unit_of(last));
	if (place)
		word_put(g, place, word_of(into, unit_of(last), word_end(word)));
	end(g, unit);
}
