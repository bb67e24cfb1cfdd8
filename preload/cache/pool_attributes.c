/*
 * pool_attributes.c - default pools and their attributes: see cache.h.
 *
 * A pool that the program has set to reuse memory in another way than by default is not served: those
 * attributes forbid ways of reuse that the cache does not keep apart.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include <string.h>

#include "preload/cache/cache.h"
#include "preload/cache/cache_pages.h"
#include "preload/hooks/hook.h"
#include "preload/order/order.h"

struct pool {
	_Atomic(uintptr_t) handle;	/* of the default pool; 0: not asked for yet */
	_Atomic(bool) current;		/* it is the device's current pool */
	_Atomic(bool) changed;		/* it reuses memory in its own way */
	_Atomic(uint64_t) threshold;	/* bytes: what it keeps at a synchronise */
	_Atomic(uint64_t) high;		/* most bytes used, when it was looked */
	_Atomic(uint64_t) reserved_high;	/* of pages: most bytes reserved, when it was looked */
};

static struct pool pools[GM_MAX_DEVICES];
static _Atomic(uint64_t) served;	/* a bit for each device of which requests were */

static const CUmemPool_attribute reuse[] = {
	CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
	CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
	CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
};

static bool is_reuse(CUmemPool_attribute attribute)
{
	for (size_t i = 0; i < sizeof(reuse) / sizeof(reuse[0]); i++)
		if (reuse[i] == attribute)
			return true;
	return false;
}

/* ---- what the driver has ---- */

/* False: the driver did not answer. */
static bool ask_reuse(struct pool *pool, CUmemoryPool handle)
{
	struct gm_relaxed relaxed = gm_relax();
	bool changed = false, known = true;

	for (size_t i = 0; known && i < sizeof(reuse) / sizeof(reuse[0]); i++) {
		int allowed = 0;

		known = !GM_REAL(cuMemPoolGetAttribute)(handle, reuse[i], &allowed);
		changed |= !allowed;
	}
	gm_unrelax(&relaxed);
	if (known)
		pool->changed = changed;
	return known;
}

static bool ask(struct pool *pool, CUdevice device)
{
	CUmemoryPool handle = NULL;
	cuuint64_t threshold = 0;

	if (GM_REAL(cuDeviceGetDefaultMemPool)(&handle, device) || !handle ||
	    GM_REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ||
	    !ask_reuse(pool, handle))
		return false;
	pool->threshold = threshold;
	pool->handle = (uintptr_t)handle;
	return true;
}

static bool ask_current(struct pool *pool, CUdevice device)
{
	CUmemoryPool current = NULL;

	if (GM_REAL(cuDeviceGetMemPool)(&current, device))
		return false;
	pool->current = (uintptr_t)current == pool->handle;
	return pool->current;
}

/* What is not yet known, or was otherwise when it was asked last: another pool may be destroyed,
 * or the device reset. */
static bool find_out(struct pool *pool, CUdevice device)
{
	struct gm_relaxed relaxed = gm_relax();
	bool known = (pool->handle || ask(pool, device)) && ask_current(pool, device);

	gm_unrelax(&relaxed);
	return known;
}

bool gm_pool_served(uint8_t domain)
{
	struct pool *pool;

	if (domain >= GM_MAX_DEVICES)
		return false;
	pool = &pools[domain];
	if ((!pool->current && !find_out(pool, domain)) || pool->changed)
		return false;
	if (!(served >> domain & 1))
		served |= UINT64_C(1) << domain;
	return true;
}

CUmemoryPool gm_pool_handle(uint8_t domain)
{
	return domain < GM_MAX_DEVICES ? (CUmemoryPool)pools[domain].handle : NULL;
}

bool gm_pool_keeps(uint8_t domain)
{
	return domain < GM_MAX_DEVICES && pools[domain].threshold == UINT64_MAX;
}

uint64_t gm_pool_threshold(uint8_t domain)
{
	return domain < GM_MAX_DEVICES ? pools[domain].threshold : 0;
}

void gm_pools_synchronised(void)
{
	uint64_t left = served;

	for (; left; left &= left - 1) {
		uint8_t domain = (uint8_t)__builtin_ctzll(left);
		struct gm_cache_pool bytes;

		if (!gm_pool_keeps(domain) && gm_cache_pool(domain, &bytes) &&
		    bytes.idle && bytes.segments > pools[domain].threshold)
			gm_cache_pool_flush(domain, pools[domain].threshold);
	}
}

/* What the driver's pool keeps until a synchronise. */
void gm_pool_trim(uint8_t domain)
{
	CUmemoryPool handle = gm_pool_handle(domain);
	struct gm_relaxed relaxed;

	if (!handle || !(served >> domain & 1))
		return;
	relaxed = gm_relax();
	GM_REAL(cuMemPoolTrimTo)(handle, 0);
	gm_unrelax(&relaxed);
}

/* ---- the program asks and sets ---- */

/* The device whose default pool @handle is; GM_MAX_DEVICES: none's that is served. */
static uint8_t domain_of(CUmemoryPool handle)
{
	for (uint64_t left = served; handle && left; left &= left - 1) {
		uint8_t domain = (uint8_t)__builtin_ctzll(left);

		if (pools[domain].handle == (uintptr_t)handle)
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
	CUmemoryPool handle = (CUmemoryPool)pools[domain].handle;
	struct gm_cache_pool ours;
	cuuint64_t used = 0;

	if (!gm_cache_pool(domain, &ours) ||
	    GM_REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
		return false;
	if (!ours.pages)
		used = used > ours.segments ? used - ours.segments : 0;
	*ret_used = used + ours.used;
	*ret_high = most(&pools[domain].high, *ret_used, ours.used_high);
	return true;
}

/* The same of bytes that it has of the device. Of segments these are the driver's figures. */
static bool bytes_reserved(uint8_t domain, uint64_t *ret_reserved, uint64_t *ret_high)
{
	CUmemoryPool handle = (CUmemoryPool)pools[domain].handle;
	cuuint64_t reserved = 0;
	struct gm_cache_pool ours;

	if (!gm_cache_pool(domain, &ours) || !ours.pages ||
	    GM_REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
		return false;
	*ret_reserved = reserved + ours.segments;
	*ret_high = most(&pools[domain].reserved_high, *ret_reserved, ours.segments_high);
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

	if (domain >= GM_MAX_DEVICES || !(served >> domain & 1) ||
	    (handle ? (uintptr_t)handle != pools[domain].handle : !pools[domain].current))
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
		pools[domain].threshold = number;
	} else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
		pools[domain].high = 0;
		gm_cache_pool_reset_high(domain);
	} else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
		pools[domain].reserved_high = 0;
		gm_cache_pool_reset_segments_high(domain);
	} else if (is_reuse(attr) && !ask_reuse(&pools[domain], pool)) {
		pools[domain].changed = true;
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
		pools[device].current = false;	/* asked for again at the next request */
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
