/*
 * api.c - the public functions of gpumem.h, except statistics (api_stats.c), ranges (ranges.c) and pools
 * (api_pools.c); and the settings of the history (history.h).
 *
 * Thread context: any, outside our locks and hooks (an OOM observer runs outside them). Signal context: none.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include <errno.h>
#include <string.h>

#include "preload/api/history.h"
#include "preload/cache/cache_internal.h"
#include "preload/order/context.h"
#include "preload/triggers/trigger.h"
#include "preload/process/state.h"
#include "recorder/record/annotations.h"
#include "recorder/journal/recorder.h"
#include "recorder/stacks/stacks.h"

#define SNAPSHOT_NS UINT64_C(120000000000)

const char *gpumem_version(void)
{
	return GPUMEM_VERSION_STRING;
}

static int snapshot_locked(void)
{
	uint32_t request;

	if (!gm_trigger_has_helper())
		return gm_snap_take(1u << GM_REQUEST_API, SNAPSHOT_NS, NULL, NULL);
	request = gm_trigger_ask(GM_REQUEST_API);
	if (!gm_trigger_wait_written(request, SNAPSHOT_NS))
		return -ETIMEDOUT;
	return gm_get_acquire(&gm_state.api_result);
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
	what.name = gm_intern_string(text, (uint32_t)strnlen(text, GM_STRING_MAX));
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

int gpumem_unregister_oom_observer(void (*fn)(void *arg, int device, uint64_t requested_bytes,
					      uint64_t total_bytes, uint64_t free_bytes), void *arg)
{
	int r = -ENOENT;

	if (!gm_lock(&gm_state.oom_lock))
		return -ETIMEDOUT;
	for (unsigned int i = 0; i < GM_OOM_OBSERVERS; i++) {
		struct gm_oom_observer *at = &gm_state.observers[i];

		if (at->fn == fn && at->arg == arg && fn) {
			*at = (struct gm_oom_observer){ .fn = NULL };
			r = 0;
		}
	}
	gm_unlock(&gm_state.oom_lock);
	return r;
}

/* ---- the cache, and the allocator for PyTorch --------------------------------------------------- */

/* Mark this thread as inside a hook, so that driver calls which come back to our exported names pass through. */
static uintptr_t step_in(void)
{
	uintptr_t before = gm_inside;

	gm_inside = (uintptr_t)__builtin_frame_address(0);
	return before;
}

int64_t gpumem_empty_cache(void)
{
	uintptr_t before;
	uint64_t bytes;

	if (!gm_state_is_mine())
		return -ENODATA;
	before = step_in();
	bytes = gm_cache_flush(GM_DOMAIN_UNKNOWN);
	gm_inside = before;
	return (int64_t)bytes;
}

int gpumem_set_per_process_memory_fraction(double fraction, int device)
{
	size_t total = 0;
	uint64_t limit;

	if (!(fraction >= 0 && fraction <= 1) || device < 0 || device >= (int)GM_MAX_DEVICES)
		return -EINVAL;
	if (!gm_cache_on())
		return -ENOTSUP;
	if (GM_REAL(cuDeviceTotalMem_v2)(&total, device))
		return -EINVAL;
	limit = (uint64_t)(fraction * (double)total);
	gm_cache_set_limit((uint8_t)device, limit ? limit : 1, fraction, GM_LIMIT_CALL);
	return 0;
}

double gpumem_get_per_process_memory_fraction(int device)
{
	size_t total = 0;

	if (device < 0 || device >= (int)GM_MAX_DEVICES)
		return -EINVAL;
	if (!gm_state_is_mine())
		return -ENODATA;
	if (!gm_cache_on())
		return -ENOTSUP;
	if (GM_REAL(cuDeviceTotalMem_v2)(&total, device) || !total)
		return -EINVAL;
	return gm_cache_fraction((uint8_t)device, total);
}

/* Without a cache both functions call the exported hooks, which record the call like any other call. */
void *gpumem_torch_malloc(ssize_t size, int device, void *stream)
{
	struct gm_call call;
	unsigned int tries = 0;
	CUdeviceptr ptr = 0;
	CUresult result;
	bool served;

	(void)device;
	if (size <= 0)
		return NULL;
	if (gm_inside || !gm_state_start() || !gm_cache_on())
		return cuMemAlloc_v2(&ptr, (size_t)size) ? NULL : (void *)(uintptr_t)ptr;
	step_in();
	gm_alloc_begin(&call, "gpumem_torch_malloc", GM_KIND_DEVICE, (uint64_t)size, GM_CALLER);
	served = gm_cache_malloc_ordered(&call, &ptr, stream, &result);
	if (!served) {
		result = GM_REAL(cuMemAlloc_v2)(&ptr, (size_t)size);
		while (result && !call.exhausted && gm_retry(result, &tries))
			result = GM_REAL(cuMemAlloc_v2)(&ptr, (size_t)size);
		result = gm_alloc_end(&call, result, GM_MAP_ADDRESS, result ? 0 : ptr,
				      (uint64_t)size);
	}
	return result ? NULL : (void *)(uintptr_t)ptr;
}

void gpumem_torch_free(void *ptr, ssize_t size, int device, void *stream)
{
	struct gm_relaxed relaxed;
	CUresult result;

	(void)size;
	(void)device;
	if (!ptr)
		return;
	if (gm_inside || !gm_state_start() || !gm_cache_on()) {
		cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr);
		return;
	}
	step_in();
	if (gm_cache_free_ordered((CUdeviceptr)(uintptr_t)ptr, stream, &result))
		return;
	gm_inside = 0;
	relaxed = gm_relax();		/* so that no capture is invalidated */
	cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr);
	gm_unrelax(&relaxed);
}

/* ---- the settings of the history -------------------------------------------------------------------
 *
 * Each setting is one word that hooks read once in an operation, so an operation that has begun may end by
 * the old setting. gm_state.history_lock keeps two callers of the API apart.
 */

/* The words as in options.def. Their places are GM_CONTEXT_*, GM_STACKS_* and enum gm_history_enabled. */
static const char *const context_words[] = { "none", "state", "alloc", "all", NULL };
static const char *const stacks_words[] = { "none", "python", "native", "all", NULL };
static const char *const enabled_words[] = { "all", "state", "none", NULL };

/* The events of each word of option history_actions, in the order of the words after "none". */
static const uint32_t action_groups[] = {
	1u << GM_ACTION_ALLOC | 1u << GM_ACTION_FREE_REQUESTED | 1u << GM_ACTION_FREE_COMPLETED,
	1u << GM_ACTION_SEGMENT_ALLOC | 1u << GM_ACTION_SEGMENT_FREE |
	1u << GM_ACTION_SEGMENT_MAP | 1u << GM_ACTION_SEGMENT_UNMAP,
	1u << GM_ACTION_OOM, 1u << GM_ACTION_SNAPSHOT, 1u << GM_ACTION_ANNOTATE,
};

void gm_history_config(const struct gm_options *options, struct gm_recorder_config *config)
{
	config->history_min_size = options->history_min_size;
	for (unsigned int i = 0; i < sizeof(action_groups) / sizeof(action_groups[0]); i++)
		if (!(options->history_actions >> (i + 1) & 1))
			config->history_left_out |= action_groups[i];
}

/* Switch the capture of stacks on or off. No stack is captured if neither events nor blocks get stacks. */
static void apply_stacks(const struct gm_history *history)
{
	bool any = history->context != GM_CONTEXT_NONE && history->enabled != GM_HISTORY_NONE;
	bool native = history->stacks == GM_STACKS_NATIVE || history->stacks == GM_STACKS_ALL;
	bool python = history->stacks == GM_STACKS_PYTHON || history->stacks == GM_STACKS_ALL;

	gm_set(&gm_state.context, history->context);
	gm_stacks_configure(any && native, any && python,
			    (unsigned int)gm_state.options.stack_depth);
	gm_unwind_choose((enum gm_unwinder)gm_state.options.unwinder);
}

static int apply(const struct gm_history *history)
{
	int r = gm_record_history(history);

	if (r == 0)
		apply_stacks(history);
	return r;
}

void gm_history_start(void)
{
	const struct gm_history history = {
		.enabled = gm_state.options.history_enabled, .context = gm_state.options.context,
		.stacks = gm_state.options.stacks,
	};

	/* No other thread records yet, so this waits for no lock. */
	apply(&history);
}

/* Find the place of @word in the list; NULL has the place @none. Returns false when @word is not in the list. */
static bool place_of(const char *word, const char *const *words, uint32_t none, uint32_t *ret)
{
	*ret = none;
	if (!word)
		return true;
	for (uint32_t i = 0; words[i]; i++) {
		if (strcmp(word, words[i]) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

int gm_history_switch(enum gm_history_enabled enabled)
{
	const struct gm_header *header = gm_recorder_header();
	struct gm_history history = { .enabled = enabled };
	int r;

	if (!gm_state_is_mine() || !header)
		return -ENODATA;
	if (enabled == GM_HISTORY_ALL && !header->history_events)
		return -ENOTSUP;
	if (!gm_lock(&gm_state.history_lock))
		return -ETIMEDOUT;
	history.context = gm_get(&header->history_context);
	history.stacks = gm_get(&header->history_stacks);
	history.newest = gm_get(&header->history_newest);
	r = gm_get(&header->history_enabled) == enabled ? 0 : apply(&history);
	gm_unlock(&gm_state.history_lock);
	return r;
}

int gpumem_record_memory_history(const char *enabled, const char *context, const char *stacks,
				 size_t max_entries)
{
	const struct gm_header *header = gm_recorder_header();
	struct gm_history history = { 0 };
	int r;

	if (!place_of(enabled, enabled_words, GM_HISTORY_NONE, &history.enabled) ||
	    !place_of(context, context_words, GM_CONTEXT_NONE, &history.context) ||
	    !place_of(stacks, stacks_words, GM_STACKS_NONE, &history.stacks))
		return -EINVAL;
	if (!gm_state_is_mine() || !header)
		return -ENODATA;
	if (max_entries < header->history_events)
		history.newest = max_entries ? max_entries : 1;	/* as in PyTorch */
	if (!gm_lock(&gm_state.history_lock))
		return -ETIMEDOUT;
	r = apply(&history);
	gm_unlock(&gm_state.history_lock);
	if (r || history.enabled != GM_HISTORY_ALL)
		return r;
	if (!header->history_events)
		return -ENOTSUP;
	return max_entries != SIZE_MAX && max_entries > header->history_events ? -ENOSPC : 0;
}
