/*
 * beside_programs.c - the programs of beside.def.
 *
 * Thread context: each has one thread.
 */
#include "test/model/beside.h"

/* A step that calls the library and not the driver. */
static CUresult gpumem_empty_cache_if(void)
{
	void (*empty)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gpumem_empty_cache");

	if (empty)
		empty();
	return CUDA_SUCCESS;
}

static void launch_in(struct scene *scene, int which, CUstream stream, CUdeviceptr ptr, uint32_t value)
{
	uint32_t words = WORDS;
	void *args[] = { &ptr, &value, &words };

	DO(cuLaunchKernel, scene->fill[which], 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

static void launch(struct scene *scene, CUstream stream, CUdeviceptr ptr, uint32_t value)
{
	launch_in(scene, 0, stream, ptr, value);
}

static CUdeviceptr take(size_t bytes)
{
	CUdeviceptr ptr = 0;

	DO(cuMemAlloc, &ptr, bytes);
	((void (*)(uint64_t, size_t))control("fakecuda_note_alloc"))(ptr, bytes);
	return ptr;
}

static CUdeviceptr take_async(size_t bytes, CUstream stream)
{
	CUdeviceptr ptr = 0;

	DO(cuMemAllocAsync, &ptr, bytes, stream);
	((void (*)(uint64_t, size_t))control("fakecuda_note_alloc"))(ptr, bytes);
	return ptr;
}

static void drop(CUdeviceptr ptr)
{
	((void (*)(uint64_t))control("fakecuda_note_free"))(ptr);
	DO(cuMemFree, ptr);
}

static void drop_async(CUdeviceptr ptr, CUstream stream)
{
	((void (*)(uint64_t))control("fakecuda_note_free"))(ptr);
	DO(cuMemFreeAsync, ptr, stream);
}

/* Give all three streams work. */
static void many_streams(struct scene *scene)
{
	CUdeviceptr p = get(WORDS * 4);

	fill(scene, scene->s, p, 1);
	synchronise();
	fill(scene, scene->t, p, 2);
	synchronise();
	fill(scene, scene->u, p, 3);
	synchronise();
	give(p);
}

void beside_growth(struct scene *scene)
{
	CUdeviceptr p = take(3000), q = take(BIG), a = take_async(5000, scene->s);
	CUdeviceptr b = take_async(2 * BIG, scene->s);

	launch(scene, scene->s, q, 1);
	launch(scene, scene->s, b, 2);
	drop(p);
	drop_async(a, scene->s);
	p = take(70 * MIB);
	expect_words(scene->s, q, 1);
	expect_words(scene->s, b, 2);
	drop(q);
	drop_async(b, scene->s);
	drop(p);
}

void beside_seal(struct scene *scene)
{
	CUdeviceptr p, q, a;

	many_streams(scene);
	p = take(2 * MIB);
	a = take_async(2 * MIB, scene->s);
	slow_from_here();
	launch(scene, scene->s, p, 1);
	drop(p);
	drop_async(a, scene->t);
	q = take(2 * MIB);
	launch(scene, scene->t, q, 2);
	a = take_async(2 * MIB, scene->s);
	p = take(2 * MIB);
	launch(scene, scene->u, p, 3);
	drop(p);
	drop_async(a, scene->s);
	synchronise();
	launch(scene, scene->s, q, 4);
	p = take(BIG);
	expect_words(scene->s, q, 4);
	drop(p);
	drop(q);
}

void beside_seal_deferred(struct scene *scene)
{
	beside_seal(scene);
}

void beside_limbo_wait(struct scene *scene)
{
	struct pile pile;
	CUdeviceptr q;

	many_streams(scene);
	get_pile(&pile);
	slow_from_here();
	fill(scene, scene->s, pile.block[0], 1);
	give_pile(&pile);
	launch(scene, scene->t, get(WORDS * 4), 1);
	q = take(BIG);
	launch(scene, scene->t, q, 2);
	expect_words(scene->t, q, 2);
	drop(q);
}

void beside_transition(struct scene *scene)
{
	CUdeviceptr p = take(2 * MIB), q, other = get(4096);

	slow_from_here();
	launch(scene, scene->s, p, 1);
	drop(p);
	q = take(2 * MIB);
	launch(scene, scene->t, q, 2);
	launch(scene, scene->u, other, 3);
	synchronise();
	expect_words(scene->t, q, 2);
	expect_words(scene->u, other, 3);
}

void beside_thread_stream(struct scene *scene)
{
	CUresult (*cuLaunchKernel_ptsz)(CUfunction, unsigned int, unsigned int, unsigned int,
					unsigned int, unsigned int, unsigned int, unsigned int,
					CUstream, void **, void **);
	CUresult (*cuMemAllocAsync_ptsz)(CUdeviceptr *, size_t, CUstream);
	CUresult (*cuMemFreeAsync_ptsz)(CUdeviceptr, CUstream);
	CUdeviceptr p = take(2 * MIB), q, a;
	uint32_t value = 2, words = WORDS;
	void *args[] = { &q, &value, &words };

	CHECK(cuGetProcAddress("cuLaunchKernel", (void **)&cuLaunchKernel_ptsz, 12000,
			       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	CHECK(cuGetProcAddress("cuMemAllocAsync", (void **)&cuMemAllocAsync_ptsz, 12000,
			       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	CHECK(cuGetProcAddress("cuMemFreeAsync", (void **)&cuMemFreeAsync_ptsz, 12000,
			       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	slow_from_here();
	launch(scene, scene->s, p, 1);
	drop(p);
	q = take(2 * MIB);
	DO(cuLaunchKernel_ptsz, scene->fill[0], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
	DO(cuMemAllocAsync_ptsz, &a, 4096, NULL);
	DO(cuMemFreeAsync_ptsz, a, NULL);
	synchronise();
	expect_words(scene->t, q, 2);
}

/* ---- where memory is short ---- */

/* Let the cache hold all memory of the device; with @in_limbo some of it waits for work. */
static void fill_device(struct scene *scene, bool in_limbo)
{
	CUdeviceptr block[4];

	many_streams(scene);
	for (int i = 0; i < 4; i++)
		block[i] = get(11 * MIB + (size_t)i);
	fill(scene, scene->s, block[0], 1);
	if (!in_limbo)
		synchronise();
	for (int i = 0; i < 4; i++)
		give(block[i]);
	fill(scene, scene->t, get(4096), 1);
}

void beside_flush(struct scene *scene)
{
	static char image[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
			      ".global .align 4 .b8 big[30000000];\n";
	CUdeviceptr p, q;
	CUmodule module;
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR shape = { .Width = 2048, .Height = 2048, .NumChannels = 4,
					.Format = CU_AD_FORMAT_UNSIGNED_INT8 };
	size_t pitch;

	fill_device(scene, true);
	DO(cuMemAllocPitch, &p, &pitch, 4096, 9000, 4);
	launch(scene, scene->s, p, 1);
	expect_words(scene->s, p, 1);
	DO(cuMemFree, p);
	fill_device(scene, true);
	q = take(36 * MIB);
	drop(q);
	DO(cuModuleLoadData, &module, image);
	DO(cuModuleUnload, module);
	fill_device(scene, false);
	q = take_async(30 * MIB, scene->s);
	drop_async(q, scene->s);
	DO(cuArrayCreate, &array, &shape);
	DO(cuArrayDestroy, array);
}

/* Free memory that one stream alone used, on both sides of a live block. */
void beside_flush_one_stream(struct scene *scene)
{
	CUdeviceptr p = take(11 * MIB), live = take(11 * MIB), q = take(11 * MIB);

	launch(scene, scene->s, p, 1);
	launch(scene, scene->s, live, 2);
	launch(scene, scene->s, q, 3);
	drop(p);
	drop(q);
	p = take(28 * MIB);
	launch(scene, scene->s, p, 4);
	expect_words(scene->s, live, 2);
	expect_words(scene->s, p, 4);
	drop(p);
	drop(live);
}

void beside_out_of_memory(struct scene *scene)
{
	CUdeviceptr p, live = get(3 * MIB);
	size_t pitch;

	fill_device(scene, true);
	DO_GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, 100 * MIB);
	DO_GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync, &p, 100 * MIB, scene->s);
	DO_GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch, &p, &pitch, 1 << 20, 100, 4);
	launch(scene, scene->s, live, 5);
	p = take(20 * MIB);
	expect_words(scene->s, live, 5);
}

void beside_memory_info(struct scene *scene)
{
	CUdeviceptr p, q, a;
	size_t free_bytes, total;

	many_streams(scene);
	p = take(20 * MIB);
	q = take(40 * MIB);
	a = take_async(20 * MIB, scene->s);
	slow_from_here();
	launch(scene, scene->s, p, 1);
	drop(p);
	launch(scene, scene->t, q, 1);
	drop(q);
	drop_async(a, scene->s);
	DO(cuMemGetInfo, &free_bytes, &total);
	DO(gpumem_empty_cache_if);
	DO(cuMemGetInfo, &free_bytes, &total);
	DO(cuCtxSynchronize);
	DO(cuMemGetInfo, &free_bytes, &total);
}

void beside_empty(struct scene *scene)
{
	CUdeviceptr p = take(20 * MIB), q = take(40 * MIB), a = take_async(20 * MIB, scene->s);

	many_streams(scene);
	launch(scene, scene->s, p, 1);
	drop(q);
	drop_async(a, scene->s);
	DO(gpumem_empty_cache_if);
	drop(p);
	launch(scene, scene->t, get(4096), 1);
	DO(gpumem_empty_cache_if);
	drop(take(5 * MIB));
	DO(gpumem_empty_cache_if);
}

/* ---- stream-ordered memory ---- */

/* Order all later work of @after behind all earlier work of @before. */
static void order(CUstream after, CUstream before)
{
	CUevent event;

	DO(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	DO(cuEventRecord, event, before);
	DO(cuStreamWaitEvent, after, event, 0);
	DO(cuEventDestroy, event);
}

void beside_pools(struct scene *scene)
{
	cuuint64_t number = 0;
	CUmemoryPool pool;
	int one = 1;
	CUdeviceptr a, b;
	CUstream more;

	DO(cuDeviceGetDefaultMemPool, &pool, 0);
	a = take_async(20 * MIB, scene->s);
	b = take_async(30 * MIB, scene->t);
	launch(scene, scene->s, a, 1);
	drop_async(a, scene->s);
	DO(cuStreamSynchronize, scene->s);
	launch(scene, scene->t, b, 2);
	DO(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &one);
	number = UINT64_MAX;
	DO(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &number);
	order(scene->u, scene->t);
	drop_async(b, scene->u);
	DO(cuStreamSynchronize, scene->t);
	DO(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &number);
	DO(cuMemPoolTrimTo, pool, 0);
	DO(cuStreamCreate, &more, CU_STREAM_NON_BLOCKING);
	a = take_async(20 * MIB, more);
	launch(scene, more, a, 3);
	drop_async(a, more);
	a = take_async(25 * MIB, more);
	launch(scene, more, a, 3);
	order(scene->s, more);
	DO(cuStreamDestroy, more);
	drop_async(a, scene->s);
	number = 0;
	DO(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &number);
	DO(cuMemPoolTrimTo, pool, 0);
	DO(cuStreamSynchronize, scene->s);
	DO(cuCtxSynchronize);
}

/* ---- frees that wait ---- */

static void copy_and_free(struct scene *scene)
{
	CUdeviceptr p = take(WORDS * 4);
	uint32_t *words;

	many_streams(scene);
	CHECK(cuMemAllocHost((void **)&words, WORDS * 4));
	slow_from_here();
	launch(scene, scene->s, p, 7);
	DO(cuMemcpyDtoHAsync, words, p, WORDS * 4, scene->s);
	drop(p);
	must(words[WORDS - 1] == 7, "freed before the copy was done: %u", words[WORDS - 1]);
	p = take(WORDS * 4);
	launch(scene, scene->t, p, 8);
	drop(p);
	CHECK(cuMemFreeHost(words));
}

void beside_barrier(struct scene *scene)
{
	copy_and_free(scene);
}

void beside_barrier_old(struct scene *scene)
{
	copy_and_free(scene);
}

/* ---- contexts and devices ---- */

void beside_contexts(struct scene *scene)
{
	CUctxCreateParams params = { 0 };
	CUdeviceptr p, q, a;
	CUcontext own;
	CUstream stream;

	many_streams(scene);
	p = take(3 * MIB);
	DO(cuCtxCreate, &own, &params, 0, 0);
	DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	q = take(3 * MIB);
	a = take_async(3 * MIB, stream);
	DO(cuMemsetD32Async, q, 1, 100, stream);
	drop(p);			/* belongs to the other context */
	DO(cuMemsetD32Async, a, 1, 100, stream);
	drop(q);
	q = take(30 * MIB);
	DO(cuCtxSynchronize);
	DO(cuCtxDestroy, own);
	DO(cuCtxSetCurrent, scene->context[0]);
	launch(scene, scene->s, take(2 * MIB), 1);
	drop_async(a, scene->s);
	DO(cuCtxSynchronize);
}

void beside_two_devices(struct scene *scene)
{
	CUcontext second;
	CUdeviceptr p, q, a, b;
	CUstream stream;

	many_streams(scene);
	DO(cuDevicePrimaryCtxRetain, &second, 1);
	DO(cuCtxSetCurrent, second);
	DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	p = take(3 * MIB);
	DO(cuMemsetD32Async, p, 1, 100, stream);
	DO(cuCtxSetCurrent, scene->context[0]);
	a = take_async(3 * MIB, stream);	/* on the stream's device */
	b = take_async(3 * MIB, scene->s);
	q = take(3 * MIB);
	launch(scene, scene->s, q, 1);
	DO(cuMemcpyDtoDAsync, q, p + MIB, 4096, scene->s);	/* opens the pages of each device to the other */
	DO(cuStreamSynchronize, scene->s);
	drop(p);
	launch(scene, scene->t, b, 1);
	drop(q);
	DO(gpumem_empty_cache_if);
	drop_async(b, scene->t);
	DO(cuCtxSetCurrent, second);
	drop_async(a, stream);
	DO(gpumem_empty_cache_if);
	DO(cuDevicePrimaryCtxRelease, 1);
	DO(cuCtxSetCurrent, scene->context[0]);
	DO(cuCtxSynchronize);
}

/* ---- other reasons for calls of the library ---- */

void beside_fill(struct scene *scene)
{
	CUdeviceptr p = take(WORDS * 4), a = take_async(WORDS * 4, scene->s);

	launch(scene, scene->s, p, 1);
	launch(scene, scene->s, a, 2);
	expect_words(scene->s, a, 2);
	drop_async(a, scene->s);
	drop(p);
	p = take(WORDS * 4);
	drop(p);
}

static void graph_with_memory(struct scene *scene)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } },
		.bytesize = 5 * MIB };
	CUgraphNode node, end;
	CUgraphExec exec;
	CUgraph graph;

	CHECK(cuGraphCreate(&graph, 0));
	DO(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &params);
	DO(cuGraphAddMemFreeNode, &end, graph, &node, 1, params.dptr);
	DO(cuGraphInstantiateWithFlags, &exec, graph, 0);
	DO(cuGraphLaunch, exec, scene->s);
	CHECK(cuStreamSynchronize(scene->s));
	DO(cuGraphExecDestroy, exec);
	DO(cuDeviceGraphMemTrim, 0);
}

void beside_kinds(struct scene *scene)
{
	CUDA_ARRAY_DESCRIPTOR flat = { .Width = 64, .Height = 64, .NumChannels = 4,
				       .Format = CU_AD_FORMAT_UNSIGNED_INT8 };
	CUDA_ARRAY3D_DESCRIPTOR deep = { .Width = 64, .Height = 64, .NumChannels = 4,
					 .Format = CU_AD_FORMAT_UNSIGNED_INT8,
					 .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING };
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmipmappedArray levels;
	CUmemoryPool pool;
	CUdeviceptr p;
	CUarray array;

	DO(cuArrayCreate, &array, &flat);
	DO(cuArrayDestroy, array);
	DO(cuArray3DCreate, &array, &deep);
	DO(cuArrayDestroy, array);
	deep.Flags = 0;
	DO(cuMipmappedArrayCreate, &levels, &deep, 3);
	DO(cuMipmappedArrayDestroy, levels);
	DO(cuMemPoolCreate, &pool, &props);
	DO(cuMemAllocFromPoolAsync, &p, 5000, pool, scene->s);
	DO(cuMemFreeAsync, p, scene->s);
	CHECK(cuStreamSynchronize(scene->s));
	DO(cuMemPoolDestroy, pool);
	graph_with_memory(scene);
}

void beside_imports(struct scene *scene)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr p, q, base;
	size_t bytes = 0;
	int fd;

	DO(cuIpcOpenMemHandle, &p, exported(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	DO(cuMemsetD8Async, p, 1, 5000, scene->s);
	q = take(5000);
	launch(scene, scene->t, q, 1);
	DO(cuMemGetAddressRange, &base, &bytes, p);
	must(base == p && bytes == 5000, "range %zu", bytes);
	synchronise();
	DO(cuIpcCloseMemHandle, p);
	DO(cuMemCreate, &handle, 2 * MIB, &prop, 0);
	DO(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	DO(cuMemImportFromShareableHandle, &again, (void *)(uintptr_t)fd,
	   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	DO(cuMemRelease, again);
	DO(cuMemRelease, handle);
}

void beside_waits(struct scene *scene)
{
	CUdeviceptr p, q;
	CUevent event;

	many_streams(scene);
	p = take(2 * MIB);
	q = take(2 * MIB);
	DO(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	launch(scene, scene->s, p, 1);
	DO(cuEventRecord, event, scene->s);
	DO(cuStreamWaitEvent, scene->t, event, 0);
	launch(scene, scene->t, p, 2);
	drop(p);
	launch(scene, scene->u, q, 3);
	DO(cuEventSynchronize, event);
	DO(cuEventQuery, event);
	synchronise();
	DO(cuStreamQuery, scene->t);
	DO(cuStreamSynchronize, scene->u);
	drop(q);
	DO(cuCtxSynchronize);
	DO(cuEventDestroy, event);
	DO(cuStreamDestroy, scene->u);
	DO(cuStreamDestroy, scene->t);
}

void beside_questions(struct scene *scene)
{
	CUdeviceptr p = take(5000), q = take(5000), base, a = take_async(5000, scene->s);
	CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
	void *data[1];
	CUipcMemHandle handle;
	size_t bytes = 0;

	data[0] = &bytes;
	DO(cuMemGetAddressRange, &base, &bytes, q + 10);
	must(base == q && bytes == 5000, "range %zu", bytes);
	DO(cuPointerGetAttribute, &bytes, attribute, q + 10);
	must(bytes == 5000, "attribute %zu", bytes);
	DO(cuPointerGetAttributes, 1, &attribute, data, a);
	DO(cuIpcGetMemHandle, &handle, q);
	drop(p);
	launch(scene, scene->s, take(3 * MIB), 1);
	drop(q);
	drop_async(a, scene->s);
}

static void CUDA_CB nothing(void *arg)
{
	(void)arg;
}

void beside_host_function(struct scene *scene)
{
	CUdeviceptr p = take(2 * MIB);

	many_streams(scene);
	DO(cuLaunchHostFunc, scene->s, nothing, NULL);
	launch(scene, scene->t, p, 1);
	drop(p);
	launch(scene, scene->s, take(BIG), 1);
	p = take(2 * MIB);
	drop_async(p, scene->s);
	synchronise();
}
