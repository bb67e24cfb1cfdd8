/*
 * reuse_limbo.c - freed blocks: they enter limbo, and are completed when the GPU has passed them. reuse_wait.c says
 * which threads wait for them.
 *
 * The lock limbo guards the lanes. retire is held while passed blocks are taken off and given to ops->complete, so its
 * holder knows that no block is on its way.
 *
 * Thread context: any. Signal context: none. See reuse.h.
 */
#include <stddef.h>
#include <string.h>

#include "preload/order/reuse_internal.h"

/* ---- lists ------------------------------------------------------------------------------------- */

#ifndef SLAB_BYTES			/* test_timeline.c copies all memory in each step, and has smaller pieces */
#define SLAB_BYTES 65536u
#endif

static struct gm_reuse_chunk *new_chunk_locked(struct gm_reuse *reuse)
{
	struct gm_reuse_chunk *chunk;

	if (!reuse->spare_chunks) {
		chunk = gm_reuse_memory(reuse, SLAB_BYTES);
		for (unsigned int i = 0; chunk && i < SLAB_BYTES / sizeof(*chunk); i++) {
			chunk[i].next = reuse->spare_chunks;
			reuse->spare_chunks = &chunk[i];
		}
	}
	chunk = reuse->spare_chunks;
	if (!chunk)
		return NULL;
	reuse->spare_chunks = chunk->next;
	chunk->next = NULL;
	chunk->count = 0;
	return chunk;
}

static void spare_chunk_locked(struct gm_reuse *reuse, struct gm_reuse_chunk *chunk)
{
	chunk->next = reuse->spare_chunks;
	reuse->spare_chunks = chunk;
}

static bool is_lane(const struct gm_reuse_lane *lane, uint32_t context, uint64_t stream)
{
	return lane && lane->context == context && lane->stream == stream;
}

/* Return the lane of such frees: an existing one, an empty one, or a new one; NULL: out of memory. There are at most as
 * many lanes as contexts and streams had blocks in limbo at one time. */
static struct gm_reuse_lane *lane_locked(struct gm_reuse *reuse, uint32_t context, uint64_t stream)
{
	struct gm_reuse_lane *lane, *unused = NULL;

	if (is_lane(reuse->last, context, stream))
		return reuse->last;
	for (lane = reuse->lanes; lane && !is_lane(lane, context, stream); lane = lane->next)
		if (!lane->oldest && !lane->taken)
			unused = lane;
	if (!lane && !unused) {
		unused = gm_reuse_memory(reuse, sizeof(*unused));
		if (!unused)
			return NULL;
		unused->next = reuse->lanes;
		reuse->lanes = unused;
	}
	if (!lane) {
		lane = unused;
		lane->context = context;
		lane->stream = stream;
	}
	reuse->last = lane;
	return lane;
}

static void append_locked(struct gm_reuse_lane *lane, struct gm_reuse_chunk *chunk)
{
	if (lane->newest)
		lane->newest->next = chunk;
	else
		lane->oldest = chunk;
	lane->newest = chunk;
}

static bool add_item_locked(struct gm_reuse *reuse, const struct gm_reuse_item *item, uint32_t context, uint64_t stream)
{
	struct gm_reuse_lane *lane = lane_locked(reuse, context, stream);
	uint64_t point = gm_timeline_free(&reuse->time);
	struct gm_reuse_chunk *chunk;

	if (!lane)
		return false;
	chunk = lane->newest;
	if (!chunk || chunk->point != point || chunk->count == GM_REUSE_CHUNK) {
		chunk = new_chunk_locked(reuse);
		if (!chunk)
			return false;
		chunk->point = point;
		append_locked(lane, chunk);
	}
	chunk->items[chunk->count++] = *item;
	reuse->lane_freed = point;
	reuse->open = true;
	return true;
}

/* @sign 1: add @item to the counters; -1: subtract it. */
static void account_locked(struct gm_reuse *reuse, const struct gm_reuse_item *item, int sign)
{
	uint64_t bytes = sign > 0 ? item->bytes : 0 - item->bytes;

	reuse->items += sign > 0 ? 1 : UINT64_MAX;
	reuse->bytes += bytes;
	if (item->owner >= reuse->owners && sign > 0) {
		uint32_t owners = reuse->owners ? reuse->owners : 512;
		uint64_t *table;

		while (owners <= item->owner && owners < UINT32_MAX / 2)
			owners *= 2;
		table = gm_reuse_memory(reuse, owners * sizeof(*table));
		if (!table)
			return;
		if (reuse->owners)
			memcpy(table, reuse->owner_bytes, reuse->owners * sizeof(*table));
		reuse->owner_bytes = table;
		reuse->owners = owners;
	}
	if (item->owner < reuse->owners)
		reuse->owner_bytes[item->owner] += bytes;
}

/* ---- frees ------------------------------------------------------------------------------------- */

static bool may_be_early_locked(const struct gm_reuse *reuse, uint32_t context, bool stream_ordered)
{
	if (reuse->hot->many || reuse->no_early)
		return false;
	if (reuse->captures && gm_rule(GM_RULE_CAPTURE_HOLD))
		return false;
	if (!reuse->hot->stream)
		return true;		/* no work was ever submitted */
	/* The transition makes other streams wait for work before the free. The driver's own cudaFreeAsync would not
	 * make them wait for that. */
	if (stream_ordered && gm_rule(GM_RULE_STREAM_FREE))
		return false;
	/* While the driver's own cudaFree waits, it blocks other threads' calls in that context. So no such call can
	 * give a second stream the work that this stream's work waits for. A call in another context can. */
	return !gm_rule(GM_RULE_ONE_CONTEXT) ||
	       reuse->ops.is_only(reuse->ops.arg, context, reuse->hot->stream);
}

/* The last early free of this thread. If its point is still the present one, nothing was submitted since. An owner has
 * one context, and its number is never used again. */
static __thread struct { uint64_t point; uint32_t owner; } again;

/* Lock-free check: can this free be reused at once without changing shared state? A submission that races with it is
 * unordered with the free, so either answer is correct. */
static inline bool is_early_again(const struct gm_reuse *reuse, uint32_t owner, bool stream_ordered)
{
	if (reuse->hot->many || reuse->no_early || reuse->hot->attention & GM_REUSE_CAPTURING)
		return false;
	if (!reuse->hot->stream)
		return true;		/* no work was ever submitted */
	return !stream_ordered && again.point == reuse->time.now && again.owner == owner;
}

bool gm_reuse_freed(struct gm_reuse *reuse, const struct gm_reuse_item *item, uint64_t stream, uint32_t context,
		    uint64_t *ret_early)
{
	bool now, ordered = stream != 0;

	*ret_early = 0;
	if (!gm_rule(GM_RULE_LIMBO))
		return true;
	if (is_early_again(reuse, item->owner, ordered))
		return true;
	if (!ordered)
		context = reuse->ops.context_of(reuse->ops.arg, item->owner);
	if (!gm_lock(&reuse->limbo))
		return false;			/* the block is never handed out again: safe */
	if (!ordered || !gm_rule(GM_RULE_WAIT_HOST_FREES)) {
		gm_reuse_note_own(context, reuse->time.now);
		reuse->freed_point = reuse->time.now;
	}
	now = may_be_early_locked(reuse, context, ordered);
	if (now && reuse->hot->stream) {
		reuse->one_open = true;
		reuse->one_point = reuse->time.now;
		*ret_early = reuse->hot->stream;
		if (!ordered) {
			again.point = reuse->time.now;
			again.owner = item->owner;
		}
	} else if (!now && add_item_locked(reuse, item, context, stream)) {
		account_locked(reuse, item, 1);
	} else if (!now) {		/* no room in limbo: the block is never handed out again */
		reuse->time.now++;	/* no event marks this point: later frees must not share it */
	}
	gm_reuse_attention_locked(reuse);
	gm_unlock(&reuse->limbo);
	return now;
}

/* ---- completion -------------------------------------------------------------------------------- */

/* Return the point of the first block in @lane; 0: it is empty. */
static uint64_t first_point(struct gm_reuse *reuse, const struct gm_reuse_lane *lane)
{
	uint64_t point;

	if (!gm_lock(&reuse->limbo))
		return 0;
	point = lane->oldest ? lane->oldest->point : 0;
	gm_unlock(&reuse->limbo);
	return point;
}

/* Return the point that the GPU has passed, as far as the blocks of @lane need it. */
static uint64_t lane_passed(struct gm_reuse *reuse, const struct gm_reuse_lane *lane)
{
	uint64_t context, stream;

	if (!lane->stream || !gm_rule(GM_RULE_OWN_CONTEXT))
		return gm_timeline_passed_by_all(&reuse->time, lane->context);
	context = gm_timeline_passed(&reuse->time, lane->context);
	if (!gm_rule(GM_RULE_OWN_STREAM) || first_point(reuse, lane) <= context)
		return context;
	stream = gm_timeline_stream_look(&reuse->time, lane->stream, gm_reuse_before(reuse));
	return stream > context ? stream : context;
}

static void account_all_locked(struct gm_reuse *reuse, const struct gm_reuse_chunk *chunk, int sign)
{
	for (uint64_t i = 0; i < chunk->count; i++)
		account_locked(reuse, &chunk->items[i], sign);
}

/* Take the first chunk off @lane, if its point is @passed or an earlier one; else return NULL. */
static struct gm_reuse_chunk *take_chunk(struct gm_reuse *reuse, struct gm_reuse_lane *lane, uint64_t passed)
{
	struct gm_reuse_chunk *chunk;

	if (!gm_lock(&reuse->limbo))
		return NULL;
	chunk = lane->oldest;
	if (chunk && chunk->point <= passed) {
		lane->oldest = chunk->next;
		if (!lane->oldest)
			lane->newest = NULL;
		lane->taken = true;
		account_all_locked(reuse, chunk, -1);
	} else {
		chunk = NULL;
	}
	gm_unlock(&reuse->limbo);
	return chunk;
}

/* Put @chunk back after ops->complete: to the front of @lane if it still has blocks, else to the spare chunks. */
static void put_chunk(struct gm_reuse *reuse, struct gm_reuse_lane *lane, struct gm_reuse_chunk *chunk)
{
	if (!gm_lock(&reuse->limbo))
		return;
	lane->taken = false;
	if (!chunk->count) {
		spare_chunk_locked(reuse, chunk);
	} else {
		account_all_locked(reuse, chunk, 1);
		reuse->vain++;
		chunk->next = lane->oldest;
		lane->oldest = chunk;
		if (!lane->newest)
			lane->newest = chunk;
	}
	gm_unlock(&reuse->limbo);
}

/* The lane's context and stream do not change meanwhile, because it has blocks, or one of its chunks is taken. The
 * caller holds the retire lock. */
static size_t complete_lane(struct gm_reuse *reuse, struct gm_reuse_lane *lane)
{
	uint64_t passed = lane_passed(reuse, lane);
	struct gm_reuse_chunk *chunk;
	size_t count = 0, done;
	bool more = true;

	while (more && (chunk = take_chunk(reuse, lane, passed))) {
		done = chunk->count ? reuse->ops.complete(reuse->ops.arg, chunk->items, chunk->count) : 0;
		chunk->count -= done;
		more = !chunk->count;
		if (!more)
			memmove(chunk->items, chunk->items + done, chunk->count * sizeof(*chunk->items));
		put_chunk(reuse, lane, chunk);
		count += done;
		reuse->completed += done;
	}
	return count;
}

/* Return the first lane after @lane (NULL: of all) that has blocks. Lanes are never taken off their list. */
static struct gm_reuse_lane *next_lane(struct gm_reuse *reuse, struct gm_reuse_lane *lane)
{
	if (!gm_lock(&reuse->limbo))
		return NULL;
	lane = lane ? lane->next : reuse->lanes;
	while (lane && !lane->oldest)
		lane = lane->next;
	gm_unlock(&reuse->limbo);
	return lane;
}

/* Complete all blocks whose point is known to be passed. The caller holds the retire lock. */
static size_t complete_passed(struct gm_reuse *reuse)
{
	size_t count = 0;

	for (struct gm_reuse_lane *lane = NULL; (lane = next_lane(reuse, lane));)
		count += complete_lane(reuse, lane);
	return count;
}

static size_t complete_some(struct gm_reuse *reuse)
{
	gm_timeline_poll(&reuse->time);
	return complete_passed(reuse);
}

/* Record the missing marks: of frees with no submission after them, and of those where a capture forbade the mark. End
 * the transition if its event is complete. @patiently: wait for the order lock. */
static void seal(struct gm_reuse *reuse, bool patiently)
{
	if (patiently ? !gm_lock(&reuse->order) : !gm_lock_try(&reuse->order))
		return;
	gm_reuse_seal_locked(reuse, GM_MARK_NOW, false);
	if (reuse->transition && reuse->ops.query(reuse->ops.arg, reuse->transition) == 1)
		gm_reuse_transition_over_locked(reuse);
	gm_unlock(&reuse->order);
}

size_t gm_reuse_poll(struct gm_reuse *reuse)
{
	size_t count;

	if (!reuse->items && !(reuse->hot->attention & GM_REUSE_TRANSITION))
		return 0;
	if (reuse->hot->attention & (GM_REUSE_OPEN | GM_REUSE_TRANSITION))
		seal(reuse, false);
	if (!gm_lock_try(&reuse->retire))
		return 0;
	count = complete_some(reuse);
	gm_unlock(&reuse->retire);
	return count;
}

size_t gm_reuse_poll_all(struct gm_reuse *reuse)
{
	size_t count;

	seal(reuse, true);
	if (!gm_lock(&reuse->retire))
		return 0;
	count = complete_some(reuse);
	gm_unlock(&reuse->retire);
	return count;
}

void gm_reuse_look(struct gm_reuse *reuse)
{
	if (gm_timeline_unmarked(&reuse->time) && gm_lock_try(&reuse->order)) {
		gm_reuse_seal_locked(reuse, GM_MARK_LAZY, true);
		gm_unlock(&reuse->order);
	}
	if (!gm_lock_try(&reuse->retire))
		return;
	complete_some(reuse);
	gm_unlock(&reuse->retire);
}

/* ---- waits of the program; ends of owners ------------------------------------------------------ */

uint64_t gm_reuse_sync_begin(struct gm_reuse *reuse)
{
	if (reuse->items)
		seal(reuse, true);
	return gm_reuse_turn(reuse);
}

/* Early frees up to @begun need no event and no transition any more. */
static void single_synchronised(struct gm_reuse *reuse, uint64_t begun)
{
	if (!gm_lock(&reuse->order))
		return;
	if (reuse->one_covers <= begun) {
		reuse->one_covers = 0;
		gm_reuse_transition_over_locked(reuse);
	}
	if (gm_lock(&reuse->limbo)) {
		if (reuse->one_open && reuse->one_point <= begun)
			reuse->one_open = false;
		gm_reuse_attention_locked(reuse);
		gm_unlock(&reuse->limbo);
	}
	gm_unlock(&reuse->order);
}

void gm_reuse_sync_done(struct gm_reuse *reuse, uint32_t context, uint64_t begun)
{
	if (!begun)
		return;
	if ((reuse->one_covers || (reuse->hot->attention & GM_REUSE_OPEN)) &&
	    (!context || reuse->ops.is_only(reuse->ops.arg, context, reuse->hot->stream)))
		single_synchronised(reuse, begun);
	gm_timeline_pass(&reuse->time, context, begun);
	if (!reuse->items || !gm_lock(&reuse->retire))
		return;
	complete_passed(reuse);
	gm_unlock(&reuse->retire);
}

static void forget_in_locked(struct gm_reuse *reuse, struct gm_reuse_lane *lane, uint32_t owner)
{
	for (struct gm_reuse_chunk *chunk = lane->oldest; chunk; chunk = chunk->next) {
		uint64_t kept = 0;

		for (uint64_t i = 0; i < chunk->count; i++) {
			if (chunk->items[i].owner == owner)
				account_locked(reuse, &chunk->items[i], -1);
			else
				chunk->items[kept++] = chunk->items[i];
		}
		chunk->count = kept;
	}
}

void gm_reuse_forget(struct gm_reuse *reuse, uint32_t owner)
{
	bool retire = gm_lock(&reuse->retire);	/* then no block of @owner is on its way to ops->complete */

	if (gm_lock(&reuse->limbo)) {
		for (struct gm_reuse_lane *lane = reuse->lanes; lane; lane = lane->next)
			forget_in_locked(reuse, lane, owner);
		gm_unlock(&reuse->limbo);
	}
	if (retire)
		gm_unlock(&reuse->retire);
}

uint64_t gm_reuse_limbo_bytes(struct gm_reuse *reuse, uint32_t owner)
{
	uint64_t bytes = 0;

	if (owner == UINT32_MAX)
		return reuse->bytes;
	if (!gm_lock(&reuse->limbo))
		return 0;
	if (owner < reuse->owners)
		bytes = reuse->owner_bytes[owner];
	gm_unlock(&reuse->limbo);
	return bytes;
}
