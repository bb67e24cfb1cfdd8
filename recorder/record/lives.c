/*
 * lives.c - the tables of the live blocks of application pools: see lives.h.
 */
#include "recorder/record/lives.h"

#include "recorder/journal/journal.h"

#define CROWDED 16u			/* a block this many lines behind its place calls for a new level */
#define PATIENCE 65536u			/* calls refused after memory for a level was refused */
#define PART 16u			/* the first level stops doubling at this part of the budget */

/* ---- lines behind their places ------------------------------------------------------------------- */

/* Return the line @i lines behind @place, wrapping round at the end of the level. */
static struct gm_live *line_behind(const struct gm_lives_level *level, const struct gm_live *place, uint32_t i)
{
	return &level->lines[((uint64_t)(place - level->lines) + i) & ((UINT64_C(1) << level->bits) - 1)];
}

struct gm_live *gm_lives_find(const struct gm_lives *lives, uint64_t address)
{
	const struct gm_lives_level *level = gm_get_acquire(&lives->newest);

	for (; level && gm_lives_is_address(address) && level >= lives->level; level--) {
		const struct gm_live *place = gm_lives_place(level, address);
		uint32_t reach = gm_get(&place->reach);

		for (uint32_t i = 0; i <= reach; i++) {
			struct gm_live *line = line_behind(level, place, i);

			if (gm_get_acquire(&line->address) == address)
				return line;
		}
	}
	return NULL;
}

/* Raise @reach of @place to @far at least, because a block of @place lies @far lines behind it. */
static void reach_out(struct gm_live *place, uint32_t far)
{
	uint32_t reach = gm_get(&place->reach);

	while (reach < far &&
	       !atomic_compare_exchange_weak_explicit(&place->reach, &reach, far, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

struct gm_live *gm_lives_claim(struct gm_lives *lives, uint64_t address)
{
	const struct gm_lives_level *level = gm_get_acquire(&lives->newest);
	struct gm_live *place = level ? gm_lives_place(level, address) : NULL;

	for (uint32_t i = 0; place && i < GM_LIVES_PROBE; i++) {
		struct gm_live *line = line_behind(level, place, i);

		if (gm_get(&line->address) || !gm_lives_claim_line(line))
			continue;
		reach_out(place, i);
		if (i >= CROWDED)
			gm_set(&lives->crowded, 1);
		return line;
	}
	gm_set(&lives->crowded, 1);
	return NULL;
}

/* ---- levels ------------------------------------------------------------------------------------ */

static bool add_level(struct gm_lives *lives)
{
	const struct gm_lives_level *newest = gm_get(&lives->newest);
	struct gm_lives_level *next = newest ? &lives->level[newest - lives->level + 1] : lives->level;
	uint32_t bits = newest ? newest->bits + GM_LIVES_LEVEL_BITS : lives->first_bits, first;

	if (next == &lives->level[GM_LIVES_LEVELS])
		return false;
	first = gm_region_take_many(GM_REGION_LIVES, UINT32_C(1) << bits, false);
	if (!first)
		return false;
	*next = (struct gm_lives_level){ .lines = &gm_rec.lives[first], .bits = bits, .shift = 64 - bits };
	gm_set_release(&lives->newest, next);
	gm_set(&lives->crowded, 0);
	return true;
}

bool gm_lives_begin(struct gm_lives *lives, uint8_t domain, uint64_t blocks)
{
	lives->lock.rank = GM_RANK_POOL;
	lives->domain = domain;
	lives->pool = &gm_rec.domains[domain].pool;
	lives->first_bits = GM_LIVES_FIRST_BITS;
	while (UINT64_C(1) << lives->first_bits < 4 * blocks &&
	       sizeof(struct gm_live) << lives->first_bits < gm_rec.budget / PART)
		lives->first_bits++;
	if (gm_get(&lives->newest) || add_level(lives))
		return true;
	lives->first_bits = GM_LIVES_FIRST_BITS;
	return add_level(lives);
}

bool gm_lives_grow(struct gm_lives *lives)
{
	bool grown = false;

	if (!gm_lock_try(&lives->lock))
		return false;			/* another thread is adding a level */
	if (!gm_get(&lives->crowded))
		grown = true;
	else if (lives->patience)
		lives->patience--;
	else if (!(grown = add_level(lives)))
		lives->patience = PATIENCE;
	gm_unlock(&lives->lock);
	return grown;
}

/* ---- blocks ----------------------------------------------------------------------------------- */

uint64_t gm_lives_size(const struct gm_lives *lives, uint64_t address)
{
	const struct gm_live *line = gm_lives_find(lives, address);
	uint64_t size = line ? __atomic_load_n(&line->size, __ATOMIC_ACQUIRE) : 0;

	return size && gm_get(&line->address) == address ? size : 0;	/* the line may have changed hands meanwhile */
}

void gm_lives_name(struct gm_lives *lives, uint64_t address, uint32_t name)
{
	struct gm_live *line = gm_lives_find(lives, address);

	if (line)
		__atomic_store_n(&line->name, name, __ATOMIC_RELAXED);
}
