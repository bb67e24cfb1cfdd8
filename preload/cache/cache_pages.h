/*
 * cache_pages.h - memory of a pages heap (allocator/pages_heap.h): one reservation of addresses, and pages of the
 * driver's that are mapped where they are needed. For expandable_segments:True.
 *
 * A page is unmapped only when the host knows that the GPU has passed everything that was submitted before the page
 * was freed, because neither mapping nor unmapping is work of a stream (cache_points.c). Marks are recorded when
 * memory is needed or given back, and before a capture begins, but never at a free. Only gm_cache_await and
 * gm_cache_await_pages wait for them, and both waits have an end.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the device's growth lock, unless a function says
 * otherwise.
 */
#ifndef GM_PRELOAD_CACHE_PAGES_H
#define GM_PRELOAD_CACHE_PAGES_H

#include "preload/cache/cache_heap.h"

/* Reserve addresses for a pages heap on the device of @domain, for its default pool (@of_pool) or for a context.
 * Returns NULL if the driver has no such memory, or refuses. No lock is needed. */
struct gm_cache_pages *gm_cache_pages_new(uint8_t domain, bool of_pool);
/* Give all memory and the addresses back to the driver. Nothing may use them any more. */
void gm_cache_pages_end(struct gm_cache_pages *pages);

/* The members of struct gm_heap_ops for a pages heap; @heap is a struct gm_cache_heap. */
int gm_cache_pages_reserve(void *heap, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes,
			   const uint32_t **ret_handles);
int gm_cache_pages_map(void *heap, uint64_t address, uint64_t bytes);
void gm_cache_pages_unmap(void *heap, uint64_t address, uint64_t bytes);
void gm_cache_pages_trim(void *heap);
uint64_t gm_cache_pages_point(void *heap);	/* under the domain's lock, as the next */
uint64_t gm_cache_pages_passed(void *heap, uint64_t stream);
bool gm_cache_pages_wanted(void *heap);		/* @waits of struct gm_heap_ops, if gm_cache_request.waits */
bool gm_cache_pages_costly(void *heap);		/* as option compaction_time says */

/* Is the GPU not known to have passed some free of @heap up to point @until? 0: no; 1: yes; -EAGAIN: that can be
 * found out only after the end of a capture. No lock is needed. */
int gm_cache_pages_waits(struct gm_cache_heap *heap, uint64_t until);

/* Return the owner that the program is told for a block of a pages heap, because the driver names none for such
 * memory: a context or a pool; the other is NULL. False: the block is not in a pages heap. */
bool gm_cache_pages_owner(uint32_t block, CUcontext *ret_context, CUmemoryPool *ret_pool);

/* Is @address in memory of a pages heap, handed out or not? */
bool gm_cache_pages_covers(CUdeviceptr address);

/* Give the device @peer access to all memory that pages heaps of @domain's contexts have now or get later. No lock
 * held. */
void gm_cache_pages_peer(uint8_t domain, uint8_t peer);

/* Give the device @peer that access before a copy that the program asks for, if the hardware allows it. After the
 * first call for two devices, a call costs one load. No lock held. */
void gm_cache_pages_open(uint8_t domain, uint8_t peer);

/* Apply access that the program has set for @domain's default pool: open or close the mapped pages in the same way.
 * Pages that are mapped later get the access that the driver then reports for the pool. No lock held. */
CUresult gm_cache_pages_pool_access(uint8_t domain, const CUmemAccessDesc *who, size_t count);

#endif
