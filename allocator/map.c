/*
 * map.c - a map from a pointer or handle to the block that it names: see map.h.
 *
 * Thread context: any; one lock for each shard, rank leaf, never two at once. Signal context: none.
 * Fork: all memory has MADV_DONTFORK, so that a child has no copy of it.
 */
#include "allocator/map.h"

#include <errno.h>
#include <sys/mman.h>

#include "allocator/lock.h"

#define SHARDS 16u
#define FIRST_ENTRIES 128u		/* 3 KiB: one page */

struct entry { uint64_t key, value, space; };	/* value 0: empty */

struct shard {
	struct gm_lock lock;
	struct entry *entries;		/* NULL until the first insertion */
	uint64_t mask;			/* entries - 1 */
	uint64_t count;
} __attribute__((aligned(64)));

struct gm_map {
	struct shard shards[SHARDS];
	bool locked;			/* the caller holds its own lock at every call */
};

static void *pages(size_t bytes)
{
	int saved_errno = errno;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED)
		madvise(p, bytes, MADV_DONTFORK);
	errno = saved_errno;
	return p == MAP_FAILED ? NULL : p;
}

void *(*gm_map_pages)(size_t bytes) = pages;

static void pages_free(void *p, size_t bytes)
{
	int saved_errno = errno;

	munmap(p, bytes);
	errno = saved_errno;
}

/* Every bit of the key must affect every bit of the hash that is used, because addresses are multiples of 512 or
 * more. */
static uint64_t hash(enum gm_map_space space, uint64_t key)
{
	uint64_t h = key ^ ((uint64_t)space << 57);

	h ^= h >> 32;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	h ^= h >> 29;
	h *= UINT64_C(0xbf58476d1ce4e5b9);
	return h ^ h >> 32;
}

static struct shard *shard_of(struct gm_map *map, uint64_t h)
{
	return &map->shards[h >> 60 & (SHARDS - 1)];
}

struct gm_map *gm_map_new(bool locked)
{
	struct gm_map *map = gm_map_pages(sizeof(*map));

	for (unsigned int i = 0; map && i < SHARDS; i++)
		map->shards[i].lock.rank = GM_RANK_LEAF;
	if (map)
		map->locked = locked;
	return map;
}

static inline bool enter(const struct gm_map *map, struct shard *s)
{
	return map->locked || gm_lock(&s->lock);
}

static inline void leave(const struct gm_map *map, struct shard *s)
{
	if (!map->locked)
		gm_unlock(&s->lock);
}

/* Find the entry of (space, key), or the empty entry where it would go. The table is never full. */
static struct entry *find_locked(const struct shard *s, enum gm_map_space space, uint64_t key,
				 uint64_t h)
{
	for (uint64_t i = h & s->mask;; i = (i + 1) & s->mask) {
		struct entry *e = &s->entries[i];

		if (!e->value || (e->key == key && e->space == (uint64_t)space))
			return e;
	}
}

/* Make room for one more entry. When memory is short, a table may fill up to 15/16 before it refuses. */
static int grow_locked(struct shard *s)
{
	uint64_t entries = s->entries ? (s->mask + 1) * 2 : FIRST_ENTRIES;
	struct shard bigger = { .mask = entries - 1 };

	if (s->entries && s->count < (s->mask + 1) / 4 * 3)
		return 0;
	bigger.entries = gm_map_pages(entries * sizeof(struct entry));
	if (!bigger.entries)
		return s->entries && s->count < (s->mask + 1) / 16 * 15 ? 0 : -ENOMEM;
	for (uint64_t i = 0; s->entries && i <= s->mask; i++) {
		const struct entry *e = &s->entries[i];

		if (e->value)
			*find_locked(&bigger, (enum gm_map_space)e->space, e->key,
				     hash((enum gm_map_space)e->space, e->key)) = *e;
	}
	if (s->entries)
		pages_free(s->entries, (s->mask + 1) * sizeof(struct entry));
	s->entries = bigger.entries;
	s->mask = bigger.mask;
	return 0;
}

int gm_map_put(struct gm_map *map, enum gm_map_space space, uint64_t key, uint64_t value,
	       uint64_t *ret_old)
{
	uint64_t h = hash(space, key);
	struct shard *s = shard_of(map, h);
	struct entry *e;
	int r;

	if (!value)
		return -EINVAL;
	if (!enter(map, s))
		return -ETIMEDOUT;
	r = grow_locked(s);
	e = s->entries ? find_locked(s, space, key, h) : NULL;
	if (r < 0 && !(e && e->value))		/* replacing a value needs no room */
		goto out;
	r = 0;
	if (ret_old)
		*ret_old = e->value;
	s->count += !e->value;
	*e = (struct entry){ key, value, (uint64_t)space };
out:
	leave(map, s);
	return r;
}

uint64_t gm_map_get(struct gm_map *map, enum gm_map_space space, uint64_t key)
{
	uint64_t h = hash(space, key), value = 0;
	struct shard *s = shard_of(map, h);

	if (!enter(map, s))
		return 0;
	if (s->entries)
		value = find_locked(s, space, key, h)->value;
	leave(map, s);
	return value;
}

/* Empty @hole, and move back later entries of its run that may lie there. */
static void remove_locked(struct shard *s, struct entry *hole)
{
	uint64_t at = (uint64_t)(hole - s->entries);

	for (uint64_t i = (at + 1) & s->mask; s->entries[i].value; i = (i + 1) & s->mask) {
		const struct entry *e = &s->entries[i];
		uint64_t home = hash((enum gm_map_space)e->space, e->key) & s->mask;

		if (((i - home) & s->mask) >= ((i - at) & s->mask)) {
			s->entries[at] = *e;
			at = i;
		}
	}
	s->entries[at] = (struct entry){ 0 };
	s->count--;
}

/* Remove a value and return it. @only: remove only this value; 0: any. */
static uint64_t take(struct gm_map *map, enum gm_map_space space, uint64_t key, uint64_t only)
{
	uint64_t h = hash(space, key), value = 0;
	struct shard *s = shard_of(map, h);

	if (!enter(map, s))
		return 0;
	if (s->entries) {
		struct entry *e = find_locked(s, space, key, h);

		if (e->value && (!only || e->value == only)) {
			value = e->value;
			remove_locked(s, e);
		}
	}
	leave(map, s);
	return value;
}

uint64_t gm_map_take(struct gm_map *map, enum gm_map_space space, uint64_t key)
{
	return take(map, space, key, 0);
}

int gm_map_take_if(struct gm_map *map, enum gm_map_space space, uint64_t key, uint64_t value)
{
	return value && take(map, space, key, value) == value;
}
