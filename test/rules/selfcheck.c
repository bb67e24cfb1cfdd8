/*
 * selfcheck.c - what only a build with RULES=1 has (allocator/rules.h): the structures of the cache
 * checked from outside, and work counted.
 *
 * Thread context: any, outside hooks, while no other thread is in one. Signal context: none.
 */
#define GM_TEST_RULES 1
#include "preload/order/order.h"
#include "preload/cache/cache_internal.h"
#include "test/rules/check.h"

#define GPUMEM_TEST __attribute__((visibility("default")))

_Atomic(uint64_t) gm_test_works;

GPUMEM_TEST int gpumem_test_check(void);
GPUMEM_TEST uint64_t gpumem_test_works(void);

/* It works in no context, or in the one that it takes its place to be. */
static bool is_at_home(const struct gm_cache_heap *heap)
{
	return heap->kind != GM_KIND_POOL || !heap->at.handle || gm_context_find(heap->at.handle) == heap->at.home;
}

/* Violations of the structures of every heap, of limbo, and of the way from addresses to blocks. */
int gpumem_test_check(void)
{
	int violations = 0;

	if (!gm_cache_on())
		return 0;
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, GM_DOMAIN_UNKNOWN));)
		violations += gm_cache_heap_check(heap) + !is_at_home(heap);
	return violations + gm_reuse_check(gm_order_reuse());
}

/* How many submissions the hooks of work have seen. */
uint64_t gpumem_test_works(void)
{
	return gm_test_works;
}
