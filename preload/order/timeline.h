/*
 * timeline.h - how far the GPU is known to have come in each context: the clock of all reuse.
 *
 * A point is a number that only grows; every free carries the point at which it was made. A mark is an event that was
 * recorded in a context behind all work which that context had been given. It has the point of the frees before it,
 * and whatever is freed after it has a later one:
 *
 * 	points    5      5     6     6        7
 * 	          free  free | free free |  free             |: the number goes up, then marks 5 and 6 are recorded
 *
 * When the event of mark 5 is complete, its context has passed 5: none of its work that was submitted before a
 * free of point 5 is pending. So "may this memory be used again?" is one comparison of numbers for each context
 * that may touch the memory. A context that was given no work, nor an event to wait for, or has ended, has
 * passed every point.
 *
 * A context may touch memory of its own. It may touch another context's once it was allowed to (gm_timeline_touches),
 * and any once work may be submitted that no hook sees (gm_timeline_everybody).
 *
 * It knows no CUDA: events are numbers of its backend. Locks: a leaf for the lists, never held over a call of the
 * backend; marks are recorded under "order" and looked at under "retire", which are the caller's (reuse.h). Thread
 * context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_TIMELINE_H
#define GM_PRELOAD_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/lock.h"

#define GM_TIMELINE_CONTEXTS 256u	/* given work, and alive, at one time */
#define GM_TIMELINE_PAIRS 512u		/* of contexts of which one may touch the other's memory; more: everybody may */
#define GM_TIMELINE_STREAMS 4096u	/* on which memory was freed; of more nothing is known */

struct gm_timeline_ops {
	/* An event for queries and waits in the context @handle. 0: it cannot be had. */
	uint64_t (*event)(void *arg, uint32_t context, uint64_t handle);
	/* Record @event behind everything submitted so far in that context. 0; -EAGAIN: a capture forbids it now;
	 * -errno. Under "order". */
	int (*record)(void *arg, uint64_t handle, uint64_t event);
	int (*query)(void *arg, uint64_t event);	/* 1: complete, or its context is gone; 0: not yet; -errno */
	int (*wait)(void *arg, uint64_t event);		/* the host waits; 0 or -errno */
	/* Record @event behind what @stream was given so far; where @stream is the default one of @context (not 0),
	 * behind all of that context. 0 or -errno. idle: has @stream of @context nothing left to do? 1, 0, -errno. */
	int (*record_on)(void *arg, uint32_t context, uint64_t stream, uint64_t event);
	int (*idle)(void *arg, uint32_t context, uint64_t stream);
	void (*around)(void *arg, bool begin);		/* before and after some of record and query; may be NULL */
	void *(*memory)(void *arg, size_t bytes);	/* zeroed pages; NULL: there are none */
	void *arg;
};

enum gm_track_life { GM_TRACK_UNUSED, GM_TRACK_LIVE, GM_TRACK_ENDING, GM_TRACK_ENDED };

/* An event of a context. On the list of its track it is a mark; or it is somebody's who asked for one. */
struct gm_mark {
	struct gm_mark *next;
	struct gm_track *track;
	uint64_t event;
	uint64_t point;			/* of the last free before it */
	uint64_t late;			/* work was submitted between the frees up to this point and the event */
	uint32_t users;			/* threads that wait for it */
	bool passed;			/* it is on no list any more, but for its users */
};

struct gm_track {			/* a context that was given work */
	_Atomic(uint8_t) life;
	_Atomic(uint32_t) id;
	_Atomic(uint32_t) captures;	/* streams of it that capture: no mark can be recorded */
	uint32_t marks;			/* its marks and events: it is used again at 0; lock: lock */
	_Atomic(uint64_t) passed;	/* the host has seen it past all frees up to this point */
	_Atomic(uint64_t) marked;	/* the point of its last mark */
	_Atomic(uint64_t) late;		/* as that of its next mark */
	_Atomic(uint64_t) handle;
	struct gm_mark *_Atomic oldest;	/* written under lock, as the next */
	struct gm_mark *newest, *spare;
};

/* A stream on which memory may have been freed in stream order. */
struct gm_stream_track {
	uint64_t key;			/* 0: unused */
	uint64_t stream;		/* as the backend names it; 0: it cannot be asked as a whole */
	struct gm_mark *mark;		/* its event, behind its frees; NULL: none yet */
	uint64_t freed;			/* of the last free; or of the end of a stream without an event */
	uint64_t asked;			/* the last point for which it was asked */
	uint64_t passed;		/* UINT64_MAX: it has ended and is complete */
	uint32_t context;		/* 0: not known */
	uint32_t born;			/* a number of its own */
	uint32_t missed, recorded;	/* frees without an event; those before the last event. Equal: covered */
	int32_t thread;			/* whose default stream it is; 0: nobody's */
	uint16_t next;			/* of its bucket, or unused */
	bool ending;			/* so is its context */
	bool ended;			/* no more work can be submitted to it */
};

struct gm_timeline {
	struct gm_timeline_ops ops;
	struct gm_lock lock;		/* a leaf */
	_Atomic(uint64_t) now;		/* the present point; it goes up under the caller's lock "limbo" */
	_Atomic(uint64_t) freed;	/* the last point at which something was freed */
	_Atomic(uint64_t) moves;	/* rises with every passed point */
	_Atomic(uint32_t) used;		/* tracks that ever were somebody's */
	_Atomic(uint32_t) ends;		/* contexts that have ended */
	_Atomic(uint32_t) captures;	/* of contexts that are not known: no mark can be recorded anywhere */
	_Atomic(bool) overflowed;	/* a context has no room here: nothing is known */
	_Atomic(bool) everybody;
	_Atomic(uint32_t) pairs;
	_Atomic(uint64_t) pair[GM_TIMELINE_PAIRS];	/* who << 32 | whose; 0: unused */
	struct gm_mark *unused;		/* marks that are no context's; lock: lock */
	struct gm_track tracks[GM_TIMELINE_CONTEXTS];
	_Atomic(bool) told;		/* each free in stream order is told of (gm_timeline_stream_freed) */
	_Atomic(bool) blind;		/* but one was not noted: nothing is known of streams */
	_Atomic(uint32_t) streams_ended;	/* that are not known to be complete */
	_Atomic(uint32_t) streams_over;	/* rises when one of these is */
	_Atomic(uint64_t) streams_moves;	/* rises when a stream has passed what was freed on it */
	uint32_t streams_room;		/* a power of two; lock: lock, as the rest */
	uint32_t streams_used, streams_unused, streams_born;
	struct gm_stream_track *streams;	/* from 1 on; NULL: there are none yet */
	uint16_t *buckets;		/* a quarter as many */
};

/* @t is zeroed; the first point is @now. */
void gm_timeline_init(struct gm_timeline *t, const struct gm_timeline_ops *ops, uint64_t now);

/* ---- contexts ---- */

/* Context @id (its @handle 0: not known) is given work from now on. @ends: gm_timeline_ends when it was looked
 * up, before that it lived. 0; -ESTALE: a context has ended since, look again; -ENOSPC: there is no room. */
int gm_timeline_add(struct gm_timeline *t, uint32_t id, uint64_t handle, uint32_t ends);
bool gm_timeline_has(struct gm_timeline *t, uint32_t id);
static inline uint32_t gm_timeline_ends(const struct gm_timeline *t)
{
	return t->ends;
}
/* The context of which that is the handle, and not only a part of it; 0: none that was given work. */
uint32_t gm_timeline_of_handle(struct gm_timeline *t, uint64_t handle);
/* Was no other living context given work than this one (by its handle, or else its id)? */
bool gm_timeline_alone(struct gm_timeline *t, uint32_t id, uint64_t handle);

/* It is about to end: the backend is not asked about its events meanwhile (or, @ending false, it did not end).
 * Then it has ended: it has passed every point, and its events are gone. */
void gm_timeline_ending(struct gm_timeline *t, uint32_t id, bool ending);
void gm_timeline_ended(struct gm_timeline *t, uint32_t id);

/* A stream of @id (0: of a context that is not known), which has a track, begins to capture, or has ended that. Under
 * "order". */
void gm_timeline_captures(struct gm_timeline *t, uint32_t id, bool begins);
/* Does any stream of @id (0: of any context) capture? */
bool gm_timeline_is_capturing(struct gm_timeline *t, uint32_t id);

/* Work of context @who may touch memory of context @whose from now on; of everybody's. */
void gm_timeline_touches(struct gm_timeline *t, uint32_t who, uint32_t whose);
void gm_timeline_everybody(struct gm_timeline *t);

/* ---- streams (timeline_streams.c) ---- */

/* Stream @like->key, with its stream, context and thread; it may be known already. @fresh: nothing was freed on it. */
void gm_timeline_stream_add(struct gm_timeline *t, const struct gm_stream_track *like, bool fresh);
bool gm_timeline_stream_copy(struct gm_timeline *t, uint64_t key, struct gm_stream_track *ret_copy);
/* The next one that has not ended and passed everything; begin with *@at 0. False: there is none. */
bool gm_timeline_stream_next(struct gm_timeline *t, uint32_t *at, struct gm_stream_track *ret_copy);
/* No more work is submitted to it. */
void gm_timeline_stream_ended(struct gm_timeline *t, uint64_t key);

/* Something is freed in the order of @key, which the caller's thread names @name. Its point comes after this, and it is
 * seen to be free after this. @may_record: an event may be recorded on that stream. */
void gm_timeline_stream_freed(struct gm_timeline *t, uint64_t key, uint64_t name, bool may_record);

/* Find out how far it has come, by its event. @point: everything that is freed from now on has a later one. Under
 * "retire". Returns gm_timeline_stream_passed. */
uint64_t gm_timeline_stream_look(struct gm_timeline *t, uint64_t key, uint64_t point);
/* Its event says nothing, or it has none, and it can be asked as a whole. ask: is it idle? mark: where it is not, what
 * was freed on it gets an event; gm_timeline.told is set. Under "order". */
bool gm_timeline_stream_asks(const struct gm_stream_track *copy);
bool gm_timeline_stream_ask(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point);
void gm_timeline_stream_mark(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point);

/* Up to which point the host has seen it past its frees. */
uint64_t gm_timeline_stream_passed(struct gm_timeline *t, uint64_t key);
/* The same of all its frees, as far as they were told of. UNKNOWN: that cannot be found out. */
enum gm_stream_frees { GM_FREES_PASSED, GM_FREES_PENDING, GM_FREES_UNKNOWN };
enum gm_stream_frees gm_timeline_stream_frees(struct gm_timeline *t, uint64_t key, bool *ret_ended);
bool gm_timeline_streams_pending(struct gm_timeline *t);	/* is any PENDING? */

/* Call @wait with an event behind all that was freed on @key: that of the last free, else, if @may_record, one behind
 * all that the stream was given. False: there is none, or @wait failed. Under "retire". */
bool gm_timeline_stream_wait(struct gm_timeline *t, uint64_t key, bool may_record,
			     int (*wait)(void *arg, uint64_t event), void *arg);

/* The context of streams is about to end (or did not); it has ended. The timeline's lock is held. */
void gm_timeline_streams_ending_locked(struct gm_timeline *t, uint32_t context, bool ending);
void gm_timeline_streams_ended_locked(struct gm_timeline *t, uint32_t context);

/* ---- marks ---- */

/* Something is freed: its point. It may be read before or after the point goes up. */
static inline uint64_t gm_timeline_free(struct gm_timeline *t)
{
	uint64_t now = t->now, freed = t->freed;

	while (freed < now && !__atomic_compare_exchange_n((uint64_t *)&t->freed, &freed, now, false, __ATOMIC_ACQ_REL,
							   __ATOMIC_RELAXED))
		continue;
	return now;
}

/* Mark @point, which the present point was until just now, in every context that has no mark for all that was
 * freed. @how: SUBMISSION: work is submitted next, whether or not an event could be recorded: a mark that has
 * to be made later is late. EVERY: in every context. LAZY: only where no mark is pending. Returns whether no
 * context lacks its mark. Under "order". */
enum gm_mark_how { GM_MARK_NOW, GM_MARK_SUBMISSION, GM_MARK_EVERY, GM_MARK_LAZY };
bool gm_timeline_mark(struct gm_timeline *t, uint64_t point, enum gm_mark_how how);
/* Work is submitted past "order": the next marks are late for frees up to @point. */
void gm_timeline_late(struct gm_timeline *t, uint64_t point);
/* Is a mark missing anywhere for what was freed? */
bool gm_timeline_unmarked(struct gm_timeline *t);

/* Find out which marks are complete. Returns whether any was. Under "retire". */
bool gm_timeline_poll(struct gm_timeline *t);
/* The host knows that @context (0: every one) is past all that was submitted before @point. */
void gm_timeline_pass(struct gm_timeline *t, uint32_t context, uint64_t point);

/* Is every context past @point? Asks the backend. Under "order". */
bool gm_timeline_ask(struct gm_timeline *t, uint64_t point);

/* The point that @context (0: every one) has passed; that it and all who may touch its memory have passed. */
uint64_t gm_timeline_passed(struct gm_timeline *t, uint32_t context);
uint64_t gm_timeline_passed_by_all(struct gm_timeline *t, uint32_t context);
/* The point of its last mark. */
uint64_t gm_timeline_marked(struct gm_timeline *t, uint32_t context);
/* Of those who may touch its memory, without itself. */
uint64_t gm_timeline_passed_by_others(struct gm_timeline *t, uint32_t context);

/* The oldest mark of @context of point @from or later that has not been seen complete, in use; NULL: none.
 * wait: the host waits for it, without a lock; 0 or -errno. unuse: done with it. */
struct gm_mark *gm_timeline_use(struct gm_timeline *t, uint32_t context, uint64_t from);
int gm_timeline_wait(struct gm_timeline *t, const struct gm_mark *mark);
void gm_timeline_unuse(struct gm_timeline *t, struct gm_mark *mark);

/* Call @fn with the event of each context's last mark that is not seen complete, until it returns false. Under
 * "order". */
bool gm_timeline_last_marks(struct gm_timeline *t, bool (*fn)(void *arg, uint64_t event), void *arg);

/* An event of context @id, not on its list; NULL: there can be none now. put: nobody needs it any more. */
struct gm_mark *gm_timeline_take(struct gm_timeline *t, uint32_t id);
void gm_timeline_put(struct gm_timeline *t, struct gm_mark *mark);
void gm_timeline_put_locked(struct gm_timeline *t, struct gm_mark *mark);	/* the timeline's lock is held */
/* Has its context ended? Then its event is gone, and its work complete. ending: it must not be asked now. */
static inline bool gm_mark_has_ended(const struct gm_mark *mark)
{
	return mark->track->life == GM_TRACK_ENDED || mark->track->life == GM_TRACK_UNUSED;
}

#endif
