/*
 * start.c - what the hooks need before the first body runs on (see start.h).
 *
 * Thread context: that of the process's first hook.
 */
#include <errno.h>

#include "preload/cache/cache.h"
#include "preload/hooks/start.h"
#include "preload/process/say.h"

/* Without the cache every call is the driver's, as with allocator:native. */
static void start_cache(void)
{
	int r = gm_cache_start();

	if (r)
		gm_say("allocator:native, since the cache cannot start: ", gm_error_text(r));
	else
		gm_context_trust();
}

int gm_hooks_start(void)
{
	int version;

	gm_pointers = gm_map_new();
	if (!gm_pointers)
		return -ENOMEM;
	if (!GM_REAL(cuDriverGetVersion)(&version))
		gm_record_driver_version(version);
	if (gm_state.options.allocator == GM_ALLOCATOR_CACHING)
		start_cache();
	gm_context_watch(&gm_record_of_contexts);	/* after the cache, whose heaps end first */
	gm_hooks_of_work(gm_cache_on());
	return 0;
}
