/*
 * bench_cache.c - what a cached allocation costs: the heap alone, and the heap in the journal; by one
 * thread, and by several at once.
 *
 * Each row is the median of several rounds, interleaved. A pair is one allocation and its free, the
 * block reusable at once. No driver, no hooks: what the floor of a hook costs comes on top. Threads:
 * each with pairs of its own, as many threads as there are processors at most; beside the rate what it
 * is of one thread's. A thread's rate is that of the median of its batches, so that what else runs on
 * the machine shows in a few of them.
 *
 *	bench_cache [rounds [pairs a round [rows]]]        rows: those whose name has this in it
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "allocator/page_map.h"
#include "preload/cache/thread_cache.h"
#include "preload/cache/cache_heap.h"
#include "test/unit/journal/aux_forget.h"

#define ROUNDS_MOST 64
#define LIVE 100000u
#define TABLE (1u << 19)
#define KEY 1u				/* of the stream */

static unsigned long operations = 200000;
static const char *chosen = "";
static uint64_t driver_next = UINT64_C(0x7e0000000000);
static uint32_t live[LIVE];
static uint64_t live_at[LIVE];

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *memory(void *arg, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)arg;
	return at == MAP_FAILED ? NULL : at;
}

static int driver_alloc(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address)
{
	(void)arg;
	(void)stream;
	*ret_address = __atomic_fetch_add(&driver_next, bytes, __ATOMIC_RELAXED);
	return 0;
}

static void driver_free(void *arg, uint64_t address, uint64_t bytes, uint64_t stream)
{
	(void)arg;
	(void)address;
	(void)bytes;
	(void)stream;
}

/* ---- the heap alone, in tables of its own ---- */

static struct {
	struct gm_segment *segments;
	struct gm_block *blocks;
	uint32_t segment_unused, block_unused, segment_fresh, block_fresh;
	struct gm_stats stats;
	struct gm_undo undo;
	struct gm_lock lock;
	struct gm_heap *heap;
} plain;

static uint32_t segment_new(void *arg)
{
	uint32_t id = plain.segment_unused;

	(void)arg;
	if (id)
		plain.segment_unused = plain.segments[id].next;
	else
		id = plain.segment_fresh++;
	return id < TABLE ? id : GM_NONE;
}

static void segment_drop(void *arg, uint32_t id)
{
	(void)arg;
	plain.segments[id].next = plain.segment_unused;
	plain.segment_unused = id;
}

static uint32_t block_new(void *arg)
{
	uint32_t id = plain.block_unused;

	(void)arg;
	if (id)
		plain.block_unused = plain.blocks[id].next;
	else
		id = plain.block_fresh++;
	plain.blocks[id].prev = plain.blocks[id].next = GM_NONE;
	return id < TABLE ? id : GM_NONE;
}

static void block_drop(void *arg, uint32_t id)
{
	(void)arg;
	plain.blocks[id].next = plain.block_unused;
	plain.block_unused = id;
}

static const struct gm_heap_ops plain_ops = {
	.segment_new = segment_new, .segment_drop = segment_drop, .block_new = block_new,
	.block_drop = block_drop, .driver_alloc = driver_alloc, .driver_free = driver_free,
};

static uint32_t plain_alloc(uint64_t bytes, uint64_t *ret_address)
{
	struct gm_heap_request request = { bytes, KEY };
	uint32_t id = GM_NONE;

	gm_lock(&plain.lock);
	gm_heap_alloc(plain.heap, &request, &id);
	gm_unlock(&plain.lock);
	*ret_address = plain.blocks[id].address;
	return id;
}

static void plain_free(uint32_t id, uint64_t address)
{
	(void)address;
	gm_lock(&plain.lock);
	gm_heap_free_requested(plain.heap, id);
	gm_heap_free_completed(plain.heap, id);
	gm_unlock(&plain.lock);
}

/* ---- the heap in the journal ---- */

static struct gm_cache_heap *cached;
static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;

static uint32_t cached_alloc(uint64_t bytes, uint64_t *ret_address)
{
	struct gm_alloc alloc = { .requested = bytes, .stream = KEY, .module = 3 };
	uint32_t id = GM_NONE;

	if (gm_cache_heap_alloc(cached, 0, &alloc, &id) == -EAGAIN) {
		pthread_mutex_lock(&growth);
		gm_cache_heap_grow(cached, 0, &alloc, &id);
		pthread_mutex_unlock(&growth);
	}
	*ret_address = alloc.address;
	return id;
}

static bool at_once(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	(void)arg;
	(void)block;
	(void)number;
	(void)bytes;
	return true;
}

static void cached_free(uint32_t id, uint64_t address)
{
	struct gm_cache_free how = { .now = at_once };
	struct gm_cache_view view;

	gm_cache_heap_free(gm_cache_heap_peek(id, &view), 0, id, address, &how);
}

/* ---- rows ---- */

static uint32_t (*alloc_by)(uint64_t bytes, uint64_t *ret_address);
static void (*free_by)(uint32_t id, uint64_t address);

/* The same size again and again: cut from a larger block and merged with it, or kept. */
static void run_cut(void)
{
	for (unsigned long i = 0; i < operations; i++) {
		uint64_t address;
		uint32_t id = alloc_by(4096, &address);

		free_by(id, address);
	}
}

/* Whole segments: a free block of the size is there. */
static void run_whole(void)
{
	for (unsigned long i = 0; i < operations; i++) {
		uint64_t address;
		uint32_t id = alloc_by(UINT64_C(64) << 20, &address);

		free_by(id, address);
	}
}

static void run_random(uint32_t others)
{
	uint32_t random = 12345;

	for (unsigned long i = 0; i < operations; i++) {
		uint32_t at;

		random = random * 1664525u + 1013904223u;
		at = (random >> 8) % others;
		if (live[at])
			free_by(live[at], live_at[at]);
		random = random * 1664525u + 1013904223u;
		live[at] = alloc_by(512 + (random >> 8) % 131072, &live_at[at]);
	}
}

static void run_thousand(void)
{
	run_random(1000);
}

static void run_many(void)
{
	run_random(LIVE);
}

static void drain(void)
{
	for (uint32_t i = 0; i < LIVE; i++)
		if (live[i])
			free_by(live[i], live_at[i]);
	memset(live, 0, sizeof(live));
}

static const struct row { const char *name; void (*run)(void); } rows[] = {
	{ "the same size, 4 KiB", run_cut },
	{ "a whole segment, 64 MiB", run_whole },
	{ "random sizes, 1,000 live", run_thousand },
	{ "random sizes, 100,000 live", run_many },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void bench(const char *what, unsigned int rounds)
{
	static double ns[ROWS][ROUNDS_MOST];

	for (unsigned int i = 0; i < ROWS; i++) {
		if (!strstr(rows[i].name, chosen))
			continue;
		rows[i].run();			/* warm: segments, records, memory of the tables */
		for (unsigned int round = 0; round < rounds; round++) {
			double began = now_ns();

			rows[i].run();
			ns[i][round] = (now_ns() - began) / (double)operations;
		}
		drain();
		qsort(ns[i], rounds, sizeof(ns[i][0]), compare);
		printf("  %-32s %-28s %8.1f ns   (%.1f to %.1f)\n", what, rows[i].name,
		       ns[i][rounds / 2], ns[i][0], ns[i][rounds - 1]);
	}
}

/* ---- threads ---- */

#define THREADS_MOST 16
#define SIZES 4
#define BATCHES 50

static pthread_barrier_t together;
static bool mixed;			/* several sizes each, some live at a time */

static struct worker {
	uint32_t ids[SIZES], random;
	uint64_t at[SIZES];
	double ns;			/* a pair */
} __attribute__((aligned(128))) workers[THREADS_MOST];

static void pair(struct worker *worker)
{
	unsigned int n = 0;

	if (mixed) {
		worker->random = worker->random * 1664525u + 1013904223u;
		n = worker->random >> 20 & (SIZES - 1);
	}
	if (worker->ids[n])
		cached_free(worker->ids[n], worker->at[n]);
	worker->ids[n] = cached_alloc(UINT64_C(4096) << n, &worker->at[n]);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	double ns[BATCHES];

	pthread_barrier_wait(&together);
	for (unsigned int b = 0; b < BATCHES; b++) {
		double began = now_ns();

		for (unsigned long i = 0; i < operations / BATCHES; i++)
			pair(worker);
		ns[b] = (now_ns() - began) / (double)(operations / BATCHES);
	}
	for (unsigned int n = 0; n < SIZES; n++)
		if (worker->ids[n])
			cached_free(worker->ids[n], worker->at[n]);
	qsort(ns, BATCHES, sizeof(ns[0]), compare);
	worker->ns = ns[BATCHES / 2];
	return NULL;
}

/* Pairs a second of all of them, in millions. */
static double rate(unsigned int threads)
{
	pthread_t handles[THREADS_MOST];
	double sum = 0;

	pthread_barrier_init(&together, NULL, threads);
	for (unsigned int i = 0; i < threads; i++) {
		workers[i] = (struct worker){ .random = i * 2654435761u + 1 };
		if (pthread_create(&handles[i], NULL, work, &workers[i]))
			exit(1);
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(handles[i], NULL);
		sum += 1e3 / workers[i].ns;
	}
	pthread_barrier_destroy(&together);
	return sum;
}

static void bench_threads(const char *what, unsigned int rounds)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	double rates[ROUNDS_MOST], one = 0;

	for (unsigned int threads = 1; threads <= THREADS_MOST; threads *= 2) {
		if (!strstr("threads", chosen))
			break;
		if (threads > 1 && (long)threads > processors)
			break;
		rate(threads);			/* warm */
		for (unsigned int round = 0; round < rounds; round++)
			rates[round] = rate(threads);
		qsort(rates, rounds, sizeof(rates[0]), compare);
		if (threads == 1)
			one = rates[rounds / 2];
		printf("  %-32s %2u threads %8.2f million pairs/s, %5.2f of one thread's\n", what,
		       threads, rates[rounds / 2], rates[rounds / 2] / one);
	}
}

static int prepare_plain(void)
{
	struct gm_heap_config config;
	struct gm_heap_setup setup = { .config = &config, .ops = &plain_ops, .undo = &plain.undo,
				       .stats = &plain.stats, .memory = memory };

	gm_heap_config_default(&config);
	plain.segment_fresh = plain.block_fresh = 1;
	setup.segments = plain.segments = memory(NULL, TABLE * sizeof(struct gm_segment));
	setup.blocks = plain.blocks = memory(NULL, TABLE * sizeof(struct gm_block));
	setup.links = memory(NULL, TABLE * sizeof(struct gm_free_link));
	setup.map = gm_page_map_new(memory, NULL);
	if (!plain.segments || !plain.blocks || !setup.links || !setup.map)
		return -1;
	plain.heap = gm_heap_new(&setup);
	return plain.heap ? 0 : -ENOMEM;
}

static int prepare_cached(uint64_t history)
{
	struct gm_recorder_config config = { .place = "", .history_events = history, .output = "",
					     .version = "bench", .rank = -1 };
	struct gm_heap_config heap_config;
	static const struct gm_cache_driver driver = { .alloc = driver_alloc, .free = driver_free };
	struct gm_cache_heap_setup setup = { .config = &heap_config, .driver = &driver, .context = 1,
					     .thread_cache = true };
	struct gm_recorder_report report;
	int r = gm_recorder_start(&config, &report);

	if (r < 0) {
		printf("no journal: %s (%s)\n", strerror(-r), report.note);
		return r;
	}
	gm_cache_heap_begin();
	gm_tcache_begin();
	gm_heap_config_default(&heap_config);
	setup.map = gm_page_map_new(memory, NULL);
	return setup.map ? gm_cache_heap_new(&setup, &cached) : -ENOMEM;
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 7;
	static const uint64_t histories[] = { 1048576, 0 };

	if (argc > 2)
		operations = strtoul(argv[2], NULL, 10);
	if (argc > 3)
		chosen = argv[3];
	if (rounds < 1 || rounds > ROUNDS_MOST || operations < 1) {
		fprintf(stderr, "usage: bench_cache [rounds (1-%d) [pairs [rows]]]\n", ROUNDS_MOST);
		return 2;
	}
	printf("a pair of allocation and free, median of %u rounds of %lu\n", rounds, operations);
	if (prepare_plain())
		return 1;
	alloc_by = plain_alloc;
	free_by = plain_free;
	bench("the heap alone", rounds);
	alloc_by = cached_alloc;
	free_by = cached_free;
	for (unsigned int i = 0; i < 2; i++) {
		if (prepare_cached(histories[i]))
			return 1;
		bench(histories[i] ? "in the journal, with history" : "in the journal, no history",
		      rounds);
		for (unsigned int m = 0; m < 2; m++) {
			mixed = m;
			bench_threads(histories[i] ? m ? "history, four sizes" : "history, one size"
						   : m ? "no history, four sizes" :
							 "no history, one size", rounds);
		}
		gm_recorder_unlink();
		aux_forget();
	}
	return 0;
}
