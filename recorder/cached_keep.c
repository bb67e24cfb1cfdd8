/*
 * cached_keep.c - small blocks that were freed a moment ago, for the next request of their size.
 *
 *   free ──> kept: a bin of the domain ──> handed out again as it is
 *                                     └──> flush: to its neighbours and into the heap's free sets
 *
 * A program that frees and allocates one size again and again finds its blocks here: nothing is
 * merged or cut, no free set and no statistic changes. What such a pair would have moved in them
 * goes into the bin's tally (recorder/format.h), which lies in the journal: a reader adds it. As
 * far as the statistics go, a kept block is live until it is flushed; so their peaks are never
 * below the truth, and since whatever is not found here flushes everything before the heap looks,
 * they are never above it either, and the heap decides as if nothing had ever been kept.
 *
 * Thread context: any, inside a hook. Signal context: none. Fork: forgotten with the journal. Lock:
 * the domain's; the counts are read without.
 */
#include "recorder/cached_internal.h"

#define BINS GM_TALLIES
#define BLOCKS 32u			/* of a bin */
#define BIN_BYTES (UINT64_C(4) << 20)
#define MISSES 8u			/* frees of other sizes before a bin is given up */

struct bin {
	struct gm_cached *heap;		/* of its blocks; NULL: unused. Read without the lock too */
	uint64_t stream;
	uint32_t count, misses;
	uint32_t ids[BLOCKS];
};

static struct keep {
	_Atomic(uint32_t) kept;		/* blocks in all its bins */
	_Atomic(uint32_t) tallies;	/* bins that are in use */
	_Atomic(uint32_t) stale;	/* some bin has missed too often */
	_Atomic(uint32_t) less;		/* less was asked for than the statistics take for live */
	struct bin bins[BINS];
} keeps[GM_DOMAINS];

void gm_keep_begin(void)
{
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		gm_set(&keeps[d].kept, 0);
		gm_set(&keeps[d].tallies, 0);
		gm_set(&keeps[d].stale, 0);
		gm_set(&keeps[d].less, 0);
		for (unsigned int i = 0; i < BINS; i++)
			keeps[d].bins[i] = (struct bin){ .heap = NULL };
	}
}

bool gm_keep_any(uint8_t domain)
{
	return gm_get(&keeps[domain].kept) || gm_get(&keeps[domain].less);
}

bool gm_keep_stale(uint8_t domain)
{
	return gm_get(&keeps[domain].stale) != 0;
}

static unsigned int place(const struct gm_cached *heap, uint64_t size, uint64_t stream,
			  uint16_t module)
{
	uint64_t n = size / GM_GRANULE + stream * 7 + module * 5 + heap->number * 3;

	return (unsigned int)((n ^ n >> 4 ^ n >> 8) % BINS);
}

static inline bool is_of(const struct bin *bin, const struct gm_tally *tally,
			 const struct gm_cached *heap, uint64_t size, uint64_t stream,
			 uint16_t module)
{
	return bin->heap == heap && tally->size == size && bin->stream == stream &&
	       tally->module == module;
}

static void set_state(struct gm_block *block, enum gm_block_state state)
{
	gm_set_release(&block->state, (uint8_t)state);
}

static void set_count(struct keep *keep, struct bin *bin, int by)
{
	bin->count += (uint32_t)by;
	gm_set(&keep->kept, gm_get(&keep->kept) + (uint32_t)by);
}

static void set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

uint32_t gm_keep_take(struct gm_cached *heap, const struct gm_stretch *stretch,
		      const struct gm_alloc *alloc)
{
	uint64_t size = gm_heap_round(&heap->heap.config, alloc->requested);
	unsigned int i = place(heap, size, alloc->stream, alloc->module);
	struct keep *keep = &keeps[heap->setup.domain];
	struct gm_tally *tally = &stretch->change.domain->tallies[i];
	struct bin *bin = &keep->bins[i];
	struct gm_block *block;
	struct gm_undo_log log;
	uint32_t id;

	if (!bin->count || !is_of(bin, tally, heap, size, alloc->stream, alloc->module))
		return GM_NONE;
	id = bin->ids[bin->count - 1];
	block = &gm_rec.blocks[id];
	/* What is asked for may not rise above what the statistics take for live. */
	if (gm_unlikely(alloc->requested != block->requested)) {
		if (alloc->requested > block->requested)
			return GM_NONE;
		gm_set(&keep->less, 1);
	}
	if (gm_undo_open(&heap->undo, 3, &log)) {
		gm_undo_save(&log, gm_undo_word((const void *)&block->state));
		gm_undo_save(&log, &tally->takes);
		gm_undo_save(&log, &tally->taken_bytes);
		gm_undo_close(&heap->undo, &log);
	}
	set_count(keep, bin, -1);
	bin->misses = 0;
	block->requested = alloc->requested;
	set_state(block, GM_BLOCK_ACTIVE);
	tally->takes++;
	tally->taken_bytes += alloc->requested;
	set(&heap->live, heap->live + size);
	set(&heap->used, heap->used + alloc->requested);
	if (gm_unlikely(heap->used > heap->used_high))
		set(&heap->used_high, heap->used);
	return id;
}

/* A bin for @block, that has room for one more. */
static struct bin *room(const struct gm_cached *heap, struct keep *keep, struct gm_tally *tallies,
			const struct gm_block *block, struct gm_tally **ret_tally)
{
	unsigned int i = place(heap, block->size, block->stream, block->module);
	struct bin *bin = &keep->bins[i];
	struct gm_tally *tally = &tallies[i];

	*ret_tally = tally;
	if (gm_likely(is_of(bin, tally, heap, block->size, block->stream, block->module)))
		return bin->count < BLOCKS && bin->count * block->size < BIN_BYTES ? bin : NULL;
	if (bin->heap) {
		if (++bin->misses > MISSES)
			gm_set(&keep->stale, 1);
		return NULL;
	}
	return bin;
}

bool gm_keep_put(struct gm_cached *heap, const struct gm_stretch *stretch, uint32_t id)
{
	struct keep *keep = &keeps[heap->setup.domain];
	struct gm_block *block = &gm_rec.blocks[id];
	struct gm_tally *tally;
	struct gm_undo_log log;
	struct bin *bin;

	if (!heap->setup.keeps || gm_heap_collects(&heap->heap) || stretch->change.writer.nested ||
	    !(gm_rec.segments[block->segment].flags & GM_SEGMENT_SMALL))
		return false;
	bin = room(heap, keep, stretch->change.domain->tallies, block, &tally);
	if (!bin)
		return false;
	if (!bin->heap) {		/* a tally of nothing: what it is of needs no undo */
		__atomic_store_n(&bin->heap, heap, __ATOMIC_RELEASE);
		bin->stream = block->stream;
		bin->misses = 0;
		tally->size = block->size;
		tally->module = block->module;
		tally->kind = heap->setup.kind;
		gm_set(&keep->tallies, gm_get(&keep->tallies) + 1);
	}
	if (gm_undo_open(&heap->undo, 3, &log)) {
		gm_undo_save(&log, gm_undo_word((const void *)&block->state));
		gm_undo_save(&log, &tally->puts);
		gm_undo_save(&log, &tally->put_bytes);
		gm_undo_close(&heap->undo, &log);
	}
	tally->puts++;
	tally->put_bytes += block->requested;
	set_state(block, GM_BLOCK_KEPT);
	bin->ids[bin->count] = id;
	set_count(keep, bin, 1);
	set(&heap->live, heap->live - block->size);
	set(&heap->used, heap->used - block->requested);
	return true;
}

/* ---- flush ---- */

#define FOLDED 5u

static const struct { uint8_t name; bool bytes, requested; } folded[FOLDED] = {
	{ GM_STAT_ALLOCATION, false, false }, { GM_STAT_ALLOCATED_BYTES, true, false },
	{ GM_STAT_ACTIVE, false, false }, { GM_STAT_ACTIVE_BYTES, true, false },
	{ GM_STAT_REQUESTED_BYTES, false, true },
};

static void save_folded(struct gm_cached *heap, struct gm_domain *domain,
			const struct gm_tally *tally)
{
	struct gm_undo_log log;

	if (!gm_undo_open(&heap->undo, 6 * FOLDED + 15 + 1 + 4, &log))
		return;
	for (unsigned int i = 0; i < 2 * FOLDED; i++) {
		const struct gm_stat *stat = &domain->stats.stat[folded[i / 2].name]
					     [i % 2 ? GM_POOL_SMALL : GM_POOL_ALL];

		gm_undo_save(&log, &stat->current);
		gm_undo_save(&log, &stat->allocated);
		gm_undo_save(&log, &stat->freed);
	}
	for (unsigned int i = 0; i < 3; i++) {
		const struct gm_usage *row = heap->rows[i];

		if (!row)
			continue;
		gm_undo_save(&log, &row->current_bytes);
		gm_undo_save(&log, &row->allocated_bytes);
		gm_undo_save(&log, &row->freed_bytes);
		gm_undo_save(&log, &row->allocations);
		gm_undo_save(&log, &row->frees);
	}
	gm_undo_save(&log, &domain->live_bytes[heap->setup.kind]);
	gm_undo_save(&log, &tally->takes);
	gm_undo_save(&log, &tally->puts);
	gm_undo_save(&log, &tally->taken_bytes);
	gm_undo_save(&log, &tally->put_bytes);
	gm_undo_close(&heap->undo, &log);
}

/* The tally into the statistics, the rows and the bytes that live. */
static void fold(struct gm_cached *heap, struct gm_domain *domain, struct gm_tally *tally)
{
	int64_t size = (int64_t)tally->size;
	int64_t takes = (int64_t)tally->takes, puts = (int64_t)tally->puts;

	save_folded(heap, domain, tally);
	for (unsigned int i = 0; i < 2 * FOLDED; i++) {
		struct gm_stat *stat = &domain->stats.stat[folded[i / 2].name]
				       [i % 2 ? GM_POOL_SMALL : GM_POOL_ALL];
		int64_t in = folded[i / 2].bytes ? takes * size : takes;
		int64_t out = folded[i / 2].bytes ? puts * size : puts;

		if (folded[i / 2].requested) {
			in = (int64_t)tally->taken_bytes;
			out = (int64_t)tally->put_bytes;
		}
		stat->current += in - out;
		stat->allocated += in;
		stat->freed += out;
	}
	for (unsigned int i = 0; i < 3; i++) {
		struct gm_usage *row = heap->rows[i];

		if (!row)
			continue;
		row->current_bytes += (takes - puts) * size;
		row->allocated_bytes += takes * size;
		row->freed_bytes += puts * size;
		row->allocations += takes;
		row->frees += puts;
	}
	domain->live_bytes[heap->setup.kind] += (uint64_t)((takes - puts) * size);
	tally->takes = tally->puts = tally->taken_bytes = tally->put_bytes = 0;
}

/* Within a stretch, in transactions of their own. False: not now. */
static bool empty_bin(struct gm_cached *heap, struct gm_stretch *stretch, struct bin *bin,
		      struct gm_tally *tally)
{
	struct keep *keep = &keeps[heap->setup.domain];

	/* They were found when the blocks were handed out: nothing is made. */
	if (!gm_cached_rows(heap, tally->module, stretch->change.writer.nested))
		return false;
	if (tally->takes || tally->puts) {
		fold(heap, stretch->change.domain, tally);
		gm_stretch_next(heap, stretch);
	}
	while (bin->count) {
		uint32_t id = bin->ids[bin->count - 1];

		set_count(keep, bin, -1);
		gm_heap_put_back(&heap->heap, id);
		gm_stretch_next(heap, stretch);
	}
	__atomic_store_n(&bin->heap, NULL, __ATOMIC_RELEASE);
	gm_set(&keep->tallies, gm_get(&keep->tallies) - 1);
	return true;
}

void gm_keep_flush(uint8_t number)
{
	struct keep *keep;

	if (!gm_header_get() || number >= GM_DOMAINS || !gm_get(&keeps[number].tallies))
		return;
	keep = &keeps[number];
	gm_set(&keep->stale, 0);
	gm_set(&keep->less, 0);
	for (unsigned int i = 0; i < BINS; i++) {
		struct gm_cached *heap = __atomic_load_n(&keep->bins[i].heap, __ATOMIC_ACQUIRE);
		struct gm_stretch stretch = { .drops = true };

		if (!heap)
			continue;
		if (gm_stretch_begin(heap, &stretch, 0) < 0)
			return;
		if (keep->bins[i].heap == heap)
			empty_bin(heap, &stretch, &keep->bins[i],
				  &stretch.change.domain->tallies[i]);
		gm_stretch_cancel(heap, &stretch);
	}
}

void gm_keep_drop(struct gm_cached *heap, struct gm_stretch *stretch)
{
	struct keep *keep = &keeps[heap->setup.domain];

	for (unsigned int i = 0; i < BINS; i++)
		if (keep->bins[i].heap == heap)
			empty_bin(heap, stretch, &keep->bins[i],
				  &stretch->change.domain->tallies[i]);
}
