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

#endif
