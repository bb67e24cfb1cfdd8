/*
 * hook.h - what every hook body starts from: the real functions, the guard, the prototypes.
 *
 * A body, in hook_*.c, with its row in hooks.def turned from GM_PASS to GM_HOOK:
 *
 *	CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
 *	{
 *		GM_ENTER(cuMemAlloc_v2, dptr, bytesize);
 *		...
 *		result = GM_REAL(cuMemAlloc_v2)(dptr, bytesize);
 *		...
 *		return gm_leave(result);
 *	}
 *
 * GM_ENTER passes the call through, unrecorded, when this thread is inside a hook already (the
 * driver or another interposer called an exported name: never counted twice), and when nothing
 * can be recorded in this process. Between GM_ENTER and gm_leave the thread is "inside": whatever
 * the real function calls back passes through. Every way out of a body goes through gm_leave;
 * a longjmp or a cancellation past it heals at the thread's next hook.
 *
 * GM_REAL(name) is always callable, for every row of hooks.def, GM_CALL rows too: where no driver
 * is loaded it returns CUDA_ERROR_NOT_INITIALIZED, where the driver lacks the function
 * CUDA_ERROR_NOT_FOUND.
 *
 * Thread context: any. Signal context: a handler that calls CUDA inside a hook passes through.
 * In a child of a process that started the library every hook passes through (state.h).
 */
#ifndef GM_PRELOAD_HOOK_H
#define GM_PRELOAD_HOOK_H

#include "preload/driver/real.h"

bool gm_enter_slow(uintptr_t here, bool starts);

/* Enter a hook; false: pass the call through. @starts: the call starts the library in a process
 * where it has not started. Calls that only free or end something do not: nothing that they could
 * free is recorded, and a forked child makes such calls as it exits. */
static inline __attribute__((always_inline)) bool gm_enter(bool starts)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	if (__builtin_expect(gm_state_word() != GM_STATE_RUNNING || gm_inside != 0, 0))
		return gm_enter_slow(here, starts);
	gm_inside = here;
	return true;
}

static inline CUresult gm_leave(CUresult result)
{
	gm_inside = 0;
	return result;
}

#define GM_ENTER(name, ...) GM_ENTER_WITH(name, (__VA_ARGS__))

/* The same for the rows of hooks.def, whose arguments stand in parentheses. */
#define GM_ENTER_WITH(name, args) \
	do { \
		if (!gm_enter((int)gm_class_##name != GM_CLASS_FREE && \
			      (int)gm_class_##name != GM_CLASS_END)) \
			return GM_REAL(name) args; \
	} while (0)

/* ---- calls that are repeated ----
 *
 * A call that fails for want of memory is repeated after the cache has given its unused memory back
 * to the driver, and once more after what waits for the GPU is complete: our cache must never be
 * the reason for an error. A call that the driver refused for want of memory did nothing, so it may
 * be repeated as it was. GM_TRY is for hook bodies; rows GM_RETRY of hooks.def are hooked for this
 * alone (hook.c). Inside a hook, no lock held.
 * */

/* A hooked call failed with @result: was it for want of memory, and was some given back? Then it is
 * worth repeating. @tries: 0 before the first failure.
 *	result = GM_REAL(f)(...);
 *	while (result && gm_retry(result, &tries))
 *		result = GM_REAL(f)(...);
 */
typedef bool gm_retry_fn(CUresult result, unsigned int *tries);
bool gm_retry(CUresult result, unsigned int *tries);

/* Set the function that gives memory back; once, at the start. Without one nothing is repeated. */
void gm_retry_by(gm_retry_fn *fn);

/* GM_REAL(name)(...), repeated as above; its result. */
#define GM_TRY(name, ...) GM_TRY_WITH(name, (__VA_ARGS__))
#define GM_TRY_WITH(name, args) \
	({ \
		CUresult tried_ = GM_REAL(name) args; \
		unsigned int tries_ = 0; \
		\
		while (__builtin_expect(tried_ != CUDA_SUCCESS, 0) && \
		       gm_retry(tried_, &tries_)) \
			tried_ = GM_REAL(name) args; \
		tried_; \
	})

#endif
