/*
 * test_waiting.c - work that waits for a word in memory, stream memory operations in all their
 * forms, and launches that overlap their predecessor.
 */
#include "work.h"

#include <dlfcn.h>

static CUstream a, b;
static CUdeviceptr p, flag;
static uint32_t *word;		/* the same as flag, for the host */

static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	p = alloc(1 << 20);
	word = host_word(&flag);
	fakecuda_set_hang_ms(20000, CUDA_ERROR_LAUNCH_TIMEOUT);
}

static bool done(CUstream s)
{
	CUresult r = cuStreamQuery(s);

	ck_assert(r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY);
	return r == CUDA_SUCCESS;
}

/* ---- kernels ---- */

START_TEST(kernel_waits_for_the_host)
{
	wait_flag(a, flag, 7);
	fill(a, p, 1, 1);
	fakecuda_advance(1000000000);
	ck_assert(!done(a));
	set_word(word, 6);
	ck_assert(!done(a));
	ck_assert_uint_eq(word_at(p), 0);
	set_word(word, 7);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p), 1);
}
END_TEST

START_TEST(kernel_waits_for_another_stream)
{
	CUdeviceptr there = device_word();

	wait_flag(a, there, 7);
	fakecuda_advance(1000000000);
	ck_assert(!done(a));
	fill(b, there, 7, 1);
	OK(cuStreamSynchronize(a));
}
END_TEST

static void *set_later(void *unused)
{
	(void)unused;
	sleep_ms(100);
	set_word(word, 1);
	return NULL;
}

START_TEST(kernel_waits_for_another_thread)
{
	pthread_t t;

	wait_flag(a, flag, 1);
	ck_assert_int_eq(pthread_create(&t, NULL, set_later, NULL), 0);
	OK(cuCtxSynchronize());
	pthread_join(t, NULL);
	ck_assert_uint_eq(fakecuda_hangs(), 0);
}
END_TEST

START_TEST(wide_word)
{
	CUdeviceptr q = alloc(8);
	uint64_t value = 0x500000001, low = 1;
	void *args[] = { &q, &value };

	OK(cuMemsetD32(q, 0, 2));
	OK(cuCtxSynchronize());
	launch("wait_flag_wide", a, args);
	ck_assert_int_eq(fakecuda_write(q, &low, 8), 0);
	fakecuda_advance(1000000000);
	ck_assert(!done(a));
	ck_assert_int_eq(fakecuda_write(q, &value, 8), 0);
	OK(cuStreamSynchronize(a));
}
END_TEST

START_TEST(registered_to_wait_for_a_change)
{
	uint32_t value = 5;
	void *args[] = { &flag, &value };

	fakecuda_wait_kernel("await", FAKECUDA_WAIT_NE);
	set_word(word, 5);
	launch("await_geq", a, args);
	fakecuda_advance(1000000000);
	ck_assert(!done(a));
	set_word(word, 6);
	OK(cuStreamSynchronize(a));
}
END_TEST

START_TEST(registered_kernel)
{
	uint32_t value = 5;
	void *args[] = { &flag, &value };

	launch("await_geq", a, args);
	OK(cuStreamSynchronize(a));		/* an ordinary kernel so far */
	fakecuda_wait_kernel("await_geq", FAKECUDA_WAIT_GEQ);
	launch("await_geq", a, args);
	fakecuda_advance(1000000000);
	ck_assert(!done(a));
	set_word(word, 9);
	OK(cuStreamSynchronize(a));
}
END_TEST

START_TEST(word_that_is_not_there)
{
	CUdeviceptr gone;

	OK(cuMemAlloc(&gone, 4096));
	OK(cuMemFree(gone));
	wait_flag(a, gone, 1);
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* ---- stream memory operations ---- */

struct condition {
	unsigned int flags;
	uint32_t value, no, yes;
};

static const struct condition conditions[] = {
	{ CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5 },
	{ CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6 },
	{ CU_STREAM_WAIT_VALUE_GEQ, 0xfffffff0, 0xffffffef, 3 },	/* cyclic */
	{ CU_STREAM_WAIT_VALUE_AND, 6, 9, 2 },
	{ CU_STREAM_WAIT_VALUE_NOR, 0xfffffffe, 1, 0 },
};

START_TEST(wait_value_32)
{
	const struct condition *c = &conditions[_i];

	set_word(word, c->no);
	OK(cuStreamWaitValue32(a, flag, c->value, c->flags));
	fill(a, p, 1, 1);
	fakecuda_advance(1000000000);
	ck_assert(!done(a));
	ck_assert_uint_eq(word_at(p), 0);
	set_word(word, c->yes);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p), 1);
}
END_TEST

START_TEST(wait_value_64)
{
	CUdeviceptr q = alloc(8);
	uint64_t v = 0x100000000;

	OK(cuMemsetD32(q, 0xffffffff, 1));
	OK(cuMemsetD32(q + 4, 0, 1));
	OK(cuCtxSynchronize());
	OK(cuStreamWaitValue64(a, q, v, CU_STREAM_WAIT_VALUE_GEQ));
	fakecuda_advance(1000);
	ck_assert(!done(a));
	OK(cuStreamWriteValue64(b, q, v, 0));
	OK(cuStreamSynchronize(a));
	ck_assert_int_eq(fakecuda_read(&v, q, 8), 0);
	ck_assert_uint_eq(v, 0x100000000);
}
END_TEST

START_TEST(write_value_is_in_order)
{
	CUdeviceptr q = device_word();

	spin(a, p);
	OK(cuStreamWriteValue32(a, q, 3, 0));
	ck_assert_uint_eq(word_at(q), 0);
	fakecuda_advance(4000000000);
	ck_assert_uint_eq(word_at(q), 0);
	fakecuda_advance(1000000000);
	ck_assert_uint_eq(word_at(q), 3);
}
END_TEST

START_TEST(batch_is_in_order)
{
	CUdeviceptr q = device_word();
	CUstreamBatchMemOpParams ops[4];

	memset(ops, 0, sizeof(ops));
	ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[0].writeValue.address = q;
	ops[0].writeValue.value = 1;
	ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[1].waitValue.address = flag;
	ops[1].waitValue.value = 1;
	ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	ops[2].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
	ops[3].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[3].writeValue.address = q;
	ops[3].writeValue.value = 2;
	OK(cuStreamBatchMemOp(a, 4, ops, 0));
	fakecuda_advance(1000);
	ck_assert_uint_eq(word_at(q), 1);
	ck_assert(!done(a));
	set_word(word, 1);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(q), 2);
}
END_TEST

START_TEST(bad_parameters)
{
	CUstreamBatchMemOpParams op;

	memset(&op, 0, sizeof(op));
	FAILS(cuStreamWaitValue32(a, flag + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamWaitValue64(a, flag + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamWaitValue32(a, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamWaitValue32(a, flag, 1, 8), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamWaitValue32(a, flag, 1, CU_STREAM_WAIT_VALUE_FLUSH),
	      CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuStreamWriteValue32(a, flag, 1, 2), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamWriteValue32((CUstream)&op, flag, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuStreamBatchMemOp(a, 0, &op, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamBatchMemOp(a, 1, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuStreamBatchMemOp(a, 1, &op, 0), CUDA_ERROR_INVALID_VALUE);
	op.flushRemoteWrites.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
	FAILS(cuStreamBatchMemOp(a, 1, &op, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(fakecuda_pending(-1), 0);
}
END_TEST

START_TEST(the_first_abi_has_no_barriers)
{
	CUresult (*batch)(CUstream, unsigned int, CUstreamBatchMemOpParams *, unsigned int);
	CUstreamBatchMemOpParams op;

	memset(&op, 0, sizeof(op));
	op.memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
	*(void **)&batch = dlsym(RTLD_DEFAULT, "cuStreamBatchMemOp");
	FAILS(batch(a, 1, &op, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamBatchMemOp(a, 1, &op, 0));
}
END_TEST

/* Each entry under each of its names: <base>, _v2, and both for per-thread default streams. */
START_TEST(every_name)
{
	static const char *const suffixes[] = { "", "_v2", "_ptsz", "_v2_ptsz" };
	CUresult (*write32)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
	CUresult (*wait32)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
	CUresult (*write64)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
	CUresult (*wait64)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
	CUresult (*batch)(CUstream, unsigned int, CUstreamBatchMemOpParams *, unsigned int);
	CUstreamBatchMemOpParams op;
	char name[64];

	memset(&op, 0, sizeof(op));
	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op.writeValue.address = flag + 8;
	for (unsigned int i = 0; i < 4; i++) {
#define FIND(fn, base) \
		snprintf(name, sizeof(name), base "%s", suffixes[i]); \
		*(void **)&fn = dlsym(RTLD_DEFAULT, name); \
		ck_assert_ptr_nonnull(*(void **)&fn)
		FIND(write32, "cuStreamWriteValue32");
		FIND(wait32, "cuStreamWaitValue32");
		FIND(write64, "cuStreamWriteValue64");
		FIND(wait64, "cuStreamWaitValue64");
		FIND(batch, "cuStreamBatchMemOp");
		OK(write32(NULL, flag, 10 + i, 0));
		OK(wait32(NULL, flag, 10 + i, CU_STREAM_WAIT_VALUE_EQ));
		OK(write64(NULL, flag + 16, 20 + i, 0));
		OK(wait64(NULL, flag + 16, 20 + i, CU_STREAM_WAIT_VALUE_EQ));
		op.writeValue.value = 30 + i;
		OK(batch(NULL, 1, &op, 0));
		OK(cuCtxSynchronize());
		ck_assert_uint_eq(word[0], 10 + i);
		ck_assert_uint_eq(word[4], 20 + i);
		ck_assert_uint_eq(word[2], 30 + i);
	}
}
END_TEST

START_TEST(word_freed_meanwhile)
{
	CUdeviceptr q;

	OK(cuMemAllocAsync(&q, 4096, b));
	OK(cuStreamSynchronize(b));
	OK(cuStreamWaitValue32(a, q, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemFreeAsync(q, b));
	FAILS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* ---- semaphores of another API ---- */

START_TEST(semaphores)
{
	CUexternalSemaphore sem[2] = { semaphore(), semaphore() };
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wp[2] = { { .params = { .fence = { 3 } } },
						      { .params = { .fence = { 4 } } } };

	OK(cuWaitExternalSemaphoresAsync(sem, wp, 2, a));
	fill(a, p, 1, 1);
	signal_semaphore(b, sem[0], 3);
	signal_semaphore(b, sem[1], 3);
	fakecuda_advance(1000000);
	ck_assert(!done(a));
	signal_semaphore(b, sem[1], 9);
	OK(cuDestroyExternalSemaphore(sem[1]));
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p), 1);
	FAILS(cuWaitExternalSemaphoresAsync(sem, wp, 2, a), CUDA_ERROR_INVALID_HANDLE);
	FAILS(cuWaitExternalSemaphoresAsync(sem, NULL, 1, a), CUDA_ERROR_INVALID_VALUE);
	OK(cuWaitExternalSemaphoresAsync(NULL, NULL, 0, a));
}
END_TEST

/* ---- overlapping launches ---- */

static void fill_overlapping(CUstream s, CUdeviceptr q, uint32_t value, uint32_t n)
{
	void *args[] = { &q, &value, &n };

	launch_overlapping("fill", s, args);
}

/* The predecessor runs for 5 seconds; what its successor stores is there long before. */
START_TEST(overlap_starts_early)
{
	spin(a, p);
	fill_overlapping(a, p, 1, 1);
	fakecuda_advance(1000000);
	ck_assert_uint_eq(word_at(p), 1);
	ck_assert(!done(a));
	OK(cuStreamSynchronize(a));
	ck_assert_uint_ge(fakecuda_now(), 5000000000);
}
END_TEST

START_TEST(without_permission_it_does_not)
{
	spin(a, p);
	fill(a, p, 1, 1);
	fakecuda_advance(4000000000);
	ck_assert_uint_eq(word_at(p), 0);
}
END_TEST

/* A copy that takes long, and a launch that overwrites its source too early: seen in the data. */
START_TEST(overlap_destroys_data)
{
	fakecuda_set_kernel_ns("copy", 1000000);
	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(a));
	copy(a, p + 4096, p, WORDS);
	fill_overlapping(a, p, 2, WORDS);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(word_at(p + 4096), 2);
}
END_TEST

START_TEST(overlap_past_markers_and_memory)
{
	CUdeviceptr q;

	OK(cuMemAllocAsync(&q, 4096, a));
	spin(a, q);
	OK(cuEventRecord(event(), a));
	OK(cuMemFreeAsync(q, a));
	OK(cuMemAllocAsync(&q, 4096, a));
	fill_overlapping(a, p, 1, 1);
	fakecuda_advance(1000000);
	ck_assert_uint_eq(word_at(p), 1);
}
END_TEST

START_TEST(overlap_not_past_other_work)
{
	spin(a, p);
	OK(cuMemsetD8Async(p + 4096, 0, 16, a));
	fill_overlapping(a, p, 1, 1);
	fakecuda_advance(4000000000);
	ck_assert_uint_eq(word_at(p), 0);
}
END_TEST

START_TEST(overlap_waits_for_other_streams)
{
	fakecuda_set_kernel_ns("add", 2000000000);
	spin(a, p);
	add(b, p + 4096, 1, 1);
	order(b, a);
	fill_overlapping(a, p, 1, 1);
	fakecuda_advance(1000000000);
	ck_assert_uint_eq(word_at(p), 0);	/* stream b's kernel still runs */
	fakecuda_advance(1500000000);
	ck_assert_uint_eq(word_at(p), 1);	/* it has ended, its own predecessor not */
}
END_TEST

START_TEST(overlap_not_past_the_legacy_stream)
{
	CUstream c = blocking_stream();

	spin(c, p);
	touch(NULL, p);
	fill_overlapping(c, p, 1, 1);
	fakecuda_advance(4000000000);
	ck_assert_uint_eq(word_at(p), 0);
}
END_TEST

START_TEST(overlap_wakes_its_predecessor)
{
	wait_flag(a, flag, 1);
	fill_overlapping(a, flag, 1, 1);
	OK(cuStreamSynchronize(a));
	ck_assert_uint_eq(fakecuda_hangs(), 0);
}
END_TEST

START_TEST(what_comes_after_waits_for_both)
{
	spin(a, p);
	fill_overlapping(a, p, 1, 1);
	fill(a, p + 4, 1, 1);
	fakecuda_advance(4000000000);
	ck_assert_uint_eq(word_at(p + 4), 0);
	fakecuda_advance(2000000000);
	ck_assert_uint_eq(word_at(p + 4), 1);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		kernel_waits_for_the_host, kernel_waits_for_another_stream,
		kernel_waits_for_another_thread, wide_word, registered_kernel,
		registered_to_wait_for_a_change, word_that_is_not_there, wait_value_64,
		write_value_is_in_order, batch_is_in_order, bad_parameters,
		the_first_abi_has_no_barriers, every_name, word_freed_meanwhile, semaphores,
		overlap_starts_early, without_permission_it_does_not, overlap_destroys_data,
		overlap_past_markers_and_memory, overlap_not_past_other_work,
		overlap_waits_for_other_streams, overlap_not_past_the_legacy_stream,
		overlap_wakes_its_predecessor, what_comes_after_waits_for_both,
	};
	Suite *suite = suite_create("waiting");
	TCase *tc = tcase_create("waiting");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	tcase_set_timeout(tc, 60);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_loop_test(tc, wait_value_32, 0, sizeof(conditions) / sizeof(conditions[0]));
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
