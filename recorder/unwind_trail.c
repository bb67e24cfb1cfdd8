/*
 * unwind_trail.c - a walk that does not begin anew (see unwind_trail.h).
 *
 * Owns the trails: a fixed number, two a thread's until another wants them long enough. A trail is
 * entered by one exchange and left again. What is kept are guesses, checked before each use: it
 * does no harm when it is out of date, of another thread, or of a stack that is gone, as long as
 * the words to check lie on this thread's stack, and the owner's number sees to that.
 */
#include "recorder/unwind_trail.h"

#include <stdatomic.h>
#include <string.h>

#include "recorder/unwind_rules.h"
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

#define TRAILS 64u			/* pairs of them */
#define FRAMES 336u			/* kept of a stack */
#define BEYOND 64			/* frames unwound beyond those asked for, to follow later */
#define STRANGERS 64u			/* calls of other threads in a row until a trail is theirs */
#define PAUSE 64u			/* walks that do not try again after one in vain */
#define RULE_END (UINT64_C(1) << 44)	/* of the outermost frame; no plain entry of the cache */

/* Frames from @top on, innermost first, the outermost at FRAMES - 1. A frame's rule is a plain
 * entry of unwind_rules.h, RULE_END, or 0: to be unwound each time. At [FRAMES]: what the outermost
 * one's rule leads to. */
struct gm_trail {
	_Alignas(64) _Atomic(uint32_t) busy;
	uint32_t owner;			/* number of a thread; 0 nobody's */
	uint32_t strangers, pause;
	uint32_t generation;		/* of the rules */
	uint32_t top;
	bool open;			/* the stack goes on beyond the outermost frame */
	uint64_t followed;
	uintptr_t pc[FRAMES + 1], sp[FRAMES + 1];
	uint64_t hash[FRAMES + 1];	/* gm_trail_hash_of the frames from here outwards */
	uint64_t rule[FRAMES];
	uintptr_t new_pc[FRAMES], new_sp[FRAMES];	/* those that are unwound, innermost first */
	uint64_t new_rule[FRAMES];
};

/* A thread has two: allocations and frees come in turn, each from much the same place. */
static struct gm_trail trails[TRAILS][2];	/* 2.4 MiB of .bss, touched as used */
static _Atomic(uint32_t) threads;
static __thread uint32_t own_number;
static __thread uintptr_t first_place;

static struct gm_trail *enter(uintptr_t place)
{
	struct gm_trail *t;

	if (!own_number) {
		own_number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
		first_place = place;
	}
	t = &trails[own_number % TRAILS][place != first_place];
	if (atomic_exchange_explicit(&t->busy, 1, memory_order_acquire))
		return NULL;
	if (__builtin_expect(t->owner != own_number, 0)) {
		if (t->owner && ++t->strangers < STRANGERS)
			goto leave;
		t->owner = own_number;
		t->top = FRAMES;
		t->pause = 0;
		t->followed = 0;
	}
	t->strangers = 0;
	if (t->pause) {
		t->pause--;
		goto leave;
	}
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
		for (uint32_t k = 0; k < 2; k++) {
			if (!trails[i][k].owner)	/* a page never touched stays so */
				continue;
			trails[i][k].owner = 0;
			atomic_store_explicit(&trails[i][k].busy, 0, memory_order_relaxed);
		}
	}
}

uint64_t gm_trail_followed(void)
{
	const struct gm_trail *t = trails[own_number % TRAILS];
	uint64_t sum = 0;

	for (uint32_t k = 0; k < 2 && own_number; k++)
		sum += t[k].owner == own_number ? t[k].followed : 0;
	return sum;
}

enum outcome { STEPPED, ENDED, FAILED };

static enum outcome step_slowly(struct gm_trail *t, struct gm_walk *w, uint32_t at, uint64_t entry)
{
	uintptr_t address = w->pc - !w->exact, lo = w->window.lo, hi = w->window.hi;
	bool exact = w->exact;
	uint64_t rule = gm_entry_rule(entry);
	enum gm_walk_next next;

	if (!rule)
		rule = gm_walk_learn(address, t->generation);
	next = gm_walk_rare(w, rule, false);
	if (next == GM_NEXT_FULL || w->flags || w->window.lo != lo || w->window.hi != hi)
		return FAILED;
	if (!exact && gm_rule_kind(rule) == GM_RULE_END)
		t->new_rule[at] = RULE_END;
	else if (!exact && gm_entry_is_plain(entry))
		t->new_rule[at] = entry;
	return next == GM_NEXT_END ? ENDED : STEPPED;
}

/* Undo the frame that @w stands at, and note it as the one at @at. The walk of unwind.c with more
 * to write. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static inline enum outcome step(struct gm_trail *t, struct gm_walk *w, uint32_t at, uint64_t bits)
{
	uint64_t entry = gm_rule_find(w->pc - !w->exact, bits);
	uintptr_t cfa, save, next;

	t->new_pc[at] = w->pc;
	t->new_sp[at] = w->sp;
	t->new_rule[at] = 0;
	if (__builtin_expect(!gm_entry_is_plain(entry), 0))
		return step_slowly(t, w, at, entry);
	cfa = (gm_entry_is_fp(entry) ? w->fp : w->sp) + gm_entry_offset(entry);
	save = gm_entry_save(entry);
	if (__builtin_expect(cfa <= w->sp || cfa > w->window.hi || (cfa & 7) ||
			     cfa - w->window.lo < save + 8, 0))
		return step_slowly(t, w, at, entry);
	next = *(const uintptr_t *)(cfa - 8);
	if (__builtin_expect(next == 0, 0))
		return step_slowly(t, w, at, entry);
	if (!w->exact)			/* or it is the rule of another instruction */
		t->new_rule[at] = entry;
	if (save)
		w->fp = *(const uintptr_t *)(cfa - save);
	w->pc = next;
	w->sp = cfa;
	w->exact = false;
	return STEPPED;
}

/* Follow the trail from the frame @at on as far as its words are what they were, up to @last.
 * Returns the frame that it came to; @*fp is the frame pointer there. The words lie on this thread's
 * stack above @at: they were read from there when the frames were unwound. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static inline uint32_t follow(const struct gm_trail *t, uint32_t at, uint32_t last, uintptr_t *fp)
{
	uintptr_t frame = *fp;

	while (at < last) {
		uint64_t rule = t->rule[at];
		uintptr_t cfa = t->sp[at + 1], save = gm_entry_save(rule);

		if (__builtin_expect(!gm_entry_is_plain(rule), 0)) {
			if (rule == RULE_END)
				at = FRAMES;
			break;
		}
		if (gm_entry_is_fp(rule) && frame + gm_entry_offset(rule) != cfa)
			break;
		if (*(const uintptr_t *)(cfa - 8) != t->pc[at + 1])
			break;
		if (save)
			frame = *(const uintptr_t *)(cfa - save);
		at++;
	}
	*fp = frame;
	return at;
}

static void move(struct gm_trail *t, uint32_t to, uint32_t from, uint32_t count)
{
	memmove(t->pc + to, t->pc + from, count * sizeof(t->pc[0]));
	memmove(t->sp + to, t->sp + from, count * sizeof(t->sp[0]));
	memmove(t->hash + to, t->hash + from, count * sizeof(t->hash[0]));
	memmove(t->rule + to, t->rule + from, (count - 1) * sizeof(t->rule[0]));
}

/* The trail is now the @count frames that were unwound and, outwards of them, those from @joined. */
static void keep(struct gm_trail *t, uint32_t count, uint32_t joined)
{
	uint32_t top;
	uint64_t hash;

	if (__builtin_expect(joined < count, 0)) {	/* no room: what is outermost goes */
		move(t, count, joined, FRAMES + 1 - count);
		t->open = true;
		joined = count;
	}
	top = joined - count;
	hash = t->hash[joined];
	for (uint32_t i = count; i-- > 0;) {
		t->pc[top + i] = t->new_pc[i];
		t->sp[top + i] = t->new_sp[i];
		t->rule[top + i] = t->new_rule[i];
		hash = hash * MIX_B + mix(t->new_pc[i]);
		t->hash[top + i] = hash;
	}
	t->top = top;
}

/* Unwound to its end without coming to a known frame; @w stands behind the last one. */
static void keep_all(struct gm_trail *t, const struct gm_walk *w, uint32_t count, bool open)
{
	t->pc[FRAMES] = open ? 0 : w->pc;
	t->sp[FRAMES] = w->sp;
	t->hash[FRAMES] = 0;
	t->open = open;
	keep(t, count, FRAMES);
}

/* The walk on its trail: of @count new frames, and known ones from @at on. */
struct course {
	uint32_t max, count, at;
	uint64_t bits;			/* of the generation, gm_rule_find's */
	bool joined;
};

/* Where @w stands, is the trail's frame at @c->at: follow it. Returns whether that was all; else @w
 * stands where it was left, and the frames until there are new ones. */
static bool join(struct gm_trail *t, struct gm_walk *w, struct course *c)
{
	uint32_t enough = c->at + c->max - c->count;
	uint32_t end = t->open ? FRAMES - 1 : FRAMES;
	uint32_t i = follow(t, c->at, enough < end ? enough : end, &w->fp);

	t->followed += i - c->at;
	if (i == enough || (i == FRAMES && !t->open))
		return true;
	for (; c->at < i; c->at++, c->count++) {
		t->new_pc[c->count] = t->pc[c->at];
		t->new_sp[c->count] = t->sp[c->at];
		t->new_rule[c->count] = t->rule[c->at];
	}
	w->pc = t->pc[i];
	w->sp = t->sp[i];
	c->at = i + 1;
	return false;
}

/* Returns false where it came to what only gm_unwind can walk. */
static bool run(struct gm_trail *t, struct gm_walk *w, struct course *c)
{
	uint32_t most = c->max + BEYOND < FRAMES ? c->max + BEYOND : FRAMES;
	enum outcome outcome = STEPPED;

	while (outcome == STEPPED && c->count < most) {
		while (c->at < FRAMES && t->sp[c->at] < w->sp)
			c->at++;
		if (c->at < FRAMES && c->count && t->sp[c->at] == w->sp &&
		    t->pc[c->at] == w->pc && (c->count > c->max || join(t, w, c))) {
			c->joined = true;
			return true;
		}
		outcome = step(t, w, c->count++, c->bits);
	}
	if (outcome == FAILED && c->count <= c->max)
		return false;
	keep_all(t, w, c->count, outcome != ENDED);
	return true;
}

bool gm_trail_walk(const struct gm_regs *from, int max, struct gm_trail_walk *ret_walk)
{
	struct course c = { .max = (uint32_t)max };
	struct gm_trail *t;
	struct gm_walk w;
	uint32_t generation;

	if (max <= 0 || max > GM_TRAIL_MOST || from->has_all || !gm_unwind_is_own())
		return false;
	gm_walk_begin(&w, from);
	if (!w.window.hi)
		return false;
	t = enter(from->r[GM_REG_PC]);
	if (!t)
		return false;
	generation = gm_rule_generation();
	if (t->generation != generation) {
		t->generation = generation;
		t->top = FRAMES;
	}
	c.at = t->top;
	c.bits = gm_rule_wanted(0, generation);
	ret_walk->trail = t;
	if (!run(t, &w, &c)) {
		t->top = FRAMES;
		t->pause = PAUSE;
		gm_trail_leave(ret_walk);
		return false;
	}
	if (c.joined)
		keep(t, c.count, c.at);
	ret_walk->pcs = t->pc + t->top;
	ret_walk->count = (int)(FRAMES - t->top);
	ret_walk->flags = 0;
	if (ret_walk->count > max) {
		ret_walk->count = max;
		ret_walk->flags = GM_UNWIND_MORE;
	}
	return true;
}

uint64_t gm_trail_hash(const struct gm_trail_walk *walk, int first, int count)
{
	const uint64_t *hash = walk->trail->hash + walk->trail->top + first;
	uint64_t beyond = hash[count], base = MIX_B;

	if (!beyond)			/* to the end: nothing to take off */
		return hash[0];
	for (unsigned int n = (unsigned int)count; n; n >>= 1, base *= base)
		if (n & 1)
			beyond *= base;
	return hash[0] - beyond;
}

#else	/* aarch64: the chain of frame records is as fast */

bool gm_trail_walk(const struct gm_regs *from, int max, struct gm_trail_walk *ret_walk)
{
	(void)from;
	(void)max;
	(void)ret_walk;
	return false;
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

#endif
