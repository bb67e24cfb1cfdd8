/*
 * pool_attributes.c - what the program reads and sets of default pools: see cache.h.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include <string.h>

#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_pages.h"
#include "preload/hooks/hook.h"
#include "preload/order/order.h"

void gm_pools_synchronised(void)
{
	uint64_t left = gm_pools_served;

	for (; left; left &= left - 1) {
		uint8_t domain = (uint8_t)__builtin_ctzll(left);
		struct gm_cache_pool bytes;

		if (!gm_pool_keeps(domain) && gm_cache_pool(domain, &bytes) &&
		    bytes.idle && bytes.segments > gm_pools[domain].threshold)
			gm_cache_pool_flush(domain, gm_pools[domain].threshold);
	}
}

/* ---- the program asks and sets ---- */

/* The device whose default pool @handle is; GM_MAX_DEVICES: none's that is served. */
static uint8_t domain_of(CUmemoryPool handle)
{
	for (uint64_t left = gm_pools_served; handle && left; left &= left - 1) {
		uint8_t domain = (uint8_t)__builtin_ctzll(left);

		if (gm_pools[domain].handle == (uintptr_t)handle)
			return domain;
	}
	return GM_MAX_DEVICES;
}

/* The highest of what there is now, what our own mark says, and what it ever was when it was looked. */
static uint64_t most(_Atomic(uint64_t) *looked, uint64_t now, uint64_t own)
{
	if (now > *looked)
		*looked = now;
	return own > *looked ? own : *looked;
}

/* Bytes that the program has of it; *ret_high: at most. The driver's own part of the mark cannot
 * be told apart from our segments': it counts when it was read, which is whenever the driver served some. */
static bool bytes_used(uint8_t domain, uint64_t *ret_used, uint64_t *ret_high)
{
	CUmemoryPool handle = (CUmemoryPool)gm_pools[domain].handle;
	struct gm_cache_pool ours;
	cuuint64_t used = 0;

	if (!gm_cache_pool(domain, &ours) ||
	    GM_REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
		return false;
	if (!ours.pages)
		used = used > ours.segments ? used - ours.segments : 0;
	*ret_used = used + ours.used;
	*ret_high = most(&gm_pools[domain].high, *ret_used, ours.used_high);
	return true;
}

/* The same of bytes that it has of the device. Of segments these are the driver's figures. */
static bool bytes_reserved(uint8_t domain, uint64_t *ret_reserved, uint64_t *ret_high)
{
	CUmemoryPool handle = (CUmemoryPool)gm_pools[domain].handle;
	cuuint64_t reserved = 0;
	struct gm_cache_pool ours;

	if (!gm_cache_pool(domain, &ours) || !ours.pages ||
	    GM_REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
		return false;
	*ret_reserved = reserved + ours.segments;
	*ret_high = most(&gm_pools[domain].reserved_high, *ret_reserved, ours.segments_high);
	return true;
}

static void describe(uint8_t domain, CUmemPool_attribute attr, void *value)
{
	bool used = attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
	bool high = attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
	bool reserved = attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
	struct gm_relaxed relaxed = gm_relax();
	uint64_t now, at_most;

	if ((used && bytes_used(domain, &now, &at_most)) || (reserved && bytes_reserved(domain, &now, &at_most)))
		memcpy(value, high ? &at_most : &now, sizeof(now));
	gm_unrelax(&relaxed);
}

void gm_pool_passed(uint8_t domain, CUmemoryPool handle)
{
	struct gm_relaxed relaxed;
	uint64_t used, high;

	if (domain >= GM_MAX_DEVICES || !(gm_pools_served >> domain & 1) ||
	    (handle ? (uintptr_t)handle != gm_pools[domain].handle : !gm_pools[domain].current))
		return;
	relaxed = gm_relax();
	bytes_used(domain, &used, &high);
	bytes_reserved(domain, &used, &high);
	gm_unrelax(&relaxed);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	uint8_t domain;
	CUresult result;

	if (!gm_enter(false))
		return GM_REAL(cuMemPoolGetAttribute)(pool, attr, value);
	result = GM_REAL(cuMemPoolGetAttribute)(pool, attr, value);
	domain = domain_of(pool);
	if (!result && domain < GM_MAX_DEVICES)
		describe(domain, attr, value);
	return gm_leave(result);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	cuuint64_t number;
	uint8_t domain;
	CUresult result;

	if (!gm_enter(false))
		return GM_REAL(cuMemPoolSetAttribute)(pool, attr, value);
	result = GM_REAL(cuMemPoolSetAttribute)(pool, attr, value);
	domain = domain_of(pool);
	if (result || domain == GM_MAX_DEVICES)
		return gm_leave(result);
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
		memcpy(&number, value, sizeof(number));
		gm_pools[domain].threshold = number;
	} else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
		gm_pools[domain].high = 0;
		gm_cache_pool_reset_high(domain);
	} else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
		gm_pools[domain].reserved_high = 0;
		gm_cache_pool_reset_segments_high(domain);
	} else if (gm_pool_is_reuse(attr) && !gm_pool_ask_reuse(&gm_pools[domain], pool)) {
		gm_pools[domain].changed = true;
	}
	return gm_leave(result);
}

/* What the cache holds and nobody uses counts as reserved: it goes first. */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	uint8_t domain;

	if (!gm_enter(false))
		return GM_REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
	domain = domain_of(pool);
	if (domain < GM_MAX_DEVICES)
		gm_cache_pool_flush(domain, minBytesToKeep);
	return gm_leave(GM_REAL(cuMemPoolTrimTo)(pool, minBytesToKeep));
}

/* What the driver's pool has since then is as the driver says; our pages are not the driver's pool's. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult result;
	uint8_t domain;

	GM_ENTER(cuMemPoolSetAccess, pool, map, count);
	result = GM_TRY(cuMemPoolSetAccess, pool, map, count);
	domain = domain_of(pool);
	if (!result && domain < GM_MAX_DEVICES && gm_state.options.expandable_segments)
		result = gm_cache_pages_pool_access(domain, map, count);
	return gm_leave(result);
}

/* ---- which pool is current ---- */

static void current_changed(CUdevice device)
{
	if (device >= 0 && device < (CUdevice)GM_MAX_DEVICES)
		gm_pools[device].current = false;	/* asked for again at the next request */
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CUresult result;

	if (!gm_enter(false))
		return GM_REAL(cuDeviceSetMemPool)(dev, pool);
	result = GM_REAL(cuDeviceSetMemPool)(dev, pool);
	current_changed(dev);
	return gm_leave(result);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult result;

	if (!gm_enter(false))
		return GM_REAL(cuMemSetMemPool)(location, type, pool);
	result = GM_REAL(cuMemSetMemPool)(location, type, pool);
	if (location && location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		current_changed(location->id);
	return gm_leave(result);
}
