/*
 * pool_attributes.c - the hooks by which the program reads and sets attributes of default pools: see cache.h.
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

/* ---- attributes that the program reads and sets ---- */

/* Return the device whose default pool is @handle; GM_MAX_DEVICES: @handle is no default pool that is served. */
static uint8_t domain_of(CUmemoryPool handle)
{
	for (uint64_t left = gm_pools_served; handle && left; left &= left - 1) {
		uint8_t domain = (uint8_t)__builtin_ctzll(left);

		if (gm_pools[domain].handle == (uintptr_t)handle)
			return domain;
	}
	return GM_MAX_DEVICES;
}

/* Return the highest of the bytes now, the cache's own peak, and the highest bytes seen at any look. */
static uint64_t most(_Atomic(uint64_t) *looked, uint64_t now, uint64_t own)
{
	if (now > *looked)
		*looked = now;
	return own > *looked ? own : *looked;
}

/* Return the bytes that the program uses of the pool, and their peak. The driver's own peak includes our segments, so
 * the driver's part counts only as of the looks. One happens whenever the driver itself has served a request. */
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

/* Return the same for the pool's reserved bytes. Only for pages: for segments the driver's figures are right. */
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

/* Flush the cache first, because its idle memory counts as reserved. */
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

/* Apply the access to our pages, too, because they do not belong to the driver's pool. */
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
		gm_pools[device].current = false;	/* asked again at the next request */
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
