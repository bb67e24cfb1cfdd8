/*
 * heap_stats.c - the statistics of heaps, which are PyTorch's.
 *
 * The statistics that one operation changes lie together (enum gm_stat_name), so that one range in the undo area
 * saves them for all classes.
 */
#include "allocator/heap.h"

static inline __attribute__((always_inline)) void save(struct gm_heap *heap,
						       enum gm_stat_name first, unsigned int count)
{
	gm_undo_note_words(heap->undo, heap->stats->stat[first], count * GM_STAT_WORDS);
}

static inline enum gm_pool_class class_of(unsigned int pool)
{
	return pool ? GM_POOL_LARGE : GM_POOL_SMALL;
}

void gm_heap_count_segment(struct gm_heap *heap, unsigned int pool, uint64_t size, bool comes)
{
	enum gm_pool_class class = class_of(pool);

	save(heap, GM_STAT_SEGMENT, 2);
	gm_stats_move(heap->stats, class, GM_STAT_SEGMENT, comes, !comes);
	gm_stats_move(heap->stats, class, GM_STAT_RESERVED_BYTES, comes ? size : 0,
		      comes ? 0 : size);
}

void gm_heap_count_reserved(struct gm_heap *heap, unsigned int pool, uint64_t size, bool comes)
{
	save(heap, GM_STAT_RESERVED_BYTES, 1);
	gm_stats_move(heap->stats, class_of(pool), GM_STAT_RESERVED_BYTES, comes ? size : 0,
		      comes ? 0 : size);
}

void gm_heap_count_out(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t requested)
{
	enum gm_pool_class class = class_of(pool);

	save(heap, GM_STAT_ALLOCATION, 5);
	gm_stats_move(heap->stats, class, GM_STAT_ALLOCATION, 1, 0);
	gm_stats_move(heap->stats, class, GM_STAT_ALLOCATED_BYTES, size, 0);
	gm_stats_move(heap->stats, class, GM_STAT_ACTIVE, 1, 0);
	gm_stats_move(heap->stats, class, GM_STAT_ACTIVE_BYTES, size, 0);
	gm_stats_move(heap->stats, class, GM_STAT_REQUESTED_BYTES, requested, 0);
}

void gm_heap_count_asked(struct gm_heap *heap, unsigned int pool, uint64_t size)
{
	enum gm_pool_class class = class_of(pool);

	save(heap, GM_STAT_ALLOCATION, 2);
	gm_stats_move(heap->stats, class, GM_STAT_ALLOCATION, 0, 1);
	gm_stats_move(heap->stats, class, GM_STAT_ALLOCATED_BYTES, 0, size);
}

void gm_heap_count_done(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t requested)
{
	enum gm_pool_class class = class_of(pool);

	save(heap, GM_STAT_ACTIVE, 3);
	gm_stats_move(heap->stats, class, GM_STAT_ACTIVE, 0, 1);
	gm_stats_move(heap->stats, class, GM_STAT_ACTIVE_BYTES, 0, size);
	gm_stats_move(heap->stats, class, GM_STAT_REQUESTED_BYTES, 0, requested);
}

void gm_heap_count_splits(struct gm_heap *heap, unsigned int pool, int64_t blocks, int64_t bytes)
{
	enum gm_pool_class class = class_of(pool);

	save(heap, GM_STAT_INACTIVE_SPLIT, 2);
	gm_stats_move(heap->stats, class, GM_STAT_INACTIVE_SPLIT, gm_more(blocks), gm_less(blocks));
	gm_stats_move(heap->stats, class, GM_STAT_INACTIVE_SPLIT_BYTES, gm_more(bytes),
		      gm_less(bytes));
}

void gm_heap_count_oversize(struct gm_heap *heap, struct gm_stat *stat, int by)
{
	gm_undo_note_words(heap->undo, stat, sizeof(*stat) / sizeof(uint64_t));
	gm_stat_move(stat, gm_more(by), gm_less(by));
}

void gm_heap_count_one(struct gm_heap *heap, int64_t *counter)
{
	GM_PUT(heap->undo, *counter, *counter + 1);
}
