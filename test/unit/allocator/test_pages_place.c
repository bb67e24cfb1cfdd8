/*
 * test_pages_place.c - where the pages heap puts what no free block serves, beside a look at every place there is.
 */
#include "test/unit/allocator/pages_world.h"
#include "test/suite.h"

#define MIB (UINT64_C(1) << 20)
#define LARGE 1u			/* pool */

static const struct gm_pages_region *large(struct world *w)
{
	return &gm_pages(w->heap)->region[LARGE];
}

static bool is_usable(const struct gm_block *block, uint64_t stream)
{
	return gm_pages_is_free(block) && gm_pages_usable(block, stream);
}

/* Bytes of the pages without memory from @from to @to, all of which @stream may use. */
static uint64_t missing_at(struct world *w, uint64_t from, uint64_t to, uint64_t stream)
{
	uint64_t top = large(w)->top, missing = to > top ? gm_pages_up(to) - (from > top ? from : top) : 0;
	uint32_t id = w->segments[large(w)->segment].first_block;

	for (; large(w)->segment && id; id = w->blocks[id].next) {
		const struct gm_block *b = &w->blocks[id];
		uint64_t a = b->address > gm_pages_down(from) ? b->address : gm_pages_down(from);
		uint64_t z = gm_pages_end(b) < gm_pages_up(to) ? gm_pages_end(b) : gm_pages_up(to);

		if (b->address >= to || gm_pages_end(b) <= from)
			continue;
		ck_assert(is_usable(b, stream));
		missing += b->state == GM_BLOCK_UNMAPPED ? z - a : 0;
	}
	return missing;
}

/* Both ends of every hole. */
static bool best_of_all(struct world *w, uint64_t size, uint64_t stream, struct gm_pages_place *ret)
{
	uint32_t id = large(w)->segment ? w->segments[large(w)->segment].first_block : GM_NONE;

	*ret = (struct gm_pages_place){ .to = 0 };
	for (uint64_t from = large(w)->base, to; from < large(w)->end; from = to) {
		bool free = !id || is_usable(&w->blocks[id], stream);

		for (to = from; id && is_usable(&w->blocks[id], stream) == free; id = w->blocks[id].next)
			to = gm_pages_end(&w->blocks[id]);
		to = free && !id ? large(w)->end : to;
		if (!free || to - from < size)
			continue;
		for (unsigned int i = 0; i < 2 && (!i || to < large(w)->end); i++) {
			uint64_t at = i ? to - size : from, missing = missing_at(w, at, at + size, stream);

			if (!ret->to || missing < ret->missing || (missing == ret->missing && to - from < ret->hole))
				*ret = (struct gm_pages_place){ .from = at, .to = at + size, .missing = missing, .hole = to - from };
		}
	}
	return ret->to;
}

struct sum { unsigned int looks, none, larger; uint64_t missing, least; };

static void look(struct world *w, uint64_t size, uint32_t stream, struct sum *sum)
{
	struct gm_pages_place best, chosen;

	struct gm_free_set *set = &gm_pages(w->heap)->pool[LARGE];

	if (!large(w)->end || gm_free_set_at_least(set, stream, size, 0) || gm_free_set_at_least(set, GM_PAGES_ANY, size, 0))
		return;			/* nobody asks: a free block serves it */
	ck_assert_int_eq(gm_pages_choose(w->heap, LARGE, size, stream, &chosen), best_of_all(w, size, stream, &best));
	sum->looks++;
	sum->none += !best.to;
	if (!best.to)
		return;
	ck_assert_uint_eq(chosen.to - chosen.from, size);
	ck_assert_uint_eq(chosen.missing, missing_at(w, chosen.from, chosen.to, stream));
	sum->larger += chosen.missing == best.missing && chosen.hole > best.hole;
	sum->missing += chosen.missing;
	sum->least += best.missing;
}

/* @pages: of addresses; @full: they are at times. */
static const struct { uint32_t streams; uint64_t lag, bytes, pages; bool full; } programs[] = {
	{ 1, 0, 12 * MIB, VA_PAGES, false }, { 1, 0, 40 * MIB, VA_PAGES, false }, { 1, 0, 12 * MIB, 200, true },
	{ 1, 0, 8 * MIB, VA_PAGES, false }, { 4, 20, 12 * MIB, VA_PAGES, false }, { 4, 200, 12 * MIB, 200, true },
};

/* Blocks go and come at random, and at each step places are asked for, with so few holes that all are looked at. */
START_TEST(as_good_as_any)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, programs[_i].lag);
	uint64_t seed = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)_i;
	struct sum sum = { .looks = 0 };
	uint32_t live[128];
	unsigned int lives = 0;

	w->driver.va_bytes = programs[_i].pages * GM_HEAP_PAGE;
	for (int i = 0; i < 1500; i++) {
		uint32_t stream = (uint32_t)(rnd(&seed) % programs[_i].streams);
		uint64_t bytes = rnd(&seed) % 8 ? MIB + 1 + rnd(&seed) % programs[_i].bytes : some_bytes(&seed, 20);

		if (lives < 128 && rnd(&seed) % 100 < 52)
			lives += !take(w, bytes, stream, &live[lives]);
		else if (lives) {
			unsigned int n = (unsigned int)(rnd(&seed) % lives);

			give_back(w, live[n]);
			live[n] = live[--lives];
		}
		for (unsigned int j = 0; j < 3; j++)
			look(w, MIB + GM_GRANULE * (1 + rnd(&seed) % (programs[_i].bytes * 2 / GM_GRANULE)), stream, &sum);
		check_all(w, i);
	}
	ck_assert_uint_gt(sum.looks, 300);
	ck_assert_uint_eq(sum.missing, sum.least);
	ck_assert_uint_eq(sum.larger, 0);
	ck_assert(!sum.none == !programs[_i].full);
	end(w);
}
END_TEST

/* More holes than are looked at are large enough, but that another stream has a part of each; one larger has room. */
START_TEST(behind_many_holes)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 1000000);
	uint32_t first[40], second[40], apart, larger, other;
	struct gm_pages_place place;
	uint64_t address;

	w->driver.va_bytes = 400 * GM_HEAP_PAGE;
	ck_assert_int_eq(take(w, 1000, 2, &other), 0);
	for (int i = 0; i < 40; i++) {
		ck_assert_int_eq(take(w, 4 * MIB, 1, &first[i]), 0);
		ck_assert_int_eq(take(w, 2 * MIB, 1, &second[i]), 0);
		ck_assert_int_eq(take(w, 2 * MIB, 1, &apart), 0);
	}
	ck_assert_int_eq(take(w, 8 * MIB, 1, &larger), 0);
	address = w->blocks[larger].address;
	ck_assert_int_eq(take(w, 2 * MIB, 1, &apart), 0);
	for (int i = 0; i < 40; i++)
		give_back(w, first[i]);
	give_back(w, larger);
	ck_assert_int_eq(take(w, 168 * MIB, 1, &other), 0);
	ck_assert_int_eq(take(w, large(w)->end - large(w)->top, 1, &other), 0);
	for (int i = 0; i < 40; i++)
		give_back(w, second[i]);
	ck_assert_uint_eq(large(w)->top, large(w)->end);
	ck_assert(gm_pages_choose(w->heap, LARGE, 5 * MIB, 2, &place));
	ck_assert_uint_eq(place.from, address);
	ck_assert_uint_eq(place.missing, 6 * MIB);
	ck_assert(!gm_pages_choose(w->heap, LARGE, 9 * MIB, 2, &place));
	ck_assert(gm_pages_choose(w->heap, LARGE, 6 * MIB, 1, &place));
	ck_assert_uint_eq(place.missing, 4 * MIB);
	check_all(w, 0);
	end(w);
}
END_TEST

/* Free blocks beside one another, which two streams have by turns, are not one. Holes end among them: what happens far
 * from a hole costs no walk to it. */
START_TEST(far_from_a_hole)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 1000000);
	struct gm_pages_place place;
	uint32_t hole, ids[60];
	uint64_t bytes;

	ck_assert_int_eq(take(w, 4 * MIB, 0, &hole), 0);
	for (uint32_t i = 0; i < 60; i++)
		ck_assert_int_eq(take(w, 2 * MIB, i % 2, &ids[i]), 0);
	give_back(w, hole);
	w->driver.now += w->driver.lag;
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, false, &bytes), 0);
	ck_assert_uint_eq(bytes, 4 * MIB);
	for (int i = 0; i < 59; i++) {
		ck_assert(gm_pages_choose(w->heap, LARGE, 9 * MIB, 0, &place));
		ck_assert_uint_eq(large(w)->changed, GM_NONE);
		give_back(w, ids[i]);
		ck_assert_int_eq(large(w)->changed != GM_NONE, i < (int)GM_PAGES_BESIDE);
		check_all(w, i);
	}
	end(w);
}
END_TEST

/* No memory for the trees of a set: no block is lost, whichever it is. */
START_TEST(without_memory)
{
	static const uint32_t streams[] = { 1, 2, 1, 3 };
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	unsigned int taken = 0;
	uint32_t id;

	w->fail_memory = (unsigned int)_i;
	w->memory_ends = true;
	for (int i = 0; i < 8; i++) {
		int r = take(w, (8 + 3 * (unsigned int)i) * MIB, streams[i % 4], &id);

		ck_assert_msg(!r || r == -ENOMEM || r == -ENOSPC, "%d", r);
		taken += !r;
		check_all(w, i);
		if (!r && i % 2)
			give_back(w, id);
		check_all(w, i);
	}
	ck_assert(w->no_memory);
	ck_assert_uint_eq(!taken, _i <= 5);	/* before the first stream has what it needs */
	end(w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages_place");
	TCase *tests = tcase_create("pages_place");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, as_good_as_any, 0, sizeof(programs) / sizeof(programs[0]));
	tcase_add_test(tests, behind_many_holes);
	tcase_add_test(tests, far_from_a_hole);
	tcase_add_loop_test(tests, without_memory, 1, 9);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
