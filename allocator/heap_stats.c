/*
 * heap_stats.c - the heap's statistics: PyTorch's Stat, and its resets.
 */
#include "allocator/heap.h"

static void add(struct gm_undo *undo, struct gm_stat *stat, int64_t amount)
{
	GM_PUT(undo, stat->current, stat->current + amount);
	GM_PUT(undo, stat->allocated, stat->allocated + amount);
	if (stat->current > stat->peak)
		GM_PUT(undo, stat->peak, stat->current);
}

static void sub(struct gm_undo *undo, struct gm_stat *stat, int64_t amount)
{
	GM_PUT(undo, stat->current, stat->current - amount);
	GM_PUT(undo, stat->freed, stat->freed + amount);
}

static enum gm_pool_class class_of(unsigned int pool)
{
	return pool ? GM_POOL_LARGE : GM_POOL_SMALL;
}

void gm_heap_stat_add(struct gm_heap *heap, unsigned int pool, enum gm_stat_name name,
		      int64_t amount)
{
	add(heap->undo, &heap->stats->stat[name][GM_POOL_ALL], amount);
	add(heap->undo, &heap->stats->stat[name][class_of(pool)], amount);
}

void gm_heap_stat_sub(struct gm_heap *heap, unsigned int pool, enum gm_stat_name name,
		      int64_t amount)
{
	sub(heap->undo, &heap->stats->stat[name][GM_POOL_ALL], amount);
	sub(heap->undo, &heap->stats->stat[name][class_of(pool)], amount);
}

void gm_heap_stat_oversize(struct gm_heap *heap, struct gm_stat *stat, int amount)
{
	if (amount > 0)
		add(heap->undo, stat, amount);
	else
		sub(heap->undo, stat, -amount);
}

void gm_heap_stat_count(struct gm_heap *heap, int64_t *counter)
{
	GM_PUT(heap->undo, *counter, *counter + 1);
}

static struct gm_stat *nth(struct gm_stats *stats, unsigned int n)
{
	const unsigned int plain = GM_STAT_COUNT * GM_POOL_CLASSES;

	if (n < plain)
		return &stats->stat[n / GM_POOL_CLASSES][n % GM_POOL_CLASSES];
	if (n == plain)
		return &stats->oversize_allocations;
	return n == plain + 1 ? &stats->oversize_segments : NULL;
}

void gm_heap_reset_peak(struct gm_heap *heap)
{
	struct gm_stat *stat;

	for (unsigned int n = 0; (stat = nth(heap->stats, n)); n++)
		GM_PUT(heap->undo, stat->peak, stat->current);
}

void gm_heap_reset_accumulated(struct gm_heap *heap)
{
	struct gm_stat *stat;

	for (unsigned int n = 0; (stat = nth(heap->stats, n)); n++) {
		GM_PUT(heap->undo, stat->allocated, 0);
		GM_PUT(heap->undo, stat->freed, 0);
	}
	GM_PUT(heap->undo, heap->stats->num_alloc_retries, 0);
	GM_PUT(heap->undo, heap->stats->num_ooms, 0);
	GM_PUT(heap->undo, heap->stats->num_sync_all_streams, 0);
	GM_PUT(heap->undo, heap->stats->num_device_alloc, 0);
	GM_PUT(heap->undo, heap->stats->num_device_free, 0);
}
