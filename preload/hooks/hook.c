/*
 * hook.c - the guard of every hook, the repetition of calls that ran out of memory (see hook.h), and the
 * bodies of the plain rows of hooks.def: GM_RETRY and GM_NOTE.
 *
 * Thread and signal context: any. A GM_RETRY row enters a hook only after a failure; before, it is the
 * driver's function.
 */
#include <errno.h>

#include "preload/hooks/hook.h"
#include "preload/order/host.h"

/* gm_enter for the rare cases: the library has not started here, or this thread seems to be inside a hook. A hook
 * whose frame lies above ours is still running. A hook whose frame lies at or below ours was left by a longjmp or an
 * unwinding, without gm_leave. */
bool gm_enter_slow(uintptr_t here, bool starts)
{
	int kept = errno;

	if (gm_inside != 0 && here < gm_inside) {
		gm_where_moved();	/* the call may change the current context */
		return false;
	}
	if (!starts && !gm_state_is_mine())
		return false;
	gm_inside = here;
	if (!gm_state_start()) {
		gm_inside = 0;
		errno = kept;
		return false;
	}
	errno = kept;
	return true;
}

static gm_retry_fn *_Atomic retry_by;

void gm_retry_by(gm_retry_fn *fn)
{
	retry_by = fn;
}

bool gm_retry(CUresult result, unsigned int *tries)
{
	gm_retry_fn *fn = retry_by;

	return fn && fn(result, tries);
}

/* ---- plain rows of hooks.def ---- */

/* Decide whether to repeat a failed GM_RETRY call. A GM_RETRY call that succeeds enters no hook, because nothing
 * is recorded. Returns false before the library has started, because there is nothing to flush, and inside another
 * hook, because that hook repeats its own call. */
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
