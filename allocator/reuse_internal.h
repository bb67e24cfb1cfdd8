/*
 * reuse_internal.h - what reuse.c (submissions), reuse_limbo.c (freed blocks) and reuse_wait.c
 * (which threads wait for them) share.
 *
 * Stamps: a count that rises with each seal. A free carries the stamp of its time, an epoch that of
 * its last free. Stamps rise over all instances in a process (a test makes several), so that what a
 * thread remembers of an earlier instance is older than any stamp of this one.
 *
 *   oldest ─> sealed ─> sealed ─> newest        closing (its event is being recorded)      open
 */
#ifndef GM_ALLOCATOR_REUSE_INTERNAL_H
#define GM_ALLOCATOR_REUSE_INTERNAL_H

#include "allocator/lock.h"
#include "allocator/reuse.h"
#include "allocator/rules.h"

#define GM_REUSE_CHUNK 31u

struct gm_reuse_chunk {
	struct gm_reuse_chunk *next;
	uint64_t count;
	struct gm_reuse_item items[GM_REUSE_CHUNK];
};

struct gm_reuse_epoch {
	struct gm_reuse_epoch *next;
	struct gm_reuse_chunk *chunks;	/* the newest first; only that one may have room */
	uint64_t stamp;			/* of its last free */
	uint64_t ticket;		/* once sealed; 0: complete from the beginning */
	uint32_t waiters;		/* threads that wait for the ticket: the epoch stays for them */
	bool late;			/* work was submitted between its last free and its event */
	bool gone;			/* it was completed while threads waited for it */
};

struct gm_reuse {
	struct gm_reuse_ops ops;
	struct gm_reuse_hot *hot;	/* all but others: written under limbo */
	struct gm_lock order;		/* rank capture */
	struct gm_lock retire;		/* rank capture; never with order. Completions. */
	struct gm_lock limbo;		/* a leaf */

	/* lock: limbo */
	struct gm_reuse_epoch *open, *closing, *oldest, *newest;
	_Atomic(uint64_t) stamp;
	uint64_t freed_stamp;		/* of the last free that the driver would have waited at */
	_Atomic(uint64_t) items;	/* blocks in limbo; read without the lock, too */
	_Atomic(uint64_t) bytes, completed;	/* bytes in limbo; blocks completed ever */
	_Atomic(uint64_t) vain;		/* how often ops->complete took back fewer blocks than it was given */
	uint64_t *owner_bytes;
	uint32_t owners;		/* room in owner_bytes */
	struct gm_reuse_chunk *spare_chunks;
	struct gm_reuse_epoch *spare_epochs;
	uint32_t captures;
	_Atomic(bool) no_early;		/* nothing is handed out early any more: something writes, or submits, unseen */
	bool one_open;			/* frees in single-stream mode that no event covers yet */
	bool one_recording;		/* that event is being recorded */
	bool transition_on;
	uint64_t one_stamp;		/* of the last early free */

	/* lock: order */
	uint64_t one_ticket;		/* recorded anew in single-stream mode; 0: none */
	_Atomic(uint64_t) one_covers;	/* stamp of the last early free that it covers; 0: none */
	uint64_t transition;		/* its ticket while streams have to wait for it */
	uint64_t *waited;		/* keys of the streams that do */
	uint32_t waited_count, waited_room;
	uint64_t single_ticket;		/* of the check for one stream that has begun */
	uint32_t single_seals, single_wait;	/* seals since its last step; from one step to the next */
	bool single_on;			/* such a check has begun */
};

/* Does a capture keep what is freed in limbo until it ends? lock: limbo */
static inline bool gm_reuse_holds_locked(const struct gm_reuse *reuse)
{
	return reuse->captures && gm_rule(GM_RULE_CAPTURE_HOLD);
}

/* lock: limbo */
void gm_reuse_attention_locked(struct gm_reuse *reuse);
void gm_reuse_append_locked(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch);
void gm_reuse_reopen_locked(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch);

void gm_reuse_spare_epoch_locked(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch);

/* This thread made a free, of stamp @stamp, at which the driver would have waited for @context
 * (reuse_wait.c). */
void gm_reuse_note_own(uint32_t context, uint64_t stamp);

/* Record the event of the open epoch; the order lock is held. @submission: work is submitted next,
 * whether or not the event could be recorded. @begins: a capture is about to begin. */
void gm_reuse_seal_locked(struct gm_reuse *reuse, bool submission, bool begins);
/* The transition's event is complete: no stream has to wait for it any more. The order lock is
 * held. */
void gm_reuse_transition_over_locked(struct gm_reuse *reuse);

#endif
