/*
 * test_race_words.c - the race detector: order by words in memory and semaphores, by host functions
 * and between host threads.
 */
#include "race.h"

/* ---- words in memory ---- */

START_TEST(word_orders_streams)
{
	CUdeviceptr flag = device_word();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);			/* submitted first, happens second */
	fill(a, p, 1, WORDS);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(p), 2);
	no_races();
}
END_TEST

START_TEST(word_written_too_early)
{
	CUdeviceptr flag = device_word();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	fill(a, p, 1, WORDS);
	OK(cuCtxSynchronize());
	races("unordered");
}
END_TEST

START_TEST(word_written_by_a_copy)
{
	CUdeviceptr flag = device_word();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	OK(cuMemsetD32Async(flag, 1, 1, a));
	OK(cuCtxSynchronize());
	no_races();
}
END_TEST

START_TEST(word_written_by_the_host)
{
	CUdeviceptr flag;
	uint32_t *word = host_word(&flag);

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(a));
	set_word(word, 1);			/* by one who knows a's work complete */
	OK(cuStreamSynchronize(b));
	no_races();
}
END_TEST

START_TEST(word_written_by_an_ignorant_host)
{
	CUdeviceptr flag;
	uint32_t *word = host_word(&flag);

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	fakecuda_advance(1000000000);
	set_word(word, 1);
	OK(cuStreamSynchronize(b));
	races("unordered");
}
END_TEST

/* What the host has seen complete is not forgotten while somebody waits who has not. */
START_TEST(word_awaited_since_before_the_sync)
{
	CUdeviceptr flag = device_word(), q = alloc(4096);
	CUstream c = stream();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, 1);
	spin(c, q);				/* submitted by a host that knows nothing yet */
	OK(cuStreamWriteValue32(c, flag, 1, 0));
	for (unsigned int i = 0; i < 300; i++)
		fill(a, p + 64 * i, 1, 1);
	OK(cuStreamSynchronize(a));
	no_races();
	OK(cuStreamSynchronize(b));
	races("unordered");
}
END_TEST

/* A kernel that waits touches its data after the word changed, but occupies it from the start. */
START_TEST(waiting_kernel_reads_after)
{
	CUdeviceptr flag = device_word();
	uint32_t one = 1;
	void *args[] = { &flag, &one, &p };

	launch("wait_flag_data", b, args);
	fill(a, p, 1, WORDS);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	OK(cuCtxSynchronize());
	no_races();
}
END_TEST

START_TEST(waiting_kernel_reads_unordered)
{
	CUdeviceptr flag = device_word();
	uint32_t one = 1;
	void *args[] = { &flag, &one, &p };

	launch("wait_flag_data", b, args);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	fill(a, p, 1, WORDS);
	OK(cuCtxSynchronize());
	races("unordered");
}
END_TEST

START_TEST(waiting_kernel_occupies_its_block)
{
	CUdeviceptr flag = device_word();
	uint32_t one = 1;
	void *args[] = { &flag, &one, &p };

	fakecuda_note_alloc(p, 4096);
	launch("wait_flag_data", b, args);
	fakecuda_note_free(p);
	fakecuda_note_alloc(p, 4096);
	touch(a, p);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	OK(cuCtxSynchronize());
	races("reused");
}
END_TEST

START_TEST(semaphores_order)
{
	CUexternalSemaphore sem = semaphore();

	await_semaphore(b, sem, 5);
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	signal_semaphore(a, sem, 5);
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(p), 2);
	no_races();
}
END_TEST

START_TEST(semaphore_signalled_too_early)
{
	CUexternalSemaphore sem = semaphore();

	await_semaphore(b, sem, 5);
	fill(b, p, 2, WORDS);
	signal_semaphore(a, sem, 5);
	fill(a, p, 1, WORDS);
	OK(cuCtxSynchronize());
	races("unordered");
}
END_TEST

/* ---- the host ---- */

START_TEST(host_access)
{
	CUdeviceptr q;
	uint32_t *host = host_word(&q);

	OK(cuMemcpyDtoHAsync(host, p, 64, a));
	OK(cuStreamSynchronize(a));
	fakecuda_note_access((uintptr_t)host, 64, 0);
	no_races();
	OK(cuMemcpyDtoHAsync(host, p, 64, a));
	fakecuda_advance(1000000000);
	fakecuda_note_access((uintptr_t)host + 32, 4, 0);
	races("unordered: cuMemcpyDtoHAsync");
}
END_TEST

START_TEST(host_access_before_submission)
{
	CUdeviceptr q;
	uint32_t *host = host_word(&q);

	fakecuda_note_access((uintptr_t)host, 64, 1);
	OK(cuMemcpyHtoDAsync(p, host, 64, a));
	no_races();
}
END_TEST

static uint32_t *seen;

static void read_it(void *key)
{
	fakecuda_note_access((uintptr_t)seen, 4, 0);
	if (key)
		fakecuda_note_release(key);
}

START_TEST(host_function_orders)
{
	CUdeviceptr q;

	seen = host_word(&q);
	OK(cuMemcpyDtoHAsync(seen, p, 64, a));
	OK(cuLaunchHostFunc(a, read_it, NULL));
	OK(cuMemcpyHtoDAsync(p, seen, 64, a));
	OK(cuStreamSynchronize(a));
	no_races();
}
END_TEST

START_TEST(host_function_in_another_stream)
{
	CUdeviceptr q;

	seen = host_word(&q);
	OK(cuMemcpyDtoHAsync(seen, p, 64, a));
	OK(cuLaunchHostFunc(b, read_it, NULL));
	OK(cuStreamSynchronize(b));
	races("unordered");
}
END_TEST

/* What a host function knows is known to the host only if they say so. */
START_TEST(host_function_hands_over)
{
	CUdeviceptr q;
	int key;

	seen = host_word(&q);
	fill(a, p, 1, WORDS);
	OK(cuLaunchHostFunc(a, read_it, &key));
	fakecuda_advance(1000000000);
	fakecuda_note_acquire(&key);
	fill(b, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(host_function_hands_nothing_over)
{
	CUdeviceptr q;

	seen = host_word(&q);
	fill(a, p, 1, WORDS);
	OK(cuLaunchHostFunc(a, read_it, NULL));
	fakecuda_advance(1000000000);
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

/* ---- host threads ---- */

static void *fill_on_b(void *key)
{
	OK(cuCtxSetCurrent(work_ctx));
	if (key)
		fakecuda_note_acquire(key);
	fill(b, p, 2, WORDS);
	return NULL;
}

static void fill_and_sync(void *key)
{
	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(a));
	if (key)
		fakecuda_note_release(key);
	run_thread(fill_on_b, key);
}

START_TEST(threads_share_what_they_know)
{
	fill_and_sync(NULL);
	no_races();
}
END_TEST

START_TEST(separate_threads_do_not)
{
	fakecuda_race_threads(1);
	fill_and_sync(NULL);
	races("unordered");
}
END_TEST

START_TEST(separate_threads_tell_each_other)
{
	int key;

	fakecuda_race_threads(1);
	fill_and_sync(&key);
	no_races();
}
END_TEST

/* Waits until somebody is inside @call. */
static void await_waiter(const char *call)
{
	static char text[65536];

	do {
		sleep_ms(1);
		dump(text, sizeof(text));
	} while (!strstr(text, call));
}

static void *submit_meanwhile(void *word)
{
	OK(cuCtxSetCurrent(work_ctx));
	await_waiter("cuCtxSynchronize");
	fill(b, p, 1, WORDS);
	set_word(word, 1);
	return NULL;
}

/* A synchronise covers what was submitted before it was called. */
START_TEST(sync_does_not_cover_later_work)
{
	CUdeviceptr flag;
	uint32_t *word = host_word(&flag);
	pthread_t t;

	fakecuda_set_hang_ms(20000, CUDA_ERROR_LAUNCH_TIMEOUT);
	wait_flag(a, flag, 1);
	ck_assert_int_eq(pthread_create(&t, NULL, submit_meanwhile, word), 0);
	OK(cuCtxSynchronize());
	pthread_join(t, NULL);
	fill(stream(), p, 2, WORDS);
	races("unordered");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		word_orders_streams, word_written_too_early, word_written_by_a_copy,
		word_written_by_the_host, word_written_by_an_ignorant_host,
		word_awaited_since_before_the_sync, waiting_kernel_reads_after,
		waiting_kernel_reads_unordered, waiting_kernel_occupies_its_block, semaphores_order,
		semaphore_signalled_too_early, host_access, host_access_before_submission,
		host_function_orders, host_function_in_another_stream, host_function_hands_over,
		host_function_hands_nothing_over, threads_share_what_they_know,
		separate_threads_do_not, separate_threads_tell_each_other,
		sync_does_not_cover_later_work,
	};
	Suite *suite = suite_create("race, words");
	TCase *tc = tcase_create("race,");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	tcase_set_timeout(tc, 30);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
