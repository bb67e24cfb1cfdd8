/*
 * hook.h - what every hook body needs: the real functions, the guard, the prototypes.
 *
 * A body, in hook_*.c, of a GM_HOOK row in hooks.def:
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
 * GM_ENTER passes the call through, unrecorded, in two cases: the library cannot record in this process, or
 * this thread is already inside a hook. In the second case the driver or another interposer called an
 * exported name, and the call must not count twice. Between GM_ENTER and gm_leave the thread is "inside",
 * so hooks that the real function calls back pass through. Every way out of a body goes through gm_leave.
 * After a longjmp or a cancellation past gm_leave the thread's next hook repairs the state.
 *
 * GM_REAL(name) can be called at any time, for every row of hooks.def, GM_CALL rows included. Without a
 * driver it returns CUDA_ERROR_NOT_INITIALIZED. If the driver lacks the function, it returns
 * CUDA_ERROR_NOT_FOUND.
 *
 * Thread context: any. Signal context: a handler that calls CUDA inside a hook passes through.
 * In a child of a process that started the library every hook passes through (state.h).
 */
#ifndef GM_PRELOAD_HOOK_H
#define GM_PRELOAD_HOOK_H

#include "preload/driver/real.h"

bool gm_enter_slow(uintptr_t here, bool starts);

/* Enter a hook. Returns false when the call must pass through. @starts: the call starts the library if
 * it has not started in this process. Calls that only free or end something do not start it: without a
 * start no memory is recorded that they could free, and a forked child makes such calls when it exits. */
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

/* GM_ENTER for rows of hooks.def: @args is the list of arguments in parentheses. */
#define GM_ENTER_WITH(name, args) \
	do { \
		if (!gm_enter((int)gm_class_##name != GM_CLASS_FREE && \
			      (int)gm_class_##name != GM_CLASS_END)) \
			return GM_REAL(name) args; \
	} while (0)

/* ---- calls that are repeated ----
 *
 * A call that runs out of memory is repeated after the cache has given its unused memory back to the
 * driver, once more after the cache has waited for the GPU to finish with freed memory, and at last after
 * other processes have given memory back. Our cache must never be the reason for an error. Repeating is
 * safe, because a call that the driver refused for lack of memory had no effect. GM_TRY is for hook bodies;
 * GM_RETRY rows of hooks.def are hooked only for this (hook.c). Inside a hook, no lock held.
 */

/* Decide whether to repeat a hooked call that failed with @result. Gives memory back first. Returns true
 * if the call ran out of memory and some was given back. @tries: 0 before the first failure.
 *	result = GM_REAL(f)(...);
 *	while (result && gm_retry(result, &tries))
 *		result = GM_REAL(f)(...);
 */
typedef bool gm_retry_fn(CUresult result, unsigned int *tries);
bool gm_retry(CUresult result, unsigned int *tries);

/* Set the function that decides for gm_retry. Called once, at the start. Until then no call is repeated. */
void gm_retry_by(gm_retry_fn *fn);

/* Call GM_REAL(name)(...), repeat the call as above, and yield its result. */
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
