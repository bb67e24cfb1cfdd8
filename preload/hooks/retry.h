/*
 * retry.h - a call that fails for want of memory is repeated after the cache has given back to the
 * driver what nobody uses, and once more after what waits for the GPU is complete: our cache must never
 * be the reason for an error.
 *
 * A call that the driver refused for want of memory did nothing, so it may be made again as it was.
 * GM_TRY is for hook bodies; rows GM_RETRY of hooks.def are hooked for this alone (hook_pass.c).
 *
 * Thread context: any, inside a hook, no lock held. Signal context: none.
 */
#ifndef GM_PRELOAD_RETRY_H
#define GM_PRELOAD_RETRY_H

#include "preload/hooks/hook.h"

/* A hooked call failed with @result: was it for want of memory, and was some given back? Then it is
 * worth repeating. @tries: 0 before the first failure.
 *	result = GM_REAL(f)(...);
 *	while (result && gm_retry(result, &tries))
 *		result = GM_REAL(f)(...);
 */
typedef bool gm_retry_fn(CUresult result, unsigned int *tries);
bool gm_retry(CUresult result, unsigned int *tries);

/* Who can give memory back; set once, at the start. Without, nothing is repeated. */
void gm_retry_by(gm_retry_fn *fn);

/* GM_REAL(name)(...), and what came of it. */
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
