/*
 * bench_snapshot.c - what a snapshot costs: the pause under the locks, the copy, undo and sorting,
 * the JSON, for histories of 10,000 to 1,000,000 events and a number of live blocks.
 *
 * Events come from four threads in turn, each with a stack of 20 frames out of a few thousand. The
 * file goes to the directory named, else to TMPDIR or /tmp. Medians of several rounds.
 *
 *	bench_snapshot [rounds [directory]]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/journal/recorder.h"
#include "recorder/snapshot/snapshot.h"

#define ROUNDS_MOST 32
#define THREADS 4u
#define FRAMES 20u

static const struct size { unsigned long events, live; } sizes[] = {
	{ 10000, 100 }, { 100000, 1000 }, { 1000000, 10000 }, { 1000000, 100000 },
};

static struct size size;
static uint32_t stacks[4096];

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void make_stacks(void)
{
	uint32_t frames[2000], random = 1;

	for (uint32_t i = 0; i < 2000; i++) {
		struct gm_frame frame = { .offset = 64 * i, .module = 1 + i % 4 };

		frames[i] = gm_intern_frame(&frame);
	}
	for (unsigned int i = 0; i < 4096; i++) {
		uint32_t stack[FRAMES];

		for (unsigned int k = 0; k < FRAMES; k++)
			stack[k] = frames[(random = random * 1664525u + 1013904223u) % 2000];
		stacks[i] = gm_intern_stack(stack, FRAMES, false);
	}
}

static uint32_t allocate(uint64_t address, uint32_t random)
{
	struct gm_alloc alloc = {
		.address = address, .size = (random % 64 + 1) << 15, .context = 1,
		.requested = ((random % 64 + 1) << 15) - 100, .module = (uint16_t)(1 + random % 4),
		.stack = stacks[random >> 20], .kind = random & 1 ? GM_KIND_POOL : GM_KIND_DEVICE,
	};
	uint32_t block = 0;

	if (gm_record_alloc(0, &alloc, &block)) {
		fprintf(stderr, "bench_snapshot: the tables are full\n");
		exit(1);
	}
	return block;
}

/* Live blocks, then pairs of allocation and free (five events) until there are enough events. */
static void *record(void *arg)
{
	unsigned int thread = (unsigned int)(uintptr_t)arg;
	uint64_t base = (uint64_t)(thread + 1) << 40;
	uint32_t random = thread + 1;

	for (unsigned long i = 0; i < size.live / THREADS; i++)
		allocate(base + i * 0x200000, random = random * 1664525u + 1013904223u);
	for (unsigned long i = 2 * size.live / THREADS; i < size.events / THREADS; i += 5) {
		random = random * 1664525u + 1013904223u;
		gm_record_free(0, allocate(base - 0x10000000 + random % 64 * 0x200000, random), 0, 0);
	}
	return NULL;
}

static void begin(const char *room)
{
	struct gm_recorder_config config = {
		.place = room, .history_events = 1048576, .output = "", .version = "bench", .rank = -1,
	};
	struct gm_recorder_report report;
	pthread_t threads[THREADS];

	if (gm_recorder_start(&config, &report)) {
		fprintf(stderr, "bench_snapshot: no journal: %s\n", report.note);
		exit(1);
	}
	gm_recorder_unlink();
	gm_record_device(0, 0, "A device", (const uint8_t *)"0123456789abcdef", UINT64_C(80) << 30);
	for (unsigned int i = 1; i <= 4; i++)
		gm_publish_module((uint64_t)i << 32, (uint64_t)i << 32, (uint64_t)(i + 1) << 32,
				  "/usr/lib/libsomething.so", NULL, 0);
	make_stacks();
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, record, (void *)(uintptr_t)i);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	gm_recorder_tick();
}

enum { PAUSE, COPY, SETTLE, EMIT, TOTAL, COLUMNS };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double one_round(const char *room, double took[COLUMNS], size_t *ret_events)
{
	static const struct gm_snapshot_request request = { .reason = "bench" };
	char template[512], path[4096];
	struct gm_copy copy;
	double start = now_ms(), copied, settled, done;
	struct stat st = { 0 };

	memset(&copy, 0, sizeof(copy));
	if (gm_copy_from_process(&copy))
		exit(1);
	copied = now_ms();
	if (gm_copy_resolve(&copy, UINT64_MAX))
		exit(1);
	settled = now_ms();
	snprintf(template, sizeof(template), "%s/bench.%%p.json", room);
	if (gm_snapshot_write(&copy, &request, template, 0, NULL, path, sizeof(path)))
		exit(1);
	done = now_ms();
	*ret_events = copy.event_count;
	took[PAUSE] = (double)copy.locked_ns / 1e6;
	took[COPY] = copied - start;
	took[SETTLE] = settled - copied;
	took[EMIT] = done - settled;
	took[TOTAL] = done - start;
	gm_copy_free(&copy);
	stat(path, &st);
	unlink(path);
	return (double)st.st_size / 1e6;
}

static void bench(const char *room, unsigned int rounds)
{
	static double all[COLUMNS][ROUNDS_MOST];
	double took[COLUMNS], megabytes = 0;
	size_t events = 0;

	begin(room);
	for (unsigned int i = 0; i < rounds; i++) {
		megabytes = one_round(room, took, &events);
		for (int c = 0; c < COLUMNS; c++)
			all[c][i] = took[c];
	}
	for (int c = 0; c < COLUMNS; c++)
		qsort(all[c], rounds, sizeof(all[c][0]), by_value);
	printf("%9zu %8lu %9.2f %9.1f %9.1f %9.1f %9.1f %9.1f %8.0f\n", events, size.live,
	       all[PAUSE][rounds / 2], all[COPY][rounds / 2], all[SETTLE][rounds / 2],
	       all[EMIT][rounds / 2], all[TOTAL][rounds / 2], megabytes,
	       megabytes / all[EMIT][rounds / 2] * 1e3);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 7;
	const char *within = argc > 2 ? argv[2] : getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	char room[512];

	if (!rounds || rounds > ROUNDS_MOST)
		rounds = 7;
	snprintf(room, sizeof(room), "%s/gpumem-bench-XXXXXX", within);
	if (!mkdtemp(room)) {
		perror(room);
		return 1;
	}
	printf("snapshots into %s, medians of %u\n", within, rounds);
	printf("%9s %8s %9s %9s %9s %9s %9s %9s %8s\n", "events", "blocks", "pause ms", "copy ms",
	       "settle ms", "write ms", "total ms", "file MB", "MB/s");
	fflush(stdout);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int status = 0;
		pid_t child = fork();		/* a recorder of its own for each */

		if (!child) {
			size = sizes[i];
			bench(room, rounds);
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			return 1;
	}
	return rmdir(room) ? 1 : 0;
}
