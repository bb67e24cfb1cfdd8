/*
 * lives.c - the tables of what pools handed out: see lives.h.
 *
 * Order of a change, for a reader of a killed process: pool_op of the thread, the events, the line's last store,
 * pool_op again. The counters of the pool are no part of it: readers of a copy add up the lines.
 *
 * What begins and ends a block is inlined into its two callers, the thread's own way and the one under the
 * domain's lock: a block costs some 200 instructions here, and a struct work that is passed on costs 100 more.
 */
#include "recorder/record/lives.h"

#include <errno.h>

#include "recorder/journal/journal.h"
#include "recorder/record/tables.h"

#define FIRST_BITS 8u			/* 256 lines: 16 KiB */
#define CROWDED 8u			/* a block that lies as far from its place calls for a new level */
#define PATIENCE 65536u
#define INLINED static inline __attribute__((always_inline))

/* ---- the hash ---------------------------------------------------------------------------------- */

struct level { struct gm_live *lines; uint32_t mask, place; };

/* Level @i, and the place of @address there. */
INLINED struct level level_of(const struct gm_lives *lives, uint32_t i, uint64_t address)
{
	uint32_t bits = lives->level[i].bits;

	return (struct level){
		.lines = lives->level[i].lines, .mask = (UINT32_C(1) << bits) - 1,
		.place = (uint32_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - bits)),
	};
}

INLINED struct gm_live *line_of(const struct level *level, uint32_t i)
{
	return &level->lines[(level->place + i) & level->mask];
}

__attribute__((noinline))
static struct gm_live *find_behind(struct level level, uint64_t address, uint32_t reach)
{
	for (uint32_t i = 1; i <= reach; i++) {
		struct gm_live *line = line_of(&level, i);

		if (gm_get_acquire(&line->address) == address)
			return line;
	}
	return NULL;
}

/* The line of the block at @address in @level; NULL: there is none. */
INLINED struct gm_live *find_in(const struct level *level, uint64_t address)
{
	struct gm_live *line = line_of(level, 0);
	uint32_t reach;

	if (gm_likely(gm_get_acquire(&line->address) == address))
		return line;
	reach = gm_get(&line->reach);
	return gm_likely(!reach) ? NULL : find_behind(*level, address, reach);
}

/* The same in the levels before @newest. */
__attribute__((noinline))
static struct gm_live *find_older(const struct gm_lives *lives, uint32_t newest, uint64_t address)
{
	struct gm_live *line = NULL;

	while (!line && newest-- > 0) {
		const struct level level = level_of(lives, newest, address);

		line = find_in(&level, address);
	}
	return line;
}

/* The same in the whole table. */
INLINED struct gm_live *find(const struct gm_lives *lives, uint64_t address)
{
	uint32_t levels = gm_get_acquire(&lives->levels);
	struct gm_live *line;
	struct level level;

	/* A number with one of the marks is no address: it would find a line that another thread is changing. */
	if (gm_unlikely(!levels || address >= GM_LIVE_BEGINNING))
		return NULL;
	level = level_of(lives, levels - 1, address);
	line = find_in(&level, address);
	return gm_likely(line || levels < 2) ? line : find_older(lives, levels - 1, address);
}

/* @place has a block @far lines behind it. */
static void reach_out(struct gm_live *place, uint32_t far)
{
	uint32_t reach = gm_get(&place->reach);

	while (reach < far &&
	       !atomic_compare_exchange_weak_explicit(&place->reach, &reach, far, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

INLINED bool claim_line(struct gm_live *line)
{
	uint64_t empty = 0;

	return !gm_get(&line->address) &&
	       atomic_compare_exchange_strong_explicit(&line->address, &empty, GM_LIVE_BEGINNING, memory_order_acquire,
						       memory_order_relaxed);
}

/* Its place is taken: claim the next empty line; NULL: there is none near it. */
__attribute__((noinline))
static struct gm_live *claim_behind(struct gm_lives *lives, struct level level)
{
	for (uint32_t i = 1; i < GM_LIVES_PROBE; i++) {
		struct gm_live *line = line_of(&level, i);

		if (!claim_line(line))
			continue;
		reach_out(line_of(&level, 0), i);
		if (i >= CROWDED)
			gm_set(&lives->crowded, 1);
		return line;
	}
	gm_set(&lives->crowded, 1);
	return NULL;
}

/* Claim an empty line for @address; NULL: there is none near its place. @ret_old: a block that is live there. */
INLINED struct gm_live *claim(struct gm_lives *lives, uint64_t address, struct gm_live **ret_old)
{
	uint32_t levels = gm_get_acquire(&lives->levels);
	struct gm_live *line;
	struct level level;

	*ret_old = NULL;
	if (gm_unlikely(!levels)) {
		gm_set(&lives->crowded, 1);
		return NULL;
	}
	level = level_of(lives, levels - 1, address);
	*ret_old = find_in(&level, address);
	if (gm_unlikely(levels > 1) && !*ret_old)
		*ret_old = find_older(lives, levels - 1, address);
	line = line_of(&level, 0);
	return gm_likely(claim_line(line)) ? line : claim_behind(lives, level);
}

/* ---- levels ------------------------------------------------------------------------------------ */

static bool add_level(struct gm_lives *lives)
{
	uint32_t level = gm_get(&lives->levels), bits = FIRST_BITS + GM_LIVES_LEVEL_BITS * level, first;

	if (level == GM_LIVES_LEVELS)
		return false;
	first = gm_region_take_many(GM_REGION_LIVES, UINT32_C(1) << bits, false);
	if (!first)
		return false;
	lives->level[level].lines = &gm_rec.lives[first];
	lives->level[level].bits = bits;
	gm_set_release(&lives->levels, level + 1);
	gm_set(&lives->crowded, 0);
	return true;
}

bool gm_lives_begin(struct gm_lives *lives, uint8_t domain)
{
	lives->lock.rank = GM_RANK_POOL;
	lives->domain = domain;
	return gm_get(&lives->levels) || add_level(lives);
}

/* The newest level is crowded: add one, if there is memory. Outside of any change. */
__attribute__((noinline))
static bool grow(struct gm_lives *lives)
{
	bool grown = false;

	if (!gm_lock_try(&lives->lock))
		return false;			/* another thread is at it */
	if (!gm_get(&lives->crowded))
		grown = true;
	else if (lives->patience)
		lives->patience--;
	else if (!(grown = add_level(lives)))
		lives->patience = PATIENCE;
	gm_unlock(&lives->lock);
	return grown;
}

/* ---- one change -------------------------------------------------------------------------------- */

struct work {
	struct gm_lives *lives;
	struct gm_domain *domain;
	struct gm_slot *own;		/* entered; NULL: the domain's lock is held */
	struct gm_thread *thread;
	uint64_t op;
	struct gm_writer writer;
};

/* @address: what begins; with GM_LIVE_ENDING, what ends. False: only the domain's lock will do. */
INLINED bool begin(struct work *work, struct gm_lives *lives, uint64_t address)
{
	struct gm_slot *own = gm_slot_enter_own();

	if (gm_unlikely(!own))
		return false;
	work->lives = lives;
	work->domain = &gm_rec.domains[lives->domain];
	work->own = own;
	work->writer = (struct gm_writer){ .slot = own };
	work->thread = &gm_rec.threads[own->index];
	work->op = gm_writer_op(&work->writer);
	work->thread->pool_address = address;
	gm_order();
	gm_set_release(&work->thread->pool_op, work->op);
	return true;
}

INLINED void end(struct work *work)
{
	gm_order();
	gm_set_release(&work->thread->pool_op, 0);
	gm_slot_leave_own(work->own);
}

/* The same under the domain's lock. */
static int begin_locked(struct work *work, struct gm_lives *lives, struct gm_change *change)
{
	int r = gm_change_enter(change, lives->domain, 0);

	if (r < 0)
		return r;
	*work = (struct work){
		.lives = lives, .domain = change->domain, .op = change->op, .writer = change->writer,
		.thread = &gm_rec.threads[change->writer.slot ? change->writer.slot->index : 0],
	};
	return 0;
}

/* ---- events -------------------------------------------------------------------------------------- */

INLINED void fill_event(const struct work *work, struct gm_event *event, enum gm_action action,
			const struct gm_handed *of, uint64_t tsc, uint32_t stack)
{
	event->tsc = tsc;
	event->op = work->op;
	event->address = of->address;
	event->size = of->size;
	event->stream = of->stream;
	event->stack = stack;
	event->context = 0;
	event->module = of->module;
	event->domain = work->lives->domain;
	event->action = (uint8_t)action;
	event->kind = of->kind;
	event->flags = 0;
	event->reserved16 = 0;
}

/* One by one, wherever there is room, each counted where it belongs. */
__attribute__((noinline))
static void put_slow(struct work work, struct gm_handed of, uint64_t tsc, uint32_t stack, enum gm_action first,
		     unsigned int count)
{
	struct gm_event_counts counts = { 0, 0, 0, 0 };

	for (unsigned int i = 0; i < count; i++) {
		enum gm_action action = (enum gm_action)(first + i);
		struct gm_event_place at = gm_event_open(&work.writer, &counts, action);

		if (!at.event)
			continue;
		fill_event(&work, at.event, action, &of, tsc, stack);
		gm_event_commit(&work.writer, at);
	}
	gm_count(&work.domain->counts.events, gm_get(&counts.events));
	gm_count(&work.domain->counts.left_out, gm_get(&counts.left_out));
	gm_count(&work.domain->counts.paused, gm_get(&counts.paused));
}

/* Write @count events, the actions from @first on: those of a block that begins, or of one that ends. */
INLINED void put_events(struct work *work, const struct gm_handed *of, uint64_t tsc, uint32_t stack,
			enum gm_action first, unsigned int count)
{
	struct gm_slot *slot = work->writer.slot;
	struct gm_event *event;
	struct gm_chunk *chunk;

	if (!gm_rec.history)
		return;
	if (gm_unlikely(!slot || gm_get(&gm_rec.left_out) || slot->place + count > GM_CHUNK_FULL)) {
		put_slow(*work, *of, tsc, stack, first, count);
		return;
	}
	chunk = slot->chunk;
	event = (struct gm_event *)chunk + slot->place;
	if (gm_likely(tsc > gm_get(&chunk->last_tsc)))
		gm_set(&chunk->last_tsc, tsc);
	for (unsigned int i = 0; i < count; i++) {
		fill_event(work, &event[i], (enum gm_action)(first + i), of, tsc, stack);
		gm_set_release(&event[i].commit, slot->commit | (slot->place + i));
	}
	slot->place += count;
	chunk->count = slot->place - 1;
	gm_set(&work->thread->events, gm_get(&work->thread->events) + count);
	gm_count(&work->domain->counts.events, count);
}

_Static_assert(GM_ACTION_FREE_COMPLETED == GM_ACTION_FREE_REQUESTED + 1, "one behind the other");

/* ---- the pool's counters ------------------------------------------------------------------------- */

INLINED void raise_peak(_Atomic(int64_t) *peak, int64_t now)
{
	int64_t was = gm_get(peak);

	while (gm_unlikely(now > was) &&
	       !atomic_compare_exchange_weak_explicit(peak, &was, now, memory_order_relaxed, memory_order_relaxed))
		;
}

INLINED void count_in(struct gm_pool *pool, uint64_t size)
{
	unsigned int large = size > GM_SMALL_BYTES;
	struct gm_pool_sums *class = &pool->classes[large];
	const struct gm_pool_sums *other = &pool->classes[!large];
	int64_t bytes = (int64_t)size, blocks;

	blocks = atomic_fetch_add_explicit(&class->blocks, 1, memory_order_relaxed) + 1;
	bytes += atomic_fetch_add_explicit(&class->bytes, bytes, memory_order_relaxed);
	gm_count(&class->total_blocks, 1);
	gm_count(&class->total_bytes, (int64_t)size);
	raise_peak(&pool->peak_blocks[GM_POOL_SMALL + large], blocks);
	raise_peak(&pool->peak_bytes[GM_POOL_SMALL + large], bytes);
	raise_peak(&pool->peak_blocks[GM_POOL_ALL], blocks + gm_get(&other->blocks));
	raise_peak(&pool->peak_bytes[GM_POOL_ALL], bytes + gm_get(&other->bytes));
}

INLINED void count_out(struct gm_pool *pool, uint64_t size)
{
	struct gm_pool_sums *class = &pool->classes[size > GM_SMALL_BYTES];

	gm_count(&class->blocks, -1);
	gm_count(&class->bytes, -(int64_t)size);
}

/* ---- blocks begin and end ------------------------------------------------------------------------- */

/* End the block of @line, unless another thread does. @tsc: of its events. */
INLINED bool end_line(struct work *work, struct gm_live *line, uint64_t address, uint64_t tsc, uint32_t stack)
{
	uint64_t is = address;
	struct gm_handed of;

	if (gm_unlikely(!atomic_compare_exchange_strong_explicit(&line->address, &is, address | GM_LIVE_ENDING,
								 memory_order_acquire, memory_order_relaxed)))
		return false;
	of = (struct gm_handed){ .address = address, .size = line->size, .module = line->module, .kind = line->kind };
	if (gm_unlikely(line->untraced))
		gm_count(&work->domain->counts.small, 2);
	else
		put_events(work, &of, tsc, stack == GM_STACK_OF_BLOCK ? line->stack : stack,
			   GM_ACTION_FREE_REQUESTED, 2);
	count_out(&work->domain->pool, of.size);
	gm_order();
	gm_set_release(&line->address, 0);
	return true;
}

INLINED void fill(struct work *work, struct gm_live *line, const struct gm_handed *of, uint64_t tsc)
{
	__atomic_store_n(&line->size, of->size, __ATOMIC_RELAXED);	/* gm_lives_size may be reading */
	line->stream = of->stream;
	line->tsc = tsc;
	line->op = work->op;
	line->stack = of->stack;
	line->thread = gm_writer_tid(&work->writer);
	__atomic_store_n(&line->name, GM_NONE, __ATOMIC_RELAXED);
	line->module = of->module;
	line->domain = work->lives->domain;
	line->kind = of->kind;
	line->untraced = gm_untraced(of->size);
	if (gm_unlikely(line->untraced))
		gm_count(&work->domain->counts.small, 1);
	else
		put_events(work, of, tsc, of->stack_of_block_only ? GM_NONE : of->stack, GM_ACTION_ALLOC, 1);
	count_in(&work->domain->pool, of->size);
	gm_order();
	gm_set_release(&line->address, of->address);
}

INLINED int add(struct work *work, const struct gm_handed *of, bool *ret_twice)
{
	struct gm_live *old, *line = claim(work->lives, of->address, &old);
	uint64_t tsc = gm_stamp();

	if (gm_unlikely(!line))
		return -ENOMEM;
	/* It ends before: in the history an address is free when it is handed out again. */
	if (gm_unlikely(old))
		*ret_twice = end_line(work, old, of->address, tsc - 1, GM_NONE);
	fill(work, line, of, tsc);
	return 0;
}

__attribute__((noinline))
static int add_locked(struct gm_lives *lives, const struct gm_handed *of, bool *ret_twice)
{
	struct gm_change change;
	struct work work;
	int r = begin_locked(&work, lives, &change);

	if (r)
		return r;
	r = add(&work, of, ret_twice);
	gm_change_leave(&change);
	return r;
}

/* The newest level is crowded. @r: what became of the block. */
__attribute__((noinline))
static int add_crowded(struct gm_lives *lives, const struct gm_handed *of, bool *ret_twice, int r)
{
	if (grow(lives) && r == -ENOMEM)
		r = add_locked(lives, of, ret_twice);
	if (r == -ENOMEM)
		gm_region_refuse(gm_header_get(), GM_REGION_LIVES);
	return r;
}

int gm_lives_add(struct gm_lives *lives, const struct gm_handed *of, bool *ret_twice)
{
	struct work work;
	int r;

	if (gm_likely(begin(&work, lives, of->address))) {
		r = add(&work, of, ret_twice);
		end(&work);
	} else {
		r = add_locked(lives, of, ret_twice);
	}
	return gm_likely(!gm_get(&lives->crowded)) ? r : add_crowded(lives, of, ret_twice, r);
}

INLINED int end_block(struct work *work, uint64_t address, uint64_t tsc, uint32_t stack)
{
	struct gm_live *line = find(work->lives, address);

	return gm_likely(line && end_line(work, line, address, tsc, stack)) ? 0 : -ENOENT;
}

__attribute__((noinline))
static int end_locked(struct gm_lives *lives, uint64_t address, uint64_t tsc, uint32_t stack)
{
	struct gm_change change;
	struct work work;
	int r = begin_locked(&work, lives, &change);

	if (r)
		return r;
	r = end_block(&work, address, tsc, stack);
	gm_change_leave(&change);
	return r;
}

int gm_lives_end(struct gm_lives *lives, uint64_t address, uint32_t stack)
{
	uint64_t tsc = gm_stamp_before();
	struct work work;
	int r;

	if (gm_unlikely(!begin(&work, lives, address | GM_LIVE_ENDING)))
		return end_locked(lives, address, tsc, stack);
	r = end_block(&work, address, tsc, stack);
	end(&work);
	return r;
}

uint64_t gm_lives_end_next(struct gm_lives *lives, uint64_t address, uint64_t size, uint64_t *at)
{
	uint64_t end_at = size < GM_LIVE_BEGINNING - address ? address + size : GM_LIVE_BEGINNING, first = 0;

	for (uint32_t i = 0; i < gm_get_acquire(&lives->levels); i++) {
		uint64_t lines = UINT64_C(1) << lives->level[i].bits;

		for (uint64_t n = *at > first ? *at - first : 0; n < lines; n++) {
			uint64_t is = gm_get(&lives->level[i].lines[n].address);

			if (is && is >= address && is < end_at && !gm_lives_end(lives, is, GM_NONE)) {
				*at = first + n + 1;
				return is;
			}
		}
		first += lines;
	}
	return 0;
}

uint64_t gm_lives_size(const struct gm_lives *lives, uint64_t address)
{
	const struct gm_live *line = find(lives, address);
	uint64_t size = line ? __atomic_load_n(&line->size, __ATOMIC_ACQUIRE) : 0;

	return size && gm_get(&line->address) == address ? size : 0;	/* else it is another block's by now */
}

void gm_lives_name(struct gm_lives *lives, uint64_t address, uint32_t name)
{
	struct gm_live *line = find(lives, address);

	if (line)
		__atomic_store_n(&line->name, name, __ATOMIC_RELAXED);
}
