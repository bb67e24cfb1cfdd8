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

struct gm_timeline_ops {
	/* An event for queries and waits in the context @handle. 0: it cannot be had. */
	uint64_t (*event)(void *arg, uint32_t context, uint64_t handle);
	/* Record @event behind everything submitted so far in that context. 0; -EAGAIN: a capture forbids it now;
	 * -errno. Under "order". */
	int (*record)(void *arg, uint64_t handle, uint64_t event);
	int (*query)(void *arg, uint64_t event);	/* 1: complete, or its context is gone; 0: not yet; -errno */
	int (*wait)(void *arg, uint64_t event);		/* the host waits; 0 or -errno */
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
/* Has its context ended? Then its event is gone, and its work complete. ending: it must not be asked now. */
static inline bool gm_mark_has_ended(const struct gm_mark *mark)
{
	return mark->track->life == GM_TRACK_ENDED || mark->track->life == GM_TRACK_UNUSED;
}

#endif
