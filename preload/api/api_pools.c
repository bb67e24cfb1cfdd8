/*
 * api_pools.c - the public functions for pools of the program (preload/pools/).
 *
 * Thread context: any, outside our locks. Signal context: none.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include "preload/api/api_stats.h"
#include "preload/pools/pools.h"

/* Pools are numbered from 1, their domains from GM_DOMAIN_POOLS. */
static int number_of(uint8_t domain)
{
	return domain ? domain - (int)GM_DOMAIN_POOLS + 1 : 0;
}

/* Return the domain of pool @number; 0: there is no such pool. */
static uint8_t domain_of(int number)
{
	unsigned int domain = number > 0 && number <= (int)GM_MAX_POOLS ?
			      GM_DOMAIN_POOLS + (unsigned int)number - 1 : 0;

	return domain && gm_pools_recording() && gm_pool_at(domain) ? (uint8_t)domain : 0;
}

int gpumem_pool_create(const char *name, int device)
{
	if (!name || !*name || device < 0)
		return 0;
	return number_of(gm_pools_recording() ? gm_pool_open(GM_POOL_API, (uint32_t)device,
							       gm_pool_name_id(name), 0) : 0);
}

int gpumem_pool_find(const char *name, int device)
{
	if (!name || !*name || device < 0)
		return 0;
	return number_of(gm_pool_find(name, (uint32_t)device));
}

int gpumem_pool_allocated(int pool, uint64_t address, uint64_t size, void *stream)
{
	uint8_t domain = domain_of(pool);

	return domain ? gm_pool_give(gm_pool_of(domain), address, size, (uintptr_t)stream,
				     __builtin_return_address(0), 0) : -EINVAL;
}

int gpumem_pool_freed(int pool, uint64_t address)
{
	uint8_t domain = domain_of(pool);

	return domain ? gm_pool_take(gm_pool_of(domain), address) : -EINVAL;
}

int gpumem_pool_label(int pool, const uint64_t *addresses, int count, const char *label)
{
	uint8_t domain = domain_of(pool);
	uint32_t name = domain && label && *label ? gm_pool_name_id(label) : 0;
	int found = 0;

	if (!domain || count < 0 || (count && !addresses))
		return -EINVAL;
	if (label && *label && !name)
		return -ENOMEM;
	for (int i = 0; i < count; i++)
		if (gm_pool_size_at(domain, addresses[i])) {
			gm_pool_name(domain, addresses[i], name);
			found++;
		}
	return found;
}

int gpumem_pool_memory_stats(int pool, struct gpumem_stat *stats, int max)
{
	uint8_t domain = domain_of(pool);
	struct gm_stats now;
	int r = domain ? gm_record_stats(domain, &now) : -EINVAL;

	return r ? r : gm_stats_into(&now, gm_stats_list_pool, stats, max);
}

int gpumem_pool_reset_peak_memory_stats(int pool)
{
	uint8_t domain = domain_of(pool);

	return domain ? gm_record_reset_stats(domain, GM_RESET_PEAK) : -EINVAL;
}
