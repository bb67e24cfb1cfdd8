/*
 * late.c - the queue of frees that wait for the lock of their domain: see tables.h.
 *
 * The queue of a domain is a list through its blocks. Any thread adds to its head without a lock; only the holder of
 * the domain's lock takes blocks out.
 *
 * Thread context: any. Signal context: gm_late_add only. Lock: the domain's, except for gm_late_add.
 */
#include "recorder/record/tables.h"

#include <errno.h>

#define LATE_LAST UINT32_MAX		/* @late_next of the last block in the queue */
#define LATE_BATCH 64u			/* blocks freed in one hold of the lock */

static void push_late(struct gm_domain_state *state, struct gm_block *block, uint32_t id)
{
	uint32_t first = gm_get(&state->late);

	do
		gm_set(&block->late_next, first ? first : LATE_LAST);
	while (!atomic_compare_exchange_weak_explicit(&state->late, &first, id, memory_order_release,
						      memory_order_relaxed));
}

void gm_late_add(struct gm_block *block, uint32_t id, uint64_t stream, uint32_t stack, uint64_t late)
{
	uint8_t domain = __atomic_load_n(&block->domain, __ATOMIC_RELAXED);
	uint32_t none = 0;

	if (!atomic_compare_exchange_strong(&block->late_next, &none, LATE_LAST))
		return;
	/* These words need no undo entry, because they mean nothing until the block is pending. The stores are atomic,
	 * because a copy of the journal may be reading them. */
	__atomic_store_n(&block->free_stack, stack, __ATOMIC_RELAXED);
	__atomic_store_n(&block->free_stream, stream, __ATOMIC_RELAXED);
	__atomic_store_n(&block->late, late, __ATOMIC_RELAXED);
	push_late(&gm_rec.domain[domain], block, id);
}

/* Take the first block out of the queue. Returns its id; GM_NONE: the queue is empty. The compare-and-swap has no ABA
 * problem, because only this thread, which holds the lock, takes blocks out. */
static uint32_t pop_late(struct gm_domain_state *state)
{
	uint32_t id = gm_get_acquire(&state->late), next;

	do {
		if (!id)
			return GM_NONE;
		next = gm_get(&gm_rec.blocks[id].late_next);
	} while (!atomic_compare_exchange_weak_explicit(&state->late, &id, next == LATE_LAST ? GM_NONE : next,
							memory_order_acquire, memory_order_acquire));
	return id;
}

/* Free one block that was queued. Returns false when a lock was not free in time: queue the block again. */
static bool free_one_late(struct gm_change *change, uint32_t id)
{
	const struct gm_caches *caches = gm_get_acquire(&gm_rec.caches);
	struct gm_block *block = &gm_rec.blocks[id];

	if (gm_get(&block->state) == GM_BLOCK_UNUSED)
		return true;
	if (gm_get(&gm_rec.segments[block->segment].heap))
		return !caches || caches->free_late(change, id);
	change->op = gm_writer_op(&change->writer);
	return gm_remove_locked(change, (struct gm_pair_ids){ block->segment, id }, block->late, block->free_stream,
				block->free_stack) != -ETIMEDOUT;
}

bool gm_late_do(struct gm_change *change)
{
	struct gm_domain_state *state = &gm_rec.domain[change->number];

	for (unsigned int i = 0; i < LATE_BATCH; i++) {
		uint32_t id = pop_late(state);

		if (!id)
			return false;
		if (!free_one_late(change, id)) {
			push_late(state, &gm_rec.blocks[id], id);
			return false;
		}
		gm_set(&gm_rec.blocks[id].late_next, GM_NONE);
	}
	return true;
}

void gm_record_late_frees(uint8_t domain, uint64_t limit_ns)
{
	struct gm_domain_state *state = &gm_rec.domain[domain];
	struct gm_change change;
	bool more = true;

	while (more && gm_header_get() && gm_late_any(domain)) {
		gm_writer_enter(&change.writer);
		if (!gm_lock_within(&state->lock, change.writer.nested ? 0 : limit_ns)) {
			gm_writer_leave(&change.writer);
			return;
		}
		gm_change_place(&change, domain);
		more = gm_late_do(&change);
		gm_change_leave(&change);
	}
}
