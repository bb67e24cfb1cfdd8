/*
 * unwind_recipe.c - stacks as the words that a walk of them reads (see unwind_recipe.h). Owns nothing.
 * Empty but on x86-64.
 */
#include "recorder/unwind_recipe.h"

#ifndef __aarch64__

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "recorder/probe.h"
#include "recorder/unwind_rules.h"
#include "recorder/unwind_walk.h"

#define SLOT_WORDS 8u
#define WORD_BITS 48
#define WORD_MASK ((UINT64_C(1) << WORD_BITS) - 1)
#define DISTANCE_MOST 0xffffu
#define BEGINNINGS 1024u		/* powers of two */
#define VALUES 4096u
#define FRAMES_MOST 264
#define CREDIT_MOST 131072u		/* frames; */
#define CREDIT_A_WALK 8u		/* who comes by other stacks all the time makes few in vain */

/* A frame, while a recipe is made: the words that undoing it reads. */
struct frame {
	uintptr_t at[3];		/* in the order of their addresses; 0: not read */
	uint8_t saved;			/* which of these is the caller's fp */
	bool uses_fp, keeps_fp;		/* its place is by fp; the caller has the same */
};

/* The slots of a recipe that is overwritten go from its first one on, and no word behind a first one
 * looks like a pc, for its distance is not 0: what begins right is whole. */
struct gm_recipes {
	uint32_t used;			/* slots; the next recipe begins here */
	uint32_t most;			/* slots that were ever used */
	uint32_t last;			/* the recipe met last; slot 0 is none's */
	uint32_t credit;		/* frames that may be made recipes of */
	uint16_t beginnings[BEGINNINGS];	/* the last recipe that began so */
	uint32_t values[VALUES];	/* tag << 16 | slot, by value; slot 0: there can be none */
	struct frame frames[FRAMES_MOST];
	_Alignas(64) uint8_t room[GM_RECIPE_ROOM];
	_Alignas(64) uint64_t slots[GM_RECIPE_SLOTS][SLOT_WORDS];
};

_Static_assert(offsetof(struct gm_recipe, hash) == SLOT_WORDS * 8, "what is looked at is one line");

struct gm_recipes *gm_recipes_new(void)
{
	long at = gm_syscall(SYS_mmap, 0, sizeof(struct gm_recipes), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct gm_recipes *recipes = at < 0 && at > -4096 ? NULL : (struct gm_recipes *)at;

	if (!recipes)
		return NULL;
	recipes->used = recipes->most = 1;
	recipes->credit = CREDIT_MOST;
	return recipes;
}

void gm_recipes_clear(struct gm_recipes *recipes)
{
	memset(recipes->slots, 0, recipes->most * sizeof(recipes->slots[0]));
}

void *gm_recipes_room(struct gm_recipes *recipes)
{
	return recipes->room;
}

static inline struct gm_recipe *recipe_at(struct gm_recipes *recipes, uint32_t slot)
{
	return (struct gm_recipe *)(void *)recipes->slots[slot % GM_RECIPE_SLOTS];
}

static inline uint32_t slot_of(const struct gm_recipes *recipes, const struct gm_recipe *recipe)
{
	return (uint32_t)(((uintptr_t)recipe - (uintptr_t)recipes->slots) / sizeof(recipes->slots[0]));
}

static inline uint16_t *beginning_of(struct gm_recipes *recipes, const struct gm_regs *from)
{
	uint64_t hash = (from->r[GM_REG_PC] ^ from->r[GM_REG_SP] << 20) *
			UINT64_C(0x9e3779b97f4a7c15);

	return &recipes->beginnings[hash >> 54];
}

static inline bool begins(const struct gm_recipe *recipe, const struct gm_recipe_key *key)
{
	const uintptr_t *r = key->from->r;
	uintptr_t fp = recipe->by_fp ? UINTPTR_MAX : 0;

	return recipe->pc == r[GM_REG_PC] && recipe->sp == r[GM_REG_SP] &&
	       recipe->generation == key->generation && recipe->what == key->what &&
	       !((recipe->fp ^ r[GM_REG_FP]) & fp);
}

__attribute__((no_sanitize_address, no_sanitize_thread))
static inline bool is_true(const struct gm_recipe *recipe)
{
	const uint64_t *word = recipe->words, *end = word + recipe->count;
	const uint64_t *at = (const uint64_t *)recipe->sp - 1;

	for (; word < end; word++) {
		at += *word >> WORD_BITS;
		if (*at != (*word & WORD_MASK))
			return false;
	}
	return true;
}

struct gm_recipe *gm_recipe_find(struct gm_recipes *recipes, const struct gm_recipe_key *key)
{
	uint32_t next = recipe_at(recipes, recipes->last)->next % GM_RECIPE_SLOTS;
	struct gm_recipe *recipe = recipe_at(recipes, next);

	if (__builtin_expect(begins(recipe, key), 1) && __builtin_expect(is_true(recipe), 1))
		return recipe;
	if (next == *beginning_of(recipes, key->from))
		return NULL;
	recipe = recipe_at(recipes, *beginning_of(recipes, key->from));
	return begins(recipe, key) && is_true(recipe) ? recipe : NULL;
}

void gm_recipe_met(struct gm_recipes *recipes, struct gm_recipe *recipe)
{
	uint32_t slot = slot_of(recipes, recipe);
	struct gm_recipe *last = recipe_at(recipes, recipes->last);
	const uint64_t *ahead = recipes->slots[recipe->next % GM_RECIPE_SLOTS];

	if (last->next != slot)
		last->next = slot;
	recipes->last = slot;
	for (uint32_t i = 0; i < GM_RECIPE_AHEAD; i++)	/* past the last slot is no harm */
		__builtin_prefetch(ahead + i * SLOT_WORDS);
}

/* ---- by value ---------------------------------------------------------------------------- */

/* The same stack may stand elsewhere at times: that is another recipe. */
static uint32_t tag_of(uint64_t value, uintptr_t sp, uint32_t *ret_place)
{
	uint64_t hash = (value ^ sp << 32) * UINT64_C(0x9e3779b97f4a7c15);

	*ret_place = (uint32_t)(hash >> 52);
	return (uint32_t)(hash >> 36 | 1) << 16;	/* no tag: empty */
}

/* Returns whether @value is known; *@ret_recipe: its recipe, NULL if there can be none. */
static bool find_value(struct gm_recipes *recipes, const struct gm_recipe_key *key, uint64_t value,
		       struct gm_recipe **ret_recipe)
{
	uint32_t place, tag = tag_of(value, key->from->r[GM_REG_SP], &place);
	uint32_t word = recipes->values[place];
	struct gm_recipe *recipe = recipe_at(recipes, word & 0xffff);

	*ret_recipe = NULL;
	if ((word & 0xffff0000u) != tag)
		return false;
	if (!(word & 0xffff))
		return true;
	if (recipe->value != value || !begins(recipe, key))
		return false;
	*ret_recipe = recipe;
	return true;
}

static void keep_value(struct gm_recipes *recipes, const struct gm_regs *from, uint64_t value,
		       uint32_t slot)
{
	uint32_t place, tag = tag_of(value, from->r[GM_REG_SP], &place);

	recipes->values[place] = tag | slot;
}

/* ---- made -------------------------------------------------------------------------------- */

/* Room for a recipe of @count words: what follows is filled by the caller. */
static struct gm_recipe *take(struct gm_recipes *recipes, uint32_t count)
{
	uint32_t words = (uint32_t)(offsetof(struct gm_recipe, words) / 8) + count;
	uint32_t slots = (words + SLOT_WORDS - 1) / SLOT_WORDS, at = recipes->used;

	if (at + slots > GM_RECIPE_SLOTS)
		at = 1;
	if (recipes->last - at < slots)		/* that one is gone */
		recipes->last = 0;
	recipes->used = at + slots;
	if (recipes->used > recipes->most)
		recipes->most = recipes->used;
	return recipe_at(recipes, at);
}

static struct gm_recipe *keep(struct gm_recipes *recipes, struct gm_recipe *recipe,
			      const struct gm_regs *from)
{
	uint32_t slot = slot_of(recipes, recipe);

	recipe->next = slot;
	keep_value(recipes, from, recipe->value, slot);
	*beginning_of(recipes, from) = (uint16_t)slot;
	return recipe;
}

struct gm_recipe *gm_recipe_like(struct gm_recipes *recipes, const struct gm_recipe *recipe,
				 uint64_t inside, uint64_t value)
{
	struct gm_regs from = { .r = { [GM_REG_PC] = recipe->pc, [GM_REG_SP] = recipe->sp,
				       [GM_REG_FP] = recipe->fp } };
	struct gm_recipe_key key = { &from, recipe->generation, recipe->what };
	struct gm_recipe *other;

	if (!find_value(recipes, &key, value, &other) || !other || other->hash != recipe->hash) {
		/* it may lie where the other will: a move */
		other = take(recipes, recipe->count);
		memmove(other, recipe, sizeof(*recipe) + recipe->count * sizeof(recipe->words[0]));
	}
	other->inside = inside;
	other->value = value;
	return keep(recipes, other, &from);
}

/* The words that undoing the frame at @w by @rule reads. False: it takes more than words, pc, sp and
 * fp. */
static bool note_frame(const struct gm_walk *w, uint64_t rule, struct frame *ret, uintptr_t *ret_cfa)
{
	const struct gm_window *window = &w->window;
	intptr_t save = gm_rule_save(rule);
	uintptr_t saved, cfa;

	memset(ret, 0, sizeof(*ret));
	switch (gm_rule_kind(rule)) {
	case GM_RULE_SP:
	case GM_RULE_FP:
		ret->uses_fp = gm_rule_kind(rule) == GM_RULE_FP;
		ret->keeps_fp = !save;
		cfa = (ret->uses_fp ? w->fp : w->sp) + (uintptr_t)gm_rule_offset(rule);
		saved = cfa - (uintptr_t)(8 * save);
		if (save)
			ret->at[1] = saved;
		ret->saved = 1;
		break;
	case GM_RULE_DRAP:
		ret->uses_fp = true;
		ret->at[0] = w->fp + (uintptr_t)gm_rule_offset(rule);
		saved = w->fp + (uintptr_t)(8 * save);
		ret->at[1] = saved;
		ret->saved = 1;
		if (ret->at[0] % 8 || !gm_window_holds(window, ret->at[0]))
			return false;
		cfa = *(const uintptr_t *)ret->at[0];
		if (ret->at[0] > saved) {
			ret->at[1] = ret->at[0];
			ret->at[0] = saved;
			ret->saved = 0;
		}
		break;
	default:
		return false;
	}
	if (cfa <= w->sp || cfa % 8 || saved % 8 || !gm_window_holds(window, cfa - 8) ||
	    (ret->at[1] && !gm_window_holds(window, saved)))
		return false;
	ret->at[2] = cfa - 8;
	*ret_cfa = cfa;
	return true;
}

/* The frames of @stack into @recipes->frames, walked by their rules. Returns how many read words; -1:
 * there can be no recipe. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static int note_frames(struct gm_recipes *recipes, const struct gm_regs *from,
		       const struct gm_recipe_stack *stack, uint32_t generation)
{
	uint64_t bits = gm_rule_wanted(0, generation);
	struct gm_walk w;

	gm_walk_begin(&w, from);
	if (from->has_all || !w.window.hi || w.sp % 8 || stack->count > FRAMES_MOST)
		return -1;
	for (int i = 0; i < stack->count; i++) {
		uintptr_t address = w.pc - !w.exact, cfa, fp;
		uint64_t entry = gm_rule_find(address, bits);
		uint64_t rule = entry ? gm_entry_rule(entry) : gm_walk_learn(address, generation);
		struct frame *frame = &recipes->frames[i];

		if (w.pc != stack->pcs[i])
			return -1;
		if (gm_rule_kind(rule) == GM_RULE_END)
			return i + 1 == stack->count && !stack->more ? i : -1;
		if (!note_frame(&w, rule, frame, &cfa))
			return -1;
		fp = frame->keeps_fp ? w.fp : *(const uintptr_t *)frame->at[frame->saved];
		w.pc = *(const uintptr_t *)(cfa - 8);
		w.sp = cfa;
		w.fp = fp;
		w.exact = false;
		if (!w.pc)
			return i + 1 == stack->count && !stack->more ? i + 1 : -1;
	}
	return stack->more ? stack->count : -1;
}

/* Leave the saved frame pointers out that no frame further out uses. Returns whether the first one's
 * is. */
static bool drop_unused(struct frame *frames, int count)
{
	bool used = false;

	for (int i = count; i-- > 0;) {
		if (!used && !frames[i].keeps_fp)
			frames[i].at[frames[i].saved] = 0;
		used = frames[i].uses_fp || (used && frames[i].keeps_fp);
	}
	return used;
}

/* Into @ret_words, which may be NULL. Returns how many; -1: one of them does not fit. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static int write_words(const struct frame *frames, int count, uintptr_t sp, uint64_t *ret_words)
{
	uintptr_t before = sp - 8;
	int words = 0;

	for (int i = 0; i < count; i++)
		for (int k = 0; k < 3; k++) {
			uintptr_t at = frames[i].at[k], word;

			if (!at)
				continue;
			word = *(const uintptr_t *)at;
			if (at <= before || (at - before) / 8 > DISTANCE_MOST ||
			    word > WORD_MASK || words == GM_RECIPE_WORDS_MOST)
				return -1;
			if (ret_words)
				ret_words[words] = (at - before) / 8 << WORD_BITS | word;
			words++;
			before = at;
		}
	return words;
}

static struct gm_recipe *make(struct gm_recipes *recipes, const struct gm_recipe_key *key,
			      const struct gm_recipe_stack *stack, uint32_t generation)
{
	const uintptr_t *r = key->from->r;
	int count = note_frames(recipes, key->from, stack, generation), words;
	struct gm_recipe *recipe;
	bool by_fp;

	if (count <= 0)
		return NULL;
	by_fp = drop_unused(recipes->frames, count);
	words = write_words(recipes->frames, count, r[GM_REG_SP], NULL);
	if (words <= 0)
		return NULL;
	recipe = take(recipes, (uint32_t)words);
	*recipe = (struct gm_recipe){
		.pc = r[GM_REG_PC], .sp = r[GM_REG_SP], .fp = r[GM_REG_FP], .by_fp = by_fp,
		.generation = key->generation, .what = key->what, .hash = stack->hash,
		.inside = stack->inside, .value = stack->value, .kind = stack->kind,
		.count = (uint16_t)words,
	};
	write_words(recipes->frames, count, r[GM_REG_SP], recipe->words);
	return recipe;
}

struct gm_recipe *gm_recipe_of(struct gm_recipes *recipes, const struct gm_recipe_key *key,
			       const struct gm_recipe_stack *stack, uint32_t generation)
{
	struct gm_recipe *recipe;

	if (find_value(recipes, key, stack->value, &recipe)) {
		if (recipe)
			*beginning_of(recipes, key->from) = (uint16_t)slot_of(recipes, recipe);
		return recipe;
	}
	if (recipes->credit < CREDIT_MOST)
		recipes->credit += CREDIT_A_WALK;
	if (recipes->credit < (uint32_t)stack->count)
		return NULL;
	recipes->credit -= (uint32_t)stack->count;
	recipe = make(recipes, key, stack, generation);
	if (recipe)
		return keep(recipes, recipe, key->from);
	keep_value(recipes, key->from, stack->value, 0);
	return NULL;
}

#endif
