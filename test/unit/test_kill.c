/*
 * Death at any moment: whatever had returned is in the journal, and what it holds is sound.
 *
 * test_every_instruction: a child is stepped through its records one machine instruction at a
 * time; after each its journal is read as if it had been killed there.
 * test_random_kills: children that record from several threads are killed by SIGKILL at random
 * instants. Each thread keeps, in shared memory, the number of its operations that have returned;
 * the operations follow from the seed, so that the parent knows what must be there.
 *
 *	GM_KILLS=n  how many kills (default 150)      GM_SEED=n  the seed (printed)
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
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder/image.h"
#include "recorder/state.h"
#include "recorder/sys.h"
#include "test/unit/aux_journal.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 20u
#else
#define SLOWER 1u
#endif

#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

#define MIB (UINT64_C(1) << 20)
#define THREADS 4u
#define CELLS 24u			/* addresses of a thread */
#define CONTEXT_CELLS 4u		/* the last of them belong to a context that ends at times */

/* ---- what is live, as the test knows it ---------------------------------------------------- */

struct live { uint64_t address[CELLS], size[CELLS]; };	/* size 0: not live */

static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

static void complain(void *arg, const char *what, uint64_t where)
{
	(void)arg;
	printf("# violation: %s at %#llx\n", what, (unsigned long long)where);
	fflush(stdout);
}

/* Copy, settle and check the journal behind @fd. */
static void read_journal(int fd, struct gm_image *image)
{
	int r = gm_image_copy_file(image, fd);

	if (r < 0)
		ck_abort_msg("unreadable: %s (%s)", strerror(-r), image->error);
	ck_assert_int_eq(gm_image_settle(image, UINT64_MAX), 0);
	ck_assert_int_eq(gm_image_check(image, complain, NULL), 0);
	ck_assert_uint_eq(image->damage, 0);
}

/* The sizes of what the image says is live among [first, first + CELLS * stride). */
static struct live live_in(const struct gm_image *image, uint64_t first, uint64_t stride)
{
	struct live live = { .size = { 0 } };

	for (size_t i = 0; i < image->segment_count; i++) {
		const struct gm_segment *s = gm_image_segment(image, image->segments[i]);

		if (s->address >= first && s->address < first + CELLS * stride) {
			live.address[(s->address - first) / stride] = s->address;
			live.size[(s->address - first) / stride] = s->size;
		}
	}
	return live;
}

/* The same by replaying the trace, which is whole: no event may have been dropped. */
static struct live replayed(const struct gm_image *image, uint64_t first, uint64_t stride)
{
	struct live live = { .size = { 0 } };

	for (size_t i = 0; i < image->event_count; i++) {
		const struct gm_event *e = image->events[i];
		uint64_t cell = (e->address - first) / stride;

		if (e->address < first || cell >= CELLS)
			continue;
		if (e->action == GM_ACTION_SEGMENT_ALLOC || e->action == GM_ACTION_SEGMENT_MAP) {
			ck_assert_uint_eq(live.size[cell], 0);
			live.address[cell] = e->address;
			live.size[cell] = e->size;
		} else if (e->action == GM_ACTION_SEGMENT_FREE ||
			   e->action == GM_ACTION_SEGMENT_UNMAP) {
			ck_assert_uint_eq(live.size[cell], e->size);
			live.address[cell] = 0;
			live.size[cell] = 0;
		}
	}
	return live;
}

static bool same(const struct live *a, const struct live *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* ---- one machine instruction after the other ------------------------------------------------ */

#define STEP_FIRST UINT64_C(0x100000000)
#define STEP_STRIDE (16 * MIB)
#define STEP_OPS 12u

static _Atomic(uint32_t) *returned;	/* shared: operations of the stepped child that are over */

static struct gm_alloc step_alloc(uint8_t domain, unsigned int cell, uint64_t size)
{
	struct gm_alloc alloc = aux_alloc(domain, STEP_FIRST + cell * STEP_STRIDE, size);

	alloc.tsc = 0;
	return alloc;
}

static void step_one(unsigned int n, uint32_t *block)
{
	struct gm_failure failure = { .requested_bytes = 5, .result = 2, .entry = "x" };
	struct gm_alloc alloc;
	uint64_t op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, n);

	switch (n) {
	case 0: alloc = step_alloc(0, 0, 3 * MIB); gm_record_alloc(op, &alloc, &block[0]); break;
	case 1: alloc = step_alloc(0, 1, 512); gm_record_alloc(op, &alloc, &block[1]); break;
	case 2: alloc = step_alloc(1, 2, 2 * MIB); gm_record_alloc(op, &alloc, &block[2]); break;
	case 3: gm_record_freeing(block[0]); gm_record_free(op, block[0], 0, 0); break;
	case 4: alloc = step_alloc(0, 3, MIB); gm_record_alloc(op, &alloc, &block[3]); break;
	case 5: gm_record_change(op, block[3], STEP_FIRST + 3 * STEP_STRIDE, 7 * MIB, 0); break;
	case 6: gm_record_change(op, block[1], STEP_FIRST + 4 * STEP_STRIDE, 512, 0); break;
	case 7: gm_record_failure(&failure); break;
	case 8: gm_record_note(GM_ACTION_ANNOTATE, 0, 1, 0); break;
	case 9: gm_record_reset_stats(0, GM_RESET_PEAK); break;
	case 10: gm_record_freeing(block[1]); gm_record_free(op, block[1], 0, 0); break;
	default: gm_record_context_end(op, 1, 0, NULL, NULL);
	}
	gm_op_end(op);
}

/* What is live when the first @n operations have returned. */
static struct live step_live(unsigned int n)
{
	static const struct { uint8_t cell, after, until; uint64_t size; } when[] = {
		{ 0, 1, 4, 3 * MIB }, { 1, 2, 7, 512 }, { 2, 3, 12, 2 * MIB }, { 3, 5, 6, MIB },
		{ 3, 6, 12, 7 * MIB }, { 4, 7, 11, 512 },
	};
	struct live live = { .size = { 0 } };

	for (unsigned int i = 0; i < sizeof(when) / sizeof(when[0]); i++) {
		if (n < when[i].after || n >= when[i].until)
			continue;
		live.address[when[i].cell] = STEP_FIRST + when[i].cell * STEP_STRIDE;
		live.size[when[i].cell] = when[i].size;
	}
	return live;
}

/* In the last operation, which has a transaction for each segment, any of them may be gone. */
static bool part_of_end(const struct live *live)
{
	struct live before = step_live(STEP_OPS - 1);

	for (unsigned int i = 0; i < CELLS; i++)
		if (live->size[i] && live->size[i] != before.size[i])
			return false;
	return true;
}

/* Peak of domain 0's allocated bytes when the first @n operations have returned: the tenth sets
 * it to what is live. Cell 2 is on domain 1. */
static int64_t step_peak(unsigned int n)
{
	int64_t peak = 0;

	for (unsigned int i = 0; i <= n; i++) {
		struct live live = step_live(i);
		int64_t sum = 0;

		for (unsigned int cell = 0; cell < CELLS; cell++)
			sum += cell == 2 ? 0 : (int64_t)live.size[cell];
		if (sum > peak || i == 10)
			peak = sum;
	}
	return peak;
}

static int small_limit(int resource, struct rlimit *ret)
{
	*ret = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	if (resource == RLIMIT_FSIZE)
		ret->rlim_cur = 2 * MIB;	/* a small file is read quickly */
	return 0;
}

static void step_child(uint64_t history, unsigned int notes, char *path)
{
	uint32_t blocks[4] = { 0 };

	gm_sys.limit = small_limit;
	if (aux_try_start(history, "") < 0)
		_exit(1);
	for (uint64_t i = 1; i <= 7; i++)
		gm_publish_module(i << 32, i << 32, (i << 32) + 1, "/lib/x.so", NULL, 0);
	for (unsigned int i = 0; i < notes; i++)
		gm_record_note(GM_ACTION_ANNOTATE, 0, i, 0);
	gm_record_free_bytes(0, 1, 2);
	strcpy(path, aux_report.path);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	for (unsigned int n = 0; n < STEP_OPS; n++) {
		step_one(n, blocks);
		gm_set_release(returned, n + 1);
	}
	_exit(0);
}

/* Read the journal as it is now, and compare with what must and what may be live. */
static void check_step(int fd, bool whole_trace)
{
	unsigned int n = gm_get(returned);
	struct live before = step_live(n), after = step_live(n + 1), found, events;
	struct gm_image image;
	uint64_t last_op = 0;
	int64_t peak;

	read_journal(fd, &image);
	found = live_in(&image, STEP_FIRST, STEP_STRIDE);
	if (!same(&found, &before) && !same(&found, &after) &&
	    !(n == STEP_OPS - 1 && part_of_end(&found)))
		ck_abort_msg("after operation %u: neither what was live before the next nor after", n);
	ck_assert_uint_le(image.flight_count, 1);
	/* What is in flight has not taken effect, if it is one transaction that has one. */
	if (image.flight_count && n < STEP_OPS - 1 && !same(&found, &before))
		ck_abort_msg("operation %u has taken effect, and is shown in flight", n + 1);
	peak = gm_image_domain(&image, 0)->stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].peak;
	if (peak != step_peak(n))
		ck_assert(peak == step_peak(n + 1) && same(&found, &after));
	/* One thread: later events are of later operations. An event that was half written over an
	 * older one would not be. */
	for (size_t i = 0; i < image.event_count; i++) {
		ck_assert_uint_ge(image.events[i]->op, last_op);
		last_op = image.events[i]->op;
	}
	if (whole_trace) {
		ck_assert_uint_eq(image.dropped_total, 0);
		events = replayed(&image, STEP_FIRST, STEP_STRIDE);
		ck_assert(same(&events, &found));
	}
	gm_image_free(&image);
}

static void step_through(uint64_t history, unsigned int notes, bool whole_trace)
{
	static unsigned int runs;	/* each looks at other instructions */
	unsigned int stride = 5 * SLOWER, steps = runs++ * 2 * SLOWER, looks = 0;
	char *path;
	pid_t child;
	int status, fd;

	returned = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(returned, MAP_FAILED);
	path = (char *)returned + 4096;
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		step_child(history, notes, path);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSTOPPED(status), "the child did not start: %#x", status);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	for (;;) {
		ck_assert_int_eq((int)ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		if (!WIFSTOPPED(status))
			break;
		/* The end of a context is long and repeats itself. */
		if (steps++ % (gm_get(returned) == STEP_OPS - 1 ? stride * 11 : stride))
			continue;
		check_step(fd, whole_trace);
		looks++;
	}
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(gm_get(returned), STEP_OPS);
	check_step(fd, whole_trace);
	printf("# %u instructions, %u looks, history %llu\n", steps, looks,
	       (unsigned long long)history);
	fflush(stdout);
	close(fd);
	unlink(path);
}

START_TEST(test_every_instruction)
{
	/* The whole trace; and one chunk only, that is recycled within the operations. */
	step_through(10000, 0, true);
	step_through(63, 40, false);
	step_through(10000, 61, true);	/* a chunk is closed within one */
}
END_TEST

/* ---- random instants ------------------------------------------------------------------------ */

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
struct plan { uint64_t state; struct live live; unsigned int cell; uint64_t size; int what; };
enum { DO_ALLOC, DO_FREE, DO_RESIZE, DO_END, DO_NOTE, DO_FAILURE };

static void plan_begin(struct plan *plan, unsigned int thread)
{
	memset(plan, 0, sizeof(*plan));
	plan->state = storm_seed * 1000003 + thread;
}

static void plan_next(struct plan *plan, unsigned int thread)
{
	uint32_t random = next_random(&plan->state);
	unsigned int cell = random % CELLS;

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
		memset(&plan->live.address[CELLS - CONTEXT_CELLS], 0,
		       CONTEXT_CELLS * sizeof(plan->live.address[0]));
		memset(&plan->live.size[CELLS - CONTEXT_CELLS], 0,
		       CONTEXT_CELLS * sizeof(plan->live.size[0]));
	}
}

static uint32_t storm_blocks[THREADS][CELLS];

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

	alloc.context = plan->cell >= CELLS - CONTEXT_CELLS ? 10 + thread : 1;
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
		r = gm_record_change(op, *block, alloc.address, plan->size, 0);
		break;
	case DO_END:
		gm_record_context_end(op, 10 + thread, gm_stamp(), NULL, NULL);
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
static bool may_be(const struct live *found, const struct live *before, const struct plan *next)
{
	if (same(found, before) || same(found, &next->live))
		return true;
	if (next->what != DO_END)
		return false;
	for (unsigned int i = 0; i < CELLS; i++)
		if (found->size[i] != before->size[i] &&
		    (found->size[i] || i < CELLS - CONTEXT_CELLS))
			return false;
	return true;
}

static uint64_t check_thread(const struct gm_image *image, unsigned int thread, bool whole_trace)
{
	uint64_t n = gm_get(&shared->thread[thread].returned);
	struct live found = live_in(image, FIRST(thread), STRIDE), events, before;
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
		events = replayed(image, FIRST(thread), STRIDE);
		ck_assert(same(&events, &found));
	}
	return n;
}

static uint64_t check_dead(bool whole_trace)
{
	int fd = open(shared->path, O_RDONLY | O_CLOEXEC);
	uint64_t operations = 0, last = 0;
	struct gm_image image;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gm_image_alive(fd), 0);
	read_journal(fd, &image);
	ck_assert_uint_eq(image.header->events_lost, 0);
	ck_assert_uint_eq(image.header->operations_lost, 0);
	if (whole_trace)
		ck_assert_uint_eq(image.dropped_total, 0);
	for (size_t i = 0; i < image.event_count; i++) {
		ck_assert_uint_ge(image.events[i]->tsc, last);
		last = image.events[i]->tsc;
	}
	for (unsigned int i = 0; i < THREADS; i++)
		operations += check_thread(&image, i, whole_trace);
	ck_assert_uint_le(image.flight_count, THREADS);
	gm_image_free(&image);
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
		struct gm_image image;
		int fd, r;

		if (entry->d_name[0] == '.')
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		ck_assert_int_ge(fd, 0);
		r = gm_image_copy_file(&image, fd);
		ck_assert(r == 0 || r == -EBADMSG);
		if (r == 0) {
			ck_assert_int_eq(gm_image_settle(&image, UINT64_MAX), 0);
			ck_assert_int_eq(gm_image_check(&image, complain, NULL), 0);
		}
		gm_image_free(&image);
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

START_TEST(test_random_kills)
{
	const char *kills_text = getenv("GM_KILLS"), *seed_text = getenv("GM_SEED");
	unsigned long kills = kills_text ? strtoul(kills_text, NULL, 10) : 150 / SLOWER + 10;
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : (uint64_t)time(NULL);
	uint64_t random = seed, operations = 0;

	printf("# seed %llu, %lu kills\n", (unsigned long long)seed, kills);
	fflush(stdout);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	for (unsigned long i = 0; i < kills; i++) {
		bool early = i % 8 == 7;

		/* The whole trace; chunks recycled all the time; no history. */
		operations += kill_one(&random, i % 3 == 0 ? 1048576 : i % 3 == 1 ? 63 * 6 : 0, early);
	}
	printf("# %llu operations had returned before the kills; none is missing\n",
	       (unsigned long long)operations);
	fflush(stdout);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kill");
	TCase *tc = tcase_create("kill");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 3600);	/* the runner has its own limit; GM_KILLS may be large */
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	if (!UNDER_TSAN)		/* its own instructions, three million of them */
		tcase_add_test(tc, test_every_instruction);
	tcase_add_test(tc, test_random_kills);
	suite_add_tcase(suite, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
