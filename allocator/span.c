/*
 * span.c - from an address to the block that covers it, without a lock. See span.h.
 *
 * Why a reader never gets a wrong answer: each state between two stores of a writer answers every
 * address with a block that has it before or after the whole change (a beginning is made before
 * the word in front of it shrinks, and taken away after that word has grown). A reader whose loads
 * fall into one state, or into two that differ in one store, sees such a state. Before each store
 * the granule's count of changes goes up: who found no word for its address, and sees the count
 * changed, looks again. Who found one was answered by one atomic word.
 *
 * Thread context: any. Signal context: gm_span_find only. Fork: forgotten. Lock: "store", a leaf.
 */
#include "allocator/span.h"

#include <errno.h>

#include "allocator/lock.h"

#define UNIT_SHIFT 9			/* 512 bytes */
#define GRANULE_SHIFT 21
#define UNITS 4096u			/* of a granule */
#define LEAF_SHIFT 13			/* granules of a leaf: 16 GiB */
#define TOP_SHIFT 15
#define ADDRESS_LIMIT (UINT64_C(1) << (GRANULE_SHIFT + LEAF_SHIFT + TOP_SHIFT))
#define PAGES_AT_ONCE 16u		/* got from @memory; touched only where blocks begin */

struct page {
	uint64_t top;			/* bit per word of @map that is not zero */
	uint64_t map[UNITS / 64];	/* bit per unit where a block begins */
	uint64_t slot[UNITS];
	struct page *next;		/* list of unused ones; lock: store */
};

struct granule {
	uint64_t cover;			/* words: see span.h; 0 none */
	uint64_t inner[2];
	struct page *page;
	uint32_t changes;		/* of anything here */
	uint32_t owns;			/* changes of @page */
};

struct leaf { struct granule granules[1u << LEAF_SHIFT]; };

struct gm_span {
	struct leaf *leaves[1u << TOP_SHIFT];
	struct gm_lock store;		/* of the pages, of making leaves */
	struct page *unused;
	void *(*memory)(void *arg, size_t bytes);
	void *arg;
};

/* ---- words ---- */

static uint64_t word_of(uint32_t block, uint32_t begin, uint32_t end)
{
	return (uint64_t)block << 32 | (uint64_t)begin << 16 | end;
}

static uint32_t block_of(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static uint32_t begin_of(uint64_t word)
{
	return (uint32_t)(word >> 16 & 0x1fff);
}

static uint32_t end_of(uint64_t word)
{
	return (uint32_t)(word & 0x1fff);
}

static bool has(uint64_t word, uint32_t unit)
{
	return begin_of(word) <= unit && unit < end_of(word);
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* The count before the store, and both before what follows. One writer at a time. */
static void put(struct granule *g, uint64_t *word, uint64_t value)
{
	__atomic_store_n(&g->changes, g->changes + 1, __ATOMIC_RELEASE);
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static uint32_t unit_of(uint64_t address)
{
	return (uint32_t)(address >> UNIT_SHIFT) & (UNITS - 1);
}

static struct granule *granule_at(const struct gm_span *span, uint64_t address)
{
	uint64_t number = address >> GRANULE_SHIFT;
	struct leaf *leaf;

	if (address >= ADDRESS_LIMIT)
		return NULL;
	leaf = __atomic_load_n(&span->leaves[number >> LEAF_SHIFT], __ATOMIC_ACQUIRE);
	return leaf ? &leaf->granules[number & ((1u << LEAF_SHIFT) - 1)] : NULL;
}

/* ---- pages ---- */

static uint32_t look(struct granule *g, uint32_t unit);

static uint64_t bits_up_to(uint32_t bit)
{
	return ~UINT64_C(0) >> (63 - bit);
}

/* The slot of the last beginning up to @unit; NULL: none. */
static uint64_t *page_find(struct page *page, uint32_t unit)
{
	uint32_t w = unit / 64;
	uint64_t bits = load(&page->map[w]) & bits_up_to(unit % 64);
	uint64_t words = w && !bits ? load(&page->top) & bits_up_to(w - 1) : 0;

	while (!bits && words) {
		w = 63 - (uint32_t)__builtin_clzll(words);
		words &= ~(UINT64_C(1) << w);
		bits = load(&page->map[w]);
	}
	return bits ? &page->slot[w * 64 + 63 - (uint32_t)__builtin_clzll(bits)] : NULL;
}

static void page_begin(struct granule *g, struct page *page, uint64_t word)
{
	uint32_t unit = begin_of(word), w = unit / 64;

	put(g, &page->slot[unit], word);
	put(g, &page->map[w], page->map[w] | UINT64_C(1) << unit % 64);
	if (!(page->top >> w & 1))
		put(g, &page->top, page->top | UINT64_C(1) << w);
}

static void page_end(struct granule *g, struct page *page, uint32_t unit)
{
	uint32_t w = unit / 64;

	/* The slot stays: who saw the bit before may read it still. */
	put(g, &page->map[w], page->map[w] & ~(UINT64_C(1) << unit % 64));
	if (!page->map[w])
		put(g, &page->top, page->top & ~(UINT64_C(1) << w));
}

static void change_page(struct granule *g, struct page *page)
{
	__atomic_store_n(&g->changes, g->changes + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&g->owns, g->owns + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&g->page, page, __ATOMIC_RELEASE);
}

static struct page *page_new(struct gm_span *span)
{
	struct page *page;

	if (!gm_lock(&span->store))
		return NULL;
	page = span->unused;
	if (page) {
		span->unused = page->next;
	} else {
		page = span->memory(span->arg, PAGES_AT_ONCE * sizeof(*page));
		for (uint32_t i = 1; page && i < PAGES_AT_ONCE; i++) {
			page[i].next = span->unused;
			span->unused = &page[i];
		}
	}
	gm_unlock(&span->store);
	return page;
}

/* The page of a granule without blocks. One that could not be put into the list is lost. */
static void page_drop(struct gm_span *span, struct granule *g)
{
	struct page *page = g ? g->page : NULL;

	if (!page || page->top || g->cover || g->inner[0] || g->inner[1])
		return;
	change_page(g, NULL);
	if (!gm_lock(&span->store))
		return;
	page->next = span->unused;
	span->unused = page;
	gm_unlock(&span->store);
}

/* ---- what a granule knows ---- */

/* The word that covers @unit, where it lies; NULL: none. For the writer. */
static uint64_t *place_of(struct granule *g, uint32_t unit)
{
	uint64_t *slot;

	if (has(g->cover, unit))
		return &g->cover;
	for (int i = 0; i < 2; i++)
		if (has(g->inner[i], unit))
			return &g->inner[i];
	slot = g->page ? page_find(g->page, unit) : NULL;
	return slot && has(*slot, unit) ? slot : NULL;
}

/* The same of the block that begins at @unit, without a search. */
static uint64_t *start_at(struct granule *g, uint32_t unit)
{
	if (!unit)
		return g->cover ? &g->cover : NULL;
	if (g->page && (g->page->map[unit / 64] >> unit % 64 & 1))
		return &g->page->slot[unit];
	for (int i = 0; i < 2; i++)
		if (g->inner[i] && begin_of(g->inner[i]) == unit)
			return &g->inner[i];
	return NULL;
}

/* A block begins in @g, whose word is @word. */
static void begin(struct gm_span *span, struct granule *g, uint64_t word)
{
	if (!begin_of(word)) {
		put(g, &g->cover, word);
		return;
	}
	if (!g->page) {
		for (int i = 0; i < 2; i++)
			if (!g->inner[i]) {
				put(g, &g->inner[i], word);
				return;
			}
		/* Smaller blocks than its segment promised. */
		change_page(g, page_new(span));
	}
	if (g->page)
		page_begin(g, g->page, word);
}

/* No block begins at @unit, past the granule's start, any more: somebody else's word has its
 * bytes. */
static void end(struct granule *g, uint32_t unit)
{
	uint64_t *place = start_at(g, unit);

	if (place == &g->inner[0] || place == &g->inner[1])
		put(g, place, 0);
	else if (place)
		page_end(g, g->page, unit);
}

/* No block begins in [@from, @to) of its units. */
static void clear(struct granule *g, uint32_t from, uint32_t to)
{
	uint64_t *slot;

	if (!from && g->cover)
		put(g, &g->cover, 0);
	for (int i = 0; i < 2; i++)
		if (g->inner[i] && begin_of(g->inner[i]) >= from && begin_of(g->inner[i]) < to)
			put(g, &g->inner[i], 0);
	while (g->page && (slot = page_find(g->page, to - 1)) &&
	       slot - g->page->slot >= (ptrdiff_t)from)
		page_end(g, g->page, (uint32_t)(slot - g->page->slot));
}

/* ---- a part of a segment ---- */

struct part {
	struct granule *granule;
	uint32_t begin, end;		/* in its units */
};

/* The part of [*at, @end) that lies in one granule, and *at moved past it. */
static struct part next_part(const struct gm_span *span, uint64_t *at, uint64_t limit)
{
	uint64_t stop = ((*at >> GRANULE_SHIFT) + 1) << GRANULE_SHIFT;
	struct part part = { granule_at(span, *at), unit_of(*at), UNITS };

	if (stop > limit) {
		stop = limit;
		part.end = unit_of(limit);
	}
	*at = stop;
	return part;
}

/* The bytes [@at, @limit), which begin with a block and end with one in each granule, are
 * @block's. */
static void relabel(struct gm_span *span, uint64_t at, uint64_t limit, uint32_t block)
{
	while (at < limit) {
		struct part part = next_part(span, &at, limit);
		uint64_t *place = part.granule ? start_at(part.granule, part.begin) : NULL;

		if (place)
			put(part.granule, place, word_of(block, part.begin, part.end));
	}
}

/* ---- segments come and go ---- */

struct gm_span *gm_span_new(void *(*memory)(void *arg, size_t bytes), void *arg)
{
	struct gm_span *span = memory(arg, sizeof(*span));

	if (!span)
		return NULL;
	span->memory = memory;
	span->arg = arg;
	span->store.rank = GM_RANK_LEAF;
	return span;
}

static bool make_leaf(struct gm_span *span, uint64_t address)
{
	struct leaf **place = &span->leaves[address >> (GRANULE_SHIFT + LEAF_SHIFT)];
	struct leaf *leaf = __atomic_load_n(place, __ATOMIC_ACQUIRE);

	if (leaf)
		return true;
	if (!gm_lock(&span->store))
		return false;
	leaf = *place ? *place : span->memory(span->arg, sizeof(*leaf));
	__atomic_store_n(place, leaf, __ATOMIC_RELEASE);
	gm_unlock(&span->store);
	return leaf != NULL;
}

/* Pages of granules that are empty now. */
static void drop_pages(struct gm_span *span, uint64_t address, uint64_t limit)
{
	for (uint64_t at = address; at < limit;)
		page_drop(span, next_part(span, &at, limit).granule);
}

/* Leaves, and pages where blocks may be small or there are more than entries have room for. */
static bool reserve(struct gm_span *span, uint64_t address, uint64_t limit, bool small)
{
	for (uint64_t at = address; at < limit;) {
		uint64_t here = at;
		struct page *page;
		struct part part;
		bool needed;

		if (!make_leaf(span, at)) {
			drop_pages(span, address, here);
			return false;
		}
		part = next_part(span, &at, limit);
		needed = small || (part.begin && part.granule->inner[0] && part.granule->inner[1]);
		if (!needed || part.granule->page)
			continue;
		page = page_new(span);
		if (!page) {
			drop_pages(span, address, here);
			return false;
		}
		change_page(part.granule, page);
	}
	return true;
}

int gm_span_add(struct gm_span *span, uint64_t address, uint64_t bytes, bool small,
		uint32_t block)
{
	uint64_t limit = address + bytes;

	if (limit < address || limit > ADDRESS_LIMIT || !reserve(span, address, limit, small))
		return -ENOMEM;
	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(span, &at, limit);

		clear(part.granule, part.begin, part.end);
		begin(span, part.granule, word_of(block, part.begin, part.end));
	}
	return 0;
}

void gm_span_forget(struct gm_span *span, uint64_t address, uint64_t bytes, uint32_t block)
{
	uint64_t limit = address + bytes;

	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(span, &at, limit);

		if (part.granule && look(part.granule, part.begin) == block)
			clear(part.granule, part.begin, part.end);
		page_drop(span, part.granule);
	}
}

void gm_span_remove(struct gm_span *span, uint64_t address, uint64_t bytes)
{
	uint64_t limit = address + bytes;

	for (uint64_t at = address; at < limit;) {
		struct part part = next_part(span, &at, limit);

		if (part.granule)
			clear(part.granule, part.begin, part.end);
	}
	drop_pages(span, address, limit);
}

/* ---- blocks are cut and joined ---- */

void gm_span_split(struct gm_span *span, uint64_t address, uint64_t bytes, uint32_t front)
{
	uint64_t back = address + bytes;
	bool inside = address >> GRANULE_SHIFT == back >> GRANULE_SHIFT;
	struct granule *g = granule_at(span, back);
	uint32_t unit = unit_of(back);
	/* Where it begins is known; in a granule that it did not begin in, it covers the first byte. */
	uint64_t *place = !g || !unit ? NULL : inside ? start_at(g, unit_of(address)) : &g->cover;

	if (place && !has(*place, unit))
		place = NULL;
	/* On a granule's edge the block's word is there already. */
	if (place)
		begin(span, g, word_of(block_of(*place), unit, end_of(*place)));
	if (place && inside)
		put(g, place, word_of(front, begin_of(*place), unit));
	else
		relabel(span, address, back, front);
}

/* @into ends at @address: it takes the bytes up to @limit. */
static void grow(struct gm_span *span, uint64_t address, uint64_t limit, uint32_t into)
{
	uint32_t unit = unit_of(address);
	uint64_t at = address, *place;

	if (unit) {
		struct part part = next_part(span, &at, limit);

		place = place_of(part.granule, unit - 1);
		if (place)
			put(part.granule, place, word_of(into, begin_of(*place), part.end));
		end(part.granule, unit);
	}
	relabel(span, at, limit, into);
}

void gm_span_merge(struct gm_span *span, uint64_t address, uint64_t bytes, uint32_t into)
{
	uint64_t back = address + bytes;
	struct granule *g = granule_at(span, back);
	uint32_t unit = unit_of(back);
	uint64_t *place = g ? start_at(g, unit) : NULL;
	uint64_t word = place ? *place : 0, last;

	if (block_of(word) != into) {
		grow(span, address, back, into);
		return;
	}
	/* @into begins at @back: the word before takes in the rest of the granule, first. */
	if (!unit) {
		relabel(span, address, back, into);
		return;
	}
	last = back >> GRANULE_SHIFT << GRANULE_SHIFT;
	if (last > address)
		relabel(span, address, last, into);
	else
		last = address;
	place = start_at(g, unit_of(last));
	if (place)
		put(g, place, word_of(into, unit_of(last), end_of(word)));
	end(g, unit);
}

/* ---- the reader ---- */

/* A page that was seen in @g when the count was @owns may be another granule's by now. The count alone
 * does not tell: it goes up before the page goes, and may have been read in between. */
static bool still_owns(const struct granule *g, const struct page *page, uint32_t owns)
{
	return __atomic_load_n(&g->page, __ATOMIC_ACQUIRE) == page &&
	       __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE) == owns;
}

static uint32_t look(struct granule *g, uint32_t unit)
{
	uint32_t owns = __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE);
	struct page *page = __atomic_load_n(&g->page, __ATOMIC_ACQUIRE);
	uint64_t word = load(&g->cover);
	const uint64_t *slot;

	if (has(word, unit))
		return block_of(word);
	for (int i = 0; i < 2; i++) {
		word = load(&g->inner[i]);
		if (has(word, unit))
			return block_of(word);
	}
	slot = page ? page_find(page, unit) : NULL;
	word = slot ? load(slot) : 0;
	if (!has(word, unit))
		return 0;
	return still_owns(g, page, owns) ? block_of(word) : 0;
}

/* The block that begins at @unit, where the page says that one does; else 0. Of two words that have
 * it for a moment, when blocks are cut or joined, this is the one that look() comes to last: the
 * answer of before or of after the change, like the other. */
static inline uint32_t look_at_start(struct granule *g, uint32_t unit)
{
	uint32_t owns = __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE);
	struct page *page = __atomic_load_n(&g->page, __ATOMIC_ACQUIRE);
	uint64_t word;

	if (!page || !(load(&page->map[unit / 64]) >> unit % 64 & 1))
		return 0;
	word = load(&page->slot[unit]);
	return has(word, unit) && still_owns(g, page, owns) ? block_of(word) : 0;
}

uint32_t gm_span_find(const struct gm_span *span, uint64_t address)
{
	struct granule *g = granule_at(span, address);
	uint32_t changes, block;

	if (!g)
		return 0;
	/* What is freed is asked for by its beginning. */
	block = look_at_start(g, unit_of(address));
	if (block)
		return block;
	do {
		changes = __atomic_load_n(&g->changes, __ATOMIC_ACQUIRE);
		block = look(g, unit_of(address));
	} while (!block && __atomic_load_n(&g->changes, __ATOMIC_ACQUIRE) != changes);
	return block;
}
