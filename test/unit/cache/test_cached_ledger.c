/*
 * What heaps count in a ledger (preload/cache/cached_ledger.c) is what they would have counted at once: the same
 * random program on heaps with a ledger and on heaps without, in domains of their own, with other
 * modules, kinds and memory that no heap serves in between, has the same statistics, peaks too, and
 * the same usage rows at any moment, in the process and in a copy of its journal.
 *
 *	GM_SEED=n  the seed (printed)
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/cache/cached_internal.h"
#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "test/unit/cache/aux_cached.h"
#include "test/unit/journal/aux_journal.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define LIVE 48u
#define KINDS 2u

enum { LEDGER, DIRECT, SIDES };

static struct gm_cached *heap[SIDES][KINDS];
static struct block {
	uint32_t id[SIDES];		/* of memory that no heap serves: its address is 0 */
	uint64_t address[SIDES];
	unsigned int kind;
} live[LIVE], pending[LIVE];
static unsigned int lives, pendings;
static uint64_t seed, passed_next = UINT64_C(1) << 40;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void begin(void)
{
	const char *text = getenv("GM_SEED");

	seed = text ? strtoull(text, NULL, 10) : ((uint64_t)time(NULL) << 22 ^ (uint64_t)getpid()) * 2654435761u + 1;
	printf("# seed %llu\n", (unsigned long long)seed);
	aux_driver_begin(UINT64_MAX);
	aux_start(4096);
	aux_tcache = false;
	for (uint8_t side = 0; side < SIDES; side++) {
		heap[side][0] = aux_heap(side, GM_KIND_DEVICE, 1, "", GM_HEAP_UNLIMITED);
		heap[side][1] = aux_heap(side, GM_KIND_POOL, 2, "", GM_HEAP_UNLIMITED);
	}
	for (unsigned int k = 0; k < KINDS; k++)
		heap[DIRECT][k]->heap.ledger = NULL;
	lives = pendings = 0;
}

static void alloc_both(uint64_t bytes, unsigned int kind, uint16_t module)
{
	struct block *block = &live[lives++];

	block->kind = kind;
	for (unsigned int side = 0; side < SIDES; side++) {
		struct gm_alloc alloc = aux_request(bytes, 1, module);

		ck_assert_int_eq(aux_serve(heap[side][kind], &alloc, &block->id[side]), 0);
		block->address[side] = alloc.address;
	}
}

static void pass_through(uint64_t bytes, uint16_t module)
{
	struct block *block = &live[lives++];

	for (uint8_t side = 0; side < SIDES; side++) {
		struct gm_alloc alloc = { .address = passed_next += 32 * MIB, .size = bytes,
					  .requested = bytes, .domain = side, .module = module,
					  .kind = GM_KIND_DEVICE };

		ck_assert_int_eq(gm_record_alloc(0, &alloc, &block->id[side]), 0);
		block->address[side] = 0;
	}
}

static void free_both(unsigned int n, bool now)
{
	struct block block = live[n];

	live[n] = live[--lives];
	for (unsigned int side = 0; side < SIDES; side++)
		ck_assert_int_eq(block.address[side]
				 ? aux_release(heap[side][block.kind], block.id[side],
					       block.address[side], now)
				 : gm_record_free(0, block.id[side], 0, 0), 0);
	if (!now && block.address[0])
		pending[pendings++] = block;
}

static void complete_both(unsigned int n)
{
	struct block block = pending[n];

	pending[n] = pending[--pendings];
	for (unsigned int side = 0; side < SIDES; side++)
		aux_complete(heap[side][block.kind], block.id[side]);
}

/* ---- comparing ---- */

static const struct gm_usage *same_row(const struct gm_usage *rows, size_t count,
				       const struct gm_usage *like)
{
	for (size_t i = 1; i < count; i++)
		if (rows[i].used && rows[i].domain == DIRECT && rows[i].module == like->module &&
		    rows[i].kind == like->kind)
			return &rows[i];
	return NULL;
}

static unsigned int same_rows(const struct gm_usage *rows, size_t count)
{
	unsigned int compared = 0;

	for (size_t i = 1; i < count; i++) {
		const struct gm_usage *other;

		if (!rows[i].used || rows[i].domain != LEDGER)
			continue;
		other = same_row(rows, count, &rows[i]);
		ck_assert_ptr_nonnull(other);
		ck_assert_mem_eq(&rows[i].current_bytes, &other->current_bytes,
				 offsetof(struct gm_usage, reserved64) -
				 offsetof(struct gm_usage, current_bytes));
		compared++;
	}
	return compared;
}

/* How many rows there are. */
static unsigned int same_stats(void)
{
	struct gm_stats stats[SIDES];
	unsigned int rows;

	for (uint8_t side = 0; side < SIDES; side++)
		ck_assert_int_eq(gm_record_stats(side, &stats[side]), 0);
	ck_assert_mem_eq(&stats[LEDGER], &stats[DIRECT], sizeof(stats[0]));
	rows = same_rows(gm_rec.usage, gm_get(&gm_region(GM_REGION_USAGE)->used) /
			 sizeof(struct gm_usage));
	ck_assert_mem_eq(gm_rec.domains[LEDGER].live_bytes, gm_rec.domains[DIRECT].live_bytes,
			 sizeof(gm_rec.domains[0].live_bytes));
	ck_assert_int_eq(gm_cached_check_all() + gm_recorder_check(), 0);
	return rows;
}

static void complain(void *arg, const char *rule, uint64_t where)
{
	(void)arg;
	printf("# violation: %s at %#llx\n", rule, (unsigned long long)where);
}

static void same_copy(void)
{
	const struct gm_domain *domains[SIDES];
	struct gm_copy copy;

	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert_int_eq(gm_copy_settle(&copy, UINT64_MAX), 0);
	ck_assert_int_eq(gm_copy_check(&copy, complain, NULL), 0);
	for (unsigned int side = 0; side < SIDES; side++)
		domains[side] = gm_copy_domain(&copy, side);
	ck_assert_mem_eq(&domains[LEDGER]->stats, &domains[DIRECT]->stats,
			 sizeof(domains[0]->stats));
	ck_assert_mem_eq(domains[LEDGER]->live_bytes, domains[DIRECT]->live_bytes,
			 sizeof(domains[0]->live_bytes));
	same_rows(gm_copy_usage(&copy, 0), gm_copy_items(&copy, GM_REGION_USAGE));
	gm_copy_free(&copy);
}

static bool counts_in_ledger(void)
{
	return gm_rec.domains[LEDGER].ledger.key != 0;
}

static uint64_t some_size(void)
{
	switch (rnd() % 4) {
	case 0:
		return 1 + rnd() % (24 * MIB);
	case 1:
		return 2 * MIB;
	default:
		return 1 + rnd() % (512 * KIB);
	}
}

START_TEST(as_if_at_once)
{
	unsigned int folded_late = 0;

	begin();
	for (unsigned int step = 0; step < 6000; step++) {
		uint16_t module = (uint16_t)(1 + (rnd() % 8 == 0));
		unsigned int kind = rnd() % 8 == 0, way = (unsigned int)(rnd() % 16);

		if (way < 7 && lives < LIVE)
			alloc_both(some_size(), kind, module);
		else if (way == 7 && lives < LIVE && rnd() % 4 == 0)
			pass_through(some_size(), module);
		else if (way < 14 && lives)
			free_both((unsigned int)(rnd() % lives), pendings == LIVE || rnd() % 2);
		else if (pendings)
			complete_both((unsigned int)(rnd() % pendings));
		folded_late += counts_in_ledger();
		if (rnd() % 64 == 0)
			same_copy();
		if (rnd() % 64 == 0)
			same_stats();
		if (rnd() % 256 == 0)
			for (uint8_t side = 0; side < SIDES; side++)
				gm_record_reset_stats(side, GM_RESET_PEAK);
	}
	ck_assert_uint_gt(folded_late, 3000);
	while (lives)
		free_both(lives - 1, true);
	while (pendings)
		complete_both(pendings - 1);
	same_copy();
	ck_assert_uint_ge(same_stats(), 7);
}
END_TEST

/* A copy without a look at the ledger would miss these; and the domain itself has not got them. */
START_TEST(a_copy_has_it)
{
	const struct gm_stat *stat;
	struct gm_copy copy;

	begin();
	alloc_both(4 * KIB, 0, 1);
	alloc_both(4 * KIB, 0, 1);
	free_both(0, true);
	alloc_both(4 * KIB, 0, 1);
	stat = &gm_rec.domains[0].stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL];
	ck_assert_int_eq(stat->allocated, 2);
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert_int_eq(gm_copy_settle(&copy, UINT64_MAX), 0);
	stat = &gm_copy_domain(&copy, 0)->stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL];
	ck_assert_int_eq(stat->current, 2);
	ck_assert_int_eq(stat->allocated, 3);
	ck_assert_int_eq(stat->freed, 1);
	gm_copy_free(&copy);
}
END_TEST

/* More asked for, in a block of the same size. */
START_TEST(a_peak_of_requests)
{
	struct gm_stats stats;

	begin();
	alloc_both(2049, 0, 1);
	alloc_both(2049, 0, 1);
	free_both(0, true);
	alloc_both(2049, 0, 1);
	free_both(0, true);
	alloc_both(2560, 0, 1);
	same_stats();
	ck_assert_int_eq(gm_record_stats(LEDGER, &stats), 0);
	ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].peak, 5120);
	ck_assert_int_eq(stats.stat[GM_STAT_REQUESTED_BYTES][GM_POOL_ALL].peak, 4609);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger");
	TCase *tc = tcase_create("ledger");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(tc, as_if_at_once, 0, 3);
	tcase_add_test(tc, a_copy_has_it);
	tcase_add_test(tc, a_peak_of_requests);
	suite_add_tcase(suite, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
