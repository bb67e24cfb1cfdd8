/*
 * thread_cache.c - blocks that were just freed, for the same thread's next request of that size: without a lock that
 * other threads take, and without a store to a cache line that other threads use.
 *
 *   free ──> a bin of the thread's cache ──> handed out again as it is
 *                                     └──> flush: to its neighbours and into the free sets
 *
 * Each thread has a thread cache in each domain where it has freed a block: bins in memory of our own (struct
 * gm_tcache), tallies and an undo area in the journal (struct gm_tcache_record). A block goes into the cache of the
 * thread that freed it, whichever thread allocated it. A program that frees and allocates one size again and again
 * finds its blocks here: nothing is merged or cut, and no free set and no statistic changes. Blocks of more than 1 MiB
 * are not cached, because the memory that the heap has left for the next such block depends on where each one lies.
 *
 * Who owns a block. The freeing thread first of all sets the block's state from active to freeing by a
 * compare-and-swap (cache_heap_free.c), so that a second free on any thread fails there. From then on the freeing
 * thread owns the block, until the block is in the cache (whose thread owns it) or in the heap (where the domain's
 * lock protects it).
 *
 * Who may be in a thread cache: the holder of the slot's @tcache_owner. The cache's own thread enters by one
 * compare-and-swap and leaves by a store. It never waits there. It takes the domain's lock instead while a flush or a
 * raw clone of the thread is inside, or in a signal handler that interrupted the thread inside. Other threads take
 * @tcache_owner with the domain's lock held: to flush, to count, or for a journal copy.
 *
 * What readers see. A hit changes one block's state and one tally, and writes the events, in a transaction with an
 * operation number of its own. The old values stay in the thread cache's undo area until the transaction is complete.
 * So a dead process's journal shows each of these operations wholly or not at all. A live journal copy keeps every
 * thread out, so it sees no operation half done. The tallies contain what hits would have changed in the statistics,
 * and readers add them.
 *
 * Peaks. The statistics count a cached block as live until it is flushed. So peaks are never too low, although hits do
 * not read the statistics. Nor are they too high, because an operation that may raise a peak first flushes every
 * thread cache, under the lock that it holds (cache_heap_alloc.c). A request that the thread's own cache does not
 * serve flushes that cache, so that for a program of one thread the heap decides as if there were no thread caches.
 * The other threads' caches are flushed when the heap finds nothing.
 *
 * Who holds how much (recorder/record/sites.h). A cached block counts for the stack that had it at the last flush, as
 * in the statistics. A hit for another stack changes no row, but goes into the list @moved. The next flush moves the
 * block to its new stack's row. Every thread cache is flushed before a peak, so that all rows are right then. Until
 * the flush no other thread's cache may have the block, so that its entry in the list stays true.
 *
 * A thread that dies within its thread cache (asynchronous cancellation) leaves its blocks live for ever. A thread
 * that ends leaves its blocks to the next thread with its slot, and to every flush.
 *
 * Thread context: any, inside a hook. Signal context: none; a nested call finds nothing here. Lock: @tcache_owner,
 * after the domain's, before the chunk's.
 */
#include "preload/cache/thread_cache.h"

static inline struct gm_tcache *tcache_in(struct gm_slot *slot, uint8_t domain)
{
	struct gm_tcache *tcache = gm_get(&slot->tcache);

	if (gm_likely(tcache && tcache->domain == domain))
		return tcache;
	tcache = gm_tcache_find(slot, domain);
	if (tcache)
		gm_set(&slot->tcache, tcache);
	return tcache;
}

static inline unsigned int place(const struct gm_cache_heap *heap, uint64_t size, uint64_t stream,
				 uint16_t module)
{
	uint64_t n = size ^ stream ^ ((uint64_t)heap->number << 48 | (uint64_t)module << 32);

	_Static_assert(GM_TALLIES == 16, "four bits");
	return (unsigned int)(n * UINT64_C(0x9e3779b97f4a7c15) >> 60);
}

static inline bool is_of(const struct gm_bin *bin, const struct gm_cache_heap *heap, uint64_t size,
			 uint64_t stream, uint16_t module)
{
	return bin->heap == heap && bin->size == size && bin->stream == stream &&
	       bin->module == module;
}

/* Return the bin of such blocks, which is in one of two places; NULL: there is none. */
static inline struct gm_bin *bin_of(struct gm_tcache *tcache, const struct gm_cache_heap *heap,
				    uint64_t size, uint64_t stream, uint16_t module)
{
	unsigned int i = place(heap, size, stream, module);
	struct gm_bin *bin = &tcache->bins[i];

	if (gm_likely(is_of(bin, heap, size, stream, module)))
		return bin;
	bin = &tcache->bins[i ^ 1];
	return is_of(bin, heap, size, stream, module) ? bin : NULL;
}

static inline uint64_t round_up(const struct gm_cache_heap *heap, uint64_t bytes)
{
	if (gm_likely(heap->plain))
		return (bytes + GM_GRANULE - 1) & ~(GM_GRANULE - 1);
	return gm_heap_round(&heap->core->config, bytes);
}

/* Fill @change in place, because a copy would read back the words just stored and wait for these stores. */
static inline void begin_change(struct gm_change *change, struct gm_slot *slot,
				struct gm_tcache *tcache, uint64_t op)
{
	change->writer.slot = slot;
	change->writer.nested = false;
	change->counts = &tcache->record->counts;
	change->domain = tcache->record_of;
	change->number = tcache->domain;
	if (gm_likely(!op || slot->last_op == op))
		op = gm_writer_op(&change->writer);
	change->op = slot->last_op = op;
}

/* Return the stamp for handing this thread a block that it freed itself. The fence of gm_stamp is not needed, because
 * the stamp depends on no store of another thread. It must follow what this thread wrote, so it is not below the last
 * stamp of the thread's chunk. Without history nothing is ordered by it. */
static inline uint64_t stamp_of_own(const struct gm_slot *slot)
{
	uint64_t tsc, last;

	if (!gm_rec.history)
		return gm_stamp_before();
	if (gm_unlikely(!slot->chunk || slot->place == 1))
		return gm_stamp();
	tsc = gm_stamp_before();
	last = gm_get(&slot->chunk->last_tsc);
	return gm_likely(tsc > last) ? tsc : last;
}

/* Save three words that are about to change: a block's state and two of a tally. The entries mean nothing until
 * @undo_op is set (txn.h). */
static inline void save(struct gm_tcache_record *record, uint64_t op, const struct gm_block *block,
			const uint64_t *count, const uint64_t *bytes)
{
	const uint64_t *state = gm_undo_word((const void *)&block->state);
	const uint8_t *base = gm_rec.base;
	struct gm_undo_entry *undo = record->undo;

	undo[0].offset = (uint64_t)((const uint8_t *)state - base);
	undo[0].old = __atomic_load_n(state, __ATOMIC_RELAXED);
	undo[1].offset = (uint64_t)((const uint8_t *)count - base);
	undo[1].old = *count;
	undo[2].offset = (uint64_t)((const uint8_t *)bytes - base);
	undo[2].old = *bytes;
	gm_set(&record->undo_count, 3);
	gm_order();
	gm_set_release(&record->undo_op, op);
	gm_order();
}

static inline void done(struct gm_tcache_record *record)
{
	gm_order();
	gm_set_release(&record->undo_op, 0);
}

static inline void count_cached(struct gm_tcache *tcache, struct gm_bin *bin, int by)
{
	bin->count += (uint32_t)by;
	gm_set(&tcache->blocks, gm_get(&tcache->blocks) + (uint32_t)by);
}

static void was_worth(_Atomic(uint32_t) *vain)
{
	uint32_t now = gm_get(vain);

	gm_set(vain, now > GM_VAIN_HIT ? now - GM_VAIN_HIT : 0);
}

/* Is there room for one more entry of @moved? Removes stale entries if need be. */
static bool has_room(struct gm_tcache *tcache)
{
	uint32_t count = gm_get(&tcache->moves), kept = 0;

	if (gm_likely(count < GM_TCACHE_MOVES))
		return true;
	for (uint32_t i = 0; i < count; i++)
		if (gm_tcache_is_moved(&tcache->moved[i]))
			tcache->moved[kept++] = tcache->moved[i];
	gm_set(&tcache->moves, kept);
	return kept < GM_TCACHE_MOVES;
}

static void note_move(struct gm_tcache *tcache, uint32_t id, uint64_t op)
{
	uint32_t count = gm_get(&tcache->moves);

	tcache->moved[count] = (struct gm_moved){ op, id };
	gm_set(&tcache->moves, count + 1);
}

static void take(struct gm_slot *slot, struct gm_tcache *tcache, struct gm_bin *bin, uint64_t op,
		 struct gm_alloc *alloc, bool other)
{
	struct gm_tally *tally = bin->tally;
	struct gm_change change;
	uint32_t id = bin->ids[bin->count - 1];
	struct gm_block *block = &gm_rec.blocks[id];

	begin_change(&change, slot, tcache, op);
	if (gm_unlikely(other))
		note_move(tcache, id, change.op);
	save(tcache->record, change.op, block, &tally->takes, &tally->taken_bytes);
	count_cached(tcache, bin, -1);
	if (gm_unlikely(gm_get(&tcache->vain)))
		was_worth(&tcache->vain);
	tally->takes++;
	tally->taken_bytes += alloc->requested;
	__atomic_store_n(&block->requested, alloc->requested, __ATOMIC_RELAXED);
	gm_cache_heap_describe(&change, alloc, id, stamp_of_own(slot));
	gm_set_release(&block->state, GM_BLOCK_ACTIVE);
	done(tcache->record);
}

uint32_t gm_tcache_take(struct gm_cache_heap *heap, uint64_t op, struct gm_alloc *alloc)
{
	uint64_t size = round_up(heap, alloc->requested);
	uint32_t id = GM_NONE;
	struct gm_tcache *tcache;
	struct gm_slot *slot;
	struct gm_bin *bin;

	slot = gm_slot_enter_own();
	if (gm_unlikely(!slot))
		return GM_NONE;
	tcache = tcache_in(slot, heap->domain);
	bin = tcache ? bin_of(tcache, heap, size, alloc->stream, alloc->module) : NULL;
	if (bin && bin->count && gm_get(&heap->thread_cache)) {
		uint32_t last = bin->ids[bin->count - 1];
		const struct gm_block *block = &gm_rec.blocks[last];
		bool other = gm_site_is_other(block, alloc->stack, alloc->requested);

		/* The requested bytes may not rise above those that the statistics count as live. */
		if (gm_likely(alloc->requested <= block->requested) && gm_likely(!other || has_room(tcache))) {
			id = last;
			take(slot, tcache, bin, op, alloc, other);
		}
	}
	gm_slot_leave_own(slot);
	return id;
}

/* Return a bin with room for @block, perhaps an unused one; NULL: there is none. */
static inline struct gm_bin *room_for(const struct gm_cache_heap *heap, struct gm_tcache *tcache,
				      const struct gm_block *block)
{
	struct gm_bin *bin = bin_of(tcache, heap, block->size, block->stream, block->module);
	unsigned int i;

	if (gm_likely(bin != NULL))
		return bin->count < GM_BIN_BLOCKS && bin->count * block->size < GM_BIN_BYTES ? bin : NULL;
	i = place(heap, block->size, block->stream, block->module);
	if (!tcache->bins[i].heap)
		return &tcache->bins[i];
	return tcache->bins[i ^ 1].heap ? NULL : &tcache->bins[i ^ 1];
}

/* May this thread's cache contain @block? Not if another thread's list of moved blocks contains it. */
static inline bool may_have(const struct gm_slot *slot, const struct gm_block *block)
{
	return gm_likely(!gm_site_is_other(block, block->stack, block->requested)) ||
	       block->thread == gm_get(&gm_rec.threads[slot->index].tid);
}

/* Begin an unused bin for blocks like @block. The tally counts nothing yet, so its key needs no undo. */
static void begin_bin(struct gm_cache_heap *heap, struct gm_tcache *tcache, struct gm_bin *bin,
		      const struct gm_block *block)
{
	struct gm_tally *tally = &tcache->record->tallies[bin - tcache->bins];

	bin->tally = tally;
	bin->stream = block->stream;
	bin->size = tally->size = block->size;
	bin->module = tally->module = block->module;
	tally->kind = heap->kind;
	bin->heap = heap;
	gm_set(&tcache->bins_used, gm_get(&tcache->bins_used) + 1);
}

static void put(struct gm_slot *slot, struct gm_tcache *tcache, struct gm_bin *bin, uint32_t id,
		uint64_t op, const struct gm_cache_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED,
						  GM_ACTION_FREE_COMPLETED };
	struct gm_tally *tally = bin->tally;
	struct gm_change change;
	struct gm_block *block = &gm_rec.blocks[id];

	begin_change(&change, slot, tcache, op);
	save(tcache->record, change.op, block, &tally->puts, &tally->put_bytes);
	tally->puts++;
	tally->put_bytes += block->requested;
	block->op = change.op;
	gm_cache_heap_trace(&change, block, how, actions, 2);
	gm_set_release(&block->state, GM_BLOCK_CACHED);
	bin->ids[bin->count] = id;
	count_cached(tcache, bin, 1);
	done(tcache->record);
}

bool gm_tcache_put(struct gm_cache_heap *heap, uint32_t id, uint64_t op,
		 const struct gm_cache_free *how)
{
	const struct gm_block *block = &gm_rec.blocks[id];
	struct gm_tcache *tcache;
	struct gm_slot *slot;
	struct gm_bin *bin = NULL;

	slot = gm_slot_enter_own();
	if (gm_unlikely(!slot))
		return false;
	tcache = tcache_in(slot, heap->domain);
	/* A thread that drops or suspends the heap clears heap->thread_cache before it looks at the thread caches. */
	if (gm_likely(tcache && gm_get(&heap->thread_cache)) && may_have(slot, block)) {
		bin = room_for(heap, tcache, block);
		if (gm_likely(bin != NULL)) {
			if (!bin->heap)
				begin_bin(heap, tcache, bin, block);
			put(slot, tcache, bin, id, op, how);
		}
	}
	gm_slot_leave_own(slot);
	if (gm_likely(tcache) || !gm_tcache_make(heap->domain))
		return bin != NULL;
	return gm_tcache_put(heap, id, op, how);	/* the thread has one now */
}
