/*
 * heap_config.c - the settings of the segments heap, and the sizes that follow from them.
 *
 * Source of the rules: PyTorch's CUDACachingAllocator (round_size, get_allocation_size) and its
 * AllocatorConfig (roundup_power2_divisions). Pure functions.
 */
#include "allocator/heap.h"

void gm_heap_config_default(struct gm_heap_config *config)
{
	*config = (struct gm_heap_config){
		.class = &gm_segments_class,
		.large_segment_size = GM_HEAP_LARGE_SEGMENT,
		.max_split_size = GM_HEAP_UNLIMITED,
		.max_non_split_rounding = GM_HEAP_LARGE_SEGMENT,
		.limit = GM_HEAP_UNLIMITED,
		.shared_most = GM_HEAP_UNLIMITED,
	};
}

static unsigned int log2_floor(uint64_t value)
{
	return 63u - (unsigned int)__builtin_clzll(value);
}

/* Return the setting for @bytes. There is one for each power of two, from 1 MiB to 32 GiB and more. */
static uint32_t divisions(const struct gm_heap_config *config, uint64_t bytes)
{
	unsigned int log = log2_floor(bytes);
	unsigned int bin = log < 20 ? 0 : log - 20;

	return config->roundup_power2_divisions[bin < GM_HEAP_DIVISION_BINS ? bin
							    : GM_HEAP_DIVISION_BINS - 1];
}

static uint64_t round_power2(uint64_t bytes, uint32_t parts)
{
	uint64_t floor, step, down;

	if (!(bytes & (bytes - 1)))
		return bytes;
	floor = UINT64_C(1) << log2_floor(bytes);
	step = floor >> log2_floor(parts);
	if (!step)
		return floor << 1;
	down = bytes & ~(step - 1);
	return down == bytes ? bytes : down + step;
}

uint64_t gm_heap_round(const struct gm_heap_config *config, uint64_t bytes)
{
	uint32_t parts;

	if (bytes < GM_GRANULE)
		return GM_GRANULE;
	parts = divisions(config, bytes);
	if (parts > 1 && bytes > GM_GRANULE * parts)
		return round_power2(bytes, parts);
	return (bytes + GM_GRANULE - 1) & ~(GM_GRANULE - 1);
}

bool gm_heap_rounds_plainly(const struct gm_heap_config *config)
{
	for (unsigned int i = 0; i < GM_HEAP_DIVISION_BINS; i++)
		if (config->roundup_power2_divisions[i] > 1)
			return false;
	return true;
}

uint64_t gm_heap_segment_bytes(const struct gm_heap_config *config, uint64_t size)
{
	if (size <= GM_HEAP_SMALL_REQUEST)
		return GM_HEAP_SMALL_SEGMENT;
	if (size < GM_HEAP_LARGE_REQUEST)
		return config->large_segment_size;
	return (size + GM_HEAP_ROUND_LARGE - 1) & ~(GM_HEAP_ROUND_LARGE - 1);
}

struct gm_heap *gm_heap_new(const struct gm_heap_setup *setup)
{
	const struct gm_heap_class *class = setup->config->class;
	struct gm_heap *heap = setup->place ? setup->place
					    : setup->memory(setup->memory_arg, class->bytes);

	if (!heap)
		return NULL;
	*heap = (struct gm_heap){
		.class = class, .config = *setup->config, .ops = setup->ops, .undo = setup->undo,
		.stats = setup->stats, .segments = setup->segments, .blocks = setup->blocks,
		.links = setup->links, .map = setup->map, .domain = setup->domain,
		.number = setup->number,
	};
	heap->plain = gm_heap_rounds_plainly(&heap->config);
	return class->init(heap, setup) ? NULL : heap;
}
