/*
 * contexts.c - the contexts of a random program. They are made, entered, and ended in every way, while memory
 * lives in them and while memory of other contexts waits for the GPU.
 *
 * The end of a context ends its cudaMalloc memory. Stream-ordered memory belongs to the device, and stays usable
 * in any context that the device has or gets.
 *
 * Thread context: the world's. All threads share the primary contexts, so only a program with one thread ends
 * them.
 */
#include "world.h"

static const char ptx[] =
	".version 8.0\n.target sm_75\n.address_size 64\n"
	".visible .entry fill(.param .u64 p, .param .u32 v, .param .u32 n){ret;}\n"
	".visible .entry copy(.param .u64 d, .param .u64 s, .param .u32 n){ret;}\n"
	".visible .entry spin(.param .u64 p){ret;}\n"
	".visible .entry await_flag(.param .u64 p, .param .u32 v){ret;}\n";

static bool is_open(const struct world *world, int c)
{
	return world->context[c].handle != NULL;
}

/* Find an open context of @device; -1: none. */
static int context_on(const struct world *world, int device)
{
	for (int c = 0; c < CONTEXTS; c++)
		if (is_open(world, c) && world->context[c].device == device)
			return c;
	return -1;
}

/* ---- begin ---- */

static void load(struct world *world, int c)
{
	struct context *context = &world->context[c];

	MUST(world, cuModuleLoadData(&context->module, ptx));
	MUST(world, cuModuleGetFunction(&context->kernels.fill, context->module, "fill"));
	MUST(world, cuModuleGetFunction(&context->kernels.copy, context->module, "copy"));
	MUST(world, cuModuleGetFunction(&context->kernels.wait_flag, context->module, "await_flag"));
	MUST(world, cuEventCreate(&world->events[c], CU_EVENT_DISABLE_TIMING));
	for (int t = 0; t < world->threads && !c; t++)
		MUST(world, cuEventCreate(&world->ends[t], CU_EVENT_DISABLE_TIMING));
}

static void allow_peers(struct world *world)
{
	for (int a = 0; a < CONTEXTS; a++)
		for (int b = 0; b < CONTEXTS; b++)
			if (is_open(world, a) && is_open(world, b) &&
			    world->context[a].device != world->context[b].device) {
				MUST(world, cuCtxSetCurrent(world->context[a].handle));
				cuCtxEnablePeerAccess(world->context[b].handle, 0);
			}
}

void context_open(struct world *world, int c, int device, bool primary)
{
	struct context *context = &world->context[c];
	CUctxCreateParams params = { 0 };

	if (primary) {
		MUST(world, cuDevicePrimaryCtxRetain(&context->handle, device));
		context->retained++;
	} else if (cuCtxCreate(&context->handle, &params, 0, device) == CUDA_ERROR_NOT_SUPPORTED) {
		context->handle = NULL;		/* an older driver cannot make it */
		return;
	} else {
		world->drawn[DREW_CREATED]++;
	}
	context->device = device;
	context->primary = primary;
	MUST(world, cuCtxSetCurrent(context->handle));
	load(world, c);
	allow_peers(world);
	for (int i = 0; i < BLOCKS; i++) {
		struct block *block = &world->block[i];

		if (block->words && block->context == NO_CONTEXT && block->device == device)
			block->context = c;
	}
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
}

/* Make the first stream, which is the only one in single-stream mode. */
void context_first_stream(struct world *world)
{
	/* All threads share the legacy stream, so a call of another thread would wait for this thread's kernel
	 * there. */
	CUstream first = draw(world, 2) && world->alone ? CU_STREAM_LEGACY : NULL;

	MUST(world, cuCtxSetCurrent(world->context[0].handle));
	if (!first)
		MUST(world, cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	world->stream[0] = (struct stream){ .handle = first, .context = 0 };
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
}

void context_flag(struct world *world)
{
	void *flag;

	MUST(world, cuCtxSetCurrent(world->context[0].handle));
	MUST(world, cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	world->flag = flag;
	*world->flag = 0;
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
}

static void open_some(struct world *world, int c)
{
	int device = (int)draw(world, world->devices > 1 ? 2 : 1);
	bool primary = draw(world, 2) && world->alone;

	for (int other = 0; other < CONTEXTS; other++)
		if (is_open(world, other) && world->context[other].primary &&
		    world->context[other].device == device)
			primary = false;
	context_open(world, c, device, primary);
	if (!is_open(world, c) || !draw(world, 2))
		return;
	for (int i = 1; i < STREAMS; i++)
		if (world->stream[i].context < 0) {
			world->stream[i] = (struct stream){ .handle = CU_STREAM_LEGACY, .context = c };
			return;
		}
}

/* ---- end ---- */

static void wait_for(struct world *world, int c)
{
	MUST(world, cuCtxSetCurrent(world->context[c].handle));
	MUST(world, cuCtxSynchronize());
	memory_seen(world, c);
}

/* Wait as far as needed before context @c ends. Its own work may be pending, but not its work on memory that goes
 * on, nor work of other contexts on memory that ends. */
static void prepare(struct world *world, int c)
{
	bool needed = draw(world, 2);

	for (int i = 0; i < BLOCKS; i++) {
		const struct block *block = &world->block[i];
		int user = block->words && block->stream >= 0 ? world->stream[block->stream].context : -1;
		bool ends = block->context == c && !block->async;

		if (user >= 0 && user != c && ends)
			wait_for(world, user);
		needed |= user == c && !ends;
	}
	for (int other = 0; other < CONTEXTS; other++) {
		/* The other context may read the flag, or still use memory that was freed in its order. */
		if (is_open(world, other) && other != c && (c == 0 || world->left[c][other]))
			wait_for(world, other);
		world->left[c][other] = false;
	}
	if (needed)
		wait_for(world, c);
}

static void forget_graphs(struct world *world, int c)
{
	for (int i = 0; i < GRAPHS; i++) {
		struct graph *graph = &world->graph[i];

		if (!graph->exec || graph->context != c)
			continue;
		graph_drop(world, i);
		for (int n = 0; graph->exec && n < graph->count; n++)
			world->block[graph->blocks[n]].graphs--;
		graph->exec = NULL;
	}
}

/* Release a primary context as often as it is retained, because a reset leaves it retained, even when it is closed. */
static void release_all(struct world *world, struct context *context, int device)
{
	for (; context->primary && context->device == device && context->retained; context->retained--)
		MUST(world, cuDevicePrimaryCtxRelease(device));
}

/* End the context by a call of the driver, with another context current or this one. */
static void end(struct world *world, int c)
{
	struct context *context = &world->context[c];

	MUST(world, cuCtxSetCurrent(world->context[draw(world, 2) ? c : world->current].handle));
	if (!context->primary) {
		MUST(world, cuCtxDestroy(context->handle));
		world->drawn[DREW_DESTROYED]++;
	} else if (draw(world, 2)) {
		MUST(world, cuDevicePrimaryCtxReset(context->device));
		world->drawn[DREW_RESET]++;
	} else {
		for (int i = 0; i < CONTEXTS; i++)
			release_all(world, &world->context[i], context->device);
		world->drawn[DREW_RELEASED]++;
	}
	context->handle = NULL;
}

/* Forget the memory of context @c. Returns an address that has ended with it; 0: none has. */
static CUdeviceptr forget(struct world *world, int c)
{
	int next = context_on(world, world->context[c].device);
	CUdeviceptr gone = 0;

	memory_seen(world, c);
	for (int i = 0; i < BLOCKS; i++) {
		struct block *block = &world->block[i];

		if (!block->words || block->context != c)
			continue;
		if (block->async) {
			block->device = world->context[c].device;
			block->context = next >= 0 ? next : NO_CONTEXT;
			world->drawn[DREW_SURVIVED]++;
		} else {
			gone = block->ptr;
			block->words = 0;
			world->drawn[DREW_GONE]++;
		}
	}
	for (int i = 0; i < STREAMS; i++)
		if (world->stream[i].context == c)
			world->stream[i] = (struct stream){ .context = -1 };
	return gone;
}

static void note_frees(struct world *world, int c)
{
	for (int i = 0; i < BLOCKS; i++)
		if (world->block[i].words && world->block[i].context == c && !world->block[i].async)
			memory_note_free(world->block[i].ptr);
}

static void close_one(struct world *world, int c)
{
	CUdeviceptr gone;

	prepare(world, c);
	forget_graphs(world, c);
	note_frees(world, c);
	if (world->current == c)
		world->current = 0;
	end(world, c);
	gone = forget(world, c);
	if (!c) {
		context_open(world, 0, 0, true);
		context_first_stream(world);
		context_flag(world);
	}
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
	if (gone && world->alone && cuMemFree(gone) != CUDA_ERROR_INVALID_VALUE)
		FAULT(world, "freed after its context had ended");
}

void context_begin_or_end(struct world *world)
{
	int c = (int)draw(world, CONTEXTS);

	if (world->flag_value)
		return;
	if (!is_open(world, c))
		open_some(world, c);
	else if (world->alone || !world->context[c].primary)
		close_one(world, c);
}

void context_change(struct world *world)
{
	int c = (int)draw(world, CONTEXTS);

	if (world->one_stream || !is_open(world, c))
		return;
	world->current = c;
	MUST(world, cuCtxSetCurrent(world->context[c].handle));
}

void context_synchronise_all(struct world *world)
{
	for (int c = 0; c < CONTEXTS; c++)
		if (is_open(world, c)) {
			MUST(world, cuCtxSetCurrent(world->context[c].handle));
			MUST(world, cuCtxSynchronize());
		}
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
}
