/*
 * work.c - work that a random program gives the GPU, and its order.
 *
 * Thread context: the world's.
 */
#include "world.h"

/* ---- order ---- */

static void enter(struct world *world, int context)
{
	MUST(world, cuCtxSetCurrent(world->context[context].handle));
}

static void leave(struct world *world)
{
	enter(world, world->current);
}

/* Spread the mark of a waiting kernel: the legacy stream of a context waits for its blocking streams, and they wait for
 * it. */
void taint_of_legacy(struct world *world, int stream)
{
	struct stream *s = &world->stream[stream];

	for (int i = 0; i < STREAMS; i++) {
		struct stream *other = &world->stream[i];
		bool legacy = s->handle == CU_STREAM_LEGACY || other->handle == CU_STREAM_LEGACY;

		if (other->context == s->context && other->context >= 0 && legacy &&
		    (s->blocking || s->handle == CU_STREAM_LEGACY) &&
		    (other->blocking || other->handle == CU_STREAM_LEGACY) && other->tainted)
			s->tainted = true;
	}
}

bool is_foreign(const struct world *world, int stream)
{
	const struct stream *s = &world->stream[stream];

	return s->owner && (s->ghost || s->owner != world->thread + 1);
}

static void after(struct world *world, int stream, int before)
{
	CUevent event = world->events[world->stream[before].context];

	taint_of_legacy(world, before);
	if (is_foreign(world, before)) {
		event = world->ends[world->stream[before].owner - 1];
	} else {
		enter(world, world->stream[before].context);
		MUST(world, cuEventRecord(event, world->stream[before].handle));
	}
	enter(world, world->stream[stream].context);
	MUST(world, cuStreamWaitEvent(world->stream[stream].handle, event, 0));
	leave(world);
	if (world->stream[before].tainted)
		world->stream[stream].tainted = true;
}

void use(struct world *world, int id, int stream)
{
	struct block *block = &world->block[id];

	taint_of_legacy(world, stream);
	if (block->stream >= 0 && block->stream != stream)
		after(world, stream, block->stream);
	block->stream = stream;
	block->fresh = false;
}

int any_stream(struct world *world, int context)
{
	int first = (int)draw(world, STREAMS);

	if (world->one_stream)
		return world->stream[0].context == context ? 0 : -1;
	for (int n = 0; n < STREAMS; n++) {
		const struct stream *stream = &world->stream[(first + n) % STREAMS];

		if (stream->context == context && !is_foreign(world, (first + n) % STREAMS))
			return (first + n) % STREAMS;
	}
	return -1;
}

/* Return a stream whose work may touch @block: one of its context, or any stream if peers have access. */
static int stream_for(struct world *world, const struct block *block)
{
	int context = block->context;

	if (context < 0)
		return -1;
	if (world->context[context].primary && draw(world, 6) == 0)
		for (int c = 0; c < CONTEXTS; c++)
			if (world->context[c].handle && world->context[c].primary && c != context)
				context = c;
	return any_stream(world, context);
}

/* ---- kernels ---- */

static void launch(struct world *world, CUfunction f, int stream, void **args)
{
	enter(world, world->stream[stream].context);
	MUST(world, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, world->stream[stream].handle, args, NULL));
	leave(world);
}

void work_fill(struct world *world)
{
	int id = any_block(world, false), stream;
	struct block *block;
	void *args[3];

	if (id < 0)
		return;
	block = &world->block[id];
	stream = stream_for(world, block);
	if (stream < 0 || block->graphs)
		return;
	use(world, id, stream);
	block->value = (uint32_t)draw(world, UINT32_MAX) | 1;
	block->known = true;
	args[0] = &block->ptr;
	args[1] = &block->value;
	args[2] = &block->words;
	if (draw(world, 4) == 0) {
		enter(world, world->stream[stream].context);
		MUST(world, cuMemsetD32Async(block->ptr, block->value, block->words,
					     world->stream[stream].handle));
		leave(world);
		return;
	}
	launch(world, world->context[world->stream[stream].context].kernels.fill, stream, args);
}

static void use_for_copy(struct world *world, int from, int to, int stream)
{
	use(world, from, stream);
	use(world, to, stream);
	world->block[to].value = world->block[from].value;
	world->block[to].known = true;
}

void work_copy(struct world *world)
{
	int from = any_block(world, true), to = any_block(world, false), stream;
	uint32_t words;
	void *args[3];

	if (from < 0 || to < 0 || from == to || world->block[to].graphs)
		return;
	words = world->block[from].words;
	if (world->block[to].words != words && world->block[to].words > words)
		return;
	words = world->block[to].words;
	stream = stream_for(world, &world->block[to]);
	if (stream < 0)
		return;
	use_for_copy(world, from, to, stream);
	args[0] = &world->block[to].ptr;
	args[1] = &world->block[from].ptr;
	args[2] = &words;
	if (draw(world, 3) == 0) {
		enter(world, world->stream[stream].context);
		MUST(world, cuMemcpyDtoDAsync(world->block[to].ptr, world->block[from].ptr, words * 4u,
					      world->stream[stream].handle));
		leave(world);
		return;
	}
	launch(world, world->context[world->stream[stream].context].kernels.copy, stream, args);
}

/* Return a block of another context that is at least as large as @from; -1: none. */
static int peer_of(struct world *world, int from)
{
	const struct block *source = &world->block[from];
	int first = (int)draw(world, BLOCKS);

	for (int n = 0; n < BLOCKS; n++) {
		const struct block *block = &world->block[(first + n) % BLOCKS];

		if (block->words && !block->graphs && block->context >= 0 &&
		    block->context != source->context && block->words <= source->words)
			return (first + n) % BLOCKS;
	}
	return -1;
}

/* Copy from one context's memory to another's, on a stream of either. */
void work_peer_copy(struct world *world)
{
	int from = any_block(world, true), to, source, target, stream;
	uint32_t words;

	if (from < 0 || world->block[from].context < 0)
		return;
	to = peer_of(world, from);
	if (to < 0)
		return;
	source = world->block[from].context;
	target = world->block[to].context;
	words = world->block[to].words;
	stream = any_stream(world, draw(world, 2) ? source : target);
	if (stream < 0)
		return;
	use_for_copy(world, from, to, stream);
	enter(world, world->stream[stream].context);
	MUST(world, cuMemcpyPeerAsync(world->block[to].ptr, world->context[target].handle,
				      world->block[from].ptr, world->context[source].handle, words * 4u,
				      world->stream[stream].handle));
	leave(world);
	world->drawn[DREW_PEER_COPIES]++;
}

/* Launch a kernel that may start before its predecessor ends. This is correct with memory that no work has used yet. */
void work_programmatic(struct world *world)
{
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
					.value = { .programmaticStreamSerializationAllowed = 1 } };
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				  .blockDimY = 1, .blockDimZ = 1, .attrs = &attribute, .numAttrs = 1 };
	struct block *block = NULL;
	int id, stream;
	void *args[3];

	for (id = 0; id < BLOCKS && !block; id++)
		if (world->block[id].words && world->block[id].fresh && !world->block[id].async)
			block = &world->block[id];
	if (!block)
		return;
	stream = any_stream(world, block->context);
	if (stream < 0 || world->stream[stream].handle == CU_STREAM_LEGACY)
		return;
	use(world, (int)(block - world->block), stream);
	block->value = (uint32_t)draw(world, UINT32_MAX) | 1;
	block->known = true;
	args[0] = &block->ptr;
	args[1] = &block->value;
	args[2] = &block->words;
	config.hStream = world->stream[stream].handle;
	enter(world, block->context);
	MUST(world, cuLaunchKernelEx(&config, world->context[block->context].kernels.fill, args, NULL));
	leave(world);
}

/* ---- host functions ---- */

static void CUDA_CB inside(void *arg)
{
	int *results = arg;
	CUdeviceptr ptr = 0;

	results[0] = (int)cuMemAlloc(&ptr, 1000);
	results[1] = (int)cuMemFree(((CUdeviceptr)(uint32_t)results[2] << 32) | (uint32_t)results[3]);
}

/* Call the driver inside a host function. Every call is refused, and a block whose free is refused stays. */
void work_host_function(struct world *world)
{
	int id = any_block(world, false), stream = any_stream(world, world->current);
	static __thread int results[4];

	if (stream < 0 || id < 0 || world->flag_value)
		return;
	results[2] = (int)(uint32_t)(world->block[id].ptr >> 32);
	results[3] = (int)(uint32_t)world->block[id].ptr;
	MUST(world, cuLaunchHostFunc(world->stream[stream].handle, inside, results));
	MUST(world, cuStreamSynchronize(world->stream[stream].handle));
	if (results[0] != CUDA_ERROR_NOT_PERMITTED || results[1] != CUDA_ERROR_NOT_PERMITTED)
		FAULT(world, "in a host function: %d %d", results[0], results[1]);
}

/* ---- waiting for the host ---- */

/* Give every stream work before a kernel waits for a flag, if there are other threads. A stream's first work may
 * have to wait for memory that another thread freed, and with it for this thread's own kernel. A real driver would
 * not let that work through while the other thread's free waits, so such a program hangs without the library, too
 * (test/gpu/waits.cu; docs/limits.md names programs that do not). The fake driver lets the work through. A stream
 * that cannot work now counts as coming after the kernel. */
static void streams_work(struct world *world, CUdeviceptr flag)
{
	for (int i = 0; i < STREAMS && !world->alone; i++) {
		struct stream *stream = &world->stream[i];

		if (stream->context < 0 || stream->worked)
			continue;
		if (world->one_stream && i) {
			stream->tainted = true;
			continue;
		}
		enter(world, stream->context);
		/* Write a word that no other stream writes. */
		world->first_works = world->first_works % 1000 + 1;
		MUST(world, cuStreamWriteValue32(stream->handle, flag + 4 * world->first_works, 1, 0));
		stream->worked = true;
	}
	leave(world);
}

void flag_wait(struct world *world)
{
	int stream = any_stream(world, world->current);
	CUdeviceptr flag;
	void *args[2];

	if (stream < 0 || world->flag_value)
		return;
	taint_of_legacy(world, stream);
	MUST(world, cuMemHostGetDevicePointer(&flag, (void *)(uintptr_t)world->flag, 0));
	streams_work(world, flag);
	world->flag_value = *world->flag + 1;
	args[0] = &flag;
	args[1] = &world->flag_value;
	launch(world, world->context[world->current].kernels.wait_flag, stream, args);
	world->stream[stream].tainted = true;
}

/* Set the flag by the host, or by a stream that does not come after the waiting kernel. */
void flag_set(struct world *world)
{
	int stream = any_stream(world, world->current);
	CUdeviceptr flag;

	if (!world->flag_value)
		return;
	if (stream >= 0)
		taint_of_legacy(world, stream);
	if (stream >= 0 && !world->stream[stream].tainted && !world->stream[stream].blocking &&
	    world->stream[stream].handle != CU_STREAM_LEGACY && draw(world, 2)) {
		MUST(world, cuMemHostGetDevicePointer(&flag, (void *)(uintptr_t)world->flag, 0));
		MUST(world, cuStreamWriteValue32(world->stream[stream].handle, flag, world->flag_value,
						 0));
		MUST(world, cuStreamSynchronize(world->stream[stream].handle));
	} else {
		__atomic_store_n(world->flag, world->flag_value, __ATOMIC_RELEASE);
	}
	world->flag_value = 0;
	for (int i = 0; i < STREAMS; i++)
		world->stream[i].tainted = false;
}

/* ---- streams, synchronisation ---- */

void streams_change(struct world *world)
{
	int slot = 1 + (int)draw(world, STREAMS - 1);
	struct stream *stream = &world->stream[slot];
	unsigned int flags = draw(world, 2) || !world->alone ? CU_STREAM_NON_BLOCKING
							     : CU_STREAM_DEFAULT;

	if (world->one_stream || (stream->context >= 0 && stream->handle <= CU_STREAM_PER_THREAD))
		return;
	if (stream->context >= 0) {
		taint_of_legacy(world, slot);
		if (stream->tainted)	/* the legacy stream would wait for it still */
			return;
		/* Its work goes on; who used memory there is ordered by the legacy stream's or an
		 * event's wait, which has to be made now. */
		for (int i = 0; i < BLOCKS; i++)
			if (world->block[i].words && world->block[i].stream == slot)
				return;
		for (int i = 0; i < GRAPHS; i++)
			if (world->graph[i].exec && world->graph[i].stream == slot)
				return;
		MUST(world, cuStreamDestroy(stream->handle));
		stream->context = -1;
		return;
	}
	*stream = (struct stream){ .context = world->current,
				   .blocking = flags == CU_STREAM_DEFAULT,
				   .tainted = world->flag_value && !world->alone };
	MUST(world, cuStreamCreate(&stream->handle, flags));
}

void synchronise(struct world *world)
{
	int stream = any_stream(world, world->current);

	if (world->flag_value)
		return;
	if (draw(world, 3) == 0) {
		MUST(world, cuCtxSynchronize());
		if (world->alone)
			memory_seen(world, world->current);
	} else if (stream >= 0) {
		MUST(world, cuStreamSynchronize(world->stream[stream].handle));
		for (int i = 0; i < BLOCKS; i++)
			if (world->block[i].stream == stream)
				world->block[i].stream = -1;
		for (int i = 0; i < GRAPHS; i++)
			if (world->graph[i].stream == stream)
				world->graph[i].stream = -1;
	}
}
