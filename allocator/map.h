/*
 * map.h - a map from a pointer or handle to the block that it names.
 *
 * The map is an open-addressing table in its own memory (mmap, grows). It is divided into shards with a
 * gm_lock each; these locks are not taken if the owner uses the map only under its own lock. Keys are (name
 * space, 64-bit value). A CUdeviceptr and a host pointer share a name space.
 * Thread context: any. Signal context: none. Fork: a child does not have the memory (MADV_DONTFORK), and must
 * not use its parent's maps.
 *
 *   shard: [ entry | entry | - | entry | ... ]   linear probing from the hash of the key;
 *           removal moves later entries of the run back, so that no run has a hole
 */
#ifndef GM_ALLOCATOR_MAP_H
#define GM_ALLOCATOR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gm_map_space { GM_MAP_ADDRESS, GM_MAP_ARRAY, GM_MAP_HANDLE, GM_MAP_MAPPING, GM_MAP_EXTERNAL,
		    GM_MAP_POOL, GM_MAP_GRAPH };

struct gm_map;

/* Make an empty map. Returns NULL when there is no memory. @locked: the caller holds its own lock at every call,
 * so the map takes none. */
struct gm_map *gm_map_new(bool locked);

/* Insert or replace a value, which must not be 0. @ret_old (may be NULL): the value before; 0: none. Returns 0;
 * -ENOMEM; -ETIMEDOUT when the lock was not free in time. After an error nothing has changed. */
int gm_map_put(struct gm_map *map, enum gm_map_space space, uint64_t key, uint64_t value,
	       uint64_t *ret_old);

/* Return the value; 0: none. */
uint64_t gm_map_get(struct gm_map *map, enum gm_map_space space, uint64_t key);

/* Remove and return the value; 0: none. */
uint64_t gm_map_take(struct gm_map *map, enum gm_map_space space, uint64_t key);

/* Remove @key if its value is @value. Returns 1 when it was removed. */
int gm_map_take_if(struct gm_map *map, enum gm_map_space space, uint64_t key, uint64_t value);

/* Returns page-aligned, zeroed memory, or NULL. Tests replace it. */
extern void *(*gm_map_pages)(size_t bytes);

#endif
