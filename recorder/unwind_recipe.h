/*
 * unwind_recipe.h - stacks that a thread has had, each kept as the words that a walk of it reads:
 * who finds every one as it was has the same frames, and need not walk.
 *
 * A walk is a function of (pc, sp, fp) where it begins and of the words it reads: return addresses
 * and what a frame further out takes for its place. A recipe has these, innermost first:
 *
 *	63         48 47           0
 *	| distance    | the word    |	in words from the one before, of the first from below the sp
 *
 * Saved frame pointers that no frame uses are not among them. All lie on the thread's own stack
 * (recorder/window.h), above the sp that the recipe begins with: they can be read, whatever else has
 * changed. Which recipe it may be is a guess: the one that came after the last one, then the last one
 * that began so. x86-64.
 *
 * Thread context: who has entered the trail that the recipes belong to.
 */
#ifndef GM_RECORDER_UNWIND_RECIPE_H
#define GM_RECORDER_UNWIND_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind.h"

#define GM_RECIPE_SLOTS 32768u		/* of 64 bytes, a ring: 2 MiB, touched as used */
#define GM_RECIPE_WORDS_MOST 511u
#define GM_RECIPE_AHEAD 8u		/* slots that are fetched: more than most have */

struct gm_recipe {
	uintptr_t pc, sp, fp;		/* where the walk begins; @fp: if @by_fp */
	uint64_t generation, what;	/* what it is good for: the caller's, and the trail's stamp */
	uint64_t inside;		/* the caller's: what else tells the stack, ... */
	uint64_t value;			/* ... and what it is */
	uint32_t next;			/* the recipe that came after it, or anything */
	uint16_t count;			/* words */
	uint8_t kind;			/* the caller's */
	bool by_fp;
	uint64_t hash;			/* the caller's: of the frames */
	uint64_t words[];
};

/* What a recipe must be good for. */
struct gm_recipe_key {
	const struct gm_regs *from;
	uint64_t generation;
	uint64_t what;			/* under 1 << 48 */
};

/* What is kept of a stack: its frames, and what it is. */
struct gm_recipe_stack {
	const uintptr_t *pcs;
	int count;
	bool more;			/* there are frames beyond these */
	uint64_t hash, inside, value;
	uint8_t kind;
};

struct gm_recipes;

/* Room for recipes, none yet; NULL when there is none. */
struct gm_recipes *gm_recipes_new(void);

/* Nothing that is kept may come alive: the stamps begin anew. */
void gm_recipes_clear(struct gm_recipes *recipes);

/* The recipe of the stack at @key, every word of which is as it was; NULL: none is known. */
struct gm_recipe *gm_recipe_find(struct gm_recipes *recipes, const struct gm_recipe_key *key);

/* The same frames as @recipe's, which was just found, with other things inside: the recipe that has
 * these, which is made if there is none. */
struct gm_recipe *gm_recipe_like(struct gm_recipes *recipes, const struct gm_recipe *recipe,
				 uint64_t inside, uint64_t value);

/* The recipe of @stack, just walked from @key->from: made, if there is none, by rules of @generation.
 * NULL: it cannot be put so, since a frame needs more than the pc, sp and fp, or lies elsewhere. */
struct gm_recipe *gm_recipe_of(struct gm_recipes *recipes, const struct gm_recipe_key *key,
			       const struct gm_recipe_stack *stack, uint32_t generation);

/* GM_RECIPE_ROOM bytes for the caller, aligned to 64, zero at first. */
#define GM_RECIPE_ROOM 32768u
void *gm_recipes_room(struct gm_recipes *recipes);

/* @recipe was the stack of now: the one that came after it the last time is fetched. */
void gm_recipe_met(struct gm_recipes *recipes, struct gm_recipe *recipe);

#endif
