/*
 * test_array.c - arrays, boxes, external memory and semaphores.
 */
#define _GNU_SOURCE
#include "common.h"

#include <sys/mman.h>

static CUarray array(size_t w, size_t h, size_t d)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = w, .Height = h, .Depth = d,
					 .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1 };
	CUarray a;

	ok(cuArray3DCreate(&a, &desc));
	return a;
}

START_TEST(arrays_are_counted_by_their_elements)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS req;
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_HALF,
				      .NumChannels = 4 };
	CUmipmappedArray m;
	CUarray a, level;

	start(0);
	a = array(100, 37, 0);
	fails(cuArrayGetMemoryRequirements(&req, a, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_ARRAY), 100 * 37 * 4);
	ok(cuArrayDestroy(a));
	fails(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_ARRAY), 0);
	ok(cuMipmappedArrayCreate(&m, &d, 4));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_ARRAY),
			  64 * 64 * 8 + 32 * 32 * 8 + 16 * 16 * 8 + 8 * 8 * 8);
	ok(cuMipmappedArrayGetLevel(&level, m, 3));
	ok(cuArray3DGetDescriptor(&d, level));
	ck_assert_uint_eq(d.Width, 8);
	fails(cuMipmappedArrayGetLevel(&level, m, 4), CUDA_ERROR_INVALID_VALUE);
	fails(cuArrayDestroy(level), CUDA_ERROR_INVALID_VALUE);
	ok(cuMipmappedArrayDestroy(m));
	fails(cuArray3DGetDescriptor(&d, level), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	d.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;	/* no memory, but requirements */
	d.Width = 256;
	d.Height = 65;
	ok(cuArray3DCreate(&a, &d));
	ok(cuArrayGetMemoryRequirements(&req, a, 0));
	ck_assert_uint_eq(req.size, 256 * 8 * 128);
	ck_assert_uint_eq(req.alignment, 65536);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_ARRAY), 0);
	ok(cuArrayDestroy(a));
	d.Format = (CUarray_format)0x77;
	fails(cuArray3DCreate(&a, &d), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(boxes)
{
	unsigned char src[6 * 40], back[6 * 40] = { 0 };
	CUDA_MEMCPY2D in = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = src, .srcPitch = 40,
			     .srcXInBytes = 4, .srcY = 1, .WidthInBytes = 20, .Height = 4,
			     .dstMemoryType = CU_MEMORYTYPE_DEVICE };
	CUDA_MEMCPY2D out = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .WidthInBytes = 20,
			      .Height = 4, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back,
			      .dstPitch = 40, .dstXInBytes = 4, .dstY = 1 };
	size_t pitch;
	CUdeviceptr p;

	start(0);
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (unsigned char)i;
	ok(cuMemAllocPitch(&p, &pitch, 20, 4, 4));
	in.dstDevice = out.srcDevice = p;
	in.dstPitch = out.srcPitch = pitch;
	ok(cuMemcpy2D(&in));
	ok(cuMemcpy2D(&out));
	for (size_t y = 0; y < 6; y++)
		for (size_t x = 0; x < 40; x++)
			ck_assert_uint_eq(back[y * 40 + x],
					  y >= 1 && y < 5 && x >= 4 && x < 24 ? y * 40 + x : 0);
	ok(cuMemsetD2D8(p, pitch, 0xee, 10, 4));
	ok(cuMemcpy2D(&out));
	ck_assert_uint_eq(back[40 + 4 + 9], 0xee);
	ck_assert_uint_eq(back[40 + 4 + 10], 40 + 14);
	in.Height = 5;
	fails(cuMemcpy2D(&in), CUDA_ERROR_INVALID_VALUE);	/* one row too many */
}
END_TEST

START_TEST(through_an_array)
{
	float src[4][3][8], back[4][3][8] = { 0 };
	CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = src, .srcPitch = 32,
			    .srcHeight = 3, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			    .WidthInBytes = 32, .Height = 3, .Depth = 4 };
	CUarray a;

	start(0);
	for (int i = 0; i < 4 * 3 * 8; i++)
		(&src[0][0][0])[i] = (float)i;
	a = array(8, 3, 4);
	c.dstArray = a;
	ok(cuMemcpy3D(&c));
	c = (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a,
			     .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 32,
			     .dstHeight = 3, .WidthInBytes = 32, .Height = 3, .Depth = 4 };
	ok(cuMemcpy3D(&c));
	ck_assert(!memcmp(src, back, sizeof(src)));
	ok(cuMemcpyAtoH(back, a, 4, 8));
	ck_assert(back[0][0][0] == 1.0f);
}
END_TEST

START_TEST(texture_objects)
{
	CUDA_RESOURCE_DESC res = { .resType = CU_RESOURCE_TYPE_ARRAY }, got;
	CUDA_TEXTURE_DESC tex = { 0 };
	CUtexObject t;
	CUsurfObject s;

	start(0);
	res.res.array.hArray = array(16, 16, 0);
	ok(cuTexObjectCreate(&t, &res, &tex, NULL));
	ok(cuTexObjectGetResourceDesc(&got, t));
	ck_assert_ptr_eq(got.res.array.hArray, res.res.array.hArray);
	ok(cuTexObjectDestroy(t));
	fails(cuTexObjectDestroy(t), CUDA_ERROR_INVALID_VALUE);
	ok(cuSurfObjectCreate(&s, &res));
	fails(cuTexObjectDestroy(s), CUDA_ERROR_INVALID_VALUE);
	ok(cuSurfObjectDestroy(s));
}
END_TEST

START_TEST(external_memory)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = { .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						  .size = 8 * MIB };
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = { .offset = MIB, .size = MIB };
	CUexternalMemory ext;
	uint32_t *theirs;
	CUdeviceptr p;
	int fd = memfd_create("vulkan", 0);

	start(0);
	ck_assert_int_eq(ftruncate(fd, 8 * MIB), 0);
	theirs = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	desc.handle.fd = fd;
	ok(cuImportExternalMemory(&ext, &desc));
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_EXTERNAL), 8 * MIB);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	ok(cuExternalMemoryGetMappedBuffer(&p, ext, &buffer));
	ok(cuMemsetD32(p, 12, 10));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(theirs[MIB / 4], 12);
	buffer.offset = 8 * MIB;
	fails(cuExternalMemoryGetMappedBuffer(&p, ext, &buffer), CUDA_ERROR_INVALID_VALUE);
	ok(cuDestroyExternalMemory(ext));
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_EXTERNAL), 0);
	ok(cuMemsetD32(p, 13, 10));		/* the buffer keeps it alive */
	ok(cuMemFree(p));
	fails(cuDestroyExternalMemory(ext), CUDA_ERROR_INVALID_HANDLE);
	desc.handle.fd = -1;
	fails(cuImportExternalMemory(&ext, &desc), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(external_semaphores)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD };
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS up = { 0 };
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = { 0 };
	CUexternalSemaphore sem;
	CUstream a, b;

	start(0);
	desc.handle.fd = memfd_create("semaphore", 0);
	ok(cuImportExternalSemaphore(&sem, &desc));
	ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	up.params.fence.value = wait.params.fence.value = 3;
	ok(cuWaitExternalSemaphoresAsync(&sem, &wait, 1, a));
	fails(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	ok(launch(function("spin"), b, NULL));
	ok(cuSignalExternalSemaphoresAsync(&sem, &up, 1, b));
	ok(cuStreamSynchronize(a));
	ck_assert_uint_ge(fakecuda_now(), 5000000000ULL);
	ok(cuDestroyExternalSemaphore(sem));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arrays");
	TCase *tc = new_case(suite, "arrays");

	tcase_add_test(tc, arrays_are_counted_by_their_elements);
	tcase_add_test(tc, boxes);
	tcase_add_test(tc, through_an_array);
	tcase_add_test(tc, texture_objects);
	tcase_add_test(tc, external_memory);
	tcase_add_test(tc, external_semaphores);
	return run_suite(suite);
}
