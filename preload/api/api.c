/*
 * api.c - the public functions of gpumem.h but for statistics (api_stats.c),
 * history (history.c) and the cache (api_cache.c).
 *
 * Thread context: any, outside our locks; an OOM observer among them. Signal context: none.
 * Fork: nothing is recorded in a child, which is the answer.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include <errno.h>
#include <string.h>

#include "preload/order/context.h"
#include "preload/triggers/snap.h"
#include "preload/process/state.h"
#include "preload/triggers/trigger.h"
#include "recorder/record/annotations.h"
#include "recorder/journal/recorder.h"

#define SNAPSHOT_NS UINT64_C(120000000000)

static int snapshot_locked(void)
{
	uint32_t request;

	if (!gm_trigger_has_helper())
		return gm_snap_take(1u << GM_REQUEST_API, SNAPSHOT_NS, NULL, NULL);
	request = gm_trigger_ask(GM_REQUEST_API);
	if (!gm_trigger_wait_written(request, SNAPSHOT_NS))
		return -ETIMEDOUT;
	return __atomic_load_n((const int32_t *)&gm_state.api_result, __ATOMIC_ACQUIRE);
}

int gpumem_snapshot(const char *path)
{
	size_t length = path ? strlen(path) : 0;
	int r;

	if (!gm_state_is_mine())
		return -ENODATA;
	if (length >= sizeof(gm_state.api_path))
		return -ENAMETOOLONG;
	if (!gm_lock_within(&gm_state.api_lock, SNAPSHOT_NS))
		return -ETIMEDOUT;
	if (length)
		memcpy(gm_state.api_path, path, length);
	gm_state.api_path[length] = '\0';
	r = snapshot_locked();
	gm_unlock(&gm_state.api_lock);
	return r;
}

int gpumem_annotate(const char *text)
{
	struct gm_annotation what = { .device = gm_where_last() };

	if (!text)
		return -EINVAL;
	if (!gm_state_is_mine() || !gm_recorder_header())
		return -ENODATA;
	what.name = gm_annotation_text(text, (uint32_t)strnlen(text, GM_STRING_MAX));
	return what.name ? gm_annotate_mark(&what) : -ENOMEM;
}

int gpumem_register_oom_observer(void (*fn)(void *arg, int device, uint64_t requested_bytes,
					    uint64_t total_bytes, uint64_t free_bytes), void *arg)
{
	struct gm_oom_observer *empty = NULL;
	int r = -ENOSPC;

	if (!fn)
		return -EINVAL;
	if (!gm_lock(&gm_state.oom_lock))
		return -ETIMEDOUT;
	for (unsigned int i = GM_OOM_OBSERVERS; i-- > 0;) {
		struct gm_oom_observer *at = &gm_state.observers[i];

		if (at->fn == fn && at->arg == arg)
			r = 0;
		if (!at->fn)
			empty = at;
	}
	if (r && empty) {
		empty->arg = arg;
		empty->fn = fn;
		r = 0;
	}
	gm_unlock(&gm_state.oom_lock);
	return r;
}
