/*
 * fill.c - how much of a device a program gets, and whether what it frees can be had again in another size.
 *
 *	fill [ROW...]
 *
 * Each row fills the device by cuMemAlloc until a request is refused (filled: the bytes that were asked for); frees every
 * other block and asks for the same sizes again (again: the part of them that it gets); frees those once more and asks for
 * one block of half the bytes that it freed, or for the largest that it can have (largest). Prints a line
 * "ROW<TAB>FILLED<TAB>AGAIN<TAB>LARGEST" in bytes for each row; words of the command line choose rows by what they begin
 * with. Runs natively, or with a library preloaded: the figures are to be compared (scripts/bench.py).
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define BLOCKS (1u << 20)
#define STEP (2 * MIB)			/* the driver's granularity */
#define CHECK(call) \
	do { \
		CUresult result_ = (call); \
		if (result_) { \
			fprintf(stderr, "%s: %d\n", #call, (int)result_); \
			exit(1); \
		} \
	} while (0)

static const struct row { const char *name; uint64_t bytes; bool random; } rows[] = {
	{ "7 MiB", 7 * MIB, false },
	{ "11 MiB", 11 * MIB, false },
	{ "9 MiB", 9 * MIB, false },
	{ "3.5 MiB", 7 * MIB / 2, false },
	{ "2 MiB", 2 * MIB, false },
	{ "1.5 MiB", 3 * MIB / 2, false },
	{ "random up to 64 MiB", 64 * MIB, true },
	{ "random up to 16 MiB", 16 * MIB, true },
	{ "random up to 4 MiB", 4 * MIB, true },
};

static struct block { CUdeviceptr at; uint64_t bytes; } blocks[BLOCKS];

static uint64_t size_of(const struct row *row, uint64_t *random)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return row->random ? (*random >> 33) % row->bytes + 1 : row->bytes;
}

static bool get(struct block *block)
{
	CUresult result = cuMemAlloc(&block->at, block->bytes);

	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		block->at = 0;
	else
		CHECK(result);
	return block->at;
}

static uint64_t give(struct block *block)
{
	if (!block->at)
		return 0;
	CHECK(cuMemFree(block->at));
	block->at = 0;
	return block->bytes;
}

/* One of at most @most bytes, and at least what the search finds between a refusal and a success. */
static uint64_t largest(uint64_t most)
{
	uint64_t low = 0, high = most / STEP + 1;	/* in steps: had, refused */
	struct block block = { .bytes = most };

	if (get(&block))
		return give(&block);
	while (high - low > 1) {
		uint64_t middle = (low + high) / 2;

		block.bytes = middle * STEP;
		*(get(&block) ? &low : &high) = middle;
		give(&block);
	}
	return low * STEP;
}

static void run(const struct row *row)
{
	uint64_t random = 1, filled = 0, freed = 0, again = 0;
	unsigned int count = 0;

	while (count < BLOCKS) {
		blocks[count].bytes = size_of(row, &random);
		if (!get(&blocks[count]))
			break;
		filled += blocks[count++].bytes;
	}
	for (unsigned int i = 0; i < count; i += 2)
		freed += give(&blocks[i]);
	for (unsigned int i = 0; i < count; i += 2)
		again += get(&blocks[i]) ? blocks[i].bytes : 0;
	for (unsigned int i = 0; i < count; i += 2)
		give(&blocks[i]);
	printf("%s\t%llu\t%llu\t%llu\n", row->name, (unsigned long long)filled, (unsigned long long)again,
	       (unsigned long long)largest(freed / 2));
	fflush(stdout);
	for (unsigned int i = 1; i < count; i += 2)
		give(&blocks[i]);
	CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	for (unsigned int r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		bool wanted = argc < 2;

		for (int i = 1; i < argc; i++)
			wanted |= strncmp(rows[r].name, argv[i], strlen(argv[i])) == 0;
		if (wanted)
			run(&rows[r]);
	}
	return 0;
}
