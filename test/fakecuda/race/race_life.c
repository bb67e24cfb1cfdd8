/*
 * race_life.c - which block a byte belongs to, and in which of its lives.
 *
 * A sub-allocator above the driver announces its blocks; where it does, a block bounds what a
 * pointer may touch, and handing it out again begins a new life. Elsewhere the driver's allocation
 * is the block. Bytes of an allocation between announced blocks belong to the allocation's own
 * life: what the sub-allocator itself does with them.
 *
 * All under fc.lock; the control calls take it.
 */
#include "test/fakecuda/race/race.h"

#include <stdlib.h>

static struct race_tree blocks;
static uint64_t last_life;

static struct race_block *block_of(struct race_node *n)
{
	return (struct race_block *)n;		/* its first member */
}

static uint64_t life_of(struct fc_alloc *a)
{
	if (!a->race)
		a->race = (void *)(uintptr_t)++last_life;
	return (uintptr_t)a->race;
}

bool race_block_at(uint64_t ptr, uint64_t *ret_start, uint64_t *ret_end, uint64_t *ret_life)
{
	struct fc_alloc *a = fc_alloc_find(ptr);
	struct race_node **near;
	size_t n;

	if (!a)
		return false;
	near = race_tree_find(&blocks, ptr, ptr + 1, &n);
	if (n) {
		*ret_start = near[0]->start;
		*ret_end = near[0]->end;
		*ret_life = block_of(near[0])->life;
		return true;
	}
	*ret_start = a->base;
	*ret_end = a->base + (a->reserved > a->size ? a->reserved : a->size);
	*ret_life = life_of(a);
	near = race_tree_find(&blocks, *ret_start, *ret_end, &n);
	for (size_t i = 0; i < n; i++) {
		if (near[i]->end <= ptr)
			*ret_start = near[i]->end;
		else if (near[i]->start < *ret_end)
			*ret_end = near[i]->start;
	}
	return true;
}

void race_life_begin(struct fc_alloc *a)
{
	race_life_forget(a->base, a->base + a->size);
	a->race = (void *)(uintptr_t)++last_life;
}

void race_life_forget(uint64_t start, uint64_t end)
{
	size_t n;
	struct race_node **near = race_tree_find(&blocks, start, end, &n);

	for (size_t i = 0; i < n; i++) {
		race_tree_remove(&blocks, near[i]);
		free(block_of(near[i]));
	}
}

void race_life_reset(void)
{
	race_life_forget(0, UINT64_MAX);
}

/* ---- the driver's own ---- */

void fc_race_alloc(struct fc_alloc *a, struct fc_op *op)
{
	struct race_op *ro = op ? op->race : NULL;

	if (!race_on())
		return;
	race_life_begin(a);
	race_host_acquire();
	/* The driver knows when its own memory is free again: whatever made it sure of that orders
	 * the stream's next work, or the host, after the old uses. */
	if (ro)
		race_access_frees(a->base, a->base + a->size, &ro->end);
	else
		race_access_drop(a->base, a->base + a->size);
}

/* A stream-ordered free: @a may have left the tree already. */
static void free_in_order(const struct fc_alloc *a, uint64_t life, struct fc_op *op)
{
	struct race_op *ro = race_of(op);

	if (!ro || !race_op_use(ro, a->base, a->base + a->size, life, RACE_FREE))
		return;
	if (ro->start_ok)
		race_access_start(ro, &ro->uses[ro->n_uses - 1]);
}

void fc_race_free(struct fc_alloc *a, struct fc_op *op)
{
	if (!race_on())
		return;
	race_host_release();
	if (op) {
		race_life_forget(a->base, a->base + a->size);
		free_in_order(a, life_of(a), op);
	} else {
		fc_race_unmap(a->base, a->size);
	}
}

void fc_race_unmap(uint64_t ptr, size_t size)
{
	if (!race_on())
		return;
	race_access_freed(ptr, ptr + size, race_host_vc(), fc_tls.entry ? fc_tls.entry : "free");
	race_access_drop(ptr, ptr + size);
	race_life_forget(ptr, ptr + size);
}

/* ---- a sub-allocator's ---- */

FC_EXPORT void fakecuda_note_alloc(uint64_t ptr, size_t size)
{
	struct race_block *b;

	if (!size)
		return;
	fc_enter_control();
	race_life_forget(ptr, ptr + size);
	b = calloc(1, sizeof(*b));
	if (b) {
		b->node.start = ptr;
		b->node.end = ptr + size;
		b->life = ++last_life;
		race_tree_add(&blocks, &b->node);
		race_host_acquire();
	} else {
		race_broken();
	}
	fc_leave_control();
}

FC_EXPORT void fakecuda_note_free(uint64_t ptr)
{
	struct race_node **near;
	size_t n;

	fc_enter_control();
	near = race_tree_find(&blocks, ptr, ptr + 1, &n);
	if (n && near[0]->start == ptr) {
		race_tree_remove(&blocks, near[0]);
		free(block_of(near[0]));
		race_host_release();
	}
	fc_leave_control();
}
