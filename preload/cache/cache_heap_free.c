/*
 * cache_heap_free.c - free blocks of a heap, and complete frees: see cache_heap.h.
 *
 * A freed block goes into its thread's cache (thread_cache.c), or is freed in locked sections like those of
 * cache_heap_alloc.c.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the domain's.
 */
#include "preload/cache/thread_cache.h"

#include <errno.h>

#include "preload/order/reuse.h"
#include "preload/cache/cache_heap_internal.h"

#define BATCH 32u			/* blocks completed before the lock is released */

static void count_free(struct gm_cache_heap *heap, const struct gm_block *block)
{
	gm_cache_heap_move(heap, &(struct gm_flow){ .out = 1, .out_bytes = block->size },
			0 - block->requested);
}

static bool is_of(const struct gm_cache_heap *heap, const struct gm_block *block)
{
	uint32_t segment = __atomic_load_n(&block->segment, __ATOMIC_RELAXED);

	return gm_get(&gm_rec.segments[segment].heap) == heap->number;
}

struct gm_cache_heap *gm_cache_heap_of(uint32_t id, struct gm_block *ret_copy)
{
	if (!gm_header_get() || !gm_record_block(id, ret_copy))
		return NULL;
	return gm_cache_heap_by_number(gm_get(&gm_rec.segments[ret_copy->segment].heap));
}

struct gm_cache_heap *gm_cache_heap_peek(uint32_t id, struct gm_cache_view *ret)
{
	struct gm_header *header = gm_header_get();
	const struct gm_block *block = header ? gm_block_at(header, id) : NULL;
	uint32_t segment;

	if (!block)
		return NULL;
	ret->state = gm_get_acquire(&block->state);
	ret->address = __atomic_load_n(&block->address, __ATOMIC_RELAXED);
	ret->stream = __atomic_load_n(&block->stream, __ATOMIC_RELAXED);
	ret->requested = __atomic_load_n(&block->requested, __ATOMIC_RELAXED);
	ret->module = __atomic_load_n(&block->module, __ATOMIC_RELAXED);
	segment = __atomic_load_n(&block->segment, __ATOMIC_RELAXED);
	return gm_cache_heap_by_number(gm_get(&gm_rec.segments[segment].heap));
}

/* Each of these functions writes the events before the heap moves the block, because the block may be merged then. */
void gm_cache_heap_complete_pending(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
			     uint64_t tsc, bool seen)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_COMPLETED };
	struct gm_block *block = &gm_rec.blocks[id];

	gm_cache_heap_trace_at(&section->change, block, tsc, block->free_stream, block->free_stack, actions,
			   1);
	gm_cache_heap_site_out(heap, block);
	heap->seen = seen;
	gm_heap_free_completed(heap->core, id);
	heap->seen = false;
}

void gm_cache_heap_free_now(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
		     const struct gm_cache_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED,
						  GM_ACTION_FREE_COMPLETED };
	struct gm_block *block = &gm_rec.blocks[id];

	block->op = section->change.op;
	count_free(heap, block);
	gm_cache_heap_trace(&section->change, block, how, actions, 2);
	gm_cache_heap_site_out(heap, block);
	gm_heap_free(heap->core, id);
}

static void free_later(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
		       const struct gm_cache_free *how)
{
	static const enum gm_action actions[] = { GM_ACTION_FREE_REQUESTED };
	struct gm_block *block = &gm_rec.blocks[id];

	block->op = section->change.op;
	count_free(heap, block);
	/* Until the free is complete, the block counts as live for the stack that it was handed out to. */
	if (gm_unlikely(gm_site_is_other(block, block->stack, block->requested)))
		gm_cache_heap_site_move(heap, block, section->change.writer.nested);
	gm_cache_heap_trace(&section->change, block, how, actions, 1);
	/* Not logged, because these members mean nothing unless the block is pending. */
	block->free_stack = how->stack == GM_STACK_OF_BLOCK ? block->stack : how->stack;
	block->free_stream = how->stream;
	gm_heap_free_requested(heap->core, id);
}

static bool move_state(struct gm_block *block, enum gm_block_state from, enum gm_block_state to)
{
	uint8_t expected = (uint8_t)from;

	return atomic_compare_exchange_strong_explicit(&block->state, &expected, (uint8_t)to,
						       memory_order_acq_rel, memory_order_relaxed);
}

static bool begins_at(const struct gm_cache_heap *heap, const struct gm_block *block, uint64_t address)
{
	return __atomic_load_n(&block->address, __ATOMIC_RELAXED) == address && is_of(heap, block);
}

/* Claim the right to free @block, which no other thread gets from then on. For the program the block is free then,
 * for readers it is live. */
static bool claim(const struct gm_cache_heap *heap, struct gm_block *block, uint64_t address)
{
	if (gm_unlikely(!begins_at(heap, block, address)) ||
	    gm_unlikely(!move_state(block, GM_BLOCK_ACTIVE, GM_BLOCK_FREEING)))
		return false;
	/* If two threads free it at once, it may have become another block between the two steps. */
	if (gm_likely(begins_at(heap, block, address)))
		return true;
	move_state(block, GM_BLOCK_FREEING, GM_BLOCK_ACTIVE);
	return false;
}

/* Postpone a completed free, because the heap is suspended. gm_cache_heap_suspend completes it when the heap resumes,
 * unless the heap ends first. */
static void put_off(struct gm_cache_heap *heap, struct gm_block *block)
{
	block->flags |= GM_BLOCK_DONE;
	heap->put_off = true;
}

/* Free the block within a section and transaction. The usage rows of its module are known. */
static void free_in_section(struct gm_cache_heap *heap, struct gm_section *section, uint32_t id,
			    const struct gm_cache_free *how, enum gm_cache_when when)
{
	struct gm_block *block = &gm_rec.blocks[id];
	bool now;

	if (block->flags & GM_BLOCK_DONE)
		when = GM_FREE_SEEN;
	now = when != GM_FREE_LATER;
	heap->seen = when == GM_FREE_SEEN;
	if (now && !heap->suspended)
		gm_cache_heap_free_now(heap, section, id, how);
	else
		free_later(heap, section, id, how);
	heap->seen = false;
	if (now && heap->suspended)
		put_off(heap, block);
}

/* Free a block that cannot be cached, under the domain's lock. */
static int free_locked(struct gm_cache_heap *heap, uint64_t op, uint32_t id,
		       const struct gm_cache_free *how, enum gm_cache_when when)
{
	struct gm_block *block = &gm_rec.blocks[id];
	struct gm_section section;
	int r;

	gm_section_make(&section, true);
	r = gm_section_begin(heap, &section, op);
	if (gm_unlikely(r < 0))
		return r;
	gm_heap_prefetch(heap->core, id);
	if (gm_unlikely(!gm_cache_heap_rows(heap, block->module, section.change.writer.nested))) {
		gm_section_cancel(heap, &section);
		return gm_cache_heap_lost(-ETIMEDOUT);
	}
	free_in_section(heap, &section, id, how, when);
	gm_section_end(heap, &section);
	return 0;
}

/* ---- frees whose lock could not be had: see recorder/record/tables.h ---- */

/* A queued free keeps @when and the heap's number, because a block may belong to another heap if its own ends
 * meanwhile. */
#define LATE_WHEN 4u
_Static_assert(GM_FREE_ASK < LATE_WHEN, "it has room");

static void queue(const struct gm_cache_heap *heap, uint32_t id, uint64_t stream, uint32_t stack,
		  enum gm_cache_when when)
{
	struct gm_block *block = &gm_rec.blocks[id];

	gm_late_add(block, id, stream, stack == GM_STACK_OF_BLOCK ? block->stack : stack,
		    (uint64_t)heap->number * LATE_WHEN + when);
}

static gm_cache_ask_fn *ask;

void gm_cache_heap_ask(gm_cache_ask_fn *fn)
{
	ask = fn;
}

bool gm_cache_heap_free_late(const struct gm_change *change, uint32_t id)
{
	struct gm_block *block = &gm_rec.blocks[id];
	struct gm_cache_heap *heap = gm_cache_heap_by_number((uint32_t)(block->late / LATE_WHEN));
	const struct gm_cache_free how = { .stream = block->free_stream, .stack = block->free_stack };
	enum gm_cache_when when = block->late % LATE_WHEN;
	struct gm_section section = { .change = *change };

	if (!heap || gm_get(&block->state) != GM_BLOCK_FREEING || !is_of(heap, block))
		return true;
	if (!gm_cache_heap_rows(heap, block->module, change->writer.nested))
		return false;
	if (when == GM_FREE_ASK)
		when = ask ? ask(id, heap->number, block->size) : GM_FREE_LATER;
	gm_section_turn(heap, &section);
	free_in_section(heap, &section, id, &how, when);
	gm_section_close(heap, &section);
	return true;
}

bool gm_cache_heap_free_inside(uint32_t id, uint64_t address)
{
	struct gm_header *header = gm_header_get();
	struct gm_block *block = header ? gm_block_at(header, id) : NULL;
	uint32_t segment = block ? __atomic_load_n(&block->segment, __ATOMIC_RELAXED) : GM_NONE;
	struct gm_cache_heap *heap = gm_cache_heap_by_number(gm_get(&gm_rec.segments[segment].heap));

	if (!heap || !claim(heap, block, address))
		return false;
	queue(heap, id, 0, GM_NONE, GM_FREE_ASK);
	return true;
}

int gm_cache_heap_free(struct gm_cache_heap *heap, uint64_t op, uint32_t id, uint64_t address,
		   const struct gm_cache_free *how)
{
	struct gm_header *header = gm_header_get();
	struct gm_block *block;
	enum gm_cache_when when;
	uint64_t size;
	int r;

	if (gm_unlikely(!header))
		return -ENODEV;
	block = gm_block_at(header, id);
	if (gm_unlikely(!block || !claim(heap, block, address)))
		return -ENOENT;
	/* The heap may be ending at this time. free_locked finds that out. */
	size = __atomic_load_n(&block->size, __ATOMIC_RELAXED);
	when = how->when(how->arg, id, heap->number, size);
	if (gm_likely(when) && gm_likely(gm_tcache_wants(heap, size)) &&
	    gm_likely(gm_tcache_put(heap, id, op, how)))
		return 0;
	r = free_locked(heap, op, id, how, when);
	if (gm_likely(r == 0))
		return 0;
	if (r != -ETIMEDOUT) {		/* the heap is gone with its blocks */
		move_state(block, GM_BLOCK_FREEING, GM_BLOCK_ACTIVE);
		return r;
	}
	gm_late_not_lost();
	queue(heap, id, how->stream, how->stack, when);
	return 0;
}

/* Complete items of the first one's heap, up to BATCH, in one locked section. Returns how many were handled; 0: the
 * lock could not be taken. */
static size_t complete_some(struct gm_cache_heap *heap, const struct gm_reuse_item *items, size_t count)
{
	struct gm_section section;
	bool any = false;
	size_t i = 0;
	int r;

	gm_section_make(&section, true);
	r = gm_section_begin(heap, &section, 0);
	if (gm_unlikely(r < 0))
		return r != -ETIMEDOUT;	/* after any other error the heap is gone with its blocks */
	for (; i < count && i < BATCH && items[i].owner == heap->number; i++) {
		struct gm_block *block = gm_block_at(gm_header_get(), items[i].block);

		if (block && gm_get(&block->state) == GM_BLOCK_FREEING && is_of(heap, block))
			block->flags |= GM_BLOCK_DONE;		/* its free is under way, and completes at once */
		if (!block || gm_get(&block->state) != GM_BLOCK_PENDING || !is_of(heap, block))
			continue;
		if (gm_unlikely(heap->suspended)) {
			put_off(heap, block);
			continue;
		}
		if (any)		/* each in a transaction of its own */
			gm_section_next(heap, &section);
		gm_cache_heap_complete_pending(heap, &section, items[i].block,
					   gm_rec.history ? gm_stamp() : 0, true);
		any = true;
	}
	if (any)
		gm_section_end(heap, &section);
	else
		gm_section_cancel(heap, &section);
	return i;
}

size_t gm_cache_heap_complete(const struct gm_reuse_item *items, size_t count)
{
	size_t done = 0, more = 1;

	for (; done < count && more; done += more) {
		struct gm_cache_heap *heap = gm_cache_heap_by_number(items[done].owner);

		more = heap ? complete_some(heap, items + done, count - done) : 1;
	}
	return done;
}
