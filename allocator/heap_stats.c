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

/* The hot ones log all their words at once: a word costs five instructions, not fifteen. */
static inline __attribute__((always_inline)) void save(struct gm_undo_log *log,
						       const struct gm_stat *stat, bool up)
{
	gm_undo_save(log, &stat->current);
	gm_undo_save(log, up ? &stat->allocated : &stat->freed);
}

static inline __attribute__((always_inline)) void up(struct gm_undo *undo, struct gm_stat *stat,
						     int64_t amount)
{
	int64_t current = stat->current + amount;

	stat->current = current;
	stat->allocated += amount;
	if (__builtin_expect(current > stat->peak, 0))
		GM_PUT(undo, stat->peak, current);
}

static inline __attribute__((always_inline)) void down(struct gm_stat *stat, int64_t amount)
{
	stat->current -= amount;
	stat->freed += amount;
}

static enum gm_pool_class class_of(unsigned int pool)
{
	return pool ? GM_POOL_LARGE : GM_POOL_SMALL;
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

/* The rows of one class: @stats->stat[0][class], the others GM_POOL_CLASSES apart. */
#define ROW(name) row[(name) * GM_POOL_CLASSES]

void gm_heap_count_out(struct gm_heap *heap, unsigned int pool, uint64_t size, uint64_t requested)
{
	struct gm_stat *const rows[] = { &heap->stats->stat[0][GM_POOL_ALL],
					 &heap->stats->stat[0][class_of(pool)] };
	int64_t bytes = (int64_t)size, asked = (int64_t)requested;
	struct gm_undo *undo = heap->undo;
	struct gm_undo_log log;

	if (gm_undo_open(undo, 20, &log)) {
		for (int i = 0; i < 2; i++) {
			const struct gm_stat *row = rows[i];

			save(&log, &ROW(GM_STAT_ALLOCATION), true);
			save(&log, &ROW(GM_STAT_ALLOCATED_BYTES), true);
			save(&log, &ROW(GM_STAT_ACTIVE), true);
			save(&log, &ROW(GM_STAT_ACTIVE_BYTES), true);
			save(&log, &ROW(GM_STAT_REQUESTED_BYTES), true);
		}
		gm_undo_close(undo, &log);
	}
	for (int i = 0; i < 2; i++) {
		struct gm_stat *row = rows[i];

		up(undo, &ROW(GM_STAT_ALLOCATION), 1);
		up(undo, &ROW(GM_STAT_ALLOCATED_BYTES), bytes);
		up(undo, &ROW(GM_STAT_ACTIVE), 1);
		up(undo, &ROW(GM_STAT_ACTIVE_BYTES), bytes);
		up(undo, &ROW(GM_STAT_REQUESTED_BYTES), asked);
	}
}

static inline __attribute__((always_inline)) void count_back(struct gm_heap *heap,
							     unsigned int pool, uint64_t size,
							     uint64_t requested, bool asked,
							     bool done)
{
	struct gm_stat *const rows[] = { &heap->stats->stat[0][GM_POOL_ALL],
					 &heap->stats->stat[0][class_of(pool)] };
	struct gm_undo_log log;

	if (gm_undo_open(heap->undo, 20, &log)) {
		for (int i = 0; i < 2; i++) {
			const struct gm_stat *row = rows[i];

			if (asked) {
				save(&log, &ROW(GM_STAT_ALLOCATION), false);
				save(&log, &ROW(GM_STAT_ALLOCATED_BYTES), false);
			}
			if (done) {
				save(&log, &ROW(GM_STAT_ACTIVE), false);
				save(&log, &ROW(GM_STAT_ACTIVE_BYTES), false);
				save(&log, &ROW(GM_STAT_REQUESTED_BYTES), false);
			}
		}
		gm_undo_close(heap->undo, &log);
	}
	for (int i = 0; i < 2; i++) {
		struct gm_stat *row = rows[i];

		if (asked) {
			down(&ROW(GM_STAT_ALLOCATION), 1);
			down(&ROW(GM_STAT_ALLOCATED_BYTES), (int64_t)size);
		}
		if (done) {
			down(&ROW(GM_STAT_ACTIVE), 1);
			down(&ROW(GM_STAT_ACTIVE_BYTES), (int64_t)size);
			down(&ROW(GM_STAT_REQUESTED_BYTES), (int64_t)requested);
		}
	}
}

void gm_heap_count_asked(struct gm_heap *heap, unsigned int pool, uint64_t size)
{
	count_back(heap, pool, size, 0, true, false);
}

void gm_heap_count_done(struct gm_heap *heap, unsigned int pool, uint64_t size,
			uint64_t requested)
{
	count_back(heap, pool, size, requested, false, true);
}

void gm_heap_count_both(struct gm_heap *heap, unsigned int pool, uint64_t size,
			uint64_t requested)
{
	count_back(heap, pool, size, requested, true, true);
}

/* Both statistics, in all and in one class, by amounts of either sign; none is 0 for nothing. */
static inline __attribute__((always_inline)) void move(struct gm_heap *heap, unsigned int pool,
						       enum gm_stat_name first, int64_t a,
						       enum gm_stat_name second, int64_t b)
{
	struct gm_stat *rows[] = { &heap->stats->stat[0][GM_POOL_ALL],
				   &heap->stats->stat[0][class_of(pool)] };
	struct gm_undo_log log;

	if (gm_undo_open(heap->undo, 8, &log)) {
		for (int i = 0; i < 2; i++) {
			const struct gm_stat *row = rows[i];

			if (a)
				save(&log, &ROW(first), a > 0);
			if (b)
				save(&log, &ROW(second), b > 0);
		}
		gm_undo_close(heap->undo, &log);
	}
	for (int i = 0; i < 2; i++) {
		struct gm_stat *row = rows[i];

		if (a > 0)
			up(heap->undo, &ROW(first), a);
		else if (a < 0)
			down(&ROW(first), -a);
		if (b > 0)
			up(heap->undo, &ROW(second), b);
		else if (b < 0)
			down(&ROW(second), -b);
	}
}

void gm_heap_count_split(struct gm_heap *heap, unsigned int pool, int64_t count, int64_t bytes)
{
	move(heap, pool, GM_STAT_INACTIVE_SPLIT, count, GM_STAT_INACTIVE_SPLIT_BYTES, bytes);
}

void gm_heap_count_segment(struct gm_heap *heap, unsigned int pool, int64_t count, int64_t bytes)
{
	move(heap, pool, GM_STAT_SEGMENT, count, GM_STAT_RESERVED_BYTES, bytes);
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
