/*
 * retry.h - a call that fails for want of memory is repeated after what the cache holds and
 * nobody uses went back to the driver, and once more after what waits for the GPU did: our cache must
 * never be the reason for an error.
 *
 * A call that the driver refused for want of memory did nothing, so it may be made again as it was.
 * GM_TRY is for hook bodies; rows GM_RETRY of hooks.def are hooked for this alone (retry.c).
 *
 * Thread context: any, inside a hook, no lock held. Signal context: none.
 */
#ifndef GM_PRELOAD_RETRY_H
#define GM_PRELOAD_RETRY_H

#include "preload/cache/cache.h"

/* GM_REAL(name)(...), and what came of it. */
#define GM_TRY(name, ...) GM_TRY_WITH(name, (__VA_ARGS__))
#define GM_TRY_WITH(name, args) \
	({ \
		CUresult tried_ = GM_REAL(name) args; \
		unsigned int tries_ = 0; \
		\
		while (__builtin_expect(tried_ != CUDA_SUCCESS, 0) && \
		       gm_cache_retry(tried_, &tries_)) \
			tried_ = GM_REAL(name) args; \
		tried_; \
	})

#endif
