/*
 * What threads keep of what they freed (thread_cache.c), with several of them: taking turns, the same
 * program ends each locked section with the statistics, peaks too, of one that keeps nothing; all at once, a
 * block is freed once, whoever frees it; threads that end or die there, a heap that goes meanwhile.
 *
 *	GM_SEED=n  the seed (printed)
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/cache/thread_cache.h"
#include "recorder/read/copy.h"
#include "test/unit/cache/aux_cached.h"
#include "test/unit/journal/aux_journal.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define LIVE 64u
#define WORKERS 4u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 3000u
#else
#define STEPS 20000u
#endif

static struct gm_cached *heap[2];	/* 0 keeps, 1 does not; in domains of their own */
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
	const char *text = getenv("GM_SEED");

	seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
	printf("# seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
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

static void all_sound(void)
{
	ck_assert_int_eq(gm_cached_check_all(), 0);
	ck_assert_int_eq(gm_recorder_check(), 0);
}

/* ---- taking turns ---- */

struct turn {
	pthread_t thread;
	sem_t go, done;
	enum { ALLOC, FREE, END } what;
	uint64_t bytes;
	unsigned int n;
};
static struct turn turns[WORKERS];

static void alloc_both(uint64_t bytes)
{
	for (unsigned int h = 0; h < 2; h++) {
		struct gm_alloc alloc = aux_request(bytes, 1, (uint16_t)(1 + bytes % 2));

		ck_assert_int_eq(aux_serve(heap[h], &alloc, &live[lives].block[h]), 0);
		live[lives].address[h] = alloc.address;
	}
	lives++;
}

static void free_both(unsigned int n)
{
	for (unsigned int h = 0; h < 2; h++)
		ck_assert_int_eq(aux_release(heap[h], live[n].block[h], live[n].address[h], true), 0);
	live[n] = live[--lives];
}

static void *take_turns(void *arg)
{
	struct turn *turn = arg;

	for (bool end = false; !end;) {
		sem_wait(&turn->go);
		end = turn->what == END;
		if (turn->what == ALLOC)
			alloc_both(turn->bytes);
		else if (turn->what == FREE)
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
		gm_cached_used(heap[h], &used[h], &high[h]);
	ck_assert_uint_eq(used[0], used[1]);
	ck_assert_uint_eq(high[0], high[1]);
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

/* A copy, with whatever is kept in it, says the same of the two domains. */
static void same_copy(void)
{
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
	ck_assert_mem_eq(gm_copy_domain(&copy, 0)->live_bytes, gm_copy_domain(&copy, 1)->live_bytes,
			 sizeof(gm_copy_domain(&copy, 0)->live_bytes));
	gm_copy_free(&copy);
}

START_TEST(turns_change_no_statistic)
{
	unsigned int kept = 0;

	begin(4096);
	for (unsigned int i = 0; i < WORKERS; i++)
		start_turn(&turns[i]);
	for (unsigned int step = 0; step < STEPS / 4; step++) {
		struct turn *turn = &turns[rnd() % WORKERS];
		uint64_t way = rnd() % 8, bytes = way < 5 ? 4 * KIB << rnd() % 3 :
						  way < 7 ? 3 * KIB + rnd() % 1000 : 1 + rnd() % (2 * MIB);

		/* Up and down, so that peaks come again. */
		if (lives < LIVE / (1 + step / 256 % 4) && (lives < 4 || rnd() % 2)) {
			do_turn(turn, ALLOC, bytes, 0);
		} else {
			unsigned int n = (unsigned int)(rnd() % lives);
			uint32_t block = live[n].block[0];

			do_turn(turn, FREE, 0, n);
			kept += state_of(block) == GM_BLOCK_CACHED;
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
				gm_cached_reset_high(heap[h]);
		if (rnd() % 128 == 0) {		/* ends; the next one may have its slot */
			do_turn(turn, END, 0, 0);
			pthread_join(turn->thread, NULL);
			if (rnd() % 2)
				gm_recorder_tick();
			start_turn(turn);
		}
	}
	ck_assert_uint_gt(kept, STEPS / 4 / 20);
	for (unsigned int i = 0; i < WORKERS; i++) {
		do_turn(&turns[i], END, 0, 0);
		pthread_join(turns[i].thread, NULL);
	}
	while (lives)
		free_both(lives - 1);
	same_stats();
	/* What the threads that have ended kept comes back. */
	gm_cached_empty(heap[0]);
	all_sound();
	ck_assert_int_eq(gm_rec.domains[0].stats.stat[GM_STAT_RESERVED_BYTES][0].current, 0);
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
	int r = gm_cached_alloc(heap[0], 0, &alloc, &cell->block);

	if (r == -EAGAIN) {
		pthread_mutex_lock(&growth);
		r = gm_cached_grow(heap[0], 0, &alloc, &cell->block);
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

		wrong += gm_cached_check_all() != 0;
		wrong += gm_recorder_check() != 0;
		wrong += gm_record_stats(0, &stats) != 0;
		if (gm_copy_from_process(&copy))
			continue;
		wrong += gm_copy_resolve(&copy, UINT64_MAX) != 0;
		if (copy.consistent)
			wrong += gm_copy_check(&copy, NULL, NULL) != 0 || copy.undone;
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

static void *keep_one(void *arg)
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
	pthread_create(&thread, NULL, keep_one, &block);
	pthread_join(thread, NULL);
	before = aux_driver.calls;
	serve(8 * KIB, 2, &cells2[2]);		/* of another module: no bin has it */
	ck_assert_uint_eq(cells2[2].block, block);
	ck_assert_uint_eq(aux_driver.calls, before);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_int_eq(aux_release(heap[0], cells2[i].block, cells2[i].address, true), 0);
	pthread_create(&thread, NULL, keep_one, &block);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(gm_cached_idle_bytes(heap[0]), 2 * MIB);
	all_sound();
}
END_TEST

/* A thread that died in its thread cache: what it kept is lost to us, and nothing waits for it twice. */
START_TEST(a_shard_whose_thread_died_there)
{
	struct gm_tcache *keep;
	struct gm_copy copy;
	struct gm_stats stats;
	struct cell cell;
	pthread_t thread;
	uint32_t block;
	time_t began;

	begin(4096);
	pthread_create(&thread, NULL, keep_one, &block);
	pthread_join(thread, NULL);
	keep = gm_tcache_first(0);
	ck_assert_ptr_nonnull(keep);
	gm_set(&keep->slot->tcache_owner, GM_TCACHE_OWNER);
	gm_recorder_tick();			/* its slot is not given to another one */
	ck_assert_uint_ne(gm_rec.tids[keep->slot->index], 0);
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
	gm_set(&keep->slot->tcache_owner, GM_TCACHE_NOBODY);
	all_sound();
}
END_TEST

/* The heap goes while a thread cache cannot be had: what is in there is nobody's when it can. */
START_TEST(dropped_while_a_shard_is_held)
{
	struct gm_alloc alloc = aux_request(8 * KIB, 1, 1);
	struct gm_tcache *keep;
	struct gm_stats stats;
	struct cell cell;
	uint32_t block;

	begin(4096);
	keep_one(&block);
	serve(4 * KIB, 1, &cell);		/* flushes it: what is kept is kept again */
	keep_one(&block);
	keep = gm_tcache_first(0);
	gm_set(&keep->slot->tcache_owner, GM_TCACHE_OTHER);
	gm_set(&keep->slot->keep_stuck, 1);
	ck_assert_uint_eq(gm_cached_drop(heap[0], 0, 0, GM_NONE), 1);
	gm_set(&keep->slot->tcache_owner, GM_TCACHE_NOBODY);
	ck_assert_int_eq(gm_cached_alloc(heap[0], 0, &alloc, &block), -ENODEV);
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	for (unsigned int i = 0; i < GM_STAT_COUNT; i++)
		ck_assert_int_eq(stats.stat[i][0].current, 0);
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

/* Complete before it is said to wait: it does not wait then. */
static bool later_and_done(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	struct gm_reuse_item item = { .block = block, .owner = number, .bytes = bytes };

	(void)arg;
	gm_cached_complete(&item, 1);
	return false;
}

START_TEST(complete_before_it_waits)
{
	struct gm_cached_free how = { .now = later_and_done, .stack = GM_STACK_OF_BLOCK };
	struct cell cell;

	begin(4096);
	serve(4 * KIB, 1, &cell);
	ck_assert_int_eq(gm_cached_free(heap[0], 0, cell.block, cell.address, &how), 0);
	ck_assert_uint_ne(state_of(cell.block), GM_BLOCK_PENDING);
	ck_assert_uint_ne(state_of(cell.block), GM_BLOCK_FREEING);
	ck_assert_uint_eq(gm_cached_idle_bytes(heap[0]), 2 * MIB);
	serve(4 * KIB, 1, &cell);
	ck_assert_uint_eq(gm_rec.blocks[cell.block].flags, 0);
	all_sound();
}
END_TEST

static size_t told;

static void *complete_two(void *arg)
{
	told = gm_cached_complete(arg, 2);
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
						   .owner = gm_cached_number(heap[0]) };
	}
	ck_assert(gm_lock(&gm_rec.domain[0].lock));
	pthread_create(&thread, NULL, complete_two, items);
	pthread_join(thread, NULL);
	gm_unlock(&gm_rec.domain[0].lock);
	ck_assert_uint_eq(told, 0);
	ck_assert_uint_eq(state_of(cell[0].block), GM_BLOCK_PENDING);
	ck_assert_uint_eq(gm_cached_complete(items, 2), 2);
	ck_assert_uint_eq(gm_cached_idle_bytes(heap[0]), 20 * MIB);
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
			r = gm_cached_alloc(heap[0], 0, &alloc, &cell->block);
		if (r == -EAGAIN) {
			pthread_mutex_lock(&growth);
			r = gm_cached_grow(heap[0], 0, &alloc, &cell->block);
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
		gm_cached_drop(heap[0], 0, 0, GM_NONE);
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

/* What is passed through counts in the same peaks: what is kept is not live then. */
START_TEST(passed_through_beside_what_is_kept)
{
	struct gm_alloc other[2];
	struct gm_stats stats[2];
	uint32_t passed[2];

	begin(4096);
	for (unsigned int i = 0; i < 4; i++)
		alloc_both(MIB);
	while (lives)
		free_both(lives - 1);
	for (uint8_t h = 0; h < 2; h++) {
		other[h] = aux_alloc(h, UINT64_C(0x990000000000), 2 * MIB);
		other[h].kind = GM_KIND_MANAGED;
		ck_assert_int_eq(gm_record_alloc(0, &other[h], &passed[h]), 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		alloc_both(MIB);
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
	struct gm_tcache *keep = gm_tcache_first(0);

	while (state_of(*(uint32_t *)arg) == GM_BLOCK_CACHED)
		sched_yield();
	gm_set_release(&keep->slot->tcache_owner, GM_TCACHE_NOBODY);
	return NULL;
}

START_TEST(dropped_while_a_shard_is_let_go)
{
	struct gm_stats stats;
	struct gm_tcache *keep;
	struct cell cell;
	pthread_t thread;
	uint32_t block;

	begin(4096);
	pthread_create(&thread, NULL, keep_one, &block);
	pthread_join(thread, NULL);
	keep = gm_tcache_first(0);
	gm_set(&keep->slot->tcache_owner, GM_TCACHE_OWNER);
	gm_set(&keep->slot->keep_stuck, 1);
	for (unsigned int i = 0; i < 4000; i++)
		serve(8 * KIB, 2, &cell);
	ck_assert_uint_eq(state_of(block), GM_BLOCK_CACHED);
	pthread_create(&thread, NULL, let_go, &block);
	ck_assert_uint_eq(gm_cached_drop(heap[0], 0, 0, GM_NONE), 4000);
	pthread_join(thread, NULL);
	all_sound();
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	for (unsigned int i = 0; i < GM_STAT_COUNT; i++)
		ck_assert_int_eq(stats.stat[i][0].current, 0);
	all_sound();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cached_threads");
	TCase *tc = tcase_create("cached_threads");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(tc, turns_change_no_statistic, 0, 3);
	tcase_add_loop_test(tc, blocks_of_all_freed_by_any, 0, 2);
	tcase_add_test(tc, freed_twice_at_once);
	tcase_add_test(tc, nobody_grows_before_all_is_flushed);
	tcase_add_test(tc, a_shard_whose_thread_died_there);
	tcase_add_test(tc, dropped_while_a_shard_is_held);
	tcase_add_test(tc, complete_before_it_waits);
	tcase_add_test(tc, completed_again);
	tcase_add_test(tc, dropped_meanwhile);
	tcase_add_test(tc, passed_through_beside_what_is_kept);
	tcase_add_test(tc, dropped_while_a_shard_is_let_go);
	suite_add_tcase(suite, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
