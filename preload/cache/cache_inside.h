/*
 * cache_inside.h - memory of the cache's in calls from inside another hook of the same thread: from
 * a signal handler, or from what the driver calls back.
 *
 * Such calls pass through, but the driver knows segments only: a block that begins one would be
 * freed with all others in it, and a question or a handle would be about the segment. What is
 * allocated there is the driver's own and needs nothing; "out of memory" is said without a flush,
 * since the hook outside may hold the locks that one takes.
 *
 * All of this takes no lock, waits for nothing, and may be called where the library has not
 * started.
 * Thread context: any. Signal context: any. Fork: false in a child.
 */
#ifndef GM_PRELOAD_CACHE_INSIDE_H
#define GM_PRELOAD_CACHE_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks/hook.h"

/* No allocation is there: what the driver is asked with about a pointer of ours. */
#define GM_NOBODYS ((CUdeviceptr)1)

/* Does @address lie in a segment of the cache? */
bool gm_inside_covers(CUdeviceptr address);

/* The driver said @result to a free of GM_NOBODYS in place of @dptr: what the program is told. Where
 * it would have been freed it stays a block of the program's, lost but for the count of lost
 * operations. */
CUresult gm_inside_freed(CUdeviceptr dptr, CUresult result);

/* The block of the program's that has @address, and the bytes that it asked for. */
bool gm_inside_block(CUdeviceptr address, uint64_t *ret_base, uint64_t *ret_bytes);

#endif
