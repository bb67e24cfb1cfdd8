/*
 * cache_limit.c - the limit of the cache on each device, and the other settings that its heaps get from the options.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include "preload/cache/cache_internal.h"

static _Atomic(uint64_t) limits[GM_MAX_DEVICES];	/* 0: as the options say */
static _Atomic(double) fractions[GM_MAX_DEVICES];	/* the same as a part of the device */
static _Atomic(uint32_t) setters[GM_MAX_DEVICES];	/* what set the limit: enum gm_limit */

/* Return the limit that the program or gpumem ctl has set; else the lower one of the options' limit and fraction. */
uint64_t gm_cache_limit(uint8_t domain, enum gm_limit *ret_which)
{
	const struct gm_options *options = &gm_state.options;
	uint64_t limit = limits[domain];
	size_t total = 0;

	*ret_which = (enum gm_limit)setters[domain];
	if (limit)			/* set by the program, or from outside */
		return limit;
	limit = options->memory_limit;
	*ret_which = GM_LIMIT_MEMORY;
	if (options->per_process_memory_fraction < 1 &&
	    !GM_REAL(cuDeviceTotalMem_v2)(&total, domain)) {
		uint64_t share = (uint64_t)(options->per_process_memory_fraction * (double)total);

		if (share < limit) {
			limit = share;
			*ret_which = GM_LIMIT_FRACTION;
		}
	}
	return limit;
}

/* Return the most bytes of segments that blocks may share if the limit of the cache is @limit. */
static uint64_t shared_most(uint8_t domain, uint64_t limit)
{
	double part = gm_state.options.shared_segments;
	size_t total = 0;

	if (part >= 1 || GM_REAL(cuDeviceTotalMem_v2)(&total, domain))
		return GM_HEAP_UNLIMITED;
	return (uint64_t)(part * (double)(total < limit ? total : limit));
}

bool gm_cache_is_past_device(const struct gm_cache_heap *heap)
{
	size_t free_bytes, total_bytes;
	uint64_t live = 0;

	if (GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes))
		return false;
	for (struct gm_cache_heap *any = NULL; (any = gm_cache_heap_next(any, heap->domain));)
		live += gm_cache_heap_live_bytes(any);
	return live > total_bytes || gm_cache_request.bytes > total_bytes - live;
}

void gm_cache_config(uint8_t domain, struct gm_heap_config *config)
{
	enum gm_limit which;

	gm_options_heap(&gm_state.options, config);
	config->limit = gm_cache_limit(domain, &which);
	config->shared_most = shared_most(domain, config->limit);
}

/* Return the bytes that count against the limit. Each heap knows only its own segments. */
static uint64_t used_of(uint8_t domain)
{
	uint64_t bytes = 0;

	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		bytes += heap->segments;
	return bytes;
}

bool gm_cache_within_limit(uint8_t domain, uint64_t bytes)
{
	enum gm_limit which;
	uint64_t limit = gm_cache_limit(domain, &which), used = used_of(domain);

	return limit == GM_HEAP_UNLIMITED || (used <= limit && bytes <= limit - used);
}

void gm_cache_describe_limit(uint8_t domain, struct gm_failure *failure)
{
	enum gm_limit which;

	failure->limit_bytes = gm_cache_limit(domain, &which);
	failure->limit = which;
	failure->limit_used_bytes = used_of(domain);
}

void gm_cache_set_limit(uint8_t domain, uint64_t limit_bytes, double fraction, enum gm_limit setter)
{
	fractions[domain] = fraction;
	setters[domain] = setter;
	limits[domain] = limit_bytes;
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));)
		gm_cache_heap_set_limit(heap, limit_bytes, shared_most(domain, limit_bytes));
}

void gm_cache_apply_limit(struct gm_cache_heap *heap)
{
	uint64_t limit = limits[heap->domain];

	if (limit)
		gm_cache_heap_set_limit(heap, limit, shared_most(heap->domain, limit));
}

double gm_cache_fraction(uint8_t domain, uint64_t total_bytes)
{
	const struct gm_options *options = &gm_state.options;
	double fraction = options->per_process_memory_fraction;
	double part = (double)options->memory_limit / (double)total_bytes;

	if (limits[domain])
		return fractions[domain];
	return part < fraction ? part : fraction;
}
