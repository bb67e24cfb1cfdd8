/*
 * hook.c - the guard of every hook, and who gives memory back for a call that failed for want of it
 * (see hook.h).
 *
 * Thread context: any.
 */
#include <errno.h>

#include "preload/hooks/hook.h"
#include "preload/order/context.h"

/* gm_enter's other ways: the library has not started here, or this thread seems to be inside. A
 * hook whose frame lies above ours is still running; one below or at it was left by a longjmp or
 * an unwinding, without gm_leave. */
bool gm_enter_slow(uintptr_t here, bool starts)
{
	int kept = errno;

	if (gm_inside != 0 && here < gm_inside) {
		gm_where_moved();	/* for all that is known of it */
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
