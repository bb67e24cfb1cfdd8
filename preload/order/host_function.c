/*
 * host_function.c - functions of the program's that the driver calls (see host_function.h).
 *
 * Thread context: any, inside a hook.
 */
#include "preload/order/context.h"
#include "preload/order/host_function.h"

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
