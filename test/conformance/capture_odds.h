/* capture_odds.h - conformance of capture beyond the table: states, joins, wrong ends. */
#ifndef TEST_CONFORMANCE_CAPTURE_ODDS_H
#define TEST_CONFORMANCE_CAPTURE_ODDS_H

#include "test/conformance/capture.h"

static int capture_status(cudaStream_t stream)
{
	cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

	if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
		cudaGetLastError();
		return -1;
	}
	return (int)status;
}

static void *end_elsewhere(void *stream)
{
	cudaGraph_t graph = NULL;
	intptr_t code = (intptr_t)cudaStreamEndCapture((cudaStream_t)stream, &graph);

	cudaGetLastError();
	return (void *)code;
}

static int end_in_another_thread(cudaStream_t stream)
{
	pthread_t thread;
	void *code = NULL;

	if (pthread_create(&thread, NULL, end_elsewhere, stream) == 0)
		pthread_join(thread, &code);
	return (int)(intptr_t)code;
}

static void capture_states(void)
{
	cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaStream_t stream = NULL;
	cudaGraph_t graph = NULL;
	void *p = NULL;
	int end;

	conf_section = "capture states";
	NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	VALUE("before", capture_status(stream));
	CODE_OF("an end without a beginning", cudaStreamEndCapture(stream, &graph));
	CODE_OF("of the legacy stream", cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal));
	CODE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	VALUE("during", capture_status(stream));
	CODE_OF("begun twice", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	VALUE("after that", capture_status(stream));
	CODE_OF("an allocation that is refused", cudaMalloc(&p, 100));
	VALUE("spoiled", capture_status(stream));
	CODE_OF("work on a spoiled capture", cudaMemsetAsync((void *)4096, 0, 1, stream));
	CODE_OF("its end", cudaStreamEndCapture(stream, &graph));
	TRUTH("no graph", graph == NULL);
	VALUE("after the end", capture_status(stream));
	CODE_OF("an empty capture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CODE_OF("ended", cudaStreamEndCapture(stream, &graph));
	TRUTH("a graph", graph != NULL);
	if (graph)
		cudaGraphDestroy(graph);
	CODE(cudaThreadExchangeStreamCaptureMode(&mode));
	VALUE("the mode a thread begins with", mode);
	CODE(cudaThreadExchangeStreamCaptureMode(&mode));
	VALUE("and the one put in its place", mode);
	for (auto &each : capture_modes) {
		NEED(cudaStreamBeginCapture(stream, each.mode));
		end = end_in_another_thread(stream);
		conf_print("ended by another thread", "%s: %d, then %d", each.name, end,
			   (int)cudaStreamEndCapture(stream, &graph));
		cudaGetLastError();
	}
	NEED(cudaStreamDestroy(stream));
}

static void capture_joins(void)
{
	cudaStream_t first = NULL, second = NULL, third = NULL;
	cudaEvent_t event = NULL, back = NULL, outside = NULL;
	cudaGraph_t graph = NULL;

	conf_section = "capture joins";
	NEED(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
	NEED(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	NEED(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
	NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	NEED(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
	NEED(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
	NEED(cudaEventRecord(outside, third));

	NEED(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
	CODE_OF("record in the captured stream", cudaEventRecord(event, first));
	CODE_OF("another stream waits for it", cudaStreamWaitEvent(second, event, 0));
	VALUE("that stream is captured too", capture_status(second));
	CODE_OF("query of such an event", cudaEventQuery(event));
	VALUE("the capture after that", capture_status(first));
	CODE_OF("its end", cudaStreamEndCapture(first, &graph));

	NEED(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
	NEED(cudaEventRecord(event, first));
	NEED(cudaStreamWaitEvent(second, event, 0));
	CODE_OF("ended by the stream that joined", cudaStreamEndCapture(second, &graph));
	CODE_OF("ended with that one not joined back", cudaStreamEndCapture(first, &graph));
	VALUE("the joined stream after that", capture_status(second));

	NEED(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
	NEED(cudaEventRecord(event, first));
	NEED(cudaStreamWaitEvent(second, event, 0));
	NEED(cudaEventRecord(back, second));
	NEED(cudaStreamWaitEvent(first, back, 0));
	CODE_OF("ended with that one joined back", cudaStreamEndCapture(first, &graph));
	VALUE("the joined stream after that", capture_status(second));
	if (graph)
		cudaGraphDestroy(graph);

	NEED(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
	CODE_OF("a wait for an event from outside", cudaStreamWaitEvent(first, outside, 0));
	CODE_OF("the end", cudaStreamEndCapture(first, &graph));
	graph = NULL;
	NEED(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
	NEED(cudaStreamBeginCapture(third, cudaStreamCaptureModeThreadLocal));
	NEED(cudaEventRecord(event, first));
	CODE_OF("one capture waits for another's event", cudaStreamWaitEvent(third, event, 0));
	CODE_OF("the end of the one", cudaStreamEndCapture(first, &graph));
	CODE_OF("the end of the other", cudaStreamEndCapture(third, &graph));
	cudaEventDestroy(event);
	cudaEventDestroy(back);
	cudaEventDestroy(outside);
	cudaStreamDestroy(first);
	cudaStreamDestroy(second);
	cudaStreamDestroy(third);
	cudaGetLastError();
}

/* A captured stream that synchronises with the legacy one. */
static void capture_blocking(void)
{
	cudaStream_t stream = NULL;
	cudaGraph_t graph = NULL;
	uint32_t *p = NULL;

	conf_section = "capture of a blocking stream";
	NEED(cudaMalloc(&p, 4096));
	NEED(cudaStreamCreate(&stream));
	for (auto &mode : capture_modes) {
		char what[64];
		int code, end;

		NEED(cudaStreamBeginCapture(stream, mode.mode));
		fill<<<1, 1>>>(p, 1u, 1u);
		code = (int)cudaGetLastError();
		end = (int)cudaStreamEndCapture(stream, &graph);
		snprintf(what, sizeof(what), "a legacy launch, %s mode", mode.name);
		conf_print(what, "%d, capture %d", code, end);
		cudaGetLastError();
		if (!end)
			cudaGraphDestroy(graph);
		NEED(cudaStreamBeginCapture(stream, mode.mode));
		code = (int)cudaMemset(p, 0, 64);
		end = (int)cudaStreamEndCapture(stream, &graph);
		snprintf(what, sizeof(what), "cudaMemset, %s mode", mode.name);
		conf_print(what, "%d, capture %d", code, end);
		cudaGetLastError();
		if (!end)
			cudaGraphDestroy(graph);
	}
	cudaDeviceSynchronize();
	NEED(cudaStreamDestroy(stream));
	NEED(cudaFree(p));
}

#endif
