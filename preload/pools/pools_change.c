/*
 * pools_change.c - a block of a pool for those who report seldom enough to call: see pools_change.h.
 */
#include "preload/pools/pools_change.h"

int gm_pool_give(struct gm_program_pool *pool, uint64_t address, uint64_t size, uint64_t stream, const void *caller,
		 uint16_t module)
{
	return pool ? gm_pool_give_now(pool, address, size, stream, caller, module) : -EINVAL;
}

int gm_pool_take(struct gm_program_pool *pool, uint64_t address)
{
	return pool ? gm_pool_take_now(pool, address) : -EINVAL;
}
