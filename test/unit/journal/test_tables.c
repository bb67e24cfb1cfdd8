/* Segments, blocks, statistics, usage rows: one by one, all at once from many threads, and full. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "recorder/record/lives_change.h"
#include "recorder/record/pools.h"

#define MIB (UINT64_C(1) << 20)

static const struct gm_stats *stats(uint8_t domain)
{
	return &gm_rec.domains[domain].stats;
}

static void stat_is(uint8_t domain, enum gm_stat_name name, enum gm_pool_class pool,
		    int64_t current, int64_t peak, int64_t allocated, int64_t freed)
{
	struct gm_stats now = *stats(domain);
	const struct gm_stat *s = &now.stat[name][pool];

	if (domain >= GM_DOMAIN_POOLS)
		gm_pool_count(gm_pool_at(domain), &now);
	ck_assert_int_eq(s->current, current);
	ck_assert_int_eq(s->peak, peak);
	ck_assert_int_eq(s->allocated, allocated);
	ck_assert_int_eq(s->freed, freed);
}

static const struct gm_usage *row(uint8_t domain, uint16_t module, uint8_t kind)
{
	uint64_t rows = gm_region(GM_REGION_USAGE)->used / sizeof(struct gm_usage);

	for (uint64_t i = 1; i < rows; i++)
		if (gm_rec.usage[i].domain == domain && gm_rec.usage[i].module == module &&
		    gm_rec.usage[i].kind == kind)
			return &gm_rec.usage[i];
	return NULL;
}

START_TEST(test_one)
{
	struct gm_alloc alloc = {
		.address = 0x7f0000000000, .size = 3 * MIB, .requested = 3 * MIB - 100, .stream = 0x55,
		.handle = 0x66, .context = 4, .module = 9, .domain = 2,
		.kind = GM_KIND_POOL, .flags = GM_SEGMENT_EXPANDABLE,
	};
	const struct gm_segment *segment;
	const uint32_t frame = 0;
	struct gm_block copied;
	uint32_t block, again;

	aux_start(1000);
	alloc.stack = gm_intern_stack(&frame, 1, false);
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &block), 0);
	aux_sound();
	ck_assert(gm_record_block(block, &copied));
	ck_assert_uint_eq(copied.address, alloc.address);
	ck_assert_uint_eq(copied.size, alloc.size);
	ck_assert_uint_eq(copied.requested, alloc.requested);
	ck_assert_uint_eq(copied.stream, 0x55);
	ck_assert_uint_eq(copied.stack, alloc.stack);
	ck_assert_uint_eq(copied.module, 9);
	ck_assert_uint_eq(copied.domain, 2);
	ck_assert_uint_eq(copied.kind, GM_KIND_POOL);
	ck_assert_uint_eq(copied.state, GM_BLOCK_ACTIVE);
	ck_assert_uint_eq(copied.thread, (uint32_t)gettid());
	ck_assert_uint_gt(copied.tsc, 0);
	segment = &gm_rec.segments[copied.segment];
	ck_assert_uint_eq(segment->used, 1);
	ck_assert_uint_eq(segment->flags, GM_SEGMENT_EXPANDABLE);
	ck_assert_uint_eq(segment->handle, 0x66);
	ck_assert_uint_eq(segment->context, 4);
	ck_assert_uint_eq(segment->op, copied.op);
	stat_is(2, GM_STAT_ALLOCATED_BYTES, GM_POOL_ALL, 3 * MIB, 3 * MIB, 3 * MIB, 0);
	stat_is(2, GM_STAT_ALLOCATED_BYTES, GM_POOL_LARGE, 3 * MIB, 3 * MIB, 3 * MIB, 0);
	stat_is(2, GM_STAT_ALLOCATED_BYTES, GM_POOL_SMALL, 0, 0, 0, 0);
	stat_is(2, GM_STAT_REQUESTED_BYTES, GM_POOL_ALL, 3 * MIB - 100, 3 * MIB - 100,
		3 * MIB - 100, 0);
	ck_assert_uint_eq(gm_rec.domains[2].live_bytes[GM_KIND_POOL], 3 * MIB);

	gm_record_freeing(block);
	ck_assert(gm_record_block(block, &copied));
	ck_assert_uint_eq(copied.state, GM_BLOCK_FREEING);
	aux_sound();
	gm_record_not_freed(block);
	gm_record_block(block, &copied);
	ck_assert_uint_eq(copied.state, GM_BLOCK_ACTIVE);
	gm_record_freeing(block);
	ck_assert_int_eq(gm_record_free(0, block, 0, 0x55), 0);
	aux_sound();
	ck_assert(!gm_record_block(block, &copied));
	ck_assert_int_eq(gm_record_free(0, block, 0, 0), -ENOENT);
	gm_record_freeing(block);	/* of nothing: no effect */
	gm_record_not_freed(block);
	stat_is(2, GM_STAT_ALLOCATION, GM_POOL_ALL, 0, 1, 1, 1);
	stat_is(2, GM_STAT_SEGMENT, GM_POOL_LARGE, 0, 1, 1, 1);
	stat_is(2, GM_STAT_RESERVED_BYTES, GM_POOL_ALL, 0, 3 * MIB, 3 * MIB, 3 * MIB);
	stat_is(2, GM_STAT_INACTIVE_SPLIT, GM_POOL_ALL, 0, 0, 0, 0);
	ck_assert_int_eq(stats(2)->num_device_alloc, 1);
	ck_assert_int_eq(stats(2)->num_device_free, 1);
	ck_assert_int_eq(stats(2)->max_split_size, -1);
	/* The ids come back, for this domain only. */
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &again), 0);
	ck_assert_uint_eq(again, block);
	ck_assert_uint_ne(aux_record(0, 0x1000, 512), block);
	aux_sound();
}
END_TEST

START_TEST(test_wrong_arguments)
{
	struct gm_alloc alloc = aux_alloc(0, 0x1000, 512);
	struct gm_held held;
	struct gm_block copied;
	uint32_t block = 5;

	/* Nothing is recorded: nothing happens. */
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &block), -ENODEV);
	ck_assert_uint_eq(block, 0);
	ck_assert_int_eq(gm_record_free(0, 1, 0, 0), -ENODEV);
	ck_assert_int_eq(gm_record_change(0, 1, 0, 0, 0, GM_NONE), -ENODEV);
	ck_assert_uint_eq(gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, 0), 0);
	gm_op_end(0);
	gm_op_end(UINT64_MAX);
	gm_record_freeing(1);
	gm_record_note(GM_ACTION_ANNOTATE, 0, 0, 0);
	gm_record_free_bytes(0, 1, 2, 0);
	gm_record_device(0, 0, "x", NULL, 1);
	gm_record_driver_version(12);
	ck_assert_uint_eq(gm_record_context_end(0, 1, 0, GM_NONE, NULL, NULL), 0);
	ck_assert(!gm_record_block(1, &copied));
	ck_assert_int_eq(gm_recorder_check(), 0);
	ck_assert(!gm_recorder_lock_all(0, &held));
	gm_recorder_tick();
	gm_recorder_unlink();

	aux_start(100);
	alloc.kind = GM_KIND_COUNT;
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &block), -EINVAL);
	alloc = aux_alloc(GM_DOMAINS, 0x1000, 512);
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &block), -EINVAL);
	ck_assert_int_eq(gm_record_free(0, 0, 0, 0), -ENOENT);
	ck_assert_int_eq(gm_record_free(0, 1, 0, 0), -ENOENT);
	ck_assert_int_eq(gm_record_free(0, UINT32_MAX, 0, 0), -ENOENT);
	ck_assert_int_eq(gm_record_change(0, UINT32_MAX, 0, 0, 0, GM_NONE), -ENOENT);
	gm_record_freeing(UINT32_MAX);
	gm_record_free_bytes(GM_DOMAINS, 1, 2, 0);
	gm_op_end(UINT64_MAX);
	ck_assert_int_eq(aux_try_start(0, ""), -EALREADY);
	aux_sound();
}
END_TEST

/* A pool of the program's: what it holds and what it handed out count apart, and leave their own events. */
START_TEST(test_pool)
{
	struct gm_alloc piece = aux_alloc(0, 0x10000000, 4 * MIB), alloc;
	struct gm_lives lives = { .domain = 0 };
	struct gm_handed block = { .module = 7 };
	uint64_t low, high, at = 0;
	struct gm_piece found;
	uint32_t held, first;
	uint8_t pool;

	aux_start(1000);
	aux_record(2, 0x10000000, 4 * MIB);
	alloc = aux_alloc(GM_DOMAIN_POOLS, 0x10000000, MIB);
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &first), -EINVAL);
	pool = gm_record_pool(GM_POOL_API, 2, gm_intern_string("mine", 4), 5);
	ck_assert_uint_eq(pool, GM_DOMAIN_POOLS);
	ck_assert_uint_eq(gm_record_pool(GM_POOL_API, 2, 8, 6), GM_DOMAIN_POOLS + 1);
	ck_assert_uint_eq(gm_pool_at(pool)->device, 2);
	ck_assert_ptr_null(gm_pool_at(2));
	ck_assert(gm_record_find(2, 0x10000000 + MIB, &found, &low, &high));
	ck_assert_uint_eq(found.address, 0x10000000);
	ck_assert(!gm_record_find(2, 0x10000000 + 4 * MIB, &found, &low, &high));
	ck_assert_uint_eq(low, 0x10000000 + 4 * MIB);
	ck_assert_uint_eq(high, UINT64_MAX);

	piece.domain = pool;
	piece.requested = 0;
	piece.flags = GM_SEGMENT_HELD;
	ck_assert_int_eq(gm_record_alloc(0, &piece, &held), 0);
	ck_assert(gm_lives_begin(&lives, pool, 0));
	block.address = 0x10000000;
	block.size = MIB;
	ck_assert_int_eq(gm_lives_add(&lives, &block), 0);
	block.address += 2 * MIB;
	block.size = 2 * MIB;
	ck_assert_int_eq(gm_lives_add(&lives, &block), 0);
	aux_sound();
	stat_is(pool, GM_STAT_ALLOCATED_BYTES, GM_POOL_ALL, 3 * MIB, 3 * MIB, 3 * MIB, 0);
	stat_is(pool, GM_STAT_ALLOCATED_BYTES, GM_POOL_SMALL, MIB, MIB, MIB, 0);
	stat_is(pool, GM_STAT_RESERVED_BYTES, GM_POOL_ALL, 4 * MIB, 4 * MIB, 4 * MIB, 0);
	stat_is(pool, GM_STAT_ACTIVE_BYTES, GM_POOL_ALL, 0, 0, 0, 0);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_ALLOC), 3);	/* the driver's among them */
	ck_assert_uint_eq(aux_count_events(GM_ACTION_SEGMENT_ALLOC), 2);
	ck_assert_uint_eq(gm_lives_size(&lives, 0x10000000), MIB);
	ck_assert_uint_eq(gm_lives_size(&lives, 0x10000000 + 512), 0);

	ck_assert_int_eq(gm_lives_end(&lives, 0x10000000, GM_NONE), 0);
	ck_assert_int_eq(gm_lives_end(&lives, 0x10000000, GM_NONE), -ENOENT);
	ck_assert_uint_eq(gm_lives_end_next(&lives, 0x10000000, 2 * MIB, &at), 0);
	ck_assert_uint_eq(gm_lives_end_next(&lives, 0x10000000, UINT64_MAX, &at), 0x10000000 + 2 * MIB);
	ck_assert_uint_eq(gm_lives_end_next(&lives, 0x10000000, UINT64_MAX, &at), 0);
	ck_assert_int_eq(gm_record_free(0, held, 0, 0), 0);
	aux_sound();
	stat_is(pool, GM_STAT_RESERVED_BYTES, GM_POOL_ALL, 0, 4 * MIB, 4 * MIB, 4 * MIB);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_FREE_REQUESTED), 2);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_FREE_COMPLETED), 2);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_SEGMENT_FREE), 1);
	for (unsigned int i = 2; i < GM_MAX_POOLS; i++)
		ck_assert_uint_ne(gm_record_pool(GM_POOL_API, 2, 8, 6 + i), 0);
	ck_assert_uint_eq(gm_record_pool(GM_POOL_API, 2, 8, 1), 0);
	aux_sound();
}
END_TEST

/* What no block's address can be finds no line, whatever the lines hold while others change them. */
START_TEST(test_pool_nonsense)
{
	const uint64_t marks[] = { GM_LIVE_BEGINNING, GM_LIVE_ENDING, GM_LIVE_ENDING | 0x10000000 };
	struct gm_lives lives = { .domain = 0 };

	aux_start(1000);
	ck_assert(gm_lives_begin(&lives, gm_record_pool(GM_POOL_API, 0, gm_intern_string("mine", 4), 5), 0));
	for (unsigned int i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		for (unsigned int n = 0; n < 256; n++)
			gm_set(&lives.level[0].lines[n].address, marks[i]);
		ck_assert_int_eq(gm_lives_end(&lives, marks[i], GM_NONE), -ENOENT);
		ck_assert_uint_eq(gm_lives_size(&lives, marks[i]), 0);
		gm_lives_name(&lives, marks[i], 8);
	}
}
END_TEST

/* A table that is to hold many blocks has one level for them, as far as the budget allows. */
START_TEST(test_pool_begins_large)
{
	struct gm_lives lives = { .domain = 0 }, poor = { .domain = 0 };
	struct gm_handed block = { .size = 512 };
	uint64_t budget;

	aux_start(1000);
	ck_assert(gm_lives_begin(&lives, gm_record_pool(GM_POOL_LIBC10, 0, gm_intern_string("mine", 4), 5), 2000));
	for (uint64_t i = 0; i < 2000; i++) {
		block.address = 0x10000000 + i * 512;
		ck_assert_int_eq(gm_lives_add(&lives, &block), 0);
	}
	ck_assert_ptr_eq(gm_get(&lives.newest), &lives.level[0]);
	aux_sound();
	budget = gm_rec.budget;
	gm_rec.budget = UINT64_C(1) << 20;
	gm_lives_begin(&poor, gm_record_pool(GM_POOL_LIBC10, 1, gm_intern_string("mine", 4), 6), 2000);
	gm_rec.budget = budget;
	ck_assert_uint_le(poor.first_bits, 10);
	aux_sound();
}
END_TEST

/* A pool's table grows by levels: every block is found, in whichever level it lies, and those that end make room. */
START_TEST(test_pool_grows)
{
	struct gm_lives lives = { .domain = 0 };
	uint64_t before, count = 40000, at = 0, ended = 0;
	struct gm_handed block = { .module = 7 };
	uint8_t pool;

	aux_start(1000);
	pool = gm_record_pool(GM_POOL_API, 0, gm_intern_string("mine", 4), 5);
	ck_assert(gm_lives_begin(&lives, pool, 0));
	for (uint64_t i = 0; i < count; i++) {
		block.address = 0x10000000 + i * 512;
		block.size = 512 + i % 7;
		ck_assert_int_eq(gm_lives_add(&lives, &block), 0);
	}
	ck_assert(gm_get(&lives.newest) >= &lives.level[2]);
	for (uint64_t i = 0; i < count; i++)
		ck_assert_uint_eq(gm_lives_size(&lives, 0x10000000 + i * 512), 512 + i % 7);
	aux_sound();
	/* One that is handed out again is one that ended, also where it lies in an old level. */
	block.address = 0x10000000;
	ck_assert_int_eq(gm_lives_add(&lives, &block), 1);
	stat_is(pool, GM_STAT_ALLOCATION, GM_POOL_ALL, (int64_t)count, (int64_t)count, (int64_t)count + 1, 1);
	aux_sound();
	before = gm_region(GM_REGION_LIVES)->used;
	for (unsigned int round = 0; round < 5; round++) {
		for (uint64_t i = round; i < count; i += 2)
			ck_assert_int_eq(gm_lives_end(&lives, 0x10000000 + i * 512, GM_NONE), round < 2 ? 0 : -ENOENT);
	}
	for (uint64_t i = 0; i < count; i++) {
		block.address = 0x90000000 + i * 768;
		ck_assert_int_eq(gm_lives_add(&lives, &block), 0);
	}
	ck_assert_uint_eq(gm_region(GM_REGION_LIVES)->used, before);
	while (gm_lives_end_next(&lives, 0x90000000, UINT64_MAX, &at))
		ended++;
	ck_assert_uint_eq(ended, count);
	stat_is(pool, GM_STAT_ALLOCATION, GM_POOL_ALL, 0, (int64_t)count, 2 * (int64_t)count + 1, 2 * (int64_t)count + 1);
	aux_sound();
}
END_TEST

/* allocator/table.h, "what counts where". */
START_TEST(test_what_counts)
{
	struct gm_alloc alloc = aux_alloc(1, 0x10000000, 4 * MIB);
	uint32_t device, ipc, small;

	aux_start(1000);
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &device), 0);
	alloc.address = 0x20000000;
	alloc.kind = GM_KIND_IPC;
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &ipc), 0);
	alloc.address = 0x30000000;
	alloc.kind = GM_KIND_MANAGED;
	alloc.size = alloc.requested = MIB;
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &small), 0);
	alloc = aux_alloc(GM_DOMAIN_HOST, 0x40000000, 8 * MIB);
	alloc.flags = GM_SEGMENT_REGISTERED;
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &(uint32_t){ 0 }), 0);
	aux_sound();

	stat_is(1, GM_STAT_ALLOCATED_BYTES, GM_POOL_ALL, 5 * MIB, 5 * MIB, 5 * MIB, 0);
	stat_is(1, GM_STAT_ALLOCATED_BYTES, GM_POOL_SMALL, MIB, MIB, MIB, 0);
	stat_is(1, GM_STAT_ALLOCATED_BYTES, GM_POOL_LARGE, 4 * MIB, 4 * MIB, 4 * MIB, 0);
	stat_is(GM_DOMAIN_HOST, GM_STAT_ALLOCATION, GM_POOL_ALL, 0, 0, 0, 0);
	ck_assert_uint_eq(gm_rec.domains[1].live_bytes[GM_KIND_DEVICE], 4 * MIB);
	ck_assert_uint_eq(gm_rec.domains[1].live_bytes[GM_KIND_IPC], 4 * MIB);
	ck_assert_uint_eq(gm_rec.domains[GM_DOMAIN_HOST].live_bytes[GM_KIND_HOST], 0);
	ck_assert_int_eq(row(1, 7, 0xff)->current_bytes, 5 * MIB);
	ck_assert_int_eq(row(1, 7, GM_KIND_IPC)->current_bytes, 4 * MIB);
	ck_assert_int_eq(row(1, 0xffff, GM_KIND_IPC)->current_bytes, 4 * MIB);
	ck_assert_int_eq(row(1, 0xffff, GM_KIND_MANAGED)->allocations, 1);
	ck_assert_ptr_null(row(GM_DOMAIN_HOST, 7, GM_KIND_HOST));

	ck_assert_int_eq(gm_record_free(0, device, 0, 0), 0);
	ck_assert_int_eq(gm_record_free(0, ipc, 0, 0), 0);
	ck_assert_int_eq(gm_record_free(0, small, 0, 0), 0);
	aux_sound();
	ck_assert_int_eq(row(1, 7, 0xff)->current_bytes, 0);
	ck_assert_int_eq(row(1, 7, 0xff)->peak_bytes, 5 * MIB);
	ck_assert_int_eq(row(1, 7, GM_KIND_IPC)->frees, 1);
	ck_assert_uint_eq(gm_rec.domains[1].live_bytes[GM_KIND_IPC], 0);
}
END_TEST

/* Who changes it is in the events; the block is of who asked for it, or who gave it its first bytes. */
START_TEST(test_change_stacks)
{
	struct gm_alloc alloc = aux_alloc(0, 5, 0);
	struct gm_block copied;
	uint32_t frames[3] = { 0 }, stacks[3], graph, import;

	aux_start(1000);
	for (uint32_t i = 0; i < 3; i++) {
		frames[i] = gm_intern_frame(&(struct gm_frame){ .offset = i + 1 });
		stacks[i] = gm_intern_stack(&frames[i], 1, false);
	}
	alloc.kind = GM_KIND_GRAPH;
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &graph), 0);
	ck_assert_int_eq(gm_record_change(0, graph, 5, MIB, 0, stacks[0]), 0);
	ck_assert_int_eq(gm_record_change(0, graph, 5, 2 * MIB, 0, stacks[1]), 0);
	gm_record_block(graph, &copied);
	ck_assert_uint_eq(copied.stack, stacks[0]);
	ck_assert_uint_eq(gm_rec.segments[copied.segment].stack, stacks[0]);
	ck_assert_uint_eq(aux_count_stacks(stacks[0]), 2 + 1);		/* map, alloc; alloc */
	ck_assert_uint_eq(aux_count_stacks(stacks[1]), 4);		/* free, free, unmap; map */
	ck_assert_int_eq(gm_record_change(0, graph, 5, 0, 0, GM_STACK_OF_BLOCK), 0);
	ck_assert_uint_eq(aux_count_stacks(stacks[0]), 3 + 3);
	ck_assert_int_eq(gm_record_change(0, graph, 5, MIB, 0, stacks[1]), 0);
	gm_record_block(graph, &copied);
	ck_assert_uint_eq(copied.stack, stacks[1]);
	ck_assert_uint_eq(aux_count_stacks(stacks[1]), 4 + 2);
	ck_assert_int_eq(gm_record_change(0, graph, 5, 2 * MIB, 0, GM_NONE), 0);
	ck_assert_uint_eq(aux_count_stacks(GM_NONE), 5);
	aux_sound();

	/* What never had bytes comes and goes without an event; so does a context, with its stack. */
	alloc = aux_alloc(0, 0x99, 0);
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &import), 0);
	ck_assert_int_eq(gm_record_free(0, import, 0, 0), 0);
	alloc = aux_alloc(0, 0x1000, MIB);
	alloc.context = 7;
	alloc.stack = stacks[0];
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &import), 0);
	ck_assert_uint_eq(aux_count_stacks(GM_NONE), 5);
	ck_assert_uint_eq(gm_record_context_end(0, 7, 0, stacks[2], NULL, NULL), 1);
	ck_assert_uint_eq(aux_count_stacks(stacks[2]), 3);
	aux_sound();
}
END_TEST

START_TEST(test_change)
{
	struct gm_alloc alloc = aux_alloc(0, 5, 0);
	struct gm_block copied;
	uint32_t graph, vmm;

	aux_start(1000);
	/* What graphs hold on a device: grows from nothing, shrinks to nothing, is never small. */
	alloc.kind = GM_KIND_GRAPH;
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &graph), 0);
	ck_assert_int_eq(gm_record_change(0, graph, 5, 100, 0, GM_NONE), 0);
	ck_assert_int_eq(gm_record_change(0, graph, 5, 8 * MIB, 0, GM_NONE), 0);
	aux_sound();
	ck_assert_int_eq(gm_record_change(0, graph, 5, 0, 0, GM_NONE), 0);
	aux_sound();
	stat_is(0, GM_STAT_ALLOCATED_BYTES, GM_POOL_LARGE, 0, 8 * MIB, 8 * MIB, 8 * MIB);
	stat_is(0, GM_STAT_REQUESTED_BYTES, GM_POOL_LARGE, 0, 8 * MIB, 8 * MIB, 8 * MIB);
	stat_is(0, GM_STAT_ALLOCATION, GM_POOL_ALL, 1, 1, 1, 0);
	/* map, alloc; free, free, unmap, map, alloc; free, free, unmap */
	ck_assert_uint_eq(aux_count_events(GM_ACTION_NONE), 10);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_SEGMENT_MAP), 2);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_SEGMENT_UNMAP), 2);

	/* A VMM handle: mapped, unmapped. */
	alloc = aux_alloc(0, 0x99, 2 * MIB);
	alloc.kind = GM_KIND_VMM;
	alloc.flags = GM_SEGMENT_UNMAPPED;
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &vmm), 0);
	ck_assert_int_eq(gm_record_change(0, vmm, 0x700000000, 2 * MIB, 0, GM_NONE), 0);
	gm_record_block(vmm, &copied);
	ck_assert_uint_eq(copied.address, 0x700000000);
	ck_assert_uint_eq(gm_rec.segments[copied.segment].flags, 0);
	ck_assert_int_eq(gm_record_change(0, vmm, 0x700000000, 2 * MIB, 0, GM_NONE), 0);	/* nothing new */
	ck_assert_uint_eq(aux_count_events(GM_ACTION_NONE), 10 + 2 + 5);
	ck_assert_int_eq(gm_record_change(0, vmm, 0x99, 2 * MIB, GM_SEGMENT_UNMAPPED, GM_NONE), 0);
	gm_record_block(vmm, &copied);
	ck_assert_uint_eq(gm_rec.segments[copied.segment].flags, GM_SEGMENT_UNMAPPED);
	stat_is(0, GM_STAT_ALLOCATED_BYTES, GM_POOL_ALL, 2 * MIB, 8 * MIB, 10 * MIB, 8 * MIB);
	aux_sound();
	ck_assert_int_eq(gm_record_free(0, vmm, 0, 0), 0);
	ck_assert_int_eq(gm_record_change(0, vmm, 1, 1, 0, GM_NONE), -ENOENT);
	aux_sound();
}
END_TEST

static unsigned int gone_count;
static uint64_t gone_bytes;

static void gone(void *arg, uint32_t block, const struct gm_block *copied)
{
	struct gm_block now;

	ck_assert_ptr_eq(arg, &gone_count);
	ck_assert(!gm_record_block(block, &now));	/* takes the lock: it is not held */
	gone_bytes += copied->size;
	gone_count++;
}

START_TEST(test_context_end)
{
	uint64_t kept = 0, lost = 0, op;

	aux_start(100000);
	for (unsigned int i = 0; i < 2000; i++) {
		struct gm_alloc alloc = aux_alloc(i % 3 ? (uint8_t)(i % 3) : GM_DOMAIN_HOST,
						  0x10000 + i * UINT64_C(0x10000), 512 + i);

		alloc.context = i % 7 == 0 ? 0 : i % 2 ? 5 : 6;
		ck_assert_int_eq(gm_record_alloc(0, &alloc, &(uint32_t){ 0 }), 0);
		*(alloc.context == 5 ? &lost : &kept) += alloc.size;
	}
	op = gm_op_begin(GM_ACTION_SEGMENT_FREE, GM_KIND_DEVICE, 0, 0, 0);
	gm_record_context_end(op, 5, gm_stamp(), GM_NONE, gone, &gone_count);
	gm_op_end(op);
	aux_sound();
	ck_assert_uint_eq(gone_bytes, lost);
	ck_assert_uint_gt(gone_count, 800);
	ck_assert_uint_eq(gm_record_context_end(0, 5, 0, GM_NONE, gone, &gone_count), 0);
	ck_assert_uint_eq(gm_record_context_end(0, 0, 0, GM_NONE, gone, &gone_count), 0);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_SEGMENT_FREE), gone_count);
	lost = 0;
	for (unsigned int d = 0; d < GM_DOMAINS; d++)
		for (unsigned int k = 0; k < GM_KIND_COUNT; k++)
			lost += gm_rec.domains[d].live_bytes[k];
	ck_assert_uint_eq(lost, kept);
	ck_assert_uint_gt(gm_record_context_end(0, 6, 0, GM_NONE, NULL, NULL), 800);
	aux_sound();
}
END_TEST

/* Tables that are full refuse, count it, and go on when something was freed. */
static int small_limit(int resource, struct rlimit *ret)
{
	*ret = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	if (resource == RLIMIT_FSIZE)
		ret->rlim_cur = 2 * MIB;
	return 0;
}

/* A pool's table finds no memory for a level: what has no line is refused, counted, and takes one that comes free. */
static void fill_pool(void)
{
	uint8_t pool = gm_record_pool(GM_POOL_API, 0, gm_intern_string("mine", 4), 5);
	struct gm_handed block = { .address = 0x10000000, .size = 512 };
	struct gm_lives lives = { .domain = 0 };
	int r = 0;

	ck_assert_uint_eq(pool, GM_DOMAIN_POOLS);
	gm_lives_begin(&lives, pool, 0);
	for (unsigned int i = 0; i < 1 << 16 && !r; i++, block.address += 512)
		r = gm_lives_add(&lives, &block);
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_gt(gm_region(GM_REGION_LIVES)->refused, 0);
	aux_sound();
	for (uint64_t at = 0; gm_lives_end_next(&lives, 0, UINT64_MAX, &at);)
		;
	block.address -= 512;
	ck_assert_int_eq(gm_lives_add(&lives, &block), gm_get(&lives.newest) ? 0 : -ENOMEM);
	gm_lives_end(&lives, block.address, GM_NONE);
	aux_sound();
}

START_TEST(test_full)
{
	static uint32_t blocks[1 << 16];
	unsigned int count = 0;
	struct gm_alloc alloc;
	int r = 0;

	gm_sys.limit = small_limit;
	aux_start(1000000);
	ck_assert_uint_le(gm_recorder_header()->file_bytes, 2 * MIB);
	while (count < 1 << 16) {
		alloc = aux_alloc((uint8_t)(count % 2), 0x1000 + count * UINT64_C(4096), 512);
		r = gm_record_alloc(0, &alloc, &blocks[count]);
		if (r < 0)
			break;
		count++;
	}
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_eq(blocks[count], 0);
	fill_pool();
	ck_assert_uint_gt(count, 500);
	ck_assert_uint_gt(gm_region(GM_REGION_SEGMENTS)->refused +
			  gm_region(GM_REGION_BLOCKS)->refused, 0);
	aux_sound();
	ck_assert_int_eq(gm_record_free(0, blocks[1], 0, 0), 0);
	alloc = aux_alloc(1, 0x500000000, 512);
	ck_assert_int_eq(gm_record_alloc(0, &alloc, &blocks[1]), 0);
	for (unsigned int i = 0; i < count; i++)
		ck_assert_int_eq(gm_record_free(0, blocks[i], 0, 0), 0);
	aux_sound();
	for (unsigned int i = 0; i < 4000; i++) {
		alloc = aux_alloc(0, 0x1000, 512);
		ck_assert_int_eq(gm_record_alloc(0, &alloc, &blocks[0]), 0);
		ck_assert_int_eq(gm_record_free(0, blocks[0], 0, 0), 0);
	}
	aux_sound();
	ck_assert_uint_gt(gm_recorder_header()->horizon, 0);	/* history made room for itself */
}
END_TEST

/* More modules than there are rows: what finds none counts in none, and everything adds up. */
START_TEST(test_many_modules)
{
	static uint32_t blocks[12000];

	aux_start(0);
	aux_publish_modules(AUX_MODULES + 1, 4095);
	for (unsigned int i = 0; i < 12000; i++) {
		struct gm_alloc alloc = aux_alloc(0, 0x1000 + i * UINT64_C(4096), 512);

		alloc.module = (uint16_t)(i % 4096);
		alloc.kind = (uint8_t)(i / 4096 ? GM_KIND_POOL : GM_KIND_DEVICE);
		ck_assert_int_eq(gm_record_alloc(0, &alloc, &blocks[i]), 0);
	}
	aux_sound();
	ck_assert_uint_gt(gm_region(GM_REGION_USAGE)->refused, 0);
	for (unsigned int i = 0; i < 12000; i++)
		ck_assert_int_eq(gm_record_free(0, blocks[i], 0, 0), 0);
	aux_sound();
	for (uint64_t i = 1; i < gm_region(GM_REGION_USAGE)->used / sizeof(struct gm_usage); i++)
		ck_assert_int_eq(gm_rec.usage[i].current_bytes, 0);
}
END_TEST

START_TEST(test_device)
{
	static const uint8_t uuid[16] = "0123456789abcde";
	struct gm_failure failure = { .requested_bytes = 10 * MIB, .free_bytes = 5, .total_bytes = 9,
				      .result = 2, .module = 3, .domain = 1, .entry = "cuMemAlloc_v2" };
	const struct gm_domain *domain;
	uint64_t held = 1;

	aux_start(1000);
	domain = &gm_rec.domains[1];
	gm_record_device(1, 1, "A very long name", uuid, 80 * MIB);
	gm_record_free_bytes(1, 70 * MIB, 80 * MIB, 4 * MIB);
	gm_record_driver_version(12080);
	ck_assert_uint_eq(domain->present, 1);
	ck_assert_str_eq(domain->name, "A very long name");
	ck_assert_mem_eq(domain->uuid, uuid, 16);
	ck_assert_uint_eq(domain->free_bytes, 70 * MIB);
	ck_assert_int_eq(domain->unattributed_bytes, 6 * MIB);
	ck_assert_uint_gt(domain->free_stamp, 0);
	ck_assert_int_eq(gm_recorder_header()->driver_version, 12080);
	ck_assert_int_eq(gm_record_held_bytes(1, &held), 0);
	ck_assert_uint_eq(held, 0);
	aux_record(1, 0x1000, 3 * MIB);
	ck_assert_int_eq(gm_record_held_bytes(1, &held), 0);
	ck_assert_uint_eq(held, 3 * MIB);
	ck_assert_int_eq(gm_record_held_bytes(GM_DOMAINS, &held), -EINVAL);
	/* What was taken since the driver was asked is not taken off what it said. */
	ck_assert_int_eq(domain->unattributed_bytes, 6 * MIB);
	for (uint64_t i = 1; i <= 100; i++) {
		failure.tsc = 0;
		ck_assert_uint_eq(gm_record_failure(&failure), i);
	}
	ck_assert_uint_eq(failure.number, 100);
	ck_assert_uint_eq(failure.live_bytes, 3 * MIB);
	ck_assert_uint_eq(failure.tid, (uint32_t)gettid());
	ck_assert_int_eq(stats(1)->num_ooms, 100);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_OOM), 100);
	failure.domain = GM_DOMAINS;
	ck_assert_uint_eq(gm_record_failure(&failure), 0);
	aux_sound();
}
END_TEST

struct worker { unsigned int number; unsigned long steps, errors; uint64_t live_bytes[2]; };

static void *storm(void *arg)
{
	struct worker *w = arg;
	uint32_t random = w->number * 7919 + 1, mine[32] = { 0 };
	uint64_t base = (uint64_t)(w->number + 1) << 36, sizes[32] = { 0 };

	for (unsigned long step = 0; step < w->steps; step++) {
		unsigned int i = (random = random * 1664525u + 1013904223u) >> 8 & 31;
		uint8_t domain = (uint8_t)(i & 1);
		uint64_t op;

		if (step % 512 == 511)
			gm_record_note(GM_ACTION_ANNOTATE, domain, step, 0);
		op = gm_op_begin(mine[i] ? GM_ACTION_FREE_REQUESTED : GM_ACTION_ALLOC,
				 GM_KIND_DEVICE, domain, base, 0);
		if (mine[i]) {
			gm_record_freeing(mine[i]);
			if (random & 1 << 20) {
				gm_record_not_freed(mine[i]);
			} else {
				w->errors += gm_record_free(op, mine[i], 0, 0) != 0;
				w->live_bytes[domain] -= sizes[i];
				mine[i] = 0;
			}
		} else {
			struct gm_alloc alloc = aux_alloc(domain, base + i * (UINT64_C(8) << 20),
							  (random >> 4 & 0x3fffff) + 1);

			alloc.module = (uint16_t)(1 + w->number % 5);
			w->errors += gm_record_alloc(op, &alloc, &mine[i]) != 0;
			sizes[i] = alloc.size;
			w->live_bytes[domain] += alloc.size;
		}
		gm_op_end(op);
	}
	return NULL;
}

/* A thread without thread caches changes a pool's line; then one that has recorded nothing yet. */
static pthread_barrier_t step;

static void *changes_a_line(void *arg)
{
	struct gm_writer writer;
	struct gm_slot *slot;

	if (arg)
		pthread_barrier_wait(&step);	/* all is held */
	gm_writer_enter(&writer);
	gm_writer_leave(&writer);
	slot = gm_slot_enter_own();
	pthread_barrier_wait(&step);		/* it is in, or is kept out */
	pthread_barrier_wait(&step);		/* it may go */
	if (slot)
		gm_slot_leave_own(slot);
	gm_writer_enter(&writer);		/* the slot that it did not get, or has */
	gm_writer_leave(&writer);
	return slot;
}

START_TEST(test_copy_keeps_threads_out)
{
	struct gm_held held;
	pthread_t thread;
	void *slot;

	aux_start(100);
	ck_assert_int_eq(pthread_barrier_init(&step, NULL, 2), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, changes_a_line, NULL), 0);
	pthread_barrier_wait(&step);
	ck_assert(!gm_recorder_lock_all(1000, &held));
	gm_recorder_unlock_all(&held);
	pthread_barrier_wait(&step);
	pthread_join(thread, &slot);
	ck_assert_ptr_nonnull(slot);

	ck_assert_int_eq(pthread_create(&thread, NULL, changes_a_line, &held), 0);
	ck_assert(gm_recorder_lock_all(UINT64_C(5000000000), &held));
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	gm_recorder_unlock_all(&held);
	pthread_barrier_wait(&step);
	pthread_join(thread, &slot);
	ck_assert_ptr_null(slot);
	ck_assert(gm_recorder_lock_all(UINT64_C(5000000000), &held));
	gm_recorder_unlock_all(&held);
}
END_TEST

static _Atomic(bool) storm_over;

static void *watch(void *arg)
{
	struct gm_held held;
	int *bad = arg;

	while (!gm_get(&storm_over)) {
		*bad += gm_recorder_check();
		gm_recorder_tick();
		*bad += !gm_recorder_lock_all(UINT64_C(5000000000), &held);
		gm_recorder_unlock_all(&held);
	}
	return NULL;
}

START_TEST(test_storm)
{
	struct worker workers[64];
	pthread_t threads[64], watcher;
	uint64_t live[2] = { 0, 0 };
	int bad = 0;

	aux_start(20000);
	ck_assert_int_eq(pthread_create(&watcher, NULL, watch, &bad), 0);
	for (unsigned int i = 0; i < 64; i++) {
		workers[i] = (struct worker){ .number = i, .steps = aux_effort(3000) };
		ck_assert_int_eq(pthread_create(&threads[i], NULL, storm, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < 64; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(workers[i].errors, 0);
		live[0] += workers[i].live_bytes[0];
		live[1] += workers[i].live_bytes[1];
	}
	gm_set(&storm_over, true);
	pthread_join(watcher, NULL);
	ck_assert_int_eq(bad, 0);
	aux_sound();
	ck_assert_uint_eq(gm_rec.domains[0].live_bytes[GM_KIND_DEVICE], live[0]);
	ck_assert_uint_eq(gm_rec.domains[1].live_bytes[GM_KIND_DEVICE], live[1]);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	ck_assert_uint_eq(gm_recorder_header()->operations_lost, 0);
	aux_count_events(GM_ACTION_NONE);	/* a sound copy */
}
END_TEST

/* The n-th memory request of a growing journal fails: nothing breaks, what was not recorded is
 * told to the caller, and later requests are served again. */
START_TEST(test_growth_fails)
{
	static uint32_t blocks[6000];
	unsigned int refused = 0;

	aux_sys_wrap();
	aux_start(20000);
	aux_fail_at = aux_calls + (unsigned int)_i;
	for (unsigned int i = 0; i < 6000; i++) {
		struct gm_alloc alloc = aux_alloc((uint8_t)(i % 5), 0x1000 + i * UINT64_C(4096), 512);
		int r = gm_record_alloc(0, &alloc, &blocks[i]);

		ck_assert(r == 0 || r == -ENOMEM);
		refused += r < 0;
	}
	ck_assert_uint_lt(refused, 100);
	aux_sound();
	for (unsigned int i = 0; i < 6000; i++)
		if (blocks[i])
			ck_assert_int_eq(gm_record_free(0, blocks[i], 0, 0), 0);
	aux_sound();
	ck_assert_uint_ge(aux_calls, aux_fail_at);	/* it did fail */
	for (unsigned int d = 0; d < 5; d++)
		ck_assert_uint_eq(gm_rec.domains[d].live_bytes[GM_KIND_DEVICE], 0);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	ck_assert_uint_gt(aux_count_events(GM_ACTION_NONE), 15000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tables");
	TCase *tc = tcase_create("tables");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_single_test(tc, test_one);
	tcase_add_single_test(tc, test_wrong_arguments);
	tcase_add_single_test(tc, test_what_counts);
	tcase_add_single_test(tc, test_change);
	tcase_add_single_test(tc, test_change_stacks);
	tcase_add_single_test(tc, test_context_end);
	tcase_add_single_test(tc, test_full);
	tcase_add_single_test(tc, test_many_modules);
	tcase_add_single_test(tc, test_device);
	tcase_add_single_test(tc, test_pool);
	tcase_add_single_test(tc, test_pool_begins_large);
	tcase_add_single_test(tc, test_pool_grows);
	tcase_add_single_test(tc, test_pool_nonsense);
	tcase_add_test(tc, test_copy_keeps_threads_out);
	tcase_add_test(tc, test_storm);
	tcase_add_single_loop_test(tc, test_growth_fails, 1, 25);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
