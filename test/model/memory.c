/*
 * memory.c - the memory of a random program: allocate it, free it in every way, check it.
 *
 * Thread context: the world's.
 */
#include "world.h"

#define WORDS_MOST 2048u		/* words of a block that are written and checked */

static void *control(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void note_alloc(CUdeviceptr ptr, size_t bytes)
{
	void (*note)(uint64_t, size_t) = (void (*)(uint64_t, size_t))control("fakecuda_note_alloc");

	note(ptr, bytes);
}

void memory_note_free(CUdeviceptr ptr)
{
	void (*note)(uint64_t) = (void (*)(uint64_t))control("fakecuda_note_free");

	note(ptr);
}

static int free_slot(const struct world *world)
{
	for (int i = 0; i < BLOCKS; i++)
		if (!world->block[i].words)
			return i;
	return -1;
}

int any_block(struct world *world, bool known)
{
	int first = (int)draw(world, BLOCKS);

	for (int n = 0; n < BLOCKS; n++) {
		const struct block *block = &world->block[(first + n) % BLOCKS];

		if (block->words && (!known || block->known))
			return (first + n) % BLOCKS;
	}
	return -1;
}

void memory_seen(struct world *world, int context)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct block *block = &world->block[i];

		if (block->stream >= 0 &&
		    (context < 0 || world->stream[block->stream].context == context))
			block->stream = -1;
	}
	for (int i = 0; i < GRAPHS; i++)
		if (context < 0 || world->graph[i].context == context)
			world->graph[i].stream = -1;
}

/* Draw a size: mostly small, and often one of a few sizes, which thread caches serve; now and then one that takes
 * its own segment. */
static size_t any_size(struct world *world)
{
	switch (draw(world, 16)) {
	case 0:
		return ((size_t)1 << 20) + draw(world, 12u << 20);
	case 1: case 2: case 3:
		return 65536 + draw(world, 2u << 20);
	case 4 ... 9:
		return (size_t)4096 << draw(world, 3);
	default:
		return 4 + draw(world, 65536);
	}
}

static void count_again(struct world *world, CUdeviceptr ptr)
{
	for (unsigned int i = 0; i < 64; i++)
		if (world->seen[i] == ptr) {
			world->reused++;
			world->seen[i] = 0;
			return;
		}
}

static void count_gone(struct world *world, CUdeviceptr ptr)
{
	world->seen[draw(world, 64)] = ptr;
}

/* Return how many bytes of a device a request of @bytes may take, as PyTorch's segments or as pieces of the driver's
 * pool. A tight device has three times that. */
static size_t kept_by(size_t bytes, bool async)
{
	size_t segment = bytes <= ((size_t)1 << 20) ? (size_t)2 << 20
		       : bytes < ((size_t)10 << 20) ? (size_t)20 << 20 : bytes + ((size_t)2 << 20);

	return async ? (size_t)32 << 20 : segment;
}

static bool fits(const struct world *world, size_t bytes, bool async)
{
	size_t kept = kept_by(bytes, async);

	for (int i = 0; i < BLOCKS; i++)
		if (world->block[i].words)
			kept += kept_by(world->block[i].bytes, world->block[i].async);
	return kept <= (size_t)96 << 20;
}

/* Accept a refusal only in a tight program, and not while most of the device is free. */
static void refused(struct world *world, CUresult result, size_t bytes, bool async)
{
	if (result != CUDA_ERROR_OUT_OF_MEMORY || !world->tight)
		FAULT(world, "%zu bytes refused: CUresult %d", bytes, (int)result);
	if (world->alone && fits(world, bytes, async) && !getenv("FAKECUDA_FAIL") && !getenv("GPUMEM_MEMORY_LIMIT"))
		FAULT(world, "%zu bytes refused that there is room for", bytes);
	world->refused++;
}

static void adopt(struct world *world, int slot, CUdeviceptr ptr, size_t bytes)
{
	struct block *block = &world->block[slot];

	if (!ptr || ptr % 256)
		FAULT(world, "an address that is not aligned: %llx", (unsigned long long)ptr);
	for (int i = 0; i < BLOCKS; i++) {
		const struct block *other = &world->block[i];

		if (other->words && other->ptr < ptr + bytes && ptr < other->ptr + other->words * 4u)
			FAULT(world, "%llx overlaps a block in use", (unsigned long long)ptr);
	}
	note_alloc(ptr, bytes);
	count_again(world, ptr);
	*block = (struct block){ .ptr = ptr, .context = world->current, .stream = -1, .fresh = true };
	block->bytes = bytes;
	block->words = (uint32_t)(bytes / 4 < WORDS_MOST ? bytes / 4 : WORDS_MOST);
}

void memory_alloc(struct world *world)
{
	int slot = free_slot(world);
	size_t bytes = any_size(world);
	CUdeviceptr ptr = 0;
	CUresult result;

	if (slot < 0)
		return;
	result = cuMemAlloc(&ptr, bytes);
	if (result)
		refused(world, result, bytes, false);
	else
		adopt(world, slot, ptr, bytes);
}

void memory_alloc_async(struct world *world)
{
	int slot = free_slot(world), stream = any_stream(world, world->current);
	size_t bytes = any_size(world);
	CUdeviceptr ptr = 0;
	CUresult result;

	if (slot < 0 || stream < 0)
		return;
	taint_of_legacy(world, stream);		/* the free is in that stream's order, too */
	result = cuMemAllocAsync(&ptr, bytes, world->stream[stream].handle);
	if (result) {
		refused(world, result, bytes, true);
		return;
	}
	adopt(world, slot, ptr, bytes);
	world->block[slot].async = true;
	world->block[slot].stream = stream;
}

/* Call cudaFree. If another context's work uses the memory, first wait for that work. Never free while a kernel
 * waits for a flag, because the driver would wait for the kernel. */
void memory_free(struct world *world, int id)
{
	struct block *block = &world->block[id];
	bool elsewhere = block->stream >= 0 &&
			 (block->async || world->stream[block->stream].context != block->context);

	if (block->graphs || (world->flag_value && (!block->async || block->stream >= 0)))
		return;
	if (elsewhere) {
		if (world->flag_value)
			return;
		MUST(world, cuCtxSetCurrent(world->context[world->stream[block->stream].context].handle));
		if (is_foreign(world, block->stream))
			MUST(world, cuEventSynchronize(world->ends[world->stream[block->stream].owner - 1]));
		else
			MUST(world, cuStreamSynchronize(world->stream[block->stream].handle));
		MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
	}
	memory_note_free(block->ptr);
	count_gone(world, block->ptr);
	world->drawn[DREW_FREED_ELSEWHERE] += !block->async && block->context != world->current;
	MUST(world, cuMemFree(block->ptr));
	if (draw(world, 16) == 0 && world->alone && cuMemFree(block->ptr) != CUDA_ERROR_INVALID_VALUE)
		FAULT(world, "freed twice");
	block->words = 0;
}

void memory_free_async(struct world *world, int id)
{
	struct block *block = &world->block[id];
	int stream = any_stream(world, world->current);

	if (block->graphs || stream < 0)
		return;
	use(world, id, stream);
	memory_note_free(block->ptr);
	count_gone(world, block->ptr);
	MUST(world, cuMemFreeAsync(block->ptr, world->stream[stream].handle));
	if (!block->async && block->context >= 0)
		world->left[block->context][world->stream[stream].context] = true;
	block->words = 0;
}

void memory_check(struct world *world, int id)
{
	struct block *block = &world->block[id];
	int stream = block->stream >= 0 ? block->stream : any_stream(world, block->context);
	static __thread uint32_t copy[WORDS_MOST];

	if (!block->known || stream < 0)
		return;
	if (is_foreign(world, stream)) {
		stream = any_stream(world, world->stream[stream].context);
		if (stream < 0)
			return;
		use(world, id, stream);
	}
	taint_of_legacy(world, stream);
	if (world->stream[stream].tainted)
		return;
	MUST(world, cuCtxSetCurrent(world->context[world->stream[stream].context].handle));
	MUST(world, cuMemcpyDtoHAsync(copy, block->ptr, block->words * 4u,
				      world->stream[stream].handle));
	MUST(world, cuStreamSynchronize(world->stream[stream].handle));
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
	for (uint32_t i = 0; i < block->words; i++)
		if (copy[i] != block->value)
			FAULT(world, "word %u of %llx is %x, not %x", i,
			      (unsigned long long)block->ptr, copy[i], block->value);
	block->stream = -1;
}
