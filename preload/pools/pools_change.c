/*
 * pools_change.c - gm_pool_give and gm_pool_take as ordinary functions, for reporters with few calls: see
 * pools_change.h.
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
