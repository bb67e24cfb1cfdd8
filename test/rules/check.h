/*
 * check.h - the structures of limbo and of the cache, checked: for unit tests, and for a library that is built with
 * RULES=1 (selfcheck.c).
 */
#ifndef GM_RULES_CHECK_H
#define GM_RULES_CHECK_H

struct gm_reuse;
struct gm_cache_heap;

/* Both count violations of the structure; 0 if it is sound. Any thread that holds no lock: the first takes retire and
 * limbo, the second the domain's lock, for O(blocks). */
int gm_reuse_check(struct gm_reuse *reuse);
int gm_cache_heap_check(struct gm_cache_heap *heap);

#endif
