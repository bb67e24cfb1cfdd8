/*
 * test_pages_heap.c - the pages heap against random and named programs, on memory that remembers (pages_world.h): rules
 * after every step, reserved memory within its bounds, every failure of the driver and of the tables.
 */
#include "test/unit/allocator/pages_world.h"
#include "test/suite.h"
#include "test/seed.h"

/* Returns how many pages moved. */
static unsigned int random_program(uint32_t streams, uint64_t lag, uint32_t capacity, bool ahead,
				   uint32_t handle_most, uint64_t seed, int steps)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, capacity, lag);
	uint32_t live[200], pending[64];
	unsigned int lives = 0, pendings = 0, moved = 0;
	uint64_t bytes;

	ops.moves_passed = ahead;
	w->driver.ahead = ahead ? 0 : NOBODY;
	for (int i = 0; i < steps; i++) {
		uint64_t dice = rnd(&seed) % 100;

		if (ahead && rnd(&seed) % 8 == 0)
			w->driver.ahead_passed = w->driver.now;
		if (handle_most > 1)
			w->driver.handle_most = 1 + (uint32_t)(rnd(&seed) % handle_most);
		if (dice < 52 && lives < 200) {
			int r;

			if (dice < 1)
				w->fail_records = 1 + (unsigned int)(rnd(&seed) % 4);
			else if (dice < 2)
				w->fail_driver = 1 + (unsigned int)(rnd(&seed) % 3);
			else if (dice < 3)
				w->fail_memory = 1;
			r = take(w, some_bytes(&seed, 24), (uint32_t)(rnd(&seed) % streams), &live[lives]);
			w->fail_records = w->fail_driver = w->fail_memory = 0;
			ck_assert_msg(!r || r == -ENOMEM || r == -ENOSPC, "%d", r);
			lives += !r;
		} else if (dice < 70 && lives && pendings < 64) {
			unsigned int n = (unsigned int)(rnd(&seed) % lives);

			gm_heap_free_requested(w->heap, live[n]);
			pending[pendings++] = live[n];
			live[n] = live[--lives];
		} else if (dice < 85 && lives) {
			unsigned int n = (unsigned int)(rnd(&seed) % lives);

			give_back(w, live[n]);
			live[n] = live[--lives];
		} else if (dice < 99 && pendings) {
			unsigned int n = (unsigned int)(rnd(&seed) % pendings);

			complete(w, pending[n]);
			pending[n] = pending[--pendings];
		} else if (dice == 99 && rnd(&seed) % 8 == 0) {
			ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, rnd(&seed) % 2, &bytes), 0);
		}
		check_all(w, i);
	}
	moved = (unsigned int)gm_pages(w->heap)->moved;
	while (lives)
		give_back(w, live[--lives]);
	while (pendings)
		complete(w, pending[--pendings]);
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	check_all(w, steps);
	ck_assert_uint_eq(w->driver.pages_made, 0);
	ck_assert_uint_eq(gm_pages(w->heap)->region[0].segment, GM_NONE);
	ck_assert_uint_eq(gm_pages(w->heap)->region[1].segment, GM_NONE);
	end(w);
	return moved;
}

static const struct { uint32_t streams; uint64_t lag; uint32_t capacity; bool ahead; uint32_t handle_most; } settings[] = {
	{ 1, 0, PAGES, false, 1 }, { 1, 50, PAGES, false, 1 }, { 4, 0, PAGES, false, 1 }, { 4, 20, PAGES, false, 1 },
	{ 4, 1000, PAGES, false, 1 }, { 2, 100, 150, false, 1 }, { 1, 10, 80, false, 1 }, { 4, 1000, PAGES, true, 1 },
	{ 3, 200, 150, true, 1 }, { 1, 0, PAGES, false, 9 }, { 4, 20, PAGES, false, 5 }, { 2, 100, 150, false, 3 },
	{ 3, 200, 150, true, 9 },
};

#ifdef __SANITIZE_THREAD__
#define PROGRAMS 1
#elif defined(__SANITIZE_ADDRESS__)	/* as long a time for fewer programs */
#define PROGRAMS 2
#else
#define PROGRAMS 4
#endif

START_TEST(random_programs)
{
	uint64_t seed = test_seed();
	unsigned int moved = 0;

	for (int i = 0; i < PROGRAMS; i++)
		moved += random_program(settings[_i].streams, settings[_i].lag, settings[_i].capacity,
					settings[_i].ahead, settings[_i].handle_most, rnd(&seed), 1000);
	ck_assert_uint_gt(moved, 0);	/* the programs ask for it */
}
END_TEST

/* Handles of several pages go whole or not at all: where part of one is live, its other pages stay. */
START_TEST(handles_go_whole)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, 24, 0);
	uint32_t id[5], other;
	uint64_t bytes;

	w->driver.handle_most = 4;
	for (int i = 0; i < 5; i++)	/* pages: 0 1 2 | 3 4 5 6 | 7 8 9 | 10 11 | 12 .. 15 | 16 .. 19 */
		ck_assert_int_eq(take(w, (uint64_t[]){ 3, 4, 5, 4, 4 }[i] * GM_HEAP_PAGE, 0, &id[i]), 0);
	give_back(w, id[1]);
	ck_assert_uint_eq(w->heap->idle, 4 * GM_HEAP_PAGE);
	ck_assert_int_eq(take(w, GM_HEAP_PAGE, 0, &other), 0);	/* in page 3, and so 4 to 6 stay */
	ck_assert_uint_eq(w->heap->idle, 0);
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	give_back(w, id[2]);
	give_back(w, id[4]);
	ck_assert_uint_eq(w->heap->idle, 9 * GM_HEAP_PAGE);
	check_all(w, 0);
	/* 12 are free in two places: the four at the end stay where they are, and the five between move behind them. */
	ck_assert_int_eq(take(w, 9 * GM_HEAP_PAGE, 0, &id[1]), 0);
	ck_assert_uint_eq(gm_pages(w->heap)->moved, 5);
	ck_assert_uint_eq(w->driver.pages_made, 20);
	check_all(w, 1);
	give_back(w, other);
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	ck_assert_uint_eq(bytes, 4 * GM_HEAP_PAGE);
	check_all(w, 2);
	end(w);
}
END_TEST

/* Every other of many blocks goes, and larger ones come: their memory is moved, not got anew. */
START_TEST(moves_what_is_idle)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	const uint64_t small = UINT64_C(11) << 20, large = UINT64_C(21) << 20;
	uint32_t id[80], more[19];

	for (int i = 0; i < 80; i++)
		ck_assert_int_eq(take(w, small, 0, &id[i]), 0);
	ck_assert_uint_eq(w->heap->reserved, 80 * small);
	ck_assert_uint_eq(gm_pages(w->heap)->moved, 0);
	for (int i = 0; i < 80; i += 2)
		give_back(w, id[i]);
	ck_assert_uint_ge(w->heap->idle, 40 * (small - 2 * GM_HEAP_PAGE));
	for (int i = 0; i < 19; i++)
		ck_assert_int_eq(take(w, large, 0, &more[i]), 0);
	check_all(w, 0);
	ck_assert_uint_ge(gm_pages(w->heap)->moved, 19 * large / GM_HEAP_PAGE / 2);
	ck_assert_uint_le(w->heap->reserved, 80 * small + 80 * small / GM_PAGES_SLACK + GM_HEAP_PAGE);
	end(w);
}
END_TEST

/* Of what every stream is past, the block goes that gives just as much as is wanted, not the smaller ones before it. */
START_TEST(just_enough_moves)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	static const uint64_t bytes[] = { GM_HEAP_PAGE, 2 * GM_HEAP_PAGE, GM_HEAP_PAGE * 3 / 4 };
	struct gm_pages_place keep;
	uint32_t id[3], apart;
	uint64_t got;

	ops.moves_passed = true;
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(take(w, bytes[i], 0, &id[i]), 0);
		ck_assert_int_eq(take(w, GM_HEAP_PAGE, 0, &apart), 0);
	}
	for (int i = 0; i < 3; i++)
		give_back(w, id[i]);
	w->driver.now += 101;
	keep = (struct gm_pages_place){ .from = gm_pages(w->heap)->region[1].top, .to = gm_pages(w->heap)->region[1].end };
	ck_assert_int_eq(gm_pages_steal(w->heap, 0, bytes[1], &keep, &got), 0);
	ck_assert_uint_eq(got, bytes[1]);
	ck_assert_int_eq(w->blocks[id[0]].state, GM_BLOCK_INACTIVE);
	ck_assert_int_eq(w->blocks[id[1]].state, GM_BLOCK_UNMAPPED);
	ck_assert_int_eq(gm_pages_steal(w->heap, 0, bytes[0], &keep, &got), 0);
	ck_assert_uint_eq(got, bytes[0]);
	ck_assert_int_eq(w->blocks[id[0]].state, GM_BLOCK_UNMAPPED);
	end(w);
}
END_TEST

/* Where mapping is no work of a stream, what a stream freed gives its pages away once the host has seen it past that,
 * not before; meanwhile the driver is asked, and what it refuses is refused. */
START_TEST(only_what_is_passed_moves)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, 60, 100);
	const uint64_t bytes = UINT64_C(40) << 20, large = UINT64_C(60) << 20;
	uint32_t id[2], other;

	ops.moves_passed = true;
	ops.synchronize = NULL;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(take(w, bytes, 0, &id[i]), 0);
	give_back(w, id[0]);
	ck_assert_int_eq(take(w, large, 0, &other), -ENOMEM);
	ck_assert_uint_eq(gm_pages(w->heap)->moved, 0);
	check_all(w, 0);
	w->driver.now += 101;
	ck_assert_int_eq(take(w, large, 0, &other), 0);
	ck_assert_uint_gt(gm_pages(w->heap)->moved, 0);
	check_all(w, 0);
	end(w);
}
END_TEST

static bool rather_waits(void *arg)
{
	return ((const struct world *)arg)->driver.waits;
}

/* A heap that rather waits than grows past what is live takes what moves, and says -EBUSY; what is live may grow. */
START_TEST(rather_waits_than_grows)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	const uint64_t bytes = UINT64_C(40) << 20, large = UINT64_C(60) << 20, live = 2 * bytes + large;
	uint32_t id[3], other;

	ops.moves_passed = true;
	ops.synchronize = NULL;
	ops.waits = rather_waits;
	w->driver.waits = true;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(take(w, bytes, 0, &id[i]), 0);
	give_back(w, id[0]);
	w->driver.now += 101;
	give_back(w, id[1]);
	ck_assert_int_eq(take(w, bytes + large, 0, &other), -EBUSY);
	ck_assert_uint_eq(w->driver.pages_made, 60);
	ck_assert_uint_eq(gm_pages(w->heap)->spare, bytes);
	ck_assert(!gm_heap_check(w->heap, w->first_segment));
	w->driver.now += 101;
	ck_assert_int_eq(take(w, bytes + large, 0, &other), 0);
	ck_assert_uint_le(w->driver.pages_made * GM_HEAP_PAGE, live + live / GM_PAGES_SLACK + GM_HEAP_PAGE);
	check_all(w, 1);
	give_back(w, other);
	w->driver.waits = false;
	ck_assert_int_eq(take(w, UINT64_C(150) << 20, 0, &other), 0);
	ck_assert_uint_eq(gm_pages(w->heap)->spare, 0);
	check_all(w, 2);
	end(w);
}
END_TEST

static bool is_costly(void *arg)
{
	(void)arg;
	return true;
}

/* While moving takes too much time there is a quarter more than was live, and then pages move. */
START_TEST(grows_while_moving_is_costly)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	const uint64_t small = UINT64_C(11) << 20, large = UINT64_C(21) << 20;
	uint32_t id[40], more[10];

	ops.costly = is_costly;
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(take(w, small, 0, &id[i]), 0);
	for (int i = 0; i < 40; i += 2)
		give_back(w, id[i]);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(take(w, large, 0, &more[i]), 0);
	ck_assert_uint_eq(gm_pages(w->heap)->moved, 0);
	for (int i = 4; i < 10; i++)
		ck_assert_int_eq(take(w, large, 0, &more[i]), 0);
	check_all(w, 0);
	ck_assert_uint_gt(gm_pages(w->heap)->moved, 0);
	ck_assert_uint_le(w->heap->reserved, 40 * small + 40 * small / GM_PAGES_SLACK_COSTLY + GM_HEAP_PAGE);
	ck_assert_uint_gt(w->heap->reserved, 40 * small + 40 * small / GM_PAGES_SLACK_COSTLY - large);
	end(w);
}
END_TEST

/* One stream is known to be further than all are together: its memory moves, and the other's does not. */
START_TEST(passed_by_its_own_stream)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, 60, 100);
	const uint64_t bytes = UINT64_C(40) << 20, large = UINT64_C(60) << 20;
	uint32_t id[3], other;

	ops.moves_passed = true;
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_int_eq(take(w, bytes, i, &id[i]), 0);
	ck_assert_int_eq(take(w, 4 * GM_HEAP_PAGE, 1, &id[2]), 0);
	for (uint32_t i = 0; i < 2; i++)
		give_back(w, id[i]);
	ops.synchronize = NULL;
	ck_assert_int_eq(take(w, large, 2, &other), -ENOMEM);
	w->driver.ahead = 1;
	w->driver.ahead_passed = w->driver.now;
	ck_assert_int_eq(take(w, large, 2, &other), 0);
	ck_assert_uint_gt(gm_pages(w->heap)->moved, 0);
	check_all(w, 0);
	w->driver.ahead = NOBODY;
	w->driver.seen = true;
	give_back(w, other);		/* its pages carry no number of the other stream's */
	w->driver.seen = false;
	ck_assert_int_eq(take(w, GM_HEAP_PAGE, 2, &other), 0);
	ck_assert_int_eq(take(w, large, 3, &other), 0);
	check_all(w, 1);
	end(w);
}
END_TEST

/* The units of the block are of @stream, and freed now. */
static void now_of(struct world *w, uint32_t id, uint32_t stream)
{
	for (uint64_t at = 0; at < w->blocks[id].size; at += GM_GRANULE)
		*unit_at(w, w->blocks[id].address + at) = (struct unit){ 0, stream, w->driver.now };
}

/* A stream that waits for another has what that freed until then, where it is, and nobody else has. */
START_TEST(taken_over)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, 32, 100);
	const uint64_t bytes = UINT64_C(40) << 20, late = UINT64_C(20) << 20;
	uint32_t first, apart, second, other;
	uint64_t address, until;

	ops.moves_passed = true;
	ops.synchronize = NULL;
	ck_assert_int_eq(take(w, bytes, 1, &first), 0);
	ck_assert_int_eq(take(w, 2 * GM_HEAP_PAGE, 2, &apart), 0);
	ck_assert_int_eq(take(w, late, 1, &second), 0);
	address = w->blocks[first].address;
	give_back(w, first);
	until = w->driver.now;
	give_back(w, second);
	w->driver.now += 80;
	ck_assert_int_eq(take(w, bytes, 2, &other), -ENOMEM);
	ck_assert_uint_eq(gm_pages_take_over(w->heap, 1, 2, until), bytes);
	now_of(w, first, 2);
	check_all(w, 0);
	ck_assert_int_eq(take(w, bytes, 1, &other), -ENOMEM);
	w->driver.now += 30;		/* the first free would be passed by now */
	ck_assert_int_eq(take(w, bytes, 3, &other), -ENOMEM);
	ck_assert_int_eq(take(w, bytes, 2, &other), 0);
	ck_assert_uint_eq(w->blocks[other].address, address);
	check_all(w, 1);
	end(w);
}
END_TEST

static unsigned int looks;

static bool count_look(void *arg, uint64_t stream)
{
	(void)arg, (void)stream;
	looks++;
	return true;
}

/* Pages of many blocks that give the same go to one request, or (_i) back to the driver, without a look at all blocks
 * for each. */
START_TEST(many_go_in_few_passes)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, 400, 0);
	uint32_t ids[400], other;
	uint64_t bytes;

	ops.moves_passed = true;
	ops.may_go = count_look;
	for (unsigned int i = 0; i < 400; i++)
		ck_assert_int_eq(take(w, GM_HEAP_PAGE, 0, &ids[i]), 0);
	for (unsigned int i = 0; i < 400; i += 2)
		give_back(w, ids[i]);
	looks = 0;
	if (_i)
		ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, false, &bytes), 0);
	else
		ck_assert_int_eq(take(w, 180 * GM_HEAP_PAGE, 0, &other), 0);
	ck_assert_uint_le(w->driver.pages_made, 400);
	ck_assert_uint_ge(looks, 180);
	ck_assert_uint_le(looks, 1500);
	check_all(w, 0);
	end(w);
}
END_TEST

/* What the host had seen complete when it was freed moves at once, and to any stream; not what else lay in its pages,
 * nor what is freed there after it. */
START_TEST(what_was_seen_complete_moves_at_once)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, 66, 100);
	const uint64_t bytes = UINT64_C(39) << 20, odd = UINT64_C(3) << 20, large = UINT64_C(50) << 20;
	uint32_t id[4], other;

	ops.moves_passed = true;
	ops.synchronize = NULL;
	ck_assert_int_eq(take(w, odd, 0, &id[0]), 0);	/* shares a page with the next */
	ck_assert_int_eq(take(w, bytes, 0, &id[1]), 0);
	ck_assert_int_eq(take(w, bytes, 0, &id[2]), 0);
	give_back(w, id[0]);
	w->driver.seen = true;
	give_back(w, id[1]);
	w->driver.seen = false;
	ck_assert_int_eq(take(w, large, 1, &other), 0);
	ck_assert_uint_eq(gm_pages(w->heap)->moved, 19);	/* not the shared one */
	check_all(w, 0);
	give_back(w, id[2]);
	ck_assert_int_eq(take(w, large, 1, &id[3]), -ENOMEM);
	check_all(w, 1);
	w->driver.now += 101;
	ck_assert_int_eq(take(w, large, 1, &id[3]), 0);
	check_all(w, 2);
	end(w);
}
END_TEST

/* Joined with one that the host has seen complete, on either side, a free block is as old as it was: another stream does
 * not get it (take says who may). */
START_TEST(joined_with_what_was_seen_complete)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	const uint64_t bytes = UINT64_C(6) << 20;
	uint32_t id[3], other;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(take(w, bytes, 0, &id[i]), 0);
	give_back(w, id[_i ? 0 : 1]);
	w->driver.seen = true;
	give_back(w, id[_i ? 1 : 0]);
	w->driver.seen = false;
	ck_assert_int_eq(take(w, 2 * bytes, 1, &other), 0);
	ck_assert_uint_ne(w->blocks[other].address, BASE);
	check_all(w, 0);
	end(w);
}
END_TEST

/* What is left of two free blocks that one request took, the older one first, is as old as the newer. */
START_TEST(left_of_two_ages)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	const uint64_t mib = UINT64_C(1) << 20;
	uint32_t older, newer, apart[3], other;

	ck_assert_int_eq(take(w, 8 * mib, 1, &older), 0);
	ck_assert_int_eq(take(w, 8 * mib, 0, &newer), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(take(w, 2 * mib, 0, &apart[i]), 0);
	give_back(w, older);
	w->driver.now += 101;
	give_back(w, apart[1]);		/* when that is passed, the heap looks what else is */
	w->driver.now += 50;
	give_back(w, newer);
	ck_assert(gm_pages_look_again(w->heap));
	ck_assert_int_eq(take(w, 12 * mib, 0, &other), 0);
	ck_assert_uint_eq(w->blocks[other].address, BASE);
	w->driver.now += 60;
	ck_assert_int_eq(take(w, 3 * mib, 1, &other), 0);
	ck_assert_uint_gt(w->blocks[other].address, BASE + 16 * mib);
	check_all(w, 0);
	end(w);
}
END_TEST

/* What fits is handed out where it is, the smallest that does, and no page moves. */
START_TEST(best_fit_moves_nothing)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	static const uint64_t mib[] = { 30, 5, 12, 5, 20, 5 };
	uint32_t id[6], again;
	unsigned int maps;

	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(take(w, mib[i] << 20, 0, &id[i]), 0);
	for (int i = 0; i < 6; i += 2)
		give_back(w, id[i]);
	maps = w->driver.maps;
	ck_assert_int_eq(take(w, UINT64_C(18) << 20, 0, &again), 0);
	ck_assert_uint_eq(w->blocks[again].address, BASE + (UINT64_C(52) << 20));
	ck_assert_int_eq(take(w, UINT64_C(11) << 20, 0, &again), 0);
	ck_assert_uint_eq(w->blocks[again].address, BASE + (UINT64_C(35) << 20));
	ck_assert_uint_eq(w->driver.maps, maps);
	end(w);
}
END_TEST

/* What a stream freed is its own at once, and the other's once all are past it: as a block, and as pages. */
START_TEST(streams_wait_for_each_other)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	const uint64_t bytes = UINT64_C(40) << 20;
	uint32_t first, second, third;
	uint64_t address;

	ck_assert_int_eq(take(w, bytes, 1, &first), 0);
	address = w->blocks[first].address;
	give_back(w, first);
	ck_assert_int_eq(take(w, bytes, 2, &second), 0);
	ck_assert_uint_ne(w->blocks[second].address, address);
	ck_assert_uint_eq(w->heap->reserved, 2 * bytes);
	ck_assert_int_eq(take(w, bytes, 1, &first), 0);
	ck_assert_uint_eq(w->blocks[first].address, address);
	give_back(w, first);
	w->driver.now += 101;
	ck_assert_int_eq(take(w, bytes, 2, &third), 0);
	ck_assert_uint_eq(w->blocks[third].address, address);
	give_back(w, third);
	w->driver.now += 101;
	/* Larger than either: the pages of both streams' memory. */
	ck_assert_int_eq(take(w, bytes + bytes / 4, 1, &third), 0);
	ck_assert_uint_le(w->heap->reserved, 2 * bytes + bytes / 4 + GM_HEAP_PAGE);
	check_all(w, 0);
	end(w);
}
END_TEST

/* What is anybody's and what is one stream's own lie side by side, and serve one request together. What is left of them
 * is that stream's, and no other's. */
START_TEST(own_and_anybodys_together)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	uint32_t small, first, second, third, other;
	uint64_t address;

	ck_assert_int_eq(take(w, 1000, 2, &small), 0);
	ck_assert_int_eq(take(w, UINT64_C(40) << 20, 1, &first), 0);
	ck_assert_int_eq(take(w, UINT64_C(10) << 20, 1, &second), 0);
	ck_assert_int_eq(take(w, UINT64_C(3) << 20, 1, &third), 0);
	address = w->blocks[first].address;
	give_back(w, first);
	w->driver.now += 101;
	ck_assert(gm_pages_look_again(w->heap));
	ck_assert_uint_eq(w->blocks[w->blocks[second].prev].stream, GM_PAGES_ANY);
	give_back(w, second);
	ck_assert_int_eq(take(w, UINT64_C(45) << 20, 1, &first), 0);
	ck_assert_uint_eq(w->blocks[first].address, address);
	ck_assert_int_eq(take(w, UINT64_C(4) << 20, 2, &other), 0);
	ck_assert_uint_ne(w->blocks[other].address, address + (UINT64_C(45) << 20));
	check_all(w, 0);
	end(w);
}
END_TEST

/* Two free blocks of one size, one of them where the request goes: the other one's pages are moved there. */
START_TEST(equal_blocks_move)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	const uint64_t bytes = UINT64_C(10) << 20;
	uint32_t other, first, between, second;

	ck_assert_int_eq(take(w, 1000, 2, &other), 0);
	ck_assert_int_eq(take(w, bytes, 1, &first), 0);
	ck_assert_int_eq(take(w, UINT64_C(6) << 20, 1, &between), 0);
	ck_assert_int_eq(take(w, bytes, 1, &second), 0);
	give_back(w, first);
	give_back(w, second);
	ck_assert_int_eq(take(w, 3 * bytes, 1, &first), 0);
	ck_assert_uint_eq(gm_pages(w->heap)->moved, bytes / GM_HEAP_PAGE);
	ck_assert_uint_eq(w->heap->reserved, 3 * bytes + (UINT64_C(6) << 20) + GM_HEAP_PAGE);
	check_all(w, 0);
	end(w);
}
END_TEST

/* Small requests keep no pages of large ones: with all large ones gone, all of their pages go. */
START_TEST(small_ones_lie_apart)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	uint32_t small[100], large[100];
	uint64_t bytes;

	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(take(w, 1000, 0, &small[i]), 0);
		ck_assert_int_eq(take(w, UINT64_C(3) << 20, 0, &large[i]), 0);
	}
	for (int i = 0; i < 100; i++)
		give_back(w, large[i]);
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	ck_assert_uint_eq(bytes, UINT64_C(300) << 20);
	ck_assert_uint_eq(w->heap->reserved, GM_HEAP_PAGE);
	check_all(w, 0);
	end(w);
}
END_TEST

/* The n-th call that can fail fails, for every n until none does: nothing is lost, rules hold. */
START_TEST(every_failure)
{
	for (int which = 0; which < 3; which++)
		for (unsigned int n = 1;; n++) {
			struct world *w = begin(GM_HEAP_UNLIMITED, 40, 10);
			unsigned int *countdown = which == 0 ? &w->fail_driver
						: which == 1 ? &w->fail_records : &w->fail_memory;
			uint32_t live[64];
			unsigned int lives = 0, left;
			uint64_t seed = 7, bytes;

			*countdown = n;
			for (int i = 0; i < 200; i++) {
				/* One after the other: the order of arguments is the compiler's. */
				bool back = lives == 64 || (lives && rnd(&seed) % 3 == 0);
				uint64_t wanted = back ? 0 : some_bytes(&seed, 24);

				if (back)
					give_back(w, live[--lives]);
				else if (!take(w, wanted, (uint32_t)(rnd(&seed) % 3), &live[lives]))
					lives++;
				if (i % 50 == 49)
					ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
				check_all(w, i);
			}
			left = *countdown;
			*countdown = 0;
			while (lives)
				give_back(w, live[--lives]);
			ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
			ck_assert_uint_eq(w->driver.pages_made, 0);
			end(w);
			if (left)
				break;	/* it was never reached: all have had their turn */
		}
}
END_TEST

/* What cannot be: more than the limit, the device or the addresses have, and an absurd size. */
START_TEST(limits)
{
	struct world *w = begin(UINT64_C(64) << 20, PAGES, 0);
	uint32_t id, other;

	ck_assert_int_eq(take(w, UINT64_C(1) << 60, 0, &id), -E2BIG);
	ck_assert_int_eq(take(w, UINT64_C(40) << 20, 0, &id), 0);
	ck_assert_int_eq(take(w, UINT64_C(30) << 20, 0, &other), -ENOMEM);
	ck_assert_int_eq(w->stats.num_ooms, 1);
	ck_assert_int_eq(w->stats.num_alloc_retries, 1);
	check_all(w, 0);
	give_back(w, id);
	ck_assert_int_eq(take(w, UINT64_C(60) << 20, 1, &other), 0);
	end(w);

	w = begin(GM_HEAP_UNLIMITED, 20, 0);
	ck_assert_int_eq(take(w, UINT64_C(30) << 20, 0, &id), 0);
	ck_assert_int_eq(take(w, UINT64_C(12) << 20, 0, &other), -ENOMEM);
	check_all(w, 1);
	ck_assert_int_eq(take(w, UINT64_C(10) << 20, 0, &other), 0);
	end(w);

	w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	w->driver.va_bytes = UINT64_C(64) << 20;
	ck_assert_int_eq(take(w, UINT64_C(60) << 20, 0, &id), -ENOMEM);
	ck_assert_int_eq(take(w, UINT64_C(50) << 20, 0, &id), 0);
	check_all(w, 2);
	end(w);
}
END_TEST

/* A context ends with blocks of all sorts: every record goes, and no call of the driver is made. */
START_TEST(detached)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 50);
	uint32_t live[60], seen = 0, maps;
	uint64_t seed = 11;

	for (int i = 0; i < 60; i++)
		ck_assert_int_eq(take(w, some_bytes(&seed, 24), (uint32_t)i % 3, &live[i]), 0);
	for (int i = 0; i < 60; i += 2)
		give_back(w, live[i]);
	maps = w->driver.maps;
	for (int i = 1; i < 60; i += 2)
		gm_heap_free(w->heap, live[i]);
	for (unsigned int p = 0; p < 2; p++)
		while (gm_pages(w->heap)->region[p].segment) {
			uint32_t id = w->segments[gm_pages(w->heap)->region[p].segment].first_block;

			while (w->blocks[id].state == GM_BLOCK_UNMAPPED && w->blocks[id].next)
				id = w->blocks[id].next;
			gm_heap_detach(w->heap, id);
			seen++;
		}
	ck_assert_uint_gt(seen, 2);
	ck_assert_uint_eq(w->driver.maps, maps);
	ck_assert_uint_eq(w->heap->reserved, 0);
	ck_assert(!gm_heap_check(w->heap, GM_NONE));
	end(w);
}
END_TEST

/* Where no record is left for the rest of a block, the driver serves the request; and what is idle can still go back. */
START_TEST(no_record_for_the_rest)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, 128, 0);
	uint32_t large, behind, id = GM_NONE;
	uint64_t bytes;

	ck_assert_int_eq(take(w, 80 * GM_HEAP_PAGE + GM_GRANULE, 0, &large), 0);
	ck_assert_int_eq(take(w, 3 * GM_HEAP_PAGE / 2, 0, &behind), 0);
	give_back(w, large);
	w->no_records = true;
	w->kept = 1;
	ck_assert_int_eq(take(w, 2 * GM_HEAP_PAGE, 0, &id), -ENOSPC);
	ck_assert_uint_eq(id, GM_NONE);
	ck_assert_uint_eq(w->kept, 1);
	check_all(w, 0);
	ck_assert_int_eq(take(w, 80 * GM_HEAP_PAGE + GM_GRANULE, 0, &large), 0);	/* it needs none */
	give_back(w, large);
	ck_assert_int_eq(gm_heap_release(w->heap, UINT64_MAX, true, &bytes), 0);
	ck_assert_uint_eq(bytes, 80 * GM_HEAP_PAGE);
	ck_assert_int_eq(take(w, 100 * GM_HEAP_PAGE, 0, &id), -ENOSPC);
	check_all(w, 1);
	w->no_records = false;
	ck_assert_int_eq(take(w, 2 * GM_HEAP_PAGE, 0, &id), 0);
	check_all(w, 2);
	end(w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages_heap");
	TCase *tests = tcase_create("pages_heap");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, random_programs, 0, sizeof(settings) / sizeof(settings[0]));
	tcase_add_test(tests, handles_go_whole);
	tcase_add_test(tests, moves_what_is_idle);
	tcase_add_test(tests, just_enough_moves);
	tcase_add_test(tests, only_what_is_passed_moves);
	tcase_add_test(tests, rather_waits_than_grows);
	tcase_add_test(tests, grows_while_moving_is_costly);
	tcase_add_test(tests, passed_by_its_own_stream);
	tcase_add_test(tests, taken_over);
	tcase_add_loop_test(tests, many_go_in_few_passes, 0, 2);
	tcase_add_test(tests, what_was_seen_complete_moves_at_once);
	tcase_add_loop_test(tests, joined_with_what_was_seen_complete, 0, 2);
	tcase_add_test(tests, left_of_two_ages);
	tcase_add_test(tests, best_fit_moves_nothing);
	tcase_add_test(tests, streams_wait_for_each_other);
	tcase_add_test(tests, own_and_anybodys_together);
	tcase_add_test(tests, equal_blocks_move);
	tcase_add_test(tests, small_ones_lie_apart);
	tcase_add_test(tests, every_failure);
	tcase_add_test(tests, no_record_for_the_rest);
	tcase_add_test(tests, limits);
	tcase_add_test(tests, detached);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
