/*
 * hook_graph.c - the memory that graphs with memory nodes hold on a device (see record.h).
 *
 * Owns the one record of such memory for each device. Its lock is held while the driver is asked, so that
 * two answers are recorded in the order in which the driver gave them. This cannot deadlock, because
 * nothing else takes the lock and the driver never waits for us.
 *
 * Thread context: any. Signal context: passes through inside a hook.
 */
#include "allocator/lock.h"
#include "preload/order/order.h"
#include "preload/hooks/record.h"
#include "preload/hooks/hook.h"
#include "preload/cache/cache.h"
#include "preload/order/host.h"

static struct gm_lock lock = { .rank = GM_RANK_GRAPHS };
static _Atomic(uint64_t) devices;		/* a bit for each device with a memory node */
static uint32_t blocks[GM_MAX_DEVICES];		/* lock: lock; 0: no record */
static uint64_t held_bytes[GM_MAX_DEVICES];	/* lock: lock */

static void unknown_freed(void)
{
	gm_graph_refresh(NULL);
}

void gm_graph_node_made(uint8_t domain)
{
	if (domain < GM_MAX_DEVICES)
		devices |= UINT64_C(1) << domain;
	else if (domain == GM_DOMAIN_UNKNOWN && gm_device_count() < (int)GM_MAX_DEVICES)
		devices |= (UINT64_C(1) << gm_device_count()) - 1;
	gm_record_watch_unknown_frees(unknown_freed);
}

bool gm_graph_nodes(void)
{
	return devices != 0;
}

static void record_locked(uint8_t domain, uint64_t bytes, struct gm_alloc alloc)
{
	uint64_t op = gm_op_begin(GM_ACTION_ALLOC, GM_KIND_GRAPH, domain, 0, bytes);

	if (blocks[domain]) {
		gm_record_change(op, blocks[domain], 0, bytes, 0, gm_stack_of_change(&alloc));
	} else {
		alloc.size = alloc.requested = bytes;
		alloc.domain = domain;
		alloc.tsc = gm_stamp();
		gm_record_alloc(op, &alloc, &blocks[domain]);
	}
	held_bytes[domain] = bytes;
	gm_op_end(op);
}

/* Has the number of bytes that the driver holds for graphs changed since it was recorded? If @alloc is not NULL,
 * record the change. */
static bool changed_locked(uint8_t domain, const struct gm_alloc *alloc)
{
	cuuint64_t bytes = 0;

	if (gm_domain_of(domain) == GM_DOMAIN_UNKNOWN ||
	    GM_REAL(cuDeviceGetGraphMemAttribute)(domain, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
						  &bytes) ||
	    bytes == (blocks[domain] ? held_bytes[domain] : 0))
		return false;
	if (alloc)
		record_locked(domain, bytes, *alloc);
	return true;
}

static bool changed(const struct gm_alloc *alloc)
{
	struct gm_relaxed relaxed;
	bool any = false;

	if (!gm_lock(&lock))
		return false;
	relaxed = gm_relax();
	for (uint64_t left = devices; left; left &= left - 1)
		any |= changed_locked((uint8_t)__builtin_ctzll(left), alloc);
	gm_unrelax(&relaxed);
	gm_unlock(&lock);
	return any;
}

/* Looks for a change first, because most launches change nothing, and then no stack is walked. */
void gm_graph_refresh(const void *caller)
{
	struct gm_alloc alloc = { .kind = GM_KIND_GRAPH };

	if (!changed(NULL))
		return;
	gm_alloc_caller(&alloc, caller);
	changed(&alloc);
}

/* End a call on graphs. The call may have changed the memory of graphs, or have run out of memory. */
static CUresult graph_end(const char *entry, CUresult result, const void *caller)
{
	struct gm_call call;

	if (gm_graph_nodes())
		gm_graph_refresh(caller);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return gm_leave(result);
	gm_alloc_begin(&call, entry, GM_KIND_GRAPH, 0, caller);
	return gm_alloc_pass(&call, result);
}

static void mem_node_made(const CUmemPoolProps *props)
{
	gm_graph_node_made(props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ?
			   gm_domain_of(props->location.id) : GM_DOMAIN_UNKNOWN);
}

/* ---- statements before and after the real calls, for the GM_GRAPH rows of hooks.def ---- */

#define NOTHING (void)0

static void mem_node_added(CUresult result, const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	if (!result)
		mem_node_made(&params->poolProps);
}

static void node_added(CUresult result, const CUgraphNodeParams *params)
{
	if (!result && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		mem_node_made(&params->alloc.poolProps);
}

/* Note the upload that is part of an instantiation, as work on the upload stream. */
static uint32_t uploads(const CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread)
{
	if (params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		return gm_work(params->hUploadStream, per_thread, 0);
	return 0;
}

static void uploaded(const CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread, uint32_t seen)
{
	if (params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		gm_work_over(params->hUploadStream, per_thread, seen);
}

/* Note a launch. The graph may copy to the host, call host functions, and record events. */
static uint32_t launches(CUstream stream, bool per_thread)
{
	uint32_t seen = gm_work(stream, per_thread, GM_WORK_LAUNCH | GM_WORK_HOST);

	gm_host_events_forget();
	return seen;
}

static void launched(CUresult result, CUstream stream, bool per_thread, uint32_t seen)
{
	gm_work_over(stream, per_thread, seen);
	if (result)
		gm_cache_fault(result);
	else if (gm_order_on)
		gm_host_submitted(stream, per_thread, GM_WORK_HOST);
}

#define GM_HOOK(class, name, type, params, args)
#define GM_GRAPH(class, name, type, params, args, before, after) \
	CUresult name params \
	{ \
		__attribute__((unused)) uint32_t seen; \
		CUresult result; \
		\
		GM_ENTER_WITH(name, args); \
		before; \
		result = GM_TRY_WITH(name, args); \
		after; \
		return graph_end(#name, result, GM_CALLER); \
	}
#include "preload/hooks/hooks.def"
