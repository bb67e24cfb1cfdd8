/*
 * retry.c - who gives memory back for a call that failed for want of it (see retry.h).
 *
 * Thread context: any, inside a hook, no lock held.
 */
#include "preload/hooks/retry.h"

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
