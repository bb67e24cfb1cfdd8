/*
 * as_driver.h - what the driver's own malloc and free would have done beside the memory, and the program
 * may count on: the wait of a cudaFree, and the driver's leave during a capture.
 *
 * Thread context: any, inside a hook, no lock held. Signal context: none.
 */
#ifndef GM_PRELOAD_AS_DRIVER_H
#define GM_PRELOAD_AS_DRIVER_H

#include "preload/driver/real.h"

/* The wait that the driver's own cudaFree would do: everything submitted so far in the context of
 * the memory, or the current one (0). @ret_all: no work at all is pending that was
 * submitted before; without it what is freed still has to wait for its epoch. */
CUresult gm_order_wait_context(uint32_t context, bool *ret_all);

/* During a capture the driver decides about the program's own malloc and free: a throw-away call in
 * the thread's own mode, in the current context or, without one, in @context (id; 0: none). 0: it
 * would have been allowed; else the error, the capture invalidated as the driver does. */
CUresult gm_capture_permission(uint32_t context);

#endif
