/*
 * check.h - the structures of limbo, of heaps and of the cache, checked: for unit tests, and for a library that is built with
 * RULES=1 (selfcheck.c).
 */
#ifndef GM_RULES_CHECK_H
#define GM_RULES_CHECK_H

#include <stdint.h>

struct gm_reuse;
struct gm_heap;
struct gm_free_set;
struct gm_cache_heap;

/* All count violations of the structure; 0 if it is sound. Any thread that holds no lock: the first takes retire and
 * limbo, the second the domain's lock, for O(blocks). */
int gm_reuse_check(struct gm_reuse *reuse);
int gm_cache_heap_check(struct gm_cache_heap *heap);

/* The same of a heap, whose lock is held, and of one of its free sets. Statistics are compared where no other heap has
 * them. @first_segment: of the list that the heap's segments are in. */
int gm_heap_check(struct gm_heap *heap, uint32_t first_segment);
int gm_free_set_check(struct gm_free_set *set);

#endif
