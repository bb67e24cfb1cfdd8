/*
 * tables.c - record allocations and frees that the driver serves: segments with one block each.
 *
 * An id never leaves its domain, because unused records are in a list of their domain. So the domain of a
 * record never changes, and may be read without a lock.
 *
 * Thread and signal context: see tables.h. Lock: the domain's.
 */
#include "recorder/record/sites.h"
#include "recorder/record/tables.h"

#include <errno.h>

#define NO_OP UINT64_MAX		/* as @op: enter without a number, to write nothing */

#define INLINED static inline __attribute__((always_inline))

INLINED int enter(struct gm_change *change, uint8_t domain, uint64_t op)
{
	struct gm_domain_state *state = &gm_rec.domain[domain];

	if (gm_unlikely(!gm_header_get()))
		return -ENODEV;
	if (gm_unlikely(domain >= gm_get_acquire(&gm_rec.domain_count)))
		return -EINVAL;
	gm_writer_enter(&change->writer);
	if (gm_unlikely(!gm_lock_unless_nested(&state->lock, change->writer.nested))) {
		gm_writer_leave(&change->writer);
		gm_count(&gm_header_get()->operations_lost, 1);
		return -ETIMEDOUT;
	}
	gm_change_place(change, domain);
	if (gm_unlikely(gm_late_any(domain)))
		gm_late_do(change);
	change->op = gm_likely(op) ? op : gm_writer_op(&change->writer);
	return 0;
}

int gm_change_enter(struct gm_change *change, uint8_t domain, uint64_t op)
{
	return enter(change, domain, op);
}

INLINED int enter_block(struct gm_change *change, uint32_t id, uint64_t op, struct gm_block **ret_block)
{
	struct gm_header *header = gm_header_get();
	struct gm_block *block;
	int r;

	if (!header)
		return -ENODEV;
	block = gm_block_at(header, id);
	if (!block)
		return -ENOENT;
	r = enter(change, __atomic_load_n(&block->domain, __ATOMIC_RELAXED), op);
	if (r < 0)
		return r;
	if (gm_get(&block->state) == GM_BLOCK_UNUSED ||
	    gm_unlikely(gm_get(&gm_rec.segments[block->segment].heap))) {
		gm_change_leave(change);
		return -ENOENT;
	}
	*ret_block = block;
	return 0;
}

int gm_change_enter_block(struct gm_change *change, uint32_t id, uint64_t op,
			  struct gm_block **ret_block)
{
	return enter_block(change, id, op, ret_block);
}

/* A segment and its only block. */
struct pair {
	struct gm_segment *segment;
	struct gm_block *block;
	struct gm_pair_ids ids;
	bool old_segment, old_block;	/* from the domain's lists of unused ids */
};

INLINED struct pair pair_of(struct gm_pair_ids ids)
{
	return (struct pair){
		.segment = &gm_rec.segments[ids.segment], .block = &gm_rec.blocks[ids.block], .ids = ids,
	};
}

/* Find an unused segment and an unused block. This does not yet change the domain. */
INLINED int find_ids(const struct gm_change *change, struct pair *ret)
{
	struct gm_domain_state *state = &gm_rec.domain[change->number];
	struct gm_pair_ids ids = { .segment = change->domain->unused_segments };
	bool nested = change->writer.nested, old_segment = ids.segment != GM_NONE, old_block;

	if (!old_segment) {
		ids.segment = state->spare_segment;
		state->spare_segment = GM_NONE;
	}
	if (!ids.segment)
		ids.segment = gm_region_take(GM_REGION_SEGMENTS, nested);
	if (!ids.segment)
		return -ENOMEM;
	ids.block = change->domain->unused_blocks;
	old_block = ids.block != GM_NONE;
	if (!old_block)
		ids.block = gm_region_take(GM_REGION_BLOCKS, nested);
	if (!ids.block) {
		if (!old_segment)
			state->spare_segment = ids.segment;
		return -ENOMEM;
	}
	*ret = pair_of(ids);
	ret->old_segment = old_segment;
	ret->old_block = old_block;
	return 0;
}

/* Save only @used and @state, because readers ignore all other words of an unused record, and follow no list. */
INLINED void save_insert(struct gm_txn *txn, const struct pair *pair)
{
	gm_txn_save(txn, &pair->segment->used);
	gm_txn_save(txn, &pair->block->state);
}

INLINED void fill_segment(struct gm_segment *segment, const struct gm_alloc *alloc,
			 const struct gm_change *change, uint64_t tsc, uint8_t flags)
{
	segment->address = alloc->address;
	segment->size = alloc->size;
	segment->stream = alloc->stream;
	segment->handle = alloc->handle;
	segment->op = change->op;
	segment->tsc = tsc;
	segment->context = alloc->context;
	segment->stack = alloc->stack;
	segment->pool_lo = 0;
	segment->pool_hi = 0;
	segment->module = alloc->module;
	segment->domain = change->number;
	segment->kind = alloc->kind;
	segment->flags = flags;
	gm_set(&segment->heap, 0);
	segment->used = 1;
}

INLINED void fill_block(struct gm_block *block, const struct gm_alloc *alloc,
		       const struct gm_change *change, uint64_t tsc, bool held)
{
	block->address = alloc->address;
	block->size = alloc->size;
	block->requested = alloc->requested;
	block->tsc = tsc;
	block->op = change->op;
	block->stream = alloc->stream;
	block->prev = GM_NONE;
	block->next = GM_NONE;
	block->stack = alloc->stack;
	block->thread = gm_writer_tid(&change->writer);
	block->module = alloc->module;
	block->name = GM_NONE;
	/* Only the first use of a record changes @domain, and no other thread knows the id then. */
	__atomic_store_n(&block->domain, change->number, __ATOMIC_RELAXED);
	block->kind = alloc->kind;
	/* Pieces that a pool holds are traced, whatever their size. */
	block->flags = gm_untraced(alloc->requested) && !held ? GM_BLOCK_UNTRACED : 0;
	gm_set(&block->state, held ? GM_BLOCK_INACTIVE : GM_BLOCK_ACTIVE);
}

/* Take the pair off the lists of unused ids, and append the segment to the domain's list. */
INLINED void link_pair(struct gm_domain *domain, const struct pair *pair)
{
	struct gm_segment *segment = pair->segment;
	uint32_t id = pair->ids.segment, last = domain->last_segment;

	if (pair->old_segment)
		domain->unused_segments = segment->next;
	if (pair->old_block)
		domain->unused_blocks = pair->block->next;
	segment->first_block = pair->ids.block;
	pair->block->segment = id;
	segment->next = GM_NONE;
	segment->prev = last;
	if (last)
		gm_rec.segments[last].next = id;
	else
		domain->first_segment = id;
	domain->last_segment = id;
}

/* @held: a piece that an application pool holds. It has no alloc event: the pool's own blocks have those (lives.h). */
static void alloc_events(const struct gm_change *change, const struct gm_alloc *alloc,
			 const struct gm_segment *segment, uint64_t tsc, bool held)
{
	uint32_t stack = alloc->stack_of_block_only ? GM_NONE : alloc->stack;

	if (!gm_rec.history)
		return;
	gm_change_event(change, segment, GM_ACTION_SEGMENT_ALLOC, tsc, alloc->address, alloc->size, alloc->stream,
			stack);
	if (!held)
		gm_change_event(change, segment, GM_ACTION_ALLOC, tsc, alloc->address,
				alloc->requested, alloc->stream, stack);
}

static int insert_locked(struct gm_change *change, const struct gm_alloc *alloc, struct pair *pair)
{
	bool held = change->number >= GM_DOMAIN_POOLS;
	struct gm_domain *domain = change->domain;
	uint64_t tsc = alloc->tsc ? alloc->tsc : gm_stamp();
	uint8_t flags = alloc->flags & (uint8_t)~(held ? 0 : GM_SEGMENT_SMALL);
	uint32_t site = GM_NONE;
	struct gm_delta delta;
	struct gm_txn txn;
	int r;

	if (alloc->size <= GM_SMALL_BYTES && alloc->kind != GM_KIND_GRAPH && !held)
		flags |= GM_SEGMENT_SMALL;
	if (!held)
		gm_caches_flush_locked(change);
	if (!gm_delta_init(&delta, change->number, alloc->module, alloc->kind, flags, change->writer.nested))
		return -ETIMEDOUT;
	delta.flow = (struct gm_flow){ .in = 1, .in_bytes = alloc->size };
	delta.requested.in_bytes = alloc->requested;
	r = find_ids(change, pair);
	if (r < 0)
		return r;
	if (held) {		/* the device counts this memory, too: mark its row, so that readers count it once */
		site = gm_site_find((uint8_t)domain->pool.device, alloc->stack, alloc->module, alloc->kind,
				    change->writer.nested);
		gm_set(&gm_rec.sites[site].held, 1);
		site = GM_NONE;
	}
	if (delta.in_stats)
		site = gm_site_find(change->number, alloc->stack, alloc->module, alloc->kind, change->writer.nested);
	gm_change_begin(change, &txn);
	save_insert(&txn, pair);
	gm_delta_save(&delta, &txn);
	gm_txn_save(&txn, &gm_rec.sites[site].live);
	gm_txn_arm(&txn);
	link_pair(domain, pair);
	fill_segment(pair->segment, alloc, change, tsc, flags);
	fill_block(pair->block, alloc, change, tsc, held);
	gm_delta_apply(&delta);
	gm_site_in(domain, pair->block, site, alloc->stack, delta.in_stats ? alloc->requested : 0);
	if (!held)
		gm_change_comes(change);
	if (gm_untraced(alloc->requested) && !held)
		gm_change_untraced(change, 2);
	else if (gm_likely(alloc->size))
		alloc_events(change, alloc, pair->segment, tsc, held);
	gm_txn_end(&txn);
	return 0;
}

int gm_record_alloc(uint64_t op, const struct gm_alloc *alloc, uint32_t *ret_block)
{
	struct gm_change change;
	struct pair pair;
	int r;

	*ret_block = GM_NONE;
	if (alloc->kind >= GM_KIND_COUNT)
		return -EINVAL;
	r = enter(&change, alloc->domain, op);
	if (r < 0)
		return r;
	r = insert_locked(&change, alloc, &pair);
	gm_change_leave(&change);
	if (gm_likely(r == 0))
		*ret_block = pair.ids.block;
	else if (r == -ETIMEDOUT)
		gm_count(&gm_header_get()->operations_lost, 1);
	return r;
}

/* Save @op of the block, too, because it tells readers which flight is complete. */
INLINED void save_remove(struct gm_txn *txn, const struct pair *pair)
{
	gm_txn_save(txn, &pair->segment->used);
	gm_txn_save(txn, &pair->block->state);
	gm_txn_save(txn, &pair->block->op);
	gm_txn_save(txn, &pair->block->next);
}

INLINED void unlink_pair(struct gm_domain *domain, const struct pair *pair, uint64_t op)
{
	struct gm_segment *segment = pair->segment;
	uint32_t prev = segment->prev, next = segment->next;

	if (prev)
		gm_rec.segments[prev].next = next;
	else
		domain->first_segment = next;
	if (next)
		gm_rec.segments[next].prev = prev;
	else
		domain->last_segment = prev;
	segment->used = 0;
	segment->op = op;
	segment->next = domain->unused_segments;
	domain->unused_segments = pair->ids.segment;
	gm_set(&pair->block->state, GM_BLOCK_UNUSED);
	pair->block->op = op;
	pair->block->next = domain->unused_blocks;
	domain->unused_blocks = pair->ids.block;
}

static void free_events(const struct gm_change *change, const struct pair *pair, uint64_t tsc,
			uint64_t stream, uint32_t stack, bool held)
{
	const struct gm_segment *segment = pair->segment;
	const struct gm_block *block = pair->block;

	if (!gm_rec.history)
		return;
	if (!held) {
		gm_change_event(change, segment, GM_ACTION_FREE_REQUESTED, tsc, block->address,
				block->requested, stream, stack);
		gm_change_event(change, segment, GM_ACTION_FREE_COMPLETED, tsc, block->address,
				block->requested, stream, stack);
	}
	gm_change_event(change, segment, GM_ACTION_SEGMENT_FREE, tsc, segment->address, segment->size, stream, stack);
}

int gm_remove_locked(struct gm_change *change, struct gm_pair_ids ids, uint64_t tsc, uint64_t stream,
		     uint32_t stack)
{
	struct pair pair = pair_of(ids);
	const struct gm_segment *segment = pair.segment;
	struct gm_block *block = pair.block;
	struct gm_delta delta;
	struct gm_txn txn;

	if (!gm_delta_init(&delta, change->number, segment->module, segment->kind, segment->flags,
			   change->writer.nested))
		return -ETIMEDOUT;
	delta.flow = (struct gm_flow){ .out = 1, .out_bytes = segment->size };
	delta.requested.out_bytes = block->requested;
	if (stack == GM_STACK_OF_BLOCK)
		stack = block->stack;
	gm_change_begin(change, &txn);
	save_remove(&txn, &pair);
	gm_delta_save(&delta, &txn);
	gm_txn_save(&txn, &gm_rec.sites[block->site].live);
	gm_txn_arm(&txn);
	gm_site_out(change->domain, block);
	gm_delta_apply(&delta);
	unlink_pair(change->domain, &pair, change->op);
	/* All other words of the records stay until the records are reused. */
	if (gm_unlikely(block->flags & GM_BLOCK_UNTRACED))
		gm_change_untraced(change, 3);
	else if (gm_likely(segment->size))
		free_events(change, &pair, tsc, stream, stack, change->number >= GM_DOMAIN_POOLS);
	gm_txn_end(&txn);
	return 0;
}

void gm_record_freeing(uint32_t id)
{
	struct gm_header *header = gm_header_get();
	struct gm_block *block = header ? gm_block_at(header, id) : NULL;
	uint8_t active = GM_BLOCK_ACTIVE;

	if (!block)
		return;
	/* Prefetch the segment's record, which is needed when the driver's free returns, microseconds from now. */
	__builtin_prefetch(&gm_rec.segments[__atomic_load_n(&block->segment, __ATOMIC_RELAXED)]);
	atomic_compare_exchange_strong_explicit(&block->state, &active, GM_BLOCK_FREEING,
						memory_order_release, memory_order_relaxed);
}

void gm_record_not_freed(uint32_t id)
{
	struct gm_header *header = gm_header_get();
	struct gm_block *block = header ? gm_block_at(header, id) : NULL;
	uint8_t freeing = GM_BLOCK_FREEING;

	if (block)
		atomic_compare_exchange_strong_explicit(&block->state, &freeing, GM_BLOCK_ACTIVE,
							memory_order_release, memory_order_relaxed);
}

int gm_record_free(uint64_t op, uint32_t id, uint64_t tsc, uint64_t stream)
{
	return gm_record_free_stack(op, id, tsc, stream, GM_NONE);
}

int gm_record_free_stack(uint64_t op, uint32_t id, uint64_t tsc, uint64_t stream,
			 uint32_t stack)
{
	struct gm_change change;
	struct gm_block *block;
	int r;

	if (!tsc)
		tsc = gm_stamp_before();
	r = enter_block(&change, id, op, &block);
	if (gm_likely(r == 0)) {
		r = gm_remove_locked(&change, (struct gm_pair_ids){ block->segment, id }, tsc, stream, stack);
		gm_change_leave(&change);
	} else if (r == -ETIMEDOUT) {
		gm_late_not_lost();
	}
	if (gm_likely(r != -ETIMEDOUT))
		return r;
	block = &gm_rec.blocks[id];
	gm_late_add(block, id, stream, stack == GM_STACK_OF_BLOCK ? block->stack : stack, tsc);
	return 0;
}

/* Copy word by word, even under the domain's lock, because the lock does not keep out a thread that frees or hands out
 * the block through its thread cache. Each word is from before or after such a change. Not instrumented, because the
 * thread sanitizer takes such a change for a race. */
__attribute__((no_sanitize_thread))
static void copy_words(const struct gm_block *block, struct gm_block *ret_copy)
{
	const uint64_t *words = (const uint64_t *)(const void *)block;

	for (unsigned int i = 0; i < sizeof(*block) / sizeof(*words); i++)
		((uint64_t *)(void *)ret_copy)[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
}

/* Copy without the lock. Returns false when the copy may be torn, or the record is unused. A removed record gets a new
 * operation number before it is reused, so an unchanged number proves a whole copy. Kinds that gm_record_change changes
 * in place give no such proof, so they are refused. */
static bool copy_block(const struct gm_block *block, struct gm_block *ret_copy)
{
	uint64_t op = __atomic_load_n(&block->op, __ATOMIC_ACQUIRE);

	copy_words(block, ret_copy);
	return gm_get(&ret_copy->state) != GM_BLOCK_UNUSED && ret_copy->op == op &&
	       ret_copy->kind != GM_KIND_VMM && ret_copy->kind != GM_KIND_GRAPH &&
	       ret_copy->kind != GM_KIND_EXTERNAL &&
	       __atomic_load_n(&block->op, __ATOMIC_ACQUIRE) == op;
}

bool gm_record_block(uint32_t id, struct gm_block *ret_copy)
{
	struct gm_header *header = gm_header_get();
	struct gm_block *block = header ? gm_block_at(header, id) : NULL;
	struct gm_change change;
	bool found;

	if (block && !GM_LOCK_RANKS && copy_block(block, ret_copy))
		return true;
	/* The copy without the lock failed: read the record under the lock. */
	if (!block || gm_change_enter(&change, __atomic_load_n(&block->domain, __ATOMIC_RELAXED),
				      NO_OP) < 0)
		return false;
	found = gm_get(&block->state) != GM_BLOCK_UNUSED;
	if (found)
		copy_words(block, ret_copy);
	gm_change_leave(&change);
	return found;
}
