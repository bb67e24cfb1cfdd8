/*
 * cached.c - heaps whose records lie in the journal: made, and their rows. See cached.h.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the domain's.
 */
#include "preload/cache/cached_internal.h"

#include <errno.h>

static void *memory(void *arg, size_t bytes)
{
	return gm_arena_take(arg, bytes);
}

/* Where the heap saves what its transactions change: in the domain's undo area. */
static void set_undo(struct gm_undo *undo, struct gm_domain *domain)
{
	_Static_assert(sizeof(struct gm_undo_pair) == sizeof(struct gm_undo_entry) &&
		       offsetof(struct gm_undo_pair, old) == offsetof(struct gm_undo_entry, old) &&
		       GM_UNDO_WORDS == GM_UNDO_RANGE, "one layout");
	*undo = (struct gm_undo){
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
		.memory_arg = &heap->arena, .map = heap->setup.map, .domain = heap->setup.domain,
	};
	struct gm_change change;
	int r;

	set_undo(&heap->undo, &gm_rec.domains[heap->setup.domain]);
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
	heap->domain = setup->domain;
	heap->plain = gm_heap_rounds_plainly(setup->config);
	r = init(heap, links);
	gm_set(&heap->thread_cache, setup->thread_cache && !gm_heap_collects(&heap->heap));
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
	return true;
}

static void set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

void gm_cached_move(struct gm_cached *heap, const struct gm_flow *flow, uint64_t used)
{
	uint64_t *live = &gm_rec.domains[heap->domain].live_bytes[heap->setup.kind];
	uint64_t by = flow->in_bytes - flow->out_bytes;
	struct gm_undo *undo = &heap->undo;

	gm_undo_note(undo, live);
	*live += by;
	for (unsigned int i = 0; i < 3; i++) {
		struct gm_usage *row = heap->rows[i];

		if (!row)
			continue;
		gm_undo_note_words(undo, &row->current_bytes, GM_USAGE_WORDS);
		gm_usage_move(row, flow);
	}
	set(&heap->live, heap->live + by);
	set(&heap->used, heap->used + used);
	if (gm_unlikely(heap->used > heap->used_high))
		set(&heap->used_high, heap->used);
}
