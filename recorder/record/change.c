/*
 * change.c - change the size or address of a segment with one block; end the memory of a context.
 * Thread and signal context: as tables.h. Lock: the domain's, one at a time.
 */
#include "recorder/record/sites.h"
#include "recorder/record/tables.h"

#include <errno.h>

#define BATCH 16u			/* blocks of a context that are removed in one hold of the lock */
#define MUTABLE_FLAGS (GM_SEGMENT_UNMAPPED | GM_SEGMENT_EXPANDABLE)

struct shape { uint64_t address, size; uint32_t stack; uint8_t flags; };

/* Find or make the row of SITES in which @block will count with @stack. Save this row and the row in which the block
 * counts now. */
static uint32_t save_site(const struct gm_change *change, const struct gm_delta *delta, const struct gm_block *block,
			  uint32_t stack, struct gm_txn *txn)
{
	uint32_t site = delta->in_stats ? gm_site_find(change->number, stack, block->module, block->kind,
						       change->writer.nested) : GM_NONE;

	gm_txn_save(txn, &gm_rec.sites[block->site].live);
	gm_txn_save(txn, &gm_rec.sites[site].live);
	return site;
}

/* Count @block with @bytes in row @site instead of its present row and bytes. */
static void move_site(struct gm_domain *domain, struct gm_block *block, uint32_t site, uint32_t stack, uint64_t bytes)
{
	if (bytes < block->site_bytes || (block->site_bytes && site != block->site))
		gm_site_leave_peak(domain);
	gm_site_add(domain, &gm_rec.sites[block->site], 0 - block->site_bytes);
	gm_site_in(domain, block, site, stack, bytes);
}

/* events_before: write the events that free the block as it was. events_after: write those that allocate it as it is
 * now. All carry the stack of the change, except the allocation, which carries the block's own stack. */
static void events_before(const struct gm_change *change, const struct gm_segment *segment,
			  const struct gm_block *block, uint64_t tsc, uint32_t stack)
{
	const struct gm_traced events[] = {
		{ GM_ACTION_FREE_REQUESTED, block->address, block->requested },
		{ GM_ACTION_FREE_COMPLETED, block->address, block->requested },
		{ GM_ACTION_SEGMENT_UNMAP, segment->address, segment->size },
	};

	if (block->flags & GM_BLOCK_UNTRACED)
		gm_change_untraced(change, 3);
	else
		gm_change_trace(change, segment, tsc, segment->stream, stack, events, 3);
}

static void events_after(const struct gm_change *change, const struct gm_segment *segment,
			 const struct gm_block *block, uint64_t tsc, uint32_t stack)
{
	if (block->flags & GM_BLOCK_UNTRACED) {
		gm_change_untraced(change, 2);
		return;
	}
	gm_change_event(change, segment, GM_ACTION_SEGMENT_MAP, tsc, segment->address,
			segment->size, segment->stream, stack);
	gm_change_event(change, segment, GM_ACTION_ALLOC, tsc, block->address, block->requested,
			segment->stream, stack == GM_NONE ? GM_NONE : block->stack);
}

static int change_locked(struct gm_change *change, struct gm_segment *segment,
			 struct gm_block *block, const struct shape *to)
{
	uint64_t tsc = gm_stamp();
	struct gm_delta delta;
	struct gm_txn txn;
	uint32_t stack = to->stack == GM_STACK_OF_BLOCK ? block->stack : to->stack;
	bool begins = !segment->size && stack;
	int64_t more = (int64_t)(to->size - segment->size), asked;
	uint32_t site;
	uint8_t flags;

	if (to->size > segment->size)
		gm_caches_flush_locked(change);
	if (!gm_delta_init(&delta, change->number, segment->module, segment->kind, segment->flags,
			   change->writer.nested))
		return -ETIMEDOUT;
	asked = more ? (int64_t)(to->size - block->requested) : 0;
	delta.flow = (struct gm_flow){ .in_bytes = gm_more(more), .out_bytes = gm_less(more) };
	delta.requested = (struct gm_flow){ .in_bytes = gm_more(asked), .out_bytes = gm_less(asked) };
	gm_change_begin(change, &txn);
	gm_txn_save(&txn, &segment->address);
	gm_txn_save(&txn, &segment->size);
	gm_txn_save(&txn, &segment->op);
	gm_txn_save(&txn, &segment->flags);
	gm_txn_save(&txn, &block->address);
	gm_txn_save(&txn, &block->size);
	gm_txn_save(&txn, &block->requested);
	gm_txn_save(&txn, &block->op);
	gm_txn_save(&txn, &block->tsc);
	flags = gm_untraced(more ? to->size : block->requested) ? GM_BLOCK_UNTRACED : 0;
	if (flags != block->flags)		/* other threads change @state, which is in the same word */
		gm_txn_save(&txn, &block->flags);
	if (begins) {
		gm_txn_save(&txn, &segment->stack);
		gm_txn_save(&txn, &block->stack);
	}
	gm_delta_save(&delta, &txn);
	site = save_site(change, &delta, block, begins ? stack : block->stack, &txn);
	gm_txn_arm(&txn);
	if (segment->size)
		events_before(change, segment, block, tsc, stack);
	if (more)
		block->requested = to->size;
	if (begins)
		segment->stack = block->stack = stack;
	segment->address = to->address;
	segment->size = to->size;
	segment->flags = to->flags;
	segment->op = change->op;
	block->address = to->address;
	block->size = to->size;
	block->op = change->op;
	block->flags = flags;
	block->tsc = tsc;		/* the trace shows a new allocation */
	move_site(change->domain, block, site, block->stack, delta.in_stats ? block->requested : 0);
	gm_delta_apply(&delta);
	gm_change_comes(change);
	if (segment->size)
		events_after(change, segment, block, tsc, stack);
	gm_txn_end(&txn);
	return 0;
}

int gm_record_change(uint64_t op, uint32_t id, uint64_t address, uint64_t size, uint8_t flags,
		     uint32_t stack)
{
	struct gm_segment *segment;
	struct gm_change change;
	struct gm_block *block;
	struct shape to;
	int r = gm_change_enter_block(&change, id, op, &block);

	if (r < 0)
		return r;
	segment = &gm_rec.segments[block->segment];
	to.address = address;
	to.size = size;
	to.stack = stack;
	to.flags = (uint8_t)((segment->flags & ~MUTABLE_FLAGS) | (flags & MUTABLE_FLAGS));
	if (address != segment->address || size != segment->size || to.flags != segment->flags)
		r = change_locked(&change, segment, block, &to);
	gm_change_leave(&change);
	if (gm_unlikely(r == -ETIMEDOUT))
		gm_count(&gm_header_get()->operations_lost, 1);
	return r;
}

struct ending {
	uint32_t context;
	uint64_t tsc;
	uint32_t stack;			/* of the events */
	uint32_t at;			/* go on behind this segment, which stays; 0: begin with the first */
	uint64_t at_op;			/* operation of its last change; if it differs, the id may have been reused */
	unsigned int count;
	struct { uint32_t id; struct gm_block copy; } freed[BATCH];
};

/* Remove up to BATCH blocks of the context from the domain. Returns true when there may be more. */
static bool end_some_locked(struct gm_change *change, struct ending *ending)
{
	const struct gm_segment *at = &gm_rec.segments[ending->at];
	uint32_t id, next;

	if (!ending->at || !at->used || at->domain != change->number || at->op != ending->at_op)
		id = change->domain->first_segment;
	else
		id = at->next;
	for (ending->count = 0; id; id = next) {
		struct gm_segment *segment = &gm_rec.segments[id];
		struct gm_pair_ids ids = { id, segment->first_block };

		next = segment->next;
		/* Segments of heaps stay, because the cache drops them. */
		if (segment->context != ending->context || gm_get(&segment->heap)) {
			ending->at = id;
			ending->at_op = segment->op;
			continue;
		}
		if (ending->count == BATCH)
			return true;
		ending->freed[ending->count].id = ids.block;
		ending->freed[ending->count].copy = gm_rec.blocks[ids.block];
		if (gm_remove_locked(change, ids, ending->tsc ? ending->tsc : gm_stamp_before(),
				     segment->stream, ending->stack) < 0)
			return false;
		ending->count++;
	}
	return false;
}

unsigned int gm_record_context_end(uint64_t op, uint32_t context, uint64_t tsc, uint32_t stack,
				   void (*freed)(void *arg, uint32_t block,
						const struct gm_block *copy), void *arg)
{
	unsigned int total = 0;

	/* Each transaction takes a number of its own, because @op belongs to the flight until the end. */
	(void)op;
	if (!context)
		return 0;
	for (uint8_t domain = 0; domain < gm_get_acquire(&gm_rec.domain_count); domain++) {
		struct ending ending = { .context = context, .tsc = tsc, .stack = stack };
		struct gm_change change;
		bool more = true;

		while (more && gm_change_enter(&change, domain, 0) == 0) {
			more = end_some_locked(&change, &ending);
			gm_change_leave(&change);
			for (unsigned int i = 0; freed && i < ending.count; i++)
				freed(arg, ending.freed[i].id, &ending.freed[i].copy);
			total += ending.count;
		}
	}
	return total;
}
