/*
 * cache_stream.h - what cache_stream.c (which streams there are) and cache_freed.c (how far they
 * have come) share.
 *
 * Context: as cache_heap.h.
 */
#ifndef GM_PRELOAD_CACHE_STREAM_H
#define GM_PRELOAD_CACHE_STREAM_H

#include <sys/types.h>

#include "preload/cache/cache_heap.h"

struct gm_named {
	uint64_t key;			/* 0: unused */
	CUstream stream;		/* CU_STREAM_LEGACY: that of @handle; NULL: it cannot be asked */
	CUcontext handle;
	CUevent freed;			/* after the last free on it, or its end; NULL: none yet */
	uint32_t context;
	uint32_t next;			/* of its bucket, or unused */
	uint32_t in_pool, in_context;	/* its segments that the driver has not got back */
	uint32_t losses;		/* times that it could not be recorded */
	uint32_t users;			/* threads whose calls of the driver name it just now */
	pid_t thread;			/* whose default stream it is; 0: anybody's */
	bool told;			/* of all frees on it: without an event there was none */
	bool lost;			/* @freed was not recorded since then: it stands for nothing */
	bool ending;			/* its context is about to end */
	bool gone;			/* it is given nothing any more */
	bool over;			/* and what it was given is complete */
	uint8_t seen;			/* enum gm_cache_freed, at the last look */
};

bool gm_named_copy(uint64_t key, struct gm_named *ret_copy);	/* false: it is not known */

/* The same, and from here to gm_named_done neither the stream nor its context ends, where @ret_copy
 * says that it has not; or an end waits. */
bool gm_named_use(uint64_t key, struct gm_named *ret_copy);
void gm_named_done(const struct gm_named *copy);

/* All of them: from 1 to below the count the key at a place that has segments, 0 none. */
uint32_t gm_named_count(void);
uint64_t gm_named_key(uint32_t at);

/* An event that was another stream's of its context; NULL: there is none. */
CUevent gm_named_spare(const struct gm_named *stream);

/* @event was recorded: before that it would say that all is complete. Returns which one stands for
 * the stream's frees: another thread may have been first. */
CUevent gm_named_publish(const struct gm_named *stream, CUevent event);

/* The event of its frees could not be recorded. Or it was, after this copy was made: what could not
 * before that comes before it, too. */
void gm_named_lose(uint64_t key);
void gm_named_recorded(const struct gm_named *stream);

/* All that was freed on it so far is complete. */
void gm_named_tell(uint64_t key);

/* It was asked. */
void gm_named_seen(const struct gm_named *copy, enum gm_cache_freed seen);

/* It is about to be destroyed. No lock held. */
void gm_named_gone(uint64_t key);

/* Is one gone and not over? And what gm_cache_streams_left returns. */
bool gm_named_any_gone(void);
uint32_t gm_named_left(void);

#endif
