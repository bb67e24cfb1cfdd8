/*
 * aux_cache_heap.h - heaps of the cache on a driver of the test's own: one address counter, a capacity, and
 * calls that fail when the test wants it.
 */
#ifndef GM_TEST_AUX_CACHE_HEAP_H
#define GM_TEST_AUX_CACHE_HEAP_H

#include "preload/order/reuse.h"
#include "preload/cache/cache_heap.h"
#include "test/rules/check.h"

struct aux_driver {
	uint64_t next, used, capacity;	/* addresses from 0x7e0000000000 */
	unsigned int calls, fail_at;	/* the fail_at-th allocation (from 1) and all after fail */
	void (*settle)(void);		/* what the heap's settle does */
	void (*between)(void);		/* within every call: the lock is free */
};
extern struct aux_driver aux_driver;
extern bool aux_tcache;			/* heaps made from now on have thread caches */

void aux_driver_begin(uint64_t capacity);

/* Contexts from here on have memory without end, never given back: theirs is not counted when they
 * are dropped. */
#define AUX_ENDLESS 100u

/* A heap on it; the test fails when there is none. @conf as PYTORCH_CUDA_ALLOC_CONF. */
struct gm_cache_heap *aux_heap(uint8_t domain, uint8_t kind, uint32_t context, const char *conf,
			   uint64_t limit);

/* A request of @module's. */
struct gm_alloc aux_request(uint64_t bytes, uint64_t stream, uint16_t module);

/* From a free block, else by growth; as the hooks do it. */
int aux_serve(struct gm_cache_heap *heap, struct gm_alloc *alloc, uint32_t *ret_block);

/* Free @block; @now: it may be reused at once. */
int aux_release(struct gm_cache_heap *heap, uint32_t block, uint64_t address, bool now);
void aux_complete(struct gm_cache_heap *heap, uint32_t block);

/* Count violations of all the heaps there are. */
int aux_check_heaps(void);

#endif
