/*
 * What a heap keeps for the next request of its size changes nothing that a program can ask for, but
 * for inactive splits that came and went: the same random program on a heap that keeps and on one that
 * does not, in domains of their own, ends each locked section with the same statistics, the same rows and
 * sound tables.
 *
 *	GM_SEED=n  the seed (printed)
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/cache/cached_internal.h"
#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "test/unit/cache/aux_cached.h"
#include "test/unit/journal/aux_journal.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define LIVE 64u

static struct gm_cached *heap[2];	/* 0 keeps, 1 does not */
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

static void begin_with(uint64_t history)
{
	const char *text = getenv("GM_SEED");

	seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
	printf("# seed %llu\n", (unsigned long long)seed);
	aux_driver_begin(UINT64_MAX);
	aux_start(history);
	aux_tcache = true;
	heap[0] = aux_heap(0, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
	aux_tcache = false;
	heap[1] = aux_heap(1, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
	lives = 0;
}

static void begin(void)
{
	begin_with(4096);
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
		ck_assert_int_eq(aux_release(heap[h], live[n].block[h], live[n].address[h], true), 0);
		ck_assert_int_eq(aux_release(heap[h], live[n].block[h], live[n].address[h], true),
				 -ENOENT);
	}
	live[n] = live[--lives];
}

static bool is_kept(unsigned int n, unsigned int h)
{
	return gm_get(&gm_rec.blocks[live[n].block[h]].state) == GM_BLOCK_CACHED;
}

static void same_stats(void)
{
	static const enum gm_stat_name names[] = {
		GM_STAT_ALLOCATION, GM_STAT_ALLOCATED_BYTES, GM_STAT_ACTIVE, GM_STAT_ACTIVE_BYTES,
		GM_STAT_REQUESTED_BYTES
	};
	struct gm_stats stats[2];

	for (uint8_t h = 0; h < 2; h++)
		ck_assert_int_eq(gm_record_stats(h, &stats[h]), 0);
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_mem_eq(stats[0].stat[names[i]], stats[1].stat[names[i]],
				 sizeof(stats[0].stat[0]));
	/* Where the blocks lie may differ; that the free ones are one with their neighbours not. */
	ck_assert_int_eq(stats[0].stat[GM_STAT_RESERVED_BYTES][0].current -
			 stats[0].stat[GM_STAT_ACTIVE_BYTES][0].current -
			 stats[0].stat[GM_STAT_INACTIVE_SPLIT_BYTES][0].current,
			 (int64_t)gm_cached_idle_bytes(heap[0]));
}

/* The copy of the moment, with whatever is kept in it, says the same of the two domains. */
static void same_copy(void)
{
	const struct gm_domain *domains[2];
	struct gm_copy copy;

	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	ck_assert_int_eq(gm_copy_check(&copy, NULL, NULL), 0);
	for (unsigned int d = 0; d < 2; d++)
		domains[d] = gm_copy_domain(&copy, d);
	ck_assert_mem_eq(domains[0]->live_bytes, domains[1]->live_bytes,
			 sizeof(domains[0]->live_bytes));
	ck_assert_mem_eq(domains[0]->stats.stat[GM_STAT_ALLOCATION],
			 domains[1]->stats.stat[GM_STAT_ALLOCATION],
			 sizeof(domains[0]->stats.stat[0]));
	ck_assert_mem_eq(domains[0]->stats.stat[GM_STAT_REQUESTED_BYTES],
			 domains[1]->stats.stat[GM_STAT_REQUESTED_BYTES],
			 sizeof(domains[0]->stats.stat[0]));
	gm_copy_free(&copy);
}

START_TEST(same_as_without)
{
	unsigned int kept = 0;

	begin();
	for (unsigned int step = 0; step < 32000; step++) {
		/* Sizes that come again, sizes within one rounding, and sizes of any sort. */
		uint64_t way = rnd() % 8, bytes = way < 4 ? 4 * KIB << rnd() % 3 :
						  way < 6 ? 3 * KIB + rnd() % 1000 :
						  way < 7 ? (2 + rnd() % 2) * MIB - rnd() % 2 :
						  1 + rnd() % (rnd() % 2 ? MIB : 12 * MIB);

		if (lives < LIVE && (lives < 4 || rnd() % 2)) {
			alloc_both(bytes, rnd() % 2, (uint16_t)(1 + rnd() % 2));
		} else {
			uint32_t block = live[0].block[0];

			free_both(0);
			kept += gm_get(&gm_rec.blocks[block].state) == GM_BLOCK_CACHED;
		}
		if (rnd() % 64 == 0)
			same_copy();
		if (rnd() % 32 == 0)
			same_stats();
		if (rnd() % 128 == 0) {
			for (uint8_t d = 0; d < 2; d++)
				gm_record_reset_stats(d, GM_RESET_PEAK);
		}
		if (rnd() % 16 == 0)
			ck_assert_int_eq(gm_cached_check_all() + gm_recorder_check(), 0);
	}
	ck_assert_uint_gt(kept, 300);
	while (lives)
		free_both(lives - 1);
	same_stats();
	gm_cached_empty(heap[0]);
	ck_assert_int_eq(gm_cached_check_all() + gm_recorder_check(), 0);
	ck_assert_int_eq(gm_rec.domains[0].stats.stat[GM_STAT_RESERVED_BYTES][0].current, 0);
}
END_TEST

/* The same block again; the peak as if it had never been anywhere else. */
START_TEST(again_and_again)
{
	struct gm_stats stats;
	uint64_t address;
	uint32_t block;

	begin();
	alloc_both(4 * KIB, 1, 1);
	alloc_both(4 * KIB, 1, 1);
	for (unsigned int i = 0; i < 1000; i++) {
		block = live[1].block[0];
		address = live[1].address[0];
		free_both(1);
		ck_assert_uint_eq(gm_get(&gm_rec.blocks[block].state), GM_BLOCK_CACHED);
		alloc_both(4 * KIB, 1, 1);
		ck_assert(!is_kept(1, 0));
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

/* What differs (README, Limits): a block that is kept is in no free set, so it does not count as an
 * inactive split that comes and goes. What there is when somebody looks does. */
START_TEST(splits_that_nobody_saw)
{
	struct gm_stat split[2], bytes[2];
	struct gm_stats stats;

	begin();
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

/* ---- a copy from outside ---- */

static uint64_t late_op;
static unsigned int looks;		/* of the copy that is being made, + 1; 0: there is none */

static bool at_once(void *arg, uint32_t block, uint32_t number, uint64_t bytes)
{
	(void)arg;
	(void)block;
	(void)number;
	(void)bytes;
	return true;
}

/* Between the copy's tables and its second look at what moves: all of an operation that had its number
 * before the first. */
ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
	struct gm_header *header = looks ? gm_header_get() : NULL;

	if (header && (uint64_t)at == header->regions[GM_REGION_THREADS].offset && ++looks == 3) {
		struct gm_cached_free how = { .now = at_once, .stack = GM_STACK_OF_BLOCK };

		looks = 0;
		ck_assert_int_eq(gm_cached_free(heap[0], late_op, live[0].block[0], live[0].address[0],
						&how), 0);
	}
	return syscall(SYS_pread64, fd, buf, n, at);
}

START_TEST(an_operation_during_a_copy)
{
	struct gm_copy copy;
	int fd;

	begin_with(0);
	alloc_both(4 * KIB, 1, 1);
	alloc_both(4 * KIB, 1, 1);
	free_both(1);
	alloc_both(_i ? 4 * KIB : MIB, 1, 1);
	late_op = gm_op_begin(GM_ACTION_FREE_REQUESTED, GM_KIND_DEVICE, 0, live[0].address[0], 0);
	gm_op_end(late_op);
	gm_set(&heap[0]->keeps, _i);		/* it is kept, or goes to the heap */
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

/* Frees of @count blocks, one after the other, of one size or each of another: how many were kept. */
static unsigned int kept_of(unsigned int count, uint64_t first, uint64_t step)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < count; i++) {
		uint32_t block;

		alloc_both(first + i * step, 1, 1);
		block = live[0].block[0];
		free_both(0);
		kept += gm_get(&gm_rec.blocks[block].state) == GM_BLOCK_CACHED;
	}
	return kept;
}

/* What is never asked for again is not kept for long; and when sizes come again it is. */
START_TEST(not_in_vain)
{
	begin();
	kept_of(64, 4 * KIB, KIB);
	ck_assert_uint_lt(kept_of(128, 4 * KIB, KIB), 16);
	kept_of(128, 4 * KIB, 0);
	ck_assert_uint_eq(kept_of(64, 4 * KIB, 0), 64);
	same_stats();
	ck_assert_int_eq(gm_cached_check_all() + gm_recorder_check(), 0);
}
END_TEST

/* What the heap has left depends on where a large block lies. */
START_TEST(large_ones_are_not_cached)
{
	begin();
	ck_assert_uint_eq(kept_of(64, MIB, 0), 64);
	ck_assert_uint_eq(kept_of(64, MIB + 1, 0), 0);
	ck_assert_uint_eq(kept_of(64, 12 * MIB, 0), 0);
	same_copy();
	same_stats();
}
END_TEST

/* What is kept dies with the heap's context, and counts as memory that can be given back. */
START_TEST(ends)
{
	begin();
	alloc_both(4 * KIB, 1, 1);
	alloc_both(MIB, 1, 2);
	free_both(0);
	free_both(0);
	ck_assert_uint_eq(gm_cached_idle_bytes(heap[0]), gm_cached_idle_bytes(heap[1]));
	alloc_both(4 * KIB, 1, 1);
	free_both(0);
	ck_assert_uint_eq(gm_cached_largest_free(heap[0]), 2 * MIB);
	alloc_both(4 * KIB, 1, 1);
	alloc_both(4 * KIB, 1, 1);
	free_both(0);
	ck_assert_uint_eq(gm_cached_drop(heap[0], 0, 0, GM_NONE), 1);
	ck_assert_uint_eq(gm_cached_drop(heap[1], 0, 0, GM_NONE), 1);
	same_stats();
	ck_assert_int_eq(gm_recorder_check(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("thread_cache");
	TCase *tc = tcase_create("thread_cache");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(tc, same_as_without, 0, 3);
	tcase_add_test(tc, again_and_again);
	tcase_add_test(tc, splits_that_nobody_saw);
	tcase_add_loop_test(tc, an_operation_during_a_copy, 0, 2);
	tcase_add_test(tc, not_in_vain);
	tcase_add_test(tc, large_ones_are_not_cached);
	tcase_add_test(tc, ends);
	suite_add_tcase(suite, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
