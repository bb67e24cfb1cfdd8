/*
 * cached.c - blocks of a heap whose records lie in the journal come and go: see cached.h.
 *
 * Every operation but a hit among the thread's own blocks (cached_keep.c) is a stretch or several
 * (cached_internal.h): the heap's change, the statistics, the usage rows and the events in one
 * transaction each.
 *
 * Thread context: any, inside a hook. Signal context: none. Fork: forgotten. Lock: the domain's.
 */
#include "recorder/cached_keep.h"

#include <errno.h>

#include "allocator/reuse.h"
#include "recorder/cached_ledger.h"

#define BATCH 32u			/* blocks completed before the lock is given up */

static void *memory(void *arg, size_t bytes)
{
	return gm_arena_take(arg, bytes);
}

static int init(struct gm_cached *heap, struct gm_free_link *links)
{
	struct gm_heap_setup setup = {
		.config = heap->setup.config, .ops = &heap->ops, .undo = &heap->undo,
		.stats = &gm_rec.domains[heap->setup.domain].stats, .segments = gm_rec.segments,
		.blocks = gm_rec.blocks, .links = links, .memory = memory,
		.memory_arg = &heap->arena, .span = heap->setup.span, .domain = heap->setup.domain,
	};
	struct gm_change change;
	int r;

	gm_ledger_undo(&heap->undo, heap->setup.domain);
	gm_cached_ops(heap);
	r = gm_change_enter(&change, heap->setup.domain, 0);
	if (r < 0)
		return r;
	r = gm_heap_init(&heap->heap, &setup);
	heap->heap.ledger = &change.domain->ledger;
	heap->heap.room = gm_ledger_room(change.number);
	gm_change_leave(&change);
	return r;
}

static bool rounds_plainly(const struct gm_heap_config *config)
{
	for (unsigned int i = 0; i < GM_HEAP_DIVISION_BINS; i++)
		if (config->roundup_power2_divisions[i] > 1)
			return false;
	return true;
}

int gm_cached_new(const struct gm_cached_setup *setup, struct gm_cached **ret)
{
	struct gm_free_link *links;
	struct gm_cached *heap;
	int r;

	if (!gm_header_get())
		return -ENODEV;
	if (setup->domain >= GM_DOMAINS || setup->kind >= GM_KIND_COUNT ||
	    setup->kind == GM_KIND_IPC)
		return -EINVAL;
	heap = gm_cached_make(&links);
	if (!heap)
		return -ENOMEM;
	heap->setup = *setup;
	heap->domain = setup->domain;
	heap->plain = rounds_plainly(setup->config);
	r = init(heap, links);
	gm_set(&heap->keeps, setup->keeps && !gm_heap_collects(&heap->heap));
	heap->setup.config = NULL;		/* the caller's; the heap has its own */
	if (r < 0) {
		gm_arena_free(&heap->arena);
		return r;
	}
	gm_cached_publish(heap);
	*ret = heap;
	return 0;
}

uint32_t gm_cached_number(const struct gm_cached *heap)
{
	return heap->number;
}

uint32_t gm_cached_context(const struct gm_cached *heap)
{
	return heap->setup.context;
}

/* ---- counters ---- */

bool gm_cached_rows(struct gm_cached *heap, uint16_t module, bool nested)
{
	struct gm_delta delta;

	if (gm_likely(heap->rows_known && heap->module == module))
		return true;
	if (!gm_delta_init(&delta, heap->setup.domain, module, heap->setup.kind, 0, nested))
		return false;
	for (unsigned int i = 0; i < 3; i++)
		heap->rows[i] = delta.rows[i];
	heap->module = module;
	heap->rows_known = true;
	heap->heap.key = gm_usage_key(heap->setup.domain, module, heap->setup.kind);
	return true;
}

static void set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/* Bytes that live now, of the kind and in the rows, where no ledger counts them. */
void gm_cached_moved(struct gm_cached *heap, uint64_t bytes, bool out)
{
	uint64_t *live = &gm_rec.domains[heap->domain].live_bytes[heap->setup.kind];
	int64_t by = (int64_t)bytes;
	struct gm_undo *undo = &heap->undo;
	struct gm_undo_log log;

	if (gm_undo_open(undo, 10, &log)) {
		gm_undo_save(&log, live);
		for (unsigned int i = 0; i < 3; i++) {
			const struct gm_usage *row = heap->rows[i];

			if (!row)
				continue;
			gm_undo_save(&log, &row->current_bytes);
			gm_undo_save(&log, out ? &row->allocated_bytes : &row->freed_bytes);
			gm_undo_save(&log, out ? &row->allocations : &row->frees);
		}
		gm_undo_close(undo, &log);
	}
	*live += out ? bytes : 0 - bytes;
	for (unsigned int i = 0; i < 3; i++) {
		struct gm_usage *row = heap->rows[i];

		if (!row)
			continue;
		row->current_bytes += out ? by : -by;
		*(out ? &row->allocated_bytes : &row->freed_bytes) += by;
		*(out ? &row->allocations : &row->frees) += 1;
		if (out && gm_unlikely(row->current_bytes > row->peak_bytes))
			GM_PUT(undo, row->peak_bytes, row->current_bytes);
	}
}

static void count_alloc(struct gm_cached *heap, const struct gm_block *block)
{
	set(&heap->used, heap->used + block->requested);
	if (gm_unlikely(heap->used > heap->used_high))
		set(&heap->used_high, heap->used);
	set(&heap->live, heap->live + block->size);
}

static void count_free(struct gm_cached *heap, const struct gm_block *block)
{
	set(&heap->used, heap->used - block->requested);
	set(&heap->live, heap->live - block->size);
}

/* ---- alloc ---- */

static void hand_over(struct gm_cached *heap, struct gm_stretch *stretch, struct gm_alloc *alloc,
		      uint32_t id)
{
	count_alloc(heap, &gm_rec.blocks[id]);
	/* Without history nothing is put in order by it. */
	gm_cached_describe(&stretch->change, alloc, id,
			   gm_rec.history ? gm_stamp() : gm_stamp_before());
}

/* A look that found nothing does not count in the age of what is free. */
static void uncount_lookup(struct gm_cached *heap, uint64_t bytes)
{
	if (gm_heap_collects(&heap->heap))
		heap->heap.lookups[gm_heap_pool_of(gm_heap_round(&heap->heap.config, bytes))]--;
}

static int lost(int r)
{
	if (r == -ETIMEDOUT)
		gm_count(&gm_header_get()->operations_lost, 1);
	return r;
}

/* Within a stretch under the operation's number: a free block, or -EAGAIN. */
static int find(struct gm_cached *heap, struct gm_stretch *stretch, struct gm_alloc *alloc,
		uint32_t *ret_block)
{
	struct gm_heap_request request = { alloc->requested, alloc->stream };
	int r;

	if (gm_unlikely(!gm_cached_rows(heap, alloc->module, stretch->change.writer.nested)))
		return lost(-ETIMEDOUT);
	r = gm_heap_find(&heap->heap, &request, ret_block);
	if (gm_likely(r == 0))
		hand_over(heap, stretch, alloc, *ret_block);
	else
		uncount_lookup(heap, alloc->requested);
	return r;
}

static bool rises(const struct gm_stat *stats, unsigned int pool, uint64_t by)
{
	const struct gm_stat *all = &stats[GM_POOL_ALL];
	const struct gm_stat *one = &stats[pool ? GM_POOL_LARGE : GM_POOL_SMALL];

	return all->current + (int64_t)by > all->peak || one->current + (int64_t)by > one->peak;
}

/* Would a block for @alloc raise a peak, with what is kept taken for live? The rows are known. */
static bool raises_peak(struct gm_cached *heap, struct gm_stretch *stretch,
			const struct gm_alloc *alloc)
{
	struct gm_heap_request request = { alloc->requested, alloc->stream };
	uint64_t size = gm_heap_round(&heap->heap.config, alloc->requested);
	struct gm_heap_move move = { .requested = alloc->requested };
	const struct gm_stats *stats = heap->heap.stats;
	unsigned int pool = gm_heap_pool_of(size);

	if (pool)			/* a small one is cut to size */
		size = gm_heap_look(&heap->heap, &request);
	move.size = size;
	if (gm_heap_has_room(&heap->heap, &move))
		return heap->used + alloc->requested > heap->used_high;
	gm_stretch_turn(heap, stretch);
	gm_ledger_fold(&heap->undo, heap->domain, heap->heap.key);
	gm_stretch_close(heap, stretch);
	for (unsigned int i = 0; i < 3; i++)
		if (heap->rows[i] &&
		    heap->rows[i]->current_bytes + (int64_t)size > heap->rows[i]->peak_bytes)
			return true;
	return rises(stats->stat[GM_STAT_ALLOCATION], pool, 1) ||
	       rises(stats->stat[GM_STAT_ACTIVE], pool, 1) ||
	       rises(stats->stat[GM_STAT_ALLOCATED_BYTES], pool, size) ||
	       rises(stats->stat[GM_STAT_ACTIVE_BYTES], pool, size) ||
	       rises(stats->stat[GM_STAT_REQUESTED_BYTES], pool, alloc->requested) ||
	       heap->used + alloc->requested > heap->used_high;
}

/* Another transaction, for what @op stands for. */
static int find_again(struct gm_cached *heap, struct gm_stretch *stretch, struct gm_alloc *alloc,
		      uint64_t op, uint32_t *ret_block)
{
	stretch->change.op = op;
	gm_stretch_open(heap, stretch);
	return find(heap, stretch, alloc, ret_block);
}

/* With the lock. The heap decides as if this thread had kept nothing; and before it finds nothing, or
 * takes a peak for higher than it is, as if nobody had. */
static int find_flushed(struct gm_cached *heap, struct gm_stretch *stretch, struct gm_alloc *alloc,
			uint32_t *ret_block)
{
	bool others = gm_keep_others(stretch), nested = stretch->change.writer.nested;
	uint64_t op = stretch->change.op;
	int r;

	gm_keep_tidy_own(stretch, false);
	/* A large block of the heap's choice depends on all others. */
	if (gm_unlikely(gm_get(&gm_keep_large[heap->domain])) &&
	    alloc->requested > GM_HEAP_SMALL_REQUEST)
		gm_keep_empty_all(stretch);
	if (others && gm_cached_rows(heap, alloc->module, nested) &&
	    raises_peak(heap, stretch, alloc)) {
		gm_keep_empty_all(stretch);
		others = false;
	}
	r = find_again(heap, stretch, alloc, op, ret_block);
	if (r != -EAGAIN || !others || !gm_keep_any(heap->domain))
		return r;
	if (stretch->change.writer.slot)
		stretch->change.writer.slot->last_op = stretch->last_op;
	gm_stretch_close(heap, stretch);
	gm_keep_empty_all(stretch);
	return find_again(heap, stretch, alloc, op, ret_block);
}

int gm_cached_alloc(struct gm_cached *heap, uint64_t op, struct gm_alloc *alloc,
		    uint32_t *ret_block)
{
	struct gm_stretch stretch = { .alloc = NULL };
	int r;

	*ret_block = GM_NONE;
	if (gm_unlikely(alloc->requested >= GM_HEAP_REQUEST_LIMIT))
		return -E2BIG;
	if (gm_unlikely(!gm_header_get()))
		return -ENODEV;
	if (gm_keep_has(heap->domain)) {
		*ret_block = gm_keep_take(heap, op, alloc);
		if (gm_likely(*ret_block))
			return 0;
	}
	r = gm_stretch_enter(heap, &stretch, op);
	if (gm_unlikely(r < 0))
		return r;
	if (gm_unlikely(alloc->requested > GM_HEAP_SMALL_REQUEST) &&
	    gm_keep_look_again(heap, &stretch, alloc)) {
		gm_change_leave(&stretch.change);
		*ret_block = gm_keep_take(heap, op, alloc);
		if (*ret_block)
			return 0;
		r = gm_stretch_enter(heap, &stretch, op);
		if (r < 0)
			return r;
	}
	r = find_flushed(heap, &stretch, alloc, ret_block);
	if (gm_likely(r == 0))
		gm_stretch_end(heap, &stretch);
	else
		gm_stretch_cancel(heap, &stretch);
	return r;
}

/* With the driver: stretches with its calls between them. The caller holds the growth lock. */
static int grow(struct gm_cached *heap, struct gm_stretch *stretch, struct gm_alloc *alloc,
		uint32_t *ret_block)
{
	struct gm_heap_request request = { alloc->requested, alloc->stream };
	int64_t *ooms = &heap->heap.stats->num_ooms;
	int r;

	gm_cached_rows(heap, alloc->module, false);	/* found before: it cannot fail */
	r = gm_heap_alloc(&heap->heap, &request, ret_block);
	if (!stretch->held)
		return r;		/* lost between the driver's calls, and counted */
	if (r == 0) {
		hand_over(heap, stretch, alloc, *ret_block);
	} else if (r == -ENOMEM) {
		GM_PUT(&heap->undo, *ooms, *ooms - 1);	/* gm_record_failure counts it */
	}
	gm_stretch_end(heap, stretch);
	return r;
}

int gm_cached_grow(struct gm_cached *heap, uint64_t op, struct gm_alloc *alloc,
		   uint32_t *ret_block)
{
	struct gm_stretch stretch = { .alloc = alloc, .op = op };
	int r;

	*ret_block = GM_NONE;
	if (alloc->requested >= GM_HEAP_REQUEST_LIMIT)
		return -E2BIG;
	gm_keep_flush(heap->domain);
	r = gm_stretch_enter(heap, &stretch, op);
	if (r < 0)
		return r;
	r = find_flushed(heap, &stretch, alloc, ret_block);
	if (r == 0) {
		gm_stretch_end(heap, &stretch);
		return 0;
	}
	gm_stretch_cancel(heap, &stretch);
	if (r != -EAGAIN)
		return r;
	heap->grower = &stretch;
	r = gm_stretch_enter(heap, &stretch, 0);
	if (r == 0) {
		gm_keep_empty_all(&stretch);	/* what was kept meanwhile */
		gm_stretch_turn(heap, &stretch);
		r = grow(heap, &stretch, alloc, ret_block);
	}
	heap->grower = NULL;
	return r;
}

/* ---- free ---- */

static bool is_of(const struct gm_cached *heap, const struct gm_block *block)
{
	uint32_t segment = __atomic_load_n(&block->segment, __ATOMIC_RELAXED);

	return gm_get(&gm_rec.segments[segment].heap) == heap->number;
}

struct gm_cached *gm_cached_of(uint32_t id, struct gm_block *ret_copy)
{
	struct gm_header *header = gm_header_get();
	const struct gm_block *block = header ? gm_block_at(header, id) : NULL;
	uint32_t segment;

	if (!block)
		return NULL;
	/* While the block is the caller's its segment stays; when it is not, gm_cached_free tells. */
	segment = __atomic_load_n(&block->segment, __ATOMIC_RELAXED);
	if (ret_copy) {
		if (!gm_record_block(id, ret_copy))
			return NULL;
		segment = ret_copy->segment;
	}
	return gm_cached_by_number(gm_get(&gm_rec.segments[segment].heap));
}

struct gm_cached *gm_cached_look(uint32_t id, struct gm_cached_view *ret)
{
	struct gm_header *header = gm_header_get();
	const struct gm_block *block = header ? gm_block_at(header, id) : NULL;
	struct gm_cached *heap;
	uint32_t segment;

	if (!block)
		return NULL;
	ret->state = gm_get_acquire(&block->state);
	ret->address = __atomic_load_n(&block->address, __ATOMIC_RELAXED);
	ret->stream = __atomic_load_n(&block->stream, __ATOMIC_RELAXED);
	ret->requested = __atomic_load_n(&block->requested, __ATOMIC_RELAXED);
	segment = __atomic_load_n(&block->segment, __ATOMIC_RELAXED);
	heap = gm_cached_by_number(gm_get(&gm_rec.segments[segment].heap));
	if (heap) {
		ret->arg = heap->setup.arg;
		ret->number = heap->number;
	}
	return heap;
}

/* Of the functions below each writes the events before the heap moves the block: it may lie in a
 * larger one then. */
void gm_cached_complete_pending(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
			     uint64_t tsc)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_COMPLETED };
	const struct gm_block *block = &gm_rec.blocks[id];

	gm_cached_trace_at(&stretch->change, block, tsc, block->free_stream, block->free_stack, actions,
			   1);
	gm_heap_free_completed(&heap->heap, id);
}

void gm_cached_free_now(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
		     const struct gm_cached_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED,
						  GM_ACTION_FREE_COMPLETED };
	struct gm_block *block = &gm_rec.blocks[id];

	block->op = stretch->change.op;
	count_free(heap, block);
	gm_cached_trace(&stretch->change, block, how, actions, 2);
	gm_heap_free(&heap->heap, id);
}

static void free_later(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
		       const struct gm_cached_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED };
	struct gm_block *block = &gm_rec.blocks[id];

	block->op = stretch->change.op;
	count_free(heap, block);
	gm_cached_trace(&stretch->change, block, how, actions, 1);
	/* Meaningless while it is not pending: not logged. */
	block->free_stack = how->stack == GM_STACK_OF_BLOCK ? block->stack : how->stack;
	block->free_stream = how->stream;
	gm_heap_free_requested(&heap->heap, id);
}

static bool move_state(struct gm_block *block, enum gm_block_state from, enum gm_block_state to)
{
	uint8_t expected = (uint8_t)from;

	return atomic_compare_exchange_strong_explicit(&block->state, &expected, (uint8_t)to,
						       memory_order_acq_rel, memory_order_relaxed);
}

static bool begins_at(const struct gm_cached *heap, const struct gm_block *block, uint64_t address)
{
	return __atomic_load_n(&block->address, __ATOMIC_RELAXED) == address && is_of(heap, block);
}

/* The right to free @block: nobody else has it from here on. For the program it is free, for a
 * reader live. */
static bool claim(const struct gm_cached *heap, struct gm_block *block, uint64_t address)
{
	if (gm_unlikely(!begins_at(heap, block, address)) ||
	    gm_unlikely(!move_state(block, GM_BLOCK_ACTIVE, GM_BLOCK_FREEING)))
		return false;
	/* Freed twice at the same time, it may have become another one between the two. */
	if (gm_likely(begins_at(heap, block, address)))
		return true;
	move_state(block, GM_BLOCK_FREEING, GM_BLOCK_ACTIVE);
	return false;
}

/* A pending block may be free, but its heap is held: gm_cached_hold will do it, or the heap's end. */
static void put_off(struct gm_cached *heap, struct gm_block *block)
{
	block->flags |= GM_BLOCK_DONE;
	heap->put_off = true;
}

/* The heap's lock, for what cannot be kept. @now: it may be handed out at once. */
static int free_locked(struct gm_cached *heap, uint64_t op, uint32_t id,
		       const struct gm_cached_free *how, bool now)
{
	struct gm_stretch stretch = { .moves_nothing = true };
	struct gm_block *block = &gm_rec.blocks[id];
	int r = gm_stretch_begin(heap, &stretch, op);

	if (gm_unlikely(r < 0))
		return r;
	if (gm_unlikely(!gm_cached_rows(heap, block->module, stretch.change.writer.nested))) {
		gm_stretch_cancel(heap, &stretch);
		return lost(-ETIMEDOUT);
	}
	now = now || block->flags & GM_BLOCK_DONE;
	if (now && !heap->held)
		gm_cached_free_now(heap, &stretch, id, how);
	else
		free_later(heap, &stretch, id, how);
	if (now && heap->held)
		put_off(heap, block);
	gm_stretch_close(heap, &stretch);
	gm_keep_tidy_own(&stretch, true);
	gm_change_leave(&stretch.change);
	return 0;
}

int gm_cached_free(struct gm_cached *heap, uint64_t op, uint32_t id, uint64_t address,
		   const struct gm_cached_free *how)
{
	struct gm_header *header = gm_header_get();
	struct gm_block *block;
	uint64_t size;
	bool now;
	int r;

	if (gm_unlikely(!header))
		return -ENODEV;
	block = gm_block_at(header, id);
	if (gm_unlikely(!block || !claim(heap, block, address)))
		return -ENOENT;
	/* Its heap may be going at this moment, which free_locked finds. */
	size = __atomic_load_n(&block->size, __ATOMIC_RELAXED);
	now = how->now(how->arg, id, heap->number, size);
	if (gm_likely(now) && gm_likely(gm_keep_wants(heap, size)) &&
	    gm_likely(gm_keep_put(heap, id, op, how)))
		return 0;
	r = free_locked(heap, op, id, how, now);
	/* What was told of it to @how stands: it may come back, or is lost to us. */
	if (gm_unlikely(r < 0))
		move_state(block, GM_BLOCK_FREEING, GM_BLOCK_ACTIVE);
	return r;
}

/* As many of @items as are of one heap, BATCH at most, in one hold of its lock. Returns how many
 * were looked at. */
static size_t complete_some(struct gm_cached *heap, const struct gm_reuse_item *items, size_t count)
{
	struct gm_stretch stretch = { .moves_nothing = true };
	size_t i = 0;

	if (gm_stretch_begin(heap, &stretch, 0) < 0)
		return 1;		/* counted; it stays pending */
	for (; i < count && i < BATCH && items[i].owner == heap->number; i++) {
		struct gm_block *block = gm_block_at(gm_header_get(), items[i].block);

		if (block && gm_get(&block->state) == GM_BLOCK_FREEING && is_of(heap, block))
			block->flags |= GM_BLOCK_DONE;		/* it comes next */
		if (!block || gm_get(&block->state) != GM_BLOCK_PENDING || !is_of(heap, block))
			continue;
		if (gm_unlikely(heap->held)) {
			put_off(heap, block);
			continue;
		}
		gm_cached_complete_pending(heap, &stretch, items[i].block,
					   gm_rec.history ? gm_stamp() : 0);
		gm_stretch_next(heap, &stretch);
	}
	gm_stretch_cancel(heap, &stretch);
	return i;
}

void gm_cached_complete(const struct gm_reuse_item *items, size_t count)
{
	while (count) {
		struct gm_cached *heap = gm_cached_by_number(items->owner);
		size_t done = heap ? complete_some(heap, items, count) : 1;

		items += done;
		count -= done;
	}
}
