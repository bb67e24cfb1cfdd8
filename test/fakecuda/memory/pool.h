/*
 * pool.h - memory pools, between pool.c (blocks and segments) and poolapi.c (entries).
 */
#ifndef FC_POOL_H
#define FC_POOL_H

#include "test/fakecuda/memory/memory.h"

#define FC_POOL_GROWTH ((size_t)32 << 20)	/* what a pool takes from its device at a time */

struct fc_segment;

struct fc_pool {
	unsigned int refs;		/* handle, live blocks, pending frees */
	CUmemoryPool handle;		/* NULL: destroyed */
	struct fc_device *dev;		/* NULL: host memory */
	CUmemAllocationType type;
	CUmemLocation location;
	CUmemAllocationHandleType handle_types;
	size_t max_size;		/* 0: none */
	bool is_default;
	bool imported;			/* from another process: gives no memory of its own */
	int reuse_follow_events, reuse_opportunistic, reuse_internal;
	uint64_t threshold;
	uint64_t used, used_high, reserved, reserved_high;
	uint64_t orphaned;		/* the part of used that is free and stays in it */
	CUmemAccess_flags access[FC_MAX_DEVICES];
	struct fc_segment *segments;	/* by address */
	struct fc_pool *next;
};

/* fc_pool_make - a pool with a handle, listed. @dev NULL: of host memory. */
CUresult fc_pool_make(struct fc_device *dev, const CUmemPoolProps *props,
		      struct fc_pool **ret_pool);
void fc_pool_put(struct fc_pool *pool);

/* fc_pool_default - @dev's default pool, made at its first use. */
CUresult fc_pool_default(struct fc_device *dev, struct fc_pool **ret_pool);

/* fc_pool_alloc - a block for stream @s. fc_pool_free - in stream order. */
CUresult fc_pool_alloc(struct fc_pool *pool, struct fc_stream *s, size_t size,
		       CUdeviceptr *ret_ptr);
CUresult fc_pool_free(struct fc_alloc *a, struct fc_stream *s);

/* fc_pool_release - give back unused segments while more than @keep bytes are reserved. */
void fc_pool_release(struct fc_pool *pool, uint64_t keep);

/* fc_pool_release_all - all that the pools of @dev do not use. */
void fc_pool_release_all(const struct fc_device *dev);

/* fc_pool_kind - as what the blocks of @pool are accounted. */
enum fakecuda_kind fc_pool_kind(const struct fc_pool *pool);

/* fc_pool_synced - a synchronising call has succeeded: thresholds take effect. */
void fc_pool_synced(void);
int fc_pool_check(void);

#endif
