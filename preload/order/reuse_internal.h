/*
 * reuse_internal.h - what reuse.c (submissions), reuse_limbo.c (freed blocks) and reuse_wait.c (which threads wait for
 * them) share.
 *
 * Points grow over all instances in a process (a test makes several). So what a thread remembers of an earlier instance
 * is older than any point of this one.
 *
 *   a lane:   oldest ─> chunk ─> chunk ─> newest        each with frees of one point
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
	struct gm_reuse_chunk *oldest, *newest;	/* NULL: the lane is empty, and may be used for others */
	uint64_t stream;		/* its blocks were freed by cudaFreeAsync in this order; 0: by cudaFree */
	uint32_t context;		/* of the stream, or of the blocks; 0: not known, so all contexts count */
	bool taken;			/* a chunk of it is with ops->complete now */
};

struct gm_reuse {
	struct gm_reuse_ops ops;
	struct gm_reuse_hot *hot;	/* all members but others are written under limbo */
	struct gm_timeline time;
	struct gm_lock order;		/* rank capture */
	struct gm_lock retire;		/* rank capture; never with order. Held while blocks are completed. */
	struct gm_lock limbo;		/* a leaf */

	/* lock: limbo */
	struct gm_reuse_lane *lanes, *last;	/* @last: the lane of the last free */
	uint64_t lane_freed;		/* point of the last free that went to limbo */
	uint64_t freed_point;		/* point of the last free at which the driver would have waited */
	_Atomic(uint64_t) items;	/* blocks in limbo; also read without the lock */
	_Atomic(uint64_t) bytes, completed;	/* bytes in limbo; blocks completed so far */
	_Atomic(uint64_t) vain;		/* how often ops->complete took fewer blocks than offered */
	uint64_t *owner_bytes;
	uint32_t owners;		/* room in owner_bytes */
	struct gm_reuse_chunk *spare_chunks;
	uint32_t captures;
	_Atomic(bool) no_early;		/* never free early again: something writes, or submits work, unseen */
	bool open;			/* a block in limbo lacks a mark in some context */
	bool one_open;			/* no event covers the last early free yet */
	bool one_recording;		/* that event is being recorded */
	bool transition_on;
	uint64_t one_point;		/* point of the last early free */

	/* lock: order */
	uint64_t one_ticket;		/* the event of early frees, in single-stream mode; 0: none */
	_Atomic(uint64_t) one_covers;	/* point of the last early free that this event covers; 0: none */
	uint64_t transition;		/* that ticket, after the mode's end, while streams must wait for it; 0: none */
	uint64_t *waited;		/* keys of the streams that do so already */
	uint32_t waited_count, waited_room;
	uint64_t single_point;		/* point that was marked when the check for one stream began */
	uint32_t single_seals, single_wait;	/* seals since the check's last step; between two steps */
	bool single_on;			/* a check has begun */
};

static inline void *gm_reuse_memory(struct gm_reuse *reuse, size_t bytes)
{
	return reuse->ops.time.memory(reuse->ops.time.arg, bytes);
}

/* lock: limbo */
void gm_reuse_attention_locked(struct gm_reuse *reuse);

/* This thread made a free of point @point, at which the driver would have waited for @context (reuse_wait.c). */
void gm_reuse_note_own(uint32_t context, uint64_t point);

/* Seal: mark the frees so far. The caller holds the order lock. @how: NOW, SUBMISSION or LAZY (timeline.h). @anyway:
 * even if no block in limbo lacks a mark. */
void gm_reuse_seal_locked(struct gm_reuse *reuse, enum gm_mark_how how, bool anyway);
/* The transition's event is complete: no stream has to wait for it any more. The caller holds the order lock. */
void gm_reuse_transition_over_locked(struct gm_reuse *reuse);

#endif
