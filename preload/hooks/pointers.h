/*
 * pointers.h - the one map from what a program holds to what is recorded of it.
 *
 *   GM_MAP_ADDRESS, GM_MAP_ARRAY              block ids
 *   GM_MAP_HANDLE, GM_MAP_EXTERNAL, _MAPPING  backing.c's own numbers
 *   GM_MAP_POOL                               domain of the pool's memory, plus 1
 *
 * Thread context: any, after gm_hooks_start (which makes it).
 */
#ifndef GM_PRELOAD_POINTERS_H
#define GM_PRELOAD_POINTERS_H

#include "allocator/map.h"

extern struct gm_map *gm_pointers;

#endif
