/*
 * hook_pass.c - the bodies of the plain rows of hooks.def: GM_PASS, GM_RETRY and GM_NOTE.
 *
 * A GM_RETRY call that succeeds is in no hook: nothing is noted or recorded. Where the library has
 * not started there is nothing to flush, and a call from inside a hook is that hook's to repeat.
 *
 * Thread, signal and fork context: the driver's own; after a failure as any hook's.
 */
#include "preload/hooks/hook.h"
#include "preload/order/host.h"
#include "preload/order/order.h"

static __attribute__((noinline)) bool flushed(CUresult result, unsigned int *tries)
{
	bool again;

	if (!gm_enter(false))
		return false;
	again = gm_retry(result, tries);
	gm_leave(result);
	return again;
}

#define GM_HOOK(class, name, type, params, args)
#define GM_PASS(class, name, type, params, args) \
	CUresult name params \
	{ \
		return GM_REAL(name) args; \
	}
#define GM_RETRY(class, name, type, params, args) \
	CUresult name params \
	{ \
		CUresult result = GM_REAL(name) args; \
		unsigned int tries = 0; \
		\
		while (__builtin_expect(result != CUDA_SUCCESS, 0) && flushed(result, &tries)) \
			result = GM_REAL(name) args; \
		return result; \
	}
#define GM_NOTE(class, name, type, params, args, before) \
	CUresult name params \
	{ \
		GM_ENTER_WITH(name, args); \
		before; \
		return gm_leave(GM_REAL(name) args); \
	}
#include "preload/hooks/hooks.def"
