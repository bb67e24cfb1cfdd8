/*
 * test_heap.c - the segments heap against random programs: invariants after every step, contents
 * by ranges, every failure of the driver and of the tables.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/segments_heap.h"
#include "preload/options/options.h"

#define SEGMENTS 4096u
#define BLOCKS 32768u

struct world {
	struct gm_heap *heap;
	struct gm_undo undo;
	struct gm_stats stats;
	struct gm_segment segments[SEGMENTS];
	struct gm_block blocks[BLOCKS];
	struct gm_free_link links[BLOCKS];
	uint32_t segment_fresh, block_fresh, segment_unused, block_unused, first_segment;
	uint64_t capacity, used, next;
	unsigned int fail_driver, fail_records, fail_memory;	/* the n-th from now fails; 0 none */
	unsigned int records, driver_calls, given;
	void *memory[1024];
	uint64_t given_back;
	bool locked;
};

static bool fails(unsigned int *countdown)
{
	return *countdown && !--*countdown;
}

static uint32_t segment_new(void *arg)
{
	struct world *w = arg;
	uint32_t id = w->segment_unused;

	w->records++;
	if (fails(&w->fail_records))
		return GM_NONE;
	if (id)
		w->segment_unused = w->segments[id].next;
	else
		id = w->segment_fresh < SEGMENTS ? w->segment_fresh++ : GM_NONE;
	if (!id)
		return GM_NONE;
	memset(&w->segments[id], 0, sizeof(w->segments[id]));
	w->segments[id].next = w->first_segment;
	w->segments[w->first_segment].prev = id;
	w->first_segment = id;
	return id;
}

static void segment_drop(void *arg, uint32_t id)
{
	struct world *w = arg;
	struct gm_segment *s = &w->segments[id];

	if (w->first_segment == id)
		w->first_segment = s->next;
	else
		w->segments[s->prev].next = s->next;
	w->segments[s->next].prev = s->prev;
	s->next = w->segment_unused;
	w->segment_unused = id;
}

static uint32_t block_new(void *arg)
{
	struct world *w = arg;
	uint32_t id = w->block_unused;

	w->records++;
	if (fails(&w->fail_records))
		return GM_NONE;
	if (id)
		w->block_unused = w->blocks[id].next;
	else
		id = w->block_fresh < BLOCKS ? w->block_fresh++ : GM_NONE;
	if (id)
		memset(&w->blocks[id], 0, sizeof(w->blocks[id]));
	return id;
}

static void block_drop(void *arg, uint32_t id)
{
	struct world *w = arg;

	w->blocks[id].state = GM_BLOCK_UNUSED;
	w->blocks[id].next = w->block_unused;
	w->block_unused = id;
}

static int driver_alloc(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address)
{
	struct world *w = arg;

	(void)stream;
	ck_assert(!w->locked);
	w->driver_calls++;
	if (fails(&w->fail_driver) || w->used + bytes > w->capacity)
		return -ENOMEM;
	w->used += bytes;
	*ret_address = w->next;
	w->next += bytes;
	return 0;
}

static void driver_free(void *arg, uint64_t address, uint64_t bytes, uint64_t stream)
{
	struct world *w = arg;

	(void)address;
	(void)stream;
	ck_assert(!w->locked);
	ck_assert_uint_ge(w->used, bytes);
	w->used -= bytes;
}

static bool lock(void *arg, bool grown)
{
	(void)grown;
	return ((struct world *)arg)->locked = true;
}

static void unlock(void *arg)
{
	((struct world *)arg)->locked = false;
}

static void *memory(void *arg, size_t bytes)
{
	struct world *w = arg;

	if (fails(&w->fail_memory))
		return NULL;
	ck_assert_uint_lt(w->given, 1024);
	return w->memory[w->given++] = calloc(1, bytes);
}

static struct gm_heap_ops ops;

static struct world *begin(const char *conf, uint64_t limit, uint64_t capacity)
{
	struct world *w = calloc(1, sizeof(*w));
	struct gm_heap_config config;
	struct gm_heap_setup setup;
	char error[GM_OPTION_ERROR_BYTES];

	ck_assert_int_eq(gm_options_heap_parse(&config, conf, false, error), 0);
	config.limit = limit;
	w->segment_fresh = w->block_fresh = 1;
	w->next = UINT64_C(0x7f0000000000);
	w->capacity = capacity;
	ops = (struct gm_heap_ops){ .segment_new = segment_new, .segment_drop = segment_drop,
		.block_new = block_new, .block_drop = block_drop, .driver_alloc = driver_alloc,
		.driver_free = driver_free, .lock = lock, .unlock = unlock, .arg = w };
	setup = (struct gm_heap_setup){ .config = &config, .ops = &ops, .undo = &w->undo,
		.stats = &w->stats, .segments = w->segments, .blocks = w->blocks,
		.links = w->links, .memory = memory, .memory_arg = w,
		.map = gm_page_map_new(memory, w) };
	ck_assert(setup.map != NULL);
	w->heap = gm_heap_new(&setup);
	ck_assert_ptr_nonnull(w->heap);
	w->locked = true;
	return w;
}

static void end(struct world *w)
{
	for (unsigned int i = 0; i < w->given; i++)
		free(w->memory[i]);
	free(w);
}

static uint64_t seed_of(void)
{
	const char *text = getenv("GM_SEED");

	return text ? strtoull(text, NULL, 0) : UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Sizes as programs have them: many small, few large. */
static uint64_t some_bytes(uint64_t *state)
{
	uint64_t shift = rnd(state) % 26;

	return 1 + rnd(state) % ((UINT64_C(1) << shift) + 1);
}

/* No two live blocks overlap, each lies in its segment and is large enough: checked by the heap's
 * own walk (tiling) and here by size. */
static void random_program(const char *conf, uint64_t limit, uint64_t capacity, uint64_t seed,
			   int steps)
{
	struct world *w = begin(conf, limit, capacity);
	uint32_t live[512], pending[512];
	unsigned int lives = 0, pendings = 0;

	for (int i = 0; i < steps; i++) {
		uint64_t dice = rnd(&seed) % 100;

		if (dice < 50 && lives < 512) {
			struct gm_heap_request request = { some_bytes(&seed), rnd(&seed) % 4 };
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
			uint64_t bytes;

			ck_assert_int_eq(gm_heap_release(w->heap, true, &bytes), 0);
		}
		ck_assert(w->locked);
		ck_assert_msg(!gm_heap_check(w->heap, w->first_segment), "step %d", i);
		ck_assert_uint_eq(w->used, w->heap->reserved);
	}
	while (lives) {
		gm_heap_free_requested(w->heap, live[--lives]);
		gm_heap_free_completed(w->heap, live[lives]);
	}
	while (pendings)
		gm_heap_free_completed(w->heap, pending[--pendings]);
	ck_assert_int_eq(gm_heap_release(w->heap, true, &w->given_back), 0);
	ck_assert_uint_eq(w->used, 0);
	ck_assert_uint_eq(w->first_segment, GM_NONE);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	end(w);
}

static const struct { const char *conf; uint64_t limit, capacity; } settings[] = {
	{ "", GM_HEAP_UNLIMITED, GM_HEAP_UNLIMITED },
	{ "", GM_HEAP_UNLIMITED, UINT64_C(300) << 20 },
	{ "max_split_size_mb:20", GM_HEAP_UNLIMITED, UINT64_C(200) << 20 },
	{ "max_split_size_mb:24,max_non_split_rounding_mb:30", UINT64_C(150) << 20, GM_HEAP_UNLIMITED },
	{ "garbage_collection_threshold:0.5", UINT64_C(200) << 20, GM_HEAP_UNLIMITED },
	{ "roundup_power2_divisions:[1:4,16:2,>:8],large_segment_size_mb:32", UINT64_C(400) << 20,
	  UINT64_C(350) << 20 },
};

#ifdef __SANITIZE_THREAD__		/* thirty times as slow, for one thread */
#define PROGRAMS 2
#else
#define PROGRAMS 12
#endif

START_TEST(random_programs)
{
	uint64_t seed = seed_of();

	for (int i = 0; i < PROGRAMS; i++) {
		uint64_t one = rnd(&seed);

		random_program(settings[_i].conf, settings[_i].limit, settings[_i].capacity, one, 1500);
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
				struct gm_heap_request request = { some_bytes(&seed), (uint64_t)i % 9 };

				if (lives == 64 || (lives && rnd(&seed) % 3 == 0)) {
					gm_heap_free_requested(w->heap, live[--lives]);
					gm_heap_free_completed(w->heap, live[lives]);
				} else if (!gm_heap_alloc(w->heap, &request, &live[lives])) {
					lives++;
				}
				ck_assert(!gm_heap_check(w->heap, w->first_segment));
				ck_assert_uint_eq(w->used, w->heap->reserved);
			}
			left = *countdown;
			end(w);
			if (left)
				break;	/* it was never reached: all have had their turn */
		}
}
END_TEST

/* What is asked for and cannot be: the limit counts before the driver is asked. */
START_TEST(limits)
{
	struct world *w = begin("", UINT64_C(20) << 20, GM_HEAP_UNLIMITED);
	struct gm_heap_request small = { 1000, 0 }, large = { UINT64_C(19) << 20, 0 };
	struct gm_heap_request absurd = { UINT64_C(1) << 60, 0 };
	uint32_t id;

	ck_assert_int_eq(gm_heap_alloc(w->heap, &absurd, &id), -E2BIG);
	ck_assert_int_eq(gm_heap_alloc(w->heap, &small, &id), 0);
	ck_assert_int_eq(gm_heap_alloc(w->heap, &large, &id), -ENOMEM);
	ck_assert_int_eq(w->stats.num_ooms, 1);
	ck_assert_int_eq(w->stats.num_alloc_retries, 1);
	ck_assert_uint_eq(w->driver_calls, 1);
	end(w);
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
	struct gm_heap_request request = { (UINT64_C(1) << 60) - 1, 0 };
	struct gm_free_set *set = &gm_segments(w->heap)->pool[1];
	uint32_t id;

	ck_assert_int_eq(gm_heap_alloc(w->heap, &request, &id), -ENOSPC);	/* no address is that large */
	ck_assert_uint_eq(w->used, 0);
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
	end(w);
}
END_TEST

/* Totals of all time wrap (a sanitizer would say that they must not). */
START_TEST(totals_without_end)
{
	struct world *w = begin("", GM_HEAP_UNLIMITED, UINT64_MAX);
	struct gm_stat *stat = &w->stats.stat[GM_STAT_ACTIVE_BYTES][GM_POOL_ALL];
	struct gm_heap_request request = { 512, 0 };
	uint32_t id;

	stat->allocated = stat->freed = INT64_MAX;
	ck_assert_int_eq(gm_heap_alloc(w->heap, &request, &id), 0);
	gm_heap_free(w->heap, id);
	ck_assert_int_eq(stat->allocated, INT64_MIN + 511);
	ck_assert_int_eq(stat->freed, INT64_MIN + 511);
	end(w);
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
		struct gm_heap_request request = { 1 + i % 3 * 1500000, i + 1 };
		uint32_t id;

		ck_assert_int_eq(gm_heap_alloc(w->heap, &request, &id), 0);
		if (i % 50)
			gm_heap_free(w->heap, id);
		else
			kept[i / 50] = id;
		if (i % 10)
			continue;
		ck_assert_int_eq(gm_heap_release(w->heap, true, &bytes), 0);
		ck_assert(!gm_heap_check(w->heap, w->first_segment));
	}
	ck_assert_uint_lt(w->given, 800);
	for (uint32_t i = 0; i < 200; i++) {
		struct gm_heap_request request = { w->blocks[kept[i]].requested, 1 + i * 50 };
		uint32_t id;

		gm_heap_free(w->heap, kept[i]);
		ck_assert_int_eq(gm_heap_find(w->heap, &request, &id), 0);
		ck_assert_uint_eq(w->blocks[id].address, w->blocks[kept[i]].address);
		gm_heap_free(w->heap, id);
	}
	ck_assert_int_eq(gm_heap_release(w->heap, true, &bytes), 0);
	ck_assert_uint_eq(w->used, 0);
	end(w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap");
	TCase *tests = tcase_create("heap");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, random_programs, 0, sizeof(settings) / sizeof(settings[0]));
	tcase_add_test(tests, rounding);
	tcase_add_test(tests, every_failure);
	tcase_add_test(tests, limits);
	tcase_add_test(tests, sizes_without_end);
	tcase_add_test(tests, totals_without_end);
	tcase_add_test(tests, streams_come_and_go);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
