/*
 * host_function.h - functions of the program's that the driver calls: host functions, callbacks, host
 * nodes of graphs, destructors of user objects.
 *
 * In such a function the driver refuses every call with CUDA_ERROR_NOT_PERMITTED, cuCtxGetCurrent
 * too (seen on a GPU): so once there is one, that call tells whether this thread is in one. Nothing is
 * wrapped: getters give the program its own function back by themselves.
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#ifndef GM_PRELOAD_HOST_FUNCTION_H
#define GM_PRELOAD_HOST_FUNCTION_H

#include "preload/driver/real.h"

/* The program is about to have the driver call one, or a node of these parameters does. */
void gm_host_function_added(void);
void gm_host_function_in(const CUgraphNodeParams *params);

/* Is this thread running one? */
bool gm_in_host_function(void);

/* Call @fn before the first one is added, or now where that has been. One of them, at the start. */
void gm_host_function_watch(void (*fn)(void));

#endif
