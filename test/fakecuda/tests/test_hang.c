/*
 * test_hang.c - the hang oracle: what it reports, and what it must leave alone. Waits for real
 * time only where nothing else can show it, and never asserts how long something took.
 */
#include "work.h"

#include <signal.h>
#include <sys/wait.h>

static CUstream a, b;
static CUdeviceptr flag;
static uint32_t *word;

static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	flag = 0;
	word = host_word(&flag);
	fakecuda_set_hang_ms(50, CUDA_ERROR_LAUNCH_TIMEOUT);
}

START_TEST(nobody_sets_the_flag)
{
	wait_flag(a, flag, 1);
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_uint_eq(fakecuda_hangs(), 1);
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "a thread in cuStreamSynchronize"));
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "wait_flag on stream"));
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "is 0, wanted == 0x1"));
	ck_assert_ptr_null(fakecuda_hang_text(1));
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_uint_eq(fakecuda_hangs(), 2);
	set_word(word, 1);			/* nothing is broken for good */
	OK(cuStreamSynchronize(a));
}
END_TEST

START_TEST(two_streams_wait_for_each_other)
{
	CUdeviceptr f = device_word(), g = device_word();

	OK(cuStreamWaitValue32(a, f, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32(a, g, 1, 0));
	OK(cuStreamWaitValue32(b, g, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32(b, f, 1, 0));
	FAILS(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "all of context"));
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "cuStreamWaitValue32"));
}
END_TEST

START_TEST(nobody_signals_the_semaphore)
{
	await_semaphore(a, semaphore(), 5);
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "semaphore 0 is 0, wanted 5"));
}
END_TEST

/* What the library must never do: a free that waits for a kernel whose flag comes after it. */
START_TEST(free_that_waits)
{
	CUdeviceptr p = alloc(4096);

	wait_flag(a, flag, 1);
	FAILS(cuMemFree(p), CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "cuMemFree"));
	set_word(word, 1);
	OK(cuMemFree(p));
}
END_TEST

START_TEST(long_work_is_no_hang)
{
	spin(a, flag);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(fakecuda_hangs(), 0);
}
END_TEST

/* Calls the driver again and again for several times the grace, then sets the flag. */
static void *poll_then_set(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(work_ctx));
	for (int i = 0; i < 300; i++) {
		cuStreamQuery(b);
		sleep_ms(1);
	}
	set_word(word, 1);
	return NULL;
}

START_TEST(another_thread_polls)
{
	pthread_t t;

	fakecuda_set_step_ns(0);		/* its calls move nothing, yet they are calls */
	wait_flag(a, flag, 1);
	ck_assert_int_eq(pthread_create(&t, NULL, poll_then_set, NULL), 0);
	OK(cuStreamSynchronize(a));
	pthread_join(t, NULL);
	ck_assert_uint_eq(fakecuda_hangs(), 0);
}
END_TEST

/* Computes without calling anybody for several times the grace. */
static void *compute_then_set(void *unused)
{
	struct timespec from, now;

	(void)unused;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < 300);
	set_word(word, 1);
	return NULL;
}

START_TEST(another_thread_computes)
{
	pthread_t t;

	wait_flag(a, flag, 1);
	ck_assert_int_eq(pthread_create(&t, NULL, compute_then_set, NULL), 0);
	OK(cuStreamSynchronize(a));
	pthread_join(t, NULL);
	ck_assert_uint_eq(fakecuda_hangs(), 0);
}
END_TEST

static void *wait_for_b(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(work_ctx));
	FAILS(cuStreamSynchronize(b), CUDA_ERROR_LAUNCH_TIMEOUT);
	return NULL;
}

START_TEST(all_threads_wait)
{
	pthread_t t;

	wait_flag(a, flag, 1);
	wait_flag(b, flag, 2);
	ck_assert_int_eq(pthread_create(&t, NULL, wait_for_b, NULL), 0);
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_LAUNCH_TIMEOUT);
	pthread_join(t, NULL);
	ck_assert_uint_ge(fakecuda_hangs(), 1);
}
END_TEST

static void *set_when_reported(void *unused)
{
	(void)unused;
	for (int i = 0; i < 20000 && !fakecuda_hangs(); i++)
		sleep_ms(1);
	sleep_ms(100);
	set_word(word, 1);
	return NULL;
}

START_TEST(report_and_go_on)
{
	pthread_t t;

	fakecuda_set_hang_ms(50, 0);
	wait_flag(a, flag, 1);
	ck_assert_int_eq(pthread_create(&t, NULL, set_when_reported, NULL), 0);
	OK(cuStreamSynchronize(a));
	pthread_join(t, NULL);
	ck_assert_uint_eq(fakecuda_hangs(), 1);
}
END_TEST

static void wait_in_host_function(void *unused)
{
	(void)unused;
	sleep_ms(300);
}

START_TEST(host_function_takes_long)
{
	OK(cuLaunchHostFunc(a, wait_in_host_function, NULL));
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(fakecuda_hangs(), 0);
}
END_TEST

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void need_the_lock(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

/* What a library does that waits for the GPU with its lock held. */
START_TEST(host_function_needs_what_the_waiter_holds)
{
	fakecuda_set_hang_ms(20, CUDA_ERROR_LAUNCH_TIMEOUT);
	pthread_mutex_lock(&lock);
	OK(cuLaunchHostFunc(a, need_the_lock, NULL));
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_LAUNCH_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fakecuda_hang_text(0), "host function has not returned"));
	pthread_mutex_unlock(&lock);
	OK(cuStreamSynchronize(a));
}
END_TEST

/* ---- environment ---- */

static int in_child(const char *hang)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("FAKECUDA_HANG", hang, 1);
		setenv("FAKECUDA_HANG_MS", "50", 1);
		freopen("/dev/null", "w", stderr);
		work_setup();
		word = host_word(&flag);
		wait_flag(NULL, flag, 1);
		signal(SIGALRM, SIG_DFL);	/* check's handler kills its process group */
		if (!strcmp(hang, "off"))
			alarm(1);
		_exit(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_TIMEOUT ? 3 : 4);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

START_TEST(environment)
{
	ck_assert_int_eq(in_child("exit"), 67);
	ck_assert_int_eq(in_child(""), 3);
	ck_assert_int_eq(in_child("off"), -SIGALRM);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		nobody_sets_the_flag, two_streams_wait_for_each_other,
		nobody_signals_the_semaphore, free_that_waits,
		long_work_is_no_hang, another_thread_polls, another_thread_computes,
		all_threads_wait, report_and_go_on, host_function_takes_long,
		host_function_needs_what_the_waiter_holds,
	};
	Suite *suite = suite_create("hang");
	TCase *tc = tcase_create("oracle"), *alone = tcase_create("environment");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	tcase_set_timeout(tc, 60);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_test(alone, environment);
	tcase_set_timeout(alone, 60);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, alone);
	return run_suite(suite);
}
