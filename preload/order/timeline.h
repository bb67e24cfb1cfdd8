/*
 * timeline.h - the clock of all reuse: how far the GPU is known to have come in each context.
 *
 * A point is a number that only grows. Every free carries the point at which it was made. A mark is an event that was
 * recorded in a context behind all work submitted to that context so far. The mark of a point comes after every free
 * of that point, and every later free has a later point:
 *
 * 	points    5      5     6     6        7
 * 	          free  free | free free |  free             |: the number goes up, then marks 5 and 6 are recorded
 *
 * When the event of mark 5 is complete, its context has passed 5: all work that the context was given before a free
 * of point 5 is complete. So "may this memory be used again?" is one comparison for each context that may touch the
 * memory. A context has passed every point if it has ended, or if it was never given work or an event to wait for.
 *
 * A context may touch its own memory. It may touch the memory of another context after gm_timeline_touches, and all
 * memory once work may be submitted that no hook sees (gm_timeline_everybody).
 *
 * This file knows no CUDA: events are numbers of its backend. Locks: the timeline's lock is a leaf that guards the
 * lists; of the backend, only @memory is called under it. The caller holds "order" to record marks and "retire" to
 * look at them (reuse.h). Thread context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_TIMELINE_H
#define GM_PRELOAD_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/lock.h"

#define GM_TIMELINE_CONTEXTS 256u	/* living contexts that were given work, at one time */
#define GM_TIMELINE_PAIRS 512u		/* of gm_timeline_touches; if full, any context may touch all memory */
#define GM_TIMELINE_STREAMS 4096u	/* streams with stream-ordered frees; nothing is known of further ones */

struct gm_timeline_ops {
	/* Create an event for queries and waits in the context @handle, whose id is @context. 0: not possible. */
	uint64_t (*event)(void *arg, uint32_t context, uint64_t handle);
	/* Record @event behind all work submitted so far to the context @handle. Returns 0; -EAGAIN: a capture forbids
	 * the record now; else -errno. Called under "order". */
	int (*record)(void *arg, uint64_t handle, uint64_t event);
	int (*query)(void *arg, uint64_t event);	/* 1: complete, or its context ended; 0: not yet; -errno */
	int (*wait)(void *arg, uint64_t event);		/* block the host until @event is complete; 0 or -errno */
	/* Record @event behind all work submitted so far to @stream. If @context is not 0 and @stream is its default
	 * stream, record it behind all work of @context. Returns 0 or -errno. */
	int (*record_on)(void *arg, uint32_t context, uint64_t stream, uint64_t event);
	int (*idle)(void *arg, uint32_t context, uint64_t stream);	/* 1: no work is pending; 0: some is; -errno */
	void (*around)(void *arg, bool begin);		/* before and after some of record and query; may be NULL */
	void *(*memory)(void *arg, size_t bytes);	/* zeroed pages; NULL: out of memory */
	void *arg;
};

enum gm_track_life { GM_TRACK_UNUSED, GM_TRACK_LIVE, GM_TRACK_ENDING, GM_TRACK_ENDED };

/* An event of a context. It is a mark while it is on the list of its track; else it is spare, or in use by the caller
 * of gm_timeline_take. */
struct gm_mark {
	struct gm_mark *next;
	struct gm_track *track;
	uint64_t event;
	uint64_t point;			/* frees up to this point came before the event */
	uint64_t late;			/* work was submitted between the frees up to this point and the event */
	uint32_t users;			/* calls that use it now (gm_timeline_use) */
	bool passed;			/* taken off the list; spare again when the last user is done */
};

struct gm_track {			/* a context that was given work */
	_Atomic(uint8_t) life;
	_Atomic(uint32_t) id;
	_Atomic(uint32_t) captures;	/* its streams that capture; while there are any, no mark can be recorded */
	uint32_t marks;			/* events that point to this track; the track is used again at 0; lock: lock */
	_Atomic(uint64_t) passed;	/* the host has seen it past all frees up to this point */
	_Atomic(uint64_t) marked;	/* the point of its last mark */
	_Atomic(uint64_t) late;		/* gm_mark.late of its next mark */
	_Atomic(uint64_t) handle;
	struct gm_mark *_Atomic oldest;	/* list of its marks, in the order of recording; lock of writers: lock */
	struct gm_mark *newest, *spare;	/* end of that list; list of events to record again; lock: lock */
};

/* A stream on which memory may have been freed in stream order. */
struct gm_stream_track {
	uint64_t key;			/* 0: unused */
	uint64_t stream;		/* the backend's name for it; 0: the backend cannot query it or record on it */
	struct gm_mark *mark;		/* its event, recorded behind its frees; NULL: none yet */
	uint64_t freed;			/* point of the last free; if it ended without an event, of its end */
	uint64_t asked;			/* the last point for which its progress was looked up */
	uint64_t passed;		/* seen past its frees up to this point; UINT64_MAX: ended and complete */
	uint32_t context;		/* 0: not known */
	uint32_t born;			/* unique: tells it from a later stream in the same place */
	uint32_t missed, recorded;	/* frees without an event; @missed at its last event. Equal: that covers all */
	int32_t thread;			/* the thread whose default stream it is; 0: none */
	uint16_t next;			/* link of its bucket, or of the unused ones */
	bool ending;			/* its context is about to end */
	bool ended;			/* no more work can be submitted to it */
};

struct gm_timeline {
	struct gm_timeline_ops ops;
	struct gm_lock lock;		/* a leaf */
	_Atomic(uint64_t) now;		/* the present point; goes up under the caller's lock "limbo" */
	_Atomic(uint64_t) freed;	/* the point of the last free */
	_Atomic(uint64_t) moves;	/* goes up whenever a context passes a point, or ends */
	_Atomic(uint32_t) used;		/* tracks that were ever used */
	_Atomic(uint32_t) ends;		/* contexts that have ended */
	_Atomic(uint32_t) captures;	/* captures in unknown contexts; while there are any, no context gets a mark */
	_Atomic(bool) overflowed;	/* there was no track for a context: nothing counts as passed */
	_Atomic(bool) everybody;
	_Atomic(uint32_t) pairs;
	_Atomic(uint64_t) pair[GM_TIMELINE_PAIRS];	/* who << 32 | whose; 0: unused */
	struct gm_mark *unused;		/* marks that belong to no context; lock: lock */
	struct gm_track tracks[GM_TIMELINE_CONTEXTS];
	_Atomic(bool) reported;		/* every stream-ordered free is reported (gm_timeline_stream_freed) */
	_Atomic(bool) blind;		/* a report may be lost, because the lock failed: nothing is known of streams */
	_Atomic(uint32_t) streams_ended;	/* streams that have ended but are not known to be complete */
	_Atomic(uint32_t) streams_over;	/* goes up whenever a stream has ended and is complete */
	_Atomic(uint64_t) streams_moves;	/* goes up whenever a stream has passed what was freed on it */
	uint32_t streams_room;		/* a power of two; lock: lock, also of all members below */
	uint32_t streams_used, streams_unused, streams_born;
	struct gm_stream_track *streams;	/* index 0 is not used; NULL: no stream was added yet */
	uint16_t *buckets;		/* hash table of @streams by key: streams_room / 4 indexes */
};

/* Initialise @t, which is zeroed. The first point is @now. */
void gm_timeline_init(struct gm_timeline *t, const struct gm_timeline_ops *ops, uint64_t now);

/* ---- contexts ---- */

/* Add context @id, which is given work from now on, unless it is known. Adds nothing if @handle is 0, because only an
 * ended context has no handle. @ends: gm_timeline_ends as read before the caller looked @handle up. Returns 0; -ESTALE:
 * a context has ended since, look @handle up again; -ENOSPC: there is no track for it. */
int gm_timeline_add(struct gm_timeline *t, uint32_t id, uint64_t handle, uint32_t ends);
bool gm_timeline_has(struct gm_timeline *t, uint32_t id);
static inline uint32_t gm_timeline_ends(const struct gm_timeline *t)
{
	return t->ends;
}
/* Return the living context with this handle; 0: a green context's handle, or the context was given no work. */
uint32_t gm_timeline_of_handle(struct gm_timeline *t, uint64_t handle);
/* Is this the only living context that was given work? Compares @handle; @id if @handle is 0. */
bool gm_timeline_alone(struct gm_timeline *t, uint32_t id, uint64_t handle);

/* Context @id is about to end: stop asking the backend about its events. @ending false: it did not end after all.
 * ended: it has ended. It has passed every point, and its events are gone. */
void gm_timeline_ending(struct gm_timeline *t, uint32_t id, bool ending);
void gm_timeline_ended(struct gm_timeline *t, uint32_t id);

/* A stream of context @id begins to capture, or (@begins false) no longer captures. The context has a track; @id 0:
 * the context is not known. Called under "order". */
void gm_timeline_captures(struct gm_timeline *t, uint32_t id, bool begins);
/* Does any stream of @id (0: of any context) capture? */
bool gm_timeline_is_capturing(struct gm_timeline *t, uint32_t id);

/* touches: work of context @who may touch memory of context @whose from now on. everybody, or if either is 0: any
 * context may touch all memory. */
void gm_timeline_touches(struct gm_timeline *t, uint32_t who, uint32_t whose);
void gm_timeline_everybody(struct gm_timeline *t);

/* ---- streams (timeline_streams.c) ---- */

/* Add the stream @like->key, with @stream, @context and @thread of @like, unless it is known. @fresh: nothing was freed
 * on it so far. */
void gm_timeline_stream_add(struct gm_timeline *t, const struct gm_stream_track *like, bool fresh);
bool gm_timeline_stream_copy(struct gm_timeline *t, uint64_t key, struct gm_stream_track *ret_copy);
/* Copy the next stream, without those that have ended and are complete; begin with *@at 0. False: no more. */
bool gm_timeline_stream_next(struct gm_timeline *t, uint32_t *at, struct gm_stream_track *ret_copy);
/* No more work is submitted to it. */
void gm_timeline_stream_ended(struct gm_timeline *t, uint64_t key);

/* Report a free in the order of stream @key, which the calling thread names @name: before the free gets its point, and
 * before another thread can see the block as free. @may_record: the backend may record an event on the stream now. */
void gm_timeline_stream_freed(struct gm_timeline *t, uint64_t key, uint64_t name, bool may_record);

/* Look up how far the stream has come: by its event, or, if it ended without one, by its context. @point: all later
 * frees have a later point. Called under "retire". Returns gm_timeline_stream_passed. */
uint64_t gm_timeline_stream_look(struct gm_timeline *t, uint64_t key, uint64_t point);
/* asks: does the stream's event not cover all its frees, and can the backend query the stream as a whole?
 * ask: query it; if it is idle, it has passed @point. Returns whether it is idle.
 * mark: the same, and if it is busy, record an event behind its frees. Requires gm_timeline.reported.
 * ask and mark are called under "order". */
bool gm_timeline_stream_asks(const struct gm_stream_track *copy);
bool gm_timeline_stream_ask(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point);
void gm_timeline_stream_mark(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point);

/* Return the point up to which the host has seen the stream past its frees; 0: not known. */
uint64_t gm_timeline_stream_passed(struct gm_timeline *t, uint64_t key);
/* Has the stream passed all its frees that were reported? UNKNOWN: that cannot be found out. *@ret_ended: the stream
 * has ended. */
enum gm_stream_frees { GM_FREES_PASSED, GM_FREES_PENDING, GM_FREES_UNKNOWN };
enum gm_stream_frees gm_timeline_stream_frees(struct gm_timeline *t, uint64_t key, bool *ret_ended);
bool gm_timeline_streams_pending(struct gm_timeline *t);	/* are frees of any stream pending? */

/* Call @wait with an event behind all frees on stream @key: its own event, if that covers all frees; else, if
 * @may_record, a new one behind all work of the stream. Returns false if there is no event, or if @wait failed. Called
 * under "retire". */
bool gm_timeline_stream_wait(struct gm_timeline *t, uint64_t key, bool may_record,
			     int (*wait)(void *arg, uint64_t event), void *arg);

/* ending: the context of streams is about to end (or, @ending false, did not end). ended: it has ended. The caller
 * holds the timeline's lock. */
void gm_timeline_streams_ending_locked(struct gm_timeline *t, uint32_t context, bool ending);
void gm_timeline_streams_ended_locked(struct gm_timeline *t, uint32_t context);

/* ---- marks ---- */

/* Return the point of a free that is made now. Beside a rise of the point it may be the old one or the new one. */
static inline uint64_t gm_timeline_free(struct gm_timeline *t)
{
	uint64_t now = t->now, freed = t->freed;

	while (freed < now && !__atomic_compare_exchange_n((uint64_t *)&t->freed, &freed, now, false, __ATOMIC_ACQ_REL,
							   __ATOMIC_RELAXED))
		continue;
	return now;
}

/* Record a mark of @point, which was the present point until just now, in each context that lacks a mark for the frees
 * so far. Returns whether no context lacks one any more. Called under "order". @how:
 * SUBMISSION: work is submitted next, even if a mark could not be recorded: its later mark is a late one.
 * EVERY: in all contexts. LAZY: only in contexts without a pending mark. */
enum gm_mark_how { GM_MARK_NOW, GM_MARK_SUBMISSION, GM_MARK_EVERY, GM_MARK_LAZY };
bool gm_timeline_mark(struct gm_timeline *t, uint64_t point, enum gm_mark_how how);
/* Work is submitted without "order": the next marks are late for frees up to @point. */
void gm_timeline_late(struct gm_timeline *t, uint64_t point);
/* Does any context lack a mark for the frees so far? */
bool gm_timeline_unmarked(struct gm_timeline *t);

/* Query the marks and advance the contexts past the complete ones. Returns whether any was complete. Called under
 * "retire". */
bool gm_timeline_poll(struct gm_timeline *t);
/* The host knows that @context (0: every context) has passed @point. */
void gm_timeline_pass(struct gm_timeline *t, uint32_t context, uint64_t point);

/* Is every context past @point? Queries the backend. Called under "order". */
bool gm_timeline_ask(struct gm_timeline *t, uint64_t point);

/* passed: return the point that @context (0: every context) has passed. passed_by_all: the point that @context and all
 * contexts that may touch its memory have passed. */
uint64_t gm_timeline_passed(struct gm_timeline *t, uint32_t context);
uint64_t gm_timeline_passed_by_all(struct gm_timeline *t, uint32_t context);
/* Return the point of the last mark of @context; 0: the lowest of all contexts. */
uint64_t gm_timeline_marked(struct gm_timeline *t, uint32_t context);
/* Return the point that all other contexts which may touch the memory of @context have passed. */
uint64_t gm_timeline_passed_by_others(struct gm_timeline *t, uint32_t context);

/* use: return the oldest pending mark of @context that has point @from or a later one, and keep it until unuse; NULL:
 * there is none. wait: block the host until it is complete, without a lock; 0 or -errno. */
struct gm_mark *gm_timeline_use(struct gm_timeline *t, uint32_t context, uint64_t from);
int gm_timeline_wait(struct gm_timeline *t, const struct gm_mark *mark);
void gm_timeline_unuse(struct gm_timeline *t, struct gm_mark *mark);

/* Call @fn with the event of each context's last pending mark, until @fn returns false. Returns false if @fn did.
 * Called under "order". */
bool gm_timeline_last_marks(struct gm_timeline *t, bool (*fn)(void *arg, uint64_t event), void *arg);

/* take: return an event of context @id that is on no list; NULL: none is available now. put: give it back. */
struct gm_mark *gm_timeline_take(struct gm_timeline *t, uint32_t id);
void gm_timeline_put(struct gm_timeline *t, struct gm_mark *mark);
void gm_timeline_put_locked(struct gm_timeline *t, struct gm_mark *mark);	/* under the timeline's lock */
/* Has its context ended? Then the event is gone, and the work before it complete. */
static inline bool gm_mark_has_ended(const struct gm_mark *mark)
{
	return mark->track->life == GM_TRACK_ENDED || mark->track->life == GM_TRACK_UNUSED;
}

#endif
