/*
 * map.h - from a pointer or handle to the block that it names.
 *
 * An open-addressing table in memory of its own (mmap, grows), in shards with a gm_lock each, which are
 * not taken where the map is only used under a lock of its owner's.
 * Thread context: any. Signal context: none. Fork: a child does not have the memory
 * (MADV_DONTFORK), and uses no map of its parent's. Keys are (name space, 64-bit value); a
 * CUdeviceptr and a host pointer share a name space.
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

/* A new, empty map; NULL when there is no memory. @locked: the caller has a lock of its own, which it
 * holds at every call, and the map takes none. */
struct gm_map *gm_map_new(bool locked);

/* Insert or replace. Returns 0; -ENOMEM, or -ETIMEDOUT when the lock could not be had, and nothing
 * has changed. @ret_old (may be NULL): the value before, 0 none. @value must not be 0. */
int gm_map_put(struct gm_map *map, enum gm_map_space space, uint64_t key, uint64_t value,
	       uint64_t *ret_old);

/* The value, 0 when there is none. */
uint64_t gm_map_get(struct gm_map *map, enum gm_map_space space, uint64_t key);

/* Remove and return the value, 0 when there was none. */
uint64_t gm_map_take(struct gm_map *map, enum gm_map_space space, uint64_t key);

/* Remove @key only while its value is @value; returns 1 when it was removed. */
int gm_map_take_if(struct gm_map *map, enum gm_map_space space, uint64_t key, uint64_t value);

/* Where the memory comes from: page-aligned, zeroed, NULL when there is none. Tests replace it. */
extern void *(*gm_map_pages)(size_t bytes);

#endif
