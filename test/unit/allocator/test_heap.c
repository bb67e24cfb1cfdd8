/*
 * test_heap.c - the segments heap against random programs: invariants after every step, contents
 * by ranges, every failure of the driver and of the tables.
 */
#include "allocator/segments_heap.h"
#include "preload/options/options.h"
#include "test/seed.h"

#define MIB (UINT64_C(1) << 20)

struct driver {
	uint64_t capacity, used, next;
	unsigned int calls;
};

#include "test/rules/check.h"
#include "test/unit/allocator/heap_world.h"
#include "test/suite.h"

static int driver_alloc(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address)
{
	struct world *w = arg;

	(void)stream;
	ck_assert(!w->locked);
	w->driver.calls++;
	if (fails(&w->fail_driver) || w->driver.used + bytes > w->driver.capacity)
		return -ENOMEM;
	w->driver.used += bytes;
	*ret_address = w->driver.next;
	w->driver.next += bytes;
	return 0;
}

static void driver_free(void *arg, uint64_t address, uint64_t bytes, uint64_t stream)
{
	struct world *w = arg;

	(void)address;
	(void)stream;
	ck_assert(!w->locked);
	ck_assert_uint_ge(w->driver.used, bytes);
	w->driver.used -= bytes;
}

static struct world *begin(const char *conf, uint64_t limit, uint64_t capacity)
{
	struct gm_heap_config config;
	char error[GM_OPTION_ERROR_BYTES];
	struct world *w;

	ck_assert_int_eq(gm_options_heap_parse(&config, conf, false, error), 0);
	config.limit = limit;
	w = world_new(&config, (struct gm_heap_ops){ .driver_alloc = driver_alloc, .driver_free = driver_free });
	w->driver.next = BASE;
	w->driver.capacity = capacity;
	return w;
}

/* The largest block that a request of @bytes may get, whatever fails. */
static uint64_t most_for(const struct gm_heap *heap, uint64_t bytes)
{
	const struct gm_heap_config *config = &heap->config;
	uint64_t size = gm_heap_round(config, bytes);

	if (size <= GM_HEAP_SMALL_REQUEST)
		return size;
	if (size < config->max_split_size)
		return size + (config->shared_most == GM_HEAP_UNLIMITED ? GM_HEAP_SMALL_REQUEST : GM_HEAP_ROUND_LARGE - 1);
	return size + config->max_non_split_rounding;
}

/* No two live blocks overlap, each lies in its segment and is large enough: checked by the heap's
 * own walk (tiling) and here by size. */
static void random_program(const char *conf, uint64_t limit, uint64_t capacity, uint64_t shared_most,
			   uint64_t seed, int steps)
{
	struct world *w = begin(conf, limit, capacity);
	uint32_t live[512], pending[512];
	unsigned int lives = 0, pendings = 0;
	uint64_t bytes;

	w->heap->config.shared_most = shared_most;
	for (int i = 0; i < steps; i++) {
		uint64_t dice = rnd(&seed) % 100;

		if (dice < 50 && lives < 512) {
			struct gm_heap_request request = { some_bytes(&seed, 26), rnd(&seed) % 4, rnd(&seed) % 8 == 0 };
			uint32_t id = GM_NONE;
			int r;

			if (dice < 2)
				w->fail_records = 1 + (unsigned int)(rnd(&seed) % 3);
			else if (dice < 4)
				w->fail_driver = 1 + (unsigned int)(rnd(&seed) % 3);
			else if (dice < 5)
				w->fail_memory = 1;
			r = gm_heap_alloc(w->heap, &request, &id);
			w->fail_records = w->fail_driver = w->fail_memory = 0;
			if (r) {
				ck_assert(r == -ENOMEM || r == -ENOSPC);
			} else {
				ck_assert_uint_ge(w->blocks[id].size, request.bytes);
				if (request.whole && request.bytes > GM_HEAP_SMALL_REQUEST) {
					ck_assert(!gm_heap_is_split(&w->blocks[id]));
					ck_assert_uint_lt(w->blocks[id].size, gm_heap_round(&w->heap->config, request.bytes) + 2 * MIB);
				} else {
					ck_assert_uint_le(w->blocks[id].size, most_for(w->heap, request.bytes));
				}
				ck_assert_int_eq(w->blocks[id].state, GM_BLOCK_ACTIVE);
				live[lives++] = id;
			}
		} else if (dice < 85 && lives && pendings < 512) {
			unsigned int n = (unsigned int)(rnd(&seed) % lives);

			gm_heap_free_requested(w->heap, live[n]);
			pending[pendings++] = live[n];
			live[n] = live[--lives];
		} else if (dice < 99 && pendings) {
			unsigned int n = (unsigned int)(rnd(&seed) % pendings);

			gm_heap_free_completed(w->heap, pending[n]);
			pending[n] = pending[--pendings];
		} else {
			ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
		}
		ck_assert(w->locked);
		ck_assert_msg(!gm_heap_check(w->heap, w->first_segment), "step %d", i);
		ck_assert_uint_eq(w->driver.used, w->heap->reserved);
	}
	while (lives) {
		gm_heap_free_requested(w->heap, live[--lives]);
		gm_heap_free_completed(w->heap, live[lives]);
	}
	while (pendings)
		gm_heap_free_completed(w->heap, pending[--pendings]);
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	ck_assert_uint_eq(w->driver.used, 0);
	ck_assert_uint_eq(w->first_segment, GM_NONE);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	world_free(w);
}

#define ANY GM_HEAP_UNLIMITED

static const struct { const char *conf; uint64_t limit, capacity, shared_most; } settings[] = {
	{ "", ANY, ANY, ANY },
	{ "", ANY, 300 * MIB, ANY },
	{ "max_split_size_mb:20", ANY, 200 * MIB, ANY },
	{ "max_split_size_mb:24,max_non_split_rounding_mb:30", 150 * MIB, ANY, ANY },
	{ "garbage_collection_threshold:0.5", 200 * MIB, ANY, ANY },
	{ "roundup_power2_divisions:[1:4,16:2,>:8],large_segment_size_mb:32", 400 * MIB, 350 * MIB, ANY },
	{ "", ANY, ANY, 1024 * MIB },
	{ "", ANY, 300 * MIB, 200 * MIB },
	{ "", ANY, 300 * MIB, 0 },
	{ "max_split_size_mb:20", ANY, 200 * MIB, 200 * MIB },
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)	/* as long a time for fewer programs */
#define PROGRAMS 2
#else
#define PROGRAMS 12
#endif

START_TEST(random_programs)
{
	uint64_t seed = test_seed();

	for (int i = 0; i < PROGRAMS; i++) {
		uint64_t one = rnd(&seed);

		random_program(settings[_i].conf, settings[_i].limit, settings[_i].capacity,
			       settings[_i].shared_most, one, 1500);
	}
}
END_TEST

/* Rounding: the values that PyTorch's documentation and tests name. */
START_TEST(rounding)
{
	struct gm_heap_config config;
	char error[GM_OPTION_ERROR_BYTES];

	gm_heap_config_default(&config);
	ck_assert_uint_eq(gm_heap_round(&config, 1), 512);
	ck_assert_uint_eq(gm_heap_round(&config, 512), 512);
	ck_assert_uint_eq(gm_heap_round(&config, 513), 1024);
	ck_assert_uint_eq(gm_heap_round(&config, 1200), 1536);
	ck_assert_int_eq(gm_options_heap_parse(&config, "roundup_power2_divisions:4", false, error), 0);
	ck_assert_uint_eq(gm_heap_round(&config, 2560), 2560);
	ck_assert_uint_eq(gm_heap_round(&config, 2561), 3072);
	ck_assert_uint_eq(gm_heap_round(&config, 1200), 1536);	/* not above 512 * 4 */
	ck_assert_uint_eq(gm_heap_round(&config, 10500), 12288);
	ck_assert_int_eq(gm_options_heap_parse(&config,
		"roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]", false, error), 0);
	ck_assert_uint_eq(config.roundup_power2_divisions[0], 8);
	ck_assert_uint_eq(config.roundup_power2_divisions[6], 8);
	ck_assert_uint_eq(config.roundup_power2_divisions[7], 2);
	ck_assert_uint_eq(config.roundup_power2_divisions[9], 2);
	ck_assert_uint_eq(config.roundup_power2_divisions[10], 4);
	ck_assert_uint_eq(config.roundup_power2_divisions[15], 1);
	ck_assert_uint_eq(gm_heap_segment_bytes(&config, 512), 2 << 20);
	ck_assert_uint_eq(gm_heap_segment_bytes(&config, (1 << 20) + 512), 20 << 20);
	ck_assert_uint_eq(gm_heap_segment_bytes(&config, 10 << 20), 10 << 20);
	ck_assert_uint_eq(gm_heap_segment_bytes(&config, (10 << 20) + 512), 12 << 20);
}
END_TEST

/* The n-th call that can fail fails, for every n until none does: nothing is lost, rules hold. */
START_TEST(every_failure)
{
	for (int which = 0; which < 3; which++)
		for (unsigned int n = 1;; n++) {
			struct world *w = begin("", GM_HEAP_UNLIMITED, UINT64_C(64) << 20);
			unsigned int *countdown = which == 0 ? &w->fail_driver
						: which == 1 ? &w->fail_records : &w->fail_memory;
			uint32_t live[64];
			unsigned int lives = 0, left;
			uint64_t seed = 7;

			*countdown = n;
			for (int i = 0; i < 200; i++) {
				struct gm_heap_request request = { some_bytes(&seed, 26), (uint64_t)i % 9, false };

				if (lives == 64 || (lives && rnd(&seed) % 3 == 0)) {
					gm_heap_free_requested(w->heap, live[--lives]);
					gm_heap_free_completed(w->heap, live[lives]);
				} else if (!gm_heap_alloc(w->heap, &request, &live[lives])) {
					lives++;
				}
				ck_assert(!gm_heap_check(w->heap, w->first_segment));
				ck_assert_uint_eq(w->driver.used, w->heap->reserved);
			}
			left = *countdown;
			world_free(w);
			if (left)
				break;	/* it was never reached: all have had their turn */
		}
}
END_TEST

/* Where no record is left for the rest of a block, the driver serves the request: the block stays free and can go
 * back, and a segment that was made for the request alone goes back at once. */
START_TEST(no_record_for_the_rest)
{
	struct world *w = begin("", GM_HEAP_UNLIMITED, UINT64_C(256) << 20);
	struct gm_heap_request large = { UINT64_C(160) << 20, 0, false }, part = { UINT64_C(2) << 20, 0, false }, other = { part.bytes, 1, false };
	uint32_t id, none = GM_NONE;
	uint64_t bytes;

	ck_assert_int_eq(gm_heap_alloc(w->heap, &large, &id), 0);
	gm_heap_free(w->heap, id);
	w->no_records = true;
	ck_assert_int_eq(gm_heap_find(w->heap, &part, &none), -ENOSPC);
	ck_assert_int_eq(gm_heap_alloc(w->heap, &part, &none), -ENOSPC);
	ck_assert_int_eq(gm_heap_alloc(w->heap, &other, &none), -ENOSPC);
	ck_assert_uint_eq(none, GM_NONE);
	ck_assert_uint_eq(w->driver.used, large.bytes);
	ck_assert_uint_eq(w->heap->idle, large.bytes);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	ck_assert_int_eq(gm_heap_find(w->heap, &large, &id), 0);	/* it needs none */
	gm_heap_free(w->heap, id);
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	ck_assert_uint_eq(bytes, large.bytes);
	w->no_records = false;
	ck_assert_int_eq(gm_heap_alloc(w->heap, &part, &id), 0);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	world_free(w);
}
END_TEST

/* A device of 1 GiB is filled in blocks of one size, every other of which is freed: what the driver's granularity of 2 MiB
 * allows can be had, and half of what was freed, in one block. */
START_TEST(bounded_sharing)
{
	static const uint64_t sizes[] = { 7168, 9216, 3584, 2048, 1536, 1025, 5120, 6656 };	/* KiB */
	static uint32_t id[1024];
	uint64_t bytes = sizes[_i] << 10, capacity = UINT64_C(1) << 30, taken = (bytes + (2 << 20) - 1) >> 21 << 21;
	struct world *w = begin("", GM_HEAP_UNLIMITED, capacity);
	struct gm_heap_request request = { bytes, 0, false }, half;
	unsigned int count = 0;
	uint32_t large;

	w->heap->config.shared_most = capacity / 8;
	while (count < 1024 && !gm_heap_alloc(w->heap, &request, &id[count]))
		count++;
	ck_assert_uint_ge(count, capacity / taken * 98 / 100);
	ck_assert_uint_le(gm_segments(w->heap)->shared, capacity / 8);
	for (unsigned int i = 0; i < count; i += 2)
		gm_heap_free(w->heap, id[i]);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	half = (struct gm_heap_request){ (count + 1) / 2 * bytes / 2, 0, false };
	ck_assert_int_eq(gm_heap_alloc(w->heap, &half, &large), 0);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	world_free(w);
}
END_TEST

/* What is asked for and cannot be: the limit counts before the driver is asked. */
START_TEST(limits)
{
	struct world *w = begin("", UINT64_C(20) << 20, GM_HEAP_UNLIMITED);
	struct gm_heap_request small = { 1000, 0, false }, large = { UINT64_C(19) << 20, 0, false };
	struct gm_heap_request absurd = { UINT64_C(1) << 60, 0, false };
	uint32_t id;

	ck_assert_int_eq(gm_heap_alloc(w->heap, &absurd, &id), -E2BIG);
	ck_assert_int_eq(gm_heap_alloc(w->heap, &small, &id), 0);
	ck_assert_int_eq(gm_heap_alloc(w->heap, &large, &id), -ENOMEM);
	ck_assert_int_eq(w->stats.num_ooms, 1);
	ck_assert_int_eq(w->stats.num_alloc_retries, 1);
	ck_assert_uint_eq(w->driver.calls, 1);
	world_free(w);
}
END_TEST

/* If somebody cuts the journal short, the records of all blocks are zeroes. A walk over a set ends, also with skips. */
START_TEST(walks_without_records)
{
	const uint32_t count = 6;
	struct world *w = begin("", GM_HEAP_UNLIMITED, UINT64_MAX);
	struct gm_free_set *set = &gm_segments(w->heap)->pool[1];

	for (uint32_t i = 0; i < count; i++) {
		w->blocks[100 + i] = (struct gm_block){ .size = (i + 1) * MIB, .address = i, .stream = i & 1 };
		ck_assert_int_eq(gm_free_set_insert(set, 100 + i, 0), 0);
	}
	memset(&w->blocks[100], 0, count * sizeof(*w->blocks));
	for (uint64_t skip = 0; skip < 6 * MIB; skip += MIB) {
		struct gm_free_cursor at = { 0 };
		uint32_t steps = 0;

		while (steps <= count && gm_free_set_next(set, &at)) {
			steps++;
			if (skip)
				gm_free_cursor_skip(&at, skip);
		}
		ck_assert_uint_le(steps, count);
		ck_assert_uint_ge(steps, 2);
	}
	world_free(w);
}
END_TEST

/* Every size that 64 bits hold has its class: what is just below the limit of a request rounds up to
 * it, and a segment may be larger still. */
START_TEST(sizes_without_end)
{
	static const uint64_t sizes[] = {
		UINT64_C(1) << 59, (UINT64_C(1) << 60) - GM_GRANULE, UINT64_C(1) << 60,
		(UINT64_C(1) << 60) + GM_GRANULE, UINT64_C(1) << 61, UINT64_C(1) << 63,
		UINT64_MAX - GM_GRANULE + 1,
	};
	const uint32_t count = sizeof(sizes) / sizeof(sizes[0]);
	struct world *w = begin("", GM_HEAP_UNLIMITED, UINT64_MAX);
	struct gm_heap_request request = { (UINT64_C(1) << 60) - 1, 0, false };
	struct gm_free_set *set = &gm_segments(w->heap)->pool[1];
	uint32_t id;

	ck_assert_int_eq(gm_heap_alloc(w->heap, &request, &id), -ENOSPC);	/* no address is that large */
	ck_assert_uint_eq(w->driver.used, 0);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	for (uint32_t i = 0; i < count; i++) {
		w->blocks[100 + i] = (struct gm_block){ .size = sizes[i], .address = i };
		ck_assert_int_eq(gm_free_set_insert(set, 100 + i, 0), 0);
		w->blocks[100 + i].state = GM_BLOCK_INACTIVE;
	}
	ck_assert_int_eq(gm_free_set_check(set), 0);
	ck_assert_uint_eq(gm_free_set_largest(set), sizes[count - 1]);
	for (uint32_t i = 0; i < count; i++) {
		ck_assert_uint_eq(gm_free_set_at_least(set, 0, sizes[i], 0), 100 + i);
		ck_assert_uint_eq(gm_free_set_at_least(set, 0, sizes[i] - 1, 0), 100 + i);
		ck_assert_uint_eq(gm_free_set_below(set, 0, sizes[i], 0), i ? 99 + i : 0);
	}
	ck_assert_uint_eq(gm_free_set_below(set, 0, UINT64_MAX, 0), 100 + count - 1);
	ck_assert_uint_eq(gm_free_set_at_least(set, 0, UINT64_MAX, 0), 0);
	for (uint32_t i = 0; i < count; i++)
		gm_free_set_remove(set, 100 + i);
	ck_assert_int_eq(gm_free_set_check(set), 0);
	ck_assert_uint_eq(set->count, 0);
	world_free(w);
}
END_TEST

/* Totals of all time wrap (a sanitizer would say that they must not). */
START_TEST(totals_without_end)
{
	struct world *w = begin("", GM_HEAP_UNLIMITED, UINT64_MAX);
	struct gm_stat *stat = &w->stats.stat[GM_STAT_ACTIVE_BYTES][GM_POOL_ALL];
	struct gm_heap_request request = { 512, 0, false };
	uint32_t id;

	stat->allocated = stat->freed = INT64_MAX;
	ck_assert_int_eq(gm_heap_alloc(w->heap, &request, &id), 0);
	gm_heap_free(w->heap, id);
	ck_assert_int_eq(stat->allocated, INT64_MIN + 511);
	ck_assert_int_eq(stat->freed, INT64_MIN + 511);
	world_free(w);
}
END_TEST

/* Of thousands of streams a few have something at a time: their room is the next ones'. One in 50
 * keeps a block to the end, and gets it. */
START_TEST(streams_come_and_go)
{
	struct world *w = begin("", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED);
	uint32_t kept[200];
	uint64_t bytes;

	for (uint32_t i = 0; i < 10000; i++) {
		struct gm_heap_request request = { 1 + i % 3 * 1500000, i + 1, false };
		uint32_t id;

		ck_assert_int_eq(gm_heap_alloc(w->heap, &request, &id), 0);
		if (i % 50)
			gm_heap_free(w->heap, id);
		else
			kept[i / 50] = id;
		if (i % 10)
			continue;
		ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
		ck_assert(!gm_heap_check(w->heap, w->first_segment));
	}
	ck_assert_uint_lt(w->given, 800);
	for (uint32_t i = 0; i < 200; i++) {
		struct gm_heap_request request = { w->blocks[kept[i]].requested, 1 + i * 50, false };
		uint32_t id;

		gm_heap_free(w->heap, kept[i]);
		ck_assert_int_eq(gm_heap_find(w->heap, &request, &id), 0);
		ck_assert_uint_eq(w->blocks[id].address, w->blocks[kept[i]].address);
		gm_heap_free(w->heap, id);
	}
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	ck_assert_uint_eq(w->driver.used, 0);
	world_free(w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap");
	TCase *tests = tcase_create("heap");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, random_programs, 0, sizeof(settings) / sizeof(settings[0]));
	tcase_add_test(tests, rounding);
	tcase_add_test(tests, every_failure);
	tcase_add_test(tests, no_record_for_the_rest);
	tcase_add_loop_test(tests, bounded_sharing, 0, 8);
	tcase_add_test(tests, limits);
	tcase_add_test(tests, sizes_without_end);
	tcase_add_test(tests, walks_without_records);
	tcase_add_test(tests, totals_without_end);
	tcase_add_test(tests, streams_come_and_go);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
