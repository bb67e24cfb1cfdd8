/*
 * cache_stream.h - what cache_stream.c (which streams there are) and cache_stream_frees.c (how far they
 * have come) share.
 *
 * Context: as cache_internal.h.
 */
#ifndef GM_PRELOAD_CACHE_STREAM_H
#define GM_PRELOAD_CACHE_STREAM_H

#include <sys/types.h>

#include "preload/cache/cache_internal.h"

struct gm_cache_stream {
	uint64_t key;			/* 0: unused */
	CUstream stream;		/* CU_STREAM_LEGACY: that of @handle; NULL: it cannot be queried */
	CUcontext handle;
	CUevent freed;			/* after the last free on it, or its end; NULL: none yet */
	uint32_t context;
	uint32_t next;			/* of its bucket, or unused */
	uint32_t in_pool, in_context;	/* its segments that the driver has not got back */
	uint32_t stales;		/* times that @freed could not be recorded */
	uint32_t users;			/* threads whose calls of the driver name it just now */
	pid_t thread;			/* whose default stream it is; 0: any thread's */
	bool marked;			/* each free on it recorded @freed: without one there was no free */
	bool stale;			/* @freed could not be recorded since then: it stands for nothing */
	bool ending;			/* its context is about to end */
	bool ended;			/* no more work can be submitted to it */
	bool complete;			/* and its work is complete */
	uint8_t answer;			/* enum gm_cache_freed, when it was queried last */
};

bool gm_cache_stream_copy(uint64_t key, struct gm_cache_stream *ret_copy);	/* false: it is not known */

/* The same, and until gm_cache_stream_done the end of the stream and of its context waits, unless @ret_copy
 * says that it has ended or is ending. */
bool gm_cache_stream_use(uint64_t key, struct gm_cache_stream *ret_copy);
void gm_cache_stream_done(const struct gm_cache_stream *copy);

/* The same of the next stream that has segments; begin with *@at 0. False: that was the last. */
bool gm_cache_stream_use_next(uint32_t *at, struct gm_cache_stream *ret_copy);

/* An event that was another stream's of its context; NULL: there is none. */
CUevent gm_cache_stream_spare_event(const struct gm_cache_stream *stream);

/* @event has been recorded, and stands for the stream's frees from now on. Returns the event that does: another
 * thread may have set its own first. */
CUevent gm_cache_stream_set_event(const struct gm_cache_stream *stream, CUevent event);

/* The event of its frees could not be recorded. Or it was, after @stream was copied: then it covers also what
 * it could not be recorded for before that. */
void gm_cache_stream_event_stale(uint64_t key);
void gm_cache_stream_event_recorded(const struct gm_cache_stream *stream);

/* All that was freed on it so far is complete. */
void gm_cache_stream_is_idle(uint64_t key);

/* It was queried. */
void gm_cache_stream_answered(const struct gm_cache_stream *copy, enum gm_cache_freed answer);

/* It is about to be destroyed. No lock held. */
void gm_cache_stream_ended(uint64_t key);

/* Has one ended that is not complete? And what gm_cache_streams_poll_ended returns. */
bool gm_cache_streams_any_ended(void);
uint32_t gm_cache_streams_releases(void);

#endif
