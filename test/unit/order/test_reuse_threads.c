/*
 * Reuse of freed memory under real threads: submissions, frees, polls, waits, synchronises and
 * captures at once, against a GPU that runs by itself. No block comes back before all that was
 * submitted before its free is done; none is lost; the structure stays sound. For the thread
 * sanitizer too.
 */
#define _GNU_SOURCE
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/lock.h"
#include "preload/order/reuse.h"
#include "test/rules/check.h"
#include "test/suite.h"

#define STREAMS 4u
#define WORKERS 4u
#define BLOCKS 4096u
#define STEPS 30000u
#define TICKETS 65536u

static _Atomic(uint64_t) submitted[STREAMS], done[STREAMS];
static struct { _Atomic(bool) live; _Atomic(uint64_t) at[STREAMS]; } tickets[TICKETS];
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t free_tickets[TICKETS], free_tickets_count;	/* lock: free_lock */
static uint32_t stack[BLOCKS], stacked;				/* lock: free_lock */
static uint64_t freed_at[BLOCKS][STREAMS];	/* written by who frees */
static _Atomic(unsigned int) too_early, misused, slipped, waited;
static _Atomic(uint32_t) captures[STREAMS];
static _Atomic(uint64_t) recordings;		/* odd while an event is being recorded */
static _Atomic(bool) over;
static bool peers;			/* every context's work may touch every block */
static bool one_context;		/* every block is of the first */
static pthread_barrier_t together;
static struct gm_reuse *reuse;
static struct gm_reuse_hot hot;

static uint64_t new_ticket(void)
{
	uint32_t ticket;

	pthread_mutex_lock(&free_lock);
	ticket = free_tickets_count ? free_tickets[--free_tickets_count] : 0;
	pthread_mutex_unlock(&free_lock);
	if (ticket)
		misused += atomic_exchange(&tickets[ticket].live, true);
	return ticket;
}

/* Each stream has a context of its own, whose handle and id are its number + 1. */
static uint64_t new_event(void *arg, uint32_t context, uint64_t handle)
{
	(void)arg;
	(void)context;
	(void)handle;
	return new_ticket();
}

static int record_context(void *arg, uint64_t handle, uint64_t event)
{
	(void)arg;
	misused += captures[handle - 1] > 0;
	recordings++;
	sched_yield();
	for (unsigned int s = 0; s < STREAMS; s++)
		tickets[event].at[s] = s + 1 == handle ? submitted[s] : 0;
	recordings++;
	return 0;
}

static int record_stream(void *arg, uint64_t stream, uint64_t *ticket)
{
	(void)arg;
	if (!*ticket)
		*ticket = new_ticket();
	if (!*ticket)
		return -12;
	for (unsigned int s = 0; s < STREAMS; s++)
		tickets[*ticket].at[s] = s + 1 == stream ? submitted[s] : 0;
	return 0;
}

static int query(void *arg, uint64_t ticket)
{
	(void)arg;
	misused += !tickets[ticket].live;
	for (unsigned int s = 0; s < STREAMS; s++)
		if (done[s] < tickets[ticket].at[s])
			return 0;
	return 1;
}

static int wait_ticket(void *arg, uint64_t ticket)
{
	waited++;
	while (query(arg, ticket) != 1)
		sched_yield();
	return 0;
}

static void drop(void *arg, uint64_t ticket)
{
	(void)arg;
	misused += !atomic_exchange(&tickets[ticket].live, false);
	pthread_mutex_lock(&free_lock);
	free_tickets[free_tickets_count++] = (uint32_t)ticket;
	pthread_mutex_unlock(&free_lock);
}

static int stream_wait(void *arg, uint64_t stream, uint64_t ticket)
{
	(void)stream;
	return wait_ticket(arg, ticket);	/* its order is the order of time here */
}

static uint32_t context_of(void *arg, uint32_t owner)
{
	(void)arg;
	return one_context ? 1 : owner;
}

static bool is_only(void *arg, uint32_t context, uint64_t stream)
{
	(void)arg;
	(void)context;
	(void)stream;
	return true;
}

static void put(uint32_t block)
{
	pthread_mutex_lock(&free_lock);
	stack[stacked++] = block;
	pthread_mutex_unlock(&free_lock);
}

static size_t room = SIZE_MAX;		/* so many are taken at a time */

static size_t complete(void *arg, const struct gm_reuse_item *items, size_t count)
{
	(void)arg;
	count = count < room ? count : room;
	for (size_t i = 0; i < count; i++) {
		for (unsigned int s = 0; s < STREAMS; s++)
			too_early += done[s] < freed_at[items[i].block][s];
		put(items[i].block);
	}
	return count;
}

static void *memory(void *arg, size_t bytes)
{
	(void)arg;
	return calloc(1, bytes);
}

static const struct gm_reuse_ops ops = {
	.time = { .event = new_event, .record = record_context, .query = query, .wait = wait_ticket, .memory = memory },
	.record_stream = record_stream, .stream_wait = stream_wait, .query = query, .drop = drop,
	.context_of = context_of, .is_only = is_only, .complete = complete,
};

static void *gpu(void *arg)
{
	uint32_t random = 7;

	(void)arg;
	while (!over) {
		random = random * 1664525u + 1013904223u;
		if (done[random >> 30] < submitted[random >> 30])
			done[random >> 30]++;
		else
			sched_yield();
	}
	for (unsigned int s = 0; s < STREAMS; s++)
		done[s] = (uint64_t)submitted[s];
	return NULL;
}

static void submit(uint32_t s)
{
	uint64_t before;

	if (!gm_timeline_has(gm_reuse_time(reuse), s + 1))
		gm_timeline_add(gm_reuse_time(reuse), s + 1, s + 1, gm_timeline_ends(gm_reuse_time(reuse)));
	before = recordings;
	if (!gm_reuse_passes(&hot, s + 1))
		gm_reuse_submit(reuse, s + 1);
	else	/* nobody slips in before an event that is being recorded */
		slipped += before % 2 && recordings == before;
	submitted[s]++;
}

static uint32_t take(void)
{
	uint32_t block = 0;

	pthread_mutex_lock(&free_lock);
	if (stacked)
		block = stack[--stacked];
	pthread_mutex_unlock(&free_lock);
	return block;
}

static void free_block(uint32_t block, bool stream_ordered)
{
	struct gm_reuse_item item = { block, 1 + block % 3, 512 };
	uint64_t early;

	for (unsigned int s = 0; s < STREAMS; s++)
		freed_at[block][s] = s + 1 == item.owner || (peers && !stream_ordered) ? submitted[s] : 0;
	if (gm_reuse_freed(reuse, &item, stream_ordered ? context_of(NULL, item.owner) : 0, context_of(NULL, item.owner), &early))
		put(block);
}

static void synchronise(void)
{
	uint64_t until[STREAMS], begun = gm_reuse_sync_begin(reuse);

	for (unsigned int s = 0; s < STREAMS; s++)
		until[s] = submitted[s];
	for (unsigned int s = 0; s < STREAMS; s++)
		while (done[s] < until[s])
			sched_yield();
	gm_reuse_sync_done(reuse, 0, begun);
}

static void capture(uint32_t s)
{
	if (!gm_timeline_has(gm_reuse_time(reuse), s + 1))
		gm_timeline_add(gm_reuse_time(reuse), s + 1, s + 1, gm_timeline_ends(gm_reuse_time(reuse)));
	gm_reuse_capture_begins(reuse, s + 1);
	captures[s]++;
	sched_yield();
	captures[s]--;
	gm_reuse_capture_ended(reuse, s + 1);
}

static void *worker(void *arg)
{
	uint32_t random = (uint32_t)(uintptr_t)arg * 7919u + 1u;

	pthread_barrier_wait(&together);
	for (unsigned int step = 0; step < STEPS; step++) {
		uint32_t block = 0, what = (random = random * 1664525u + 1013904223u) >> 24;

		if (what < 100) {
			submit(random >> 10 & (STREAMS - 1));
		} else if (what < 230) {
			block = take();
			if (block)
				free_block(block, what < 120);
			else
				gm_reuse_wait(reuse);
		} else if (what < 250) {
			gm_reuse_poll(reuse);
		} else if (what < 252) {
			synchronise();
		} else if (what < 253) {
			capture(random >> 10 & (STREAMS - 1));
		} else if (what < 254) {
			gm_reuse_wait_all(reuse);
		} else {
			misused += gm_reuse_check(reuse) != 0;
		}
	}
	return NULL;
}

static void all_come_back(void)
{
	for (unsigned int i = 0; i < 100 && gm_reuse_limbo_bytes(reuse, UINT32_MAX); i++)
		gm_reuse_poll(reuse);
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, UINT32_MAX), 0);
	for (uint32_t owner = 0; owner < 4; owner++)
		ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, owner), 0);
	ck_assert_uint_eq(stacked, BLOCKS - 1);
	ck_assert_int_eq(gm_reuse_check(reuse), 0);
}

START_TEST(test_threads)
{
	pthread_t threads[WORKERS], runner;

	peers = _i;
	for (uint32_t i = 1; i < TICKETS; i++)
		free_tickets[free_tickets_count++] = i;
	for (uint32_t i = 1; i < BLOCKS; i++)
		stack[stacked++] = i;
	reuse = gm_reuse_new(&ops, &hot);
	if (peers)
		gm_timeline_everybody(gm_reuse_time(reuse));
	/* Not one stream: early reuse is not told by time. */
	submit(0);
	submit(1);
	pthread_barrier_init(&together, NULL, WORKERS);
	ck_assert_int_eq(pthread_create(&runner, NULL, gpu, NULL), 0);
	for (uintptr_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, worker, (void *)i), 0);
	for (unsigned int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	over = true;
	pthread_join(runner, NULL);
	ck_assert_uint_eq(too_early, 0);
	ck_assert_uint_eq(misused, 0);
	ck_assert_uint_eq(slipped, 0);
	fprintf(stderr, "# %llu events, %u waits\n", (unsigned long long)recordings / 2,
		(unsigned int)waited);
	all_come_back();
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

/* ---- without threads: what is rare ---- */

static bool no_memory;

static void *scarce(void *arg, size_t bytes)
{
	return no_memory ? NULL : memory(arg, bytes);
}

static void fresh(void)
{
	struct gm_reuse_ops some = ops;

	some.time.memory = scarce;
	stacked = 0;
	free_tickets_count = 0;
	for (uint32_t i = 1; i < 1000; i++)
		free_tickets[free_tickets_count++] = i;
	memset(submitted, 0, sizeof(submitted));
	memset(done, 0, sizeof(done));
	reuse = gm_reuse_new(&some, &hot);
}

START_TEST(test_owner_forgotten)
{
	fresh();
	submit(0);
	submit(1);
	for (uint32_t block = 1; block < 100; block++) {
		free_block(block, false);
		if (block % 10 == 0)
			submit(block & 1);
	}
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, UINT32_MAX), 99 * 512);
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, 2), 33 * 512);
	gm_reuse_forget(reuse, 2);
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, 2), 0);
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, UINT32_MAX), 66 * 512);
	ck_assert_int_eq(gm_reuse_check(reuse), 0);
	done[0] = 1000;
	done[1] = 1000;
	ck_assert_uint_eq(gm_reuse_poll(reuse), 66);
	for (uint32_t i = 0; i < stacked; i++)
		ck_assert_uint_ne(stack[i] % 3, 1);	/* owner 2's */
}
END_TEST

START_TEST(test_no_memory)
{
	fresh();
	submit(0);
	submit(1);
	no_memory = true;
	free_block(1, false);			/* has no place: never handed out again */
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, UINT32_MAX), 0);
	no_memory = false;
	free_block(2, false);
	submit(0);
	done[0] = done[1] = 1000;
	ck_assert_uint_eq(gm_reuse_poll(reuse), 1);
	ck_assert_uint_eq(stack[0], 2);
	ck_assert_int_eq(gm_reuse_check(reuse), 0);
}
END_TEST

START_TEST(test_other_writers)
{
	uint64_t early;
	struct gm_reuse_item item = { 1, 1, 512 };

	fresh();
	submit(0);
	ck_assert(gm_reuse_freed(reuse, &item, 0, 0, &early));
	ck_assert_uint_eq(early, 1);
	gm_reuse_end_single(reuse);
	ck_assert(!gm_reuse_freed(reuse, &item, 0, 0, &early));
	submit(0);
	ck_assert_uint_eq(gm_reuse_poll(reuse), 0);
	done[0] = 1;
	ck_assert_uint_eq(gm_reuse_poll(reuse), 1);
}
END_TEST

/* Who is to be told cannot be, or not of all: the others come again, in their order. */
START_TEST(test_told_again)
{
	fresh();
	one_context = true;
	submit(0);
	submit(1);
	for (uint32_t block = 1; block <= 70; block++)
		free_block(block, true);
	submit(0);
	free_block(71, true);
	submit(0);
	done[0] = done[1] = 1000;
	room = 0;
	ck_assert_uint_eq(gm_reuse_poll(reuse), 0);
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, UINT32_MAX), 71 * 512);
	free_block(72, false);
	submit(0);
	ck_assert_int_ne(gm_reuse_wait(reuse), 0);		/* nobody waits for ever */
	ck_assert_uint_eq(gm_reuse_wait_all(reuse), 0);
	ck_assert_int_eq(gm_reuse_check(reuse), 0);
	room = 5;
	ck_assert_uint_eq(gm_reuse_poll(reuse), 6);	/* of the two lanes 5 and 1 */
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, UINT32_MAX), 66 * 512);
	ck_assert_int_eq(gm_reuse_check(reuse), 0);
	room = SIZE_MAX;
	ck_assert_uint_eq(gm_reuse_poll(reuse), 66);
	ck_assert_uint_eq(stacked, 72);
	ck_assert_uint_eq(stack[71], 71);
	ck_assert_uint_eq(gm_reuse_limbo_bytes(reuse, UINT32_MAX), 0);
	ck_assert_int_eq(gm_reuse_check(reuse), 0);
}
END_TEST

/* Nobody may wait: who looks again and again sees what waits, and whether the GPU gets on. */
START_TEST(test_last_resort)
{
	uint64_t point, before;

	fresh();
	submit(0);
	submit(1);
	ck_assert_int_eq(gm_reuse_waits(reuse, gm_reuse_now(reuse), 2), 0);
	free_block(1, true);			/* of the second context, whose stream is 1 */
	point = gm_reuse_now(reuse);
	ck_assert_int_eq(gm_reuse_waits(reuse, point, 2), 1);	/* not marked yet */
	ck_assert_int_eq(gm_reuse_waits(reuse, point, 1), 0);
	submit(1);
	ck_assert_int_eq(gm_reuse_wait(reuse), -2);
	ck_assert_int_eq(gm_reuse_waits(reuse, point, 2), 1);
	free_block(4, true);			/* later than that point */
	submit(0);
	ck_assert_uint_eq(gm_reuse_poll_all(reuse), 0);
	before = gm_reuse_progress(reuse);
	ck_assert_uint_eq(gm_reuse_poll_all(reuse), 0);
	ck_assert_uint_eq(gm_reuse_progress(reuse), before);
	done[0] = 1;				/* of the two contexts one gets on */
	ck_assert_uint_eq(gm_reuse_poll_all(reuse), 0);
	ck_assert_uint_ne(gm_reuse_progress(reuse), before);
	before = gm_reuse_progress(reuse);
	done[1] = 1;
	ck_assert_uint_eq(gm_reuse_poll_all(reuse), 1);
	ck_assert_uint_eq(gm_reuse_completed(reuse), 1);
	ck_assert_uint_ne(gm_reuse_progress(reuse), before);
	ck_assert_int_eq(gm_reuse_waits(reuse, point, 2), 0);
	ck_assert_int_eq(gm_reuse_waits(reuse, gm_reuse_now(reuse), 2), 1);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("threads");
	Suite *suite = suite_create("reuse_threads");

	tcase_set_timeout(tcase, 100);
	suite_add_tcase(suite, tcase);
	tcase_add_loop_test(tcase, test_threads, 0, 2);
	tcase_add_test(tcase, test_owner_forgotten);
	tcase_add_test(tcase, test_no_memory);
	tcase_add_test(tcase, test_told_again);
	tcase_add_test(tcase, test_other_writers);
	tcase_add_test(tcase, test_last_resort);
	return run_suite(suite);
}
