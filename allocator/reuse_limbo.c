/*
 * reuse_limbo.c - freed blocks: taken in and completed. Who waits for them is in reuse_wait.c.
 *
 * The lock limbo guards the lists; retire is held while complete epochs are taken out and handed on, so
 * that whoever holds it knows that no block is on its way.
 *
 * Thread context: any. Signal context: none. See reuse.h.
 */
#include <stddef.h>
#include <string.h>

#include "allocator/reuse_internal.h"

/* ---- lists ------------------------------------------------------------------------------------- */

#define SLAB_BYTES 65536u

static struct gm_reuse_epoch *new_epoch_locked(struct gm_reuse *reuse)
{
	struct gm_reuse_epoch *epoch;

	if (!reuse->spare_epochs) {
		epoch = reuse->ops.memory(reuse->ops.arg, SLAB_BYTES / 8);
		for (unsigned int i = 0; epoch && i < SLAB_BYTES / 8 / sizeof(*epoch); i++) {
			epoch[i].next = reuse->spare_epochs;
			reuse->spare_epochs = &epoch[i];
		}
	}
	epoch = reuse->spare_epochs;
	if (!epoch)
		return NULL;
	reuse->spare_epochs = epoch->next;
	memset(epoch, 0, sizeof(*epoch));
	return epoch;
}

static struct gm_reuse_chunk *new_chunk_locked(struct gm_reuse *reuse)
{
	struct gm_reuse_chunk *chunk;

	if (!reuse->spare_chunks) {
		chunk = reuse->ops.memory(reuse->ops.arg, SLAB_BYTES);
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

void gm_reuse_spare_epoch_locked(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch)
{
	struct gm_reuse_chunk *chunk = epoch->chunks;

	while (chunk) {
		struct gm_reuse_chunk *next = chunk->next;

		chunk->next = reuse->spare_chunks;
		reuse->spare_chunks = chunk;
		chunk = next;
	}
	epoch->chunks = NULL;
	epoch->next = reuse->spare_epochs;
	reuse->spare_epochs = epoch;
}

static bool add_item_locked(struct gm_reuse *reuse, const struct gm_reuse_item *item)
{
	struct gm_reuse_epoch *epoch = reuse->open ? reuse->open : new_epoch_locked(reuse);
	struct gm_reuse_chunk *chunk;

	if (!epoch)
		return false;
	reuse->open = epoch;
	if (!epoch->chunks || epoch->chunks->count == GM_REUSE_CHUNK) {
		chunk = new_chunk_locked(reuse);
		if (!chunk)
			return false;
		chunk->next = epoch->chunks;
		epoch->chunks = chunk;
	}
	epoch->chunks->items[epoch->chunks->count++] = *item;
	epoch->stamp = reuse->stamp;
	return true;
}

/* @sign 1: @bytes more of @owner, -1: less. */
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
		table = reuse->ops.memory(reuse->ops.arg, owners * sizeof(*table));
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

void gm_reuse_append_locked(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch)
{
	epoch->next = NULL;
	if (reuse->newest)
		reuse->newest->next = epoch;
	else
		reuse->oldest = epoch;
	reuse->newest = epoch;
}

/* Its event could not be recorded: what was freed meanwhile joins it. */
void gm_reuse_reopen_locked(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch)
{
	struct gm_reuse_epoch *newer = reuse->open;
	struct gm_reuse_chunk **end;

	reuse->open = epoch;
	if (!newer)
		return;
	for (end = &newer->chunks; *end; end = &(*end)->next)
		;
	*end = epoch->chunks;		/* the newer one's first has room, any other may have */
	epoch->chunks = newer->chunks;
	epoch->stamp = newer->stamp;
	epoch->late |= newer->late;
	newer->chunks = NULL;
	gm_reuse_spare_epoch_locked(reuse, newer);
}

/* ---- frees ------------------------------------------------------------------------------------- */

static bool may_be_early_locked(const struct gm_reuse *reuse, uint32_t context, bool stream_ordered)
{
	if (reuse->hot->many || reuse->no_early)
		return false;
	if (gm_reuse_holds_locked(reuse))
		return false;
	if (!reuse->hot->stream)
		return true;		/* no work was ever submitted */
	/* The transition makes other streams wait for work that the driver's own free would not
	 * have waited for: not for these. */
	if (stream_ordered && gm_rule(GM_RULE_STREAM_FREE))
		return false;
	/* While the driver's own free waits it lets no other thread's call in that context through, so
	 * none can give a second stream what this one's work waits for. In another context it can. */
	return !gm_rule(GM_RULE_ONE_CONTEXT) ||
	       reuse->ops.is_only(reuse->ops.arg, context, reuse->hot->stream);
}

/* The early free of this thread whose marks still stand: nothing was submitted since. An owner has
 * one context, and its number is never another's. */
static __thread struct { uint64_t stamp; uint32_t owner; } again;

/* Would a free of @owner's be early, and change nothing? Without a lock: it is decided for the
 * moment of the look, and whoever submits meanwhile is in no order with the free. */
static inline bool is_early_again(const struct gm_reuse *reuse, uint32_t owner, bool stream_ordered)
{
	if (reuse->hot->many || reuse->no_early || reuse->hot->attention & GM_REUSE_CAPTURING)
		return false;
	if (!reuse->hot->stream)
		return true;		/* no work was ever submitted */
	return !stream_ordered && again.stamp == reuse->stamp && again.owner == owner;
}

bool gm_reuse_freed(struct gm_reuse *reuse, const struct gm_reuse_item *item, bool stream_ordered,
		    uint64_t *ret_early)
{
	uint32_t context;
	bool now;

	*ret_early = 0;
	if (!gm_rule(GM_RULE_LIMBO))
		return true;
	if (is_early_again(reuse, item->owner, stream_ordered))
		return true;
	context = reuse->ops.context_of(reuse->ops.arg, item->owner);
	if (!gm_lock(&reuse->limbo))
		return false;			/* never handed out again: safe */
	if (!stream_ordered || !gm_rule(GM_RULE_WAIT_HOST_FREES)) {
		gm_reuse_note_own(context, reuse->stamp);
		reuse->freed_stamp = reuse->stamp;
	}
	now = may_be_early_locked(reuse, context, stream_ordered);
	if (now && reuse->hot->stream) {
		reuse->one_open = true;
		reuse->one_stamp = reuse->stamp;
		*ret_early = reuse->hot->stream;
		if (!stream_ordered) {
			again.stamp = reuse->stamp;
			again.owner = item->owner;
		}
	} else if (!now && add_item_locked(reuse, item)) {
		account_locked(reuse, item, 1);
	} else if (!now) {		/* no room: it is never handed out again */
		reuse->stamp++;		/* no event marks this moment: nothing later shares it */
	}
	gm_reuse_attention_locked(reuse);
	gm_unlock(&reuse->limbo);
	return now;
}

/* ---- completion -------------------------------------------------------------------------------- */

static void account_all_locked(struct gm_reuse *reuse, const struct gm_reuse_epoch *epoch, int sign)
{
	for (const struct gm_reuse_chunk *chunk = epoch->chunks; chunk; chunk = chunk->next)
		for (uint64_t i = 0; i < chunk->count; i++)
			account_locked(reuse, &chunk->items[i], sign);
}

/* What can be handed on of @epoch now is no item of it any more. Returns how many. */
static size_t hand_on(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch)
{
	size_t count = 0, done;

	for (struct gm_reuse_chunk *chunk = epoch->chunks; chunk; chunk = chunk->next) {
		done = chunk->count ? reuse->ops.complete(reuse->ops.arg, chunk->items, chunk->count) : 0;
		chunk->count -= done;
		count += done;
		if (chunk->count) {
			memmove(chunk->items, chunk->items + done, chunk->count * sizeof(*chunk->items));
			break;
		}
	}
	return count;
}

static bool has_items(const struct gm_reuse_epoch *epoch)
{
	const struct gm_reuse_chunk *chunk = epoch->chunks;

	while (chunk && !chunk->count)
		chunk = chunk->next;
	return chunk;
}

/* The oldest epoch, taken out and handed on; what could not be is the oldest one again, and false is
 * returned. Adds to @count. The retire lock held. */
static bool complete_oldest(struct gm_reuse *reuse, size_t *count)
{
	struct gm_reuse_epoch *epoch;
	uint64_t ticket;
	size_t done;
	bool kept;

	if (!gm_lock(&reuse->limbo))
		return false;
	epoch = reuse->oldest;
	reuse->oldest = epoch->next;
	if (!reuse->oldest)
		reuse->newest = NULL;
	ticket = epoch->ticket;
	account_all_locked(reuse, epoch, -1);
	gm_unlock(&reuse->limbo);
	done = hand_on(reuse, epoch);
	*count += done;
	reuse->completed += done;
	if (!gm_lock(&reuse->limbo))
		return false;
	if (has_items(epoch)) {
		account_all_locked(reuse, epoch, 1);
		reuse->vain++;
		epoch->next = reuse->oldest;
		reuse->oldest = epoch;
		if (!reuse->newest)
			reuse->newest = epoch;
		gm_unlock(&reuse->limbo);
		return false;
	}
	kept = epoch->waiters > 0;
	epoch->gone = true;
	if (!kept)
		gm_reuse_spare_epoch_locked(reuse, epoch);
	gm_unlock(&reuse->limbo);
	if (!kept && ticket)
		reuse->ops.drop(reuse->ops.arg, ticket);
	return true;
}

/* Epochs become complete in their order: each has an event of every context that the ones before
 * it have one of. The retire lock held. */
static size_t complete_some(struct gm_reuse *reuse)
{
	size_t count = 0;
	uint64_t ticket;
	bool any;

	for (;;) {
		if (!gm_lock(&reuse->limbo))
			return count;
		any = reuse->oldest != NULL;
		ticket = any ? reuse->oldest->ticket : 0;
		gm_unlock(&reuse->limbo);
		if (!any || (ticket && reuse->ops.query(reuse->ops.arg, ticket) != 1) ||
		    !complete_oldest(reuse, &count))
			return count;
	}
}

/* The open epoch's event now, if nothing was submitted since its last free; a late one's anyway. */
static void seal(struct gm_reuse *reuse, bool patiently)
{
	if (patiently ? !gm_lock(&reuse->order) : !gm_lock_try(&reuse->order))
		return;
	gm_reuse_seal_locked(reuse, false, false);
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

/* ---- the program's own waiting; ends ----------------------------------------------------------- */

uint64_t gm_reuse_sync_begin(struct gm_reuse *reuse)
{
	uint64_t stamp;

	if (reuse->items)
		seal(reuse, true);
	if (!gm_lock(&reuse->limbo))
		return 0;
	stamp = reuse->stamp++;
	gm_unlock(&reuse->limbo);
	return stamp;
}

/* What was freed early before @begun needs no event and no transition any more. */
static void single_synchronised(struct gm_reuse *reuse, uint64_t begun)
{
	if (!gm_lock(&reuse->order))
		return;
	if (reuse->one_covers <= begun) {
		reuse->one_covers = 0;
		gm_reuse_transition_over_locked(reuse);
	}
	if (gm_lock(&reuse->limbo)) {
		if (reuse->one_open && reuse->one_stamp <= begun)
			reuse->one_open = false;
		gm_reuse_attention_locked(reuse);
		gm_unlock(&reuse->limbo);
	}
	gm_unlock(&reuse->order);
}

/* An epoch whose frees all came before @begun. The retire lock held. */
static bool complete_until(struct gm_reuse *reuse, uint64_t begun)
{
	size_t count = 0;
	bool any;

	if (!gm_lock(&reuse->limbo))
		return false;
	any = reuse->oldest && reuse->oldest->stamp <= begun && !gm_reuse_holds_locked(reuse);
	gm_unlock(&reuse->limbo);
	return any && complete_oldest(reuse, &count);
}

void gm_reuse_sync_done(struct gm_reuse *reuse, uint64_t begun)
{
	if (!begun)
		return;
	if (reuse->one_covers || (reuse->hot->attention & GM_REUSE_OPEN))
		single_synchronised(reuse, begun);
	if (!reuse->items || !gm_lock(&reuse->retire))
		return;
	while (complete_until(reuse, begun))
		;
	gm_unlock(&reuse->retire);
}

static void forget_in_locked(struct gm_reuse *reuse, struct gm_reuse_epoch *epoch, uint32_t owner)
{
	for (struct gm_reuse_chunk *chunk = epoch ? epoch->chunks : NULL; chunk; chunk = chunk->next) {
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
	bool retire = gm_lock(&reuse->retire);	/* nothing of it is on its way any more */

	if (gm_lock(&reuse->limbo)) {
		for (struct gm_reuse_epoch *epoch = reuse->oldest; epoch; epoch = epoch->next)
			forget_in_locked(reuse, epoch, owner);
		forget_in_locked(reuse, reuse->closing, owner);
		forget_in_locked(reuse, reuse->open, owner);
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
