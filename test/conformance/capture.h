/* capture.h - conformance of stream capture: every call, from every sort of caller, in each mode.
 *
 * For each line a capture is begun, the call made, the capture ended. The result is the call's
 * code and the end's: whether the call was refused, and whether it spoiled the capture.
 *
 * Thread context: the capturing thread is the main one; calls of "another thread" are made by a
 * thread that lives for one call, so that its capture mode is its own.
 */
#ifndef TEST_CONFORMANCE_CAPTURE_H
#define TEST_CONFORMANCE_CAPTURE_H

#include <pthread.h>

#include "test/conformance/vmm.h"

/* What the calls work on, made afresh for each. A call that frees something sets it to NULL. */
struct room {
	cudaStream_t captured, other;
	void *linear, *async, *pinned, *out, *out_async, *out_pinned;
	cudaEvent_t event, out_event;
	cudaStream_t out_stream;
	cudaArray_t array, out_array;
	cudaMemPool_t pool, out_pool;
	CUdeviceptr range;
	CUmemGenericAllocationHandle handle, out_handle;
	bool mapped;
	char host[64];
};

static const char *capture_room_open(struct room *room)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	CUmemAllocationProp prop = vmm_device_memory();
	cudaMemPoolProps props = {};

	memset(room, 0, sizeof(*room));
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	if (cudaStreamCreateWithFlags(&room->captured, cudaStreamNonBlocking) ||
	    cudaStreamCreateWithFlags(&room->other, cudaStreamNonBlocking) ||
	    cudaMalloc(&room->linear, 4096) || cudaMallocHost(&room->pinned, 4096) ||
	    cudaMallocAsync(&room->async, 4096, room->other) ||
	    cudaEventCreateWithFlags(&room->event, cudaEventDisableTiming) ||
	    cudaMallocArray(&room->array, &format, 16, 16) ||
	    cudaMemPoolCreate(&room->pool, &props) ||
	    cudaEventRecord(room->event, room->other) || cudaStreamSynchronize(room->other))
		return "the runtime's things";
	if (DRIVER(cuMemAddressReserve, 10020)(&room->range, 4 * vmm_page, 0, 0, 0) ||
	    DRIVER(cuMemCreate, 10020)(&room->handle, vmm_page, &prop, 0) ||
	    DRIVER(cuMemMap, 10020)(room->range, vmm_page, 0, room->handle, 0) ||
	    vmm_access(room->range, vmm_page))
		return "the driver's things";
	room->mapped = true;
	return NULL;
}

static void capture_room_close(struct room *room)
{
	cudaFree(room->linear);
	cudaFree(room->async);
	cudaFree(room->out);
	cudaFree(room->out_async);
	cudaFreeHost(room->pinned);
	cudaFreeHost(room->out_pinned);
	cudaFreeArray(room->array);
	cudaFreeArray(room->out_array);
	if (room->event)
		cudaEventDestroy(room->event);
	if (room->out_event)
		cudaEventDestroy(room->out_event);
	if (room->out_stream)
		cudaStreamDestroy(room->out_stream);
	if (room->pool)
		cudaMemPoolDestroy(room->pool);
	if (room->out_pool)
		cudaMemPoolDestroy(room->out_pool);
	if (room->mapped)
		DRIVER(cuMemUnmap, 10020)(room->range, vmm_page);
	if (room->handle)
		DRIVER(cuMemRelease, 10020)(room->handle);
	if (room->out_handle)
		DRIVER(cuMemRelease, 10020)(room->out_handle);
	if (room->range)
		DRIVER(cuMemAddressFree, 10020)(room->range, 4 * vmm_page);
	cudaDeviceSynchronize();
	cudaStreamDestroy(room->captured);
	cudaStreamDestroy(room->other);
	cudaGetLastError();
}

struct capture_call {
	const char *name;
	int (*make)(struct room *room);
};

/* A call that gives @field back, which is then gone. */
#define GIVES_BACK(field, call)                                                                \
	[](struct room *r) -> int {                                                            \
		int code = (int)(call);                                                        \
		if (!code)                                                                     \
			r->field = {};                                                         \
		return code;                                                                   \
	}
#define CALLS(call) [](struct room *r) -> int { (void)r; return (int)(call); }

static CUcontext capture_context(void)
{
	CUcontext context = NULL;

	DRIVER(cuCtxGetCurrent, 4000)(&context);
	return context;
}

static CUmemAllocationProp capture_prop = vmm_device_memory();
static cudaChannelFormatDesc capture_format = cudaCreateChannelDesc<float>();
static size_t capture_sizes[2];
static struct cudaPointerAttributes capture_attributes;
static cudaIpcMemHandle_t capture_ipc;
static uint64_t capture_value;
static cudaMemPoolProps capture_pool_props;

static const struct capture_call capture_calls[] = {
	{ "cudaMalloc", CALLS(cudaMalloc(&r->out, 1000)) },
	{ "cudaMalloc of 0 bytes", CALLS(cudaMalloc(&r->out, 0)) },
	{ "cudaMallocPitch", CALLS(cudaMallocPitch(&r->out, &capture_sizes[0], 100, 10)) },
	{ "cudaMallocManaged", CALLS(cudaMallocManaged(&r->out, 1000)) },
	{ "cudaMallocHost", CALLS(cudaMallocHost(&r->out_pinned, 1000)) },
	{ "cudaMallocArray", CALLS(cudaMallocArray(&r->out_array, &capture_format, 8, 8)) },
	{ "cudaFree", GIVES_BACK(linear, cudaFree(r->linear)) },
	{ "cudaFree of NULL", CALLS(cudaFree(NULL)) },
	{ "cudaFree of cudaMallocAsync memory", GIVES_BACK(async, cudaFree(r->async)) },
	{ "cudaFreeHost", GIVES_BACK(pinned, cudaFreeHost(r->pinned)) },
	{ "cudaFreeArray", GIVES_BACK(array, cudaFreeArray(r->array)) },
	{ "cudaMallocAsync on another stream",
	  CALLS(cudaMallocAsync(&r->out_async, 1000, r->other)) },
	{ "cudaFreeAsync on another stream", GIVES_BACK(async, cudaFreeAsync(r->async, r->other)) },
	{ "cudaFreeAsync of cudaMalloc memory there",
	  GIVES_BACK(linear, cudaFreeAsync(r->linear, r->other)) },
	{ "cudaMallocAsync on the legacy stream", CALLS(cudaMallocAsync(&r->out_async, 1000, 0)) },
	{ "cudaMemPoolCreate", CALLS(cudaMemPoolCreate(&r->out_pool, &capture_pool_props)) },
	{ "cudaMemPoolDestroy", GIVES_BACK(pool, cudaMemPoolDestroy(r->pool)) },
	{ "cudaMemPoolTrimTo", CALLS(cudaMemPoolTrimTo(r->pool, 0)) },
	{ "cudaMemPoolGetAttribute",
	  CALLS(cudaMemPoolGetAttribute(r->pool, cudaMemPoolAttrUsedMemCurrent, &capture_value)) },
	{ "cudaDeviceGraphMemTrim", CALLS(cudaDeviceGraphMemTrim(0)) },
	{ "cuMemCreate",
	  CALLS(DRIVER(cuMemCreate, 10020)(&r->out_handle, vmm_page, &capture_prop, 0)) },
	{ "cuMemMap",
	  CALLS(DRIVER(cuMemMap, 10020)(r->range + vmm_page, vmm_page, 0, r->handle, 0) ||
		DRIVER(cuMemUnmap, 10020)(r->range + vmm_page, vmm_page)) },
	{ "cuMemSetAccess", CALLS(vmm_access(r->range, vmm_page)) },
	{ "cuMemUnmap", GIVES_BACK(mapped, DRIVER(cuMemUnmap, 10020)(r->range, vmm_page)) },
	{ "cuMemRelease", GIVES_BACK(handle, DRIVER(cuMemRelease, 10020)(r->handle)) },
	{ "cudaEventCreate", CALLS(cudaEventCreate(&r->out_event)) },
	{ "cudaEventDestroy", GIVES_BACK(event, cudaEventDestroy(r->event)) },
	{ "cudaEventQuery", CALLS(cudaEventQuery(r->event)) },
	{ "cudaEventSynchronize", CALLS(cudaEventSynchronize(r->event)) },
	{ "cudaEventRecord on another stream", CALLS(cudaEventRecord(r->event, r->other)) },
	{ "cudaStreamWaitEvent of another stream",
	  CALLS(cudaStreamWaitEvent(r->other, r->event, 0)) },
	{ "cudaStreamCreate",
	  CALLS(cudaStreamCreateWithFlags(&r->out_stream, cudaStreamNonBlocking)) },
	{ "cudaStreamQuery of another stream", CALLS(cudaStreamQuery(r->other)) },
	{ "cudaStreamSynchronize of another stream", CALLS(cudaStreamSynchronize(r->other)) },
	{ "cudaStreamQuery of the captured stream", CALLS(cudaStreamQuery(r->captured)) },
	{ "cudaStreamSynchronize of the captured stream",
	  CALLS(cudaStreamSynchronize(r->captured)) },
	{ "cudaDeviceSynchronize", CALLS(cudaDeviceSynchronize()) },
	{ "cuCtxRecordEvent", CALLS(DRIVER(cuCtxRecordEvent, 12050)(capture_context(), r->event)) },
	{ "cuCtxWaitEvent", CALLS(DRIVER(cuCtxWaitEvent, 12050)(capture_context(), r->event)) },
	{ "cudaMemGetInfo", CALLS(cudaMemGetInfo(&capture_sizes[0], &capture_sizes[1])) },
	{ "cudaPointerGetAttributes",
	  CALLS(cudaPointerGetAttributes(&capture_attributes, r->linear)) },
	{ "cudaIpcGetMemHandle", CALLS(cudaIpcGetMemHandle(&capture_ipc, r->linear)) },
	{ "cudaMemset", CALLS(cudaMemset(r->linear, 0, 64)) },
	{ "cudaMemcpy to the device",
	  CALLS(cudaMemcpy(r->linear, r->host, 64, cudaMemcpyHostToDevice)) },
	{ "cudaMemcpy on the device",
	  CALLS(cudaMemcpy(r->linear, (char *)r->linear + 128, 64, cudaMemcpyDeviceToDevice)) },
	{ "cudaMemsetAsync on another stream", CALLS(cudaMemsetAsync(r->linear, 0, 64, r->other)) },
	{ "cudaMemcpyAsync of plain memory there",
	  CALLS(cudaMemcpyAsync(r->linear, r->host, 64, cudaMemcpyHostToDevice, r->other)) },
	{ "cudaMemsetAsync on the captured stream",
	  CALLS(cudaMemsetAsync(r->linear, 0, 64, r->captured)) },
	{ "cudaMemcpyAsync of plain memory on it",
	  CALLS(cudaMemcpyAsync(r->linear, r->host, 64, cudaMemcpyHostToDevice, r->captured)) },
};

static const struct {
	cudaStreamCaptureMode mode;
	const char *name;
} capture_modes[] = {
	{ cudaStreamCaptureModeGlobal, "global" },
	{ cudaStreamCaptureModeThreadLocal, "thread-local" },
	{ cudaStreamCaptureModeRelaxed, "relaxed" },
};

static const struct {
	bool elsewhere, relax;
	const char *name;
} capture_callers[] = {
	{ false, false, "the capturing thread" },
	{ false, true, "the capturing thread, relaxed" },
	{ true, false, "another thread" },
	{ true, true, "another thread, relaxed" },
};

struct capture_job {
	const struct capture_call *call;
	struct room *room;
	bool relax;
	int code;
};

static void *capture_make(void *arg)
{
	struct capture_job *job = (struct capture_job *)arg;
	cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

	if (job->relax)
		cudaThreadExchangeStreamCaptureMode(&mode);
	job->code = job->call->make(job->room);
	if (job->relax)
		cudaThreadExchangeStreamCaptureMode(&mode);
	cudaGetLastError();
	return NULL;
}

static void capture_line(cudaStreamCaptureMode mode, bool elsewhere, bool relax,
			 const struct capture_call *call)
{
	struct room room;
	struct capture_job job = { call, &room, relax, 0 };
	const char *missing = capture_room_open(&room);
	cudaGraph_t graph = NULL;
	pthread_t thread;
	int begin, end;

	if (missing) {
		conf_print(call->name, "could not be tried: %s", missing);
		capture_room_close(&room);
		return;
	}
	begin = (int)cudaStreamBeginCapture(room.captured, mode);
	if (elsewhere) {
		if (pthread_create(&thread, NULL, capture_make, &job) == 0)
			pthread_join(thread, NULL);
	} else {
		capture_make(&job);
	}
	end = (int)cudaStreamEndCapture(room.captured, &graph);
	cudaGetLastError();
	conf_print(call->name, begin ? "%d, capture %d, not begun" : "%d, capture %d", job.code,
		   end);
	if (graph)
		cudaGraphDestroy(graph);
	capture_room_close(&room);
}

static void capture_table(void)
{
	char section[128];

	capture_pool_props.allocType = cudaMemAllocationTypePinned;
	capture_pool_props.location.type = cudaMemLocationTypeDevice;
	for (auto &mode : capture_modes) {
		for (auto &caller : capture_callers) {
			snprintf(section, sizeof(section), "capture, %s mode, %s", mode.name,
				 caller.name);
			conf_section = section;
			for (auto &call : capture_calls)
				capture_line(mode.mode, caller.elsewhere, caller.relax, &call);
		}
	}
}

#endif
