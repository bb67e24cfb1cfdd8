/*
 * cache.h - cudaMalloc and cudaMallocAsync served from the caching allocator.
 *
 * cuMemAlloc: a heap for each context, its segments from cuMemAlloc (IPC, RDMA and peer access
 * keep working). cuMemAllocAsync of a device's default pool: a heap for each device, its segments
 * from that same pool of the driver's, by stream. When a block may be used again is reuse.h's.
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

/* Why a call may need more than to be looked up, handed out and recorded; 0: nothing does. Beside
 * it there are gm_captures, and what lies with the heap. */
enum gm_cache_unusual {
	GM_CACHE_OFF = 1,		/* nothing is served */
	GM_CACHE_HOST_FUNCTIONS = 2,	/* one was given to the driver: this thread may be in one */
	GM_CACHE_FILLS = 4,		/* memory is filled when it is handed out */
	GM_CACHE_WAITS = 8,		/* every cudaFree does */
	GM_CACHE_SCARCE = 16		/* some device has little memory left (gm_cache_scarce) */
};
extern _Atomic(uint32_t) gm_cache_unusual GM_HIDDEN;

static inline bool gm_cache_on(void)
{
	return !(gm_cache_unusual & GM_CACHE_OFF);
}

/* The journal is gone, and with it the tables of what is cached: nothing is served from now on, and what is
 * given back stays where it is. Async-signal-safe. */
void gm_cache_lost(void);

/* The block of ours that covers @address, and a copy of its record: 0 none, or freed. */
uint32_t gm_cache_block(CUdeviceptr address, struct gm_block *ret_copy);
/* What a flush would give back to @domain's device, in bytes. */
uint64_t gm_cache_idle_bytes(uint8_t domain);

/* Segments of @domain's device that were given back are the driver's again when this returns. */
void gm_cache_back_done(uint8_t domain);

/* Give idle segments of @domain back to the driver (GM_DOMAIN_UNKNOWN: of every device), after a
 * wait for what this thread freed alone. Returns the bytes. */
uint64_t gm_cache_flush(uint8_t domain);

/* A hooked call failed with @result: was it for want of memory, and was some given back? Then it is
 * worth repeating. First what is idle goes back; when that is nothing or was not enough, what waits
 * for the GPU. @tries: 0 before the first failure.
 *	result = GM_REAL(f)(...);
 *	while (result && gm_cache_retry(result, &tries))
 *		result = GM_REAL(f)(...);
 */
bool gm_cache_retry(CUresult result, unsigned int *tries);

/* What the cache of @domain's device holds, into the report of a failure. */
struct gm_failure;
void gm_cache_describe(uint8_t domain, struct gm_failure *failure);

/* A context is about to end, before the driver's call, or did not after all. No lock held. */
void gm_cache_context_ending(uint32_t context, bool ending);

/* The driver gave [@address, +@bytes) to the program itself, in @where: of a context that is ending just
 * now it may have been, whose heap does not know yet. */
void gm_cache_address_reused(struct gm_where where, uint64_t address, uint64_t bytes);

/* A context ended, after the driver's call: its heap and everything in it is gone. */
void gm_cache_context_ended(uint32_t context, uint64_t tsc, uint32_t stack);

/* A synchronisation or query of the program's said @result, which is not success: after an error
 * that sticks to the context nothing is served there, and the driver says what it says. */
void gm_cache_fault(CUresult result);

/* @stream is about to be destroyed. */
void gm_cache_stream_ends(uint64_t key, CUstream stream);

/* What is served from @domain's default pool (pool_attributes.c). False: nothing ever was. */
struct gm_cache_pool {
	uint64_t segments;		/* bytes of the segments got from the driver's pool */
	uint64_t used, used_high;	/* bytes the program asked for and has; the most ever */
	uint64_t idle;			/* bytes of segments that are wholly free */
};
bool gm_cache_pool(uint8_t domain, struct gm_cache_pool *ret_pool);
void gm_cache_pool_reset_high(uint8_t domain);	/* used_high is what is used now */
/* Give idle segments back to that pool while its segments have more than @keep bytes: those whose last
 * use the host has seen complete. Waits for no work. */
void gm_cache_pool_flush(uint8_t domain, uint64_t keep);

/* cuMemAlloc and cuMemAllocAsync (on @stream, named by its own name, and its key), begun with
 * gm_alloc_prepare: true when they were served or refused
 * here (@ret_result; the call has ended, the hook has been left), false: the driver's turn. */
bool gm_cache_malloc(struct gm_call *call, CUdeviceptr *dptr, CUresult *ret_result);
bool gm_cache_malloc_async(struct gm_call *call, CUdeviceptr *dptr, CUstream stream, uint64_t key,
			   CUresult *ret_result);

/* As cuMemAlloc, in the order of @stream: the same stream's frees are reusable at once. */
bool gm_cache_malloc_ordered(struct gm_call *call, CUdeviceptr *dptr, CUstream stream,
			     CUresult *ret_result);

/* cuMemFree, and cuMemFreeAsync on @stream, of a pointer of ours; the same. */
bool gm_cache_free(CUdeviceptr dptr, const void *caller, CUresult *ret_result);
bool gm_cache_free_async(CUdeviceptr dptr, CUstream stream, bool per_thread,
			 CUresult *ret_result);

/*
 * Calls from inside another hook of the same thread: from a signal handler, or from what the driver calls
 * back. They pass through, but the driver knows segments only: a block that begins one would be freed with
 * all others in it, and a question or a handle would be about the segment. What is allocated there is the
 * driver's own and needs nothing; "out of memory" is said without a flush, since the hook outside may hold
 * the locks that one takes.
 *
 * So these take no lock and wait for nothing, and may be called where the library has not started. They are
 * false in a forked child. Signal context: any.
 */

/* No allocation is there: what the driver is asked with about a pointer of ours. */
#define GM_NOBODYS ((CUdeviceptr)1)

/* Does @address lie in a segment of ours, in whatever block? */
bool gm_cache_covers(CUdeviceptr address);

/* The driver said @result to a free of GM_NOBODYS in place of @dptr: what the program is told. Where
 * it would have been freed it stays a block of the program's, lost but for the count of lost
 * operations. */
CUresult gm_inside_freed(CUdeviceptr dptr, CUresult result);

/* The block of the program's that has @address, and the bytes that it asked for. */
bool gm_inside_block(CUdeviceptr address, uint64_t *ret_base, uint64_t *ret_bytes);

/* At a synchronisation of the program's, after it succeeded: complete what is complete, and give
 * back where the device runs short. */
void gm_cache_synchronised(void);

/* ---- the devices' default pools, and what the program reads of them (pool_attributes.c) ----
 *
 * Our segments come from the same pool of the driver's: what is reserved, access and limits are its
 * own. What is used is ours to say: the driver's figure, with the segments' bytes replaced by the
 * bytes that the program asked for and has.
 */

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

/* ---- who may write device memory, or read it, when that is no work of a stream (writers.c) ----
 *
 * Network cards (RDMA, GDRCopy), storage, other processes through IPC: then a freed block waits for
 * its epoch, whatever stream comes next, and requests of 2 MiB and more get segments of their own,
 * for importers that do not know of parts of segments (imports.h). Both for good. Seen by what the
 * program calls, and by the names of the libraries that do such things. Any thread.
 */

/* There is one. @why (a constant) is said under verbose. Inside a hook, no lock held. */
void gm_writers_seen(const char *why);

/* The same from inside another hook of this thread: it counts from where the next segment is made.
 * No lock is taken, nothing is called. Signal context: any. */
void gm_writers_met(const char *why);

/* Was there ever one? For a cache that starts afterwards. */
bool gm_writers_any(void);

/* Was a library loaded since the last time that makes there be one? Where segments are made: takes
 * the loader's lock for a moment when something was loaded. Inside a hook, no lock held. */
void gm_writers_look(void);

/* A module was met: it has this number and path. No lock is taken, nothing is called. */
void gm_writers_module(uint16_t module, const char *path);

/* @caller (GM_CALLER, of the hook's frame) asks what a block of ours is. */
void gm_writers_asked(const void *caller);

/* Is a large request by @module to have a segment of its own from its beginning? NCCL hands its
 * buffers to other processes and to network cards. */
bool gm_writers_own_segment(uint16_t module);

/* Does @module never lean on cudaFree as a wait for the GPU? Then its frees need not wait. */
bool gm_writers_frees_freely(uint16_t module);

#endif
