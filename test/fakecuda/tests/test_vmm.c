/*
 * test_vmm.c - handles, reservations, mappings, access; who keeps the memory alive.
 */
#include "common.h"

#include <fcntl.h>

static CUmemAllocationProp prop(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
	};
}

static CUmemGenericAllocationHandle create(size_t size)
{
	CUmemAllocationProp p = prop(0);
	CUmemGenericAllocationHandle h;

	ok(cuMemCreate(&h, size, &p, 0));
	return h;
}

static CUdeviceptr reserve(size_t size)
{
	CUdeviceptr va;

	ok(cuMemAddressReserve(&va, size, 0, 0, 0));
	return va;
}

static void allow(CUdeviceptr va, size_t size)
{
	CUmemAccessDesc desc = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	ok(cuMemSetAccess(va, size, &desc, 1));
}

START_TEST(granularity)
{
	CUmemAllocationProp p = prop(0), bad = prop(7);
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	size_t n;

	ok(cuInit(0));		/* none of this needs a context */
	ok(cuMemGetAllocationGranularity(&n, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	ck_assert_uint_eq(n, 2 * MIB);
	fails(cuMemCreate(&h, MIB, &p, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemCreate(&h, 2 * MIB, &bad, 0), CUDA_ERROR_INVALID_DEVICE);
	fails(cuMemAddressReserve(&va, MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemAddressReserve(&va, 2 * MIB, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(memory_lives_by_reference_or_mapping)
{
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr va;

	start(0);
	h = create(4 * MIB);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_VMM), 4 * MIB);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 4 * MIB);
	va = reserve(8 * MIB);
	ok(cuMemMap(va, 4 * MIB, 0, h, 0));
	ok(cuMemRelease(h));
	fails(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_VMM), 4 * MIB);
	ok(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + MIB)));
	ok(cuMemUnmap(va, 4 * MIB));
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_VMM), 1);
	ok(cuMemRelease(again));
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_VMM), 0);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_VMM), 0);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	ok(cuMemAddressFree(va, 8 * MIB));
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

START_TEST(access_comes_from_set_access)
{
	CUmemGenericAllocationHandle h;
	CUmemLocation where = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
	unsigned long long flags;
	CUdeviceptr va;
	uint32_t back;

	start(0);
	h = create(2 * MIB);
	va = reserve(2 * MIB);
	ok(cuMemMap(va, 2 * MIB, 0, h, 0));
	ok(cuMemGetAccess(&flags, &where, va));
	ck_assert_uint_eq(flags, 0);
	ck_assert_ptr_null(fakecuda_ptr(va, 4));
	allow(va, 2 * MIB);
	ok(cuMemGetAccess(&flags, &where, va));
	ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(cuMemsetD32(va, 9, 512 * 1024));
	ok(cuMemcpyDtoH(&back, va + 2 * MIB - 4, 4));
	ck_assert_uint_eq(back, 9);
}
END_TEST

START_TEST(one_handle_in_two_places)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr a, b;
	uint32_t back;

	start(0);
	h = create(2 * MIB);
	a = reserve(2 * MIB);
	b = reserve(2 * MIB);
	ok(cuMemMap(a, 2 * MIB, 0, h, 0));
	ok(cuMemMap(b, 2 * MIB, 0, h, 0));
	allow(a, 2 * MIB);
	allow(b, 2 * MIB);
	ok(cuMemsetD32(a, 77, 1));
	ok(cuMemcpyDtoH(&back, b, 4));
	ck_assert_uint_eq(back, 77);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_VMM), 2 * MIB);
}
END_TEST

START_TEST(copies_run_across_mappings)
{
	static unsigned char buf[6 * 1024 * 1024], back[sizeof(buf)];
	CUdeviceptr va;

	start(0);
	va = reserve(sizeof(buf));
	for (size_t at = 0; at < sizeof(buf); at += 2 * MIB)
		ok(cuMemMap(va + (at + 4 * MIB) % sizeof(buf), 2 * MIB, 0, create(2 * MIB), 0));
	allow(va, sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (unsigned char)(i * 7 + i / 4096);
	ok(cuMemcpyHtoD(va, buf, sizeof(buf)));
	ok(cuMemcpyDtoH(back, va, sizeof(buf)));
	ck_assert(!memcmp(buf, back, sizeof(buf)));
}
END_TEST

START_TEST(mapping_is_checked)
{
	CUmemGenericAllocationHandle h, other;
	CUdeviceptr va, p;

	start(0);
	h = create(4 * MIB);
	va = reserve(8 * MIB);
	ok(cuMemAlloc(&p, 4 * MIB));
	fails(cuMemMap(p, 4 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemMap(va, 8 * MIB, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED);
	fails(cuMemMap(va, 2 * MIB, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED);
	fails(cuMemMap(va, 2 * MIB, 2 * MIB, h, 0), CUDA_ERROR_NOT_SUPPORTED);
	fails(cuMemMap(va + 6 * MIB, 4 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemMap(va, 4 * MIB, 0, h, 0));
	fails(cuMemMap(va + 2 * MIB, 4 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemUnmap(va, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemAddressFree(va, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemFree(va), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)p), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemUnmap(va, 8 * MIB));			/* holes do not matter */
	ok(cuMemUnmap(va, 2 * MIB));
	fails(cuMemUnmap(p, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
	fails(cuMemAddressFree(va, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemAddressFree(va, 8 * MIB));
	ck_assert_uint_eq(reserve(8 * MIB), va);	/* addresses come again */
}
END_TEST

START_TEST(reservations_are_large_and_kept_apart)
{
	CUdeviceptr a, b;

	start(0);
	a = reserve((size_t)20 << 30);
	b = reserve((size_t)20 << 30);
	ck_assert(b >= a + ((size_t)20 << 30) || a >= b + ((size_t)20 << 30));
	ok(cuMemAddressFree(a, (size_t)20 << 30));
	ok(cuMemAddressReserve(&b, 2 * MIB, 0, a + 64 * MIB, 0));
	ck_assert_uint_eq(b, a + 64 * MIB);		/* the hint is free: taken */
	fails(cuMemAddressReserve(&b, (size_t)1 << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
}
END_TEST

START_TEST(capacity)
{
	CUmemAllocationProp p = prop(0);
	CUmemGenericAllocationHandle h;

	setenv("FAKECUDA_CAPACITY", "32M", 1);
	start(0);
	create(30 * MIB);
	fails(cuMemCreate(&h, 4 * MIB, &p, 0), CUDA_ERROR_OUT_OF_MEMORY);
	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	fails(cuMemCreate(&h, 4 * MIB, &p, 0), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemCreate(&h, 2 * MIB, &p, 0));
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 32 * MIB);
	ok(cuMemRelease(h));
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 30 * MIB);
	ck_assert_int_eq(fakecuda_check(), 0);
}
END_TEST

START_TEST(host_location)
{
	CUmemAllocationProp p = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				  .location = { .type = CU_MEM_LOCATION_TYPE_HOST_NUMA } };
	CUmemAccessDesc desc = { .location = p.location,
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	uint32_t back;

	start(0);
	ok(cuMemCreate(&h, 2 * MIB, &p, 0));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_HOST), 2 * MIB);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	va = reserve(2 * MIB);
	ok(cuMemMap(va, 2 * MIB, 0, h, 0));
	allow(va, 2 * MIB);
	ok(cuMemSetAccess(va, 2 * MIB, &desc, 1));
	*(uint32_t *)(uintptr_t)va = 4711;
	ok(cuMemcpyDtoH(&back, va, 4));
	ck_assert_uint_eq(back, 4711);
	ok(cuMemUnmap(va, 2 * MIB));
	ok(cuMemRelease(h));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_HOST), 0);
}
END_TEST

START_TEST(survives_the_context)
{
	CUmemGenericAllocationHandle h;
	CUcontext ctx;
	CUdeviceptr va, p;
	uint32_t back;

	start(0);
	h = create(2 * MIB);
	va = reserve(2 * MIB);
	ok(cuMemMap(va, 2 * MIB, 0, h, 0));
	allow(va, 2 * MIB);
	ok(cuMemAlloc(&p, 1));
	ok(cuMemsetD32(va, 5, 1));
	ok(cuDevicePrimaryCtxReset(0));
	ok(cuDevicePrimaryCtxRetain(&ctx, 0));
	ok(cuMemcpyDtoH(&back, va, 4));
	ck_assert_uint_eq(back, 5);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_VMM), 2 * MIB);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 0);
}
END_TEST

/* A program that closes all descriptors, and opens its own under the same numbers. */
START_TEST(descriptors_taken_away)
{
	CUmemAllocationProp p = prop(0);
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	uint32_t back;
	int own[64], fd;

	start(0);
	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ok(cuMemCreate(&h, 2 * MIB, &p, 0));
	va = reserve(2 * MIB);
	ok(cuMemMap(va, 2 * MIB, 0, h, 0));
	allow(va, 2 * MIB);
	for (fd = 3; fd < 64; fd++)
		close(fd);
	for (int i = 0; i < 64; i++)
		own[i] = open("/dev/null", O_RDONLY);
	ok(cuMemsetD32(va, 1, 1));
	ok(cuMemcpyDtoH(&back, va, 4));
	ck_assert_uint_eq(back, 1);
	fails(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
	      CUDA_ERROR_OPERATING_SYSTEM);
	ok(cuMemUnmap(va, 2 * MIB));
	ok(cuMemRelease(h));
	fakecuda_reset();
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(close(own[i]), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vmm");
	TCase *tc = new_case(suite, "vmm");

	tcase_add_test(tc, granularity);
	tcase_add_test(tc, memory_lives_by_reference_or_mapping);
	tcase_add_test(tc, access_comes_from_set_access);
	tcase_add_test(tc, one_handle_in_two_places);
	tcase_add_test(tc, copies_run_across_mappings);
	tcase_add_test(tc, mapping_is_checked);
	tcase_add_test(tc, reservations_are_large_and_kept_apart);
	tcase_add_test(tc, capacity);
	tcase_add_test(tc, host_location);
	tcase_add_test(tc, survives_the_context);
	tcase_add_test(tc, descriptors_taken_away);
	return run_suite(suite);
}
