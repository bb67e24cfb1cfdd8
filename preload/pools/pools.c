/*
 * pools.c - a pool's blocks and the pieces that it holds: see pools.h.
 *
 * Here lies what a look-up by address needs; all else is in the journal. The two are changed together
 * under the pool's lock, the journal in transactions of its own.
 */
#include "preload/pools/pools.h"

#include <errno.h>
#include <string.h>

#include "allocator/map.h"
#include "preload/api/history.h"
#include "preload/cache/cache.h"
#include "preload/hooks/record.h"
#include "preload/pools/held.h"
#include "recorder/stacks/stacks.h"

#define NAME_BYTES 256u
#define BATCH 32u
#define ADDRESSES (UINT64_C(1) << 57)	/* that a program can have */
#define LARGE (UINT64_C(1) << 40)	/* sums of all blocks that there can be, none larger, stay in 64 bits */
#define GRAIN 512u			/* of a length that the map keeps with a block */

struct pool {
	struct gm_lock lock;
	struct gm_map *blocks;		/* address -> length in grains << 32 | its record; lock: @lock */
	struct gm_held_list held;
	_Atomic(uint64_t) low, high;	/* all of @held lies between them; without the lock, too */
	/* where nothing of the driver's was found, and gm_record_comings then */
	uint64_t vain_low, vain_high;
	uint32_t vain_comings;
};

static struct pool pools[GM_MAX_POOLS];
static _Atomic(uint32_t) pool_count;
static struct gm_lock making = { .rank = GM_RANK_POOL };

static struct pool *pool_of(uint8_t domain)
{
	uint32_t index = (uint32_t)domain - GM_DOMAIN_POOLS;

	return domain >= GM_DOMAIN_POOLS && index < gm_get_acquire(&pool_count) ? &pools[index] : NULL;
}

/* ---- which pools there are ---- */

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
	struct pool *pool = &pools[count];
	uint8_t domain;

	if (count == GM_MAX_POOLS)
		return 0;
	if (!pool->blocks)
		pool->blocks = gm_map_new(true);
	domain = pool->blocks ? gm_record_pool(source, device, name, key) : 0;
	if (!domain)
		return 0;
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

/* ---- blocks ---- */

static uint64_t value_of(uint32_t block, uint64_t size)
{
	uint64_t grains = (size + GRAIN - 1) / GRAIN;

	return (grains > UINT32_MAX ? UINT32_MAX : grains) << 32 | block;
}

static uint64_t end_of(uint64_t address, uint64_t value)
{
	return address + (value >> 32) * GRAIN;
}

/* The block of @value ends, at @tsc (0: now). */
static int end_block(struct pool *pool, uint64_t address, uint64_t value, uint64_t tsc, uint32_t stack)
{
	gm_held_count(&pool->held, address, end_of(address, value), -1);
	return gm_record_free_stack(0, (uint32_t)value, tsc, 0, stack);
}

/* All blocks that are handed out in [@address, +@size) end. */
static void end_blocks(struct pool *pool, uint8_t domain, uint64_t address, uint64_t size)
{
	struct gm_given given[BATCH];
	unsigned int count, ended;

	do {
		count = gm_record_given(domain, address, size, given, BATCH);
		ended = 0;
		for (unsigned int i = 0; i < count; i++) {
			uint64_t value = value_of(given[i].block, given[i].size);

			gm_map_take_if(pool->blocks, GM_MAP_ADDRESS, given[i].address, value);
			ended += !end_block(pool, given[i].address, value, 0, GM_NONE);
		}
	} while (count == BATCH && ended);
}

/* ---- pieces ---- */

/* A piece ends, with what is handed out in it. */
static void drop_piece(struct pool *pool, uint8_t domain, size_t index)
{
	struct gm_held_piece *piece = &pool->held.at[index];

	/* Of a block that was handed out before anything was known of its memory, the end alone has counted. */
	if (piece->live || gm_get(&gm_pool_at(domain)->outside))
		end_blocks(pool, domain, piece->address, piece->end - piece->address);
	gm_record_free_stack(0, piece->block, 0, 0, GM_NONE);
	gm_held_remove(&pool->held, index);
}

/* Find what of the driver's has @address. */
static bool find_piece(struct pool *pool, uint8_t device, uint64_t address, struct gm_piece *ret)
{
	uint32_t comings = gm_record_comings(device);
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
	if (address >= pool->vain_low && address < pool->vain_high && pool->vain_comings == comings)
		return false;
	if (gm_record_find(device, address, ret, &pool->vain_low, &pool->vain_high))
		return true;
	pool->vain_comings = comings;
	return false;
}

/* What has @address is held from now on, at @index of the list or before. */
static bool hold(struct pool *pool, uint8_t domain, uint8_t device, uint64_t address, bool small)
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
	/* What was there before went without our seeing it. */
	for (index = gm_held_from(&pool->held, piece.address);
	     index < pool->held.count && pool->held.at[index].address < piece.end;)
		drop_piece(pool, domain, index);
	if (gm_record_alloc(0, &alloc, &piece.block))
		return false;
	if (gm_held_insert(&pool->held, index, &piece)) {
		gm_record_free(0, piece.block, 0, 0);
		return false;
	}
	if (piece.address < gm_get(&pool->low))
		gm_set(&pool->low, piece.address);
	if (piece.end > gm_get(&pool->high))
		gm_set(&pool->high, piece.end);
	return true;
}

/* All of [@address, @end) is held, as far as anything is known of it. False: of some of it nothing is. */
static bool hold_all(struct pool *pool, uint8_t domain, uint64_t address, uint64_t end, bool small)
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

/* [@address, +@size) is given back to the driver; @size 0: the piece that begins there, if one does. */
static void pool_going(struct pool *pool, uint8_t domain, uint64_t address, uint64_t size)
{
	uint64_t end = address + (size ? size : 1);
	size_t i;

	if (address >= gm_get(&pool->high) || end <= gm_get(&pool->low) || !gm_lock(&pool->lock))
		return;
	i = gm_held_from(&pool->held, address);
	while (i < pool->held.count && pool->held.at[i].address < end &&
	       (size || pool->held.at[i].address == address))
		drop_piece(pool, domain, i);
	gm_unlock(&pool->lock);
}

static void going(uint64_t address, uint64_t size)
{
	uint32_t count = gm_get_acquire(&pool_count);

	for (uint32_t i = 0; i < count; i++)
		pool_going(&pools[i], (uint8_t)(GM_DOMAIN_POOLS + i), address, size);
}

static void context_ended(uint32_t context, CUcontext handle, const struct gm_ending *ending)
{
	(void)handle;
	(void)ending;
	for (uint32_t i = 0; context && i < gm_get_acquire(&pool_count); i++) {
		struct pool *pool = &pools[i];

		if (!gm_lock(&pool->lock))
			continue;
		for (size_t at = pool->held.count; at-- > 0;)
			if (pool->held.at[at].context == context)
				drop_piece(pool, (uint8_t)(GM_DOMAIN_POOLS + i), at);
		gm_unlock(&pool->lock);
	}
}

const struct gm_context_watcher gm_pools_of_contexts = { .ended = context_ended };

/* ---- what is told ---- */

/* The piece in which @address lies; NULL where nothing is known of it. */
static inline const struct gm_held_piece *piece_at(struct pool *pool, uint64_t address)
{
	size_t index = gm_held_from(&pool->held, address);
	const struct gm_held_piece *piece = &pool->held.at[index];

	return index < pool->held.count && piece->address <= address ? piece : NULL;
}

/* A block is recorded, of the kind that its memory is; an older one at its address, if any, ends. */
static int give_locked(struct pool *pool, struct gm_alloc *alloc)
{
	uint64_t old = 0, value, end = alloc->address + alloc->size;
	const struct gm_held_piece *piece = piece_at(pool, alloc->address);
	uint32_t block;
	int r;

	if (gm_unlikely(!piece || piece->end < end)) {
		if (!hold_all(pool, alloc->domain, alloc->address, end, alloc->size <= GM_SMALL_BYTES))
			gm_count(&gm_pool_at(alloc->domain)->outside, 1);
		piece = piece_at(pool, alloc->address);
	}
	if (gm_likely(piece))
		alloc->kind = piece->kind;
	r = gm_record_alloc(0, alloc, &block);
	if (r)
		return r;
	value = value_of(block, alloc->size);
	r = gm_map_put(pool->blocks, GM_MAP_ADDRESS, alloc->address, value, &old);
	if (r) {
		gm_record_free(0, block, 0, 0);
		return r;
	}
	gm_held_count(&pool->held, alloc->address, end_of(alloc->address, value), 1);
	if (old) {
		gm_count(&gm_pool_at(alloc->domain)->double_allocations, 1);
		/* It ends before: in the history an address is free when it is handed out again. */
		end_block(pool, alloc->address, old, gm_rec.blocks[block].tsc - 1, GM_NONE);
	}
	return 0;
}

/* Blocks may lie in one another, but not so that the sums of their sizes pass 64 bits. */
static bool is_possible(uint8_t domain, uint64_t address, uint64_t size)
{
	const struct gm_stats *stats = &gm_rec.domains[domain].stats;

	if (!address || !size || size > ADDRESSES || address > ADDRESSES - size)
		return false;
	return gm_likely(size <= LARGE) ||
	       (uint64_t)__atomic_load_n(&stats->stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].current,
					 __ATOMIC_RELAXED) <= ADDRESSES - size;
}

int gm_pool_give(uint8_t domain, uint64_t address, uint64_t size, uint64_t stream, const void *caller)
{
	struct gm_alloc alloc = {
		.address = address, .size = size, .requested = size, .stream = stream,
		.domain = domain, .kind = GM_KIND_DEVICE,
	};
	struct pool *pool = pool_of(domain);
	int r = -ETIMEDOUT;

	if (!pool || !is_possible(domain, address, size))
		return -EINVAL;
	gm_alloc_caller(&alloc, caller);
	if (gm_lock(&pool->lock)) {
		r = give_locked(pool, &alloc);
		gm_unlock(&pool->lock);
	}
	if (r)
		gm_count(&gm_pool_at(domain)->lost, 1);
	return r;
}

int gm_pool_take(uint8_t domain, uint64_t address)
{
	struct pool *pool = pool_of(domain);
	uint32_t stack = gm_stacks_wanted() && gm_history_context() != GM_CONTEXT_STATE ?
			 GM_STACK_OF_BLOCK : GM_NONE;	/* a walk of its own would double the cost */
	uint64_t value;
	int r = -ENOENT;

	if (!pool || !address)
		return -EINVAL;
	if (!gm_lock(&pool->lock)) {
		gm_count(&gm_pool_at(domain)->lost, 1);
		return -ETIMEDOUT;
	}
	value = gm_map_take(pool->blocks, GM_MAP_ADDRESS, address);
	if (value)
		r = end_block(pool, address, value, 0, stack);
	gm_unlock(&pool->lock);
	if (!value)
		gm_count(&gm_pool_at(domain)->unknown_frees, 1);
	else if (r)
		gm_count(&gm_pool_at(domain)->lost, 1);
	return r;
}

uint64_t gm_pool_size_at(uint8_t domain, uint64_t address)
{
	struct pool *pool = pool_of(domain);
	uint64_t value;

	if (!pool || !gm_lock(&pool->lock))
		return 0;
	value = gm_map_get(pool->blocks, GM_MAP_ADDRESS, address);
	gm_unlock(&pool->lock);
	return end_of(0, value);
}

void gm_pool_name(uint8_t domain, uint64_t address, uint32_t name)
{
	struct pool *pool = pool_of(domain);
	uint64_t value;

	if (!pool || !gm_lock(&pool->lock))
		return;
	value = gm_map_get(pool->blocks, GM_MAP_ADDRESS, address);
	if (value)
		gm_record_name((uint32_t)value, name);
	gm_unlock(&pool->lock);
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
	struct pool *pool = pool_of(domain);

	if (!pool || !gm_lock(&pool->lock))
		return;
	end_blocks(pool, domain, address, size);
	gm_unlock(&pool->lock);
}
