/* waits.h - conformance of order: what waits for the device, what streams and events promise, what
 * a host function may not do, which handles come again.
 */
#ifndef TEST_CONFORMANCE_WAITS_H
#define TEST_CONFORMANCE_WAITS_H

#include "test/conformance/vmm.h"

/* Each call while a kernel runs on an unrelated, non-blocking stream. */
static void who_waits(void)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	void *p = NULL, *big = NULL, *async = NULL, *managed = NULL, *pinned = NULL, *q = NULL;
	cudaStream_t other = NULL;
	cudaEvent_t event = NULL;
	cudaArray_t array = NULL;
	size_t free_bytes, total_bytes, pitch;
	static char page[8192] __attribute__((aligned(4096)));

	conf_section = "who waits for a busy stream";
	NEED(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	NEED(cudaEventCreate(&event));
	WAITS("cudaMalloc of 4 KiB", cudaMalloc(&p, 4096));
	WAITS("cudaMalloc of 64 MiB", cudaMalloc(&big, 64 << 20));
	WAITS("cudaFree of 4 KiB", cudaFree(p));
	WAITS("cudaFree of 64 MiB", cudaFree(big));
	WAITS("cudaFree of NULL", cudaFree(NULL));
	WAITS("cudaFree of what is not memory", cudaFree(page));
	WAITS("cudaMallocPitch", cudaMallocPitch(&p, &pitch, 1000, 10));
	WAITS("cudaFree of it", cudaFree(p));
	WAITS("cudaMallocManaged", cudaMallocManaged(&managed, 1 << 20));
	WAITS("cudaFree of it", cudaFree(managed));
	WAITS("cudaMallocHost", cudaMallocHost(&pinned, 1 << 20));
	WAITS("cudaFreeHost", cudaFreeHost(pinned));
	WAITS("cudaHostRegister", cudaHostRegister(page, sizeof(page), 0));
	WAITS("cudaHostUnregister", cudaHostUnregister(page));
	WAITS("cudaMallocArray", cudaMallocArray(&array, &format, 64, 64));
	WAITS("cudaFreeArray", cudaFreeArray(array));
	WAITS("cudaMallocAsync on another stream", cudaMallocAsync(&async, 1 << 20, other));
	WAITS("cudaFreeAsync on it", cudaFreeAsync(async, other));
	NEED(cudaMallocAsync(&async, 1 << 20, other));
	WAITS("cudaFree of cudaMallocAsync memory", cudaFree(async));
	NEED(cudaMalloc(&q, 1 << 20));
	WAITS("cudaFreeAsync of cudaMalloc memory", cudaFreeAsync(q, other));
	WAITS("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes));
	NEED(cudaMalloc(&q, 1 << 20));
	WAITS("cudaMemset on the legacy stream", cudaMemset(q, 0, 1 << 20));
	WAITS("cudaMemcpy to the device",
	      cudaMemcpy(q, page, sizeof(page), cudaMemcpyHostToDevice));
	WAITS("cudaMemcpy from the device",
	      cudaMemcpy(page, q, sizeof(page), cudaMemcpyDeviceToHost));
	WAITS("cudaMemcpy on the device", cudaMemcpy(q, (char *)q + 65536, 65536,
						     cudaMemcpyDeviceToDevice));
	WAITS("cudaStreamSynchronize of another stream", cudaStreamSynchronize(other));
	WAITS("cudaStreamDestroy", cudaStreamDestroy(other));
	WAITS("cudaStreamCreate", cudaStreamCreate(&other));
	WAITS("cudaEventDestroy", cudaEventDestroy(event));
	WAITS("cudaDeviceSynchronize", cudaDeviceSynchronize());
	WAITS("cudaMemPoolTrimTo of an idle pool", [] {
		cudaMemPool_t pool;
		cudaDeviceGetDefaultMemPool(&pool, 0);
		return cudaMemPoolTrimTo(pool, 0);
	}());
	WAITS("cudaDeviceGraphMemTrim", cudaDeviceGraphMemTrim(0));
	NEED(cudaStreamDestroy(other));
	NEED(cudaFree(q));
}

static void who_waits_vmm(void)
{
	CUmemAllocationProp prop = vmm_device_memory();
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr at = 0;

	conf_section = "who waits for a busy stream";
	WAITS("cuMemAddressReserve",
	      DRIVER(cuMemAddressReserve, 10020)(&at, 8 * vmm_page, 0, 0, 0));
	WAITS("cuMemCreate", DRIVER(cuMemCreate, 10020)(&handle, vmm_page, &prop, 0));
	WAITS("cuMemMap", DRIVER(cuMemMap, 10020)(at, vmm_page, 0, handle, 0));
	WAITS("cuMemSetAccess", vmm_access(at, vmm_page));
	WAITS("cuMemUnmap", DRIVER(cuMemUnmap, 10020)(at, vmm_page));
	WAITS("cuMemRelease", DRIVER(cuMemRelease, 10020)(handle));
	WAITS("cuMemAddressFree", DRIVER(cuMemAddressFree, 10020)(at, 8 * vmm_page));
}

/* The legacy stream against blocking and non-blocking ones. */
static void legacy_stream(void)
{
	cudaStream_t blocking = NULL, free_running = NULL;
	uint32_t *p = NULL;

	conf_section = "the legacy stream";
	NEED(cudaMalloc(&p, 4096));
	NEED(cudaStreamCreate(&blocking));
	NEED(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking));
	spin<<<1, 1>>>(SPIN_NS);
	fill<<<1, 1, 0, blocking>>>(p, 1u, 1u);
	fill<<<1, 1, 0, free_running>>>(p + 1, 1u, 1u);
	cudaStreamSynchronize(free_running);
	CODE_OF("work of a blocking stream after legacy work", cudaStreamQuery(blocking));
	CODE_OF("work of a non-blocking stream after legacy work", cudaStreamQuery(free_running));
	CODE_OF("the legacy stream itself", cudaStreamQuery(0));
	cudaDeviceSynchronize();
	spin<<<1, 1, 0, blocking>>>(SPIN_NS);
	fill<<<1, 1>>>(p, 2u, 1u);
	CODE_OF("legacy work after work of a blocking stream", cudaStreamQuery(0));
	cudaDeviceSynchronize();
	CODE_OF("all of it later", cudaStreamQuery(0));
	NEED(cudaStreamDestroy(blocking));
	NEED(cudaStreamDestroy(free_running));
	NEED(cudaFree(p));
}

static void events(void)
{
	cudaEvent_t timed = NULL, plain = NULL, fresh = NULL;
	cudaStream_t other = NULL;
	float ms = -1;

	conf_section = "events";
	NEED(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	NEED(cudaEventCreate(&timed));
	NEED(cudaEventCreate(&fresh));
	NEED(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
	CODE_OF("query before it is recorded", cudaEventQuery(timed));
	CODE_OF("synchronize before it is recorded", cudaEventSynchronize(timed));
	CODE_OF("a stream waits for one never recorded", cudaStreamWaitEvent(other, fresh, 0));
	CODE_OF("elapsed of two never recorded", cudaEventElapsedTime(&ms, timed, fresh));
	busy_start();
	NEED(cudaEventRecord(timed, conf_busy));
	conf_print("query while its work runs", "%d", (int)cudaEventQuery(timed));
	CODE_OF("the last error after that", cudaPeekAtLastError());
	NEED(cudaStreamWaitEvent(other, timed, 0));
	CODE_OF("a stream that waits for it", cudaStreamQuery(other));
	NEED(cudaEventRecord(timed, 0));
	NEED(cudaEventSynchronize(timed));
	CODE_OF("recorded again elsewhere: the waiting stream", cudaStreamQuery(other));
	NEED(cudaEventRecord(plain, conf_busy));
	CODE_OF("destroyed while its work runs", cudaEventDestroy(plain));
	busy_end();
	CODE_OF("the waiting stream afterwards", cudaStreamSynchronize(other));
	NEED(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
	NEED(cudaEventRecord(plain, 0));
	NEED(cudaEventSynchronize(plain));
	CODE_OF("elapsed with timing disabled", cudaEventElapsedTime(&ms, timed, plain));
	NEED(cudaEventRecord(fresh, 0));
	NEED(cudaEventSynchronize(fresh));
	CODE_OF("elapsed", cudaEventElapsedTime(&ms, timed, fresh));
	TRUTH("it is not negative", ms >= 0);
	CODE_OF("an unknown flag", cudaEventCreateWithFlags(&plain, 0x80));
	NEED(cudaEventDestroy(timed));
	NEED(cudaEventDestroy(fresh));
	NEED(cudaStreamDestroy(other));
}

/* The event of a whole context. */
static void context_events(void)
{
	auto record = DRIVER(cuCtxRecordEvent, 12050);
	auto wait = DRIVER(cuCtxWaitEvent, 12050);
	CUcontext context = NULL;
	cudaStream_t other = NULL;
	cudaEvent_t event = NULL, timed = NULL;

	conf_section = "context events";
	NEED(DRIVER(cuCtxGetCurrent, 4000)(&context));
	NEED(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	NEED(cudaEventCreate(&timed));
	CODE_OF("recorded while nothing runs", record(context, event));
	CODE_OF("query", cudaEventQuery(event));
	busy_start();
	CODE_OF("query after work submitted later", cudaEventQuery(event));
	CODE_OF("recorded while a non-blocking stream runs", record(context, event));
	CODE_OF("query", cudaEventQuery(event));
	NEED(cudaStreamWaitEvent(other, event, 0));
	CODE_OF("a stream that waits for it", cudaStreamQuery(other));
	busy_end();
	CODE_OF("query afterwards", cudaEventQuery(event));
	cudaStreamSynchronize(other);
	busy_start();
	NEED(record(context, event));
	cudaEventRecord(timed, other);
	NEED(cudaStreamSynchronize(other));
	TRUTH("other streams go on past it", busy());
	busy_end();
	CODE_OF("recorded with a timing event", record(context, timed));
	CODE_OF("recorded with no context", record(NULL, event));
	busy_start();
	NEED(cudaEventRecord(event, conf_busy));
	CODE_OF("the context waits for an event", wait(context, event));
	cudaEventRecord(timed, other);
	CODE_OF("work after that on another stream", cudaStreamQuery(other));
	busy_end();
	cudaDeviceSynchronize();
	NEED(cudaEventDestroy(event));
	NEED(cudaEventDestroy(timed));
	NEED(cudaStreamDestroy(other));
}

/* A stream that is destroyed goes on with its work: who waits for that? */
static void destroyed_streams(void)
{
	auto record = DRIVER(cuCtxRecordEvent, 12050);
	CUcontext context = NULL;
	cudaStream_t gone = NULL;
	cudaEvent_t event = NULL;
	uint32_t *p = NULL, *q = NULL, word = 0;

	conf_section = "destroyed streams";
	NEED(DRIVER(cuCtxGetCurrent, 4000)(&context));
	NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	NEED(cudaHostAlloc((void **)&p, 4096, cudaHostAllocMapped));
	for (int i = 0; i < 3; i++) {
		*(volatile uint32_t *)p = 0;
		NEED(cudaMalloc(&q, 4096));
		NEED(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
		spin<<<1, 1, 0, gone>>>(SPIN_NS);
		fill<<<1, 1, 0, gone>>>(p, 7u, 1u);
		NEED(cudaStreamDestroy(gone));
		word = *(volatile uint32_t *)p;
		VALUE("its work has not ended", word);
		if (i == 0) {
			CODE_OF("a context's event", record(context, event));
			CODE_OF("query", cudaEventQuery(event));
			CODE_OF("synchronize", cudaEventSynchronize(event));
		} else if (i == 1) {
			CODE_OF("cudaFree of other memory", cudaFree(q));
			q = NULL;
		} else {
			CODE_OF("cudaDeviceSynchronize", cudaDeviceSynchronize());
		}
		word = *(volatile uint32_t *)p;
		VALUE("its work after that", word);
		NEED(cudaDeviceSynchronize());
		NEED(cudaFree(q));
	}
	NEED(cudaEventDestroy(event));
	NEED(cudaFreeHost(p));
}

static void wait_for_values(void)
{
	auto wait = DRIVER(cuStreamWaitValue32, 11070);
	auto write = DRIVER(cuStreamWriteValue32, 11070);
	volatile uint32_t *flag = NULL;
	cudaStream_t first = NULL, second = NULL;
	CUdeviceptr device = 0;

	conf_section = "values in memory";
	NEED(cudaHostAlloc((void **)&flag, 4096, cudaHostAllocMapped));
	NEED(DRIVER(cuMemHostGetDevicePointer, 3020)(&device, (void *)flag, 0));
	NEED(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
	NEED(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	*flag = 0;
	NEED(wait(first, device, 1, CU_STREAM_WAIT_VALUE_GEQ));
	CODE_OF("a stream that waits for the host", cudaStreamQuery(first));
	*flag = 1;
	CODE_OF("and after the host has written", cudaStreamSynchronize(first));
	NEED(wait(first, device, 5, CU_STREAM_WAIT_VALUE_EQ));
	CODE_OF("a stream that waits for another", cudaStreamQuery(first));
	NEED(write(second, device, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
	CODE_OF("and after that one has written", cudaStreamSynchronize(first));
	NEED(cudaStreamSynchronize(second));
	VALUE("the value", *flag);
	NEED(cudaStreamDestroy(first));
	NEED(cudaStreamDestroy(second));
	NEED(cudaFreeHost((void *)flag));
}

static void streams(void)
{
	cudaStream_t first = NULL, second = NULL;
	unsigned int flags = 99;
	int least = 99, greatest = 99, priority = 99;
	uint32_t *p = NULL;

	conf_section = "streams";
	CODE(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	TRUTH("the least priority is 0", least == 0);
	NEED(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, greatest - 10));
	NEED(cudaStreamGetPriority(first, &priority));
	TRUTH("priorities are clamped", priority == greatest);
	NEED(cudaStreamGetFlags(first, &flags));
	VALUE("its flags", flags);
	CODE_OF("an unknown flag", cudaStreamCreateWithFlags(&second, 0x40));
	NEED(cudaMalloc(&p, 4096));
	NEED(cudaMemset(p, 0, 4096));
	spin<<<1, 1, 0, first>>>(SPIN_NS / 5);
	fill<<<1, 1, 0, first>>>(p, 7u, 1u);
	CODE_OF("destroyed with work pending", cudaStreamDestroy(first));
	NEED(cudaDeviceSynchronize());
	TRUTH("its work is done all the same", conf_holds((char *)p, 7, 1));
	NEED(cudaFree(p));
}

/* ---- inside a host function ---- */

static struct {
	void *p, *async;
	cudaEvent_t event;
	int code[16];
} inside;

static void host_function(void *)
{
	size_t free_bytes, total_bytes;
	cudaStream_t stream;
	cudaEvent_t event;
	int device, i = 0;
	void *q;

	inside.code[i++] = (int)cudaMalloc(&q, 1000);
	inside.code[i++] = (int)cudaFree(inside.p);
	inside.code[i++] = (int)cudaMallocAsync(&q, 1000, conf_busy);
	inside.code[i++] = (int)cudaFreeAsync(inside.async, conf_busy);
	inside.code[i++] = (int)cudaMallocHost(&q, 1000);
	inside.code[i++] = (int)cudaMallocManaged(&q, 1000);
	inside.code[i++] = (int)cudaMemGetInfo(&free_bytes, &total_bytes);
	inside.code[i++] = (int)cudaEventQuery(inside.event);
	inside.code[i++] = (int)cudaEventRecord(inside.event, conf_busy);
	inside.code[i++] = (int)cudaEventCreate(&event);
	inside.code[i++] = (int)cudaStreamCreate(&stream);
	inside.code[i++] = (int)cudaGetDevice(&device);
	cudaGetLastError();
}

static void in_host_functions(void)
{
	static const char *const calls[] = {
		"cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaMallocHost",
		"cudaMallocManaged", "cudaMemGetInfo", "cudaEventQuery", "cudaEventRecord",
		"cudaEventCreate", "cudaStreamCreate", "cudaGetDevice",
	};
	cudaStream_t stream = NULL;

	conf_section = "inside a host function";
	NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	NEED(cudaEventCreate(&inside.event));
	NEED(cudaMalloc(&inside.p, 1000));
	NEED(cudaMallocAsync(&inside.async, 1000, conf_busy));
	NEED(cudaDeviceSynchronize());
	CODE(cudaLaunchHostFunc(stream, host_function, NULL));
	CODE(cudaStreamSynchronize(stream));
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		CODE_OF(calls[i], inside.code[i]);
	CODE_OF("cudaFree of what it could not free", cudaFree(inside.p));
	CODE_OF("cudaFree of the async one", cudaFree(inside.async));
	NEED(cudaEventDestroy(inside.event));
	NEED(cudaStreamDestroy(stream));
}

#endif
