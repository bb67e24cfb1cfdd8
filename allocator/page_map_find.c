/*
 * page_map_find.c - from an address to the block that covers it, beside a writer: see page_map.h.
 *
 * Why it is right beside one is told in page_map.c. Thread context: any. Signal context: all of it, it waits
 * for nobody. Fork: forgotten. Lock: none.
 */
#include "allocator/page_map_granule.h"

/* A page that was seen in @g when the count was @owns may be another granule's by now. The count
 * alone does not tell: it goes up before the page goes, and may have been read in between. */
static bool still_owns(const struct gm_granule *g, const struct gm_page_map_page *page, uint32_t owns)
{
	return __atomic_load_n(&g->page, __ATOMIC_ACQUIRE) == page &&
	       __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE) == owns;
}

uint32_t gm_granule_look(struct gm_granule *g, uint32_t unit)
{
	uint32_t owns = __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE);
	struct gm_page_map_page *page = __atomic_load_n(&g->page, __ATOMIC_ACQUIRE);
	uint64_t word = gm_word_load(&g->cover);
	const uint64_t *slot;

	if (gm_word_has(word, unit))
		return gm_word_block(word);
	for (int i = 0; i < 2; i++) {
		word = gm_word_load(&g->inner[i]);
		if (gm_word_has(word, unit))
			return gm_word_block(word);
	}
	slot = page ? gm_page_find(page, unit) : NULL;
	word = slot ? gm_word_load(slot) : 0;
	if (!gm_word_has(word, unit))
		return 0;
	return still_owns(g, page, owns) ? gm_word_block(word) : 0;
}

/* The block that begins at @unit, where the page says that one does; else 0. Of two words that have
 * it for a moment, when blocks are cut or joined, this is the one that gm_granule_look comes to last:
 * the answer of before or of after the change, like the other. */
static inline uint32_t look_at_start(struct gm_granule *g, uint32_t unit)
{
	uint32_t owns = __atomic_load_n(&g->owns, __ATOMIC_ACQUIRE);
	struct gm_page_map_page *page = __atomic_load_n(&g->page, __ATOMIC_ACQUIRE);
	uint64_t word;

	if (!page || !(gm_word_load(&page->map[unit / 64]) >> unit % 64 & 1))
		return 0;
	word = gm_word_load(&page->slot[unit]);
	return gm_word_has(word, unit) && still_owns(g, page, owns) ? gm_word_block(word) : 0;
}

uint32_t gm_page_map_find(const struct gm_page_map *map, uint64_t address)
{
	struct gm_granule *g = gm_granule_at(map, address);
	uint32_t changes, block;

	if (!g)
		return 0;
	/* What is freed is asked for by its beginning. */
	block = look_at_start(g, gm_unit_of(address));
	if (block)
		return block;
	do {
		changes = __atomic_load_n(&g->changes, __ATOMIC_ACQUIRE);
		block = gm_granule_look(g, gm_unit_of(address));
	} while (!block && __atomic_load_n(&g->changes, __ATOMIC_ACQUIRE) != changes);
	return block;
}
