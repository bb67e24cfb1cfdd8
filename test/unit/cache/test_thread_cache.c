/*
 * Thread caches (thread_cache.c) change nothing that a program can ask for, but for inactive splits that
 * came and went: the same random program on a heap with thread caches and on one without, in domains of
 * their own, by one thread and by several that take turns, has the same statistics, peaks too, the same
 * rows and sound tables. All at once, a block is freed once, whoever frees it. And what is rare: threads
 * that end or die there, a heap that goes meanwhile.
 *
 *	SEED=n  the seed
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/cache/thread_cache.h"
#include "recorder/read/copy.h"
#include "test/unit/cache/aux_cache_heap.h"
#include "test/unit/journal/aux_journal.h"
#include "test/suite.h"
#include "test/seed.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define LIVE 64u
#define WORKERS 4u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 3000u
#else
#define STEPS 20000u
#endif

static struct gm_cache_heap *heap[2];	/* 0 with thread caches, 1 without; in domains of their own */
static struct { uint32_t block[2]; uint64_t address[2]; } live[LIVE];
static unsigned int lives;
static uint64_t seed;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void begin(uint64_t history)
{
	seed = test_seed();
	aux_driver_begin(UINT64_MAX);
	aux_start(history);
	aux_tcache = true;
	heap[0] = aux_heap(0, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
	aux_tcache = false;
	heap[1] = aux_heap(1, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
	lives = 0;
}

static uint8_t state_of(uint32_t block)
{
	return gm_get(&gm_rec.blocks[block].state);
}

/* Is the block of live[n] in a thread cache? */
static bool is_cached(unsigned int n)
{
	return state_of(live[n].block[0]) == GM_BLOCK_CACHED;
}

static void all_sound(void)
{
	ck_assert_int_eq(aux_check_heaps(), 0);
	ck_assert_int_eq(gm_recorder_check(), 0);
}

static void alloc_both(uint64_t bytes, uint64_t stream, uint16_t module)
{
	for (unsigned int h = 0; h < 2; h++) {
		struct gm_alloc alloc = aux_request(bytes, stream, module);

		ck_assert_int_eq(aux_serve(heap[h], &alloc, &live[lives].block[h]), 0);
		ck_assert_uint_ge(alloc.size, bytes);
		live[lives].address[h] = alloc.address;
	}
	lives++;
}

static void free_both(unsigned int n)
{
	for (unsigned int h = 0; h < 2; h++) {
		uint32_t block = live[n].block[h];

		ck_assert_int_eq(aux_release(heap[h], block, live[n].address[h], true), 0);
		ck_assert_int_eq(aux_release(heap[h], block, live[n].address[h], true), -ENOENT);
	}
	live[n] = live[--lives];
}

static void same_stats(void)
{
	static const enum gm_stat_name names[] = {
		GM_STAT_ALLOCATION, GM_STAT_ALLOCATED_BYTES, GM_STAT_ACTIVE, GM_STAT_ACTIVE_BYTES,
		GM_STAT_REQUESTED_BYTES
	};
	uint64_t used[2], high[2];
	struct gm_stats stats[2];

	for (uint8_t h = 0; h < 2; h++)
		ck_assert_int_eq(gm_record_stats(h, &stats[h]), 0);
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_mem_eq(stats[0].stat[names[i]], stats[1].stat[names[i]],
				 sizeof(stats[0].stat[0]));
	for (unsigned int h = 0; h < 2; h++)
		gm_cache_heap_used(heap[h], &used[h], &high[h]);
	ck_assert_uint_eq(used[0], used[1]);
	ck_assert_uint_eq(high[0], high[1]);
	/* Where the blocks lie may differ; that the free ones are one with their neighbours not. */
	ck_assert_int_eq(stats[0].stat[GM_STAT_RESERVED_BYTES][0].current -
			 stats[0].stat[GM_STAT_ACTIVE_BYTES][0].current -
			 stats[0].stat[GM_STAT_INACTIVE_SPLIT_BYTES][0].current,
			 (int64_t)gm_cache_heap_idle_bytes(heap[0]));
}

static const struct gm_usage *row_of(const struct gm_copy *copy, unsigned int domain,
				     const struct gm_usage *like)
{
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_USAGE); i++) {
		const struct gm_usage *row = gm_copy_usage(copy, i);

		if (row->domain == domain && row->module == like->module && row->kind == like->kind)
			return row;
	}
	return NULL;
}

/* A journal copy, with whatever is cached in it, says the same of the two domains. */
static void same_copy(void)
{
	static const enum gm_stat_name names[] = { GM_STAT_ALLOCATION, GM_STAT_REQUESTED_BYTES };
	const struct gm_domain *domains[2];
	struct gm_copy copy;

	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert(copy.consistent);
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	ck_assert_int_eq(gm_copy_check(&copy, NULL, NULL), 0);
	ck_assert_uint_eq(copy.damage, 0);
	for (size_t i = 1; i < gm_copy_items(&copy, GM_REGION_USAGE); i++) {
		const struct gm_usage *row = gm_copy_usage(&copy, i), *other;

		if (row->domain)
			continue;
		other = row_of(&copy, 1, row);
		ck_assert_ptr_nonnull(other);
		ck_assert_mem_eq(&row->current_bytes, &other->current_bytes, 6 * sizeof(int64_t));
	}
	for (unsigned int d = 0; d < 2; d++)
		domains[d] = gm_copy_domain(&copy, d);
	ck_assert_mem_eq(domains[0]->live_bytes, domains[1]->live_bytes,
			 sizeof(domains[0]->live_bytes));
	for (unsigned int i = 0; i < 2; i++)
		ck_assert_mem_eq(domains[0]->stats.stat[names[i]], domains[1]->stats.stat[names[i]],
				 sizeof(domains[0]->stats.stat[0]));
	gm_copy_free(&copy);
}

/* ---- one thread, and several that take turns ---- */

struct turn {
	pthread_t thread;
	sem_t go, done;
	enum { ALLOC, FREE, END } what;
	uint64_t bytes;
	unsigned int n;			/* the block to free */
};
static struct turn turns[WORKERS];

static void *take_turns(void *arg)
{
	struct turn *turn = arg;

	for (bool end = false; !end;) {
		sem_wait(&turn->go);
		end = turn->what == END;
		if (turn->what == ALLOC) {	/* one after the other: the order of arguments is the compiler's */
			uint16_t module = (uint16_t)(1 + rnd() % 2);

			alloc_both(turn->bytes, rnd() % 2, module);
		} else if (turn->what == FREE)
			free_both(turn->n);
		sem_post(&turn->done);
	}
	return NULL;
}

static void start_turn(struct turn *turn)
{
	sem_init(&turn->go, 0, 0);
	sem_init(&turn->done, 0, 0);
	ck_assert_int_eq(pthread_create(&turn->thread, NULL, take_turns, turn), 0);
}

static void do_turn(struct turn *turn, unsigned int what, uint64_t bytes, unsigned int n)
{
	turn->what = what;
	turn->bytes = bytes;
	turn->n = n;
	sem_post(&turn->go);
	sem_wait(&turn->done);
}

static void end_turn(struct turn *turn)
{
	do_turn(turn, END, 0, 0);
	pthread_join(turn->thread, NULL);
}

/* Sizes that come again, sizes within one rounding, and sizes of any sort. */
static uint64_t some_size(void)
{
	switch (rnd() % 8) {
	case 0:
		return 1 + rnd() % (rnd() % 2 ? MIB : 12 * MIB);
	case 1:
		return (2 + rnd() % 2) * MIB - rnd() % 2;
	case 2:
	case 3:
		return 3 * KIB + rnd() % 1000;
	default:
		return 4 * KIB << rnd() % 3;
	}
}

START_TEST(same_as_without)
{
	unsigned int cached = 0, workers = _i < 3 ? 1 : WORKERS;

	begin(4096);
	for (unsigned int i = 0; i < workers; i++)
		start_turn(&turns[i]);
	for (unsigned int step = 0; step < STEPS / 2; step++) {
		struct turn *turn = &turns[rnd() % workers];

		/* Up and down, so that peaks come again. */
		if (lives < LIVE / (1 + step / 256 % 4) && (lives < 4 || rnd() % 2)) {
			do_turn(turn, ALLOC, some_size(), 0);
		} else {
			unsigned int n = (unsigned int)(rnd() % lives);
			uint32_t block = live[n].block[0];

			do_turn(turn, FREE, 0, n);
			cached += state_of(block) == GM_BLOCK_CACHED;
		}
		if (rnd() % 64 == 0)
			same_copy();
		if (rnd() % 64 == 0)
			same_stats();
		if (rnd() % 16 == 0)
			all_sound();
		if (rnd() % 256 == 0)
			for (uint8_t d = 0; d < 2; d++)
				gm_record_reset_stats(d, GM_RESET_PEAK);
		if (rnd() % 256 == 0)
			for (unsigned int h = 0; h < 2; h++)
				gm_cache_heap_reset_high(heap[h]);
		if (rnd() % 128 == 0) {		/* ends; the next one may have its slot */
			end_turn(turn);
			if (rnd() % 2)
				gm_recorder_tick();
			start_turn(turn);
		}
	}
	ck_assert_uint_gt(cached, STEPS / 2 / 100);
	for (unsigned int i = 0; i < workers; i++)
		end_turn(&turns[i]);
	while (lives)
		free_both(lives - 1);
	same_stats();
	/* What the threads that have ended had cached comes back. */
	gm_cache_heap_empty(heap[0], UINT64_MAX);
	all_sound();
	ck_assert_int_eq(gm_rec.domains[0].stats.stat[GM_STAT_RESERVED_BYTES][0].current, 0);
}
END_TEST

/* The same block again; the peak as if it had never been anywhere else. */
START_TEST(again_and_again)
{
	struct gm_stats stats;
	uint64_t address;
	uint32_t block;

	begin(4096);
	alloc_both(4 * KIB, 1, 1);
	alloc_both(4 * KIB, 1, 1);
	for (unsigned int i = 0; i < 1000; i++) {
		block = live[1].block[0];
		address = live[1].address[0];
		free_both(1);
		ck_assert_uint_eq(state_of(block), GM_BLOCK_CACHED);
		alloc_both(4 * KIB, 1, 1);
		ck_assert(!is_cached(1));
		ck_assert_uint_eq(live[1].block[0], block);
		ck_assert_uint_eq(live[1].address[0], address);
	}
	/* More than the last owner had asked for is asked of the heap. */
	free_both(1);
	alloc_both(8 * KIB, 1, 1);
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATED_BYTES][0].peak, 12 * (int64_t)KIB);
	ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATION][0].allocated, 1003);
	same_stats();
}
END_TEST

/* What differs (docs/limits.md): a cached block is in no free set, so it does not count as an inactive
 * split that comes and goes. What there is when somebody looks does. */
START_TEST(splits_that_nobody_saw)
{
	struct gm_stat split[2], bytes[2];
	struct gm_stats stats;

	begin(4096);
	for (unsigned int i = 0; i < 3; i++)
		alloc_both(4 * KIB, 1, 1);
	for (unsigned int i = 0; i < 1000; i++) {
		free_both(0);
		alloc_both(4 * KIB, 1, 1);
	}
	free_both(0);
	for (uint8_t h = 0; h < 2; h++) {
		ck_assert_int_eq(gm_record_stats(h, &stats), 0);
		split[h] = stats.stat[GM_STAT_INACTIVE_SPLIT][GM_POOL_ALL];
		bytes[h] = stats.stat[GM_STAT_INACTIVE_SPLIT_BYTES][GM_POOL_ALL];
	}
	ck_assert_int_eq(bytes[0].current, bytes[1].current);
	ck_assert_int_eq(split[0].current, split[0].allocated - split[0].freed);
	ck_assert_int_eq(bytes[0].current, bytes[0].allocated - bytes[0].freed);
	ck_assert_int_lt(split[0].allocated, split[1].allocated);
	ck_assert_int_le(bytes[0].peak, bytes[1].peak);
	same_stats();
}
END_TEST

/* ---- a journal copy from outside ---- */

static uint64_t late_op;
static unsigned int looks;		/* of the copy that is being made, + 1; 0: there is none */

static enum gm_cache_when at_once(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	(void)arg;
	(void)block;
	(void)number;
	(void)bytes;
	return GM_FREE_NOW;
}

/* Between the copy's tables and its second look at what moves: all of an operation that had its number
 * before the first. */
ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
	struct gm_header *header = looks ? gm_header_get() : NULL;

	if (header && (uint64_t)at == header->regions[GM_REGION_THREADS].offset && ++looks == 3) {
		struct gm_cache_free how = { .when = at_once, .stack = GM_STACK_OF_BLOCK };

		looks = 0;
		ck_assert_int_eq(gm_cache_heap_free(heap[0], late_op, live[0].block[0], live[0].address[0],
						&how), 0);
	}
	return syscall(SYS_pread64, fd, buf, n, at);
}

START_TEST(an_operation_during_a_copy)
{
	struct gm_copy copy;
	int fd;

	begin(0);
	alloc_both(4 * KIB, 1, 1);
	alloc_both(4 * KIB, 1, 1);
	free_both(1);
	alloc_both(_i ? 4 * KIB : MIB, 1, 1);
	late_op = gm_op_begin(GM_ACTION_FREE_REQUESTED, GM_KIND_DEVICE, 0, live[0].address[0], 0);
	gm_op_end(late_op);
	gm_set(&heap[0]->thread_cache, _i);		/* it is cached, or goes to the heap */
	fd = open(aux_report.path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	looks = 1;
	ck_assert_int_eq(gm_copy_from_file(&copy, fd), 0);
	close(fd);
	ck_assert_uint_eq(looks, 0);
	ck_assert(copy.consistent);		/* at the second try */
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	ck_assert_int_eq(gm_copy_check(&copy, NULL, NULL), 0);
	ck_assert_int_eq(gm_copy_domain(&copy, 0)->stats.stat[GM_STAT_ALLOCATION][0].current, 1);
	ck_assert_uint_ne(gm_copy_block(&copy, live[0].block[0])->state, GM_BLOCK_ACTIVE);
	gm_copy_free(&copy);
}
END_TEST

/* Frees of @count blocks, one after the other, of one size or each of another: how many were cached. */
static unsigned int cached_of(unsigned int count, uint64_t first, uint64_t step)
{
	unsigned int cached = 0;

	for (unsigned int i = 0; i < count; i++) {
		uint32_t block;

		alloc_both(first + i * step, 1, 1);
		block = live[0].block[0];
		free_both(0);
		cached += state_of(block) == GM_BLOCK_CACHED;
	}
	return cached;
}

/* What is never asked for again is not cached for long; and when sizes come again it is. */
START_TEST(not_in_vain)
{
	begin(4096);
	cached_of(64, 4 * KIB, KIB);
	ck_assert_uint_lt(cached_of(128, 4 * KIB, KIB), 16);
	cached_of(128, 4 * KIB, 0);
	ck_assert_uint_eq(cached_of(64, 4 * KIB, 0), 64);
	same_stats();
	all_sound();
}
END_TEST

/* What the heap has left depends on where a large block lies. */
START_TEST(large_ones_are_not_cached)
{
	begin(4096);
	ck_assert_uint_eq(cached_of(64, MIB, 0), 64);
	ck_assert_uint_eq(cached_of(64, MIB + 1, 0), 0);
	ck_assert_uint_eq(cached_of(64, 12 * MIB, 0), 0);
	same_copy();
	same_stats();
}
END_TEST

/* What is cached dies with the heap's context, and counts as memory that can be given back. */
START_TEST(ends)
{
	begin(4096);
	alloc_both(4 * KIB, 1, 1);
	alloc_both(MIB, 1, 2);
	free_both(0);
	free_both(0);
	ck_assert_uint_eq(gm_cache_heap_idle_bytes(heap[0]), gm_cache_heap_idle_bytes(heap[1]));
	alloc_both(4 * KIB, 1, 1);
	free_both(0);
	ck_assert_uint_eq(gm_cache_heap_largest_free(heap[0]), 2 * MIB);
	alloc_both(4 * KIB, 1, 1);
	alloc_both(4 * KIB, 1, 1);
	free_both(0);
	ck_assert_uint_eq(gm_cache_heap_drop(heap[0], 0, GM_NONE), 1);
	ck_assert_uint_eq(gm_cache_heap_drop(heap[1], 0, GM_NONE), 1);
	same_stats();
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

/* ---- all at once ---- */

static struct cell { pthread_mutex_t lock; uint32_t block; uint64_t address; } cells[LIVE];
static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uint64_t) wrong, allocs, frees;
static _Atomic(bool) over;

static void serve(uint64_t bytes, uint16_t module, struct cell *cell)
{
	struct gm_alloc alloc = aux_request(bytes, 1, module);
	int r = gm_cache_heap_alloc(heap[0], 0, &alloc, &cell->block);

	if (r == -EAGAIN) {
		pthread_mutex_lock(&growth);
		r = gm_cache_heap_grow(heap[0], 0, &alloc, &cell->block);
		pthread_mutex_unlock(&growth);
	}
	wrong += r != 0;
	allocs++;
	cell->address = alloc.address;
}

/* Of blocks that any thread allocates and any thread frees: nobody's is another's. */
static void *share(void *arg)
{
	uint32_t random = (uint32_t)(uintptr_t)arg * 7919u + 1u;

	for (unsigned int step = 0; step < STEPS; step++) {
		struct cell *cell = &cells[(random = random * 1664525u + 1013904223u) >> 26];

		pthread_mutex_lock(&cell->lock);
		if (cell->address) {
			struct gm_block *block = &gm_rec.blocks[cell->block];

			wrong += gm_get(&block->state) != GM_BLOCK_ACTIVE ||
				 block->address != cell->address;
			wrong += aux_release(heap[0], cell->block, cell->address, true) != 0;
			frees++;
			cell->address = 0;
		} else {
			serve(4 * KIB << (random >> 12) % 4, (uint16_t)(1 + (random >> 8) % 2), cell);
		}
		pthread_mutex_unlock(&cell->lock);
	}
	return NULL;
}

static void *look(void *arg)
{
	(void)arg;
	while (!over) {
		struct gm_copy copy;
		struct gm_stats stats;

		wrong += aux_check_heaps() != 0;
		wrong += gm_recorder_check() != 0;
		wrong += gm_record_stats(0, &stats) != 0;
		if (gm_copy_from_process(&copy))
			continue;
		wrong += gm_copy_resolve(&copy, UINT64_MAX) != 0;
		if (copy.consistent)
			wrong += gm_copy_check(&copy, NULL, NULL) != 0;
		gm_copy_free(&copy);
		usleep(1000);
	}
	return NULL;
}

START_TEST(blocks_of_all_freed_by_any)
{
	pthread_t threads[WORKERS], watcher;
	struct gm_stats stats;
	unsigned int left = 0;

	begin(_i ? 4096 : 0);
	for (unsigned int i = 0; i < LIVE; i++)
		pthread_mutex_init(&cells[i].lock, NULL);
	pthread_create(&watcher, NULL, look, NULL);
	for (uintptr_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, share, (void *)i), 0);
	for (unsigned int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	over = true;
	pthread_join(watcher, NULL);
	ck_assert_uint_eq(wrong, 0);
	for (unsigned int i = 0; i < LIVE; i++)
		left += cells[i].address != 0;
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATION][0].current, left);
	ck_assert_uint_eq((uint64_t)stats.stat[GM_STAT_ALLOCATION][0].allocated, allocs);
	ck_assert_uint_eq((uint64_t)stats.stat[GM_STAT_ALLOCATION][0].freed, frees);
	ck_assert_int_le(stats.stat[GM_STAT_ALLOCATION][0].peak, LIVE);
	all_sound();
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* Two threads free each block: one of them does. */
static pthread_barrier_t together;
static _Atomic(unsigned int) freed;

static void *free_too(void *arg)
{
	const struct cell *cell = arg;

	for (unsigned int i = 0; i < STEPS / 4; i++) {
		int r;

		pthread_barrier_wait(&together);
		r = aux_release(heap[0], cell->block, cell->address, true);
		freed += r == 0;
		wrong += r != 0 && r != -ENOENT;
		pthread_barrier_wait(&together);
	}
	return NULL;
}

START_TEST(freed_twice_at_once)
{
	struct cell cell = { .block = 0 };
	pthread_t thread;
	uint32_t block;

	begin(4096);
	pthread_barrier_init(&together, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, free_too, &cell), 0);
	for (unsigned int i = 0; i < STEPS / 4; i++) {
		struct cell other;

		serve(4 * KIB, 1, &cell);
		pthread_barrier_wait(&together);
		freed += aux_release(heap[0], cell.block, cell.address, true) == 0;
		block = cell.block;
		pthread_barrier_wait(&together);
		ck_assert_uint_eq(freed, i + 1);
		/* It is handed out to one. */
		serve(4 * KIB, 1, &cell);
		serve(4 * KIB, 1, &other);
		ck_assert_uint_ne(cell.address, other.address);
		ck_assert(cell.block != block || other.block != block);
		ck_assert_int_eq(aux_release(heap[0], other.block, other.address, true), 0);
		ck_assert_int_eq(aux_release(heap[0], cell.block, cell.address, true), 0);
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(wrong, 0);
	all_sound();
}
END_TEST

/* ---- what is rare ---- */

static void *cache_one(void *arg)
{
	struct cell cell;

	serve(8 * KIB, 1, &cell);
	ck_assert_int_eq(aux_release(heap[0], cell.block, cell.address, true), 0);
	ck_assert_uint_eq(state_of(cell.block), GM_BLOCK_CACHED);
	*(uint32_t *)arg = cell.block;
	return NULL;
}

/* One thread's is found by another before the heap grows, and counts as memory to be given back. */
START_TEST(nobody_grows_before_all_is_flushed)
{
	unsigned int before;
	struct cell cells2[300];
	pthread_t thread;
	uint32_t block;

	begin(4096);
	serve(MIB - 8 * KIB, 1, &cells2[0]);
	serve(MIB, 1, &cells2[1]);
	pthread_create(&thread, NULL, cache_one, &block);
	pthread_join(thread, NULL);
	before = aux_driver.calls;
	serve(8 * KIB, 2, &cells2[2]);		/* of another module: no bin has it */
	ck_assert_uint_eq(cells2[2].block, block);
	ck_assert_uint_eq(aux_driver.calls, before);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_int_eq(aux_release(heap[0], cells2[i].block, cells2[i].address, true), 0);
	pthread_create(&thread, NULL, cache_one, &block);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(gm_cache_heap_idle_bytes(heap[0]), 2 * MIB);
	all_sound();
}
END_TEST

/* A thread that died in its thread cache: its cached block is lost to us, and nothing waits for it twice. */
START_TEST(a_thread_that_died_in_its_cache)
{
	struct gm_tcache *tcache;
	struct gm_copy copy;
	struct gm_stats stats;
	struct cell cell;
	pthread_t thread;
	uint32_t block;
	time_t began;

	begin(4096);
	pthread_create(&thread, NULL, cache_one, &block);
	pthread_join(thread, NULL);
	tcache = gm_tcache_first(0);
	ck_assert_ptr_nonnull(tcache);
	gm_set(&tcache->slot->tcache_owner, GM_TCACHE_OWNER);
	gm_recorder_tick();			/* its slot is not given to another one */
	ck_assert_uint_ne(gm_rec.tids[tcache->slot->index], 0);
	began = time(NULL);
	for (unsigned int i = 0; i < 1000; i++) {
		ck_assert_int_eq(gm_record_stats(0, &stats), 0);
		serve(8 * KIB, 1, &cell);
		ck_assert_uint_ne(cell.block, block);
		ck_assert_int_eq(aux_release(heap[0], cell.block, cell.address, true), 0);
	}
	ck_assert_int_le(time(NULL) - began, 60);
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert(copy.consistent);		/* it stood still */
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	ck_assert_int_eq(gm_copy_check(&copy, NULL, NULL), 0);
	gm_copy_free(&copy);
	gm_set(&tcache->slot->tcache_owner, GM_TCACHE_NOBODY);
	all_sound();
}
END_TEST

/* The heap goes while a thread cache cannot be had: what is in there is nobody's when it can. */
START_TEST(dropped_while_a_thread_cache_is_held)
{
	struct gm_alloc alloc = aux_request(8 * KIB, 1, 1);
	struct gm_tcache *tcache;
	struct gm_stats stats;
	struct cell cell;
	uint32_t block;

	begin(4096);
	cache_one(&block);
	serve(4 * KIB, 1, &cell);		/* flushes it: what is cached is cached again */
	cache_one(&block);
	tcache = gm_tcache_first(0);
	gm_set(&tcache->slot->tcache_owner, GM_TCACHE_OTHER);
	gm_set(&tcache->slot->tcache_stuck, 1);
	ck_assert_uint_eq(gm_cache_heap_drop(heap[0], 0, GM_NONE), 1);
	gm_set(&tcache->slot->tcache_owner, GM_TCACHE_NOBODY);
	ck_assert_int_eq(gm_cache_heap_alloc(heap[0], 0, &alloc, &block), -ENODEV);
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	for (unsigned int i = 0; i < GM_STAT_COUNT; i++)
		ck_assert_int_eq(stats.stat[i][0].current, 0);
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

/* Complete before it is said to wait: it does not wait then. */
static enum gm_cache_when later_and_done(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	struct gm_reuse_item item = { .block = block, .owner = number, .bytes = bytes };

	(void)arg;
	gm_cache_heap_complete(&item, 1);
	return GM_FREE_LATER;
}

START_TEST(complete_before_it_waits)
{
	struct gm_cache_free how = { .when = later_and_done, .stack = GM_STACK_OF_BLOCK };
	struct cell cell;

	begin(4096);
	serve(4 * KIB, 1, &cell);
	ck_assert_int_eq(gm_cache_heap_free(heap[0], 0, cell.block, cell.address, &how), 0);
	ck_assert_uint_ne(state_of(cell.block), GM_BLOCK_PENDING);
	ck_assert_uint_ne(state_of(cell.block), GM_BLOCK_FREEING);
	ck_assert_uint_eq(gm_cache_heap_idle_bytes(heap[0]), 2 * MIB);
	serve(4 * KIB, 1, &cell);
	ck_assert_uint_eq(gm_rec.blocks[cell.block].flags, 0);
	all_sound();
}
END_TEST

static size_t told;

static void *complete_two(void *arg)
{
	told = gm_cache_heap_complete(arg, 2);
	return NULL;
}

/* The lock cannot be had when the GPU has finished with two blocks: they wait for it to be said again. */
START_TEST(completed_again)
{
	struct gm_reuse_item items[2];
	struct cell cell[2];
	pthread_t thread;

	begin(4096);
	for (int i = 0; i < 2; i++) {
		serve(2 * MIB, 1, &cell[i]);
		ck_assert_int_eq(aux_release(heap[0], cell[i].block, cell[i].address, false), 0);
		items[i] = (struct gm_reuse_item){ .block = cell[i].block,
						   .owner = heap[0]->number };
	}
	ck_assert(gm_lock(&gm_rec.domain[0].lock));
	pthread_create(&thread, NULL, complete_two, items);
	pthread_join(thread, NULL);
	gm_unlock(&gm_rec.domain[0].lock);
	ck_assert_uint_eq(told, 0);
	ck_assert_uint_eq(state_of(cell[0].block), GM_BLOCK_PENDING);
	ck_assert_uint_eq(gm_cache_heap_complete(items, 2), 2);
	ck_assert_uint_eq(gm_cache_heap_idle_bytes(heap[0]), 20 * MIB);
	all_sound();
}
END_TEST

/* The heap goes while threads free into it and take from it. */
static void *until_dropped(void *arg)
{
	struct cell own[8] = { { .block = 0 } };
	int r = 0;

	(void)arg;
	for (unsigned int i = 0; r != -ENODEV; i++) {
		struct cell *cell = &own[i % 8];
		struct gm_alloc alloc = aux_request(4 * KIB << i % 2, 1, 1);

		if (cell->address) {
			r = aux_release(heap[0], cell->block, cell->address, true);
			if (r == -ENOENT)	/* dropped under it */
				r = -ENODEV;
			cell->address = 0;
		}
		if (!r)
			r = gm_cache_heap_alloc(heap[0], 0, &alloc, &cell->block);
		if (r == -EAGAIN) {
			pthread_mutex_lock(&growth);
			r = gm_cache_heap_grow(heap[0], 0, &alloc, &cell->block);
			pthread_mutex_unlock(&growth);
		}
		cell->address = r ? 0 : alloc.address;
	}
	return NULL;
}

START_TEST(dropped_meanwhile)
{
	pthread_t threads[WORKERS];

	begin(4096);
	for (unsigned int round = 0; round < 20; round++) {
		for (unsigned int i = 0; i < WORKERS; i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, until_dropped, NULL), 0);
		usleep(3000);
		pthread_mutex_lock(&growth);	/* as the end of a context: nobody is in the driver */
		gm_cache_heap_drop(heap[0], 0, GM_NONE);
		pthread_mutex_unlock(&growth);
		for (unsigned int i = 0; i < WORKERS; i++)
			pthread_join(threads[i], NULL);
		ck_assert_int_eq(gm_recorder_check(), 0);
		ck_assert_int_eq(gm_rec.domains[0].stats.stat[GM_STAT_RESERVED_BYTES][0].current, 0);
		aux_tcache = true;
		heap[0] = aux_heap(0, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
	}
}
END_TEST

/* What is passed through counts in the same peaks: a cached block is not live then. */
START_TEST(passed_through_beside_what_is_cached)
{
	struct gm_alloc other[2];
	struct gm_stats stats[2];
	uint32_t passed[2];

	begin(4096);
	for (unsigned int i = 0; i < 4; i++)
		alloc_both(MIB, 1, 1);
	while (lives)
		free_both(lives - 1);
	for (uint8_t h = 0; h < 2; h++) {
		other[h] = aux_alloc(h, UINT64_C(0x990000000000), 2 * MIB);
		other[h].kind = GM_KIND_MANAGED;
		ck_assert_int_eq(gm_record_alloc(0, &other[h], &passed[h]), 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		alloc_both(MIB, 1, 1);
	while (lives)
		free_both(lives - 1);
	for (uint8_t h = 0; h < 2; h++)
		ck_assert_int_eq(gm_record_change(0, passed[h], other[h].address, 3 * MIB, 0, GM_NONE), 0);
	for (uint8_t h = 0; h < 2; h++)
		ck_assert_int_eq(gm_record_stats(h, &stats[h]), 0);
	ck_assert_int_eq(stats[0].stat[GM_STAT_ALLOCATED_BYTES][0].peak, 4 * MIB);
	ck_assert_int_eq(stats[1].stat[GM_STAT_ALLOCATED_BYTES][0].peak, 4 * MIB);
	same_copy();
	all_sound();
}
END_TEST

/* The same, and it can be had before all of the heap is gone: what went by then is not put back. */
static void *let_go(void *arg)
{
	struct gm_tcache *tcache = gm_tcache_first(0);

	while (state_of(*(uint32_t *)arg) == GM_BLOCK_CACHED)
		sched_yield();
	gm_set_release(&tcache->slot->tcache_owner, GM_TCACHE_NOBODY);
	return NULL;
}

START_TEST(dropped_while_a_thread_cache_is_let_go)
{
	struct gm_stats stats;
	struct gm_tcache *tcache;
	struct cell cell;
	pthread_t thread;
	uint32_t block;

	begin(4096);
	pthread_create(&thread, NULL, cache_one, &block);
	pthread_join(thread, NULL);
	tcache = gm_tcache_first(0);
	gm_set(&tcache->slot->tcache_owner, GM_TCACHE_OWNER);
	gm_set(&tcache->slot->tcache_stuck, 1);
	for (unsigned int i = 0; i < 4000; i++)
		serve(8 * KIB, 2, &cell);
	ck_assert_uint_eq(state_of(block), GM_BLOCK_CACHED);
	pthread_create(&thread, NULL, let_go, &block);
	ck_assert_uint_eq(gm_cache_heap_drop(heap[0], 0, GM_NONE), 4000);
	pthread_join(thread, NULL);
	all_sound();
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	for (unsigned int i = 0; i < GM_STAT_COUNT; i++)
		ck_assert_int_eq(stats.stat[i][0].current, 0);
	all_sound();
}
END_TEST

/* ---- frees while the domain's lock cannot be had ---- */

static void nothing_is_live(uint8_t domain)
{
	struct gm_stats stats;

	ck_assert_int_eq(gm_record_stats(domain, &stats), 0);
	for (unsigned int i = 0; i < GM_STAT_COUNT; i++)
		if (i != GM_STAT_SEGMENT && i != GM_STAT_RESERVED_BYTES && i != GM_STAT_INACTIVE_SPLIT &&
		    i != GM_STAT_INACTIVE_SPLIT_BYTES)
			ck_assert_int_eq(stats.stat[i][0].current, 0);
}

/* This thread holds the lock, as below a signal handler: each free is queued, and done when the lock is free. */
START_TEST(freed_while_the_lock_is_held)
{
	static const enum gm_block_state after[] = { GM_BLOCK_INACTIVE, GM_BLOCK_PENDING, GM_BLOCK_INACTIVE };
	struct gm_alloc passed = { .kind = GM_KIND_DEVICE, .module = 1, .address = 4096, .size = 2 * MIB,
				   .requested = 2 * MIB };
	struct gm_reuse_item item;
	struct gm_copy copy;
	struct cell cell[3];
	uint32_t block;

	begin(4096);
	for (int i = 0; i < 3; i++)
		serve(i < 2 ? 12 * MIB : 8 * KIB, 1, &cell[i]);
	ck_assert_int_eq(gm_record_alloc(0, &passed, &block), 0);
	gm_record_freeing(block);
	item = (struct gm_reuse_item){ .block = cell[1].block, .owner = heap[0]->number };
	ck_assert(gm_lock(&gm_rec.domain[0].lock));
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(aux_release(heap[0], cell[i].block, cell[i].address, i == 0), 0);
	ck_assert(gm_cache_heap_free_inside(cell[2].block, cell[2].address));
	ck_assert_int_eq(gm_record_free(0, block, 0, 0), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(state_of(cell[i].block), GM_BLOCK_FREEING);
		ck_assert_int_eq(aux_release(heap[0], cell[i].block, cell[i].address, true), -ENOENT);
		ck_assert(!gm_cache_heap_free_inside(cell[i].block, cell[i].address));
	}
	ck_assert_uint_eq(gm_cache_heap_complete(&item, 1), 0);
	gm_unlock(&gm_rec.domain[0].lock);
	ck_assert_uint_eq(gm_recorder_header()->operations_lost, 1);	/* of the completion */
	if (_i) {				/* a copy does them first */
		ck_assert_int_eq(gm_copy_from_process(&copy), 0);
		ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
		ck_assert_int_eq(gm_copy_check(&copy, NULL, NULL), 0);
		ck_assert_int_eq(gm_copy_domain(&copy, 0)->stats.stat[GM_STAT_ALLOCATION][0].current, 0);
		gm_copy_free(&copy);
	} else {				/* the statistics do */
		struct gm_stats stats;

		ck_assert_int_eq(gm_record_stats(0, &stats), 0);
		ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATION][0].current, 0);
	}
	ck_assert_uint_eq(state_of(cell[0].block), after[0]);
	ck_assert_uint_eq(state_of(cell[1].block), after[1]);
	ck_assert_uint_eq(state_of(cell[2].block), GM_BLOCK_PENDING);
	ck_assert_uint_eq(state_of(block), GM_BLOCK_UNUSED);
	ck_assert_uint_eq(gm_cache_heap_complete(&item, 1), 1);
	aux_complete(heap[0], cell[2].block);
	nothing_is_live(0);
	gm_cache_heap_empty(heap[0], UINT64_MAX);
	ck_assert_uint_eq(aux_driver.used, 0);
	all_sound();
}
END_TEST

/* The heap ends while a free is queued, with the lock and without. */
START_TEST(dropped_while_a_free_waits)
{
	struct cell cell[2];
	struct gm_stats stats;

	begin(4096);
	for (int i = 0; i < 2; i++)
		serve(12 * MIB, 1, &cell[i]);
	ck_assert(gm_lock(&gm_rec.domain[0].lock));
	ck_assert_int_eq(aux_release(heap[0], cell[0].block, cell[0].address, _i), 0);
	gm_unlock(&gm_rec.domain[0].lock);
	ck_assert_uint_eq(state_of(cell[0].block), GM_BLOCK_FREEING);
	ck_assert_uint_eq(gm_cache_heap_drop(heap[0], 0, GM_NONE), 1);
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	for (unsigned int i = 0; i < GM_STAT_COUNT; i++)
		ck_assert_int_eq(stats.stat[i][0].current, 0);
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

#define QUEUED 200u
#define FEW 8u

static _Atomic(uint32_t) waited, working;

/* Frees what it got, again and again, until enough frees had to wait. */
static void *free_often(void *arg)
{
	struct cell own[FEW] = { { .block = 0 } };

	(void)arg;
	while (waited < QUEUED) {
		for (unsigned int i = 0; i < FEW; i++) {
			struct gm_alloc alloc = aux_request(2 * MIB, 1, 1);

			if (gm_cache_heap_alloc(heap[0], 0, &alloc, &own[i].block))
				own[i].block = 0;
			own[i].address = alloc.address;
		}
		for (unsigned int i = 0; i < FEW; i++) {
			if (!own[i].block)
				continue;
			AUX_MUST(aux_release(heap[0], own[i].block, own[i].address, true) == 0);
			waited += gm_late_any(0);
		}
	}
	working--;
	return NULL;
}

/* Threads free while the lock is given up now and then: nobody waits, and nothing is lost. */
START_TEST(freed_while_the_lock_comes_and_goes)
{
	struct cell cell[WORKERS * FEW];
	pthread_t thread[WORKERS];

	begin(4096);
	for (unsigned int i = 0; i < WORKERS * FEW; i++)
		serve(2 * MIB, 1, &cell[i]);
	for (unsigned int i = 0; i < WORKERS * FEW; i++)
		ck_assert_int_eq(aux_release(heap[0], cell[i].block, cell[i].address, true), 0);
	waited = 0;
	working = WORKERS;
	for (unsigned int i = 0; i < WORKERS; i++)
		pthread_create(&thread[i], NULL, free_often, NULL);
	while (working) {
		struct gm_lock *lock = &gm_rec.domain[0].lock;

		if (!gm_lock_try(lock))
			continue;
		__atomic_fetch_or((uint32_t *)&lock->word, GM_LOCK_GIVEN_UP, __ATOMIC_RELAXED);
		sched_yield();
		gm_unlock(lock);
		sched_yield();
	}
	for (unsigned int i = 0; i < WORKERS; i++)
		pthread_join(thread[i], NULL);
	nothing_is_live(0);
	ck_assert(!gm_late_any(0));
	gm_cache_heap_empty(heap[0], UINT64_MAX);
	ck_assert_uint_eq(aux_driver.used, 0);
	all_sound();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("thread_cache");
	TCase *tc = tcase_create("thread_cache");

	tcase_set_timeout(tc, 300);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(tc, same_as_without, 0, 6);
	tcase_add_test(tc, again_and_again);
	tcase_add_test(tc, splits_that_nobody_saw);
	tcase_add_loop_test(tc, an_operation_during_a_copy, 0, 2);
	tcase_add_test(tc, not_in_vain);
	tcase_add_test(tc, large_ones_are_not_cached);
	tcase_add_test(tc, ends);
	tcase_add_loop_test(tc, blocks_of_all_freed_by_any, 0, 2);
	tcase_add_test(tc, freed_twice_at_once);
	tcase_add_test(tc, nobody_grows_before_all_is_flushed);
	tcase_add_test(tc, a_thread_that_died_in_its_cache);
	tcase_add_test(tc, dropped_while_a_thread_cache_is_held);
	tcase_add_test(tc, complete_before_it_waits);
	tcase_add_test(tc, completed_again);
	tcase_add_test(tc, dropped_meanwhile);
	tcase_add_test(tc, passed_through_beside_what_is_cached);
	tcase_add_test(tc, dropped_while_a_thread_cache_is_let_go);
	tcase_add_loop_test(tc, freed_while_the_lock_is_held, 0, 2);
	tcase_add_loop_test(tc, dropped_while_a_free_waits, 0, 2);
	tcase_add_test(tc, freed_while_the_lock_comes_and_goes);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
