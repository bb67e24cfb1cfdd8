/*
 * Commands from outside (gpumem ctl) while the program's threads allocate and free: the helper thread
 * switches the history, resets peaks, empties the cache and sets limits beside them. On the fake driver.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "allocator/heap.h"
#include "allocator/lock.h"
#include "preload/api/gpumem.h"
#include "preload/triggers/trigger.h"
#include "recorder/journal/recorder.h"
#include "recorder/read/copy.h"
#include "test/hooked/hooked.h"

#define THREADS 3u
#define COMMANDS 120u
#define LIMIT (UINT64_C(4) << 30)	/* never in the way */

static CUcontext context;
static _Atomic(bool) over;

static void *work(void *arg)
{
	static const size_t sizes[] = { 512, 70000, (size_t)3 << 20, (size_t)30 << 20 };
	CUdeviceptr held[8] = { 0 };

	OK(cuCtxSetCurrent(context));
	for (unsigned int i = (unsigned int)(uintptr_t)arg; !over; i++) {
		CUdeviceptr *at = &held[i * 7 % 8];

		if (*at)
			OK(cuMemFree_v2(*at));
		OK(cuMemAlloc_v2(at, sizes[i % 4]));
		sched_yield();
	}
	for (unsigned int i = 0; i < 8; i++)
		if (held[i])
			OK(cuMemFree_v2(held[i]));
	return NULL;
}

/* As gpumem ctl asks; waits for the answer. */
static int ask(enum gm_control_command command, uint32_t device, uint64_t bytes)
{
	struct gm_header *header = gm_recorder_header();
	struct gm_control *control = &header->control;
	const struct timespec pause = { 0, 1000000 };
	uint32_t turn = (gm_get_acquire(&control->turn) & ~3u) + GM_CONTROL_TURNS;

	control->command = command;
	control->device = device;
	control->bytes = bytes;
	gm_set_release(&control->turn, turn | GM_CONTROL_ASKED);
	atomic_fetch_add(&header->request, 1);
	gm_trigger_wake(&header->request);
	while (gm_get_acquire(&control->turn) != (turn | GM_CONTROL_ANSWERED))
		nanosleep(&pause, NULL);
	return control->result;
}

START_TEST(test_commands)
{
	const struct gm_control *control;
	pthread_t threads[THREADS];
	struct gm_copy copy;
	CUdeviceptr first;

	setenv("GPUMEM_ALLOCATOR", "caching", 1);
	context = begin();
	OK(cuMemAlloc_v2(&first, 512));		/* the device is in use from here on */
	OK(cuMemFree_v2(first));
	control = &gm_recorder_header()->control;
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (uint32_t i = 0; i < COMMANDS; i++) {
		enum gm_control_command command = GM_CONTROL_SHOW + i % (GM_CONTROL_COUNT - 1);
		uint32_t device = i % 5 ? GM_CONTROL_ALL : 0;

		ck_assert_int_eq(ask(command, device, i % 2 ? LIMIT : GM_HEAP_UNLIMITED), 0);
		ck_assert_uint_eq(control->devices[0].used, 1);
		if (command == GM_CONTROL_HISTORY_OFF)
			ck_assert_uint_eq(control->history, GM_HISTORY_NONE);
		if (command == GM_CONTROL_HISTORY_STATE)
			ck_assert_uint_eq(control->history, GM_HISTORY_STATE);
	}
	over = true;
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(ask(GM_CONTROL_EMPTY_CACHE, GM_CONTROL_ALL, 0), 0);
	ck_assert_uint_eq(control->devices[0].allocated, 0);
	ck_assert_int_eq(ask(GM_CONTROL_MEMORY_LIMIT, 0, LIMIT), 0);
	ck_assert_uint_eq(control->devices[0].limit, LIMIT);
	ck_assert_uint_eq(control->devices[0].limited_by, GM_LIMIT_CTL);
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	ck_assert_uint_eq(copy.damage, 0);
	gm_copy_free(&copy);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

START_TEST(test_nonsense)
{
	for (int64_t place = 0; place < 256; place++)	/* ranges from before the record, of which there is none */
		ck_assert_int_eq(gpumem_range_end(INT64_C(1) << 60 | 1 << 8 | place), -EINVAL);
	setenv("GPUMEM_ALLOCATOR", _i ? "caching" : "native", 1);
	context = begin();
	ck_assert_int_eq(ask(0, GM_CONTROL_ALL, 0), -EINVAL);
	ck_assert_int_eq(ask(GM_CONTROL_COUNT, 0, 0), -EINVAL);
	ck_assert_int_eq(ask(UINT32_MAX, 0, UINT64_MAX), -EINVAL);
	ck_assert_int_eq(ask(GM_CONTROL_SHOW, GM_MAX_DEVICES, 0), -EINVAL);
	ck_assert_int_eq(ask(GM_CONTROL_EMPTY_CACHE, GM_MAX_DEVICES - 1, 0), -ENODEV);
	ck_assert_int_eq(ask(GM_CONTROL_MEMORY_LIMIT, 0, 0), _i ? 0 : -ENOTSUP);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control");
	TCase *tc = tcase_create("control");

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, test_commands);
	tcase_add_loop_test(tc, test_nonsense, 0, 2);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
