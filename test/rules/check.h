/*
 * check.h - check the structures of limbo, of heaps and of the cache: for unit tests, and for a library that is
 * built with RULES=1 (selfcheck.c).
 */
#ifndef GM_RULES_CHECK_H
#define GM_RULES_CHECK_H

#include <stdint.h>

struct gm_reuse;
struct gm_heap;
struct gm_free_set;
struct gm_cache_heap;

/* All these functions return how many rules of the structure are violated; 0: it is sound. Call these two from any
 * thread that holds no lock: the first takes the locks retire and limbo, the second the domain's lock, for
 * O(blocks). */
int gm_reuse_check(struct gm_reuse *reuse);
int gm_cache_heap_check(struct gm_cache_heap *heap);

/* Check a heap, whose lock the caller holds; and one of its free sets. Statistics are compared if no other heap shares
 * them. @first_segment: the first of the list that contains the heap's segments. */
int gm_heap_check(struct gm_heap *heap, uint32_t first_segment);
int gm_free_set_check(struct gm_free_set *set);

#endif
