/* The chunk pool, thread slots, the horizon, and whoever comes through a slot that is busy. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/record/events.h"
#include "recorder/read/copy.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/leaps.h"

#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

static void notes(uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++)
		gm_record_note(GM_ACTION_ANNOTATE, 0, i, 0);
}

/* The kept events are the last ones of 1 ... @last, whole and in order. */
static void tail_is(uint64_t last, uint64_t at_least, uint64_t at_most)
{
	struct gm_copy copy;

	aux_copy(&copy);
	ck_assert_uint_ge(copy.event_count, at_least);
	ck_assert_uint_le(copy.event_count, at_most);
	for (size_t i = 0; i < copy.event_count; i++)
		ck_assert_uint_eq(copy.events[i]->size, last - copy.event_count + 1 + i);
	ck_assert_uint_eq(copy.dropped_total, last - copy.event_count);
	gm_copy_free(&copy);
	aux_sound();
}

START_TEST(test_one_chunk)
{
	aux_start(63);
	ck_assert_uint_eq(gm_recorder_header()->history_events, 63);
	for (uint64_t i = 1; i <= 200; i++) {
		notes(i, 1);
		tail_is(i, i % 63 ? i % 63 : i ? 63 : 0, 63);
	}
}
END_TEST

START_TEST(test_ring)
{
	aux_start(1000);		/* 16 chunks */
	ck_assert_uint_eq(gm_recorder_header()->history_events, 1008);
	notes(1, 1008);
	tail_is(1008, 1008, 1008);
	ck_assert_uint_eq(gm_recorder_header()->horizon, 0);
	notes(1009, 1);
	tail_is(1009, 1009 - 63, 1009 - 63);
	notes(1010, 100000);
	tail_is(101009, 1008 - 63, 1008);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
}
END_TEST

START_TEST(test_no_history)
{
	aux_start(0);
	notes(1, 1000);
	aux_record(0, 0x1000, 512);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_NONE), 0);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	ck_assert_uint_eq(gm_recorder_header()->history_events, 0);
	aux_sound();
}
END_TEST

struct crowd { pthread_barrier_t *meet; unsigned int count; };

static void *write_some(void *arg)
{
	const struct crowd *crowd = arg;

	notes(1, crowd->count);
	if (crowd->meet)
		pthread_barrier_wait(crowd->meet);	/* everybody has a slot until here */
	return NULL;
}

static void run_crowd(unsigned int threads, unsigned int count, bool together)
{
	pthread_t *ids = calloc(threads, sizeof(*ids));
	struct crowd crowd = { .count = count };
	pthread_barrier_t meet;
	pthread_attr_t attr;

	ck_assert_ptr_nonnull(ids);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	if (together) {
		pthread_barrier_init(&meet, NULL, threads);
		crowd.meet = &meet;
	}
	for (unsigned int i = 0; i < threads; i++)
		ck_assert_int_eq(pthread_create(&ids[i], &attr, write_some, &crowd), 0);
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	free(ids);
}

/* Slots that are taken, but for this thread's own. */
static unsigned int others(void)
{
	unsigned int taken = 0;

	for (unsigned int i = 1; i < gm_rec.slots_used; i++)
		taken += gm_rec.tids[i] && gm_rec.tids[i] != (uint32_t)gettid();
	return taken;
}

/* Far more threads than chunks, all alive: nothing is lost but to the horizon, and half of the
 * chunks stay out of the threads' hands. */
START_TEST(test_more_threads_than_chunks)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;

	aux_start(63 * 16);
	run_crowd(100, 200, true);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	ck_assert_uint_le(pool->owned, 8);
	aux_sound();
	ck_assert_uint_ge(aux_count_events(GM_ACTION_NONE), 63 * 6);
	ck_assert_uint_eq(gm_rec.domains[0].counts.events, 100 * 200);
	/* All of them are dead, or will be as soon as the kernel is done with them: their slots are
	 * free, their chunks closed. Ours stays. */
	for (unsigned int tries = 0; tries < 1000 && others(); tries++) {
		usleep(10000);
		gm_rec.slots_swept_ns = 0;
		gm_recorder_tick();
	}
	ck_assert_uint_eq(others(), 0);
	ck_assert_uint_eq(pool->owned, 0);
	aux_sound();
}
END_TEST

/* Each event of the shared chunk still tells its thread. */
START_TEST(test_shared_tells_thread)
{
	struct gm_copy copy;

	aux_start(63);
	notes(1, 5);
	aux_copy(&copy);
	ck_assert_uint_eq(copy.event_count, 5);
	for (size_t i = 0; i < 5; i++)
		ck_assert_uint_eq(gm_copy_event_thread(&copy, copy.events[i]),
				  (uint32_t)gettid());
	gm_copy_free(&copy);
}
END_TEST

static _Atomic(int) written;

static void *write_one(void *arg)
{
	notes(1, 1);
	written = 1;
	return arg;
}

/* The process stands still for hours while one thread waits for another to be done with the shared chunk. */
START_TEST(test_shared_while_stopped)
{
	pthread_t thread;

	aux_start(63);
	ck_assert(gm_lock(&gm_rec.shared));
	leap = 3600;
	ck_assert_int_eq(pthread_create(&thread, NULL, write_one, NULL), 0);
	await_readings(20, &written);
	gm_unlock(&gm_rec.shared);
	pthread_join(thread, NULL);
	end_leaps();
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	ck_assert_uint_eq(gm_rec.domains[0].counts.events, 1);
}
END_TEST

/* Threads that come and go: slots are used again, none is refused, names are theirs. */
START_TEST(test_slots_come_back)
{
	unsigned int round;

	aux_start(63 * 64);
	for (round = 0; round < 40; round++) {
		run_crowd(50, 3, round % 8 == 0);
		gm_rec.slots_swept_ns = 0;
		gm_threads_sweep();
		aux_sound();
	}
	ck_assert_uint_le(gm_rec.slots_used, 150);
	ck_assert_uint_eq(gm_region(GM_REGION_THREADS)->refused, 0);
	ck_assert_uint_eq(gm_rec.domains[0].counts.events, 40 * 50 * 3);
}
END_TEST

/* No slot is left: records go through slot 0 and are not lost. */
START_TEST(test_no_slot)
{
	struct gm_writer writer;
	uint64_t op;

	aux_start(63 * 4);
	/* As if all slots were taken by living threads: this one. */
	ck_assert(gm_lock(&gm_rec.journal));
	gm_rec.slots_used = GM_MAX_THREADS;
	for (unsigned int i = 1; i < GM_MAX_THREADS; i++)
		gm_rec.tids[i] = (uint32_t)getpid();
	gm_unlock(&gm_rec.journal);
	gm_tls = (struct gm_thread_local){ 0 };
	for (unsigned int i = 1; i < GM_MAX_THREADS; i++)
		gm_rec.tids[i] = 1;	/* alive, and not of this process: ESRCH, so busy */
	for (unsigned int i = 1; i < GM_MAX_THREADS; i++)
		gm_set(&gm_rec.slots[i].busy, 1);
	op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, 0);
	ck_assert_uint_eq(op >> GM_OP_SLOT_SHIFT, 0);
	ck_assert_uint_gt(op, 0);
	gm_op_end(op);
	ck_assert_uint_gt(gm_region(GM_REGION_THREADS)->refused, 0);
	notes(1, 100);
	gm_writer_enter(&writer);
	ck_assert_ptr_null(writer.slot);
	ck_assert(!writer.nested);
	gm_writer_leave(&writer);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	ck_assert_uint_eq(gm_rec.domains[0].counts.events, 100);
}
END_TEST

/* A signal handler that interrupts a record: it finds the slot busy, waits for nothing, and what
 * it cannot write is counted. */
START_TEST(test_nested)
{
	struct gm_writer writer, inner;
	uint64_t outer, op;

	aux_start(63 * 4);
	notes(1, 1);
	gm_writer_enter(&writer);
	ck_assert_ptr_nonnull(writer.slot);
	gm_writer_enter(&inner);
	ck_assert(inner.nested);
	ck_assert_ptr_null(inner.slot);
	gm_writer_leave(&inner);
	ck_assert_uint_eq(gm_get(&writer.slot->busy), 1);
	op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, 0);
	ck_assert_uint_eq(op >> GM_OP_SLOT_SHIFT, 0);
	notes(2, 3);			/* the domain is free: into the shared chunk */
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	ck_assert_uint_eq(aux_count_events(GM_ACTION_NONE), 4);
	ck_assert(gm_lock(&gm_rec.domain[0].lock));
	notes(5, 1);			/* it is not: lost at once */
	gm_unlock(&gm_rec.domain[0].lock);
	ck_assert_uint_eq(gm_recorder_header()->operations_lost, 1);
	ck_assert(gm_lock(&gm_rec.shared));
	notes(5, 1);
	gm_unlock(&gm_rec.shared);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 1);
	ck_assert(gm_lock(&gm_rec.intern));
	ck_assert_uint_eq(gm_intern_string("other", 5), 0);
	gm_unlock(&gm_rec.intern);
	gm_writer_leave(&writer);
	/* An operation within an operation: the outer one is the one that is shown. */
	outer = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, 1);
	op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, 2);
	ck_assert_uint_ne(op, outer);
	ck_assert_uint_eq(gm_rec.threads[outer >> GM_OP_SLOT_SHIFT].flight_op, outer);
	gm_op_end(op);
	ck_assert_uint_eq(gm_rec.threads[outer >> GM_OP_SLOT_SHIFT].flight_op, outer);
	gm_op_end(outer);
	ck_assert_uint_eq(gm_rec.threads[outer >> GM_OP_SLOT_SHIFT].flight_op, 0);
	aux_sound();
}
END_TEST

/* The real thing: a timer's handler that records, in a thread that records. */
static _Atomic(uint32_t) handled;

static void on_alarm(int number)
{
	int saved_errno = errno;

	(void)number;
	gm_record_note(GM_ACTION_SNAPSHOT, 0, 0, 0);
	gm_record_note(GM_ACTION_SNAPSHOT, 1, 0, 0);
	gm_count(&handled, 1);
	errno = saved_errno;
}

START_TEST(test_signal_storm)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct itimerspec often = { { 0, 50000 }, { 0, 50000 } };
	unsigned long records = 0;
	timer_t timer;

	aux_start(63 * 100);
	sigaction(SIGALRM, &action, NULL);
	ck_assert_int_eq(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	ck_assert_int_eq(timer_settime(timer, 0, &often, NULL), 0);
	while (gm_get(&handled) < 2000 && records < 20000000) {
		uint32_t block = aux_record(0, 0x1000, 512);

		ck_assert_int_eq(gm_record_free(0, block, 0, 0), 0);
		records++;
	}
	timer_delete(timer);
	ck_assert_uint_ge(gm_get(&handled), 2000);
	aux_sound();
	aux_count_events(GM_ACTION_NONE);
	/* Each note was written, or counted as lost. */
	ck_assert_uint_eq(gm_rec.domains[0].counts.events + gm_rec.domains[1].counts.events +
			  gm_recorder_header()->events_lost +
			  gm_recorder_header()->operations_lost,
			  records * 5 + 2 * (uint64_t)gm_get(&handled));
}
END_TEST

/* A raw clone() that shares our thread pointer uses our slot: one of both at a time. */
static char raw_stack[64 << 10] __attribute__((aligned(16)));
static _Atomic(uint32_t) raw_done;

static int raw_thread(void *arg)
{
	(void)arg;
	notes(1000000, 20000);
	gm_set_release(&raw_done, 1);
	return 0;
}

START_TEST(test_raw_clone)
{
	pid_t child;

	aux_start(63 * 1000);
	notes(1, 1);
	child = clone(raw_thread, raw_stack + sizeof(raw_stack),
		      CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
	ck_assert_int_gt(child, 0);
	notes(2, 20000);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_uint_eq(gm_get_acquire(&raw_done), 1);
	aux_sound();
	ck_assert_uint_eq(aux_count_events(GM_ACTION_NONE) +
			  gm_recorder_header()->events_lost +
			  gm_recorder_header()->operations_lost, 40001);
}
END_TEST

/* Many events from many threads, copied meanwhile: every copy is sound, its order is by stamp. */
static _Atomic(bool) over;

static void *keep_writing(void *arg)
{
	for (uint64_t i = 0; !gm_get(&over) && i < 10000000; i++) {
		uint32_t block = aux_record((uint8_t)(i % 3), (uint64_t)(uintptr_t)arg << 32, 512);

		gm_record_free(0, block, 0, 0);
		notes(i, 1);
	}
	return NULL;
}

START_TEST(test_live_copies)
{
	pthread_t threads[8];

	aux_start(63 * 40);
	for (uintptr_t i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, keep_writing, (void *)(i + 1)), 0);
	for (unsigned long i = 0; i < aux_effort(40); i++) {
		struct gm_copy copy;
		uint64_t last = 0;

		aux_copy(&copy);
		for (size_t k = 0; k < copy.event_count; k++) {
			ck_assert_uint_ge(copy.events[k]->tsc, last);
			last = copy.events[k]->tsc;
		}
		gm_copy_free(&copy);
	}
	gm_set(&over, true);
	for (unsigned int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	aux_sound();
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
}
END_TEST

/* What one thread writes stays whole and in order. When others end, their chunks are anybody's again. */
START_TEST(test_chunks_come_back)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;

	aux_start(63 * 4096);
	notes(1, 63 * 100);
	tail_is(63 * 100, 63 * 100, 63 * 100);
	ck_assert_uint_eq(pool->owned, 1);
	notes(63 * 100 + 1, 63 * 6000);
	tail_is(63 * 6100, 63 * 4095, 63 * 4096);
	run_crowd(8, 63 * 40, true);
	ck_assert_uint_le(pool->owned, 9);
	aux_sound();
	for (unsigned int tries = 0; tries < 1000 && others(); tries++) {
		usleep(10000);
		gm_rec.slots_swept_ns = 0;
		gm_recorder_tick();
	}
	ck_assert_uint_eq(others(), 0);
	ck_assert_uint_eq(pool->owned, 1);
	aux_sound();
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
}
END_TEST

static _Atomic(uint32_t) refusing, refusals;

static int advise_or_refuse(void *addr, size_t bytes, int advice)
{
	if (advice == 23 && gm_get(&refusing)) {
		gm_count(&refusals, 1);
		errno = EFAULT;
		return -1;
	}
	return madvise(addr, bytes, advice);
}

/* The file system is full: the oldest events make room, no event is lost; and when there is memory
 * again, the history grows on. */
START_TEST(test_memory_refused)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;
	uint64_t last = 63 * 500;
	uint32_t fresh;

	gm_sys.advise = advise_or_refuse;
	aux_start(63 * 4096);
	notes(1, last);
	gm_set(&refusing, 1);
	notes(last + 1, 63 * 3000);
	last += 63 * 3000;
	ck_assert_uint_gt(gm_get(&refusals), 0);
	fresh = pool->fresh;
	ck_assert_uint_lt(fresh, 600);		/* what was ready is used up */
	tail_is(last, 63 * 400, 63 * (uint64_t)fresh);
	run_crowd(8, 63 * 100, true);
	ck_assert_uint_eq(pool->fresh, fresh);
	aux_sound();
	gm_set(&refusing, 0);
	run_crowd(8, 63 * 500, true);
	ck_assert_uint_gt(pool->fresh, fresh);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	aux_sound();
}
END_TEST

/* Who writes few events has the memory of few. */
START_TEST(test_memory_of_few)
{
	aux_start(63 * 4096);
	notes(1, 63);
	gm_recorder_tick();
	ck_assert_uint_le(gm_region(GM_REGION_EVENTS)->populated, 65536);
}
END_TEST

static bool writing;
static unsigned int waited;

/* How often who writes waits for the kernel's memory. */
static int advise_and_count(void *addr, size_t bytes, int advice)
{
	waited += advice == 23 && writing;
	return madvise(addr, bytes, advice);
}

/* Who writes many events finds their memory there, because the helper thread gets it ahead of need: as much
 * again as is used, 2 MiB at most, and no more than the history takes. */
START_TEST(test_memory_ahead)
{
	const struct gm_region *region;
	uint64_t used;

	gm_sys.advise = advise_and_count;
	aux_start(63 * 2048);
	region = gm_region(GM_REGION_EVENTS);
	gm_recorder_hold_alive();
	notes(1, 63 * 32);
	for (unsigned int i = 0; i < 2048 - 32; i++) {
		gm_recorder_keep_up();
		used = gm_get(&region->used);
		ck_assert_uint_le(gm_get(&region->populated), used + (2 << 20) + 65536);
		ck_assert_uint_le(gm_get(&region->populated), 2 * used + 65536);
		writing = true;
		notes(63 * (32 + i) + 1, 63);
		writing = false;
	}
	ck_assert_uint_eq(gm_get(&region->used), UINT64_C(2048) * 4096);
	ck_assert_uint_eq(waited, 0);
	tail_is(63 * 2048, 63 * 2048, 63 * 2048);
}
END_TEST

static void *keep_up(void *stop)
{
	gm_recorder_hold_alive();
	while (!gm_get((_Atomic(uint32_t) *)stop))
		gm_recorder_keep_up();
	return NULL;
}

/* Threads that do not wait for the helper thread get the same pages as it: nothing is counted twice, and
 * what it is refused is no harm. */
START_TEST(test_memory_ahead_of_many)
{
	_Atomic(uint32_t) stop = 0;
	pthread_t helper;

	gm_sys.advise = advise_or_refuse;
	aux_start(63 * 4096);
	ck_assert_int_eq(pthread_create(&helper, NULL, keep_up, &stop), 0);
	run_crowd(8, 63 * 100, true);
	gm_set(&refusing, 1);
	run_crowd(8, 63 * 100, true);
	gm_set(&refusing, 0);
	run_crowd(8, 63 * 300, true);
	gm_set(&stop, 1);
	pthread_join(helper, NULL);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
	aux_sound();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("events");
	TCase *tc = tcase_create("events");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_single_test(tc, test_one_chunk);
	tcase_add_single_test(tc, test_memory_ahead);
	tcase_add_test(tc, test_memory_ahead_of_many);
	tcase_add_single_test(tc, test_ring);
	tcase_add_single_test(tc, test_no_history);
	tcase_add_test(tc, test_more_threads_than_chunks);
	tcase_add_single_test(tc, test_shared_tells_thread);
	tcase_add_test(tc, test_shared_while_stopped);
	tcase_add_test(tc, test_slots_come_back);
	tcase_add_single_test(tc, test_no_slot);
	tcase_add_single_test(tc, test_nested);
	tcase_add_test(tc, test_signal_storm);
	if (!UNDER_TSAN)		/* it cannot know of a thread that is none */
		tcase_add_test(tc, test_raw_clone);
	tcase_add_test(tc, test_live_copies);
	tcase_add_test(tc, test_chunks_come_back);
	tcase_add_test(tc, test_memory_refused);
	tcase_add_single_test(tc, test_memory_of_few);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
