/*
 * as_driver.c - what the driver's own malloc and free would have done, and functions of the program that the driver
 * calls (see order.h).
 *
 * Thread context: any, inside a hook, no lock held.
 */
#include "allocator/rules.h"
#include "preload/hooks/hook.h"
#include "preload/order/order.h"
#include "preload/order/host.h"

struct recording { uint32_t id; uint64_t ticket; };

static int record_ticket(void *arg)
{
	struct recording *recording = arg;

	return gm_ticket_record_context(recording->id, NULL, true, &recording->ticket);
}

/* Wait as the driver's own cudaFree does, by calling it. During a capture this is the wait that invalidates nothing,
 * and before CUDA 12.5 it is the only one. *@ret_waited false: there was no memory for the call. */
static CUresult wait_by_free(uint32_t context, bool *ret_waited)
{
	struct gm_relaxed relaxed = gm_relax();
	bool entered = gm_context_enter(context);
	CUdeviceptr ptr = 0;
	CUresult result = GM_TRY(cuMemAlloc_v2, &ptr, 1);

	*ret_waited = result != CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = GM_REAL(cuMemFree_v2)(ptr);
	gm_context_leave(entered);
	gm_unrelax(&relaxed);
	return *ret_waited ? result : CUDA_SUCCESS;
}

/* Wait by an event, because it lets other threads' calls through, and the work may be waiting for one of these. */
static CUresult wait_for_context(uint32_t context, bool *ret_waited)
{
	struct recording recording = { .id = context };
	CUresult result;

	*ret_waited = true;
	if (gm_capturing() || !gm_ticket_context(context) ||
	    gm_reuse_in_order(gm_order_reuse(), record_ticket, &recording))
		return wait_by_free(context, ret_waited);
	result = gm_ticket_synchronise(recording.ticket);
	gm_ticket_drop(NULL, recording.ticket);
	return result;
}

CUresult gm_order_wait_context(uint32_t context, bool *ret_all)
{
	struct gm_reuse *reuse = gm_order_reuse();
	enum gm_context_role role;
	uint64_t begun, host_now = gm_host_now();
	CUcontext handle;
	CUdevice device;
	CUresult result;
	bool waited;

	*ret_all = false;
	if (!context)
		context = gm_context_only_used() ? gm_context_only_used() : gm_where_now().context;
	if (!gm_order_on || !context || gm_in_host_function())
		return CUDA_SUCCESS;
	begun = gm_reuse_sync_begin(reuse);
	result = wait_for_context(context, &waited);
	if (result || !waited)
		return result;
	gm_reuse_sync_done(reuse, context, begun);
	*ret_all = begun && gm_timeline_passed_by_all(gm_reuse_time(reuse), context) >= begun;
	handle = gm_context_handle(context, &role, &device);
	if (gm_ticket_covered_by(NULL, context))
		gm_host_all_done(host_now);
	else if (handle)
		gm_host_context_done(handle, host_now);
	return result;
}

CUresult gm_capture_permission(uint32_t context)
{
	uint32_t current;
	CUevent event;
	CUresult result;

	if (!gm_capturing() || !gm_rule(GM_RULE_CAPTURE_PERMISSION))
		return CUDA_SUCCESS;
	/* A thread without a context may free in stream order: then ask in the memory's context. */
	current = gm_where_now().context;
	context = current ? current : context;
	event = context ? gm_ticket_event(context) : NULL;
	if (!event)
		return CUDA_SUCCESS;
	/* In the thread's own mode this query is refused, and the capture invalidated, exactly where cuMemAlloc and
	 * cuMemFree would be. */
	result = GM_REAL(cuEventQuery)(event);
	return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

/* ---- functions of the program that the driver calls ---- */

static _Atomic(bool) added;
static void (*_Atomic watcher)(void);

void gm_host_function_watch(void (*fn)(void))
{
	watcher = fn;
	if (added)
		fn();
}

void gm_host_function_added(void)
{
	void (*fn)(void);

	if (added)
		return;
	added = true;
	fn = watcher;
	if (fn)
		fn();
	gm_context_doubt();
}

void gm_host_function_in(const CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_HOST)
		gm_host_function_added();
}

bool gm_in_host_function(void)
{
	CUcontext context;

	return added && GM_REAL(cuCtxGetCurrent)(&context) == CUDA_ERROR_NOT_PERMITTED;
}
