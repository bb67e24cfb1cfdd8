/*
 * work.h - what the tests of waiting work, captures, graphs and races share: a fresh driver for
 * each test, kernels, and short forms of common calls. Each test program includes it once.
 */
#ifndef TEST_WORK_H
#define TEST_WORK_H

#include <check.h>
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test/fakecuda/fakecuda.h"
#include "test/suite.h"

#define OK(call) ck_assert_int_eq((int)(call), CUDA_SUCCESS)
#define FAILS(call, error) ck_assert_int_eq((int)(call), (int)(error))
#define UNUSED __attribute__((unused))
#define WORDS 256u		/* in a block of the tests */
#define BYTES (4 * (size_t)WORDS)

static CUcontext work_ctx;
static CUmodule work_module;

/* Built in to the fake driver: fill(p, value, n), add(p, value, n), copy(dst, src, n) on words,
 * wait_flag(p, value). Nobody knows what "touch" does. "spin" lasts 5 virtual seconds. */
static const char work_ptx[] =
	".version 8.0\n.target sm_75\n.address_size 64\n"
	".visible .entry fill(.param .u64 p, .param .u32 v, .param .u32 n){ret;}\n"
	".visible .entry add(.param .u64 p, .param .u32 v, .param .u32 n){ret;}\n"
	".visible .entry copy(.param .u64 d, .param .u64 s, .param .u32 n){ret;}\n"
	".visible .entry spin(.param .u64 p){ret;}\n"
	".visible .entry touch(.param .u64 p){ret;}\n"
	".visible .entry fault(.param .u64 p){ret;}\n"
	".visible .entry wait_flag(.param .u64 p, .param .u32 v){ret;}\n"
	".visible .entry wait_flag_wide(.param .u64 p, .param .u64 v){ret;}\n"
	".visible .entry wait_flag_data(.param .u64 p, .param .u32 v, .param .u64 q){ret;}\n"
	".visible .entry await_geq(.param .u64 p, .param .u32 v){ret;}\n";

UNUSED static void work_setup(void)
{
	CUdevice dev;

	fakecuda_reset();
	OK(cuInit(0));
	OK(cuDeviceGet(&dev, 0));
	OK(cuDevicePrimaryCtxRetain(&work_ctx, dev));
	OK(cuCtxSetCurrent(work_ctx));
	OK(cuModuleLoadData(&work_module, work_ptx));
}

/* Nothing is left inconsistent, and nothing hung unless the test says so. */
UNUSED static void work_teardown(void)
{
	ck_assert_int_eq(fakecuda_check(), 0);
	fakecuda_reset();
}

UNUSED static CUfunction kernel(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, work_module, name));
	return f;
}

UNUSED static void launch(const char *name, CUstream s, void **args)
{
	OK(cuLaunchKernel(kernel(name), 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
}

UNUSED static void fill(CUstream s, CUdeviceptr p, uint32_t value, uint32_t n)
{
	void *args[] = { &p, &value, &n };

	launch("fill", s, args);
}

UNUSED static void add(CUstream s, CUdeviceptr p, uint32_t value, uint32_t n)
{
	void *args[] = { &p, &value, &n };

	launch("add", s, args);
}

UNUSED static void copy(CUstream s, CUdeviceptr d, CUdeviceptr p, uint32_t n)
{
	void *args[] = { &d, &p, &n };

	launch("copy", s, args);
}

UNUSED static void touch(CUstream s, CUdeviceptr p)
{
	void *args[] = { &p };

	launch("touch", s, args);
}

UNUSED static void spin(CUstream s, CUdeviceptr p)
{
	void *args[] = { &p };

	launch("spin", s, args);
}

UNUSED static void wait_flag(CUstream s, CUdeviceptr p, uint32_t value)
{
	void *args[] = { &p, &value };

	launch("wait_flag", s, args);
}

/* A launch that may overlap the kernel before it. */
UNUSED static void launch_overlapping(const char *name, CUstream s, void **args)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION };
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				  .blockDimY = 1, .blockDimZ = 1, .hStream = s, .attrs = &attr,
				  .numAttrs = 1 };

	attr.value.programmaticStreamSerializationAllowed = 1;
	OK(cuLaunchKernelEx(&config, kernel(name), args, NULL));
}

UNUSED static CUstream stream(void)
{
	CUstream s;

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

UNUSED static CUstream blocking_stream(void)
{
	CUstream s;

	OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	return s;
}

UNUSED static CUevent event(void)
{
	CUevent e;

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	return e;
}

/* @waiter goes on after what @s has been given so far. */
UNUSED static void order(CUstream s, CUstream waiter)
{
	CUevent e = event();

	OK(cuEventRecord(e, s));
	OK(cuStreamWaitEvent(waiter, e, 0));
	OK(cuEventDestroy(e));
}

UNUSED static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, size));
	return p;
}

UNUSED static uint32_t word_at(CUdeviceptr p)
{
	uint32_t v;

	ck_assert_int_eq(fakecuda_read(&v, p, 4), 0);
	return v;
}

/* A word of device memory, 0. A fill by itself is not complete when the call returns. */
UNUSED static CUdeviceptr device_word(void)
{
	CUdeviceptr p = alloc(4);

	OK(cuMemsetD32(p, 0, 1));
	OK(cuCtxSynchronize());
	return p;
}

/* A word that host and device share. */
UNUSED static uint32_t *host_word(CUdeviceptr *ret_p)
{
	void *p;

	OK(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(p, 0, 4096);
	OK(cuMemHostGetDevicePointer(ret_p, p, 0));
	return p;
}

UNUSED static void set_word(uint32_t *p, uint32_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
}

UNUSED static void sleep_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

UNUSED static void run_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, fn, arg), 0);
	ck_assert_int_eq(pthread_join(t, NULL), 0);
}

/* A semaphore as another API would share it. */
UNUSED static CUexternalSemaphore semaphore(void)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
		.handle = { .fd = dup(0) } };
	CUexternalSemaphore sem;

	OK(cuImportExternalSemaphore(&sem, &desc));
	return sem;
}

UNUSED static void signal_semaphore(CUstream s, CUexternalSemaphore sem, uint64_t value)
{
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS sp = { .params = { .fence = { value } } };

	OK(cuSignalExternalSemaphoresAsync(&sem, &sp, 1, s));
}

UNUSED static void await_semaphore(CUstream s, CUexternalSemaphore sem, uint64_t value)
{
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wp = { .params = { .fence = { value } } };

	OK(cuWaitExternalSemaphoresAsync(&sem, &wp, 1, s));
}

#endif
