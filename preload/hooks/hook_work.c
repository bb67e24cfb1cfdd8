/*
 * hook_work.c - work that is submitted to the GPU: the bodies of the GM_WORK rows of hooks.def.
 *
 * Each body notes the work in order.h before the real call. After it the body notes whether the host can
 * see the results (host.h), because a program may rely on cudaFree to wait for those. Whether the host can
 * see the results of a copy depends on the memory that the copy reads and writes; unknown memory counts as
 * visible.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "preload/cache/cache.h"
#include "preload/cache/cache_pages.h"
#include "preload/hooks/record.h"
#include "preload/hooks/hook.h"
#include "preload/order/host.h"
#include "preload/order/order.h"

/* ---- which memory the work reads and writes ---- */

/* Is @address in device memory that the host cannot read? Also false for a pointer into the middle of memory that
 * the driver served, because the map has only the beginnings of such memory. */
static bool in_device(CUdeviceptr address)
{
	struct gm_block copy;
	uint32_t block;

	if (gm_cache_covers(address))
		return true;
	block = (uint32_t)gm_map_get(gm_pointers, GM_MAP_ADDRESS, address);
	return block && gm_record_block(block, &copy) &&
	       (copy.kind == GM_KIND_DEVICE || copy.kind == GM_KIND_POOL);
}

/* Give the device of context @who access to the pages of context @whose. The driver refuses a plain copy of mapped
 * memory that the copying device has no access to (seen on two H100s). Copies of the driver's own allocations need
 * no access. */
static void open_pages(uint32_t who, uint32_t whose)
{
	CUdevice user = -1, owner = -1;
	enum gm_context_role role;

	if (gm_context_handle(who, &role, &user) && user >= 0 &&
	    gm_context_handle(whose, &role, &owner) && owner >= 0)
		gm_cache_pages_open((uint8_t)owner, (uint8_t)user);
}

/* Note a copy between the memory of two contexts. From now on work of either context, and of the current one, may
 * touch the memory of the others (timeline.h). @plain: the call does not name the contexts to the driver. */
static void note_copy(uint32_t dst, uint32_t src, bool plain)
{
	uint32_t contexts[] = { dst, src, dst || src ? gm_where_now().context : 0 };

	for (unsigned int i = 0; i < 9; i++) {
		uint32_t who = contexts[i / 3], whose = contexts[i % 3];

		if (!who || !whose || who == whose)
			continue;
		gm_ticket_touches(who, whose);
		if (plain && gm_state.options.expandable_segments)
			open_pages(who, whose);
	}
}

static __attribute__((noinline)) void note_crossing(CUdeviceptr one, CUdeviceptr other)
{
	note_copy(gm_cache_context_of(one), gm_cache_context_of(other), true);
}

static inline void crossing(CUdeviceptr one, CUdeviceptr other)
{
	if (!gm_context_only_used() && one != other)
		note_crossing(one, other);
}

/* Flags for work on device addresses. The host can see the results only in managed or mapped memory. */
static unsigned int touched(CUdeviceptr one, CUdeviceptr other)
{
	crossing(one, other);
	if (!gm_host_shares_memory || (in_device(one) && (one == other || in_device(other))))
		return 0;
	return GM_WORK_LAUNCH;
}

/* Flags for an asynchronous copy between addresses of any memory. */
static unsigned int copied(CUdeviceptr dst, CUdeviceptr src)
{
	crossing(dst, src);
	return in_device(dst) && in_device(src) ? 0 : GM_WORK_HOST;
}

/* Flags for a synchronous copy. A copy to plain host memory is complete when the call returns; a copy between
 * managed or mapped memory and the device may not be. */
static unsigned int copied_waiting(CUdeviceptr dst, CUdeviceptr src)
{
	crossing(dst, src);
	if (gm_host_shares_memory)
		return touched(dst, src);
	return in_device(src) && !in_device(dst) ? GM_WORK_WAITED : 0;
}

static unsigned int copied_shape(CUmemorytype src_type, CUdeviceptr src, CUmemorytype dst_type,
				 CUdeviceptr dst)
{
	bool host = src_type == CU_MEMORYTYPE_HOST || dst_type == CU_MEMORYTYPE_HOST;

	crossing(dst, src);
	if (host || (src_type == CU_MEMORYTYPE_UNIFIED && !in_device(src)) ||
	    (dst_type == CU_MEMORYTYPE_UNIFIED && !in_device(dst)))
		return GM_WORK_HOST;
	return touched(dst_type == CU_MEMORYTYPE_ARRAY ? src : dst,
		       src_type == CU_MEMORYTYPE_ARRAY ? dst : src);
}

static unsigned int copied_shape_waiting(CUmemorytype src_type, CUdeviceptr src,
					 CUmemorytype dst_type, CUdeviceptr dst)
{
	crossing(dst, src);
	if (dst_type == CU_MEMORYTYPE_HOST)
		return GM_WORK_WAITED;
	if (src_type == CU_MEMORYTYPE_HOST || !gm_host_shares_memory)
		return 0;
	return GM_WORK_LAUNCH;
}

/* Call @how with the fields of one of the structures that describe a copy. The driver reports NULL as an error. */
#define COPIED(how, copy) \
	((copy) ? how((copy)->srcMemoryType, (copy)->srcDevice, (copy)->dstMemoryType, \
		      (copy)->dstDevice) : 0)

static unsigned int copied_peer(CUcontext dst, CUcontext src)
{
	gm_context_used(dst);
	gm_context_used(src);
	note_copy(gm_context_find(dst), gm_context_find(src), false);
	return GM_WORK_LAUNCH;
}

/* Note a host function or callback. The host sees it run. */
static unsigned int host_function(void)
{
	gm_host_function_added();
	return GM_WORK_HOST;
}

/* ---- the bodies ---- */

/* Note the end of a synchronous copy to the host, and of all earlier work of its stream. */
static __attribute__((noinline)) void waited(CUstream stream, bool per_thread, uint64_t now)
{
	if (gm_host_sees_pending())
		gm_host_stream_done(gm_stream_key(stream, per_thread), now);
}

static inline __attribute__((always_inline)) void after(CUstream stream, bool per_thread,
							unsigned int what, uint32_t early,
							uint64_t now)
{
	gm_host_submitted(stream, per_thread, what);
	if (what & GM_WORK_WAITED)
		waited(stream, per_thread, now);
	if (early)
		gm_order_early_over(stream, per_thread, early);
}

#define GM_HOOK(class, name, type, params, args)
#define GM_WORK(class, name, type, params, args, stream, per_thread, flags) \
	CUresult name params \
	{ \
		unsigned int what = 0; \
		uint32_t early = 0, seen = 0; \
		uint64_t now = 0; \
		unsigned int tries = 0; \
		CUresult result; \
		\
		if (!gm_enter(true)) \
			return GM_REAL(name) args; \
		if (gm_order_on) { \
			what = flags; \
			seen = gm_work(stream, per_thread, what); \
			early = what & GM_WORK_KERNEL ? gm_order_early_now() : 0; \
			now = what & GM_WORK_WAITED ? gm_host_now() : 0; \
		} \
		result = GM_REAL(name) args; \
		while (__builtin_expect(result != CUDA_SUCCESS, 0) && gm_retry(result, &tries)) \
			result = GM_REAL(name) args; \
		gm_work_over(stream, per_thread, seen); \
		if (__builtin_expect(result != CUDA_SUCCESS, 0)) \
			gm_cache_fault(result); \
		else \
			after(stream, per_thread, what, early, now); \
		return gm_leave(result); \
	}
#include "preload/hooks/hooks.def"
