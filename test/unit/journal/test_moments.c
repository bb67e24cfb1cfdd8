/*
 * Copies of a journal that threads are writing to, and of one whose process was killed: each must
 * show one moment. The threads share a driver that hands freed addresses out at once, before their
 * last owner has recorded that it freed them; and some of its frees return late, when the history
 * has dropped most of what happened at the address meanwhile.
 */
#define _GNU_SOURCE
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/record/txn.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/cache/aux_replay.h"

#ifdef __SANITIZE_THREAD__		/* twenty times as slow */
#define COPIES 40
#define KILLS 8
#else
#define COPIES 150
#define KILLS 40
#endif

#define SLOW_FREES 100

struct shared {				/* also of a process that is killed */
	pthread_mutex_t driver;
	uint32_t free_slots[SLOTS], free_count;
	struct thread {			/* what its owner knows to be recorded */
		_Atomic(uint64_t) held[SLOTS];	/* requested bytes of what it holds, by slot */
		_Atomic(uint32_t) busy;		/* slot + 1 of the free under way, SLOTS + 1: an alloc */
		_Atomic(uint64_t) steps;
	} threads[8];
	_Atomic(bool) stop;
};

static struct shared *shared;
static unsigned int thread_count;
static int slow_frees;		/* one free in so many; 0: none */

static void begin_shared(void)
{
	pthread_mutexattr_t attr;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->driver, &attr);
	for (uint32_t i = 0; i < SLOTS; i++)
		shared->free_slots[shared->free_count++] = i;
}

static uint32_t driver_alloc(void)
{
	uint32_t slot;

	pthread_mutex_lock(&shared->driver);
	slot = shared->free_count ? shared->free_slots[--shared->free_count] : SLOTS;
	pthread_mutex_unlock(&shared->driver);
	return slot;
}

static void driver_free(uint32_t slot)
{
	pthread_mutex_lock(&shared->driver);
	shared->free_slots[shared->free_count++] = slot;	/* handed out next */
	pthread_mutex_unlock(&shared->driver);
}

struct worker { unsigned int number, seed; uint32_t blocks[SLOTS], errors; };

static void worker_alloc(struct worker *w, struct thread *me)
{
	uint64_t requested = 1 + (uint64_t)rand_r(&w->seed) % (SPAN - 1);
	struct gm_alloc alloc = aux_alloc((uint8_t)(rand_r(&w->seed) % 2), 0, requested);
	uint64_t op;
	uint32_t slot;

	me->busy = SLOTS + 1;
	op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, alloc.domain, 0, requested);
	slot = driver_alloc();
	if (slot < SLOTS) {
		alloc.address = address_of(slot);
		w->errors += gm_record_alloc(op, &alloc, &w->blocks[slot]) != 0;
		me->held[slot] = requested;
	}
	gm_op_end(op);
	me->busy = 0;
}

static void worker_free(struct worker *w, struct thread *me, uint32_t slot)
{
	uint64_t tsc = gm_stamp_before(), op;
	struct gm_block block;

	me->busy = slot + 1;
	gm_record_block(w->blocks[slot], &block);
	op = gm_op_begin(GM_ACTION_FREE_REQUESTED, GM_KIND_DEVICE, block.domain, block.address, 0);
	gm_record_freeing(w->blocks[slot]);
	driver_free(slot);
	if (rand_r(&w->seed) % 4 == 0)
		sched_yield();		/* somebody else gets the address meanwhile */
	if (slow_frees && rand_r(&w->seed) % slow_frees == 0)
		usleep((unsigned int)rand_r(&w->seed) % 500);
	w->errors += gm_record_free(op, w->blocks[slot], tsc, 0) != 0;
	me->held[slot] = 0;
	gm_op_end(op);
	me->busy = 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct thread *me = &shared->threads[w->number];

	while (!shared->stop) {
		uint32_t slot = (uint32_t)rand_r(&w->seed) % SLOTS;

		for (unsigned int i = 0; i < 8 && !me->held[slot]; i++)
			slot = (slot + 1) % SLOTS;
		if (me->held[slot])
			worker_free(w, me, slot);
		else
			worker_alloc(w, me);
		me->steps++;
	}
	return NULL;
}

static void run_workers(pthread_t *threads, struct worker *workers, unsigned int seed)
{
	for (unsigned int i = 0; i < thread_count; i++) {
		workers[i] = (struct worker){ .number = i, .seed = seed + i };
		AUX_MUST(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
	}
}

/* Every copy taken meanwhile shows one moment: its events make its tables, whoever was half way. A thread may
 * be off its processor with a lock for longer than a copy waits: what it was changing is then taken back, or
 * the copy says that it is not of one moment. Both are seldom, and a loaded machine makes them less so. */
START_TEST(every_live_copy_is_one_moment)
{
	static const uint64_t chunks[] = { 2081, 64, 16 };
	unsigned int copies = (unsigned int)aux_effort(COPIES), events = 0, resolved = 0;
	unsigned int late = 0;
	struct worker workers[8];
	pthread_t threads[8];

	thread_count = 4;
	slow_frees = _i == 2 ? SLOW_FREES : 0;
	begin_shared();
	aux_start(chunks[_i] * 63);
	run_workers(threads, workers, 20251120);
	for (unsigned int i = 0; i < copies; i++) {
		struct gm_copy copy;

		ck_assert_int_eq(gm_copy_from_process(&copy), 0);
		if (!copy.consistent) {
			late++;
			gm_copy_free(&copy);
			continue;
		}
		resolve_sound(&copy, UINT64_MAX);
		late += copy.undone != 0;
		ck_assert_int_eq(replay(&copy), 0);
		ck_assert_uint_le(copy.flight_count, thread_count);
		for (size_t f = 0; f < copy.flight_count; f++)
			resolved += copy.flights[f].done;
		events += (unsigned int)copy.event_count;
		gm_copy_free(&copy);
		gm_recorder_tick();
	}
	shared->stop = true;
	for (unsigned int i = 0; i < thread_count; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(workers[i].errors, 0);
	}
	ck_assert_uint_gt(events, 1000);
	ck_assert_uint_le(late, copies / 2);
	printf("# %u copies, %u events, %u frees recognised\n", copies, events, resolved);
}
END_TEST

/* A thread that crashed in the midst of a change holds its lock for ever: what it had done is taken
 * back, and the copy shows the moment before. */
START_TEST(stopped_in_a_change)
{
	struct gm_domain *domain;
	struct gm_copy copy;
	struct gm_txn txn;

	aux_start(1000);
	domain = &gm_rec.domains[0];
	aux_record(0, address_of(0), 512);
	aux_record(1, address_of(1), 512);
	ck_assert(gm_lock(&gm_rec.domain[0].lock));
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert(copy.consistent);		/* before it began */
	gm_copy_free(&copy);
	gm_txn_begin(&txn, domain, 1000);
	gm_txn_save(&txn, &domain->live_bytes[GM_KIND_DEVICE]);
	gm_txn_arm(&txn);
	domain->live_bytes[GM_KIND_DEVICE] += 4711;
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert(copy.consistent);
	resolve_sound(&copy, UINT64_MAX);
	ck_assert_uint_eq(copy.undone, 1);
	ck_assert_int_eq(replay(&copy), 0);
	gm_copy_free(&copy);
	domain->live_bytes[GM_KIND_DEVICE] -= 4711;
	gm_txn_end(&txn);
	gm_unlock(&gm_rec.domain[0].lock);
}
END_TEST

static _Atomic(uint32_t) holding;	/* 1: it does; 2: it is to stop */

static void *hold_and_change(void *arg)
{
	int64_t *word = &gm_rec.domains[0].stats.num_ooms;

	(void)arg;
	if (!gm_lock(&gm_rec.domain[0].lock))
		return NULL;
	for (holding = 1; holding == 1;)
		__atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
	gm_unlock(&gm_rec.domain[0].lock);
	return NULL;
}

static void use_processor(pthread_t thread, unsigned int number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(number, &set);
	pthread_setaffinity_np(thread, sizeof(set), &set);
}

/* One that holds it and goes on is another matter. Each has a processor of its own, if there are
 * two: who wakes up does not stop the other by that. */
START_TEST(changing_under_a_lock_held_for_long)
{
	struct gm_copy copy;
	pthread_t thread;

	use_processor(pthread_self(), 0);
	aux_start(1000);
	aux_record(0, 0x1000, 512);
	holding = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_and_change, NULL), 0);
	use_processor(thread, 1);
	while (!holding)
		sched_yield();
	for (unsigned int i = 0; i < 200; i++) {	/* it may be off its processor for one */
		bool seen;

		ck_assert_int_eq(gm_copy_from_process(&copy), 0);
		seen = !copy.consistent;
		gm_copy_free(&copy);
		if (seen)
			break;
		ck_assert_uint_lt(i, 199);
	}
	holding = 2;
	pthread_join(thread, NULL);
}
END_TEST

/* What returned before the kill is there; of what had not, at most one operation a thread. */
static void compare_with_the_dead(const struct gm_copy *copy)
{
	uint64_t table[SLOTS] = { 0 }, known[SLOTS] = { 0 };
	bool open[SLOTS] = { false };		/* may be either way */
	unsigned int allocs = 0, extra = 0;

	for (size_t i = 0; i < copy->segment_count; i++) {
		const struct gm_segment *segment = gm_copy_segment(copy, copy->segments[i]);

		table[slot_of(segment->address)] =
			gm_copy_block(copy, segment->first_block)->requested;
	}
	for (unsigned int t = 0; t < thread_count; t++) {
		struct thread *thread = &shared->threads[t];

		if (thread->busy > SLOTS)
			allocs++;
		else if (thread->busy)
			open[thread->busy - 1] = true;
		for (unsigned int slot = 0; slot < SLOTS; slot++)
			if (thread->held[slot] && thread->busy != slot + 1)
				known[slot] = thread->held[slot];
	}
	for (unsigned int slot = 0; slot < SLOTS; slot++) {
		if (known[slot])
			ck_assert_uint_eq(table[slot], known[slot]);
		else if (table[slot] && !open[slot])
			extra++;		/* recorded, but its caller had not heard yet */
	}
	ck_assert_uint_le(extra, allocs);
}

static void live_and_be_killed(int ready, unsigned int seed)
{
	struct worker workers[8];
	pthread_t threads[8];

	aux_start(1 << 16);
	if (write(ready, aux_report.path, sizeof(aux_report.path)) < 0)
		_exit(1);
	run_workers(threads, workers, seed);
	for (;;)
		pause();
}

START_TEST(killed_at_any_moment)
{
	unsigned int seed = 20251120 + (unsigned int)_i, kills = (unsigned int)aux_effort(KILLS);
	unsigned int undone = 0, flights = 0, resolved = 0;

	printf("# seed %u\n", seed);
	thread_count = 4;
	for (unsigned int i = 0; i < kills; i++) {
		struct timespec wait = { 0, 1000000 + rand_r(&seed) % 6000000 };
		char path[sizeof(aux_report.path)];
		struct gm_copy copy;
		int pipes[2], fd;
		pid_t child;

		begin_shared();
		ck_assert_int_eq(pipe(pipes), 0);
		child = fork();
		if (!child)
			live_and_be_killed(pipes[1], seed);
		ck_assert_int_eq(read(pipes[0], path, sizeof(path)), sizeof(path));
		nanosleep(&wait, NULL);
		kill(child, SIGKILL);
		ck_assert_int_eq(waitpid(child, NULL, 0), child);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		ck_assert_msg(fd >= 0, "%s", path);
		ck_assert_int_eq(gm_copy_alive(fd), 0);
		ck_assert_int_eq(gm_copy_from_file(&copy, fd), 0);
		resolve_sound(&copy, UINT64_MAX);
		ck_assert_int_eq(replay(&copy), 0);
		ck_assert_uint_le(copy.flight_count, thread_count);
		compare_with_the_dead(&copy);
		undone += (unsigned int)copy.undone;
		flights += (unsigned int)copy.flight_count;
		for (size_t f = 0; f < copy.flight_count; f++)
			resolved += copy.flights[f].done;
		gm_copy_free(&copy);
		close(fd);
		unlink(path);
		close(pipes[0]);
		close(pipes[1]);
		munmap(shared, sizeof(*shared));
	}
	printf("# %u kills: %u changes undone, %u operations in flight, %u frees recognised\n",
	       kills, undone, flights, resolved);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("moments");
	TCase *tcase = tcase_create("moments");

	tcase_add_unchecked_fixture(tcase, aux_directory_make, aux_directory_remove);
	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, every_live_copy_is_one_moment, 0, 3);
	tcase_add_test(tcase, stopped_in_a_change);
	tcase_add_test(tcase, changing_under_a_lock_held_for_long);
	tcase_add_loop_test(tcase, killed_at_any_moment, 0, 4);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
