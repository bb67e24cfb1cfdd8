/*
 * pool_attributes.h - the devices' default pools while cuMemAllocAsync is served from the cache:
 * which of them may be, and what the program reads of them.
 *
 * Our segments come from the same pool of the driver's: what is reserved, access and limits are its
 * own. What is used is ours to say: the driver's figure, with the segments' bytes replaced by the
 * bytes that the program asked for and has.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_POOL_ATTRIBUTES_H
#define GM_PRELOAD_POOL_ATTRIBUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks/hook.h"

/* May a request on @domain's device be served from the cache: is the pool that it would come from
 * the device's default one, and left as it was made? @pool NULL: the current pool. A load or two
 * once it is known. */
bool gm_pool_served(uint8_t domain, CUmemoryPool pool);

/* The driver served a request for @domain's memory itself, from @pool (NULL: the current one). */
void gm_pool_passed(uint8_t domain, CUmemoryPool pool);

/* The program has synchronised: idle segments beyond a pool's release threshold go back, as far as
 * the host has seen their last use complete. */
void gm_pools_synchronised(void);

/* Memory is short on @domain's device: what its default pool keeps and nobody uses goes back. */
void gm_pool_trim(uint8_t domain);

#endif
