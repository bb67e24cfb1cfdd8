/*
 * thread_cache_flush.c - the thread caches of a domain: made, and emptied into their heaps.
 *
 * A flush folds a bin's tally into the statistics, then gives its blocks to the heap one by one, each
 * in a transaction of the domain, while the thread cache's thread is kept out (thread_cache.c has the rules).
 *
 * Thread context: any, inside a hook. Signal context: none. Fork: forgotten with the journal. Lock:
 * the domain's, then a slot's @tcache_owner.
 */
#include "allocator/lock.h"
#include "preload/cache/thread_cache.h"
#include "preload/cache/cached_section.h"

#define HOLD_NS UINT64_C(1000000000)	/* a thread stays in its thread cache for some 50 ns, if it runs */

static struct {
	_Atomic(struct gm_tcache *) first;
	_Atomic(uint32_t) count;
} domains[GM_DOMAINS];

static const struct gm_caches caches = {
	.flush = gm_tcache_flush, .flush_locked = gm_tcache_flush_locked,
};

void gm_tcache_begin(void)
{
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		gm_set(&domains[d].first, NULL);
		gm_set(&domains[d].count, 0);
	}
	gm_set_release(&gm_rec.caches, &caches);
}

/* ---- holding threads out ---- */

static void release(struct gm_slot *slot)
{
	gm_set_release(&slot->tcache_owner, GM_TCACHE_NOBODY);
}

struct gm_tcache *gm_tcache_first(uint8_t domain)
{
	return gm_get_acquire(&domains[domain].first);
}

bool gm_tcache_hold(uint8_t domain)
{
	struct gm_tcache *keep;

	for (keep = gm_tcache_first(domain); keep; keep = keep->next)
		if (!gm_slot_hold(keep->slot, HOLD_NS))
			break;
	for (struct gm_tcache *held = gm_tcache_first(domain); keep && held != keep; held = held->next)
		release(held->slot);
	return !keep;
}

void gm_tcache_release(uint8_t domain)
{
	for (struct gm_tcache *keep = gm_tcache_first(domain); keep; keep = keep->next)
		release(keep->slot);
}

/* ---- thread caches ---- */

struct gm_tcache *gm_tcache_find(struct gm_slot *slot, uint8_t domain)
{
	struct gm_tcache *keep = gm_get_acquire(&slot->keeps);

	while (keep && keep->domain != domain)
		keep = keep->next_of_slot;
	return keep;
}

/* Whoever holds the locks of all domains knows all the thread caches. */
static bool make_locked(struct gm_slot *slot, uint8_t domain)
{
	struct gm_tcache *keep;
	uint32_t id;

	if (gm_tcache_find(slot, domain))
		return true;
	if (gm_get(&gm_region(GM_REGION_TCACHES)->refused))
		return false;
	keep = gm_cached_memory(sizeof(*keep));
	id = keep ? gm_region_take(GM_REGION_TCACHES, false) : 0;
	if (!id)
		return false;
	keep->record = &gm_rec.tcaches[id];
	keep->record->slot = slot->index;
	keep->record->domain = domain;
	keep->slot = slot;
	keep->domain = domain;
	keep->next = gm_tcache_first(domain);
	keep->next_of_slot = gm_get(&slot->keeps);
	gm_set_release(&slot->keeps, keep);
	gm_set_release(&domains[domain].first, keep);
	gm_set(&domains[domain].count, gm_get(&domains[domain].count) + 1);
	return true;
}

bool gm_tcache_make(uint8_t domain)
{
	struct gm_change change;
	bool made;

	if (gm_get(&gm_region(GM_REGION_TCACHES)->refused) || gm_change_enter(&change, domain, 0) < 0)
		return false;
	made = change.writer.slot && make_locked(change.writer.slot, domain);
	gm_change_leave(&change);
	return made;
}

/* ---- what a tally says, into the statistics ---- */

/* The tally into the statistics, the rows and the bytes that live. */
static void fold(struct gm_cached *heap, struct gm_tally *tally)
{
	struct gm_flow flow = gm_tally_flow(tally);
	struct gm_stats *stats = heap->heap.stats;

	gm_undo_note_words(&heap->undo, stats, sizeof(*stats) / sizeof(uint64_t));
	gm_tally_count(tally, stats);
	gm_cached_move(heap, &flow, tally->taken_bytes - tally->put_bytes);
	gm_undo_note_words(&heap->undo, tally, GM_TALLY_WORDS);
	tally->takes = tally->puts = tally->taken_bytes = tally->put_bytes = 0;
}

/* ---- flush ---- */

/* Of a heap that was dropped, or is being so, while this thread cache could not be had: what it had of it
 * may be gone. */
static bool is_there(const struct gm_cached *heap, uint32_t id)
{
	const struct gm_block *block = &gm_rec.blocks[id];

	return gm_get(&block->state) == GM_BLOCK_CACHED &&
	       gm_get(&gm_rec.segments[block->segment].heap) == heap->number;
}

static void empty_bin(struct gm_cached *heap, struct gm_section *section, struct gm_tcache *keep,
		      unsigned int i)
{
	struct gm_tally *tally = &keep->record->tallies[i];
	struct gm_bin *bin = &keep->bins[i];

	if (heap->held)			/* it could not be had when that began */
		return;
	/* They were found when the blocks were handed out: nothing is made. */
	if (!gm_cached_rows(heap, tally->module, section->change.writer.nested))
		return;
	if (tally->takes || tally->puts) {
		gm_section_turn(heap, section);
		fold(heap, tally);
		gm_section_close(heap, section);
	}
	while (bin->count) {
		uint32_t id = bin->ids[--bin->count];

		gm_set(&keep->kept, gm_get(&keep->kept) - 1);
		if (gm_unlikely(gm_get(&heap->dead)) && !is_there(heap, id))
			continue;
		gm_section_turn(heap, section);
		gm_heap_put_back(&heap->heap, id);
		gm_section_close(heap, section);
	}
	bin->heap = NULL;
	gm_set(&keep->bins_used, gm_get(&keep->bins_used) - 1);
}

static void in_vain(_Atomic(uint32_t) *vain, uint32_t kept)
{
	uint32_t sum = gm_get(vain) + kept;

	gm_set(vain, sum < GM_VAIN_FULL ? sum : GM_VAIN_FULL);
}

/* @heap: only what is of it; NULL: everything. */
static void empty(struct gm_section *section, struct gm_tcache *keep, const struct gm_cached *heap)
{
	/* A nested call may have interrupted the very thread that is in there. */
	if (section->change.writer.nested || !gm_slot_hold(keep->slot, HOLD_NS))
		return;
	if (!heap) {
		gm_set(&keep->stale, 0);
		gm_set(&keep->less, 0);
	}
	for (unsigned int i = 0; i < GM_TALLIES; i++)
		if (keep->bins[i].heap && (!heap || keep->bins[i].heap == heap))
			empty_bin(keep->bins[i].heap, section, keep, i);
	release(keep->slot);
}

void gm_tcache_empty_own(struct gm_section *section, bool stale)
{
	struct gm_slot *slot = section->change.writer.slot;
	struct gm_tcache *keep = slot ? gm_tcache_find(slot, section->change.number) : NULL;

	if (!keep || !gm_tcache_is_due(keep, stale))
		return;
	in_vain(&keep->vain, gm_get(&keep->kept));
	empty(section, keep, NULL);
}

void gm_tcache_empty_all(struct gm_section *section)
{
	for (struct gm_tcache *keep = gm_tcache_first(section->change.number); keep; keep = keep->next)
		if (gm_tcache_is_due(keep, false))
			empty(section, keep, NULL);
}

void gm_tcache_flush_locked(const struct gm_change *change)
{
	struct gm_section section = { .change = *change };

	if (gm_tcache_any(change->number))
		gm_tcache_empty_all(&section);
}

void gm_tcache_drop(struct gm_cached *heap, struct gm_section *section)
{
	for (struct gm_tcache *keep = gm_tcache_first(heap->domain); keep; keep = keep->next)
		empty(section, keep, heap);
}

bool gm_tcache_others(const struct gm_section *section)
{
	struct gm_slot *slot = section->change.writer.slot;
	uint8_t domain = section->change.number;

	return gm_get(&domains[domain].count) > (slot && gm_tcache_find(slot, domain) ? 1u : 0u);
}

bool gm_tcache_any(uint8_t domain)
{
	for (struct gm_tcache *keep = gm_tcache_first(domain); keep; keep = keep->next)
		if (gm_tcache_is_due(keep, false))
			return true;
	return false;
}

void gm_tcache_flush(uint8_t domain)
{
	if (!gm_header_get() || domain >= GM_DOMAINS)
		return;
	for (struct gm_tcache *keep = gm_tcache_first(domain); keep; keep = keep->next) {
		struct gm_section section = { .alloc = NULL };

		if (!gm_get(&keep->bins_used))
			continue;
		if (gm_change_enter(&section.change, domain, 0) < 0)
			return;
		empty(&section, keep, NULL);
		gm_change_leave(&section.change);
	}
}
