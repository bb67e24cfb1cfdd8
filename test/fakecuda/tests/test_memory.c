/*
 * test_memory.c - cuMemAlloc and its kin, host memory, what pointers are, and who waits for whom.
 */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>

#define SPIN_NS 5000000000ULL

static size_t free_bytes(void)
{
	size_t f, t;

	ok(cuMemGetInfo(&f, &t));
	return f;
}

START_TEST(small_ones_share_a_chunk)
{
	CUdeviceptr p[4], big, half;
	size_t before;

	start(0);
	before = free_bytes();
	for (int i = 0; i < 4; i++)
		ok(cuMemAlloc(&p[i], 1));
	ok(cuMemAlloc(&half, MIB));
	ok(cuMemAlloc(&big, 3 * MIB));
	for (int i = 1; i < 4; i++)
		ck_assert_uint_eq(p[i] - p[i - 1], 512);
	ck_assert_uint_eq(big % (2 * MIB), 0);
	ck_assert_uint_eq(before - free_bytes(), 6 * MIB);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 4 + MIB + 3 * MIB);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_DEVICE), 6);
	for (int i = 0; i < 4; i++)
		ok(cuMemFree(p[i]));
	ok(cuMemFree(half));
	ok(cuMemFree(big));
	ck_assert_uint_eq(free_bytes(), before);
	ck_assert_uint_eq(fakecuda_live_bytes(-1, FAKECUDA_DEVICE), 0);
	ok(cuMemAlloc(&half, 1));
	ck_assert_uint_eq(half, p[0]);		/* addresses come again */
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

START_TEST(bad_requests)
{
	CUdeviceptr p, q;

	start(0);
	fails(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree(0));
	ok(cuMemAlloc(&p, 4 * MIB));
	fails(cuMemFree(p + 512), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFree((CUdeviceptr)(uintptr_t)&p), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree(p));
	fails(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
	ok(cuCtxSetCurrent(NULL));
	fails(cuMemAlloc(&q, 1), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(out_of_memory_is_not_sticky)
{
	CUdeviceptr p[3];
	size_t f, t;

	setenv("FAKECUDA_CAPACITY", "64MiB", 1);
	setenv("FAKECUDA_OTHER_BYTES", "16M", 1);
	start(0);
	ok(cuMemGetInfo(&f, &t));
	ck_assert_uint_eq(t, 64 * MIB);
	ck_assert_uint_eq(f, 48 * MIB);
	ok(cuMemAlloc(&p[0], 40 * MIB));
	fails(cuMemAlloc(&p[1], 10 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemAlloc(&p[1], 8 * MIB));
	fails(cuMemAlloc(&p[2], 1), CUDA_ERROR_OUT_OF_MEMORY);
	fakecuda_set_other_bytes(0, 0);
	ok(cuMemAlloc(&p[2], 1));
	fakecuda_set_other_bytes(0, 64 * MIB);
	ck_assert_uint_eq(free_bytes(), 0);
	fails(cuMemAlloc(&p[2], (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
}
END_TEST

/* A GPU has page tables: only the sum counts, not the holes. */
START_TEST(fragments_do_not_matter)
{
	CUdeviceptr p[32], big;

	setenv("FAKECUDA_CAPACITY", "64M", 1);
	start(0);
	for (int i = 0; i < 32; i++)
		ok(cuMemAlloc(&p[i], 2 * MIB));
	for (int i = 0; i < 32; i += 2)
		ok(cuMemFree(p[i]));
	ok(cuMemAlloc(&big, 32 * MIB));
	ck_assert_uint_eq(free_bytes(), 0);
}
END_TEST

START_TEST(fresh_memory_reads_as_zero)
{
	static unsigned char buf[4 * 1024 * 1024];
	CUdeviceptr p;

	start(0);
	for (int round = 0; round < 2; round++) {
		ok(cuMemAlloc(&p, sizeof(buf)));
		memset(buf, 1, sizeof(buf));
		ok(cuMemcpyDtoH(buf, p, sizeof(buf)));
		for (size_t i = 0; i < sizeof(buf); i += 997)
			ck_assert_uint_eq(buf[i], 0);
		ok(cuMemsetD8(p, 0xab, sizeof(buf)));
		ok(cuMemFree(p));
	}
}
END_TEST

START_TEST(host_cannot_touch_device_memory)
{
	CUdeviceptr p;
	int status;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		start(0);
		ok(cuMemAlloc(&p, 4 * MIB));
		_exit(*(volatile char *)(uintptr_t)p);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}
END_TEST

START_TEST(address_ranges_are_what_was_asked_for)
{
	CUdeviceptr p, base;
	size_t size;

	start(0);
	ok(cuMemAlloc(&p, 1));
	ok(cuMemGetAddressRange(&base, &size, p));
	ck_assert_uint_eq(base, p);
	ck_assert_uint_eq(size, 1);
	fails(cuMemGetAddressRange(&base, &size, p + 1), CUDA_ERROR_NOT_FOUND);
	ok(cuMemFree(p));
	ok(cuMemAlloc(&p, 5 * MIB));
	ok(cuMemGetAddressRange(&base, &size, p + 3 * MIB));
	ck_assert_uint_eq(base, p);
	ck_assert_uint_eq(size, 5 * MIB);
	ok(cuMemGetAddressRange(NULL, NULL, p));
}
END_TEST

START_TEST(pitched)
{
	size_t pitch;
	CUdeviceptr p;

	start(0);
	ok(cuMemAllocPitch(&p, &pitch, 1000, 10, 4));
	ck_assert_uint_eq(pitch, 1024);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 10240);
	fails(cuMemAllocPitch(&p, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemAllocPitch(&p, &pitch, 0, 10, 4), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(first_abi_has_32_bits)
{
	CUresult (*alloc)(unsigned int *, unsigned int);
	CUresult (*release)(unsigned int);
	CUdriverProcAddressQueryResult status;
	unsigned int p = 0;

	start(0);
	ok(cuGetProcAddress("cuMemAlloc", (void **)&alloc, 2000, 0, &status));
	ok(cuGetProcAddress("cuMemFree", (void **)&release, 2000, 0, &status));
	ok(alloc(&p, 1000));
	ck_assert_uint_ne(p, 0);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 1000);
	ok(cuMemsetD8(p, 7, 1000));
	ok(release(p));
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
}
END_TEST

START_TEST(managed_memory_is_the_hosts_too)
{
	uint32_t value = 3;
	uint32_t n = 10;
	CUdeviceptr p;
	void *args[] = { &p, &value, &n };
	unsigned int managed;

	start(0);
	ok(cuMemAllocManaged(&p, 40, CU_MEM_ATTACH_GLOBAL));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_MANAGED), 40);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 0);
	*(uint32_t *)(uintptr_t)p = 100;
	ok(launch(function("add"), NULL, args));
	ck_assert_uint_eq(*(uint32_t *)(uintptr_t)p, 100);
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(*(uint32_t *)(uintptr_t)p, 103);
	ok(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	ck_assert_uint_eq(managed, 1);
	ok(cuMemPrefetchAsync(p, 40, (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE }, 0,
			      NULL));
	ok(cuMemFree(p));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_MANAGED), 0);
}
END_TEST

START_TEST(host_memory)
{
	char own[8192];
	unsigned int flags;
	CUdeviceptr d;
	void *p;

	start(0);
	ok(cuMemHostAlloc(&p, 1000, CU_MEMHOSTALLOC_PORTABLE));
	memset(p, 1, 1000);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_HOST), 1000);
	ok(cuMemHostGetFlags(&flags, p));
	ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	ok(cuMemHostGetDevicePointer(&d, (char *)p + 10, 0));
	ck_assert_uint_eq(d, (uintptr_t)p + 10);
	fails(cuMemFreeHost((char *)p + 16), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFreeHost(p));
	fails(cuMemFreeHost(p), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_HOST), 0);
	ok(cuMemHostRegister(own, sizeof(own), 0));
	fails(cuMemHostRegister(own + 100, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_HOST), 0);
	ok(cuMemHostUnregister(own));
	fails(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
END_TEST

START_TEST(pointer_attributes)
{
	CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	CUcontext ctx = start(1), owner;
	unsigned long long id[2];
	unsigned int type = 99;
	CUdeviceptr p;
	int ordinal = 99;
	size_t size = 99;
	void *data[] = { &type, &ordinal, &size };

	ok(cuMemAlloc(&p, 600));
	ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p + 10));
	ck_assert_ptr_eq(owner, ctx);
	ok(cuPointerGetAttribute(&id[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	ok(cuPointerGetAttributes(3, which, data, p));
	ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
	ck_assert_int_eq(ordinal, 1);
	ck_assert_uint_eq(size, 600);
	fails(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_HOST_POINTER, p),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree(p));
	fails(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cuPointerGetAttributes(3, which, data, p));	/* the plural form never minds */
	ck_assert_uint_eq(type, 0);
	ck_assert_int_eq(ordinal, -2);
	ok(cuMemAlloc(&p, 600));
	ok(cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	ck_assert_uint_ne(id[0], id[1]);
}
END_TEST

START_TEST(free_waits_for_all_streams_of_its_context)
{
	CUdeviceptr p, q, other;
	CUfunction spin;
	CUstream s;
	void *h;

	start(1);
	ok(cuMemAlloc(&other, 1));
	start(0);
	spin = function("spin");
	ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cuMemAlloc(&p, 1));
	ok(cuMemHostAlloc(&h, 1, 0));
	ok(launch(spin, s, NULL));
	ok(cuMemAlloc(&q, 64 * MIB));		/* does not wait */
	ok(cuMemFree(other));			/* nor does another device's */
	ck_assert_uint_eq(fakecuda_now(), 0);
	ok(cuMemFree(p));
	ck_assert_uint_eq(fakecuda_now(), SPIN_NS);
	ok(launch(spin, s, NULL));
	ok(cuMemFreeHost(h));
	ck_assert_uint_eq(fakecuda_now(), 2 * SPIN_NS);
}
END_TEST

START_TEST(pageable_sources_are_staged)
{
	uint32_t word = 1, *pinned, back = 0;
	CUdeviceptr p;
	CUstream s;

	start(0);
	ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	ok(cuMemAlloc(&p, 8));
	ok(cuMemHostAlloc((void **)&pinned, 4, 0));
	*pinned = 10;
	ok(launch(function("spin"), s, NULL));
	ok(cuMemcpyHtoDAsync(p, &word, 4, s));
	ok(cuMemcpyHtoDAsync(p + 4, pinned, 4, s));
	word = 2;		/* was taken at the call */
	*pinned = 20;		/* is read when the copy happens */
	ok(cuStreamSynchronize(s));
	ok(cuMemcpyDtoH(&back, p, 4));
	ck_assert_uint_eq(back, 1);
	ok(cuMemcpyDtoH(&back, p + 4, 4));
	ck_assert_uint_eq(back, 20);
	ok(launch(function("spin"), s, NULL));
	ok(cuMemcpyDtoHAsync(&back, p, 4, s));	/* a pageable target waits */
	ck_assert_uint_eq(back, 1);
}
END_TEST

START_TEST(copies_are_checked)
{
	CUdeviceptr p;
	char buf[64];

	start(0);
	ok(cuMemAlloc(&p, 64));
	fails(cuMemcpyHtoD(p + 32, buf, 64), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemcpyHtoD(p + 4096, buf, 4), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemcpyDtoH(buf, (CUdeviceptr)(uintptr_t)buf, 4), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemcpyHtoD(0, buf, 4), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemsetD8(p, 0, 65), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemsetD32(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemcpyHtoD(0, NULL, 0));
	ok(cuMemcpy((CUdeviceptr)(uintptr_t)buf, p, 64));
	ok(cuMemcpy((CUdeviceptr)(uintptr_t)buf, (CUdeviceptr)(uintptr_t)(buf + 32), 32));
}
END_TEST

START_TEST(peers)
{
	CUcontext a = start(0), b;
	CUdeviceptr p, q;
	int can, back = 0;

	ok(cuDeviceCanAccessPeer(&can, 0, 1));
	ck_assert_int_eq(can, 1);
	ok(cuDeviceCanAccessPeer(&can, 0, 0));
	ck_assert_int_eq(can, 0);
	ok(cuMemAlloc(&p, 4));
	ok(cuMemsetD32(p, 42, 1));
	b = start(1);
	ok(cuMemAlloc(&q, 4));
	ok(cuMemcpyPeer(q, b, p, a, 4));
	ok(cuMemcpyDtoH(&back, q, 4));
	ck_assert_int_eq(back, 42);
	ok(cuCtxEnablePeerAccess(a, 0));
	fails(cuCtxEnablePeerAccess(a, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	fails(cuCtxEnablePeerAccess(b, 0), CUDA_ERROR_INVALID_DEVICE);
	ok(cuCtxDisablePeerAccess(a));
	fails(cuCtxDisablePeerAccess(a), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *tc = new_case(suite, "memory");

	tcase_add_test(tc, small_ones_share_a_chunk);
	tcase_add_test(tc, bad_requests);
	tcase_add_test(tc, out_of_memory_is_not_sticky);
	tcase_add_test(tc, fragments_do_not_matter);
	tcase_add_test(tc, fresh_memory_reads_as_zero);
	tcase_add_test(tc, host_cannot_touch_device_memory);
	tcase_add_test(tc, address_ranges_are_what_was_asked_for);
	tcase_add_test(tc, pitched);
	tcase_add_test(tc, first_abi_has_32_bits);
	tcase_add_test(tc, managed_memory_is_the_hosts_too);
	tcase_add_test(tc, host_memory);
	tcase_add_test(tc, pointer_attributes);
	tcase_add_test(tc, free_waits_for_all_streams_of_its_context);
	tcase_add_test(tc, pageable_sources_are_staged);
	tcase_add_test(tc, copies_are_checked);
	tcase_add_test(tc, peers);
	return run_suite(suite);
}
