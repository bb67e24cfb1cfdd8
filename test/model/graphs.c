/*
 * graphs.c - captures and graph launches of a random program.
 *
 * Thread context: the world's. The program has one thread, because a capture makes calls of other threads fail.
 */
#include "world.h"

static CUstreamCaptureMode any_mode(struct world *world)
{
	static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_GLOBAL,
						     CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						     CU_STREAM_CAPTURE_MODE_RELAXED };

	return modes[draw(world, 3)];
}

static int stream_that_captures(struct world *world)
{
	int stream = any_stream(world, world->current);

	return stream >= 0 && world->stream[stream].handle != CU_STREAM_LEGACY &&
	       !world->stream[stream].tainted ? stream : -1;
}

/* Capture the filling of some blocks. Memory is allocated and freed meanwhile, if the mode permits. */
void graph_make(struct world *world)
{
	int stream = stream_that_captures(world), slot = (int)draw(world, GRAPHS);
	struct graph *graph = &world->graph[slot];
	CUstreamCaptureMode mode = any_mode(world);
	CUgraph made = NULL;

	if (stream < 0 || graph->exec || world->flag_value)
		return;
	*graph = (struct graph){ .context = world->current, .stream = -1,
				 .value = (uint32_t)draw(world, UINT32_MAX) | 1 };
	for (int n = 0; n < 4; n++) {
		int id = any_block(world, false);

		if (id >= 0 && !world->block[id].graphs && world->block[id].context == world->current) {
			graph->blocks[graph->count++] = id;
			world->block[id].graphs++;
		}
	}
	MUST(world, cuStreamBeginCapture(world->stream[stream].handle, mode));
	for (int n = 0; n < graph->count; n++) {
		struct block *block = &world->block[graph->blocks[n]];
		void *args[] = { &block->ptr, &graph->value, &block->words };

		MUST(world, cuLaunchKernel(world->context[world->current].kernels.fill, 1, 1, 1, 1, 1, 1,
					   0, world->stream[stream].handle, args, NULL));
		if (mode == CU_STREAM_CAPTURE_MODE_RELAXED && draw(world, 2)) {
			int id = any_block(world, false);

			memory_alloc(world);
			if (id >= 0 && !world->block[id].async && world->block[id].stream < 0)
				memory_free(world, id);
		}
	}
	MUST(world, cuStreamEndCapture(world->stream[stream].handle, &made));
	MUST(world, cuGraphInstantiateWithFlags(&graph->exec, made, 0));
	MUST(world, cuGraphDestroy(made));
}

void graph_launch(struct world *world)
{
	struct graph *graph = &world->graph[draw(world, GRAPHS)];
	int stream = graph->exec ? any_stream(world, graph->context) : -1;

	if (stream < 0)
		return;
	for (int n = 0; n < graph->count; n++) {
		use(world, graph->blocks[n], stream);
		world->block[graph->blocks[n]].value = graph->value;
		world->block[graph->blocks[n]].known = true;
	}
	taint_of_legacy(world, stream);
	/* The driver orders the launches of one graph, on whatever streams they are. */
	if (graph->stream >= 0 && world->stream[graph->stream].tainted)
		world->stream[stream].tainted = true;
	MUST(world, cuCtxSetCurrent(world->context[graph->context].handle));
	MUST(world, cuGraphLaunch(graph->exec, world->stream[stream].handle));
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
	graph->stream = stream;
}

void graph_drop(struct world *world, int id)
{
	struct graph *graph = &world->graph[id];

	if (!graph->exec || graph->stream >= 0)
		return;
	MUST(world, cuGraphExecDestroy(graph->exec));
	graph->exec = NULL;
	for (int n = 0; n < graph->count; n++)
		world->block[graph->blocks[n]].graphs--;
}

/* In a strict capture the driver refuses the call and the capture is lost. With the library the same must happen. */
void capture_refused(struct world *world)
{
	int stream = stream_that_captures(world), id = any_block(world, false);
	bool frees = id >= 0 && draw(world, 2) && !world->block[id].graphs;
	CUgraph graph = NULL;
	CUdeviceptr ptr = 0;
	CUresult result;

	if (stream < 0 || world->flag_value)
		return;
	MUST(world, cuStreamBeginCapture(world->stream[stream].handle,
					 draw(world, 2) ? CU_STREAM_CAPTURE_MODE_GLOBAL
							: CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	result = frees ? cuMemFree(world->block[id].ptr) : cuMemAlloc(&ptr, 100 + draw(world, 100000));
	if (result == CUDA_ERROR_OUT_OF_MEMORY && getenv("FAKECUDA_FAIL")) {
		MUST(world, cuStreamEndCapture(world->stream[stream].handle, &graph));
		MUST(world, cuGraphDestroy(graph));
		return;			/* an ordered failure comes before the driver's look at captures */
	}
	if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		FAULT(world, "in a strict capture: CUresult %d", (int)result);
	result = cuStreamEndCapture(world->stream[stream].handle, &graph);
	if (result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
		FAULT(world, "the end of a capture that was lost: CUresult %d", (int)result);
}
