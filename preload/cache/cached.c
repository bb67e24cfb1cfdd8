/*
 * cached.c - heaps whose records lie in the journal: made, and their rows. See cached.h.
 *
 * Thread context: any, inside a hook. Signal context: none. Fork: forgotten. Lock: the domain's.
 */
#include "preload/cache/cached_internal.h"

#include <errno.h>

#include "preload/cache/cached_ledger.h"

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
		.memory_arg = &heap->arena, .map = heap->setup.map, .domain = heap->setup.domain,
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
	heap->plain = gm_heap_rounds_plainly(setup->config);
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

bool gm_cached_find_rows(struct gm_cached *heap, uint16_t module, bool nested)
{
	struct gm_delta delta;

	if (!gm_delta_init(&delta, heap->setup.domain, module, heap->setup.kind, 0, nested))
		return false;
	for (unsigned int i = 0; i < 3; i++)
		heap->rows[i] = delta.rows[i];
	heap->module = module;
	heap->rows_known = true;
	heap->heap.key = gm_usage_key(heap->setup.domain, module, heap->setup.kind);
	return true;
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
