/*
 * order_until.c - for a few hours of this branch: what others are writing now, so that it links.
 * Weak: whoever brings the real one need do nothing; who brings the last one deletes this file.
 */
#include "preload/cache.h"
#include "preload/order.h"

#define WEAK __attribute__((weak))

WEAK bool gm_order_on;
WEAK struct gm_reuse_hot gm_order_hot;
WEAK struct gm_reuse *gm_order_reuse(void) { return NULL; }
WEAK uint64_t gm_stream_key(CUstream stream, bool per_thread) { return (uintptr_t)stream + per_thread + 1; }
WEAK void gm_work_slow(CUstream stream, bool per_thread, unsigned int flags) { (void)stream; (void)per_thread; (void)flags; }
WEAK void gm_order_context_used(CUcontext context) { (void)context; }
WEAK void gm_order_stream_ends(CUstream stream) { (void)stream; }
WEAK bool gm_order_covers(CUcontext context) { (void)context; return false; }
WEAK void gm_capture_lock(void) { }
WEAK void gm_capture_begun(CUstream stream, bool per_thread, CUresult result) { (void)stream; (void)per_thread; (void)result; }
WEAK void gm_capture_over(CUstream stream, bool per_thread, CUresult result) { (void)stream; (void)per_thread; (void)result; }
WEAK bool gm_cache_covers(CUdeviceptr address) { (void)address; return false; }
WEAK bool gm_cache_retry(CUresult result) { (void)result; return false; }
WEAK void gm_cache_fault(CUresult result) { (void)result; }
WEAK void gm_cache_stream_ends(uint64_t key, CUstream stream) { (void)key; (void)stream; }
WEAK void gm_cache_synchronised(void) { }
WEAK uint64_t gm_reuse_limbo_bytes(struct gm_reuse *reuse, uint32_t owner) { (void)reuse; (void)owner; return 0; }
WEAK uint64_t gm_reuse_sync_begin(struct gm_reuse *reuse) { (void)reuse; return 0; }
WEAK void gm_reuse_sync_done(struct gm_reuse *reuse, uint64_t begun) { (void)reuse; (void)begun; }
WEAK void gm_reuse_leave_one(struct gm_reuse *reuse) { (void)reuse; }
