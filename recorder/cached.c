/*
 * cached.c - blocks of a heap whose records lie in the journal come and go: see cached.h.
 *
 * Every operation is a stretch or several (cached_internal.h): the heap's change, the statistics,
 * the usage rows and the events in one transaction each.
 *
 * Thread context: any, inside a hook. Signal context: none. Fork: forgotten. Lock: the domain's.
 */
#include "recorder/cached_internal.h"

#include <errno.h>

#include "allocator/reuse.h"

#define BATCH 32u			/* blocks completed before the lock is given up */

static void *memory(void *arg, size_t bytes)
{
	return gm_arena_take(arg, bytes);
}

static void set_undo(struct gm_cached *heap)
{
	struct gm_domain *domain = &gm_rec.domains[heap->setup.domain];

	_Static_assert(sizeof(struct gm_undo_pair) == sizeof(struct gm_undo_entry) &&
		       offsetof(struct gm_undo_pair, old) == offsetof(struct gm_undo_entry, old),
		       "one layout");
	heap->undo = (struct gm_undo){
		.base = gm_rec.base, .pairs = (struct gm_undo_pair *)(void *)domain->undo,
		.count = &domain->undo_count, .room = GM_UNDO_ENTRIES,
	};
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

	set_undo(heap);
	gm_cached_ops(heap);
	r = gm_change_enter(&change, heap->setup.domain, 0);
	if (r < 0)
		return r;
	r = gm_heap_init(&heap->heap, &setup);
	gm_change_leave(&change);
	return r;
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
	r = init(heap, links);
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
	return true;
}

static void set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/* Bytes that live now, of the kind and in the rows: ten words. */
static inline __attribute__((always_inline)) void count(struct gm_cached *heap,
							struct gm_domain *domain, int64_t bytes,
							bool out)
{
	uint64_t *live = &domain->live_bytes[heap->setup.kind];
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
	set(&heap->live, heap->live + (uint64_t)(out ? bytes : -bytes));
	*live += (uint64_t)(out ? bytes : -bytes);
	for (unsigned int i = 0; i < 3; i++) {
		struct gm_usage *row = heap->rows[i];

		if (!row)
			continue;
		row->current_bytes += out ? bytes : -bytes;
		*(out ? &row->allocated_bytes : &row->freed_bytes) += bytes;
		*(out ? &row->allocations : &row->frees) += 1;
		if (out && gm_unlikely(row->current_bytes > row->peak_bytes))
			GM_PUT(undo, row->peak_bytes, row->current_bytes);
	}
}

static void count_alloc(struct gm_cached *heap, struct gm_domain *domain,
			const struct gm_block *block)
{
	set(&heap->used, heap->used + block->requested);
	if (gm_unlikely(heap->used > heap->used_high))
		set(&heap->used_high, heap->used);
	count(heap, domain, (int64_t)block->size, true);
}

static void count_free(struct gm_cached *heap, struct gm_domain *domain,
		       const struct gm_block *block)
{
	set(&heap->used, heap->used - block->requested);
	count(heap, domain, (int64_t)block->size, false);
}

/* ---- alloc ---- */

/* Events of one block, that differ in the action only. */
static inline __attribute__((always_inline)) void
trace(const struct gm_stretch *stretch, const struct gm_block *block, uint64_t tsc, uint64_t stream,
      uint32_t stack, const enum gm_action *actions, unsigned int count)
{
	const struct gm_segment *segment = &gm_rec.segments[block->segment];
	struct gm_traced list[2];
	struct gm_segment like;

	if (gm_unlikely(block->flags & GM_BLOCK_UNTRACED)) {
		gm_change_untraced(&stretch->change, count);
		return;
	}
	like.context = segment->context;
	like.kind = segment->kind;
	like.module = block->module;	/* not the one for which the segment was made */
	for (unsigned int i = 0; i < count; i++)
		list[i] = (struct gm_traced){ actions[i], block->address, block->requested };
	gm_change_trace(&stretch->change, &like, tsc, stream, stack, list, count);
}

/* Block @id has been handed out: its record and the event. What a record says besides its place
 * means nothing before it is active, and needs no undo. */
static inline __attribute__((always_inline)) void
describe(struct gm_stretch *stretch, struct gm_alloc *alloc, uint32_t id)
{
	static const enum gm_action actions[] = { GM_ACTION_ALLOC };
	struct gm_block *block = &gm_rec.blocks[id];
	uint64_t tsc = gm_stamp();

	block->tsc = tsc;
	block->op = stretch->change.op;
	block->stack = alloc->stack;
	block->thread = gm_writer_tid(&stretch->change.writer);
	block->module = alloc->module;
	/* in the word of the state, which is logged */
	block->flags = gm_untraced(alloc->requested) ? GM_BLOCK_UNTRACED : 0;
	alloc->tsc = tsc;
	alloc->address = block->address;
	alloc->size = block->size;
	trace(stretch, block, tsc, alloc->stream,
	      alloc->stack_of_block_only ? GM_NONE : alloc->stack, actions, 1);
}

static void hand_over(struct gm_cached *heap, struct gm_stretch *stretch, struct gm_alloc *alloc,
		      uint32_t id)
{
	count_alloc(heap, stretch->change.domain, &gm_rec.blocks[id]);
	describe(stretch, alloc, id);
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

int gm_cached_alloc(struct gm_cached *heap, uint64_t op, struct gm_alloc *alloc,
		    uint32_t *ret_block)
{
	struct gm_stretch stretch = { .alloc = NULL };
	int r;

	*ret_block = GM_NONE;
	if (gm_unlikely(alloc->requested >= GM_HEAP_REQUEST_LIMIT))
		return -E2BIG;
	r = gm_stretch_begin(heap, &stretch, op);
	if (gm_unlikely(r < 0))
		return r;
	if (gm_keep_any(heap->setup.domain)) {
		*ret_block = gm_keep_take(heap, &stretch, alloc);
		if (gm_likely(*ret_block)) {
			describe(&stretch, alloc, *ret_block);
			gm_stretch_end(heap, &stretch);
			return 0;
		}
		/* The heap decides as if nothing had been kept. */
		gm_stretch_cancel(heap, &stretch);
		gm_keep_flush(heap->setup.domain);
		r = gm_stretch_begin(heap, &stretch, op);
		if (r < 0)
			return r;
	}
	r = find(heap, &stretch, alloc, ret_block);
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

	r = gm_heap_alloc(&heap->heap, &request, ret_block);
	if (!stretch->held)
		return r;		/* lost between the driver's calls, and counted */
	if (r == 0) {
		gm_cached_rows(heap, alloc->module, false);	/* found before: it cannot fail */
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
	gm_keep_flush(heap->setup.domain);
	r = gm_stretch_begin(heap, &stretch, op);
	if (r < 0)
		return r;
	r = find(heap, &stretch, alloc, ret_block);
	if (r == 0) {
		gm_stretch_end(heap, &stretch);
		return 0;
	}
	gm_stretch_cancel(heap, &stretch);
	if (r != -EAGAIN)
		return r;
	heap->grower = &stretch;
	r = gm_stretch_begin(heap, &stretch, 0);
	if (r == 0)
		r = grow(heap, &stretch, alloc, ret_block);
	heap->grower = NULL;
	return r;
}

/* ---- free ---- */

static bool is_of(const struct gm_cached *heap, const struct gm_block *block)
{
	return gm_get(&gm_rec.segments[block->segment].heap) == heap->number;
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

	trace(stretch, block, tsc, block->free_stream, block->free_stack, actions, 1);
	gm_heap_free_completed(&heap->heap, id);
}

void gm_cached_free_now(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
		     const struct gm_cached_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED,
						  GM_ACTION_FREE_COMPLETED };
	struct gm_block *block = &gm_rec.blocks[id];

	block->op = stretch->change.op;
	count_free(heap, stretch->change.domain, block);
	trace(stretch, block, how->tsc, how->stream, how->stack, actions, 2);
	gm_heap_free(&heap->heap, id);
}

/* Free, and kept for the next of its size; else false. */
static bool keep(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
		 const struct gm_cached_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED,
						  GM_ACTION_FREE_COMPLETED };
	struct gm_block *block = &gm_rec.blocks[id];

	if (!gm_keep_put(heap, stretch, id))
		return false;
	block->op = stretch->change.op;
	trace(stretch, block, how->tsc, how->stream, how->stack, actions, 2);
	return true;
}

static void free_later(struct gm_cached *heap, struct gm_stretch *stretch, uint32_t id,
		       const struct gm_cached_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED };
	struct gm_block *block = &gm_rec.blocks[id];

	block->op = stretch->change.op;
	count_free(heap, stretch->change.domain, block);
	trace(stretch, block, how->tsc, how->stream, how->stack, actions, 1);
	block->free_stack = how->stack;		/* meaningless while it is not pending: not logged */
	block->free_stream = how->stream;
	gm_heap_free_requested(&heap->heap, id);
}

int gm_cached_free(struct gm_cached *heap, uint64_t op, uint32_t id, uint64_t address,
		   const struct gm_cached_free *how)
{
	struct gm_header *header = gm_header_get();
	struct gm_cached_free with = *how;
	struct gm_stretch stretch = { .alloc = NULL };
	struct gm_block *block;
	int r;

	if (gm_unlikely(!header))
		return -ENODEV;
	block = gm_block_at(header, id);
	if (gm_unlikely(!block))
		return -ENOENT;
	r = gm_stretch_begin(heap, &stretch, op);
	if (gm_unlikely(r < 0))
		return r;
	if (gm_unlikely(!gm_cached_is_live(block) || block->address != address || !is_of(heap, block)))
		r = -ENOENT;
	else if (gm_unlikely(!gm_cached_rows(heap, block->module, stretch.change.writer.nested)))
		r = lost(-ETIMEDOUT);
	if (gm_unlikely(r < 0)) {
		gm_stretch_cancel(heap, &stretch);
		return r;
	}
	if (!with.tsc)
		with.tsc = gm_stamp_before();
	if (with.stack == GM_STACK_OF_BLOCK)
		with.stack = block->stack;
	/* Whoever hears of it meanwhile, and would complete it, waits for our lock. */
	if (!with.now(with.arg, id, heap->number, block->size))
		free_later(heap, &stretch, id, &with);
	else if (!keep(heap, &stretch, id, &with))
		gm_cached_free_now(heap, &stretch, id, &with);
	gm_stretch_end(heap, &stretch);
	if (gm_unlikely(gm_keep_stale(heap->setup.domain)))
		gm_keep_flush(heap->setup.domain);
	return 0;
}

/* As many of @items as are of one heap, BATCH at most, in one hold of its lock. Returns how many
 * were looked at. */
static size_t complete_some(struct gm_cached *heap, const struct gm_reuse_item *items, size_t count)
{
	struct gm_stretch stretch = { .alloc = NULL };
	size_t i = 0;

	if (gm_stretch_begin(heap, &stretch, 0) < 0)
		return 1;		/* counted; it stays pending */
	for (; i < count && i < BATCH && items[i].owner == heap->number; i++) {
		const struct gm_block *block = gm_block_at(gm_header_get(), items[i].block);

		if (!block || gm_get(&block->state) != GM_BLOCK_PENDING || !is_of(heap, block))
			continue;
		gm_cached_complete_pending(heap, &stretch, items[i].block, gm_stamp());
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
