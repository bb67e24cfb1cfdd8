/*
 * heap_stats.c - the heap's statistics: PyTorch's Stat, and its resets.
 */
#include "allocator/heap.h"

/* What was ever allocated may pass 2^63 bytes, one GiB at a time within the hour: it wraps. */
static inline int64_t total(int64_t before, int64_t amount)
{
	return (int64_t)((uint64_t)before + (uint64_t)amount);
}

static void add(struct gm_undo *undo, struct gm_stat *stat, int64_t amount)
{
	GM_PUT(undo, stat->current, stat->current + amount);
	GM_PUT(undo, stat->allocated, total(stat->allocated, amount));
	if (stat->current > stat->peak)
		GM_PUT(undo, stat->peak, stat->current);
}

static void sub(struct gm_undo *undo, struct gm_stat *stat, int64_t amount)
{
	GM_PUT(undo, stat->current, stat->current - amount);
	GM_PUT(undo, stat->freed, total(stat->freed, amount));
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
	stat->allocated = total(stat->allocated, amount);
	if (__builtin_expect(current > stat->peak, 0))
		GM_PUT(undo, stat->peak, current);
}

static inline __attribute__((always_inline)) void down(struct gm_stat *stat, int64_t amount)
{
	stat->current -= amount;
	stat->freed = total(stat->freed, amount);
}

static inline enum gm_pool_class class_of(unsigned int pool)
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

/* ---- the statistics themselves, when there is no ledger or a peak is passed ---- */

static inline __attribute__((always_inline)) void out(struct gm_heap *heap, unsigned int pool,
						      const struct gm_heap_move *move)
{
	struct gm_stat *const rows[] = { &heap->stats->stat[0][GM_POOL_ALL],
					 &heap->stats->stat[0][class_of(pool)] };
	int64_t bytes = (int64_t)move->size, asked = (int64_t)move->requested;
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

static inline __attribute__((always_inline)) void back(struct gm_heap *heap, unsigned int pool,
						       const struct gm_heap_move *move, bool asked,
						       bool done)
{
	struct gm_stat *const rows[] = { &heap->stats->stat[0][GM_POOL_ALL],
					 &heap->stats->stat[0][class_of(pool)] };
	int64_t bytes = (int64_t)move->size;
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
			down(&ROW(GM_STAT_ALLOCATED_BYTES), bytes);
		}
		if (done) {
			down(&ROW(GM_STAT_ACTIVE), 1);
			down(&ROW(GM_STAT_ACTIVE_BYTES), bytes);
			down(&ROW(GM_STAT_REQUESTED_BYTES), (int64_t)move->requested);
		}
	}
}

/* Both statistics, in all and in one class, by amounts of either sign; none is 0 for nothing. */
static inline __attribute__((always_inline)) void both(struct gm_heap *heap, unsigned int pool,
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

/* ---- one operation ---- */

struct what { bool out, asked, done; };

/* All of a room at once. */
typedef int64_t pair __attribute__((vector_size(16), may_alias));
#define ROOM_PAIRS (sizeof(struct gm_room) / sizeof(pair))
struct need { pair w[ROOM_PAIRS]; };

/* What an operation takes of a room; less than 0: it gives. What its free asked for gives is not what
 * its end does. */
static inline __attribute__((always_inline)) struct need needs(const struct gm_heap_move *move,
							       struct what what)
{
	int64_t sign = what.out ? 1 : -1, bytes = sign * (int64_t)move->size;
	bool block = what.out || what.asked, active = what.out || what.done;

	return (struct need){ {
		{ block ? sign : 0, block ? bytes : 0 },
		{ active ? sign : 0, active ? bytes : 0 },
		{ active ? sign * (int64_t)move->requested : 0, move->splits },
		{ move->split_bytes, 0 },
	} };
}

/* Take it from both rooms, if it is there. (Neither is ever below 0.) */
static inline __attribute__((always_inline)) bool take(struct gm_room *all, struct gm_room *one,
						       const struct need *need)
{
	pair *a = (pair *)all, *b = (pair *)one, below = { 0, 0 };

#pragma GCC unroll 4
	for (unsigned int i = 0; i < ROOM_PAIRS; i++)
		below |= (a[i] - need->w[i]) | (b[i] - need->w[i]);
	if ((below[0] | below[1]) < 0)
		return false;
#pragma GCC unroll 4
	for (unsigned int i = 0; i < ROOM_PAIRS; i++) {
		a[i] -= need->w[i];
		b[i] -= need->w[i];
	}
	return true;
}

/* Is it for the ledger? Then what it needs of the room is taken. */
static inline __attribute__((always_inline)) bool
enter_ledger(const struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move,
	     struct what what)
{
	struct need need = needs(move, what);

	/* What is only complete, or moves no block, is in no row: any key will do but none. */
	if (what.out || what.asked ? heap->ledger->key != heap->key : !heap->ledger->key)
		return false;
	return take(&heap->room[GM_POOL_ALL], &heap->room[class_of(pool)], &need);
}

static inline __attribute__((always_inline)) void
into_ledger(struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move,
	    struct what what)
{
	const unsigned int words = sizeof(struct gm_ledger_pool) / sizeof(uint64_t);
	struct gm_ledger_pool *l = &heap->ledger->pool[pool];
	uint64_t splits = (uint64_t)move->splits, split_bytes = (uint64_t)move->split_bytes;
	struct gm_undo_log log;

	if (gm_undo_open(heap->undo, 1 + (words + 1) / 2, &log)) {
		gm_undo_save_words(&log, l, words);
		gm_undo_close(heap->undo, &log);
	}
	l->outs += what.out;
	l->out_bytes += what.out ? move->size : 0;
	l->out_requested += what.out ? move->requested : 0;
	l->asked += what.asked;
	l->asked_bytes += what.asked ? move->size : 0;
	l->done += what.done;
	l->done_bytes += what.done ? move->size : 0;
	l->done_requested += what.done ? move->requested : 0;
	l->splits += move->splits > 0 ? splits : 0;
	l->split_bytes += move->split_bytes > 0 ? split_bytes : 0;
	l->joins += move->splits < 0 ? 0 - splits : 0;
	l->join_bytes += move->split_bytes < 0 ? 0 - split_bytes : 0;
}

bool gm_heap_has_room(const struct gm_heap *heap, const struct gm_heap_move *move)
{
	struct gm_room all, one;
	struct need need = needs(move, (struct what){ .out = true });

	if (!heap->ledger || heap->ledger->key != heap->key)
		return false;
	all = heap->room[GM_POOL_ALL];
	one = heap->room[class_of(gm_heap_pool_of(move->size))];
	return take(&all, &one, &need);
}

/* Where there is not enough of it, nothing is left: what took it is a new peak. */
static void take_all(struct gm_room *room, const struct need *need)
{
	pair *left = (pair *)room;

	for (unsigned int i = 0; i < 2 * ROOM_PAIRS; i++) {
		left[i / 2][i % 2] -= need->w[i / 2][i % 2];
		if (left[i / 2][i % 2] < 0)
			left[i / 2][i % 2] = 0;
	}
}

static void directly(struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move,
		     struct what what)
{
	if (what.out)
		out(heap, pool, move);
	else
		back(heap, pool, move, what.asked, what.done);
	both(heap, pool, GM_STAT_INACTIVE_SPLIT, move->splits, GM_STAT_INACTIVE_SPLIT_BYTES,
	     move->split_bytes);
	if (heap->ops->count && (what.out || what.asked))
		heap->ops->count(heap->ops->arg, move->size, what.out);
}

/* The ledger is full, of something else, or none. What passes a peak has no room left. */
static __attribute__((noinline)) void count_slow(struct gm_heap *heap, unsigned int pool,
						 const struct gm_heap_move *move, struct what what)
{
	struct need need;

	if (heap->ledger) {
		heap->ops->fold(heap->ops->arg);
		if (enter_ledger(heap, pool, move, what)) {
			into_ledger(heap, pool, move, what);
			return;
		}
		need = needs(move, what);
		take_all(&heap->room[GM_POOL_ALL], &need);
		take_all(&heap->room[class_of(pool)], &need);
	}
	directly(heap, pool, move, what);
}

static inline __attribute__((always_inline)) void count(struct gm_heap *heap, unsigned int pool,
							const struct gm_heap_move *move,
							struct what what)
{
	if (__builtin_expect(heap->ledger && enter_ledger(heap, pool, move, what), 1))
		into_ledger(heap, pool, move, what);
	else
		count_slow(heap, pool, move, what);
}

void gm_heap_count_out(struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move)
{
	count(heap, pool, move, (struct what){ .out = true });
}

void gm_heap_count_asked(struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move)
{
	count(heap, pool, move, (struct what){ .asked = true });
}

void gm_heap_count_done(struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move)
{
	count(heap, pool, move, (struct what){ .done = true });
}

void gm_heap_count_both(struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move)
{
	count(heap, pool, move, (struct what){ .asked = true, .done = true });
}

void gm_heap_count_split(struct gm_heap *heap, unsigned int pool, const struct gm_heap_move *move)
{
	count(heap, pool, move, (struct what){ .out = false });
}

void gm_heap_count_segment(struct gm_heap *heap, unsigned int pool, int64_t count, int64_t bytes)
{
	both(heap, pool, GM_STAT_SEGMENT, count, GM_STAT_RESERVED_BYTES, bytes);
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
