/*
 * bench_heaps.c - both classes of heaps, side by side: what an operation costs, and what the heap reserves in parts of
 * what is live at the peak. One thread, no hooks, an ideal device: what PyTorch's algorithm takes (the segments heap) is
 * the peer of the pages heap.
 *
 * Rows: recorded histories (test/traces); RMM's random allocations (random_allocations.cpp of its benchmarks: sizes
 * uniform from 1 byte to some MiB, an allocation if nothing is live, or with a chance of 73% while N are not reached and
 * less than 16,000 MiB would be live, else the free of a random one); a number of blocks that stay live while random ones
 * go and come; and pairs of 1 KiB beside so many holes between live blocks. Each figure is the best of several rounds,
 * interleaved.
 * Prints a line for each row, with tabs: its name, ns an operation of the pages heap and of the segments heap, and what
 * each reserves in parts of what is live (in blocks rounded to 512 bytes, whatever else the heap rounds them to).
 *
 *	bench_heaps [rounds [rows]]		rows: those whose name has this in it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/pages_heap.h"
#include "tools/replay/replay.h"

#define MIB (UINT64_C(1) << 20)

static unsigned int rounds = 5;
static const char *chosen = "";

static void *must(void *memory)
{
	if (memory)
		return memory;
	fputs("bench_heaps: no memory\n", stderr);
	exit(1);
}

static void add(struct gm_trace *trace, enum gm_trace_op op, uint64_t id, uint64_t bytes)
{
	if (!(trace->count & (trace->count - 1)))
		trace->lines = must(realloc(trace->lines, (2 * trace->count + 1) * sizeof(*trace->lines)));
	trace->lines[trace->count++] = (struct gm_trace_line){ .op = (uint8_t)op, .id = id, .bytes = bytes };
}

static uint64_t allocate(struct gm_trace *trace, uint64_t bytes)
{
	add(trace, GM_TRACE_ALLOC, trace->ids, bytes);
	return trace->ids++;
}

/* std::default_random_engine of libstdc++, with its default seed. */
static uint32_t engine = 1;

#define ENGINE UINT64_C(2147483646)	/* as many numbers, from 0 on */

static uint64_t next(void)
{
	engine = (uint32_t)((uint64_t)engine * 16807 % (ENGINE + 1));
	return engine - 1;
}

/* std::uniform_int_distribution of libstdc++. */
static uint64_t uniform(uint64_t least, uint64_t most)
{
	uint64_t count = most - least + 1, part = ENGINE / count, drawn;

	if (count == ENGINE)
		return least + next();
	if (count < ENGINE) {
		do
			drawn = next();
		while (drawn >= part * count);
		return least + drawn / part;
	}
	do
		drawn = ENGINE * uniform(0, (count - 1) / ENGINE) + next();
	while (drawn >= count);
	return least + drawn;
}

struct live { uint64_t *id, *bytes, count, all; };

static void take(struct gm_trace *trace, struct live *live, uint64_t bytes)
{
	live->id[live->count] = allocate(trace, bytes);
	live->bytes[live->count++] = bytes;
	live->all += bytes;
}

static void give(struct gm_trace *trace, struct live *live, uint64_t n)
{
	add(trace, GM_TRACE_FREE, live->id[n], 0);
	live->all -= live->bytes[n];
	live->count--;
	live->id[n] = live->id[live->count];
	live->bytes[n] = live->bytes[live->count];
}

static struct live new_live(uint64_t most)
{
	return (struct live){ must(calloc(most, sizeof(uint64_t))), must(calloc(most, sizeof(uint64_t))), 0, 0 };
}

static void free_live(struct live *live)
{
	free(live->id);
	free(live->bytes);
}

/* @a allocations of up to @b MiB. */
static void rmm_random(struct gm_trace *trace, uint64_t a, uint64_t b)
{
	struct live live = new_live(2 * a);	/* it may make more than @a */
	uint64_t made = 0;

	for (uint64_t i = 0; i < 2 * a; i++) {
		uint64_t bytes = uniform(1, b * MIB);

		if (!live.count || (uniform(0, 99) < 73 && made < a && live.all + bytes < 16000 * MIB)) {
			take(trace, &live, bytes);
			made++;
		} else {
			give(trace, &live, uniform(0, a - 1) % live.count);
		}
	}
	free_live(&live);
}

/* @a blocks of up to @b KiB stay live. */
static void many_live(struct gm_trace *trace, uint64_t a, uint64_t b)
{
	struct live live = new_live(a + 1);

	while (live.count < a)
		take(trace, &live, uniform(1, b << 10));
	for (int i = 0; i < 100000; i++) {
		give(trace, &live, uniform(0, live.count - 1));
		take(trace, &live, uniform(1, b << 10));
	}
	free_live(&live);
}

/* Every other of 2 * @a blocks of @b KiB is a hole; then pairs of 1 KiB. */
static void holes(struct gm_trace *trace, uint64_t a, uint64_t b)
{
	for (uint64_t i = 0; i < 2 * a; i++)
		allocate(trace, b << 10);
	for (uint64_t i = 0; i < 2 * a; i += 2)
		add(trace, GM_TRACE_FREE, i, 0);
	for (int i = 0; i < 100000; i++)
		add(trace, GM_TRACE_FREE, allocate(trace, 1024), 0);
}

static void print_row(const char *name, const struct gm_trace *trace)
{
	static const struct gm_heap_class *const classes[] = { &gm_segments_class, &gm_pages_class };
	const struct gm_simulate_how how = { .capacity = GM_HEAP_UNLIMITED };
	struct gm_simulation run;
	double best[2] = { 1e9, 1e9 }, ratio[2];
	uint64_t live, streams;

	if (gm_trace_needs(trace, 0, &live, &streams)) {
		fprintf(stderr, "bench_heaps: %s: no memory\n", name);
		return;
	}
	for (unsigned int i = 0; i < 2 * rounds; i++) {
		struct gm_heap_config config;

		gm_heap_config_default(&config);
		config.class = classes[i % 2];
		if (gm_simulate(trace, &config, &how, &run) || run.failed) {
			fprintf(stderr, "bench_heaps: %s could not be run\n", name);
			return;
		}
		if ((double)run.ns / (double)run.operations < best[i % 2])
			best[i % 2] = (double)run.ns / (double)run.operations;
		ratio[i % 2] = (double)run.peak_used_bytes / (double)live;
	}
	printf("%s\t%.1f\t%.1f\t%.3f\t%.3f\n", name, best[1], best[0], ratio[1], ratio[0]);
	fflush(stdout);
}

static void row(const char *name, void (*make)(struct gm_trace *, uint64_t, uint64_t), uint64_t a, uint64_t b)
{
	struct gm_trace trace = { .count = 0 };

	if (!strstr(name, chosen))
		return;
	engine = 1;
	make(&trace, a, b);
	print_row(name, &trace);
	free(trace.lines);
}

static void recorded(const char *name)
{
	struct gm_trace trace;
	char path[128];

	snprintf(path, sizeof(path), "test/traces/%s.trace.gz", name);
	if (!strstr(name, chosen))
		return;
	if (gm_trace_read(&trace, path))
		fprintf(stderr, "bench_heaps: %s: %s\n", path, trace.error[0] ? trace.error : "cannot be read");
	else
		print_row(name, &trace);
	gm_trace_free(&trace);
}

int main(int argc, char **argv)
{
	static const char *const recordings[] = {
		"gpt", "gpt_tight", "moe_gc", "moe_roundup", "resnet", "streams", "pipeline", "serving"
	};
	static const struct { const char *name; uint64_t count; } counts[] = {
		{ "1,000", 1000 }, { "10,000", 10000 }, { "100,000", 100000 }
	};
	static const unsigned int mib[] = { 1, 4, 64, 256, 1024, 4096 };
	char name[64];

	if (argc > 1)
		rounds = (unsigned int)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		chosen = argv[2];
	for (size_t i = 0; i < sizeof(recordings) / sizeof(recordings[0]); i++)
		recorded(recordings[i]);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		for (size_t j = 0; j < sizeof(mib) / sizeof(mib[0]); j++) {
			snprintf(name, sizeof(name), "RMM random %s of %u MiB", counts[i].name, mib[j]);
			row(name, rmm_random, counts[i].count, mib[j]);
		}
	row("1,000 live of up to 8 MiB", many_live, 1000, 8192);
	row("10,000 live of up to 1 MiB", many_live, 10000, 1024);
	row("100,000 live of up to 64 KiB", many_live, 100000, 64);
	row("4,096 holes of 4 KiB", holes, 4096, 4);
	row("16,384 holes of 4 KiB", holes, 16384, 4);
	row("65,536 holes of 4 KiB", holes, 65536, 4);
	return 0;
}
