/*
 * The cache's heaps in the journal: random programs against a model, every call of the driver failing
 * once, tables that are full, contexts that end, several heaps and what is passed through in one
 * domain.
 *
 *	SEED=n  the seed      GM_STRESS=x  how long
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "test/unit/cache/aux_cache_heap.h"
#include "test/unit/journal/aux_journal.h"
#include "test/suite.h"
#include "test/seed.h"

#define STEPS 800			/* all is looked at after each */
#define MIB (UINT64_C(1) << 20)
#define HEAPS 3u
#define BLOCKS 256u
#define PASSED UINT64_C(0x100000000000)

struct one {
	uint32_t block;
	uint64_t address, size, requested;
	uint16_t module;
	unsigned int heap;
};

static struct {
	uint64_t seed;
	struct gm_cache_heap *heap[HEAPS];
	struct one live[BLOCKS], pending[BLOCKS], passed[BLOCKS];
	unsigned int lives, pendings, passes;
	uint64_t passed_next;
} world;

static uint64_t rnd(void)
{
	world.seed ^= world.seed << 13;
	world.seed ^= world.seed >> 7;
	world.seed ^= world.seed << 17;
	return world.seed;
}

static uint64_t some_bytes(void)
{
	uint64_t shift = rnd() % 26;

	return 1 + rnd() % ((UINT64_C(1) << shift) + 1);
}

static void take(struct one *list, unsigned int *count, unsigned int n)
{
	list[n] = list[--*count];
}

/* ---- the program's steps ---- */

static void alloc_one(void)
{
	unsigned int h = (unsigned int)(rnd() % HEAPS);
	struct gm_alloc alloc = aux_request(some_bytes(), rnd() % 3, (uint16_t)(1 + rnd() % 5));
	uint32_t block;
	int r = aux_serve(world.heap[h], &alloc, &block);

	if (r) {
		ck_assert(r == -ENOMEM || r == -ENOSPC);
		ck_assert_uint_eq(block, 0);
		return;
	}
	ck_assert_uint_ge(alloc.size, alloc.requested);
	for (unsigned int i = 0; i < world.lives; i++)	/* nobody's memory is given to another */
		ck_assert(alloc.address >= world.live[i].address + world.live[i].size ||
			  alloc.address + alloc.size <= world.live[i].address);
	for (unsigned int i = 0; i < world.pendings; i++)
		ck_assert(alloc.address >= world.pending[i].address + world.pending[i].size ||
			  alloc.address + alloc.size <= world.pending[i].address);
	world.live[world.lives++] = (struct one){ block, alloc.address, alloc.size, alloc.requested,
						  alloc.module, h };
}

static void free_one(void)
{
	unsigned int n = (unsigned int)(rnd() % world.lives);
	struct one one = world.live[n];
	bool now = rnd() % 2 || world.pendings == BLOCKS;

	ck_assert_int_eq(aux_release(world.heap[one.heap], one.block, one.address + 512, now),
			 -ENOENT);
	ck_assert_int_eq(aux_release(world.heap[one.heap], one.block, one.address, now), 0);
	take(world.live, &world.lives, n);
	if (!now)
		world.pending[world.pendings++] = one;
	ck_assert_int_eq(aux_release(world.heap[one.heap], one.block, one.address, now), -ENOENT);
}

static void complete_one(void)
{
	unsigned int n = (unsigned int)(rnd() % world.pendings);

	aux_complete(world.heap[world.pending[n].heap], world.pending[n].block);
	take(world.pending, &world.pendings, n);
}

static void complete_all(void)
{
	struct gm_reuse_item items[BLOCKS];
	unsigned int count = world.pendings;

	for (unsigned int i = 0; i < count; i++)
		items[i] = (struct gm_reuse_item){
			.block = world.pending[i].block,
			.owner = world.heap[world.pending[i].heap]->number
		};
	world.pendings = 0;
	gm_cache_heap_complete(items, count);
}

/* What goes to the driver unchanged lies in the same domain. */
static void pass_one(void)
{
	if (world.passes < BLOCKS && rnd() % 2) {
		uint64_t size = some_bytes();
		uint32_t block = aux_record(0, world.passed_next, size);

		world.passed[world.passes++] = (struct one){ .block = block, .size = size };
		world.passed_next += size + 512;
	} else if (world.passes) {
		unsigned int n = (unsigned int)(rnd() % world.passes);

		ck_assert_int_eq(gm_record_free(0, world.passed[n].block, 0, 0), 0);
		take(world.passed, &world.passes, n);
	}
}

/* A context ends: the heap with all its blocks; another one takes its place. */
static void end_context(unsigned int h)
{
	unsigned int live = 0, kept = 0;

	for (unsigned int i = 0; i < world.lives; i++)
		live += world.live[i].heap == h;
	ck_assert_uint_eq(gm_record_context_end(0, 10 + h, 0, GM_NONE, NULL, NULL), 0);
	ck_assert_uint_eq(gm_cache_heap_drop(world.heap[h], 0, GM_NONE), live);
	ck_assert_ptr_null(gm_cache_heap_by_number(world.heap[h]->number));
	ck_assert_int_eq(gm_cache_heap_check(world.heap[h]), 0);
	for (unsigned int i = 0; i < world.lives; i++)
		if (world.live[i].heap != h)
			world.live[kept++] = world.live[i];
	world.lives = kept;
	kept = 0;
	for (unsigned int i = 0; i < world.pendings; i++) {
		if (world.pending[i].heap != h)
			world.pending[kept++] = world.pending[i];
		else
			aux_complete(world.heap[h], world.pending[i].block);	/* too late: nothing */
	}
	world.pendings = kept;
	aux_driver.used = 0;			/* counted anew below */
	world.heap[h] = aux_heap(0, GM_KIND_DEVICE, 10 + h, "", GM_HEAP_UNLIMITED);
	aux_driver.capacity = UINT64_MAX;	/* from here on its count is not the heaps' */
	aux_driver.used = UINT64_C(1) << 50;
}

/* ---- the model ---- */

static void check_counters(void)
{
	uint64_t live[HEAPS] = { 0 }, all = 0, by_module[6] = { 0 }, pending = 0;
	struct gm_stats stats;

	for (unsigned int i = 0; i < world.lives; i++) {
		live[world.live[i].heap] += world.live[i].size;
		by_module[world.live[i].module] += world.live[i].size;
		all += world.live[i].size;
	}
	for (unsigned int i = 0; i < world.pendings; i++)
		pending += world.pending[i].size;
	for (unsigned int h = 0; h < HEAPS; h++)
		ck_assert_uint_eq(gm_cache_heap_live_bytes(world.heap[h]), live[h]);
	for (unsigned int i = 0; i < world.passes; i++)
		all += world.passed[i].size;
	ck_assert_int_eq(gm_record_stats(0, &stats), 0);
	ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].current, (int64_t)all);
	ck_assert_int_eq(stats.stat[GM_STAT_ACTIVE_BYTES][GM_POOL_ALL].current,
			 (int64_t)(all + pending));
	ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL].current,
			 (int64_t)(world.lives + world.passes));
	for (uint64_t i = 1; i < gm_get(&gm_region(GM_REGION_USAGE)->used) / sizeof(struct gm_usage);
	     i++) {
		const struct gm_usage *row = &gm_rec.usage[i];

		if (row->domain == 0 && row->kind == GM_USAGE_ALL_KINDS && row->module < 6)
			ck_assert_int_eq(row->current_bytes, (int64_t)by_module[row->module]);
	}
}

static void check_blocks(void)
{
	for (unsigned int i = 0; i < world.lives; i++) {
		struct gm_block copied;

		ck_assert_ptr_eq(gm_cache_heap_of(world.live[i].block, &copied),
				 world.heap[world.live[i].heap]);
		ck_assert_int_eq(copied.state, GM_BLOCK_ACTIVE);
		ck_assert_uint_eq(copied.address, world.live[i].address);
		ck_assert_uint_eq(copied.size, world.live[i].size);
		ck_assert_uint_eq(copied.requested, world.live[i].requested);
		ck_assert_uint_eq(copied.module, world.live[i].module);
	}
	for (unsigned int i = 0; i < world.pendings; i++) {
		struct gm_block copied;

		ck_assert(gm_record_block(world.pending[i].block, &copied));
		ck_assert_int_eq(copied.state, GM_BLOCK_PENDING);
		ck_assert_int_eq(gm_record_free(0, world.pending[i].block, 0, 0), -ENOENT);
	}
	for (unsigned int i = 0; i < world.passes; i++) {
		struct gm_block copied;

		ck_assert_ptr_null(gm_cache_heap_of(world.passed[i].block, &copied));
	}
}

static void check_all(void)
{
	ck_assert_int_eq(aux_check_heaps(), 0);
	aux_sound();
	check_counters();
	check_blocks();
}

/* Every event of the trace fits what came before it; at its end is what the model has. */
static void check_trace(void)
{
	static struct { uint64_t address, size; bool requested; } live[4 * BLOCKS];
	struct gm_copy copy;
	unsigned int count = 0, pending = 0;

	aux_copy(&copy);
	ck_assert_uint_eq(copy.dropped_total, 0);
	for (size_t i = 0; i < copy.event_count; i++) {
		const struct gm_event *event = copy.events[i];
		unsigned int n = 0;

		if (event->action != GM_ACTION_ALLOC && event->action != GM_ACTION_FREE_REQUESTED &&
		    event->action != GM_ACTION_FREE_COMPLETED)
			continue;
		while (n < count && live[n].address != event->address)
			n++;
		if (event->action == GM_ACTION_ALLOC) {
			ck_assert_uint_eq(n, count);
			live[count].address = event->address;
			live[count].requested = false;
			live[count++].size = event->size;
			continue;
		}
		ck_assert_uint_lt(n, count);
		ck_assert_uint_eq(live[n].size, event->size);
		ck_assert(live[n].requested == (event->action == GM_ACTION_FREE_COMPLETED));
		live[n].requested = true;
		if (event->action == GM_ACTION_FREE_COMPLETED)
			live[n] = live[--count];
	}
	for (unsigned int i = 0; i < count; i++)
		pending += live[i].requested;
	ck_assert_uint_eq(pending, world.pendings);
	ck_assert_uint_eq(count, world.lives + world.passes + world.pendings);
	gm_copy_free(&copy);
}

static void begin(const char *conf, uint64_t limit, uint64_t capacity, uint64_t seed)
{
	memset(&world, 0, sizeof(world));
	world.seed = seed | 1;
	world.passed_next = PASSED;
	aux_driver_begin(capacity);
	aux_start(1048576);
	for (unsigned int h = 0; h < HEAPS; h++)
		world.heap[h] = aux_heap(0, h == 1 ? GM_KIND_POOL : GM_KIND_DEVICE, h == 1 ? 0 : 10 + h,
					 conf, limit);
}

static const struct { const char *conf; uint64_t limit, capacity; } settings[] = {
	{ "", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED },
	{ "", GM_HEAP_UNLIMITED, 300 * MIB },
	{ "max_split_size_mb:24,max_non_split_rounding_mb:30", 100 * MIB, 250 * MIB },
	{ "garbage_collection_threshold:0.5", 200 * MIB, GM_HEAP_UNLIMITED },
};

START_TEST(random_programs)
{
	unsigned long steps = aux_effort(STEPS);

	begin(settings[_i].conf, settings[_i].limit, settings[_i].capacity, test_seed() + (uint64_t)_i);
	aux_driver.settle = complete_all;
	for (unsigned long i = 0; i < steps; i++) {
		uint64_t dice = rnd() % 100;

		if (dice < 45 && world.lives < BLOCKS)
			alloc_one();
		else if (dice < 75 && world.lives)
			free_one();
		else if (dice < 88 && world.pendings)
			complete_one();
		else if (dice < 98)
			pass_one();
		else if (dice < 99)
			gm_cache_heap_empty(world.heap[rnd() % HEAPS], UINT64_MAX);
		else if (i > steps / 2)
			end_context(rnd() % 2 ? 2 : 0);
		check_all();
		if (i % 256 == 0)
			check_trace();
	}
	check_trace();
	for (unsigned int h = 0; h < HEAPS; h++)
		gm_cache_heap_drop(world.heap[h], 0, GM_NONE);
	aux_sound();
}
END_TEST

/* The n-th allocation of the driver and all after it fail, for every n: nothing is lost. */
START_TEST(driver_fails)
{
	begin("", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED, 7);
	for (unsigned int n = 1; n < 40; n++) {
		aux_driver.calls = 0;
		aux_driver.fail_at = n;
		while (world.lives < 60 && aux_driver.calls < n)
			alloc_one();
		check_all();
		while (world.lives)
			free_one();
		complete_all();
		aux_driver.fail_at = 0;
		for (unsigned int h = 0; h < HEAPS; h++) {
			uint64_t idle = gm_cache_heap_idle_bytes(world.heap[h]);

			ck_assert_uint_eq(gm_cache_heap_empty(world.heap[h], UINT64_MAX), idle);
			ck_assert_uint_eq(gm_cache_heap_idle_bytes(world.heap[h]), 0);
		}
		ck_assert_uint_eq(aux_driver.used, 0);
		check_all();
	}
	check_trace();
}
END_TEST

/* Segments of their own until no record is left; the one too many goes back. */
static void until_full(void)
{
	for (;;) {
		struct gm_alloc alloc = aux_request(64 * MIB, 9, 1);
		uint64_t used = aux_driver.used;
		uint32_t block;
		int r = aux_serve(world.heap[0], &alloc, &block);

		if (r) {
			ck_assert_int_eq(r, -ENOSPC);
			ck_assert_uint_eq(block, 0);
			ck_assert_uint_eq(aux_driver.used, used);
			return;
		}
		ck_assert_uint_lt(world.lives, BLOCKS);
		world.live[world.lives++] = (struct one){ block, alloc.address, alloc.size,
							  alloc.requested, 1, 0 };
	}
}

static struct gm_region room;		/* what fill changed */

/* @region has no room left, backed or not: room is set aside ahead of need. */
static void fill(struct gm_region *region)
{
	room.capacity = region->capacity;
	gm_set(&room.populated, gm_get(&region->populated));
	region->capacity = gm_get(&region->used);
	gm_set(&region->populated, gm_get(&region->used));
}

static void make_room(struct gm_region *region)
{
	region->capacity = room.capacity;
	gm_set(&region->populated, gm_get(&room.populated));
}

/* The tables have no room: first for cuts, then for segments. What was served stays, the memory got
 * for nothing goes back, and when there is room again all goes on. */
START_TEST(tables_are_full)
{
	struct gm_region *blocks, *segments;

	begin("", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED, 11);
	blocks = gm_region(GM_REGION_BLOCKS);
	segments = gm_region(GM_REGION_SEGMENTS);
	for (int i = 0; i < 20; i++)
		alloc_one();
	fill(blocks);
	for (int i = 0; i < 100; i++) {
		alloc_one();
		if (world.lives && i % 3 == 0)
			free_one();
		make_room(blocks);
		check_all();
		fill(blocks);
	}
	until_full();
	ck_assert_uint_gt(blocks->refused, 0);
	make_room(blocks);
	check_all();
	fill(segments);
	gm_rec.domain[0].spare_segment = GM_NONE;
	until_full();
	ck_assert_uint_gt(segments->refused, 0);
	make_room(segments);
	memset(gm_rec.patience, 0, sizeof(gm_rec.patience));
	for (int i = 0; i < 40; i++)
		alloc_one();
	check_all();
	check_trace();
}
END_TEST

/* The kernel refuses all memory. What needs some, for free sets or tables, is not served: no segment is made, and
 * none is lost. What needs none yet is served, though room could not be set aside. With memory the same
 * request is served. */
START_TEST(memory_fails)
{
	unsigned int failed = 0, spared = 0;

	begin("", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED, 13);
	aux_sys_wrap();
	aux_fail_on = true;
	for (unsigned int stream = 1; stream < 60; stream++) {
		struct gm_alloc alloc = aux_request(1000, stream, 1);
		uint64_t used = aux_driver.used;
		uint32_t block;
		int r;

		aux_calls = 0;
		aux_fail_at = 1;
		r = aux_serve(world.heap[0], &alloc, &block);
		aux_fail_at = 0;
		spared += !r && aux_calls;
		if (r) {
			ck_assert(r == -ENOSPC || r == -ENOMEM);
			ck_assert_uint_gt(aux_calls, 0);
			ck_assert_uint_eq(aux_driver.used, used);
			check_all();
			failed++;
			memset(gm_rec.patience, 0, sizeof(gm_rec.patience));
			alloc = aux_request(1000, stream, 1);
			ck_assert_int_eq(aux_serve(world.heap[0], &alloc, &block), 0);
		}
		world.live[world.lives++] = (struct one){ block, alloc.address, alloc.size,
							  alloc.requested, 1, 0 };
		check_all();
	}
	ck_assert_uint_gt(failed, 3);
	ck_assert_uint_gt(spared, 0);
	ck_assert_uint_gt(gm_region(GM_REGION_SEGMENTS)->refused + gm_region(GM_REGION_BLOCKS)->refused, 0);
}
END_TEST

/* A heap that there was no memory for leaves nothing behind: the next one has its number. */
START_TEST(heap_cannot_be_made)
{
	struct gm_heap_config config;
	static struct gm_heap_ops ops;
	struct gm_cache_heap_setup setup = { .config = &config, .ops = &ops };
	struct gm_cache_heap *heap;

	gm_heap_config_default(&config);
	gm_cache_heap_records(&ops);
	begin("", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED, 29);
	aux_sys_wrap();
	aux_fail_on = true;
	for (unsigned int i = 0; i < 5; i++) {
		aux_calls = 0;
		aux_fail_at = 1;
		ck_assert_int_eq(gm_cache_heap_new(&setup, &heap), -ENOMEM);
		ck_assert_uint_eq(aux_calls, 1);
	}
	aux_fail_at = 0;
	ck_assert_ptr_null(gm_cache_heap_by_number(world.heap[HEAPS - 1]->number + 1));
	ck_assert_int_eq(gm_cache_heap_new(&setup, &heap), 0);
	ck_assert_uint_eq(heap->number, world.heap[HEAPS - 1]->number + 1);
	ck_assert_ptr_eq(gm_cache_heap_by_number(heap->number), heap);
	check_all();
}
END_TEST

static uint32_t longest;

static void note_length(void)
{
	uint32_t count = gm_get(&gm_rec.domains[0].undo_count);

	longest = count > longest ? count : longest;
}

/* No transaction comes near the end of the undo area, whatever it does at once: growth in a domain
 * with others, collection, release, a block between two free ones, peaks that all rise. */
START_TEST(longest_transaction)
{
	begin("garbage_collection_threshold:0.5,max_split_size_mb:20", 200 * MIB, 150 * MIB, 17);
	aux_driver.between = note_length;
	for (int i = 0; i < 4000; i++) {
		uint64_t dice = rnd() % 100;

		if (dice < 50 && world.lives < BLOCKS)
			alloc_one();
		else if (dice < 80 && world.lives)
			free_one();
		else if (dice < 97 && world.pendings)
			complete_one();
		else if (dice < 98)
			gm_cache_heap_empty(world.heap[rnd() % HEAPS], UINT64_MAX);
		note_length();
		if (i % 50 == 0)
			gm_record_reset_stats(0, GM_RESET_PEAK);
	}
	check_all();
	printf("# the longest transaction took %u of %u entries\n", longest, GM_UNDO_ENTRIES);
	ck_assert_uint_gt(longest, 60);
	ck_assert_uint_lt(longest, GM_UNDO_ENTRIES * 3 / 4);
}
END_TEST

/* Small blocks leave no events: at no end of their life. What remains adds up. */
START_TEST(small_blocks_untraced)
{
	struct gm_copy copy;
	unsigned int alloc = 0, requested = 0, completed = 0, live = 0;

	begin("", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED, 19);
	gm_rec.min_size = gm_get(&gm_rec.header)->history_min_size = 100000;
	for (int i = 0; i < 1000; i++) {
		if (rnd() % 2 && world.lives < BLOCKS)
			alloc_one();
		else if (world.lives && world.pendings < BLOCKS)
			free_one();
		if (world.pendings > 100)
			complete_all();
	}
	for (unsigned int i = 0; i < world.lives; i++)
		live += world.live[i].requested >= 100000;
	aux_copy(&copy);
	for (size_t i = 0; i < copy.event_count; i++) {
		const struct gm_event *event = copy.events[i];

		ck_assert_uint_ge(event->size, 100000);
		alloc += event->action == GM_ACTION_ALLOC;
		requested += event->action == GM_ACTION_FREE_REQUESTED;
		completed += event->action == GM_ACTION_FREE_COMPLETED;
	}
	ck_assert_uint_gt(alloc, 50);
	ck_assert_uint_eq(alloc - requested, live);
	ck_assert_uint_le(completed, requested);
	ck_assert_uint_gt(gm_get(&gm_rec.domains[0].counts.small), 100);
	gm_copy_free(&copy);
}
END_TEST

/* What cannot be asked for, and who is no heap's. */
START_TEST(refused)
{
	struct gm_heap_config config;
	struct gm_cache_heap_setup setup = { .config = &config, .domain = GM_DOMAINS };
	struct gm_alloc alloc = aux_request(GM_HEAP_REQUEST_LIMIT, 1, 1);
	uint64_t used, high;
	struct gm_cache_heap *heap;
	uint32_t block;

	gm_heap_config_default(&config);
	ck_assert_int_eq(gm_cache_heap_new(&setup, &heap), -ENODEV);
	ck_assert_ptr_null(gm_cache_heap_by_number(1));
	begin("", 10 * MIB, GM_HEAP_UNLIMITED, 23);
	ck_assert_int_eq(gm_cache_heap_new(&setup, &heap), -EINVAL);
	ck_assert_int_eq(aux_serve(world.heap[0], &alloc, &block), -E2BIG);
	alloc = aux_request(11 * MIB, 1, 1);
	ck_assert_int_eq(aux_serve(world.heap[0], &alloc, &block), -ENOMEM);
	gm_cache_heap_set_limit(world.heap[0], 12 * MIB, GM_HEAP_UNLIMITED);
	ck_assert_int_eq(aux_serve(world.heap[0], &alloc, &block), 0);
	ck_assert_int_eq(aux_release(world.heap[2], block, alloc.address, true), -ENOENT);
	ck_assert_int_eq(aux_release(world.heap[0], 4711000, alloc.address, true), -ENOENT);
	ck_assert_uint_eq(gm_cache_heap_largest_free(world.heap[0]), 0);
	ck_assert_int_eq(aux_release(world.heap[0], block, alloc.address, true), 0);
	ck_assert_uint_eq(gm_cache_heap_largest_free(world.heap[0]), 12 * MIB);
	ck_assert_uint_eq(gm_cache_heap_idle_bytes(world.heap[0]), 12 * MIB);
	heap = world.heap[0];
	gm_cache_heap_used(heap, &used, &high);
	ck_assert_uint_eq(used, 0);
	ck_assert_uint_eq(high, 11 * MIB);
	gm_cache_heap_reset_high(heap);
	gm_cache_heap_used(heap, &used, &high);
	ck_assert_uint_eq(high, 0);
	ck_assert_ptr_eq(gm_cache_heap_by_number(heap->number), heap);
	gm_cache_heap_drop(heap, 0, GM_NONE);
	ck_assert_int_eq(aux_serve(heap, &alloc, &block), -ENODEV);
	ck_assert_uint_eq(gm_cache_heap_empty(heap, UINT64_MAX), 0);
	ck_assert_uint_eq(gm_cache_heap_idle_bytes(heap), 0);
	aux_sound();
}
END_TEST

static int violations(void)
{
	struct gm_copy copy;
	int bad;

	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	bad = gm_copy_check(&copy, NULL, NULL);
	gm_copy_free(&copy);
	return bad;
}

/* The GPU has finished with it before its freer comes to put it off. */
static enum gm_cache_when completes(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	struct gm_reuse_item item = { .block = block, .owner = number, .bytes = bytes };

	gm_cache_heap_complete(&item, 1);
	*(int *)arg += violations();
	return GM_FREE_LATER;
}

/* A copy of any moment of that is sound: a program may be killed there. */
START_TEST(completed_while_freed)
{
	struct gm_alloc alloc = aux_request(3 * MIB, 1, 1);
	int bad = 0;
	struct gm_cache_free how = { .when = completes, .arg = &bad, .stack = GM_STACK_OF_BLOCK };
	uint32_t block;

	begin("", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED, 24);
	ck_assert_int_eq(aux_serve(world.heap[0], &alloc, &block), 0);
	ck_assert_int_eq(gm_cache_heap_free(world.heap[0], 0, block, alloc.address, &how), 0);
	ck_assert_int_eq(bad, 0);
	ck_assert_int_eq(violations(), 0);
	ck_assert_uint_eq(gm_cache_heap_idle_bytes(world.heap[0]), 20 * MIB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache_heap");
	TCase *tc = tcase_create("cached");

	tcase_set_timeout(tc, 600);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(tc, random_programs, 0, sizeof(settings) / sizeof(settings[0]));
	tcase_add_test(tc, driver_fails);
	tcase_add_test(tc, tables_are_full);
	tcase_add_test(tc, memory_fails);
	tcase_add_test(tc, heap_cannot_be_made);
	tcase_add_test(tc, longest_transaction);
	tcase_add_test(tc, small_blocks_untraced);
	tcase_add_test(tc, refused);
	tcase_add_test(tc, completed_while_freed);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
