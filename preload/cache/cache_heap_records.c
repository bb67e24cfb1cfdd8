/*
 * cache_heap_records.c - the backend of a heap, except the driver: records in the tables, the lock, events.
 *
 * Of an unused record only its mark and its place in the list of unused records mean anything. So the other stores
 * into a record that is being taken into use need no undo.
 *
 * Thread context: the holder of the domain's lock within a locked section, except for the driver's calls.
 */
#include "preload/cache/cache_heap_internal.h"
#include "preload/cache/thread_cache.h"

#define KEPT_AT_ONCE 4u			/* in one transaction, because its undo area is limited */

/* ---- the lock, between the driver's calls ---- */

static void unlock(void *arg)
{
	struct gm_cache_heap *heap = arg;

	gm_section_end(heap, heap->grower);
}

/* The locked section that hands out the driver's memory has the operation's own number, and no other section has it.
 * By that number a reader knows that the operation is done. */
static bool lock(void *arg, bool grown)
{
	struct gm_cache_heap *heap = arg;
	struct gm_section *section = heap->grower;
	uint64_t op;

	if (gm_section_enter(heap, section, grown ? section->op : 0))
		return false;
	op = section->change.op;
	if (grown)			/* the request may raise a peak */
		gm_tcache_empty_all(section);
	section->change.op = op;
	gm_section_open(heap, section);
	if (section->alloc)		/* others had the lock meanwhile: find the rows for the new memory again */
		gm_cache_heap_rows(heap, section->alloc->module, false);
	return true;
}

/* ---- records ---- */

/* Take an unused segment id. Changes the domain's list of unused segments, logged. */
static uint32_t take_segment(struct gm_cache_heap *heap, struct gm_change *change)
{
	struct gm_domain_state *state = &gm_rec.domain[change->number];
	struct gm_domain *domain = change->domain;
	uint32_t id = domain->unused_segments;

	if (id) {
		gm_undo_note(&heap->undo, &domain->unused_segments);
		gm_undo_note(&heap->undo, &gm_rec.segments[id].next);
		domain->unused_segments = gm_rec.segments[id].next;
		return id;
	}
	id = state->spare_segment;
	state->spare_segment = GM_NONE;
	return id ? id : gm_region_take(GM_REGION_SEGMENTS, change->writer.nested);
}

static void link_segment(struct gm_undo *undo, struct gm_domain *domain, uint32_t id)
{
	gm_undo_note(undo, &domain->first_segment);	/* and last_segment */
	if (domain->last_segment)
		GM_PUT(undo, gm_rec.segments[domain->last_segment].next, id);
	else
		domain->first_segment = id;
	gm_rec.segments[id].prev = domain->last_segment;
	gm_rec.segments[id].next = GM_NONE;
	domain->last_segment = id;
}

static uint32_t segment_new(void *arg)
{
	struct gm_cache_heap *heap = arg;
	struct gm_section *section = heap->section;
	const struct gm_alloc *alloc = section->alloc;
	uint32_t id = take_segment(heap, &section->change);
	struct gm_segment *segment = &gm_rec.segments[id];

	if (!id)
		return GM_NONE;
	gm_undo_note(&heap->undo, &segment->used);
	segment->handle = 0;
	segment->op = section->change.op;
	segment->tsc = gm_stamp();
	segment->context = heap->context;
	segment->stack = alloc->stack;
	segment->pool_lo = 0;
	segment->pool_hi = 0;
	segment->module = alloc->module;
	segment->domain = heap->domain;
	segment->kind = heap->kind;
	gm_set(&segment->heap, heap->number);
	link_segment(&heap->undo, section->change.domain, id);
	segment->used = 1;
	return id;
}

static void segment_drop(void *arg, uint32_t id)
{
	struct gm_cache_heap *heap = arg;
	struct gm_domain *domain = heap->section->change.domain;
	struct gm_segment *segment = &gm_rec.segments[id];
	struct gm_undo *undo = &heap->undo;

	if (!segment->prev || !segment->next)
		gm_undo_note(undo, &domain->first_segment);	/* and last_segment */
	if (segment->prev)
		GM_PUT(undo, gm_rec.segments[segment->prev].next, segment->next);
	else
		domain->first_segment = segment->next;
	if (segment->next)
		GM_PUT(undo, gm_rec.segments[segment->next].prev, segment->prev);
	else
		domain->last_segment = segment->prev;
	GM_PUT(undo, segment->used, 0);
	GM_PUT(undo, segment->op, heap->section->change.op);
	GM_PUT(undo, segment->next, domain->unused_segments);
	GM_PUT(undo, domain->unused_segments, id);
}

/* Take an unused block id, as take_segment does. */
static uint32_t take_block(struct gm_cache_heap *heap, struct gm_change *change)
{
	struct gm_domain *domain = change->domain;
	uint32_t id = domain->unused_blocks;
	struct gm_undo_log log;

	if (gm_likely(id)) {
		if (gm_undo_open(&heap->undo, 2, &log)) {
			gm_undo_save(&log, gm_undo_word(&domain->unused_blocks));
			gm_undo_save(&log, gm_undo_word(&gm_rec.blocks[id].next));
			gm_undo_close(&heap->undo, &log);
		}
		domain->unused_blocks = gm_rec.blocks[id].next;
		return id;
	}
	return gm_region_take(GM_REGION_BLOCKS, change->writer.nested);
}

void gm_cache_heap_keep_records(struct gm_cache_heap *heap)
{
	uint32_t id = GM_NONE;

	for (unsigned int i = 0; i < KEPT_AT_ONCE && heap->kept_count < GM_CACHE_KEPT; i++) {
		id = take_block(heap, &heap->section->change);
		if (!id)
			return;
		heap->kept[heap->kept_count++] = id;
	}
}

/* The heap itself logs the state when it sets it. Until then the record stays unused. */
static uint32_t block_new(void *arg, bool goes_back)
{
	struct gm_cache_heap *heap = arg;
	struct gm_change *change = &heap->section->change;
	uint32_t id = take_block(heap, change);
	struct gm_block *block;

	if (gm_unlikely(!id && goes_back && heap->kept_count))
		id = heap->kept[--heap->kept_count];
	if (gm_unlikely(!id))
		return GM_NONE;
	block = &gm_rec.blocks[id];
	__atomic_store_n(&block->requested, 0, __ATOMIC_RELAXED);
	block->tsc = 0;
	block->op = change->op;
	block->prev = GM_NONE;
	block->next = GM_NONE;
	block->stack = GM_NONE;
	block->thread = 0;
	block->module = 0;
	/* At the first use nobody knows the id yet; later the domain stays the same. */
	__atomic_store_n(&block->domain, heap->domain, __ATOMIC_RELAXED);
	block->kind = heap->kind;
	return id;
}

static void block_drop(void *arg, uint32_t id)
{
	struct gm_cache_heap *heap = arg;
	struct gm_domain *domain = heap->section->change.domain;
	struct gm_block *block = &gm_rec.blocks[id];
	struct gm_undo_log log;

	if (gm_undo_open(&heap->undo, 3, &log)) {
		gm_undo_save(&log, gm_undo_word((const void *)&block->state));
		gm_undo_save(&log, gm_undo_word(&block->next));
		gm_undo_save(&log, gm_undo_word(&domain->unused_blocks));
		gm_undo_close(&heap->undo, &log);
	}
	gm_set(&block->state, GM_BLOCK_UNUSED);
	block->next = domain->unused_blocks;
	domain->unused_blocks = id;
}

void gm_cache_heap_drop_records(struct gm_cache_heap *heap)
{
	for (unsigned int i = 0; i < KEPT_AT_ONCE && heap->kept_count; i++)
		block_drop(heap, heap->kept[--heap->kept_count]);
}

/* ---- events ---- */

/* Write an event of a segment or of pages. As in PyTorch, its stack is that of the allocation that needs the memory,
 * else that of the segment. Pieces below history_min_size leave no event. @tsc 0: the section's stamp, else now. */
static void memory_event(const struct gm_cache_heap *heap, uint32_t id, enum gm_action action, uint64_t tsc,
			 uint64_t address, uint64_t bytes)
{
	const struct gm_section *section = heap->section;
	const struct gm_segment *segment = &gm_rec.segments[id];
	uint32_t stack = section->alloc ? section->alloc->stack :
			 section->drops && section->stack != GM_STACK_OF_BLOCK ? section->stack :
			 segment->stack;

	if (gm_get(&gm_header_get()->history_context) == GM_CONTEXT_STATE)
		stack = GM_NONE;
	if (gm_untraced(bytes))
		gm_change_untraced(&section->change, 1);
	else
		gm_change_event(&section->change, segment, action, tsc ? tsc : section->tsc ? section->tsc : gm_stamp(),
				address, bytes, segment->stream, stack);
}

static void segment_event(void *arg, bool allocated, uint32_t id)
{
	const struct gm_segment *segment = &gm_rec.segments[id];

	memory_event(arg, id, allocated ? GM_ACTION_SEGMENT_ALLOC : GM_ACTION_SEGMENT_FREE,
		     allocated ? segment->tsc : 0, segment->address, segment->size);
}

static void page_event(void *arg, bool mapped, uint32_t id, uint64_t address, uint64_t bytes)
{
	memory_event(arg, id, mapped ? GM_ACTION_SEGMENT_MAP : GM_ACTION_SEGMENT_UNMAP, 0, address, bytes);
}

void gm_cache_heap_records(struct gm_heap_ops *ops)
{
	ops->segment_new = segment_new;
	ops->segment_drop = segment_drop;
	ops->block_new = block_new;
	ops->block_drop = block_drop;
	ops->lock = lock;
	ops->unlock = unlock;
	ops->segment_event = segment_event;
	ops->page_event = page_event;
	ops->moves_passed = true;
}
