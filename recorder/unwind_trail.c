/*
 * unwind_trail.c - a walk that does not begin anew (see unwind_trail.h).
 *
 * Owns the trails: a fixed number, one a thread's until another wants it long enough. A trail is
 * entered by one exchange and left again. What is kept are guesses, checked before each use: it
 * does no harm when it is out of date, of another thread, or of a stack that is gone, as long as
 * the words to check lie on this thread's stack, and the owner's number sees to that.
 */
#include "recorder/unwind_trail.h"

#include <stdatomic.h>
#include <string.h>

#include "recorder/sys.h"
#include "recorder/unwind_follow.h"
#include "recorder/unwind_path.h"
#include "recorder/unwind_rules.h"
#include "recorder/unwind_trail_internal.h"
#include "recorder/unwind_walk.h"

#define MIX_A UINT64_C(0xff51afd7ed558ccd)
#define MIX_B UINT64_C(0x9e3779b97f4a7c15)	/* the polynomial's base */

static inline uint64_t mix(uintptr_t pc)
{
	uint64_t x = (uint64_t)pc * MIX_A;

	return x ^ x >> 29;
}

uint64_t gm_trail_hash_of(const uintptr_t *pcs, int count)
{
	uint64_t hash = 0;

	while (count-- > 0)
		hash = hash * MIX_B + mix(pcs[count]);
	return hash;
}

#ifndef __aarch64__

#define TRAILS 64u
#define BEYOND 64			/* frames unwound beyond those asked for, to follow later */
#define STRANGERS 64u			/* calls of other threads in a row until a trail is theirs */
#define PAUSE 64u			/* walks that do not try again after one in vain */
#define CREDIT_A_WALK 4u		/* frames */

static _Atomic(void *) trails[TRAILS];	/* 13 KiB each, touched as used */
static _Atomic(uint32_t) threads;
static __thread uint32_t own_number;
static __thread struct gm_trail *own;	/* there if the thread has a number */

/* All that was kept is out of date. */
static void renew(struct gm_trail *t)
{
	t->top = GM_TRAIL_FRAMES;
	t->stamp = (t->stamp + 1) % GM_STEP_STAMPS;
	if (!t->stamp && t->paths)
		gm_paths_clear(t->paths);
	if (!t->stamp && t->recipes)
		gm_recipes_clear(t->recipes);
}

static __attribute__((noinline)) bool take_number(void)
{
	uint32_t number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;

	own = gm_table_once(&trails[number % TRAILS], sizeof(struct gm_trail));
	if (own)
		own_number = number;
	return own;
}

static struct gm_trail *enter(void)
{
	struct gm_trail *t;

	if (!own_number && !take_number())
		return NULL;
	t = own;
	if (atomic_exchange_explicit(&t->busy, 1, memory_order_acquire))
		return NULL;
	if (__builtin_expect(t->owner != own_number, 0)) {
		if (t->owner && ++t->strangers < STRANGERS)
			goto leave;
		t->owner = own_number;
		t->pause = 0;
		t->credit = GM_TRAIL_CREDIT_MOST;
		t->followed = t->recalled = 0;
		renew(t);
	}
	t->strangers = 0;
	return t;
leave:
	atomic_store_explicit(&t->busy, 0, memory_order_release);
	return NULL;
}

void gm_trail_leave(const struct gm_trail_walk *walk)
{
	atomic_store_explicit(&walk->trail->busy, 0, memory_order_release);
}

void gm_trail_forget(void)
{
	for (uint32_t i = 0; i < TRAILS; i++) {
		struct gm_trail *t = atomic_load_explicit(&trails[i], memory_order_acquire);

		if (!t)
			continue;
		t->owner = 0;
		atomic_store_explicit(&t->busy, 0, memory_order_relaxed);
	}
}

uint64_t gm_trail_followed(void)
{
	return own_number && own->owner == own_number ? own->followed : 0;
}

uint64_t gm_trail_recalled(void)
{
	return own_number && own->owner == own_number ? own->recalled : 0;
}

/* ---- a walk ------------------------------------------------------------------------------ */

enum outcome { STEPPED, ENDED, FAILED };

static inline uint64_t depth_of(const struct gm_walk *w)
{
	return (w->window.hi - w->sp) >> 3;
}

static inline uint64_t place_of(const struct gm_walk *w, const struct gm_course *c)
{
	return depth_of(w) | c->stamp | (w->exact ? GM_STEP_EXACT : 0);
}

static enum outcome step_slowly(struct gm_trail *t, struct gm_walk *w, struct gm_path_frame *frame,
				uint64_t entry)
{
	uintptr_t address = w->pc - !w->exact, lo = w->window.lo, hi = w->window.hi;
	uint64_t rule = gm_entry_rule(entry);
	enum gm_walk_next next;

	if (!rule)
		rule = gm_walk_learn(address, t->generation);
	next = gm_walk_rare(w, rule, false);
	if (next == GM_NEXT_FULL || w->flags || w->window.lo != lo || w->window.hi != hi)
		return FAILED;
	if (gm_rule_kind(rule) == GM_RULE_END)
		frame->step |= GM_STEP_END;
	else if (gm_entry_is_plain(entry))
		frame->step |= entry & ~GM_STEP_PLACE;
	return next == GM_NEXT_END ? ENDED : STEPPED;
}

/* Undo the frame that @w stands at, and note it as the next. The walk of unwind.c with more to
 * write. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static enum outcome step(struct gm_trail *t, struct gm_walk *w, struct gm_course *c)
{
	uint64_t entry = gm_rule_find(w->pc - !w->exact, c->bits);
	struct gm_path_frame *frame = &t->fresh[c->count++];
	uintptr_t cfa, save, next;

	frame->pc = w->pc;
	frame->step = place_of(w, c);
	if (__builtin_expect(!gm_entry_is_plain(entry), 0))
		return step_slowly(t, w, frame, entry);
	cfa = (gm_entry_is_fp(entry) ? w->fp : w->sp) + gm_entry_offset(entry);
	save = gm_entry_save(entry);
	if (__builtin_expect(cfa <= w->sp || cfa > w->window.hi || (cfa & 7) ||
			     cfa - w->window.lo < save + 8, 0))
		return step_slowly(t, w, frame, entry);
	next = *(const uintptr_t *)(cfa - 8);
	if (__builtin_expect(next == 0, 0))
		return step_slowly(t, w, frame, entry);
	frame->step |= entry & ~GM_STEP_PLACE;
	if (save)
		w->fp = *(const uintptr_t *)(cfa - save);
	w->pc = next;
	w->sp = cfa;
	w->exact = false;
	return STEPPED;
}

/* As gm_follow_path, of the trail's frames from @at on, up to @last; who did not part from them looks
 * up there what it came to. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static inline void follow_trail(const struct gm_trail *t, uint32_t at, uint32_t last,
				const struct gm_walk *w, struct gm_followed *ret)
{
	uintptr_t hi = w->window.hi, fp = w->fp;
	uint32_t i = at;

	ret->parted = false;
	while (i < last) {
		uint64_t step = t->at[i].step;
		uintptr_t cfa, next;

		if (__builtin_expect(!gm_step_is_plain(step), 0)) {
			if (step & GM_STEP_END)
				i = GM_TRAIL_FRAMES;
			break;
		}
		cfa = gm_step_sp(hi, t->at[i + 1].step);
		next = *(const uintptr_t *)(cfa - 8);
		if (__builtin_expect(!gm_step_is_at(step, fp, cfa), 0))
			break;
		if (__builtin_expect(next != t->pc[i + 1], 0)) {
			if (!next)
				break;
			ret->parted = true;
			ret->pc = next;
			ret->sp = cfa;
		}
		fp = gm_step_caller_fp(step, fp, cfa);
		i++;
		if (ret->parted)
			break;
	}
	ret->count = i - at;
	ret->fp = fp;
}

static void move(struct gm_trail *t, uint32_t to, uint32_t from, uint32_t count)
{
	memmove(t->pc + to, t->pc + from, count * sizeof(t->pc[0]));
	memmove(t->at + to, t->at + from, count * sizeof(t->at[0]));
}

/* The trail is now the @count frames that were walked and, outwards of them, those from @joined. */
static void keep(struct gm_trail *t, uint32_t count, uint32_t joined)
{
	uint32_t top;
	uint64_t hash;

	if (__builtin_expect(joined < count, 0)) {	/* no room: what is outermost goes */
		move(t, count, joined, GM_TRAIL_FRAMES + 1 - count);
		t->open = true;
		joined = count;
	}
	top = joined - count;
	hash = t->at[joined].hash;
	for (uint32_t i = count; i-- > 0;) {
		t->pc[top + i] = t->fresh[i].pc;
		hash = hash * MIX_B + mix(t->fresh[i].pc);
		t->at[top + i].step = t->fresh[i].step;
		t->at[top + i].hash = hash;
	}
	t->top = top;
}

/* Walked to its end without coming to a known frame; @w stands behind the last one. */
static void keep_all(struct gm_trail *t, const struct gm_walk *w, const struct gm_course *c, bool open)
{
	t->pc[GM_TRAIL_FRAMES] = open ? 0 : w->pc;
	t->at[GM_TRAIL_FRAMES].step = place_of(w, c);
	t->at[GM_TRAIL_FRAMES].hash = 0;
	t->open = open;
	keep(t, c->count, GM_TRAIL_FRAMES);
}

/* @w goes on where @f came to, which may be nowhere. */
static void go_on(struct gm_walk *w, struct gm_course *c, const struct gm_followed *f)
{
	w->pc = f->pc;
	w->sp = f->sp;
	w->fp = f->fp;
	w->exact = w->exact && !f->count;
	c->count += f->count;
}

/* Where @w stands, is the trail's frame at @c->at: follow it. Returns whether that was all; else @w
 * stands where it was left, and the frames until there are new ones. */
static bool join(struct gm_trail *t, struct gm_walk *w, struct gm_course *c)
{
	uint32_t enough = c->at + c->max - c->count;
	uint32_t end = t->open ? GM_TRAIL_FRAMES - 1 : GM_TRAIL_FRAMES;
	struct gm_followed f;

	follow_trail(t, c->at, enough < end ? enough : end, w, &f);
	t->followed += f.count;
	if (!f.parted && (f.count == enough - c->at || (c->at + f.count == GM_TRAIL_FRAMES && !t->open)))
		return true;
	for (uint32_t i = 0; i < f.count; i++) {
		t->fresh[c->count + i].pc = t->pc[c->at + i];
		t->fresh[c->count + i].step = t->at[c->at + i].step;
	}
	c->at += f.count;
	if (!f.parted) {
		f.pc = t->pc[c->at];
		f.sp = gm_step_sp(w->window.hi, t->at[c->at].step);
	}
	go_on(w, c, &f);
	return false;
}

/* Returns whether a path took @w further. */
static bool take_path(struct gm_trail *t, struct gm_walk *w, struct gm_course *c)
{
	const struct gm_path_frame *path;
	struct gm_followed f;

	if (!t->paths || c->count + GM_PATH_STEPS > GM_TRAIL_FRAMES)
		return false;
	path = c->count ? NULL : gm_path_at(t->paths, t->expected, w->pc, place_of(w, c));
	if (!path)
		path = gm_path_find(t->paths, w->pc, place_of(w, c), 0);
	if (!path)
		return false;
	if (!c->count)
		t->path = gm_path_number(t->paths, path);
	gm_follow_path(path, w, t->fresh + c->count, &f);
	t->followed += f.count;
	go_on(w, c, &f);
	c->pieces++;
	return f.count > 0;
}

/* Returns false where it came to what only gm_unwind can walk. */
static bool run(struct gm_trail *t, struct gm_walk *w, struct gm_course *c)
{
	uint32_t most = c->max + BEYOND < GM_TRAIL_FRAMES ? c->max + BEYOND : GM_TRAIL_FRAMES;
	enum outcome outcome = STEPPED;
	bool in_run = false;

	while (outcome == STEPPED && c->count < most) {
		while (c->at < GM_TRAIL_FRAMES && (t->at[c->at].step & GM_STEP_DEPTH) > depth_of(w))
			c->at++;
		if (c->at < GM_TRAIL_FRAMES && t->pc[c->at] == w->pc &&
		    (t->at[c->at].step & GM_STEP_PLACE) == place_of(w, c)) {
			uint32_t before = c->count;

			if (c->count > c->max || join(t, w, c)) {
				c->joined = true;
				break;
			}
			in_run = in_run && c->count == before;
		}
		if (take_path(t, w, c)) {
			in_run = false;
			continue;
		}
		c->pieces += !in_run;
		if (!in_run && c->runs < GM_TRAIL_RUNS)
			c->first[c->runs++] = c->count;
		in_run = true;
		outcome = step(t, w, c);
		c->last[c->runs - 1] = c->count;
	}
	if (outcome == FAILED && c->count <= c->max)
		return false;
	if (c->joined)
		keep(t, c->count, c->at);
	else
		keep_all(t, w, c, outcome != ENDED);
	if (t->credit < GM_TRAIL_CREDIT_MOST)
		t->credit += CREDIT_A_WALK;
	if (c->runs || c->pieces >= GM_TRAIL_PIECES)
		gm_trail_keep_paths(t, c);
	return true;
}

bool gm_trail_enter(const struct gm_regs *from, struct gm_trail_walk *ret_walk)
{
	uint32_t generation;
	struct gm_trail *t;

	if (from->has_all || !gm_unwind_is_own())
		return false;
	t = enter();
	if (!t)
		return false;
	generation = gm_rule_generation();
	if (t->generation != generation) {
		t->generation = generation;
		renew(t);
	}
	t->path = 0;
	ret_walk->trail = t;
	return true;
}

bool gm_trail_walk_on(const struct gm_regs *from, int max, struct gm_trail_walk *walk)
{
	struct gm_course c = { .max = (uint32_t)max };
	struct gm_trail *t = walk->trail;
	struct gm_walk w;

	if (max <= 0 || max > GM_TRAIL_MOST)
		return false;
	if (t->pause) {
		t->pause--;
		return false;
	}
	gm_walk_begin(&w, from);
	if (!w.window.hi || w.sp % 8 || depth_of(&w) > GM_STEP_DEPTH)
		return false;
	c.at = t->top;
	c.bits = gm_rule_wanted(0, t->generation);
	c.stamp = (uint64_t)t->stamp << GM_STEP_STAMP_SHIFT;
	if (!run(t, &w, &c)) {
		t->top = GM_TRAIL_FRAMES;
		t->pause = PAUSE;
		return false;
	}
	walk->pcs = t->pc + t->top;
	walk->count = (int)(GM_TRAIL_FRAMES - t->top);
	walk->flags = 0;
	if (walk->count > max) {
		walk->count = max;
		walk->flags = GM_UNWIND_MORE;
	}
	return true;
}

bool gm_trail_walk(const struct gm_regs *from, int max, struct gm_trail_walk *ret_walk)
{
	if (!gm_trail_enter(from, ret_walk))
		return false;
	if (gm_trail_walk_on(from, max, ret_walk))
		return true;
	gm_trail_leave(ret_walk);
	return false;
}

uint64_t gm_trail_hash(const struct gm_trail_walk *walk, int first, int count)
{
	const struct gm_trail *t = walk->trail;
	uint32_t from = t->top + (uint32_t)first;
	uint64_t beyond = t->at[from + (uint32_t)count].hash, base = MIX_B;

	if (!beyond)			/* to the end: nothing to take off */
		return t->at[from].hash;
	for (unsigned int n = (unsigned int)count; n; n >>= 1, base *= base)
		if (n & 1)
			beyond *= base;
	return t->at[from].hash - beyond;
}

#else	/* aarch64: the chain of frame records is as fast */

bool gm_trail_walk(const struct gm_regs *from, int max, struct gm_trail_walk *ret_walk)
{
	(void)from;
	(void)max;
	(void)ret_walk;
	return false;
}

bool gm_trail_enter(const struct gm_regs *from, struct gm_trail_walk *ret_walk)
{
	(void)from;
	(void)ret_walk;
	return false;
}

bool gm_trail_walk_on(const struct gm_regs *from, int max, struct gm_trail_walk *walk)
{
	return gm_trail_walk(from, max, walk);
}

void gm_trail_leave(const struct gm_trail_walk *walk)
{
	(void)walk;
}

uint64_t gm_trail_hash(const struct gm_trail_walk *walk, int first, int count)
{
	return gm_trail_hash_of(walk->pcs + first, count);
}

void gm_trail_forget(void)
{
}

uint64_t gm_trail_followed(void)
{
	return 0;
}

uint64_t gm_trail_recalled(void)
{
	return 0;
}

#endif
