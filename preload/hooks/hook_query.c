/*
 * hook_query.c - answer the program's questions about memory that the cache serves.
 *
 * The driver knows only segments, but the program must get answers about its blocks as if the driver had
 * allocated them: a range of exactly the requested bytes, and no answer about a freed block. Other
 * properties (context, device, capabilities, mapping, pool) are the same for a block as for its segment.
 * The driver is always asked first, so its own errors (no context, a null pointer, a sticky fault) come
 * before ours.
 *
 * Thread context: any. Signal context: inside a hook the driver answers, corrected for live blocks
 * (cache.h).
 */
#include <string.h>

#include "preload/cache/cache.h"
#include "preload/cache/cache_pages.h"
#include "preload/hooks/imports.h"
#include "preload/order/order.h"

/* A question about memory does not start the library: before the start the cache has served nothing. */
#define GM_ASK(name, ...) GM_ASK_OR(GM_REAL(name)(__VA_ARGS__), name, __VA_ARGS__)
#define GM_ASK_OR(inside, name, ...) \
	do { \
		if (!gm_enter(false)) \
			return inside; \
		if (!gm_cache_on() && !gm_imports_any()) \
			return gm_leave(GM_REAL(name)(__VA_ARGS__)); \
	} while (0)

enum whose { THE_DRIVERS, A_BLOCK, NOBODYS };

struct range { CUdeviceptr base; size_t size; uint64_t id; CUcontext context; CUmemoryPool pool; };

/* Return the id of a block, which stays the same while the program holds the block. The top bit makes the id
 * differ from the driver's ids, which are small numbers. */
static uint64_t buffer_id(uint32_t block, uint64_t tsc)
{
	return UINT64_C(1) << 63 | (tsc & (UINT64_MAX >> 9)) << 8 | (block & 0xff);
}

/* Find whose memory is at @address. NOBODYS: the address lies in a segment of the cache, but in no block that the
 * program holds, or past the bytes that it requested. */
static enum whose find(CUdeviceptr address, struct range *ret_range)
{
	struct gm_import import;
	struct gm_block copy;
	uint32_t block = gm_cache_on() ? gm_cache_block(address, &copy) : 0;

	if (block && address - copy.address < copy.requested) {
		*ret_range = (struct range){ copy.address, copy.requested, buffer_id(block, copy.tsc), NULL, NULL };
		gm_cache_pages_owner(block, &ret_range->context, &ret_range->pool);
		return A_BLOCK;
	}
	if (block || (gm_cache_on() && gm_cache_covers(address)))
		return NOBODYS;
	switch (gm_import_find(address, &import)) {
	case 0:
		return THE_DRIVERS;
	case 1:
		*ret_range = (struct range){ import.address, import.size, 0, NULL, NULL };
		return A_BLOCK;
	default:
		return NOBODYS;
	}
}

/* ---- address ranges ---- */

static CUresult range_inside(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	CUresult result = GM_REAL(cuMemGetAddressRange_v2)(pbase, psize, dptr);
	uint64_t base, bytes;

	if (result || !gm_inside_block(dptr, &base, &bytes))
		return result;
	if (pbase)
		*pbase = base;
	if (psize)
		*psize = bytes;
	return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct range range;
	enum whose whose;
	CUresult result;

	GM_ASK_OR(range_inside(pbase, psize, dptr), cuMemGetAddressRange_v2, pbase, psize, dptr);
	gm_writers_asked(GM_CALLER);
	whose = find(dptr, &range);
	if (whose == THE_DRIVERS)
		return gm_leave(GM_REAL(cuMemGetAddressRange_v2)(pbase, psize, dptr));
	if (whose == NOBODYS)	/* ask the driver about an address where no allocation is */
		return gm_leave(GM_REAL(cuMemGetAddressRange_v2)(pbase, psize, GM_NOBODYS));
	result = GM_REAL(cuMemGetAddressRange_v2)(NULL, NULL, dptr);
	if (result)
		return gm_leave(result);
	if (pbase)
		*pbase = range.base;
	if (psize)
		*psize = range.size;
	return gm_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
	struct range range;
	enum whose whose;
	CUresult result;

	GM_ASK(cuMemGetAddressRange, pbase, psize, dptr);
	whose = find(dptr, &range);
	if (whose == THE_DRIVERS)
		return gm_leave(GM_REAL(cuMemGetAddressRange)(pbase, psize, dptr));
	if (whose == NOBODYS)
		return gm_leave(GM_REAL(cuMemGetAddressRange)(pbase, psize,
							      (CUdeviceptr_v1)GM_NOBODYS));
	result = GM_REAL(cuMemGetAddressRange)(NULL, NULL, dptr);
	if (result)
		return gm_leave(result);
	if (pbase)	/* the base of a 32-bit address fits in 32 bits */
		*pbase = (CUdeviceptr_v1)range.base;
	if (psize)
		*psize = (unsigned int)range.size;
	return gm_leave(CUDA_SUCCESS);
}

/* ---- attributes of a pointer ---- */

/* Change the driver's answer about the segment into an answer about the block. */
static void describe(const struct range *range, CUpointer_attribute attribute, void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		memcpy(data, &range->base, sizeof(range->base));
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		memcpy(data, &range->size, sizeof(range->size));
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		if (range->id)
			memcpy(data, &range->id, sizeof(range->id));
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		if (range->context)
			memcpy(data, &range->context, sizeof(range->context));
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		if (range->pool)
			memcpy(data, &range->pool, sizeof(range->pool));
		break;
	default:
		break;
	}
}

static CUresult attributes_inside(CUresult result, unsigned int count,
				  const CUpointer_attribute *attributes, void **data,
				  CUdeviceptr ptr)
{
	struct range range = { 0 };

	if (!result && gm_inside_block(ptr, (uint64_t *)&range.base, (uint64_t *)&range.size))
		for (unsigned int i = 0; i < count; i++)
			describe(&range, attributes[i], data[i]);
	return result;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	uint64_t unwanted[16];
	struct range range;
	enum whose whose;
	CUresult result;

	GM_ASK_OR(attributes_inside(GM_REAL(cuPointerGetAttribute)(data, attribute, ptr), 1,
				    &attribute, &data, ptr),
		  cuPointerGetAttribute, data, attribute, ptr);
	gm_writers_asked(GM_CALLER);
	whose = find(ptr, &range);
	result = GM_REAL(cuPointerGetAttribute)(whose == NOBODYS && data ? unwanted : data,
						attribute, ptr);
	if (!result && whose == NOBODYS)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && whose == A_BLOCK)
		describe(&range, attribute, data);
	return gm_leave(result);
}

/* Complete the answers about a pointer to no allocation. cuPointerGetAttributes succeeds for an unknown pointer
 * and returns zeroes, so the driver was asked about GM_NOBODYS instead of @ptr. The driver returns that address as
 * the host pointer: replace it by @ptr. */
static void about_nobodys(unsigned int count, const CUpointer_attribute *attributes, void **data,
			  CUdeviceptr ptr)
{
	CUdeviceptr said;

	for (unsigned int i = 0; i < count; i++) {
		if (attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER)
			continue;
		memcpy(&said, data[i], sizeof(said));
		if (said == GM_NOBODYS)
			memcpy(data[i], &ptr, sizeof(ptr));
	}
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				void **data, CUdeviceptr ptr)
{
	struct range range;
	enum whose whose;
	CUresult result;

	GM_ASK_OR(attributes_inside(GM_REAL(cuPointerGetAttributes)(numAttributes, attributes, data,
								    ptr),
				    numAttributes, attributes, data, ptr),
		  cuPointerGetAttributes, numAttributes, attributes, data, ptr);
	gm_writers_asked(GM_CALLER);
	whose = find(ptr, &range);
	result = GM_REAL(cuPointerGetAttributes)(numAttributes, attributes, data,
						 whose == NOBODYS ? GM_NOBODYS : ptr);
	for (unsigned int i = 0; !result && whose == A_BLOCK && i < numAttributes; i++)
		describe(&range, attributes[i], data[i]);
	if (!result && whose == NOBODYS)
		about_nobodys(numAttributes, attributes, data, ptr);
	return gm_leave(result);
}

/* Set an attribute. SYNC_MEMOPS, the only settable one, is set for the whole segment, so copies of neighbouring
 * blocks become synchronous, too. It is never cleared, because a neighbouring block may need it. */
static CUresult set_inside(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	if (value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && gm_cache_covers(ptr)) {
		if (!*(const unsigned int *)value)
			return CUDA_SUCCESS;
		gm_writers_noticed("memory is made ready for RDMA");
	}
	return GM_REAL(cuPointerSetAttribute)(value, attribute, ptr);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct range range;
	enum whose whose;

	GM_ASK_OR(set_inside(value, attribute, ptr), cuPointerSetAttribute, value, attribute, ptr);
	whose = find(ptr, &range);
	if (whose == NOBODYS)
		return gm_leave(CUDA_ERROR_INVALID_VALUE);
	if (whose == A_BLOCK && value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
		if (!*(const unsigned int *)value)
			return gm_leave(CUDA_SUCCESS);
		gm_writers_seen("memory is made ready for RDMA");
	}
	return gm_leave(GM_REAL(cuPointerSetAttribute)(value, attribute, ptr));
}

/* ---- free memory ---- */

/* Add the memory that a flush would give back, because the program can have it. Memory that this thread freed
 * before must count as free now, because the driver's own free would have waited for the GPU. */
static size_t with_idle(size_t free_bytes, size_t total_bytes)
{
	struct gm_where where = gm_where_now();
	uint64_t idle;

	if (!gm_cache_on() || where.domain >= GM_MAX_DEVICES)
		return free_bytes;
	if (gm_state.options.free == GM_FREE_DEFERRED)
		gm_reuse_poll(gm_order_reuse());
	else if (gm_reuse_limbo_bytes(gm_order_reuse(), UINT32_MAX))
		gm_reuse_wait_all(gm_order_reuse());
	idle = gm_cache_idle_bytes(where.domain);
	return idle > total_bytes - free_bytes ? total_bytes : free_bytes + (size_t)idle;
}

/* Finish giving memory back to the driver, so that it counts as free there. */
static void finish_giving_back(void)
{
	struct gm_where where;

	if (!gm_cache_on())
		return;
	where = gm_where_now();
	if (where.domain < GM_MAX_DEVICES)
		gm_cache_back_done(where.domain);
}

#define GET_INFO(name, bytes_t) \
	CUresult name(bytes_t *free, bytes_t *total) \
	{ \
		CUresult result; \
		\
		GM_ASK(name, free, total); \
		finish_giving_back(); \
		result = GM_REAL(name)(free, total); \
		if (!result && free && total && *free <= *total) \
			*free = (bytes_t)with_idle(*free, *total); \
		return gm_leave(result); \
	}
GET_INFO(cuMemGetInfo_v2, size_t)
GET_INFO(cuMemGetInfo, unsigned int)
