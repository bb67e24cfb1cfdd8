/*
 * bench_record.c - what recording costs: ns for each thing a hook does, in one run.
 *
 * Each row is the median of several rounds, the rows interleaved so that a noisy neighbour meets
 * all of them. No driver, no hooks: the recorder alone, on a journal in the usual place, which is
 * removed at the end. Threads share one device, so that they meet at its lock, or have one each;
 * rows for more threads than there are processors are left out. Of n threads a time is that in
 * which each of them did one pair. While the history fills: the first 20,000 pairs of each thread in
 * a journal of its own, with and without a helper thread that gets memory for them.
 *
 *	bench_record [rounds [operations a round]]
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "recorder/journal/recorder.h"
#include "test/unit/journal/aux_forget.h"

#define THREADS_MOST 16
#define ROUNDS_MOST 64
#define LIVE 100000u
#define FIRST 20000u

static unsigned long operations = 200000;
static uint64_t history = 1048576;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct gm_alloc sample(uint64_t address)
{
	return (struct gm_alloc){ .address = address, .size = 2 << 20, .requested = 2000000,
				  .context = 1, .module = 3, .kind = GM_KIND_DEVICE };
}

static void run_stamp(unsigned int thread)
{
	uint64_t sum = 0;

	(void)thread;
	for (unsigned long i = 0; i < operations; i++)
		sum += gm_stamp();
	__asm__ volatile("" : : "r"(sum));
}

static void run_stamp_before(unsigned int thread)
{
	uint64_t sum = 0;

	(void)thread;
	for (unsigned long i = 0; i < operations; i++)
		sum += gm_stamp_before();
	__asm__ volatile("" : : "r"(sum));
}

static void run_op(unsigned int thread)
{
	for (unsigned long i = 0; i < operations; i++)
		gm_op_end(gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, thread, i));
}

static void run_note(unsigned int thread)
{
	(void)thread;
	for (unsigned long i = 0; i < operations; i++)
		gm_record_note(GM_ACTION_ANNOTATE, 0, i, 0);
}

static void run_pair(unsigned int thread)
{
	uint64_t base = (uint64_t)(thread + 1) << 40;

	for (unsigned long i = 0; i < operations; i++) {
		struct gm_alloc alloc = sample(base + i % 1024 * (4 << 20));
		uint32_t block;

		gm_record_alloc(0, &alloc, &block);
		gm_record_free(0, block, 0, 0);
	}
}

/* The cheapest that a driver was seen to be: 2.3 us a pair. Every thread has its own. */
static void driver(double ns)
{
	double until = ns > 0 ? now_ns() + ns : 0;

	while (ns > 0 && now_ns() < until)
		;
}

/* As a hook does it, the driver taking @ns each time. */
static void hook(unsigned int thread, uint8_t domain, double ns)
{
	uint64_t base = (uint64_t)(thread + 1) << 40;

	for (unsigned long i = 0; i < operations; i++) {
		struct gm_alloc alloc = sample(base + i % 1024 * (4 << 20));
		uint64_t op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, domain, 0, alloc.size);
		uint64_t tsc;
		struct gm_block copy;
		uint32_t block;

		alloc.domain = domain;
		driver(ns);
		alloc.tsc = gm_stamp();
		gm_record_alloc(op, &alloc, &block);
		gm_op_end(op);
		tsc = gm_stamp_before();
		gm_record_block(block, &copy);
		op = gm_op_begin_at(GM_ACTION_FREE_REQUESTED, GM_KIND_DEVICE, domain,
				    alloc.address, 0, tsc);
		gm_record_freeing(block);
		driver(ns);
		gm_record_free(op, block, tsc, 0);
		gm_op_end(op);
	}
}

static void run_hook(unsigned int thread)
{
	hook(thread, 0, 0);
}

static void run_devices(unsigned int thread)
{
	hook(thread, (uint8_t)(thread % 8), 0);
}

static void run_driven(unsigned int thread)
{
	hook(thread, 0, 1150);
}

/* Pairs with many others live, freed in an order that caches do not like. */
static uint32_t live[LIVE];

static void run_many(unsigned int thread)
{
	uint32_t random = 12345;

	if (thread)
		return;
	for (unsigned long i = 0; i < operations; i++) {
		struct gm_alloc alloc;
		uint32_t at;

		random = random * 1664525u + 1013904223u;
		at = (random >> 8) % LIVE;
		alloc = sample((UINT64_C(9) << 40) + at * (UINT64_C(4) << 20));
		if (live[at])
			gm_record_free(0, live[at], 0, 0);
		gm_record_alloc(0, &alloc, &live[at]);
	}
}

static const struct row {
	const char *name;
	void (*run)(unsigned int thread);
	unsigned int threads;
} rows[] = {
	{ "stamp, ordered after what came before", run_stamp, 1 },
	{ "stamp, ordered before what follows", run_stamp_before, 1 },
	{ "gm_op_begin + gm_op_end", run_op, 1 },
	{ "one event, with its stamp and lock", run_note, 1 },
	{ "alloc + free recorded, 5 events, 2 stamps", run_pair, 1 },
	{ "the same and both operations in flight", run_hook, 1 },
	{ "alloc + free, 100,000 others live", run_many, 1 },
	{ "as a hook, 2 threads, one device", run_hook, 2 },
	{ "as a hook, 4 threads, one device", run_hook, 4 },
	{ "as a hook, 16 threads, one device", run_hook, 16 },
	{ "as a hook, 16 threads, 8 devices", run_devices, 16 },
	{ "with 2.3 us of driver, 1 thread", run_driven, 1 },
	{ "with 2.3 us of driver, 2 threads", run_driven, 2 },
	{ "with 2.3 us of driver, 16 threads", run_driven, 16 },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

struct runner {
	const struct row *row;
	unsigned int thread;
	pthread_barrier_t *start;
	double began, ended;
};

static void *runner(void *arg)
{
	struct runner *r = arg;

	pthread_barrier_wait(r->start);
	r->began = now_ns();
	r->row->run(r->thread);
	r->ended = now_ns();
	return NULL;
}

/* ns of wall clock for one operation of one thread. */
static double measure(const struct row *row)
{
	struct runner runners[THREADS_MOST];
	pthread_t threads[THREADS_MOST];
	pthread_barrier_t start;
	double began, ended;

	pthread_barrier_init(&start, NULL, row->threads);
	for (unsigned int i = 0; i < row->threads; i++) {
		runners[i] = (struct runner){ .row = row, .thread = i, .start = &start };
		if (pthread_create(&threads[i], NULL, runner, &runners[i]))
			exit(1);
	}
	for (unsigned int i = 0; i < row->threads; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&start);
	began = runners[0].began;
	ended = runners[0].ended;
	for (unsigned int i = 1; i < row->threads; i++) {
		began = runners[i].began < began ? runners[i].began : began;
		ended = runners[i].ended > ended ? runners[i].ended : ended;
	}
	return (ended - began) / (double)operations;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static unsigned int cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 1 ? (unsigned int)n : 2;
}

static void bench(unsigned int rounds)
{
	static double ns[ROWS][ROUNDS_MOST];

	for (unsigned int round = 0; round < rounds; round++)
		for (unsigned int i = 0; i < ROWS; i++)
			ns[i][round] = rows[i].threads <= cores() ? measure(&rows[i]) : 0;
	printf("history of %llu events, median of %u rounds of %lu\n",
	       (unsigned long long)history, rounds, operations);
	for (unsigned int i = 0; i < ROWS; i++) {
		if (rows[i].threads > cores())
			continue;		/* it would measure the scheduler */
		qsort(ns[i], rounds, sizeof(ns[i][0]), compare);
		printf("  %-45s %8.1f ns   (%.1f to %.1f)\n", rows[i].name, ns[i][rounds / 2],
		       ns[i][0], ns[i][rounds - 1]);
	}
}

static int start(void)
{
	struct gm_recorder_config config = { .place = "", .history_events = history, .output = "",
					     .version = "bench", .rank = -1 };
	struct gm_recorder_report report;
	int r = gm_recorder_start(&config, &report);

	if (*report.note)
		printf("note: %s\n", report.note);
	if (r < 0)
		printf("no journal: %s\n", strerror(-r));
	return r;
}

/* ---- while the history fills ---- */

static const struct row filling[] = {
	{ "history fills, 1 thread", run_pair, 1 },
	{ "history fills, 2 threads, one device", run_pair, 2 },
	{ "history fills, 16 threads, one device", run_pair, 16 },
};
#define FILLING (sizeof(filling) / sizeof(filling[0]))

static _Atomic(bool) ended;

/* What of the library's helper thread matters here. */
static void *helper(void *arg)
{
	struct gm_header *header = arg;

	gm_recorder_hold_alive();
	while (!ended) {
		uint32_t number = header->request;

		gm_recorder_keep_up();
		syscall(SYS_futex, &header->request, FUTEX_WAIT, number, NULL, NULL, 0);
	}
	return NULL;
}

static double fill(const struct row *row, bool helped)
{
	struct gm_header *header;
	pthread_t thread;
	double ns;

	if (start() < 0)
		exit(1);
	header = gm_recorder_header();
	ended = false;
	if (helped && pthread_create(&thread, NULL, helper, header))
		exit(1);
	ns = measure(row);
	ended = true;
	header->request++;
	syscall(SYS_futex, &header->request, FUTEX_WAKE, 1, NULL, NULL, 0);
	if (helped)
		pthread_join(thread, NULL);
	gm_recorder_unlink();
	munmap(gm_rec.base, gm_rec.bytes);
	aux_forget();
	return ns;
}

static void bench_filling(unsigned int rounds)
{
	unsigned long before = operations;
	double ns[2][ROUNDS_MOST];

	operations = FIRST;
	for (unsigned int i = 0; i < FILLING; i++) {
		if (filling[i].threads > cores())
			continue;
		for (unsigned int round = 0; round < rounds; round++)
			for (unsigned int helped = 0; helped < 2; helped++)
				ns[helped][round] = fill(&filling[i], helped);
		for (unsigned int helped = 0; helped < 2; helped++) {
			qsort(ns[helped], rounds, sizeof(double), compare);
			printf("  %-36s%-9s %8.1f ns   (%.1f to %.1f)\n", filling[i].name,
			       helped ? "" : ", no help", ns[helped][rounds / 2], ns[helped][0],
			       ns[helped][rounds - 1]);
		}
	}
	operations = before;
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 7;

	if (argc > 2)
		operations = strtoul(argv[2], NULL, 10);
	if (rounds < 1 || rounds > ROUNDS_MOST || operations < 1) {
		fprintf(stderr, "usage: bench_record [rounds (1-%d) [operations]]\n", ROUNDS_MOST);
		return 2;
	}
	if (start() < 0)
		return 1;
	bench(rounds);
	gm_recorder_unlink();
	aux_forget();
	bench_filling(rounds);
	history = 0;
	memset(live, 0, sizeof(live));
	if (start() < 0)
		return 1;
	bench(rounds);
	gm_recorder_unlink();
	return 0;
}
