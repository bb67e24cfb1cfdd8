/*
 * Death at random instants: children that record from several threads are killed by SIGKILL. Each
 * thread keeps, in shared memory, the number of its operations that have returned; the operations
 * follow from the seed, so that the parent knows what must be in the journal.
 *
 *	GM_KILLS=n  how many kills (default 150)      SEED=n  the seed
 */
#define _GNU_SOURCE
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder/journal/state.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/journal/aux_live.h"
#include "test/seed.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 20u
#else
#define SLOWER 1u
#endif

#define MIB (UINT64_C(1) << 20)
#define THREADS 4u
#define CONTEXT_CELLS 4u		/* the last ones belong to a context that ends at times */

static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

#define FIRST(thread) (((uint64_t)(thread) + 1) << 36)
#define STRIDE (64 * MIB)

struct shared {
	_Atomic(uint32_t) ready;
	char path[1024];
	struct {
		_Atomic(uint64_t) returned;
		char pad[56];
	} thread[THREADS];
};

static struct shared *shared;
static uint64_t storm_seed;

/* The next operation of a thread, as the seed has it; changes what is live. */
struct plan { uint64_t state; struct aux_live live; unsigned int cell; uint64_t size; int what; };
enum { DO_ALLOC, DO_FREE, DO_RESIZE, DO_END, DO_NOTE, DO_FAILURE };

static void plan_begin(struct plan *plan, unsigned int thread)
{
	memset(plan, 0, sizeof(*plan));
	plan->state = storm_seed * 1000003 + thread;
}

static void plan_next(struct plan *plan, unsigned int thread)
{
	uint32_t random = next_random(&plan->state);
	unsigned int cell = random % AUX_CELLS;

	plan->cell = cell;
	plan->size = (next_random(&plan->state) % (8 * MIB)) / 512 * 512 + 512;
	random = next_random(&plan->state) % 100;
	if (random < 2)
		plan->what = DO_NOTE;
	else if (random < 3)
		plan->what = DO_FAILURE;
	else if (random < 4)
		plan->what = DO_END;
	else if (!plan->live.size[cell])
		plan->what = DO_ALLOC;
	else
		plan->what = random < 20 ? DO_RESIZE : DO_FREE;
	if (plan->what == DO_ALLOC || plan->what == DO_RESIZE) {
		plan->live.address[cell] = FIRST(thread) + cell * STRIDE;
		plan->live.size[cell] = plan->size;
	} else if (plan->what == DO_FREE) {
		plan->live.address[cell] = 0;
		plan->live.size[cell] = 0;
	} else if (plan->what == DO_END) {
		memset(&plan->live.address[AUX_CELLS - CONTEXT_CELLS], 0,
		       CONTEXT_CELLS * sizeof(plan->live.address[0]));
		memset(&plan->live.size[AUX_CELLS - CONTEXT_CELLS], 0,
		       CONTEXT_CELLS * sizeof(plan->live.size[0]));
	}
}

static uint32_t storm_blocks[THREADS][AUX_CELLS];

static void do_next(const struct plan *plan, unsigned int thread)
{
	struct gm_failure failure = { .requested_bytes = plan->size, .result = 2, .module = 1,
				      .domain = (uint8_t)(thread & 1), .entry = "cuMemAlloc_v2" };
	struct gm_alloc alloc = aux_alloc((uint8_t)(plan->cell % 3),
					  FIRST(thread) + plan->cell * STRIDE, plan->size);
	uint32_t *block = &storm_blocks[thread][plan->cell];
	uint64_t op = gm_op_begin(plan->what == DO_FREE ? GM_ACTION_FREE_REQUESTED :
				  GM_ACTION_ALLOC, GM_KIND_DEVICE, alloc.domain, alloc.address,
				  alloc.size);
	int r = 0;

	alloc.context = plan->cell >= AUX_CELLS - CONTEXT_CELLS ? 10 + thread : 1;
	alloc.module = (uint16_t)(1 + thread);
	switch (plan->what) {
	case DO_ALLOC:
		r = gm_record_alloc(op, &alloc, block);
		break;
	case DO_FREE:
		gm_record_freeing(*block);
		r = gm_record_free(op, *block, 0, 0);
		break;
	case DO_RESIZE:
		r = gm_record_change(op, *block, alloc.address, plan->size, 0, GM_NONE);
		break;
	case DO_END:
		gm_record_context_end(op, 10 + thread, gm_stamp(), GM_NONE, NULL, NULL);
		break;
	case DO_NOTE:
		gm_record_note(GM_ACTION_ANNOTATE, alloc.domain, plan->size, 0);
		break;
	default:
		gm_record_failure(&failure);
	}
	gm_op_end(op);
	if (r)
		abort();		/* the parent sees a death that is not by SIGKILL */
}

struct leg { struct plan plan; unsigned int thread; uint64_t until; };

/* A thread lives for a while, then another one goes on in its place. */
static void *storm_leg(void *arg)
{
	struct leg *leg = arg;
	uint64_t done = gm_get(&shared->thread[leg->thread].returned);

	while (done < leg->until) {
		plan_next(&leg->plan, leg->thread);
		do_next(&leg->plan, leg->thread);
		gm_set_release(&shared->thread[leg->thread].returned, ++done);
	}
	return NULL;
}

static void *storm_thread(void *arg)
{
	struct leg leg = { .thread = (unsigned int)(uintptr_t)arg };

	plan_begin(&leg.plan, leg.thread);
	for (;;) {
		pthread_t thread;

		leg.until += 1000 + leg.thread * 300;
		if (pthread_create(&thread, NULL, storm_leg, &leg))
			abort();
		pthread_join(thread, NULL);
	}
	return NULL;
}

static void *helper(void *arg)
{
	(void)arg;
	gm_recorder_hold_alive();
	for (;;) {
		gm_recorder_tick();
		usleep(1000);
	}
	return NULL;
}

static void storm_child(uint64_t history)
{
	pthread_t thread;

	if (aux_try_start(history, "") < 0)
		_exit(1);
	for (uint64_t i = 1; i <= 7; i++)
		gm_publish_module(i << 32, i << 32, (i << 32) + 1, "/lib/x.so", NULL, 0);
	strcpy(shared->path, aux_report.path);
	if (pthread_create(&thread, NULL, helper, NULL))
		abort();
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, storm_thread, (void *)i))
			abort();
	gm_set_release(&shared->ready, 1);
	for (;;)
		pause();
}

/* Between the state after @n operations and the one after the next: the end of a context takes
 * its segments one by one. */
static bool may_be(const struct aux_live *found, const struct aux_live *before, const struct plan *next)
{
	if (aux_same(found, before) || aux_same(found, &next->live))
		return true;
	if (next->what != DO_END)
		return false;
	for (unsigned int i = 0; i < AUX_CELLS; i++)
		if (found->size[i] != before->size[i] &&
		    (found->size[i] || i < AUX_CELLS - CONTEXT_CELLS))
			return false;
	return true;
}

static uint64_t check_thread(const struct gm_copy *copy, unsigned int thread, bool whole_trace)
{
	uint64_t n = gm_get(&shared->thread[thread].returned);
	struct aux_live found = aux_live_in(copy, FIRST(thread), STRIDE), events, before;
	struct plan plan;

	plan_begin(&plan, thread);
	for (uint64_t i = 0; i < n; i++)
		plan_next(&plan, thread);
	before = plan.live;
	plan_next(&plan, thread);
	if (!may_be(&found, &before, &plan))
		ck_abort_msg("thread %u, %llu operations returned: what is live is wrong", thread,
			     (unsigned long long)n);
	if (whole_trace) {
		events = aux_replayed(copy, FIRST(thread), STRIDE);
		ck_assert(aux_same(&events, &found));
	}
	return n;
}

static unsigned long whole_traces;

static uint64_t check_dead(bool whole_trace)
{
	int fd = open(shared->path, O_RDONLY | O_CLOEXEC);
	uint64_t operations = 0, last = 0;
	struct gm_copy copy;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gm_copy_alive(fd), 0);
	aux_read_journal(fd, &copy);
	ck_assert_uint_eq(copy.header->events_lost, 0);
	ck_assert_uint_eq(copy.header->operations_lost, 0);
	/* On a busy machine the wait before the kill can be long enough to fill even that history. */
	whole_trace = whole_trace && copy.dropped_total == 0;
	whole_traces += whole_trace;
	for (size_t i = 0; i < copy.event_count; i++) {
		ck_assert_uint_ge(copy.events[i]->tsc, last);
		last = copy.events[i]->tsc;
	}
	for (unsigned int i = 0; i < THREADS; i++)
		operations += check_thread(&copy, i, whole_trace);
	ck_assert_uint_le(copy.flight_count, THREADS);
	gm_copy_free(&copy);
	close(fd);
	unlink(shared->path);
	return operations;
}

/* Every journal in the directory can be read or is none yet; all are removed. */
static void check_unfinished(void)
{
	char own[400];
	const struct dirent *entry;
	DIR *dir;

	snprintf(own, sizeof(own), "%s/gpumem-%u", aux_directory, geteuid());
	dir = opendir(own);
	while (dir && (entry = readdir(dir))) {
		struct gm_copy copy;
		int fd, r;

		if (entry->d_name[0] == '.')
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		ck_assert_int_ge(fd, 0);
		r = gm_copy_from_file(&copy, fd);
		ck_assert(r == 0 || r == -EBADMSG);
		if (r == 0) {
			ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
			ck_assert_int_eq(gm_copy_check(&copy, aux_complain, NULL), 0);
		}
		gm_copy_free(&copy);
		close(fd);
		unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
}

/* Kill one child. @early: maybe within its start. Returns operations that had returned. */
static uint64_t kill_one(uint64_t *random, uint64_t history, bool early)
{
	struct timespec wait = { .tv_nsec = early ? next_random(random) % 4000000 :
				 next_random(random) % 25000000 };
	pid_t child;
	int status;

	memset(shared, 0, sizeof(*shared));
	storm_seed = next_random(random);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		storm_child(history);
	for (unsigned int i = 0; !early && i < 20000 && !gm_get_acquire(&shared->ready); i++)
		usleep(1000);
	nanosleep(&wait, NULL);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "the child died by itself: %#x", status);
	if (early) {
		check_unfinished();
		return 0;
	}
	ck_assert_uint_eq(gm_get(&shared->ready), 1);
	return check_dead(history > 100000);
}

#define AT_ONCE 1000u			/* kills of one test: libcheck cannot say that one took 36 minutes */

static unsigned long kills_wanted(void)
{
	const char *text = getenv("GM_KILLS");

	return text ? strtoul(text, NULL, 10) : 300 / SLOWER + 10;
}

START_TEST(test_random_kills)
{
	unsigned long part = (unsigned long)_i, left = kills_wanted() - part * AT_ONCE;
	unsigned long kills = left < AT_ONCE ? left : AT_ONCE;
	uint64_t seed = part + test_seed(), random = seed, operations = 0;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	for (unsigned long i = 0; i < kills; i++) {
		bool early = i % 8 == 7;

		/* The whole trace; chunks recycled all the time; no history. */
		operations += kill_one(&random, i % 3 == 0 ? 1048576 : i % 3 == 1 ? 63 * 6 : 0, early);
	}
	ck_assert_uint_ge(whole_traces, kills / 6);	/* of the third that has room for it */
	printf("# %llu operations had returned before the kills; none is missing (%lu whole traces)\n",
	       (unsigned long long)operations, whole_traces);
	fflush(stdout);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kill");
	TCase *tc = tcase_create("kill");

	tcase_set_timeout(tc, 3600);	/* the runner has its own limit; GM_KILLS may be large */
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(tc, test_random_kills, 0, (int)((kills_wanted() + AT_ONCE - 1) / AT_ONCE));
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
