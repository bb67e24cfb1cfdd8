/*
 * reuse.h - when a freed block may be handed out again: limbo, and the single-stream fast path.
 *
 * There is one instance in a process. It knows no CUDA: events are numbers of its backend, streams are keys (a key
 * always means the same stream), blocks are ids with an owner (the number of a heap).
 *
 *   free (its point) ──> limbo ──(mark before the next submission)──(its contexts have passed the point)──> completed
 *
 * Limbo has lanes. Blocks of cudaFree are in the lane of their own context, blocks of cudaFreeAsync in that of their
 * stream. A lane is in the order of points (timeline.h), so a poll takes passed blocks off its front. A context that is
 * blocked holds up its own lane, and the lanes of contexts whose memory it may touch.
 *
 * Marks are recorded before the first submission after a free. So a context that has passed the point has done exactly
 * the work that the driver's own cudaFree would have waited for. If a capture forbids the mark at that time, it is
 * recorded later and is "late", because it also covers later work: it is polled, but never waited for. Stream-ordered
 * frees are never waited for either, because the driver's cudaFreeAsync does not wait. A thread waits for a context
 * only up to its own last cudaFree of memory of that context, because there the driver would have made it wait for the
 * same work. It does not wait for another thread's free, because that work may be waiting for this thread.
 *
 * Single-stream mode: while only one stream of the process was given work, and only its context is in use, a block of
 * cudaFree may be handed out again at once. Before the next submission after such an early free, an event is recorded
 * on that stream (one event, recorded anew each time). When a second stream is about to be given work, the mode ends:
 * this is the transition. The first work of every other stream then waits on the device, in stream order, for that last
 * event, until the host has seen the event complete. The mode comes back after all other streams had no work for long
 * (reuse.c).
 *
 * Locks: "order" (rank GM_RANK_CAPTURE) is held across the backend's record and stream_wait calls, and orders the slow
 * path of submissions. "retire" (same rank, never held with order) is held while marks are looked at and blocks
 * completed. "limbo" (a leaf) guards the lanes and the present point, and is never held across a driver call.
 * gm_reuse_freed is called under no lock. The freeing thread owns the block by its state until that call returns, but
 * the block may be completed earlier (preload/cache/cache_heap_free.c). Thread context: any. Signal context: none.
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
	struct gm_timeline_ops time;	/* events of contexts; its @memory serves all of reuse*.c */
	/* Record a ticket: an event behind all work submitted so far to @stream. *ticket 0: make a new ticket; else
	 * record that one anew. Returns 0; -EAGAIN: a capture forbids it now; -errno. Called under "order". */
	int (*record_stream)(void *arg, uint64_t stream, uint64_t *ticket);
	/* Make later work of @stream wait for @ticket, on the device. Called under "order". */
	int (*stream_wait)(void *arg, uint64_t stream, uint64_t ticket);
	/* 1: complete, or its context is gone; 0: not yet; -errno: not known now. */
	int (*query)(void *arg, uint64_t ticket);
	void (*drop)(void *arg, uint64_t ticket);
	/* context_of: return the context of @owner's memory; 0: not known. Called under no lock, at a free. is_only: is
	 * @context the context of @stream, and the only one in use? Called under any lock, so it only looks up. */
	uint32_t (*context_of)(void *arg, uint32_t owner);
	bool (*is_only)(void *arg, uint32_t context, uint64_t stream);
	/* @stream becomes the one stream: it is given the first work of the process, or a check whether it has all work
	 * begins. Called under "order", on the submitting thread; may be NULL. */
	void (*first)(void *arg, uint64_t stream);
	/* Invalidate what the hooks remember of streams. Every stream calls gm_reuse_submit before its next submission;
	 * a submission in flight calls gm_reuse_submitted when it returns. Called under any lock. NULL: single-stream
	 * mode never comes back. */
	void (*forget_streams)(void *arg);
	/* These blocks may be handed out again. Returns how many were taken, from the first one on; the others are
	 * offered again later. Called with no lock of rank domain or higher. */
	size_t (*complete)(void *arg, const struct gm_reuse_item *items, size_t count);
	void *arg;
};

/* The hooks read this before each submission, without a lock. */
struct gm_reuse_hot {
	_Atomic(uint32_t) attention;	/* bits below; 0: compare only @stream */
	_Atomic(uint32_t) many;		/* more than one stream was given work, or may have been */
	_Atomic(uint32_t) others;	/* another stream was given work since the check for one began (reuse.c) */
	_Atomic(uint64_t) stream;	/* key of the one stream that has work; 0: none yet */
};
enum gm_reuse_attention {
	GM_REUSE_OPEN = 1,		/* frees lack a mark or an event */
	GM_REUSE_TRANSITION = 2,	/* the first work of other streams waits for the transition's event */
	GM_REUSE_CAPTURING = 4		/* some stream of the process captures */
};

/* time: the timeline of @reuse. new: returns NULL if out of memory. */
struct gm_timeline *gm_reuse_time(struct gm_reuse *reuse);
struct gm_reuse *gm_reuse_new(const struct gm_reuse_ops *ops, struct gm_reuse_hot *hot);

/* May this submission skip gm_reuse_submit? The inlined test of every work hook. */
static inline bool gm_reuse_passes(const struct gm_reuse_hot *hot, uint64_t stream)
{
	return !(hot->attention & (GM_REUSE_OPEN | GM_REUSE_TRANSITION)) &&
	       (hot->many || hot->stream == stream);
}

/* Before that test, if this thread last submitted to a different stream: note that more than one has work. */
static inline void gm_reuse_note_other(struct gm_reuse_hot *hot, uint64_t stream)
{
	if (hot->many && hot->stream != stream && !hot->others)
		hot->others = 1;
}

/* Before work is submitted to @stream (never for captured work): record the missing marks, end single-stream mode, or
 * make the stream wait on the device, as needed. The host waits for no GPU work. */
void gm_reuse_submit(struct gm_reuse *reuse, uint64_t stream);

/* Work was submitted to @stream, and ops.forget_streams was called during the submission. */
void gm_reuse_submitted(struct gm_reuse *reuse, uint64_t stream);

/* Make later work of @stream run on the device after all earlier uses of memory that was freed early so far. @stream is
 * a stream of the library, whose work does not count. */
void gm_reuse_behind(struct gm_reuse *reuse, uint64_t stream);

/* The program freed the block @item: by cudaFreeAsync in the order of @stream, of context @context (0: not known); by
 * cudaFree if @stream is 0. Returns true if the block may be handed out at once, in single-stream mode. *@ret_early is
 * then the stream whose work on the block may still be pending: its next launch must not overlap its predecessor. It is
 * 0 if there is no such stream, or if this thread was given it already since the last submission. Returns false if the
 * block is in limbo: ops->complete gets it later. */
bool gm_reuse_freed(struct gm_reuse *reuse, const struct gm_reuse_item *item, uint64_t stream, uint32_t context,
		    uint64_t *ret_early);

/* Complete the blocks that the GPU has passed. Returns their number. Cheap if limbo is empty. */
size_t gm_reuse_poll(struct gm_reuse *reuse);

/* Mark the frees so far, and complete the blocks that the GPU has passed. If there are none, wait for the oldest mark
 * that this thread may wait for. Returns 0; -ENOENT: there is no such mark; -ETIMEDOUT: ops->complete took no block;
 * -errno. */
int gm_reuse_wait(struct gm_reuse *reuse);

/* Repeat that until there is nothing more to wait for. Returns the number of blocks completed, by any thread. */
size_t gm_reuse_wait_all(struct gm_reuse *reuse);

/* For a caller that tries again before it reports "out of memory". now: all frees so far have this point or an earlier
 * one. turn: in addition, all later frees have a later point; 0: the lock could not be taken. */
uint64_t gm_reuse_now(struct gm_reuse *reuse);
uint64_t gm_reuse_turn(struct gm_reuse *reuse);
/* As turn, but for frees that wait (in limbo, or in stream order): an early free so far may have a later point. */
uint64_t gm_reuse_before(struct gm_reuse *reuse);
/* Return how many blocks have been completed so far, by any thread. */
uint64_t gm_reuse_completed(struct gm_reuse *reuse);
/* As gm_reuse_poll, but first wait for other threads that are completing blocks, so that none is on its way when it
 * returns. */
size_t gm_reuse_poll_all(struct gm_reuse *reuse);
/* As gm_reuse_poll, also if limbo is empty: for callers that look at the timeline. Marks the frees so far in contexts
 * without a pending mark. Never waits. */
void gm_reuse_look(struct gm_reuse *reuse);
/* Does a block that was freed up to @point still wait for context @context? @context 0: does a block of cudaFreeAsync
 * wait for any? Returns 0: no; 1: yes, for the GPU; -EAGAIN: only for the end of a capture. */
int gm_reuse_waits(struct gm_reuse *reuse, uint64_t point, uint32_t context);
/* Return a number that changes with the progress of the GPU, as far as that was polled. */
uint64_t gm_reuse_progress(struct gm_reuse *reuse);

/* The program calls a function that waits for all earlier work, in @context or (0) everywhere. begin: before the real
 * call; marks the frees so far. done: after the call succeeded, with the result of begin: the context has passed that
 * point. */
uint64_t gm_reuse_sync_begin(struct gm_reuse *reuse);
void gm_reuse_sync_done(struct gm_reuse *reuse, uint32_t context, uint64_t begun);

/* End single-stream mode for good: something else may write to memory, or submit work unseen. */
void gm_reuse_end_single(struct gm_reuse *reuse);

/* @stream is about to be destroyed; its key is never used again. */
void gm_reuse_stream_ends(struct gm_reuse *reuse, uint64_t stream);

/* Wait until every backend call in flight has returned: later ones see everything that was changed before this call. */
void gm_reuse_pass(struct gm_reuse *reuse);

/* A context ended, with its streams, after their work was complete: their keys may be used again. @one: the one stream
 * of single-stream mode was among them. */
void gm_reuse_streams_ended(struct gm_reuse *reuse, bool one);

/* Call @fn while no capture can begin, and return its result. -EAGAIN: a capture is under way; -EBUSY: the lock could
 * not be taken. Then @fn was not called. */
int gm_reuse_in_order(struct gm_reuse *reuse, int (*fn)(void *arg), void *arg);

/* look_streams: look up how far the streams have come with their frees; @ended_only: only those that have ended.
 * stream_is_past: has this stream passed all frees on it so far? Neither waits for the GPU. */
void gm_reuse_look_streams(struct gm_reuse *reuse, bool ended_only);
bool gm_reuse_stream_is_past(struct gm_reuse *reuse, uint64_t stream);
/* Every stream-ordered free is reported from now on (gm_timeline.reported): record events behind the earlier ones. */
void gm_reuse_mark_streams(struct gm_reuse *reuse);
/* As gm_timeline_stream_wait. */
bool gm_reuse_stream_wait(struct gm_reuse *reuse, uint64_t stream, bool may_record,
			  int (*wait)(void *arg, uint64_t event), void *arg);

/* begins: a stream of @context (0: not known) is about to begin a capture, or to join one. ended: its capture has
 * ended. The calls nest. */
void gm_reuse_capture_begins(struct gm_reuse *reuse, uint32_t context);
void gm_reuse_capture_ended(struct gm_reuse *reuse, uint32_t context);

/* Call @fn with an event of each context behind all work submitted so far. Returns false if that is not possible, or if
 * @fn returned false. */
bool gm_reuse_behind_all(struct gm_reuse *reuse, bool (*fn)(void *arg, uint64_t event), void *arg);

/* The context of @owner's blocks ended: drop them from limbo, without a call of ops->complete. */
void gm_reuse_forget(struct gm_reuse *reuse, uint32_t owner);

/* Return the bytes of @owner's blocks in limbo; of all owners' for UINT32_MAX. */
uint64_t gm_reuse_limbo_bytes(struct gm_reuse *reuse, uint32_t owner);

#endif
