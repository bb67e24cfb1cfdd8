/*
 * lives_change.h - begin and end a block of an application pool: the fast path of every tensor (lives.h).
 *
 * These functions are inlined into their callers in preload/pools/, because calls and their arguments would double the
 * cost. The rare cases are in lives_change.c.
 *
 * For readers of a killed process a change stores in this order: pool_op of the thread, the event, the address of the
 * line, 0 into pool_op. The pool's counters need no order, because readers of a copy add up the lines.
 *
 * Thread context and signal context: as lives.h.
 */
#ifndef GM_RECORDER_LIVES_CHANGE_H
#define GM_RECORDER_LIVES_CHANGE_H

#include <errno.h>

#include "recorder/record/lives.h"
#include "recorder/record/sites.h"
#include "recorder/record/tables.h"

/* A change under way. */
struct gm_lives_work {
	struct gm_lives *lives;
	struct gm_thread *thread;
	uint64_t op;
	struct gm_writer writer;	/* its slot is entered, or the domain's lock is held */
};

/* The fields that an event has from its block. */
struct gm_lives_said { uint64_t address, size, stream, tsc; uint32_t stack, whose; };

/* The rare cases: a line that is not at its place of the only level (_beside), a change under the domain's lock
 * (_locked), an event that needs more than its slot. Structs are passed by value, because a pointer would force the
 * fast path to keep them in memory instead of in registers. */
int gm_lives_add_beside(struct gm_lives_work work, struct gm_handed of);
int gm_lives_end_beside(struct gm_lives_work work, uint64_t address, uint64_t tsc, uint32_t stack);
void gm_lives_put_slow(struct gm_lives_work work, struct gm_lives_said said, enum gm_action last);
void gm_lives_raise_slow(_Atomic(int64_t) *peak, int64_t now);
int gm_lives_add_locked(struct gm_lives *lives, struct gm_handed of);
int gm_lives_end_locked(struct gm_lives *lives, uint64_t address, uint64_t tsc, uint32_t stack);

/* ---- the event ----------------------------------------------------------------------------------- */

GM_LIVES_INLINE void gm_lives_fill_event(struct gm_event *event, uint64_t op, const struct gm_lives_said *said,
					 enum gm_action action, uint32_t flags)
{
	event->tsc = said->tsc;
	event->op = op;
	event->address = said->address;
	event->size = said->size;
	event->stream = said->stream;
	event->stack = said->stack;
	event->context = 0;
	event->whose = said->whose;
	event->how = flags << 8 | (uint32_t)action;
}

/* Write the event of a block that begins, or the one record that stands for both events of a block that ends
 * (GM_FREE_AT_ONCE). These events are not counted, because readers compute their number from the pool's counters and
 * @unwritten (struct gm_pool). */
GM_LIVES_INLINE void gm_lives_put(const struct gm_lives_work *work, const struct gm_lives_said *said,
				  enum gm_action action)
{
	struct gm_slot *slot = work->writer.slot;
	struct gm_event *event;
	uint32_t place;

	if (gm_unlikely(!slot || gm_untraced(said->size) || gm_get(&gm_rec.left_out) ||
			(place = slot->place) >= GM_CHUNK_FULL)) {
		gm_lives_put_slow(*work, *said, action);
		return;
	}
	event = (struct gm_event *)slot->chunk + place;
	slot->place = place + 1;
	if (gm_likely(said->tsc > gm_get(&slot->chunk->last_tsc)))
		gm_set(&slot->chunk->last_tsc, said->tsc);
	gm_lives_fill_event(event, work->op, said, action, action == GM_ACTION_FREE_COMPLETED ? GM_FREE_AT_ONCE : 0);
	gm_set_release(&event->commit, slot->commit | place);
	gm_lives_fetch(event + 1);	/* for the next event: a prefetch there would come too late */
}

/* ---- the pool's counters ------------------------------------------------------------------------- */

GM_LIVES_INLINE void gm_lives_raise(_Atomic(int64_t) *peak, int64_t now)
{
	if (gm_unlikely(now > gm_get(peak)))
		gm_lives_raise_slow(peak, now);
}

/* Count a block that begins: first in the row of its stack, then in the pool's total. gm_lives_count_out works in
 * reverse order. So at a peak the rows contain all blocks of the total, and perhaps blocks whose change is under way
 * (struct gm_site). The live figures are given - taken, with @taken read last: a block that another thread takes back
 * meanwhile counts as taken back before. */
GM_LIVES_INLINE void gm_lives_count_in(struct gm_domain *domain, uint32_t site, int64_t size)
{
	struct gm_pool *pool = &domain->pool;
	unsigned int large = size > (int64_t)GM_SMALL_BYTES;
	struct gm_pool_counts *class = &pool->classes[large];
	const struct gm_pool_sums *other = &pool->classes[!large].sums;
	int64_t blocks = atomic_fetch_add_explicit(&class->sums.given_blocks, 1, memory_order_relaxed) + 1;
	int64_t bytes = atomic_fetch_add_explicit(&class->sums.given_bytes, size, memory_order_relaxed) + size;

	gm_site_pool_add(domain, site, size);
	gm_lives_raise(&pool->peak_bytes,
		       atomic_fetch_add_explicit(&pool->live_bytes, size, memory_order_acq_rel) + size);
	blocks -= gm_get(&class->sums.taken_blocks);
	bytes -= gm_get(&class->sums.taken_bytes);
	gm_lives_raise(&class->peak_blocks, blocks);
	gm_lives_raise(&class->peak_bytes, bytes);
	gm_lives_raise(&pool->peak_blocks, blocks + gm_get(&other->given_blocks) - gm_get(&other->taken_blocks));
}

GM_LIVES_INLINE void gm_lives_count_out(struct gm_domain *domain, uint32_t site, int64_t size)
{
	struct gm_pool_sums *sums = &domain->pool.classes[size > (int64_t)GM_SMALL_BYTES].sums;

	gm_site_pool_leave(domain, size);
	gm_site_pool_add(domain, site, -size);
	gm_count(&sums->taken_blocks, 1);
	gm_count(&sums->taken_bytes, size);
}

/* ---- one change ---------------------------------------------------------------------------------- */

/* Begin a change of the block at @address; GM_LIVE_ENDING is set in @address when the block ends. Returns false when
 * the thread cannot enter its slot: the change then needs the domain's lock. */
GM_LIVES_INLINE bool gm_lives_enter(struct gm_lives_work *work, struct gm_lives *lives, uint64_t address)
{
	struct gm_slot *slot = gm_slot_enter_own();

	if (gm_unlikely(!slot))
		return false;
	*work = (struct gm_lives_work){ .lives = lives, .thread = slot->thread, .writer = { .slot = slot } };
	work->op = gm_writer_op(&work->writer);
	work->thread->pool_address = address;
	gm_order();
	gm_set_release(&work->thread->pool_op, work->op);
	return true;
}

GM_LIVES_INLINE void gm_lives_leave(const struct gm_lives_work *work)
{
	gm_order();
	gm_set_release(&work->thread->pool_op, 0);
	gm_slot_leave_own(work->writer.slot);
}

/* End the block at @address in @line. @tsc: stamp of its events. Returns false when @line does not hold that block, or
 * another thread is ending it. */
GM_LIVES_INLINE bool gm_lives_end_line(const struct gm_lives_work *work, struct gm_live *line, uint64_t address,
				       uint64_t tsc, uint32_t stack)
{
	struct gm_lives_said said;
	uint64_t is = address;

	if (gm_unlikely(!atomic_compare_exchange_strong_explicit(&line->address, &is, address | GM_LIVE_ENDING,
								 memory_order_acquire, memory_order_relaxed)))
		return false;
	said = (struct gm_lives_said){
		.address = address, .size = line->size, .tsc = tsc, .whose = line->whose,
		.stack = stack == GM_STACK_OF_BLOCK ? line->stack : stack,
	};
	gm_lives_put(work, &said, GM_ACTION_FREE_COMPLETED);
	gm_lives_count_out(&gm_rec.domains[work->lives->domain], line->site, (int64_t)said.size);
	gm_order();
	gm_set_release(&line->address, 0);
	return true;
}

GM_LIVES_INLINE void gm_lives_begin_line(const struct gm_lives_work *work, struct gm_live *line,
					 const struct gm_handed *of, uint64_t tsc)
{
	const struct gm_lives_said said = {
		.address = of->address, .size = of->size, .stream = of->stream, .tsc = tsc,
		.stack = of->stack_of_block_only ? GM_NONE : of->stack,
		.whose = gm_whose(of->module, work->lives->domain, of->kind),
	};

	__atomic_store_n(&line->size, said.size, __ATOMIC_RELAXED);	/* gm_lives_size may be reading */
	line->stream = said.stream;
	line->tsc = tsc;
	line->op = work->op;
	line->stack = of->stack;
	line->thread = gm_writer_tid(&work->writer);
	__atomic_store_n(&line->name, GM_NONE, __ATOMIC_RELAXED);
	line->whose = said.whose;
	line->site = gm_site_find(work->lives->domain, of->stack, of->module, of->kind, work->writer.nested);
	gm_lives_put(work, &said, GM_ACTION_ALLOC);
	gm_lives_count_in(&gm_rec.domains[work->lives->domain], line->site, (int64_t)said.size);
	gm_order();
	gm_set_release(&line->address, said.address);
}

/* Prefetch the lines that a change of the block at @address writes: the program has evicted them since the last block,
 * and an atomic operation waits for every store before it. */
GM_LIVES_INLINE void gm_lives_prepare(const struct gm_lives *lives, uint64_t address)
{
	const struct gm_lives_level *level = gm_get_acquire(&lives->newest);

	if (gm_likely(level))
		gm_lives_fetch(gm_lives_place(level, address));
	gm_lives_fetch(&lives->pool->classes[0]);
	gm_lives_fetch(&lives->pool->live_bytes);
}

/* Record that the pool handed out [@of->address, +@of->size). Returns 0; 1 when a block was still live at that address,
 * which is ended first; -ENOMEM when there is no room; -ETIMEDOUT when the thread is already changing a table or a lock
 * was not free in time; or another error of gm_change_enter. */
GM_LIVES_INLINE int gm_lives_add(struct gm_lives *lives, const struct gm_handed *of)
{
	const struct gm_lives_level *level;
	struct gm_lives_work work;
	struct gm_live *place;

	if (gm_unlikely(!gm_lives_enter(&work, lives, of->address)))
		return gm_lives_add_locked(lives, *of);
	level = gm_get_acquire(&lives->newest);
	if (gm_likely(level == lives->level)) {
		place = gm_lives_place(level, of->address);
		if (gm_likely(!gm_get(&place->reach) && gm_lives_claim_line(place))) {
			gm_lives_begin_line(&work, place, of, gm_stamp());
			gm_lives_leave(&work);
			return 0;
		}
	}
	return gm_lives_add_beside(work, *of);
}

/* Record that the pool took back the block at @address. @stack: as in gm_record_free_stack. Returns 0; -ENOENT when
 * there is no such block; other errors as gm_lives_add. */
GM_LIVES_INLINE int gm_lives_end(struct gm_lives *lives, uint64_t address, uint32_t stack)
{
	uint64_t tsc = gm_stamp_before();
	const struct gm_lives_level *level;
	struct gm_lives_work work;

	if (gm_unlikely(!gm_lives_enter(&work, lives, address | GM_LIVE_ENDING)))
		return gm_lives_end_locked(lives, address, tsc, stack);
	level = gm_get_acquire(&lives->newest);
	if (gm_likely(level && gm_lives_is_address(address) &&
		      gm_lives_end_line(&work, gm_lives_place(level, address), address, tsc, stack))) {
		gm_lives_leave(&work);
		return 0;
	}
	return gm_lives_end_beside(work, address, tsc, stack);
}

/* End one block that begins in [@address, +@size), in the order of the lines. *@at is the position: set it to 0 before
 * the first call. Returns the address of the block that was ended; 0: there are no more. */
uint64_t gm_lives_end_next(struct gm_lives *lives, uint64_t address, uint64_t size, uint64_t *at);

#endif
