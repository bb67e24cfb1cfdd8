/*
 * cache.h - cudaMalloc and cudaMallocAsync served from the caching allocator.
 *
 * cuMemAlloc: a heap for each context, its segments from cuMemAlloc (IPC, RDMA and peer access keep
 * working). cuMemAllocAsync of a device's default pool: a heap for each device, its segments from
 * that same pool of the driver's, by stream. Under expandable_segments:True both are in pages
 * (cache_pages.h). preload/order/reuse.h decides when a block may be used again.
 *
 * Locks: the growth lock of a device (rank GM_RANK_GROWTH) is held across the driver's calls that
 * make or give back segments, and over the verdict "out of memory"; hits never take it.
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_CACHE_H
#define GM_PRELOAD_CACHE_H

#include "preload/hooks/record.h"

struct gm_page_map;

/* After gm_order_start. 0 or -errno: nothing is served then. */
int gm_cache_start(void);

/* Reasons why a call may need more than a block to be found, handed out and recorded; 0: there is
 * none. Others are in gm_captures and in the heap. */
enum gm_cache_unusual {
	GM_CACHE_OFF = 1,		/* nothing is served */
	GM_CACHE_HOST_FUNCTIONS = 2,	/* the driver was given a host function: this thread may be in one */
	GM_CACHE_FILLS = 4,		/* memory is filled when it is handed out */
	GM_CACHE_WAITS = 8,		/* every cudaFree waits (free:sync) */
	GM_CACHE_SCARCE = 16		/* some device has little memory left (gm_cache_scarce) */
};
extern _Atomic(uint32_t) gm_cache_unusual GM_HIDDEN;

static inline bool gm_cache_on(void)
{
	return !(gm_cache_unusual & GM_CACHE_OFF);
}

/* The journal is lost, and with it the tables of what is cached: nothing is served from now on, and
 * memory of the cache that is freed is not used again. Async-signal-safe. */
void gm_cache_lost(void);

/* The active block of the cache that covers @address, and a copy of its record; 0: there is
 * none. */
uint32_t gm_cache_block(CUdeviceptr address, struct gm_block *ret_copy);
/* Bytes that a flush would give back to @domain's device. */
uint64_t gm_cache_idle_bytes(uint8_t domain);

/* Wait until segments of @domain's device that were given back are the driver's again. */
void gm_cache_back_done(uint8_t domain);

/* Give idle segments of @domain (GM_DOMAIN_UNKNOWN: of every device) back to the driver, after
 * waiting for frees of this thread only. Returns the bytes. */
uint64_t gm_cache_flush(uint8_t domain);

/* Give memory back to the driver that nobody has used for a turn, or for longer where such memory was missed before.
 * The helper thread calls it once in a turn, which the option idle_time sets. Does nothing while a stream captures. */
void gm_cache_turn(void);

/* A hooked call failed with @result: was it for want of memory, and was some given back? Then it is
 * worth repeating. First what is idle goes back; when that is nothing or was not enough, what waits
 * for the GPU; at last other processes are asked (neighbours.h). @tries: 0 before the first failure.
 *	result = GM_REAL(f)(...);
 *	while (result && gm_cache_retry(result, &tries))
 *		result = GM_REAL(f)(...);
 */
bool gm_cache_retry(CUresult result, unsigned int *tries);

/* What the cache of @domain's device holds, into the report of a failure. */
struct gm_failure;
void gm_cache_describe(uint8_t domain, struct gm_failure *failure);

/* Before the driver's call: a context is about to end. With @ending false, after it: it did not
 * end. No lock held. */
void gm_cache_context_ending(uint32_t context, bool ending);

/* The driver itself gave [@address, +@bytes) to the program, in @where. The memory may have been
 * that of a context which is ending just now and whose heap still has blocks there. */
void gm_cache_address_reused(struct gm_where where, uint64_t address, uint64_t bytes);

/* After the driver's call: a context ended, and with it its heap and everything in it. */
void gm_cache_context_ended(uint32_t context, uint64_t tsc, uint32_t stack);

/* A synchronisation or query of the program's returned @result, which is not success: after an
 * error that sticks to the context nothing is served there, so that the program gets the driver's
 * errors. */
void gm_cache_fault(CUresult result);

/* What is served from @domain's default pool (pool_attributes.c). False: nothing ever was. */
struct gm_cache_pool {
	bool pages;			/* in pages: nothing of it is the driver's pool's */
	uint64_t segments;		/* bytes of the segments got from the driver's pool, or of the pages */
	uint64_t segments_high;		/* of pages: the most */
	uint64_t used, used_high;	/* bytes that the program asked for and holds; the most ever */
	uint64_t idle;			/* bytes of segments that are wholly free */
};
bool gm_cache_pool(uint8_t domain, struct gm_cache_pool *ret_pool);
void gm_cache_pool_reset_high(uint8_t domain);	/* used_high becomes what is used now */
void gm_cache_pool_reset_segments_high(uint8_t domain);
/* Give idle segments back to that pool while its segments have more than @keep bytes, but only
 * those whose last use the host has seen complete. Waits for no work. */
void gm_cache_pool_flush(uint8_t domain, uint64_t keep);

/* cuMemAlloc, and cuMemAllocAsync on @stream, whose key is @key; gm_alloc_prepare comes first.
 * True: the call was served or refused with @ret_result, it has ended, and the hook has been left.
 * False: the caller asks the driver. */
bool gm_cache_malloc(struct gm_call *call, CUdeviceptr *dptr, CUresult *ret_result);
bool gm_cache_malloc_async(struct gm_call *call, CUdeviceptr *dptr, CUstream stream, uint64_t key,
			   CUresult *ret_result);

/* As cuMemAlloc, also beside captures; in the order of @stream, which may use again at once what was
 * freed in its order. */
bool gm_cache_malloc_ordered(struct gm_call *call, CUdeviceptr *dptr, CUstream stream,
			     CUresult *ret_result);

/* cuMemFree, and cuMemFreeAsync on @stream. Results as above; false where @dptr is no pointer of
 * the cache. */
bool gm_cache_free(CUdeviceptr dptr, const void *caller, CUresult *ret_result);
bool gm_cache_free_async(CUdeviceptr dptr, CUstream stream, bool per_thread,
			 CUresult *ret_result);

/* The free of what gm_cache_malloc_ordered gave. No capture refuses it or is invalidated by it: the block is free when
 * all captures have ended. Results as above. */
bool gm_cache_free_ordered(CUdeviceptr dptr, CUstream stream, CUresult *ret_result);

/*
 * For calls from inside another hook of the same thread: from a signal handler, or from a callback
 * of the driver. They pass through, but the driver knows segments only: to free a block that begins
 * a segment would free all others in it, and a query or an exported handle would be about the whole
 * segment. What is allocated in such a call is the driver's own and needs nothing; it may fail with
 * "out of memory" without a flush, since the outer hook may hold the locks that a flush takes.
 *
 * The following take no lock and wait for nothing, and may be called where the library has not
 * started. They return false in a forked child. Signal context: any.
 */

/* An address where no allocation is: given to the driver in place of a pointer of the cache. */
#define GM_NOBODYS ((CUdeviceptr)1)

/* Does @address lie in a segment of the cache, whatever the state of its block? */
bool gm_cache_covers(CUdeviceptr address);
/* The context (id) whose heap that is; 0: a default pool's, or none. */
uint32_t gm_cache_context_of(CUdeviceptr address);

/* The driver returned @result for a free of GM_NOBODYS in place of @dptr. Returns what the program
 * gets. Where the free would have succeeded, the block is freed by whoever takes its domain's lock next. */
CUresult gm_inside_freed(CUdeviceptr dptr, CUresult result);

/* The active block that covers @address: where it begins, and how many bytes the program asked for.
 * False: none. */
bool gm_inside_block(CUdeviceptr address, uint64_t *ret_base, uint64_t *ret_bytes);

/* At a synchronisation of the program's, after it succeeded: complete what is complete. */
void gm_cache_synchronised(void);

/* ---- the devices' default pools, and what the program reads of them (pool_attributes.c) ----
 *
 * Our segments come from the same pool of the driver's, so that reserved bytes, access and limits
 * are the driver's own. Only the used bytes are computed here: the driver's figure, with the
 * segments' bytes replaced by the bytes that the program asked for and holds. Pages are not of that
 * pool: they are added to both figures, and who may use the pool's memory is given access to them.
 * */

/* May a request on @domain's device be served from the cache: is the pool that it would come from
 * the device's default one, with its attributes unchanged? Costs a load or two once it is known. */
bool gm_pool_served(uint8_t domain);

/* The driver served a request for @domain's memory itself, from @pool (NULL: the current one). */
void gm_pool_passed(uint8_t domain, CUmemoryPool pool);

/* The default pool that is served from @domain's heap; NULL: there is none yet. */
CUmemoryPool gm_pool_handle(uint8_t domain);

/* Does @domain's default pool keep all that it has when the program synchronises? */
bool gm_pool_keeps(uint8_t domain);

/* The program has synchronised: idle segments beyond a pool's release threshold go back to the
 * driver, if the host has seen their last use complete. */
void gm_pools_synchronised(void);

/* How many bytes it keeps then: its release threshold. */
uint64_t gm_pool_threshold(uint8_t domain);

/* Memory is short on @domain's device: unused memory that the driver keeps in its default pool is
 * released. */
void gm_pool_trim(uint8_t domain);

/* ---- other writers: what may read or write device memory outside streams (writers.c) ----
 *
 * These are network cards (RDMA, GDRCopy), storage, and other processes through IPC. Once there may
 * be one, a freed block waits for its epoch, whatever stream comes next, and requests of 2 MiB and
 * more get segments of their own, for importers that do not know of parts of segments (imports.h).
 * Both hold until the process ends. Other writers are noticed by what the program calls, and by the
 * names of the libraries that do such things. Any thread.
 * */

/* There is another writer. @why (a constant) is printed under verbose. Inside a hook, no lock
 * held. */
void gm_writers_seen(const char *why);

/* The same from inside another hook of this thread: it takes effect where the next segment is made.
 * No lock is taken, nothing is called. Signal context: any. */
void gm_writers_met(const char *why);

/* Has there been one since the process began? */
bool gm_writers_any(void);

/* Check whether a library was loaded since the last check that makes other writers possible. Called
 * where segments are made; takes the loader's lock for a moment if something was loaded. Inside a
 * hook, no lock held. */
void gm_writers_look(void);

/* A module got this number and path. No lock is taken, nothing is called. */
void gm_writers_module(uint16_t module, const char *path);

/* @caller (GM_CALLER, of the hook's frame) queries a block of the cache, as code does before it
 * registers memory with a network card. */
void gm_writers_asked(const void *caller);

/* Is a large request by @module to have a segment of its own from its beginning? NCCL hands its
 * buffers to other processes and to network cards. */
bool gm_writers_own_segment(uint16_t module);

/* Is @module a cache of its own, as PyTorch's, which frees what is to go back to the driver? Such memory goes back at
 * once (GM_CACHES_FROM bytes and more), as without the library. */
#define GM_CACHES_FROM (UINT64_C(2) << 20)
bool gm_writers_caches(uint16_t module);

/* Is it known that @module never relies on cudaFree to wait for the GPU? Then its frees need not
 * wait. */
bool gm_writers_frees_freely(uint16_t module);

#endif
