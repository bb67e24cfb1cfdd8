/*
 * watch.c - a thread's calls, told to a test as they begin and end (fakecuda_watch).
 *
 * Everything here is the calling thread's own; fc.lock is not held.
 */
#include "test/fakecuda/memory/watch.h"

#include "test/fakecuda/internal.h"

__thread fakecuda_watch_fn *fc_watching;
static __thread void *watching_arg;

FC_EXPORT void fakecuda_watch(fakecuda_watch_fn *fn, void *arg)
{
	watching_arg = arg;
	fc_watching = fn;
}

void fc_watch_tell(const char *name, int result)
{
	fakecuda_watch_fn *fn = fc_watching;

	fc_watching = NULL;	/* what it calls is not told */
	fn(watching_arg, name, fc_tls.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED, result);
	fc_watching = fn;
}
