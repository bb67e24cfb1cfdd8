/*
 * cache.h - cudaMalloc and cudaMallocAsync served from the caching allocator.
 *
 * cuMemAlloc is served from a heap for each context. Its segments come from cuMemAlloc, so that IPC, RDMA and peer
 * access keep working. cuMemAllocAsync from a device's default pool is served from a heap for each device. Its
 * segments come from the same driver pool, by stream. Under expandable_segments:True the memory of both kinds of
 * heap is in pages (cache_pages.h). preload/order/reuse.h decides when a block may be used again.
 *
 * Locks: the growth lock of a device (rank GM_RANK_GROWTH) is held during the driver's calls that make or give back
 * segments, and while "out of memory" is decided. Cache hits never take it.
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_CACHE_H
#define GM_PRELOAD_CACHE_H

#include "preload/hooks/record.h"

struct gm_page_map;

/* Start the cache. It calls gm_order_start itself. Returns 0; or -errno, and then nothing is served. */
int gm_cache_start(void);

/* Reasons why a call may need more than to find, hand out and record a block; 0: none. gm_captures and the heap have
 * further reasons. */
enum gm_cache_unusual {
	GM_CACHE_OFF = 1,		/* nothing is served */
	GM_CACHE_HOST_FUNCTIONS = 2,	/* the driver has a host function, and this thread may be running it */
	GM_CACHE_FILLS = 4,		/* memory is filled when it is handed out */
	GM_CACHE_WAITS = 8,		/* every cudaFree waits (free:sync) */
	GM_CACHE_SCARCE = 16		/* some device has little memory left (gm_cache_scarce) */
};
extern _Atomic(uint32_t) gm_cache_unusual GM_HIDDEN;

static inline bool gm_cache_on(void)
{
	return !(gm_cache_unusual & GM_CACHE_OFF);
}

/* Stop serving, because the journal is lost, and with it the tables of cached memory. Memory of the cache that the
 * program frees later is not reused. Async-signal-safe. */
void gm_cache_lost(void);

/* Return the active block of the cache that covers @address, and a copy of its record; 0: no such block. */
uint32_t gm_cache_block(CUdeviceptr address, struct gm_block *ret_copy);
/* Return the bytes that a flush would give back to @domain's device. */
uint64_t gm_cache_idle_bytes(uint8_t domain);

/* Wait until the driver has the segments of @domain's device that were given back; at most 20 ms for each heap. */
void gm_cache_back_done(uint8_t domain);

/* Give idle segments of @domain (GM_DOMAIN_UNKNOWN: of every device) back to the driver. Waits before only for frees
 * that this thread may wait for (gm_reuse_wait_all). Returns the bytes. */
uint64_t gm_cache_flush(uint8_t domain);

/* Give back memory that nobody has used for one turn, or for several turns if such memory was missed before. The
 * helper thread calls this once in each turn; the option idle_time sets the length of a turn. Does nothing while a
 * stream captures. */
void gm_cache_turn(void);

/* Decide whether to repeat a hooked call that failed with @result. Returns true if the call ran out of memory and
 * memory has been given back or has become free since. First gives back idle memory. If there is none, or that was
 * not enough, waits for freed memory that the GPU still uses. At last asks other processes (neighbours.h). @tries: 0
 * before the first failure.
 * 	result = GM_REAL(f)(...);
 * 	while (result && gm_cache_retry(result, &tries))
 * 		result = GM_REAL(f)(...);
 */
bool gm_cache_retry(CUresult result, unsigned int *tries);

/* Add what the cache of @domain's device holds to the report of a failure. */
struct gm_failure;
void gm_cache_describe(uint8_t domain, struct gm_failure *failure);

/* Note, before the driver's call, that a context is about to end; or, with @ending false after the call, that it did
 * not end. No lock held. */
void gm_cache_context_ending(uint32_t context, bool ending);

/* Note that the driver itself gave [@address, +@bytes) to the program, in @where. These addresses may belong to a
 * context that is ending at this time and whose heap still has blocks there. */
void gm_cache_address_reused(struct gm_where where, uint64_t address, uint64_t bytes);

/* Drop the heap of a context that has ended, with everything in it. Called after the driver's call. */
void gm_cache_context_ended(uint32_t context, uint64_t tsc, uint32_t stack);

/* Note that a synchronisation or query by the program returned the error @result. After an error that sticks to the
 * context, serve nothing there, so that the program gets the driver's errors. */
void gm_cache_fault(CUresult result);

/* Describe what is served from @domain's default pool (pool_attributes.c). Returns false if nothing ever was. */
struct gm_cache_pool {
	bool pages;			/* a pages heap: none of its memory belongs to the driver's pool */
	uint64_t segments;		/* bytes of segments from the driver's pool, or of pages */
	uint64_t segments_high;		/* peak of @segments; pages heaps only */
	uint64_t used, used_high;	/* bytes that the program requested and holds; their peak */
	uint64_t idle;			/* bytes of wholly free segments */
};
bool gm_cache_pool(uint8_t domain, struct gm_cache_pool *ret_pool);
void gm_cache_pool_reset_high(uint8_t domain);	/* sets used_high to the bytes used now */
void gm_cache_pool_reset_segments_high(uint8_t domain);
/* If the heap's segments have more than @keep bytes, give the idle ones back to the driver's pool, but only those
 * whose last use the host knows to be complete. Of a pages heap @keep bytes stay, because the driver's pool keeps no
 * pages. Does not wait for work of the program. Does nothing while another
 * thread holds the growth lock. */
void gm_cache_pool_flush(uint8_t domain, uint64_t keep);

/* Serve cuMemAlloc, or cuMemAllocAsync on @stream, whose key is @key. Call gm_alloc_prepare first. Returns true if
 * the call was served or refused: then @ret_result is set, the call has ended, and the hook has been left. Returns
 * false if the caller shall ask the driver. */
bool gm_cache_malloc(struct gm_call *call, CUdeviceptr *dptr, CUresult *ret_result);
bool gm_cache_malloc_async(struct gm_call *call, CUdeviceptr *dptr, CUstream stream, uint64_t key,
			   CUresult *ret_result);

/* Serve a request as gm_cache_malloc does, but in the order of @stream, which may at once reuse memory that was freed
 * in its order. During captures the request is refused as cuMemAlloc would be. */
bool gm_cache_malloc_ordered(struct gm_call *call, CUdeviceptr *dptr, CUstream stream,
			     CUresult *ret_result);

/* Serve cuMemFree, or cuMemFreeAsync on @stream. Returns as gm_cache_malloc; false if @dptr is not a pointer of the
 * cache. gm_cache_free_async also returns false while @stream captures, because the driver then makes a graph node of
 * the free. */
bool gm_cache_free(CUdeviceptr dptr, const void *caller, CUresult *ret_result);
bool gm_cache_free_async(CUdeviceptr dptr, CUstream stream, bool per_thread,
			 CUresult *ret_result);

/* Free memory from gm_cache_malloc_ordered. No capture refuses this free or is invalidated by it: the block becomes
 * free when all captures have ended. Returns as gm_cache_free. */
bool gm_cache_free_ordered(CUdeviceptr dptr, CUstream stream, CUresult *ret_result);

/*
 * For calls from inside another hook of the same thread: from a signal handler, or from a callback of the driver.
 * Such calls pass through to the driver, which knows segments only. If it got a block that begins a segment, a free
 * would free all other blocks of the segment, and a query or an exported handle would concern the whole segment.
 * An allocation in such a call is the driver's own and needs nothing from here. It may fail with "out of memory"
 * without a flush, because the outer hook may hold the locks that a flush takes.
 *
 * The following functions take no lock, never wait, and may be called before the library has started. They return
 * false in a forked child. Signal context: any.
 */

/* An address without an allocation, which the driver gets in place of a pointer of the cache. */
#define GM_NOBODYS ((CUdeviceptr)1)

/* Does @address lie in a segment of the cache, whatever the state of its block? */
bool gm_cache_covers(CUdeviceptr address);
/* Return the context (id) whose heap owns @address; 0: a default pool's heap, or none. */
uint32_t gm_cache_context_of(CUdeviceptr address);

/* Finish a free of @dptr for which the driver got GM_NOBODYS instead and returned @result. Returns the result for the
 * program. If the free would have succeeded, queue it: the next thread that takes the lock of the block's domain
 * frees the block. */
CUresult gm_inside_freed(CUdeviceptr dptr, CUresult result);

/* Return the beginning of the active block that covers @address, and the bytes that the program requested for it.
 * False: no such block. */
bool gm_inside_block(CUdeviceptr address, uint64_t *ret_base, uint64_t *ret_bytes);

/* Complete what the GPU has finished with. Called after a synchronisation by the program succeeded. */
void gm_cache_synchronised(void);

/* ---- the devices' default pools, and what the program reads of them (pool_attributes.c) ----
 *
 * Segments come from the driver's own default pool, so that reserved bytes, access and limits are the driver's. Only
 * the used bytes are computed here: the driver's figure, with the bytes of our segments replaced by the bytes that the
 * program requested and holds. Pages do not belong to the driver's pool. So they are added to both figures, and every
 * device that may access the pool is given access to the pages.
 */

/* May a request on @domain's device be served from the cache? Only if it would come from the device's default pool,
 * and the reuse attributes of that pool are unchanged. Costs a load or two once the answer is known. */
bool gm_pool_served(uint8_t domain);

/* Note that the driver itself served a request for @domain's memory from @pool (NULL: the current pool). */
void gm_pool_passed(uint8_t domain, CUmemoryPool pool);

/* Return the default pool that @domain's heap serves; NULL: not known yet. */
CUmemoryPool gm_pool_handle(uint8_t domain);

/* Does @domain's default pool keep all its memory when the program synchronises? */
bool gm_pool_keeps(uint8_t domain);

/* Give idle segments beyond each pool's release threshold back to the driver, if the host knows that their last use
 * is complete. Called after the program has synchronised. */
void gm_pools_synchronised(void);

/* Return the release threshold of @domain's default pool: the bytes that it keeps when the program synchronises. */
uint64_t gm_pool_threshold(uint8_t domain);

/* Release the unused memory that the driver keeps in @domain's default pool. Called when memory is short there. */
void gm_pool_trim(uint8_t domain);

/* ---- other writers: what may read or write device memory outside streams (writers.c) ----
 *
 * Other writers are network cards (RDMA, GDRCopy), storage, and other processes (IPC). Once there may be one,
 * single-stream mode ends, so that a block freed by cudaFree waits in limbo until the GPU has passed the free. Requests
 * of cuMemAlloc of 2 MiB and more then go to the driver and get an allocation of their own, because importers cannot
 * handle parts of segments (imports.h). Both rules hold until the process ends. Other writers are recognised by the
 * calls of the program, and by the names of the libraries that enable them. Any thread.
 */

/* Note that there is another writer. @why, a constant, is printed under verbose. Inside a hook, no lock held. */
void gm_writers_seen(const char *why);

/* Note the same from inside another hook of this thread. Takes effect when the next segment is made. Takes no lock
 * and calls nothing. Signal context: any. */
void gm_writers_noticed(const char *why);

/* Has there been another writer since the process began? */
bool gm_writers_any(void);

/* Check whether a library that makes other writers possible was loaded since the last check. Called where segments
 * are made. Takes the loader's lock briefly if anything was loaded. Inside a hook, no lock held. */
void gm_writers_look(void);

/* Note that module number @module is the file @path. Takes no lock and calls no driver function. */
void gm_writers_module(uint16_t module, const char *path);

/* Note that @caller (GM_CALLER in the hook's frame) queries a block of the cache. Code does so before it registers
 * memory with a network card. */
void gm_writers_asked(const void *caller);

/* Shall large requests by @module get allocations of their own even before another writer is known? True of NCCL,
 * because it hands its buffers to other processes and to network cards. */
bool gm_writers_own_segment(uint16_t module);

/* Is @module itself a caching allocator, such as PyTorch's, whose frees are meant for the driver? Memory of such a
 * module (GM_CACHES_FROM bytes and more) goes back to the driver at once, as without the library. */
#define GM_CACHES_FROM (UINT64_C(2) << 20)
bool gm_writers_caches(uint16_t module);

/* Is @module known never to rely on cudaFree to wait for the GPU? Then its frees need not wait. */
bool gm_writers_frees_freely(uint16_t module);

#endif
