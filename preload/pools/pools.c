/*
 * pools.c - a pool's blocks and the pieces that it holds: see pools.h.
 *
 * Live blocks are in the pool's table (recorder/record/lives.h), which needs no lock. Pieces change seldom, so they are
 * in a list under the pool's lock. An array by address (struct gm_granule) repeats what a new block has to know about
 * its piece, so that most blocks take no lock.
 *
 * Thread and signal context, locks: as pools.h.
 */
#include "preload/pools/pools.h"

#include <errno.h>
#include <string.h>

#include "preload/cache/cache.h"
#include "preload/hooks/record.h"
#include "recorder/journal/sys.h"
#include "recorder/modules/modules.h"
#include "recorder/record/lives_change.h"

#define NAME_BYTES 256u
#define MANY 4096u			/* about as many blocks as a PyTorch model has at once */
#define ADDRESSES (UINT64_C(1) << 57)	/* bound of a program's addresses */

static struct gm_program_pool pools[GM_MAX_POOLS];
static _Atomic(uint32_t) pool_count;
static struct gm_lock making = { .rank = GM_RANK_POOL };	/* for new pools */

struct gm_program_pool *gm_pool_of(uint8_t domain)
{
	uint32_t index = (uint32_t)domain - GM_DOMAIN_POOLS;

	return domain >= GM_DOMAIN_POOLS && index < gm_get_acquire(&pool_count) ? &pools[index] : NULL;
}

/* ---- the list of pools ---- */

/* Return the domain of a pool; 0: none. @source GM_POOL_NONE: of any source and key. */
static uint8_t find_pool(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key)
{
	for (uint8_t d = GM_DOMAIN_POOLS; d < GM_DOMAIN_POOLS + gm_get_acquire(&pool_count); d++) {
		const struct gm_pool *pool = gm_pool_at(d);

		if (pool && pool->device == device && pool->name == name &&
		    (source == GM_POOL_NONE || (pool->source == source && pool->key == key)))
			return d;
	}
	return 0;
}

uint32_t gm_pool_name_id(const char *name)
{
	return *name ? gm_intern_string(name, (uint32_t)strnlen(name, NAME_BYTES)) : GM_NONE;
}

uint8_t gm_pool_find(const char *name, uint32_t device)
{
	return gm_pools_recording() ? find_pool(GM_POOL_NONE, device, gm_pool_name_id(name), 0) : 0;
}

static void going(uint64_t address, uint64_t size);

static uint8_t make_pool(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key)
{
	uint32_t count = gm_get(&pool_count);
	struct gm_program_pool *pool = &pools[count];
	uint8_t domain;

	if (count == GM_MAX_POOLS)
		return 0;
	if (!pool->granules)
		pool->granules = gm_map_private(GM_GRANULES * sizeof(*pool->granules));
	domain = pool->granules ? gm_record_pool(source, device, name, key) : 0;
	if (!domain)
		return 0;
	/* A failure needs no action, because later blocks try again. */
	gm_lives_begin(&pool->lives, domain, source == GM_POOL_LIBC10 ? MANY : 0);
	pool->lock.rank = GM_RANK_POOL;
	gm_set(&pool->low, UINT64_MAX);
	gm_set_release(&pool_count, count + 1);
	gm_record_watch_going(going);
	return domain;
}

uint8_t gm_pool_open(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key)
{
	uint8_t domain;

	if (!gm_pools_recording() || device >= GM_MAX_DEVICES || !name)
		return 0;
	domain = find_pool(source, device, name, key);
	if (domain || !gm_lock(&making))
		return domain;
	domain = find_pool(source, device, name, key);
	if (!domain)
		domain = make_pool(source, device, name, key);
	gm_unlock(&making);
	return domain;
}

/* ---- granules ---- */

/* A piece [@address, @end) begins (@held) or ends: set or clear the held word of each granule that it covers wholly. */
static void tell_granules(struct gm_program_pool *pool, uint64_t address, uint64_t end, uint8_t kind, bool held)
{
	uint64_t step = UINT64_C(1) << GM_GRANULE_BITS;

	if (end - address > (uint64_t)GM_GRANULES << GM_GRANULE_BITS)	/* visit each entry once */
		end = address + ((uint64_t)GM_GRANULES << GM_GRANULE_BITS);
	for (uint64_t at = (address + step - 1) & ~(step - 1); at + step <= end; at += step) {
		struct gm_granule *granule = gm_granule_of(pool, at);

		if (held)
			gm_set(&granule->held, gm_granule_word(at, kind));
		else if (gm_get(&granule->held) == gm_granule_word(at, kind))
			gm_set(&granule->held, 0);
	}
}

/* May live blocks begin in [@address, @end)? Can be true without any, because granules share entries. */
static bool may_be_live(const struct gm_program_pool *pool, uint64_t address, uint64_t end)
{
	uint64_t last = (end - 1) >> GM_GRANULE_BITS;

	for (uint64_t n = address >> GM_GRANULE_BITS, i = 0; n <= last && i < GM_GRANULES; n++, i++)
		if (gm_get(&pool->granules[n % GM_GRANULES].live))
			return true;
	return false;
}

/* End all live blocks that begin in [@address, +@size). */
static void end_blocks(struct gm_program_pool *pool, uint64_t address, uint64_t size)
{
	uint64_t ended = 0, at;

	while ((at = gm_lives_end_next(&pool->lives, address, size, &ended)))
		gm_count(&gm_granule_of(pool, at)->live, -1);
}

/* ---- pieces: the caller holds the pool's lock ---- */

/* End a piece and the blocks that are live in it. */
static void drop_piece(struct gm_program_pool *pool, size_t index)
{
	struct gm_held_piece *piece = &pool->held.at[index];

	if (may_be_live(pool, piece->address, piece->end))
		end_blocks(pool, piece->address, piece->end - piece->address);
	tell_granules(pool, piece->address, piece->end, piece->kind, false);
	gm_record_free_stack(0, piece->block, 0, 0, GM_NONE);
	gm_held_remove(&pool->held, index);
}

/* Find the allocation of the cache or the driver that contains @address. Returns false when none is known. */
static bool find_piece(struct gm_program_pool *pool, uint8_t device, uint64_t address, struct gm_piece *ret)
{
	uint32_t generation = gm_record_outside_generation(device);
	struct gm_block block;
	uint32_t id = gm_cache_block(address, &block);

	if (id && block.domain == device && address - block.address < block.requested) {
		*ret = (struct gm_piece){
			.address = block.address, .size = block.requested, .tsc = block.tsc,
			.context = gm_record_context_of(id), .stack = block.stack,
			.module = block.module, .kind = block.kind,
		};
		return true;
	}
	if (address >= pool->vain_low && address < pool->vain_high && pool->vain_generation == generation)
		return false;
	if (gm_record_find(device, address, ret, &pool->vain_low, &pool->vain_high))
		return true;
	pool->vain_generation = generation;
	return false;
}

/* Add the allocation that contains @address to the pool's pieces. @small: count it in the small class. Returns false
 * when no allocation is known there, or there is no room. */
static bool hold(struct gm_program_pool *pool, uint8_t domain, uint8_t device, uint64_t address, bool small)
{
	struct gm_held_piece piece;
	struct gm_piece found;
	struct gm_alloc alloc;
	size_t index;

	if (!find_piece(pool, device, address, &found))
		return false;
	alloc = (struct gm_alloc){
		.address = found.address, .size = found.size, .tsc = found.tsc, .domain = domain,
		.stack = found.stack, .module = found.module, .kind = found.kind,
		.flags = (uint8_t)(GM_SEGMENT_HELD | (small ? GM_SEGMENT_SMALL : 0) |
				   (found.kind == GM_KIND_VMM ? GM_SEGMENT_EXPANDABLE : 0)),
	};
	piece = (struct gm_held_piece){
		.address = found.address, .end = found.address + found.size, .context = found.context,
		.kind = found.kind,
	};
	/* Drop the pieces that overlap it: their memory must have been freed by a call that we did not see. */
	for (index = gm_held_from(&pool->held, piece.address);
	     index < pool->held.count && pool->held.at[index].address < piece.end;)
		drop_piece(pool, index);
	if (gm_record_alloc(0, &alloc, &piece.block))
		return false;
	if (gm_held_insert(&pool->held, index, &piece)) {
		gm_record_free(0, piece.block, 0, 0);
		return false;
	}
	tell_granules(pool, piece.address, piece.end, piece.kind, true);
	if (piece.address < gm_get(&pool->low))
		gm_set(&pool->low, piece.address);
	if (piece.end > gm_get(&pool->high))
		gm_set(&pool->high, piece.end);
	return true;
}

/* Add every known allocation in [@address, @end) to the pool's pieces. Returns false when a part of the range is in
 * no piece afterwards. */
static bool hold_all(struct gm_program_pool *pool, uint8_t domain, uint64_t address, uint64_t end, bool small)
{
	uint8_t device = (uint8_t)gm_pool_at(domain)->device;
	size_t i = gm_held_from(&pool->held, address);
	bool all = true;

	while (address < end) {
		const struct gm_held_piece *piece = &pool->held.at[i];

		if (i < pool->held.count && piece->address <= address) {
			address = piece->end;
			i++;
		} else if (hold(pool, domain, device, address, small)) {
			i = gm_held_from(&pool->held, address);
		} else {
			all = false;
			i = gm_held_from(&pool->held, address);
			address = i < pool->held.count ? pool->held.at[i].address : end;
		}
	}
	return all;
}

/* End the pieces that overlap [@address, +@size), because this memory is about to be freed. @size 0: end the piece that
 * begins at @address. Takes the pool's lock. */
static void pool_going(struct gm_program_pool *pool, uint64_t address, uint64_t size)
{
	uint64_t end = address + (size ? size : 1);
	size_t i;

	if (address >= gm_get(&pool->high) || end <= gm_get(&pool->low) || !gm_lock(&pool->lock))
		return;
	i = gm_held_from(&pool->held, address);
	while (i < pool->held.count && pool->held.at[i].address < end &&
	       (size || pool->held.at[i].address == address))
		drop_piece(pool, i);
	gm_unlock(&pool->lock);
}

static void going(uint64_t address, uint64_t size)
{
	uint32_t count = gm_get_acquire(&pool_count);

	for (uint32_t i = 0; i < count; i++)
		pool_going(&pools[i], address, size);
}

static void context_ended(uint32_t context, CUcontext handle, const struct gm_ending *ending)
{
	(void)handle;
	(void)ending;
	for (uint32_t i = 0; context && i < gm_get_acquire(&pool_count); i++) {
		struct gm_program_pool *pool = &pools[i];

		if (!gm_lock(&pool->lock))
			continue;
		for (size_t at = pool->held.count; at-- > 0;)
			if (pool->held.at[at].context == context)
				drop_piece(pool, at);
		gm_unlock(&pool->lock);
	}
}

const struct gm_context_watcher gm_pools_of_contexts = { .ended = context_ended };

/* ---- blocks, for reporters ---- */

/* Return the piece that contains @address; NULL: none. The caller holds the pool's lock. */
static inline const struct gm_held_piece *piece_at(struct gm_program_pool *pool, uint64_t address)
{
	size_t index = gm_held_from(&pool->held, address);
	const struct gm_held_piece *piece = &pool->held.at[index];

	return index < pool->held.count && piece->address <= address ? piece : NULL;
}

uint8_t gm_pool_kind_slow(struct gm_program_pool *pool, uint64_t address, uint64_t end)
{
	uint8_t domain = pool->lives.domain, kind = GM_KIND_DEVICE;
	const struct gm_held_piece *piece;

	if (!gm_lock(&pool->lock)) {
		gm_count(&gm_pool_at(domain)->outside, 1);
		return kind;
	}
	piece = piece_at(pool, address);
	if (!piece || piece->end < end) {
		if (!hold_all(pool, domain, address, end, end - address <= GM_SMALL_BYTES))
			gm_count(&gm_pool_at(domain)->outside, 1);
		piece = piece_at(pool, address);
	}
	if (piece)
		kind = piece->kind;
	gm_unlock(&pool->lock);
	return kind;
}

bool gm_pool_is_possible(const struct gm_program_pool *pool, uint64_t address, uint64_t size)
{
	const struct gm_pool_counts *of = pool->lives.pool->classes;

	if (!address || !size || size > ADDRESSES || address > ADDRESSES - size)
		return false;
	return size <= GM_LARGEST_USUAL ||
	       (uint64_t)gm_pool_live_bytes(&of[0]) + (uint64_t)gm_pool_live_bytes(&of[1]) <= ADDRESSES - size;
}

uint64_t gm_pool_size_at(uint8_t domain, uint64_t address)
{
	struct gm_program_pool *pool = gm_pool_of(domain);

	return pool && address ? gm_lives_size(&pool->lives, address) : 0;
}

void gm_pool_name(uint8_t domain, uint64_t address, uint32_t name)
{
	struct gm_program_pool *pool = gm_pool_of(domain);

	if (pool && address)
		gm_lives_name(&pool->lives, address, name);
}

uint8_t gm_pool_device_of(uint64_t address)
{
	uint64_t low, high;
	struct gm_block block;
	struct gm_piece piece;

	if (gm_cache_block(address, &block) && block.domain < GM_MAX_DEVICES)
		return block.domain;
	for (uint8_t d = 0; d < GM_MAX_DEVICES; d++)
		if (gm_rec.domains[d].first_segment && gm_record_find(d, address, &piece, &low, &high))
			return d;
	return gm_where_last();
}

void gm_pool_take_all(uint8_t domain, uint64_t address, uint64_t size)
{
	struct gm_program_pool *pool = gm_pool_of(domain);

	if (pool)
		end_blocks(pool, address, size);
}
