/*
 * order_until.c - for a few hours of this branch: what others are writing now, so that it links.
 * Weak: whoever brings the real one need do nothing; who brings the last one deletes this file.
 */
#include "preload/cache.h"
#include "preload/order.h"

#define WEAK __attribute__((weak))

WEAK bool gm_cache_covers(CUdeviceptr address) { (void)address; return false; }
WEAK bool gm_cache_retry(CUresult result) { (void)result; return false; }
WEAK void gm_cache_fault(CUresult result) { (void)result; }
WEAK void gm_cache_stream_ends(uint64_t key, CUstream stream) { (void)key; (void)stream; }
WEAK void gm_cache_synchronised(void) { }
WEAK bool gm_cache_on(void) { return false; }
WEAK uint32_t gm_cache_block(CUdeviceptr address, struct gm_block *ret_copy) { (void)address; (void)ret_copy; return 0; }
WEAK bool gm_cache_segment(uint32_t block, struct gm_segment *ret_copy) { (void)block; (void)ret_copy; return false; }
WEAK uint64_t gm_cache_idle_bytes(uint8_t domain) { (void)domain; return 0; }
WEAK void gm_cache_dedicate(void) { }
WEAK bool gm_cache_pool(uint8_t domain, struct gm_cache_pool *ret_pool) { (void)domain; (void)ret_pool; return false; }
WEAK void gm_cache_pool_reset_high(uint8_t domain) { (void)domain; }
WEAK void gm_cache_pool_flush(uint8_t domain, uint64_t keep) { (void)domain; (void)keep; }
