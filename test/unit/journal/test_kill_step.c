/*
 * Death at every machine instruction: a child is stepped through its records; after each step its
 * journal is read as if the child had been killed there. What had returned is in it, what it holds
 * is sound, and at most the operation under way is there or not there.
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "recorder/record/lives_change.h"
#include "recorder/record/pools.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/journal/aux_live.h"
/* A clock that is read by a system call, which is one step. The vDSO reads again until the host has left its record of
 * the time alone, and where the clock source is kvm-clock, the host changes the record between any two steps. */
#include "test/unit/leaps.h"

#if defined(__SANITIZE_ADDRESS__)
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
#define STEP_FIRST UINT64_C(0x100000000)
#define STEP_STRIDE (16 * MIB)
#define STEP_OPS 18u

static _Atomic(uint32_t) *returned;	/* shared: operations of the stepped child that are over */

static struct gm_alloc step_alloc(uint8_t domain, unsigned int cell, uint64_t size)
{
	struct gm_alloc alloc = aux_alloc(domain, STEP_FIRST + cell * STEP_STRIDE, size);

	alloc.tsc = 0;
	return alloc;
}

static struct gm_lives lives;

static void hand_out(unsigned int cell, uint64_t size)
{
	const struct gm_handed block = { .address = STEP_FIRST + cell * STEP_STRIDE, .size = size, .module = 1 };

	gm_lives_add(&lives, &block);
}

static void step_one(unsigned int n, uint32_t *block)
{
	struct gm_failure failure = { .requested_bytes = 5, .result = 2, .entry = "x" };
	struct gm_alloc alloc;
	bool of_table = n >= 12 && n <= 15;		/* what a pool hands out has no flight */
	uint64_t op = of_table ? 0 : gm_op_begin(GM_ACTION_ALLOC, GM_KIND_DEVICE, 0, 0, n);

	switch (n) {
	case 0: alloc = step_alloc(0, 0, 3 * MIB); gm_record_alloc(op, &alloc, &block[0]); break;
	case 1: alloc = step_alloc(0, 1, 512); gm_record_alloc(op, &alloc, &block[1]); break;
	case 2: alloc = step_alloc(1, 2, 2 * MIB); gm_record_alloc(op, &alloc, &block[2]); break;
	case 3: gm_record_freeing(block[0]); gm_record_free(op, block[0], 0, 0); break;
	case 4: alloc = step_alloc(0, 3, MIB); gm_record_alloc(op, &alloc, &block[3]); break;
	case 5: gm_record_change(op, block[3], STEP_FIRST + 3 * STEP_STRIDE, 7 * MIB, 0, GM_NONE); break;
	case 6: gm_record_change(op, block[1], STEP_FIRST + 4 * STEP_STRIDE, 512, 0, GM_NONE); break;
	case 7: gm_record_failure(&failure); break;
	case 8: gm_record_note(GM_ACTION_ANNOTATE, 0, 1, 0); break;
	case 9: gm_record_reset_stats(0, GM_RESET_PEAK); break;
	case 10: gm_record_freeing(block[1]); gm_record_free(op, block[1], 0, 0); break;
	/* A pool of the program's: a piece that it holds, a block that it hands out; both end. */
	case 11: alloc = step_alloc(GM_DOMAIN_POOLS, 5, 8 * MIB); alloc.flags = GM_SEGMENT_HELD;
		gm_record_alloc(op, &alloc, &block[4]); break;
	case 12: hand_out(6, MIB); break;
	case 13: gm_lives_end(&lives, STEP_FIRST + 6 * STEP_STRIDE, GM_STACK_OF_BLOCK); break;
	case 14: hand_out(7, 512); break;
	case 15: gm_lives_end(&lives, STEP_FIRST + 7 * STEP_STRIDE, GM_STACK_OF_BLOCK); break;
	case 16: gm_record_free(op, block[4], 0, 0); break;
	default: gm_record_context_end(op, 1, 0, GM_NONE, NULL, NULL);
	}
	gm_op_end(op);
}

/* What is live when the first @n operations have returned. */
static struct aux_live step_live(unsigned int n)
{
	static const struct { uint8_t cell, after, until; uint64_t size; } when[] = {
		{ 0, 1, 4, 3 * MIB }, { 1, 2, 7, 512 }, { 2, 3, STEP_OPS, 2 * MIB }, { 3, 5, 6, MIB },
		{ 3, 6, STEP_OPS, 7 * MIB }, { 4, 7, 11, 512 }, { 5, 12, 17, 8 * MIB }, { 6, 13, 14, MIB },
		{ 7, 15, 16, 512 },
	};
	struct aux_live live = { .size = { 0 } };

	for (unsigned int i = 0; i < sizeof(when) / sizeof(when[0]); i++) {
		if (n < when[i].after || n >= when[i].until)
			continue;
		live.address[when[i].cell] = STEP_FIRST + when[i].cell * STEP_STRIDE;
		live.size[when[i].cell] = when[i].size;
	}
	return live;
}

/* In the last operation, which has a transaction for each segment, any of them may be gone. */
static bool part_of_end(const struct aux_live *live)
{
	struct aux_live before = step_live(STEP_OPS - 1);

	for (unsigned int i = 0; i < AUX_CELLS; i++)
		if (live->size[i] && live->size[i] != before.size[i])
			return false;
	return true;
}

/* Peak of domain 0's allocated bytes when the first @n operations have returned: the tenth sets
 * it to what is live. Cell 2 is on domain 1, cells from 5 on are a pool's. */
static int64_t step_peak(unsigned int n)
{
	int64_t peak = 0;

	for (unsigned int i = 0; i <= n; i++) {
		struct aux_live live = step_live(i);
		int64_t sum = 0;

		for (unsigned int cell = 0; cell < 5; cell++)
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
	uint32_t blocks[5] = { 0 };

	gm_sys.limit = small_limit;
	if (aux_try_start(history, "") < 0)
		_exit(1);
	for (uint64_t i = 1; i <= 7; i++)
		gm_publish_module(i << 32, i << 32, (i << 32) + 1, "/lib/x.so", NULL, 0);
	for (unsigned int i = 0; i < notes; i++)
		gm_record_note(GM_ACTION_ANNOTATE, 0, i, 0);
	gm_record_free_bytes(0, 1, 2, 0);
	if (gm_record_pool(GM_POOL_API, 0, gm_intern_string("pool", 4), 1) != GM_DOMAIN_POOLS)
		_exit(3);
	if (!gm_lives_begin(&lives, GM_DOMAIN_POOLS, 0))
		_exit(4);
	strcpy(path, aux_report.path);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(2);
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
	struct aux_live before = step_live(n), after = step_live(n + 1), found, events;
	struct gm_copy copy;
	uint64_t last_op = 0;
	int64_t peak;

	aux_read_journal(fd, &copy);
	found = aux_live_in(&copy, STEP_FIRST, STEP_STRIDE);
	if (!aux_same(&found, &before) && !aux_same(&found, &after) &&
	    !(n == STEP_OPS - 1 && part_of_end(&found)))
		ck_abort_msg("after operation %u: neither what was live before the next nor after", n);
	ck_assert_uint_le(copy.flight_count, 1);
	/* What is in flight has not taken effect, if it is one transaction that has one. */
	if (copy.flight_count && n < STEP_OPS - 1 && !aux_same(&found, &before))
		ck_abort_msg("operation %u has taken effect, and is shown in flight", n + 1);
	peak = gm_copy_domain(&copy, 0)->stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].peak;
	if (peak != step_peak(n))
		ck_assert(peak == step_peak(n + 1) && aux_same(&found, &after));
	/* One thread: later events are of later operations. An event that was half written over an
	 * older one would not be. */
	for (size_t i = 0; i < copy.event_count; i++) {
		ck_assert_uint_ge(copy.events[i]->op, last_op);
		last_op = copy.events[i]->op;
	}
	if (whole_trace) {
		ck_assert_uint_eq(copy.dropped_total, 0);
		events = aux_replayed(&copy, STEP_FIRST, STEP_STRIDE);
		ck_assert(aux_same(&events, &found));
	}
	gm_copy_free(&copy);
}

/* Start a child that is about to do its operations; its journal is open as *@ret_fd. */
static pid_t stepped_child(uint64_t history, unsigned int notes, int *ret_fd)
{
	char *path;
	pid_t child;
	int status;

	returned = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(returned, MAP_FAILED);
	path = (char *)returned + 4096;
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		step_child(history, notes, path);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSTOPPED(status), "the child did not start: %#x", status);
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(*ret_fd, 0);
	unlink(path);
	return child;
}

static void step_through(uint64_t history, unsigned int notes, bool whole_trace)
{
	static unsigned int runs;	/* each looks at other instructions */
	unsigned int stride = 5 * SLOWER, steps = runs++ * 2 * SLOWER, looks = 0;
	int status, fd;
	pid_t child = stepped_child(history, notes, &fd);

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
}

/* The same operations at one go, looked at before and after. */
START_TEST(test_at_one_go)
{
	int status, fd;
	pid_t child = stepped_child(10000, 0, &fd);

	check_step(fd, true);
	ck_assert_int_eq((int)ptrace(PTRACE_CONT, child, NULL, NULL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(gm_get(returned), STEP_OPS);
	check_step(fd, true);
	close(fd);
}
END_TEST

START_TEST(test_every_instruction)
{
	/* The whole trace; and one chunk only, that is recycled within the operations. */
	step_through(10000, 0, true);
	step_through(63, 40, false);
	step_through(10000, 61, true);	/* a chunk is closed within one */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kill step");
	TCase *tc = tcase_create("kill step");

	tcase_set_timeout(tc, 110);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_test(tc, test_at_one_go);
	if (!UNDER_TSAN)		/* its own instructions, three million of them */
		tcase_add_test(tc, test_every_instruction);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
