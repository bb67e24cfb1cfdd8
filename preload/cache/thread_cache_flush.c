/*
 * thread_cache_flush.c - make the thread caches of a domain, and flush them into their heaps.
 *
 * A flush adds a bin's tally to the statistics and then gives its blocks to the heap one by one, each in a transaction
 * of the domain. Meanwhile the cache's thread is kept out (thread_cache.c has the rules).
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the domain's, then a slot's @tcache_owner.
 */
#include "allocator/lock.h"
#include "preload/cache/thread_cache.h"
#include "preload/cache/cache_heap_internal.h"

#define HOLD_NS UINT64_C(1000000000)	/* a running thread stays in its thread cache for some 50 ns */

static struct {
	_Atomic(struct gm_tcache *) first;
	_Atomic(uint32_t) count;
} domains[GM_DOMAINS];

static struct gm_caches caches = { .flush = gm_tcache_flush, .flush_locked = gm_tcache_flush_locked };

void gm_tcache_begin(gm_free_late_fn *free_late)
{
	caches.free_late = free_late;
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		gm_set(&domains[d].first, NULL);
		gm_set(&domains[d].count, 0);
	}
	gm_set_release(&gm_rec.caches, &caches);
}

/* ---- keeping threads out ---- */

static void release(struct gm_slot *slot)
{
	gm_set_release(&slot->tcache_owner, GM_TCACHE_NOBODY);
}

struct gm_tcache *gm_tcache_first(uint8_t domain)
{
	return gm_get_acquire(&domains[domain].first);
}

/* ---- thread caches ---- */

struct gm_tcache *gm_tcache_find(struct gm_slot *slot, uint8_t domain)
{
	struct gm_tcache *tcache = gm_get_acquire(&slot->tcaches);

	while (tcache && tcache->domain != domain)
		tcache = tcache->next_of_slot;
	return tcache;
}

/* Make a thread cache, with the domain's lock. So a thread that holds the locks of all domains knows all thread
 * caches. */
static bool make_locked(struct gm_slot *slot, uint8_t domain)
{
	struct gm_tcache *tcache;
	uint32_t id;

	if (gm_tcache_find(slot, domain))
		return true;
	if (gm_get(&gm_region(GM_REGION_TCACHES)->refused))
		return false;
	tcache = gm_cache_heap_memory(sizeof(*tcache));
	id = tcache ? gm_region_take(GM_REGION_TCACHES, false) : 0;
	if (!id)
		return false;
	tcache->record = &gm_rec.tcaches[id];
	tcache->record->slot = slot->index;
	tcache->record->domain = domain;
	tcache->slot = slot;
	tcache->domain = domain;
	tcache->record_of = &gm_rec.domains[domain];
	tcache->next = gm_tcache_first(domain);
	tcache->next_of_slot = gm_get(&slot->tcaches);
	gm_set_release(&slot->tcaches, tcache);
	gm_set_release(&domains[domain].first, tcache);
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

/* ---- from a tally into the statistics ---- */

/* Add the tally to the statistics, the usage rows and the live bytes, and clear it. */
static void fold(struct gm_cache_heap *heap, struct gm_tally *tally)
{
	struct gm_flow flow = gm_tally_flow(tally);
	struct gm_stats *stats = heap->core->stats;

	gm_site_leave_peak(&gm_rec.domains[heap->domain]);
	gm_undo_note_words(&heap->undo, stats, sizeof(*stats) / sizeof(uint64_t));
	gm_tally_count(tally, stats);
	gm_cache_heap_move(heap, &flow, tally->taken_bytes - tally->put_bytes);
	gm_undo_note_words(&heap->undo, tally, GM_TALLY_WORDS);
	tally->takes = tally->puts = tally->taken_bytes = tally->put_bytes = 0;
}

/* ---- flush ---- */

/* Is the block still cached? If its heap is being dropped, it may be gone, because its thread could not be kept out
 * then. */
static bool is_there(const struct gm_cache_heap *heap, uint32_t id)
{
	const struct gm_block *block = &gm_rec.blocks[id];

	return gm_get(&block->state) == GM_BLOCK_CACHED &&
	       gm_get(&gm_rec.segments[block->segment].heap) == heap->number;
}

static void empty_bin(struct gm_cache_heap *heap, struct gm_section *section, struct gm_tcache *tcache,
		      unsigned int i)
{
	struct gm_tally *tally = &tcache->record->tallies[i];
	struct gm_bin *bin = &tcache->bins[i];

	if (heap->suspended)			/* the cache could not be entered when the suspension began */
		return;
	/* These rows were found when the blocks were handed out, so none is made here. */
	if (!gm_cache_heap_rows(heap, tally->module, section->change.writer.nested))
		return;
	if (tally->takes || tally->puts) {
		gm_section_turn(heap, section);
		fold(heap, tally);
		gm_section_close(heap, section);
	}
	while (bin->count) {
		uint32_t id = bin->ids[--bin->count];

		gm_set(&tcache->blocks, gm_get(&tcache->blocks) - 1);
		if (gm_unlikely(gm_get(&heap->dead)) && !is_there(heap, id))
			continue;
		gm_section_turn(heap, section);
		gm_cache_heap_site_out(heap, &gm_rec.blocks[id]);
		gm_heap_put_back(heap->core, id);
		gm_section_close(heap, section);
	}
	bin->heap = NULL;
	gm_set(&tcache->bins_used, gm_get(&tcache->bins_used) - 1);
}

static void in_vain(_Atomic(uint32_t) *vain, uint32_t blocks)
{
	uint32_t sum = gm_get(vain) + blocks;

	gm_set(vain, sum < GM_VAIN_FULL ? sum : GM_VAIN_FULL);
}

/* Move blocks that were handed out to another stack to that stack's row. */
static void settle_moved(struct gm_section *section, struct gm_tcache *tcache)
{
	for (uint32_t i = 0; i < gm_get(&tcache->moves); i++) {
		struct gm_block *block = &gm_rec.blocks[tcache->moved[i].id];
		struct gm_cache_heap *heap;

		if (!gm_tcache_is_moved(&tcache->moved[i]))
			continue;
		heap = gm_cache_heap_by_number(gm_get(&gm_rec.segments[block->segment].heap));
		if (!heap)
			continue;
		gm_section_turn(heap, section);
		gm_cache_heap_site_move(heap, block, section->change.writer.nested);
		gm_section_close(heap, section);
	}
	gm_set(&tcache->moves, 0);
}

/* Flush the bins of @heap; NULL: all bins. */
static void empty(struct gm_section *section, struct gm_tcache *tcache,
		  const struct gm_cache_heap *heap)
{
	/* A nested call may have interrupted this same thread inside the cache. */
	if (section->change.writer.nested || !gm_slot_hold(tcache->slot, HOLD_NS))
		return;
	settle_moved(section, tcache);
	for (unsigned int i = 0; i < GM_TALLIES; i++)
		if (tcache->bins[i].heap && (!heap || tcache->bins[i].heap == heap))
			empty_bin(tcache->bins[i].heap, section, tcache, i);
	release(tcache->slot);
}

void gm_tcache_empty_own(struct gm_section *section)
{
	struct gm_slot *slot = section->change.writer.slot;
	struct gm_tcache *tcache = slot ? gm_tcache_find(slot, section->change.number) : NULL;

	if (!tcache || !gm_tcache_is_due(tcache))
		return;
	in_vain(&tcache->vain, gm_get(&tcache->blocks));
	empty(section, tcache, NULL);
}

void gm_tcache_empty_all(struct gm_section *section)
{
	struct gm_tcache *tcache = gm_tcache_first(section->change.number);

	for (; tcache; tcache = tcache->next)
		if (gm_tcache_is_due(tcache))
			empty(section, tcache, NULL);
}

void gm_tcache_flush_locked(const struct gm_change *change)
{
	struct gm_section section = { .change = *change };

	if (gm_tcache_any(change->number))
		gm_tcache_empty_all(&section);
}

void gm_tcache_drop(struct gm_cache_heap *heap, struct gm_section *section)
{
	struct gm_tcache *tcache = gm_tcache_first(heap->domain);

	for (; tcache; tcache = tcache->next)
		empty(section, tcache, heap);
}

bool gm_tcache_others(const struct gm_section *section)
{
	struct gm_slot *slot = section->change.writer.slot;
	uint8_t domain = section->change.number;

	return gm_get(&domains[domain].count) > (slot && gm_tcache_find(slot, domain) ? 1u : 0u);
}

bool gm_tcache_any(uint8_t domain)
{
	for (struct gm_tcache *tcache = gm_tcache_first(domain); tcache; tcache = tcache->next)
		if (gm_tcache_is_due(tcache))
			return true;
	return gm_late_any(domain);
}

/* Flush one thread cache, under the domain's lock. Returns false if the lock cannot be taken. */
static bool flush(struct gm_tcache *tcache, uint8_t domain)
{
	struct gm_section section = { .alloc = NULL };

	if (!gm_get(&tcache->bins_used))
		return true;
	if (gm_change_enter(&section.change, domain, 0) < 0)
		return false;
	empty(&section, tcache, NULL);
	gm_change_leave(&section.change);
	return true;
}

void gm_tcache_flush(uint8_t domain)
{
	struct gm_tcache *tcache;

	if (!gm_header_get() || domain >= GM_DOMAINS)
		return;
	gm_record_late_frees(domain, HOLD_NS);
	for (tcache = gm_tcache_first(domain); tcache && flush(tcache, domain); tcache = tcache->next)
		;
}

void gm_tcache_flush_unused(uint8_t domain)
{
	bool locks = true;

	gm_record_late_frees(domain, HOLD_NS);
	for (struct gm_tcache *tcache = gm_tcache_first(domain); tcache && locks; tcache = tcache->next) {
		uint64_t done = gm_get(&gm_rec.threads[tcache->slot->index].operations);

		if (gm_get(&tcache->seen) == done)
			locks = flush(tcache, domain);
		gm_set(&tcache->seen, done);
	}
}
