/*
 * page_map.c - segments that come and go in a page map, blocks that are cut and joined. See page_map.h.
 *
 * Why a reader never gets a wrong answer: each state between two stores of a writer answers every
 * address with a block that has it before or after the whole change (a beginning is made before
 * the word in front of it shrinks, and taken away after that word has grown). A reader whose loads
 * fall into one state, or into two that differ in one store, sees such a state. Before each store
 * the granule's count of changes goes up: who found no word for its address, and sees the count
 * changed, looks again. Who found one was answered by one atomic word.
 *
 * Thread context: the holder of the domain's lock. Signal context: none. Fork: forgotten. Lock: "store", a leaf.
 */
#include "allocator/page_map_granule.h"

#include <errno.h>

#define PAGES_AT_ONCE 16u		/* got from @memory; touched only where blocks begin */

/* ---- pages ---- */

static inline void page_begin(struct gm_granule *g, struct gm_page_map_page *page, uint64_t word)
{
	uint32_t unit = gm_word_begin(word), w = unit / 64;

	gm_word_put(g, &page->slot[unit], word);
	gm_word_put(g, &page->map[w], page->map[w] | UINT64_C(1) << unit % 64);
	if (!(page->top >> w & 1))
		gm_word_put(g, &page->top, page->top | UINT64_C(1) << w);
}

static inline void page_end(struct gm_granule *g, struct gm_page_map_page *page, uint32_t unit)
{
	uint32_t w = unit / 64;

	/* The slot stays: who saw the bit before may read it still. */
	gm_word_put(g, &page->map[w], page->map[w] & ~(UINT64_C(1) << unit % 64));
	if (!page->map[w])
		gm_word_put(g, &page->top, page->top & ~(UINT64_C(1) << w));
}

static void change_page(struct gm_granule *g, struct gm_page_map_page *page)
{
	__atomic_store_n(&g->changes, g->changes + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&g->owns, g->owns + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&g->page, page, __ATOMIC_RELEASE);
}

static __attribute__((noinline)) struct gm_page_map_page *page_new(struct gm_page_map *map)
{
	struct gm_page_map_page *page;

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

/* The page of a granule without blocks. One that could not be put into the list is lost. */
static void page_drop(struct gm_page_map *map, struct gm_granule *g)
{
	struct gm_page_map_page *page = g ? g->page : NULL;

	if (!page || page->top || g->cover || g->inner[0] || g->inner[1])
		return;
	change_page(g, NULL);
	if (!gm_lock(&map->store))
		return;
	page->next = map->unused;
	map->unused = page;
	gm_unlock(&map->store);
}

/* ---- what a granule knows ---- */

/* The word that covers @unit, where it lies; NULL: none. For the writer. */
static uint64_t *place_of(struct gm_granule *g, uint32_t unit)
{
	uint64_t *slot;

	if (gm_word_has(g->cover, unit))
		return &g->cover;
	for (int i = 0; i < 2; i++)
		if (gm_word_has(g->inner[i], unit))
			return &g->inner[i];
	slot = g->page ? gm_page_find(g->page, unit) : NULL;
	return slot && gm_word_has(*slot, unit) ? slot : NULL;
}

/* The same of the block that begins at @unit, without a search. */
static inline uint64_t *start_at(struct gm_granule *g, uint32_t unit)
{
	if (!unit)
		return g->cover ? &g->cover : NULL;
	if (g->page && (g->page->map[unit / 64] >> unit % 64 & 1))
		return &g->page->slot[unit];
	for (int i = 0; i < 2; i++)
		if (g->inner[i] && gm_word_begin(g->inner[i]) == unit)
			return &g->inner[i];
	return NULL;
}

/* A block begins in @g, whose word is @word. */
static void begin(struct gm_page_map *map, struct gm_granule *g, uint64_t word)
{
	if (!gm_word_begin(word)) {
		gm_word_put(g, &g->cover, word);
		return;
	}
	if (!g->page) {
		for (int i = 0; i < 2; i++)
			if (!g->inner[i]) {
				gm_word_put(g, &g->inner[i], word);
				return;
			}
		/* Smaller blocks than its segment promised. */
		change_page(g, page_new(map));
	}
	if (g->page)
		page_begin(g, g->page, word);
}

/* No block begins at @unit, past the granule's start, any more: somebody else's word has its
 * bytes. */
static void end(struct gm_granule *g, uint32_t unit)
{
	uint64_t *place = start_at(g, unit);

	if (place == &g->inner[0] || place == &g->inner[1])
		gm_word_put(g, place, 0);
	else if (place)
		page_end(g, g->page, unit);
}

/* No block begins in [@from, @to) of its units. */
static void clear(struct gm_granule *g, uint32_t from, uint32_t to)
{
	uint64_t *slot;

	if (!from && g->cover)
		gm_word_put(g, &g->cover, 0);
	for (int i = 0; i < 2; i++)
		if (g->inner[i] && gm_word_begin(g->inner[i]) >= from && gm_word_begin(g->inner[i]) < to)
			gm_word_put(g, &g->inner[i], 0);
	while (g->page && (slot = gm_page_find(g->page, to - 1)) &&
	       slot - g->page->slot >= (ptrdiff_t)from)
		page_end(g, g->page, (uint32_t)(slot - g->page->slot));
}

/* ---- a part of a segment ---- */

struct part {
	struct gm_granule *granule;
	uint32_t begin, end;		/* in its units */
};

/* The part of [*at, @end) that lies in one granule, and *at moved past it. */
static struct part next_part(const struct gm_page_map *map, uint64_t *at, uint64_t limit)
{
	uint64_t stop = ((*at >> GM_PAGE_MAP_GRANULE_SHIFT) + 1) << GM_PAGE_MAP_GRANULE_SHIFT;
	struct part part = { gm_granule_at(map, *at), gm_unit_of(*at), GM_PAGE_MAP_UNITS };

	if (stop > limit) {
		stop = limit;
		part.end = gm_unit_of(limit);
	}
	*at = stop;
	return part;
}

/* The bytes [@at, @limit), which begin with a block and end with one in each granule, are
 * @block's. */
static __attribute__((noinline)) void relabel(struct gm_page_map *map, uint64_t at, uint64_t limit,
					      uint32_t block)
{
	while (at < limit) {
		struct part part = next_part(map, &at, limit);
		uint64_t *place = part.granule ? start_at(part.granule, part.begin) : NULL;

		if (place)
			gm_word_put(part.granule, place, gm_word_of(block, part.begin, part.end));
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
	struct gm_page_map_leaf **place = &map->leaves[address >> GM_PAGE_MAP_LEAF_BITS];
	struct gm_page_map_leaf *leaf = __atomic_load_n(place, __ATOMIC_ACQUIRE);

	if (leaf)
		return true;
	if (!gm_lock(&map->store))
		return false;
	leaf = *place ? *place : map->memory(map->arg, sizeof(*leaf));
	__atomic_store_n(place, leaf, __ATOMIC_RELEASE);
	gm_unlock(&map->store);
	return leaf != NULL;
}

/* Pages of granules that are empty now. */
static void drop_pages(struct gm_page_map *map, uint64_t address, uint64_t limit)
{
	for (uint64_t at = address; at < limit;)
		page_drop(map, next_part(map, &at, limit).granule);
}

/* Leaves, and pages where blocks may be small or there are more than entries have room for. */
static bool reserve(struct gm_page_map *map, uint64_t address, uint64_t limit, bool small)
{
	for (uint64_t at = address; at < limit;) {
		uint64_t here = at;
		struct gm_page_map_page *page;
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

	if (limit < address || limit > GM_PAGE_MAP_ADDRESS_LIMIT || !reserve(map, address, limit, small))
		return -ENOMEM;
	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(map, &at, limit);

		clear(part.granule, part.begin, part.end);
		begin(map, part.granule, gm_word_of(block, part.begin, part.end));
	}
	return 0;
}

void gm_page_map_forget(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t block)
{
	uint64_t limit = address + bytes;

	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(map, &at, limit);

		if (part.granule && gm_granule_look(part.granule, part.begin) == block)
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

static __attribute__((noinline)) void split_anywhere(struct gm_page_map *map, uint64_t address,
						     uint64_t back, uint32_t front)
{
	bool inside = address >> GM_PAGE_MAP_GRANULE_SHIFT == back >> GM_PAGE_MAP_GRANULE_SHIFT;
	struct gm_granule *g = gm_granule_at(map, back);
	uint32_t unit = gm_unit_of(back);
	/* Where it begins is known; in a granule that it did not begin in, it covers the first byte. */
	uint64_t *place = !g || !unit ? NULL : inside ? start_at(g, gm_unit_of(address)) : &g->cover;

	if (place && !gm_word_has(*place, unit))
		place = NULL;
	/* On a granule's edge the block's word is there already. */
	if (place)
		begin(map, g, gm_word_of(gm_word_block(*place), unit, gm_word_end(*place)));
	if (place && inside)
		gm_word_put(g, place, gm_word_of(front, gm_word_begin(*place), unit));
	else
		relabel(map, address, back, front);
}

/* Small blocks, most often: both begin in one granule, past its start, which has a page. */
static inline struct gm_page_map_page *page_of_both(const struct gm_page_map *map, uint64_t address,
						uint64_t back, struct gm_granule **ret)
{
	struct gm_granule *g = gm_granule_at(map, address);

	*ret = g;
	if (!g || address >> GM_PAGE_MAP_GRANULE_SHIFT != back >> GM_PAGE_MAP_GRANULE_SHIFT ||
	    !gm_unit_of(address))
		return NULL;
	return g->page;
}

static inline bool begins_in(const struct gm_page_map_page *page, uint32_t unit)
{
	return page->map[unit / 64] >> unit % 64 & 1;
}

void gm_page_map_split(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t front)
{
	uint32_t from = gm_unit_of(address), to = gm_unit_of(address + bytes);
	struct gm_granule *g;
	struct gm_page_map_page *page = page_of_both(map, address, address + bytes, &g);
	uint64_t word = page ? page->slot[from] : 0;

	if (!page || !begins_in(page, from) || !gm_word_has(word, to)) {
		split_anywhere(map, address, address + bytes, front);
		return;
	}
	page_begin(g, page, gm_word_of(gm_word_block(word), to, gm_word_end(word)));
	gm_word_put(g, &page->slot[from], gm_word_of(front, from, to));
}

/* @into ends at @address: it takes the bytes up to @limit. */
static __attribute__((noinline)) void grow(struct gm_page_map *map, uint64_t address, uint64_t limit,
					   uint32_t into)
{
	uint32_t unit = gm_unit_of(address);
	uint64_t at = address, *place;

	if (unit) {
		struct part part = next_part(map, &at, limit);

		place = place_of(part.granule, unit - 1);
		if (place)
			gm_word_put(part.granule, place, gm_word_of(into, gm_word_begin(*place), part.end));
		end(part.granule, unit);
	}
	relabel(map, at, limit, into);
}

static __attribute__((noinline)) void merge_anywhere(struct gm_page_map *map, uint64_t address,
						     uint64_t back, uint32_t into)
{
	struct gm_granule *g = gm_granule_at(map, back);
	uint32_t unit = gm_unit_of(back);
	uint64_t *place = g ? start_at(g, unit) : NULL;
	uint64_t word = place ? *place : 0, last;

	if (gm_word_block(word) != into) {
		grow(map, address, back, into);
		return;
	}
	/* @into begins at @back: the word before takes in the rest of the granule, first. */
	if (!unit) {
		relabel(map, address, back, into);
		return;
	}
	last = back >> GM_PAGE_MAP_GRANULE_SHIFT << GM_PAGE_MAP_GRANULE_SHIFT;
	if (last > address)
		relabel(map, address, last, into);
	else
		last = address;
	place = start_at(g, gm_unit_of(last));
	if (place)
		gm_word_put(g, place, gm_word_of(into, gm_unit_of(last), gm_word_end(word)));
	end(g, unit);
}

void gm_page_map_merge(struct gm_page_map *map, uint64_t address, uint64_t bytes, uint32_t into)
{
	uint32_t from = gm_unit_of(address), to = gm_unit_of(address + bytes);
	struct gm_granule *g;
	struct gm_page_map_page *page = page_of_both(map, address, address + bytes, &g);
	uint64_t word = page && begins_in(page, to) ? page->slot[to] : 0;

	/* The one that begins behind it takes it in. */
	if (word && gm_word_block(word) == into && begins_in(page, from)) {
		gm_word_put(g, &page->slot[from], gm_word_of(into, from, gm_word_end(word)));
		page_end(g, page, to);
		return;
	}
	merge_anywhere(map, address, address + bytes, into);
}
