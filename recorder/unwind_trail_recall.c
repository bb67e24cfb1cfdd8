/*
 * unwind_trail_recall.c - what a trail will want next: its recipes (unwind_recipe.h), found, used and
 * made, and the path that a walk will begin with. Owns nothing.
 * Contexts as unwind_trail.h: who has entered the trail.
 */
#include "recorder/unwind_trail.h"

#include <stddef.h>

#include "recorder/unwind_trail_internal.h"

#ifndef __aarch64__

struct gm_recipe *gm_trail_recall(const struct gm_trail_walk *walk, struct gm_recipe_key *key)
{
	struct gm_trail *t = walk->trail;
	struct gm_recipe *recipe;

	key->what |= (uint64_t)t->stamp << GM_TRAIL_WHAT_BITS;
	if (!t->recipes)
		return NULL;
	recipe = gm_recipe_find(t->recipes, key);
	t->recalled += recipe != NULL;
	return recipe;
}

struct gm_recipe *gm_trail_recall_like(const struct gm_trail_walk *walk,
				       const struct gm_recipe *recipe, uint64_t inside,
				       uint64_t value)
{
	return gm_recipe_like(walk->trail->recipes, recipe, inside, value);
}

void gm_trail_met(const struct gm_trail_walk *walk, struct gm_recipe *recipe)
{
	gm_recipe_met(walk->trail->recipes, recipe);
}

void gm_trail_remember(const struct gm_trail_walk *walk, const struct gm_recipe_key *key,
		       const struct gm_recipe_stack *stack)
{
	struct gm_trail *t = walk->trail;
	struct gm_recipe *recipe;

	if (!t->recipes && !t->no_recipes) {
		t->recipes = gm_recipes_new();
		t->no_recipes = !t->recipes;
	}
	if (!t->recipes)
		return;
	recipe = gm_recipe_of(t->recipes, key, stack, t->generation);
	if (recipe)
		gm_recipe_met(t->recipes, recipe);
}

void *gm_trail_room(const struct gm_trail_walk *walk)
{
	struct gm_trail *t = walk->trail;

	return t->recipes ? gm_recipes_room(t->recipes) : NULL;
}

uint32_t gm_trail_path(const struct gm_trail_walk *walk)
{
	return walk->trail->path;
}

void gm_trail_expect(const struct gm_trail_walk *walk, uint32_t path)
{
	struct gm_trail *t = walk->trail;

	t->expected = path;
	if (t->paths)
		gm_path_fetch(t->paths, path);
}

#else

void *gm_trail_room(const struct gm_trail_walk *walk)
{
	(void)walk;
	return NULL;
}

uint32_t gm_trail_path(const struct gm_trail_walk *walk)
{
	(void)walk;
	return 0;
}

void gm_trail_expect(const struct gm_trail_walk *walk, uint32_t path)
{
	(void)walk;
	(void)path;
}

struct gm_recipe *gm_trail_recall(const struct gm_trail_walk *walk, struct gm_recipe_key *key)
{
	(void)walk;
	(void)key;
	return NULL;
}

struct gm_recipe *gm_trail_recall_like(const struct gm_trail_walk *walk,
				       const struct gm_recipe *recipe, uint64_t inside,
				       uint64_t value)
{
	(void)walk;
	(void)recipe;
	(void)inside;
	(void)value;
	return NULL;
}

void gm_trail_met(const struct gm_trail_walk *walk, struct gm_recipe *recipe)
{
	(void)walk;
	(void)recipe;
}

void gm_trail_remember(const struct gm_trail_walk *walk, const struct gm_recipe_key *key,
		       const struct gm_recipe_stack *stack)
{
	(void)walk;
	(void)key;
	(void)stack;
}

#endif
