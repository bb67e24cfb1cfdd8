/*
 * default_pools.c - the state of the devices' default pools in the driver: see cache.h.
 *
 * A pool is not served once the program has changed its reuse attributes, because those attributes forbid ways of
 * reuse that the cache does not distinguish.
 *
 * Thread context: any. Signal context: none.
 */
#include "preload/cache/cache_internal.h"

struct gm_default_pool gm_pools[GM_MAX_DEVICES];
_Atomic(uint64_t) gm_pools_served;

static const CUmemPool_attribute reuse[] = {
	CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
	CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
	CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
};

bool gm_pool_is_reuse(CUmemPool_attribute attribute)
{
	for (size_t i = 0; i < sizeof(reuse) / sizeof(reuse[0]); i++)
		if (reuse[i] == attribute)
			return true;
	return false;
}

/* ---- state in the driver ---- */

/* Ask the driver whether the program has changed a reuse attribute. Returns false if the driver did not answer. */
bool gm_pool_ask_reuse(struct gm_default_pool *pool, CUmemoryPool handle)
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

static bool ask(struct gm_default_pool *pool, CUdevice device)
{
	CUmemoryPool handle = NULL;
	cuuint64_t threshold = 0;

	if (GM_REAL(cuDeviceGetDefaultMemPool)(&handle, device) || !handle ||
	    GM_REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ||
	    !gm_pool_ask_reuse(pool, handle))
		return false;
	pool->threshold = threshold;
	pool->handle = (uintptr_t)handle;
	return true;
}

static bool ask_current(struct gm_default_pool *pool, CUdevice device)
{
	CUmemoryPool current = NULL;

	if (GM_REAL(cuDeviceGetMemPool)(&current, device))
		return false;
	pool->current = (uintptr_t)current == pool->handle;
	return pool->current;
}

/* Find out whether the default pool is the current one. Asks again each time until it is, because another current
 * pool may be destroyed, or the device reset. */
static bool find_out(struct gm_default_pool *pool, CUdevice device)
{
	struct gm_relaxed relaxed = gm_relax();
	bool known = (pool->handle || ask(pool, device)) && ask_current(pool, device);

	gm_unrelax(&relaxed);
	return known;
}

bool gm_pool_served(uint8_t domain)
{
	struct gm_default_pool *pool;

	if (domain >= GM_MAX_DEVICES)
		return false;
	pool = &gm_pools[domain];
	if ((!pool->current && !find_out(pool, domain)) || pool->changed)
		return false;
	if (!(gm_pools_served >> domain & 1))
		gm_pools_served |= UINT64_C(1) << domain;
	return true;
}

CUmemoryPool gm_pool_handle(uint8_t domain)
{
	return domain < GM_MAX_DEVICES ? (CUmemoryPool)gm_pools[domain].handle : NULL;
}

bool gm_pool_keeps(uint8_t domain)
{
	return domain < GM_MAX_DEVICES && gm_pools[domain].threshold == UINT64_MAX;
}

uint64_t gm_pool_threshold(uint8_t domain)
{
	return domain < GM_MAX_DEVICES ? gm_pools[domain].threshold : 0;
}

/* Release the memory that the driver's pool keeps until a synchronisation. */
void gm_pool_trim(uint8_t domain)
{
	CUmemoryPool handle = gm_pool_handle(domain);
	struct gm_relaxed relaxed;

	if (!handle || !(gm_pools_served >> domain & 1))
		return;
	relaxed = gm_relax();
	GM_REAL(cuMemPoolTrimTo)(handle, 0);
	gm_unrelax(&relaxed);
}
