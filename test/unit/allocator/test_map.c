/* The map from pointers to blocks, against a plain array; with memory failing; with threads. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/map.c"
#include "test/suite.h"

#define KEYS 3000u
static uint64_t model[2][KEYS];

static void map_free(struct gm_map *map)
{
	for (unsigned int i = 0; i < SHARDS; i++)
		if (map->shards[i].entries)
			pages_free(map->shards[i].entries, (map->shards[i].mask + 1) * sizeof(struct entry));
	pages_free(map, sizeof(*map));
}

/* How many entries are not where they are found, or not counted. */
static int check_locked(const struct gm_map *map, const struct shard *s)
{
	uint64_t count = 0;
	int bad = 0;

	for (uint64_t i = 0; s->entries && i <= s->mask; i++) {
		const struct entry *e = &s->entries[i];
		uint64_t h = hash((enum gm_map_space)e->space, e->key);

		if (!e->value)
			continue;
		count++;
		bad += &map->shards[h >> 60 & (SHARDS - 1)] != s;
		/* Found from its home: no hole on the way, and no twin before it. */
		bad += find_locked(s, (enum gm_map_space)e->space, e->key, h) != e;
	}
	bad += count != s->count;
	bad += s->entries && s->count > s->mask;
	return bad;
}

static int map_check(struct gm_map *map)
{
	int bad = 0;

	for (unsigned int i = 0; i < SHARDS; i++) {
		struct shard *s = &map->shards[i];

		if (!gm_lock(&s->lock))
			return bad + 1;
		bad += check_locked(map, s);
		gm_unlock(&s->lock);
	}
	return bad;
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Keys that collide in their low bits, as device addresses do. */
static uint64_t key_of(uint32_t i)
{
	return UINT64_C(0x7f0000000000) + (uint64_t)i * (2 << 20);
}

/* A map with locks of its own, and one without. */
START_TEST(test_model)
{
	struct gm_map *map = gm_map_new(_i);
	uint32_t random = 42;

	memset(model, 0, sizeof(model));
	ck_assert_ptr_nonnull(map);
	for (unsigned int step = 0; step < 200000; step++) {
		unsigned int space = next_random(&random) & 1, i = next_random(&random) % KEYS;
		uint64_t *cell = &model[space][i], value = next_random(&random) + 1u, old = 99;
		enum gm_map_space in = space ? GM_MAP_ARRAY : GM_MAP_ADDRESS;

		switch (next_random(&random) % 5) {
		case 0:
		case 1:
			ck_assert_int_eq(gm_map_put(map, in, key_of(i), value, &old), 0);
			ck_assert_uint_eq(old, *cell);
			*cell = value;
			break;
		case 2:
			ck_assert_uint_eq(gm_map_take(map, in, key_of(i)), *cell);
			*cell = 0;
			break;
		case 3:
			ck_assert_int_eq(gm_map_take_if(map, in, key_of(i), value), 0);
			if (*cell)
				ck_assert_int_eq(gm_map_take_if(map, in, key_of(i), *cell), 1);
			*cell = 0;
			break;
		default:
			ck_assert_uint_eq(gm_map_get(map, in, key_of(i)), *cell);
		}
		if (step % 997 == 0)
			ck_assert_int_eq(map_check(map), 0);
	}
	for (unsigned int i = 0; i < KEYS; i++) {
		ck_assert_uint_eq(gm_map_get(map, GM_MAP_ADDRESS, key_of(i)), model[0][i]);
		ck_assert_uint_eq(gm_map_get(map, GM_MAP_ARRAY, key_of(i)), model[1][i]);
	}
	ck_assert_int_eq(map_check(map), 0);
	map_free(map);
}
END_TEST

START_TEST(test_edges)
{
	struct gm_map *map = gm_map_new(false);
	uint64_t old = 1;

	ck_assert_uint_eq(gm_map_get(map, GM_MAP_ADDRESS, 1), 0);
	ck_assert_uint_eq(gm_map_take(map, GM_MAP_ADDRESS, 1), 0);
	ck_assert_int_eq(gm_map_take_if(map, GM_MAP_ADDRESS, 1, 0), 0);
	ck_assert_int_eq(gm_map_put(map, GM_MAP_ADDRESS, 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(gm_map_put(map, GM_MAP_ADDRESS, 0, 5, &old), 0);
	ck_assert_uint_eq(old, 0);
	ck_assert_int_eq(gm_map_put(map, GM_MAP_HANDLE, 0, 6, NULL), 0);
	ck_assert_int_eq(gm_map_put(map, GM_MAP_ADDRESS, UINT64_MAX, UINT64_MAX, NULL), 0);
	ck_assert_uint_eq(gm_map_get(map, GM_MAP_ADDRESS, 0), 5);
	ck_assert_uint_eq(gm_map_take(map, GM_MAP_HANDLE, 0), 6);
	ck_assert_uint_eq(gm_map_get(map, GM_MAP_ADDRESS, UINT64_MAX), UINT64_MAX);
	ck_assert_int_eq(map_check(map), 0);
	map_free(map);
}
END_TEST

static void *(*real_pages)(size_t);
static unsigned int pages_asked, pages_fail_at;

static void *some_pages(size_t bytes)
{
	pages_asked++;
	if (pages_fail_at && pages_asked >= pages_fail_at)
		return NULL;
	return real_pages(bytes);
}

/* From the n-th request for memory on there is none: what went in stays, nothing else breaks. */
START_TEST(test_no_memory)
{
	real_pages = gm_map_pages;
	gm_map_pages = some_pages;
	for (pages_fail_at = 1; pages_fail_at < 60; pages_fail_at++) {
		struct gm_map *map;
		unsigned int refused = 0;

		pages_asked = 0;
		map = gm_map_new(false);
		if (!map) {
			ck_assert_uint_eq(pages_fail_at, 1);
			continue;
		}
		memset(model, 0, sizeof(model));
		for (unsigned int i = 0; i < KEYS; i++) {
			int r = gm_map_put(map, GM_MAP_ADDRESS, key_of(i), i + 1, NULL);

			ck_assert(r == 0 || r == -ENOMEM);
			refused += r < 0;
			model[0][i] = r == 0 ? i + 1 : 0;
		}
		for (unsigned int i = 0; i < KEYS; i++) {
			uint64_t value = model[0][i], old = 0;

			ck_assert_uint_eq(gm_map_get(map, GM_MAP_ADDRESS, key_of(i)), value);
			if (!value)
				continue;	/* replacing needs no memory */
			ck_assert_int_eq(gm_map_put(map, GM_MAP_ADDRESS, key_of(i), 9, &old), 0);
			ck_assert_uint_eq(old, value);
		}
		ck_assert_int_eq(map_check(map), 0);
		map_free(map);
		if (!refused)
			break;
		ck_assert_uint_lt(pages_fail_at, 59);
	}
	ck_assert_uint_gt(pages_fail_at, 16);	/* every thread cache has failed once and grown once */
}
END_TEST

struct worker { struct gm_map *map; uint32_t seed; uint64_t base; unsigned int wrong; };

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t mine[128] = { 0 };

	for (unsigned int step = 0; step < 20000; step++) {
		unsigned int i = next_random(&w->seed) % 128;
		uint64_t key = w->base + (uint64_t)i * 512;

		if (mine[i]) {
			w->wrong += gm_map_take(w->map, GM_MAP_ADDRESS, key) != mine[i];
			mine[i] = 0;
		} else {
			mine[i] = step + 1;
			w->wrong += gm_map_put(w->map, GM_MAP_ADDRESS, key, mine[i], NULL) != 0;
		}
		/* One key that everybody fights for: it holds somebody's value or nothing. */
		if (step % 16 == 0)
			gm_map_put(w->map, GM_MAP_POOL, 7, w->base, NULL);
		else if (step % 16 == 8)
			gm_map_take_if(w->map, GM_MAP_POOL, 7, w->base);
	}
	for (unsigned int i = 0; i < 128; i++)
		w->wrong += gm_map_get(w->map, GM_MAP_ADDRESS, w->base + (uint64_t)i * 512) != mine[i];
	return NULL;
}

START_TEST(test_threads)
{
	struct gm_map *map = gm_map_new(false);
	struct worker workers[16];
	pthread_t threads[16];

	for (unsigned int i = 0; i < 16; i++) {
		workers[i] = (struct worker){ map, i + 1, (uint64_t)(i + 1) << 32, 0 };
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < 16; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(workers[i].wrong, 0);
	}
	ck_assert_int_eq(map_check(map), 0);
	map_free(map);
}
END_TEST

/* A forked child has no copy of the memory, and can make a map of its own. */
START_TEST(test_fork)
{
	struct gm_map *map = gm_map_new(false);
	unsigned char resident;
	int status;
	pid_t child;

	gm_map_put(map, GM_MAP_ADDRESS, 1, 2, NULL);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		bool gone = mincore(map, 4096, &resident) < 0 && errno == ENOMEM;
		struct gm_map *other = gm_map_new(false);

		_exit(gone && other && gm_map_put(other, GM_MAP_ADDRESS, 1, 3, NULL) == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(gm_map_get(map, GM_MAP_ADDRESS, 1), 2);
	map_free(map);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map");
	TCase *tc = tcase_create("map");

	tcase_set_timeout(tc, 60);
	tcase_add_single_loop_test(tc, test_model, 0, 2);
	tcase_add_single_test(tc, test_edges);
	tcase_add_single_test(tc, test_no_memory);
	tcase_add_test(tc, test_threads);
	tcase_add_single_test(tc, test_fork);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
