/*
 * cache_stream.h - what cache_stream.c (which streams there are) and cache_stream_frees.c (which of
 * their frees they have got to) share.
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
	uint32_t frees;			/* that recorded @freed, or could not */
	uint32_t users;			/* threads that are in driver calls with it */
	pid_t thread;			/* the thread whose default stream it is; 0: it is none's */
	bool marked;			/* every free on it recorded @freed: where that is NULL there was no free */
	bool stale;			/* a later free could not record @freed: it says nothing now */
	bool ending;			/* its context is about to end */
	bool ended;			/* no more work can be submitted to it */
	bool complete;			/* and its work is complete */
	bool of_pages;			/* it was served from pages: none of them is its own, as segments are */
	uint8_t answer;			/* enum gm_cache_freed, of the last query; PENDING since a later free */
	uint64_t passed;		/* of pages: it has got to its frees up to that moment */
};

bool gm_cache_stream_copy(uint64_t key, struct gm_cache_stream *ret_copy);	/* false: it is not known */

/* The same; and until gm_cache_stream_done, calls that end the stream or its context wait, unless
 * @ret_copy says that it has ended or is ending. */
bool gm_cache_stream_use(uint64_t key, struct gm_cache_stream *ret_copy);
void gm_cache_stream_done(const struct gm_cache_stream *copy);

/* The same for the next stream that has segments; begin with *@at 0. False: there is no further
 * one. */
bool gm_cache_stream_use_next(uint32_t *at, struct gm_cache_stream *ret_copy);

/* An event that was another stream's of its context; NULL: there is none. */
CUevent gm_cache_stream_spare_event(const struct gm_cache_stream *stream);

/* @event has been recorded and tells of the stream's frees from now on. Returns the event that does
 * so: another thread may have set its own first. */
CUevent gm_cache_stream_set_event(const struct gm_cache_stream *stream, CUevent event);

/* stale: the event of the stream's frees could not be recorded. recorded: it was, after @stream was
 * copied, so that it covers earlier frees, too, for which it could not. Either ends what a query said that
 * has not seen that event. */
void gm_cache_stream_event_stale(uint64_t key);
void gm_cache_stream_event_recorded(const struct gm_cache_stream *stream);

/* All that was freed on it so far is complete. */
void gm_cache_stream_is_idle(uint64_t key);

/* The stream was queried: remember the answer, unless something was freed on it since it was copied; and of
 * pages the @moment up to which all frees had recorded their event before that. */
void gm_cache_stream_answered(const struct gm_cache_stream *copy, enum gm_cache_freed answer, uint64_t moment);

/* @copy is of a stream served from pages, whose end the GPU is known to be past, and all other work up to the
 * moment @passed: if that is all of its frees, nothing has to be known of it any more. */
void gm_cache_stream_forget_pages(const struct gm_cache_stream *copy, uint64_t passed);

/* It is about to be destroyed. No lock held. */
void gm_cache_stream_ended(uint64_t key);

/* Is there a stream that has ended and whose work is not complete? The number that
 * gm_cache_streams_poll_ended returns. */
bool gm_cache_streams_any_ended(void);
uint32_t gm_cache_streams_releases(void);

#endif
