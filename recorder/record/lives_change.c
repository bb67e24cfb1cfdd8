/*
 * lives_change.c - begin or end a block of an application pool in the rare cases: see lives_change.h.
 */
#include "recorder/record/lives_change.h"

#include "recorder/journal/journal.h"

/* ---- events and peaks ---------------------------------------------------------------------------- */

/* Write the event of a block that begins, or both events of a block that ends, one by one, each wherever there is room.
 * Count the events that are not written. */
void gm_lives_put_slow(struct gm_lives_work work, struct gm_lives_said said, enum gm_action last)
{
	enum gm_action action = last == GM_ACTION_FREE_COMPLETED ? GM_ACTION_FREE_REQUESTED : last;
	struct gm_event_counts *counts = &gm_rec.domains[work.lives->domain].counts, missed = { 0, 0, 0, 0 };
	unsigned int unwritten = 0;

	if (gm_untraced(said.size)) {
		unwritten = (unsigned int)(last - action) + 1;
		gm_set(&missed.small, unwritten);
	} else {
		for (; gm_rec.history && action <= last; action++) {
			struct gm_event_place at = gm_event_open(&work.writer, &missed, action);

			unwritten += !at.event;
			if (!at.event)
				continue;
			gm_lives_fill_event(at.event, work.op, &said, action, 0);
			gm_event_commit(&work.writer, at);
		}
	}
	if (!unwritten)
		return;
	gm_count(&work.lives->pool->unwritten, unwritten);
	gm_count(&counts->small, gm_get(&missed.small));
	gm_count(&counts->left_out, gm_get(&missed.left_out));
	gm_count(&counts->paused, gm_get(&missed.paused));
}

_Static_assert(GM_ACTION_FREE_COMPLETED == GM_ACTION_FREE_REQUESTED + 1, "one behind the other");

void gm_lives_raise_slow(_Atomic(int64_t) *peak, int64_t now)
{
	int64_t was = gm_get(peak);

	while (now > was &&
	       !atomic_compare_exchange_weak_explicit(peak, &was, now, memory_order_relaxed, memory_order_relaxed))
		;
}

/* ---- wherever the line lies ---------------------------------------------------------------------- */

static int add(const struct gm_lives_work *work, const struct gm_handed *of)
{
	struct gm_live *old = gm_lives_find(work->lives, of->address), *line = gm_lives_claim(work->lives, of->address);
	uint64_t tsc = gm_stamp();
	int r = 0;

	if (!line)
		return -ENOMEM;
	/* End the old block one tick earlier, because in the history an address must be free before it is reused. */
	if (old)
		r = gm_lives_end_line(work, old, of->address, tsc - 1, GM_NONE);
	gm_lives_begin_line(work, line, of, tsc);
	return r;
}

static int end(const struct gm_lives_work *work, uint64_t address, uint64_t tsc, uint32_t stack)
{
	struct gm_live *line = gm_lives_find(work->lives, address);

	return line && gm_lives_end_line(work, line, address, tsc, stack) ? 0 : -ENOENT;
}

static int begin_locked(struct gm_lives_work *work, struct gm_lives *lives, struct gm_change *change)
{
	int r = gm_change_enter(change, lives->domain, 0);

	if (r < 0)
		return r;
	*work = (struct gm_lives_work){
		.lives = lives, .op = change->op, .writer = change->writer,
		.thread = &gm_rec.threads[change->writer.slot ? change->writer.slot->index : 0],
	};
	return 0;
}

static int add_locked(struct gm_lives *lives, const struct gm_handed *of)
{
	struct gm_lives_work work;
	struct gm_change change;
	int r = begin_locked(&work, lives, &change);

	if (r)
		return r;
	r = add(&work, of);
	gm_change_leave(&change);
	return r;
}

/* Grow the table if its newest level has become crowded, and then try again to add @of if @r says -ENOMEM. Returns @r,
 * or the result of the second attempt. */
static int follow(struct gm_lives *lives, const struct gm_handed *of, int r)
{
	if (!gm_get(&lives->crowded))
		return r;
	if (gm_lives_grow(lives) && r == -ENOMEM)
		r = add_locked(lives, of);
	if (r == -ENOMEM)
		gm_region_refuse(gm_header_get(), GM_REGION_LIVES);
	return r;
}

int gm_lives_add_beside(struct gm_lives_work work, struct gm_handed of)
{
	int r = add(&work, &of);

	gm_lives_leave(&work);
	return follow(work.lives, &of, r);
}

int gm_lives_add_locked(struct gm_lives *lives, struct gm_handed of)
{
	return follow(lives, &of, add_locked(lives, &of));
}

int gm_lives_end_beside(struct gm_lives_work work, uint64_t address, uint64_t tsc, uint32_t stack)
{
	int r = end(&work, address, tsc, stack);

	gm_lives_leave(&work);
	return r;
}

int gm_lives_end_locked(struct gm_lives *lives, uint64_t address, uint64_t tsc, uint32_t stack)
{
	struct gm_lives_work work;
	struct gm_change change;
	int r = begin_locked(&work, lives, &change);

	if (r)
		return r;
	r = end(&work, address, tsc, stack);
	gm_change_leave(&change);
	return r;
}

uint64_t gm_lives_end_next(struct gm_lives *lives, uint64_t address, uint64_t size, uint64_t *at)
{
	uint64_t end_at = size < GM_LIVE_BEGINNING - address ? address + size : GM_LIVE_BEGINNING, first = 0;
	const struct gm_lives_level *newest = gm_get_acquire(&lives->newest), *level = lives->level;

	for (; newest && level <= newest; level++) {
		uint64_t lines = UINT64_C(1) << level->bits;

		for (uint64_t n = *at > first ? *at - first : 0; n < lines; n++) {
			uint64_t is = gm_get(&level->lines[n].address);

			if (is && is >= address && is < end_at && !gm_lives_end(lives, is, GM_NONE)) {
				*at = first + n + 1;
				return is;
			}
		}
		first += lines;
	}
	return 0;
}
