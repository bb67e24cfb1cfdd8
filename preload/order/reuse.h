/*
 * reuse.h - when a freed block may be handed out again: limbo, and the single-stream fast path.
 *
 * One for the process. It knows no CUDA: events are its backend's, streams are keys (the same key, the same stream;
 * never reused), blocks are ids with an owner (a heap's number).
 *
 *   free (its point) ──> limbo ──(mark before the next submission)──(its contexts have passed the point)──> completed
 *
 * Limbo has a lane for each context whose work blocks wait for, the block's own, after cudaFree; and for each
 * stream after cudaFreeAsync. A lane is in the order of points (timeline.h), so that a poll takes what is
 * passed off its front; a context that is blocked holds up its own lane, and those of contexts whose memory it
 * may touch. Marks are recorded before the first submission after a free, so that passing the point is exactly
 * what the driver's own cudaFree would have waited for. A mark that a capture forbade then is made later and is
 * "late": it is polled, but never waited for. What was freed in stream order is never waited for either, since
 * the driver's cudaFreeAsync does not wait. A thread waits for a context only up to its own last cudaFree of
 * memory of that context: the driver would have had that thread wait for that same work. Any other thread might
 * be the one for which this work is waiting.
 *
 * Single-stream mode: as long as only one stream of the process was given work, and there is no
 * context but its own, what is freed synchronously may be used again at once. Before the next
 * submission after such frees an event is recorded on that stream (one event, recorded anew each
 * time). When a second stream is about to be given work, the mode ends: the first work of every
 * other stream waits for that last event, in stream order, on the device, until the host has seen
 * it complete. The mode comes back when all other streams have had no work for long (reuse.c).
 *
 * Locks: "order" (rank GM_RANK_CAPTURE) is held across the backend's records and stream_wait and
 * orders submissions' slow path; "retire" (likewise, never with order) while marks are looked at and blocks
 * completed; "limbo" (a leaf) guards the lanes and the present point, and is never held across a backend call.
 * gm_reuse_freed is called under no lock: whoever frees a block owns it by its state until the call returns,
 * and the completion of the block may come before that (preload/cache/cache_heap_free.c). Thread context: any.
 * Signal context: none.
 */
#ifndef GM_PRELOAD_REUSE_H
#define GM_PRELOAD_REUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/order/timeline.h"

struct gm_reuse;

struct gm_reuse_item { uint32_t block; uint32_t owner; uint64_t bytes; };

struct gm_reuse_ops {
	struct gm_timeline_ops time;	/* events of contexts; its @arg and @memory serve below, too */
	/* A ticket, an event after everything submitted so far on @stream. *ticket 0: a new one, else that one
	 * recorded anew. 0; -EAGAIN: a capture forbids it now; -errno. Under "order". */
	int (*record_stream)(void *arg, uint64_t stream, uint64_t *ticket);
	/* Later work of @stream waits for @ticket, on the device. Under "order". */
	int (*stream_wait)(void *arg, uint64_t stream, uint64_t ticket);
	/* 1: complete (or its context is gone), 0: not yet, -errno: not known now. */
	int (*query)(void *arg, uint64_t ticket);
	void (*drop)(void *arg, uint64_t ticket);
	/* context_of: the context that @owner's memory belongs to; 0: not known. is_only: is
	 * @context the one of @stream, and the only one in use? That only looks up: it is called
	 * under any lock, the other under none, when something is freed. */
	uint32_t (*context_of)(void *arg, uint32_t owner);
	bool (*is_only)(void *arg, uint32_t context, uint64_t stream);
	/* @stream is given the first work of the process, or has had all of it lately. Under
	 * "order", on its submitter's thread; may be NULL. */
	void (*first)(void *arg, uint64_t stream);
	/* What hooks remember of streams is void from now on: each calls gm_reuse_submit before its
	 * next submission, and gm_reuse_submitted after one that is under way now. Called under any
	 * lock. NULL: single-stream mode does not come back. */
	void (*forget_streams)(void *arg);
	/* These blocks may be handed out again. No lock of rank domain or higher is held. Returns
	 * how many of them, counted from the first, were taken back: it is called for the others
	 * again later. */
	size_t (*complete)(void *arg, const struct gm_reuse_item *items, size_t count);
	void *arg;
};

/* What the hooks read before each submission, without a lock. */
struct gm_reuse_hot {
	_Atomic(uint32_t) attention;	/* bits below; 0: only @stream is to be compared */
	_Atomic(uint32_t) many;		/* more than one stream was given work, or may have been */
	_Atomic(uint32_t) others;	/* another one was, since the check for one stream began (reuse.c) */
	_Atomic(uint64_t) stream;	/* key of the one stream that has work; 0: none yet */
};
enum gm_reuse_attention {
	GM_REUSE_OPEN = 1,		/* frees wait for a seal */
	GM_REUSE_TRANSITION = 2,	/* first works of streams wait for the transition's event */
	GM_REUSE_CAPTURING = 4		/* some stream of the process captures */
};

/* Returns NULL when there is no memory. time: its clock. */
struct gm_timeline *gm_reuse_time(struct gm_reuse *reuse);
struct gm_reuse *gm_reuse_new(const struct gm_reuse_ops *ops, struct gm_reuse_hot *hot);

/* May this submission go on without gm_reuse_submit? The inlined test of every work hook. */
static inline bool gm_reuse_passes(const struct gm_reuse_hot *hot, uint64_t stream)
{
	return !(hot->attention & (GM_REUSE_OPEN | GM_REUSE_TRANSITION)) &&
	       (hot->many || hot->stream == stream);
}

/* Before that test, of a stream that this thread did not submit to last: note that there is more
 * than one. */
static inline void gm_reuse_note_other(struct gm_reuse_hot *hot, uint64_t stream)
{
	if (hot->many && hot->stream != stream && !hot->others)
		hot->others = 1;
}

/* Before work is submitted to @stream (never for captured work): seal the open epoch, end
 * single-stream mode, or have the stream wait on the device, as needed. The host waits for no GPU
 * work. */
void gm_reuse_submit(struct gm_reuse *reuse, uint64_t stream);

/* Work was submitted to @stream while ops.forget_streams was called. */
void gm_reuse_submitted(struct gm_reuse *reuse, uint64_t stream);

/* Work that is given to @stream from now on (a stream of the library's own, whose work does not
 * count) runs on the device after all earlier uses of memory that was handed out early so far. */
void gm_reuse_behind(struct gm_reuse *reuse, uint64_t stream);

/* The program freed a block. @stream: in its order, by cudaFreeAsync, of context @context (0: not known); 0: by
 * cudaFree. True: it may be handed out at once, in single-stream mode; *ret_early is then the stream whose work
 * on it may still be pending (its next launch may not overlap its predecessor); 0 where there is none, or where
 * this thread was told so already since the last submission. False: the block is in limbo now, and
 * ops->complete gets it later. */
bool gm_reuse_freed(struct gm_reuse *reuse, const struct gm_reuse_item *item, uint64_t stream, uint32_t context,
		    uint64_t *ret_early);

/* Complete what is complete. Returns how many blocks that were. Cheap when nothing is in limbo. */
size_t gm_reuse_poll(struct gm_reuse *reuse);

/* Complete what is complete; when that is nothing, wait for the oldest mark that this thread may
 * wait for. 0; -ENOENT: there is none; -errno. What was freed is marked first when nothing was
 * submitted since. */
int gm_reuse_wait(struct gm_reuse *reuse);

/* The same until nothing is left that may be waited for. Returns blocks completed, by whomever. */
size_t gm_reuse_wait_all(struct gm_reuse *reuse);

/* For a caller that tries again before it reports "out of memory": all frees up to now carry this
 * point or an older one. turn: what is freed from now on has a later one. */
uint64_t gm_reuse_now(struct gm_reuse *reuse);
uint64_t gm_reuse_turn(struct gm_reuse *reuse);
/* The same, where only the points of what waits matter: what is freed early may have the returned one still. */
uint64_t gm_reuse_before(struct gm_reuse *reuse);
/* How many blocks have been completed so far, by whomever. */
uint64_t gm_reuse_completed(struct gm_reuse *reuse);
/* As gm_reuse_poll, but waits first for other threads that are in it: no block is on its way when
 * it returns. */
size_t gm_reuse_poll_all(struct gm_reuse *reuse);
/* The same whether or not anything is in limbo, for whoever asks the timeline: marks what was freed, where no mark is
 * pending. Never waits. */
void gm_reuse_look(struct gm_reuse *reuse);
/* Does anything freed up to @point still wait, for context @context (0: of cudaFreeAsync, for any)? 0: no; 1:
 * yes, for the GPU; -EAGAIN: only for the end of a capture. */
int gm_reuse_waits(struct gm_reuse *reuse, uint64_t point, uint32_t context);
/* A number that changes when the GPU has made progress, as far as has been polled. */
uint64_t gm_reuse_progress(struct gm_reuse *reuse);

/* Around a call by which the program waits for everything that was submitted before, in @context or (0)
 * everywhere. begin comes before the real call, and marks what was freed; done comes after the call succeeded,
 * with what begin returned: the context has passed that point. */
uint64_t gm_reuse_sync_begin(struct gm_reuse *reuse);
void gm_reuse_sync_done(struct gm_reuse *reuse, uint32_t context, uint64_t begun);

/* Single-stream mode ends: something else may write memory or submit work unseen. */
void gm_reuse_end_single(struct gm_reuse *reuse);

/* @stream is about to be destroyed (its key will never be used again). */
void gm_reuse_stream_ends(struct gm_reuse *reuse, uint64_t stream);

/* Wait until every call of the backend that is under way has returned: all later ones see what was
 * changed before this call. */
void gm_reuse_pass(struct gm_reuse *reuse);

/* A context ended, with its streams, after their work: their keys may be used again. @one: the one
 * stream of single-stream mode was among them. */
void gm_reuse_streams_ended(struct gm_reuse *reuse, bool one);

/* Call @fn while no capture can begin. Returns its result; -EAGAIN: a capture is under way, -EBUSY:
 * the lock could not be had, and @fn was not called. */
int gm_reuse_in_order(struct gm_reuse *reuse, int (*fn)(void *arg), void *arg);

/* Find out how far the streams have come with what was freed on them; only those that have ended. Never waits. One
 * stream: has it passed all that was freed on it by now? */
void gm_reuse_look_streams(struct gm_reuse *reuse, bool ended_only);
bool gm_reuse_stream_is_past(struct gm_reuse *reuse, uint64_t stream);
/* Each free in stream order is told of from now on (gm_timeline.told): what was freed before gets an event. */
void gm_reuse_mark_streams(struct gm_reuse *reuse);
/* As gm_timeline_stream_wait. */
bool gm_reuse_stream_wait(struct gm_reuse *reuse, uint64_t stream, bool may_record,
			  int (*wait)(void *arg, uint64_t event), void *arg);

/* A stream of @context (0: not known) begins to capture (before the real call), or joins a capture; that has
 * ended. They nest. */
void gm_reuse_capture_begins(struct gm_reuse *reuse, uint32_t context);
void gm_reuse_capture_ended(struct gm_reuse *reuse, uint32_t context);

/* Have @fn called with an event after everything submitted so far of each context: false where that cannot be
 * arranged, or @fn returned false. */
bool gm_reuse_behind_all(struct gm_reuse *reuse, bool (*fn)(void *arg, uint64_t event), void *arg);

/* The context of @owner's blocks ended: they leave limbo, and ops->complete does not get them. */
void gm_reuse_forget(struct gm_reuse *reuse, uint32_t owner);

/* Bytes of @owner's blocks in limbo; of all owners with UINT32_MAX. */
uint64_t gm_reuse_limbo_bytes(struct gm_reuse *reuse, uint32_t owner);

#endif
