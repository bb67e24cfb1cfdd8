/*
 * reuse_internal.h - what reuse.c (submissions), reuse_limbo.c (freed blocks) and reuse_wait.c
 * (which threads wait for them) share.
 *
 * Points rise over all instances in a process (a test makes several), so that what a
 * thread remembers of an earlier instance is older than any point of this one.
 *
 *   a lane:   oldest ─> chunk ─> chunk ─> newest        each of frees of one point
 */
#ifndef GM_PRELOAD_REUSE_INTERNAL_H
#define GM_PRELOAD_REUSE_INTERNAL_H

#include "allocator/lock.h"
#include "allocator/rules.h"
#include "preload/order/reuse.h"

#define GM_REUSE_CHUNK 31u

struct gm_reuse_chunk {
	struct gm_reuse_chunk *next;
	uint64_t point;
	uint64_t count;
	struct gm_reuse_item items[GM_REUSE_CHUNK];
};

struct gm_reuse_lane {
	struct gm_reuse_lane *next;
	struct gm_reuse_chunk *oldest, *newest;	/* NULL: the lane is unused */
	uint64_t stream;		/* freed in its order, by cudaFreeAsync; 0: by cudaFree */
	uint32_t context;		/* that of the stream, or of the blocks; 0: not known: every one */
	bool taken;			/* a chunk of it is being handed on */
};

struct gm_reuse {
	struct gm_reuse_ops ops;
	struct gm_reuse_hot *hot;	/* all but others: written under limbo */
	struct gm_timeline time;
	struct gm_lock order;		/* rank capture */
	struct gm_lock retire;		/* rank capture; never with order. Completions. */
	struct gm_lock limbo;		/* a leaf */

	/* lock: limbo */
	struct gm_reuse_lane *lanes, *last;	/* and the one that the last free went to */
	uint64_t lane_freed;		/* the point of the last free that is in limbo */
	uint64_t freed_point;		/* of the last free that the driver would have waited at */
	_Atomic(uint64_t) items;	/* blocks in limbo; read without the lock, too */
	_Atomic(uint64_t) bytes, completed;	/* bytes in limbo; blocks completed ever */
	_Atomic(uint64_t) vain;		/* how often ops->complete took back fewer blocks than it was given */
	uint64_t *owner_bytes;
	uint32_t owners;		/* room in owner_bytes */
	struct gm_reuse_chunk *spare_chunks;
	uint32_t captures;
	_Atomic(bool) no_early;		/* nothing is handed out early any more: something writes, or submits, unseen */
	bool open;			/* something in limbo lacks a mark in some context */
	bool one_open;			/* frees in single-stream mode that no event covers yet */
	bool one_recording;		/* that event is being recorded */
	bool transition_on;
	uint64_t one_point;		/* of the last early free */

	/* lock: order */
	uint64_t one_ticket;		/* recorded anew in single-stream mode; 0: none */
	_Atomic(uint64_t) one_covers;	/* point of the last early free that it covers; 0: none */
	uint64_t transition;		/* its ticket while streams have to wait for it */
	uint64_t *waited;		/* keys of the streams that do */
	uint32_t waited_count, waited_room;
	uint64_t single_point;		/* marked when the check for one stream began */
	uint32_t single_seals, single_wait;	/* seals since its last step; from one step to the next */
	bool single_on;			/* such a check has begun */
};

static inline void *gm_reuse_memory(struct gm_reuse *reuse, size_t bytes)
{
	return reuse->ops.time.memory(reuse->ops.time.arg, bytes);
}

/* lock: limbo */
void gm_reuse_attention_locked(struct gm_reuse *reuse);

/* This thread made a free, of point @point, at which the driver would have waited for @context
 * (reuse_wait.c). */
void gm_reuse_note_own(uint32_t context, uint64_t point);

/* Mark what was freed; the order lock is held. @how: NOW, SUBMISSION or LAZY (timeline.h). @anyway: though
 * nothing in limbo lacks its mark. */
void gm_reuse_seal_locked(struct gm_reuse *reuse, enum gm_mark_how how, bool anyway);
/* The transition's event is complete: no stream has to wait for it any more. The order lock is
 * held. */
void gm_reuse_transition_over_locked(struct gm_reuse *reuse);

#endif
