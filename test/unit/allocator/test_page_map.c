/*
 * test_page_map.c - the page map against a plain table of who has which 512 bytes: random segments, splits
 * and merges, unaligned ones too; memory failing at each point; readers beside a writer.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/page_map.h"
#include "test/suite.h"
#include "test/seed.h"

#ifdef __SANITIZE_THREAD__		/* sees two accesses without order, whether they meet or not */
#define CHURNS 50000
#else
#define CHURNS 200000
#endif
#define RANDOM_PROGRAMS 4
#define UNIT UINT64_C(512)
#define GRANULE (UINT64_C(2) << 20)
#define SMALLEST_LARGE ((UINT64_C(1) << 20) + UNIT)
#define BASE UINT64_C(0x7f00003ff000)	/* near the end of a granule, and of a leaf */
#define UNITS (64u * 4096u)		/* of the model's 64 granules */
#define BLOCKS 4096u

/* ---- memory ---- */

struct memory { unsigned int fail, given; void *list[256]; };

static void *memory_new(void *arg, size_t bytes)
{
	struct memory *m = arg;

	if (m->fail && !--m->fail)
		return NULL;
	if (m->given == 256)
		ck_abort_msg("more memory than a page map can need");
	return m->list[m->given++] = calloc(1, bytes);
}

static void memory_free(struct memory *m)
{
	while (m->given)
		free(m->list[--m->given]);
}

/* ---- the model: a table of units, and the blocks of each segment in their order ---- */

struct segment {
	uint64_t address, bytes;
	bool small;
	unsigned int count;		/* of blocks; 0: no segment */
	uint64_t begin[BLOCKS];
	uint32_t id[BLOCKS];
};

struct world {
	struct memory memory;
	struct gm_page_map *map;
	uint32_t owner[UNITS];
	struct segment segments[16];
	uint32_t last_id;
};

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void paint(struct world *w, uint64_t address, uint64_t bytes, uint32_t id)
{
	for (uint64_t u = (address - BASE) / UNIT, n = bytes / UNIT; n--; u++)
		w->owner[u] = id;
}

static bool is_free(const struct world *w, uint64_t address, uint64_t bytes)
{
	for (uint64_t u = (address - BASE) / UNIT, n = bytes / UNIT; n--; u++)
		if (u >= UNITS || w->owner[u])
			return false;
	return true;
}

static void check_at(const struct world *w, uint64_t address, int step)
{
	uint64_t unit = (address - BASE) / UNIT;
	uint32_t want = address >= BASE && unit < UNITS ? w->owner[unit] : 0;
	uint32_t got = gm_page_map_find(w->map, address);

	if (got != want)	/* a passing assertion is a system call */
		ck_abort_msg("step %d: %#llx is %u's, not %u's", step,
			     (unsigned long long)address, want, got);
}

static void check_all(const struct world *w, int step)
{
	for (uint64_t u = 0; u < UNITS; u++)
		check_at(w, BASE + u * UNIT, step);
}

static uint64_t end_of(const struct segment *s, unsigned int n)
{
	return n + 1 < s->count ? s->begin[n + 1] : s->address + s->bytes;
}

static void add(struct world *w, struct segment *s, uint64_t *seed)
{
	uint64_t step = rnd(seed) % 3 ? GRANULE : UNIT, bytes, address;

	s->small = rnd(seed) % 2;
	bytes = s->small ? UNIT * (1 + rnd(seed) % 4096) : SMALLEST_LARGE + rnd(seed) % (20 << 20);
	if (s->small && rnd(seed) % 2)
		bytes = GRANULE;
	bytes &= ~(step == GRANULE && bytes > GRANULE ? GRANULE - 1 : UNIT - 1);
	address = BASE + rnd(seed) % (UNITS * UNIT);
	address &= ~(step - 1);
	if (address < BASE || !is_free(w, address, bytes))
		return;
	s->id[0] = ++w->last_id;
	ck_assert_int_eq(gm_page_map_add(w->map, address, bytes, s->small, s->id[0]), 0);
	s->address = s->begin[0] = address;
	s->bytes = bytes;
	s->count = 1;
	paint(w, address, bytes, s->id[0]);
}

static void split(struct world *w, struct segment *s, uint64_t *seed)
{
	unsigned int n = (unsigned int)(rnd(seed) % s->count);
	uint64_t bytes = end_of(s, n) - s->begin[n], least = s->small ? UNIT : SMALLEST_LARGE, cut;

	if (bytes < 2 * least || s->count == BLOCKS)
		return;
	cut = least + rnd(seed) % (bytes - 2 * least + UNIT) / UNIT * UNIT;
	if (rnd(seed) % 4 == 0) {	/* on the edge of a granule */
		cut = GRANULE - s->begin[n] % GRANULE;
		if (cut < least || cut > bytes - least)
			return;
	}
	memmove(&s->begin[n + 1], &s->begin[n], (s->count - n) * sizeof(s->begin[0]));
	memmove(&s->id[n + 1], &s->id[n], (s->count - n) * sizeof(s->id[0]));
	s->count++;
	s->begin[n + 1] += cut;
	s->id[n] = ++w->last_id;
	gm_page_map_split(w->map, s->begin[n], cut, s->id[n]);
	paint(w, s->begin[n], cut, s->id[n]);
}

/* Block @n goes into the one before it or behind it. */
static void merge(struct world *w, struct segment *s, uint64_t *seed)
{
	unsigned int n = (unsigned int)(rnd(seed) % s->count);
	bool behind = rnd(seed) % 2;
	uint64_t begin = s->begin[n], bytes = end_of(s, n) - begin;
	uint32_t into;

	if (behind ? n + 1 == s->count : n == 0)
		return;
	into = s->id[behind ? n + 1 : n - 1];
	gm_page_map_merge(w->map, begin, bytes, into);
	paint(w, begin, bytes, into);
	if (behind)
		s->begin[n + 1] = begin;
	s->count--;
	memmove(&s->begin[n], &s->begin[n + 1], (s->count - n) * sizeof(s->begin[0]));
	memmove(&s->id[n], &s->id[n + 1], (s->count - n) * sizeof(s->id[0]));
}

static void discard(struct world *w, struct segment *s)
{
	gm_page_map_remove(w->map, s->address, s->bytes);
	paint(w, s->address, s->bytes, 0);
	s->count = 0;
}

static struct world *begin_world(void)
{
	struct world *w = calloc(1, sizeof(*w));

	w->map = gm_page_map_new(memory_new, &w->memory);
	ck_assert(w->map != NULL);
	return w;
}

static void end_world(struct world *w)
{
	memory_free(&w->memory);
	free(w);
}

START_TEST(random_changes)
{
	struct world *w = begin_world();
	uint64_t seed = test_seed() + (uint64_t)_i * 77;

	for (int i = 0; i < 40000; i++) {
		struct segment *s = &w->segments[rnd(&seed) % 16];
		uint64_t dice = rnd(&seed) % 100;

		if (!s->count)
			add(w, s, &seed);
		else if (dice < 55)
			split(w, s, &seed);
		else if (dice < 98)
			merge(w, s, &seed);
		else
			discard(w, s);
		for (int k = 0; k < 8; k++)
			check_at(w, BASE + rnd(&seed) % (UNITS * UNIT), i);
		for (unsigned int n = 0; n < s->count && n < 4; n++) {
			check_at(w, s->begin[n], i);
			check_at(w, end_of(s, n) - 1, i);
			check_at(w, end_of(s, n), i);
			check_at(w, s->begin[n] - 1, i);
		}
		if (i % 1000 == 0)
			check_all(w, i);
	}
	for (int i = 0; i < 16; i++)
		if (w->segments[i].count)
			discard(w, &w->segments[i]);
	check_all(w, -1);
	end_world(w);
}
END_TEST

/* Addresses that are nobody's, and that no device has. */
START_TEST(nothing_there)
{
	struct world *w = begin_world();

	ck_assert_uint_eq(gm_page_map_find(w->map, 0), 0);
	ck_assert_uint_eq(gm_page_map_find(w->map, BASE), 0);
	ck_assert_uint_eq(gm_page_map_find(w->map, UINT64_MAX), 0);
	ck_assert_int_eq(gm_page_map_add(w->map, UINT64_C(1) << 49, GRANULE, false, 1), -ENOMEM);
	ck_assert_int_eq(gm_page_map_add(w->map, -GRANULE, 2 * GRANULE, false, 1), -ENOMEM);
	ck_assert_int_eq(gm_page_map_add(w->map, (UINT64_C(1) << 49) - GRANULE, GRANULE, true, 7), 0);
	ck_assert_uint_eq(gm_page_map_find(w->map, (UINT64_C(1) << 49) - 1), 7);
	gm_page_map_remove(w->map, UINT64_C(5) << 40, GRANULE);
	gm_page_map_remove(w->map, (UINT64_C(1) << 49) - GRANULE, GRANULE);
	ck_assert_uint_eq(gm_page_map_find(w->map, (UINT64_C(1) << 49) - 1), 0);
	end_world(w);
}
END_TEST

/* The n-th piece of memory is refused: nothing changed, and later it works. */
/* The driver gave a range again before the end of its context was told. */
START_TEST(given_again)
{
	const uint64_t at = UINT64_C(0x7f0000200000), big = 20u << 20, small = 2u << 20;
	struct memory memory = { 0 };
	struct gm_page_map *map = gm_page_map_new(memory_new, &memory);

	ck_assert_int_eq(gm_page_map_add(map, at, small, true, 1), 0);
	gm_page_map_split(map, at, 4096, 2);		/* 2, then 1 */
	ck_assert_int_eq(gm_page_map_add(map, at + small, small, true, 3), 0);
	ck_assert_int_eq(gm_page_map_add(map, at, small, false, 9), 0);
	gm_page_map_forget(map, at, 4096, 2);
	gm_page_map_forget(map, at + 4096, small - 4096, 1);
	gm_page_map_forget(map, at + small, small, 3);
	ck_assert_uint_eq(gm_page_map_find(map, at), 9);
	ck_assert_uint_eq(gm_page_map_find(map, at + 4096), 9);
	ck_assert_uint_eq(gm_page_map_find(map, at + small - 1), 9);
	ck_assert_uint_eq(gm_page_map_find(map, at + small), 0);
	gm_page_map_remove(map, at, small);
	ck_assert_uint_eq(gm_page_map_find(map, at), 0);
	ck_assert_int_eq(gm_page_map_add(map, at, big, false, 4), 0);
	ck_assert_uint_eq(gm_page_map_find(map, at + small + 4096), 4);
}
END_TEST

START_TEST(memory_fails)
{
	for (unsigned int n = 1; n < 8; n++) {
		struct world *w = begin_world();
		uint64_t address = (UINT64_C(3) << 34) - 20 * GRANULE;	/* into a second leaf */
		uint64_t bytes = 40 * GRANULE;
		int r;

		w->memory.fail = n;
		r = gm_page_map_add(w->map, address, bytes, true, 5);
		ck_assert(r == 0 || r == -ENOMEM);
		ck_assert_int_eq(r == 0, w->memory.fail != 0);
		for (uint64_t at = address; at < address + bytes; at += GRANULE / 2)
			ck_assert_uint_eq(gm_page_map_find(w->map, at), r ? 0 : 5);
		if (r)
			ck_assert_int_eq(gm_page_map_add(w->map, address, bytes, true, 5), 0);
		gm_page_map_split(w->map, address, bytes - UNIT, 6);
		ck_assert_uint_eq(gm_page_map_find(w->map, address + bytes - UNIT - 1), 6);
		ck_assert_uint_eq(gm_page_map_find(w->map, address + bytes - UNIT), 5);
		end_world(w);
	}
	ck_assert(gm_page_map_new(memory_new, &(struct memory){ .fail = 1 }) == NULL);
}
END_TEST

/* Pages come back: a thousand small segments one after another, and large ones that need none. */
START_TEST(memory_is_modest)
{
	struct world *w = begin_world();
	unsigned int given;

	ck_assert_int_eq(gm_page_map_add(w->map, BASE + UNIT, 10 * GRANULE, false, 1), 0);
	given = w->memory.given;
	gm_page_map_split(w->map, BASE + UNIT, 3 * GRANULE / 2, 2);
	gm_page_map_split(w->map, BASE + UNIT + 3 * GRANULE / 2, SMALLEST_LARGE, 3);
	ck_assert_uint_eq(w->memory.given, given);
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t address = (UINT64_C(9) << 34) + i % 100 * GRANULE;

		ck_assert_int_eq(gm_page_map_add(w->map, address, GRANULE, true, 1), 0);
		gm_page_map_split(w->map, address, 5 * UNIT, 2);
		gm_page_map_split(w->map, address + 5 * UNIT, 7 * UNIT, 3);
		gm_page_map_remove(w->map, address, GRANULE);
	}
	ck_assert_uint_le(w->memory.given, given + 2);	/* a leaf, a batch of pages */
	end_world(w);
}
END_TEST

/* ---- readers beside a writer ---- */

/* The writer moves these blocks' borders: at each moment the answer for an address is one of few,
 * and for one that no border ever passes it is one. */
struct shared {
	struct gm_page_map *map;
	uint64_t small, large;
	_Atomic(int) stop, bad;
	_Atomic(unsigned long) reads;
};

#define CHECK_READ(condition) do { if (!(condition)) s->bad++; } while (0)

static void *reader(void *arg)
{
	struct shared *s = arg;
	uint64_t seed = (uintptr_t)&seed | 1;

	while (!s->stop) {
		uint64_t at = rnd(&seed) % GRANULE;
		uint32_t small = gm_page_map_find(s->map, s->small + at);
		uint32_t large = gm_page_map_find(s->map, s->large + at * 8);
		uint32_t other;

		/* Blocks of the first half have ids 1 .. 3, of the second 4. */
		CHECK_READ(at < GRANULE / 2 ? small >= 1 && small <= 3 : small == 4);
		CHECK_READ(at * 8 < 4 * GRANULE ? large >= 11 && large <= 13 : large == 14);
		/* A segment that comes and goes, with a page that another one has in between. */
		other = gm_page_map_find(s->map, s->small + GRANULE + at);
		CHECK_READ(other == 0 || other == 21 || (other == 22 && at < 100 * UNIT));
		other = gm_page_map_find(s->map, s->small + 2 * GRANULE + at);
		CHECK_READ(other == 0 || other == 31 || (other == 33 && at < 200 * UNIT) ||
			   (other == 32 && at >= 200 * UNIT && at < 300 * UNIT));
		s->reads++;
	}
	return NULL;
}

/* Cut [@address, +@bytes), which is @block's, into three and join them again, both ways. */
static void churn(struct gm_page_map *map, uint64_t address, uint64_t first, uint64_t second,
		  uint64_t bytes, uint32_t block, bool forward)
{
	gm_page_map_split(map, address, first, block + 1);
	gm_page_map_split(map, address + first, second, block + 2);
	if (forward) {
		gm_page_map_merge(map, address + first, second, block + 1);
		gm_page_map_merge(map, address, first + second, block);
	} else {
		gm_page_map_merge(map, address + first, second, block);
		gm_page_map_merge(map, address + first, bytes - first, block + 1);
		gm_page_map_split(map, address, bytes - UNIT * 2049, block + 2);
		gm_page_map_merge(map, address, bytes - UNIT * 2049, block + 1);
		/* The block that is left has another name: give it its own again. */
		gm_page_map_split(map, address, UNIT * 2050, block);
		gm_page_map_merge(map, address + UNIT * 2050, bytes - UNIT * 2050, block);
	}
}

START_TEST(readers_beside_a_writer)
{
	struct world *w = begin_world();
	struct shared s = { .map = w->map, .small = UINT64_C(7) << 34,
			    .large = (UINT64_C(8) << 34) };
	pthread_t threads[2];
	uint64_t seed = test_seed();

	ck_assert_int_eq(gm_page_map_add(s.map, s.small, GRANULE, true, 4), 0);
	gm_page_map_split(s.map, s.small, GRANULE / 2, 1);
	ck_assert_int_eq(gm_page_map_add(s.map, s.large, 8 * GRANULE, false, 14), 0);
	gm_page_map_split(s.map, s.large, 4 * GRANULE, 11);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &s), 0);
	for (int i = 0; i < CHURNS || s.reads < 1000; i++) {
		uint64_t first = UNIT * (1 + rnd(&seed) % 1000), second = UNIT * (1 + rnd(&seed) % 1000);
		uint64_t large = SMALLEST_LARGE + rnd(&seed) % GRANULE / UNIT * UNIT;

		churn(s.map, s.small, first, second, GRANULE / 2, 1, true);
		churn(s.map, s.large, large, large, 4 * GRANULE, 11, rnd(&seed) % 2);
		gm_page_map_add(s.map, s.small + GRANULE, GRANULE, true, 21);
		gm_page_map_split(s.map, s.small + GRANULE, 100 * UNIT, 22);
		gm_page_map_remove(s.map, s.small + GRANULE, GRANULE);
		gm_page_map_add(s.map, s.small + 2 * GRANULE, GRANULE, true, 31);
		gm_page_map_split(s.map, s.small + 2 * GRANULE, 200 * UNIT, 33);
		gm_page_map_split(s.map, s.small + 2 * GRANULE + 200 * UNIT, 100 * UNIT, 32);
		gm_page_map_remove(s.map, s.small + 2 * GRANULE, GRANULE);
	}
	s.stop = 1;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_int_eq(s.bad, 0);
	end_world(w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("page_map");
	TCase *tests = tcase_create("page_map");

	tcase_set_timeout(tests, 120);
	tcase_add_single_loop_test(tests, random_changes, 0, RANDOM_PROGRAMS);
	tcase_add_single_test(tests, nothing_there);
	tcase_add_single_test(tests, given_again);
	tcase_add_single_test(tests, memory_fails);
	tcase_add_single_test(tests, memory_is_modest);
	tcase_add_test(tests, readers_beside_a_writer);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
