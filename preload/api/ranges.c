/*
 * ranges.c - the public functions for named ranges of the history.
 *
 * A phase like "load the model" begins before the first CUDA call, when there is no history yet. Such a range
 * waits in a table. It begins together with the history, unless the program has ended it by then.
 *
 * Thread context: any, outside our locks and hooks. Signal context: none. Lock: ranges_lock (leaf), with
 * no other lock taken under it.
 */
#define GPUMEM_API __attribute__((visibility("default")))
#define GPUMEM_IMPLEMENTATION
#include "preload/api/gpumem.h"

#include <errno.h>
#include <string.h>

#include "preload/order/context.h"
#include "preload/process/state.h"
#include "recorder/journal/recorder.h"
#include "recorder/record/annotations.h"

#define EARLY_MOST 16u			/* ranges that may wait at once */
#define EARLY_BYTES 256u		/* room for a name, which is cut */
#define EARLY_MARK (INT64_C(1) << 60)	/* a bit that only values of waiting ranges have */

static struct early {			/* lock: ranges_lock of gm_state */
	char text[EARLY_BYTES];
	uint32_t uses;			/* counts uses of the place, so that a stale value ends no newer range */
	bool used;
	uint64_t range;			/* 0: the range still waits */
} early[EARLY_MOST];

static bool recording(void)
{
	return gm_state_is_mine() && gm_recorder_header();
}

/* Begin a range now. Returns 0 or -errno. */
static int begin(const char *text, uint64_t *ret_range)
{
	struct gm_annotation what = { .device = gm_where_last() };

	what.name = gm_intern_string(text, (uint32_t)strnlen(text, GM_STRING_MAX));
	if (!what.name)
		return -ENOMEM;
	*ret_range = gm_annotate_start(&what);
	return *ret_range == GM_RANGE_NONE ? -EAGAIN : 0;
}

static int64_t wait_for_history(const char *text)
{
	int64_t value = -ENODATA;

	if (!gm_lock(&gm_state.ranges_lock))
		return -ETIMEDOUT;
	for (uint32_t i = 0; i < EARLY_MOST && value < 0; i++) {
		struct early *at = &early[i];

		if (at->used)
			continue;
		strncpy(at->text, text, EARLY_BYTES - 1);
		at->used = true;
		at->range = 0;
		at->uses++;
		value = EARLY_MARK | (int64_t)at->uses << 8 | i;
	}
	gm_unlock(&gm_state.ranges_lock);
	return value;
}

/* Begin the waiting ranges, because the history begins. A range that cannot be recorded now is never recorded. */
void gm_ranges_begin(void)
{
	for (uint32_t i = 0; i < EARLY_MOST; i++) {
		char text[EARLY_BYTES] = "";
		uint64_t range = GM_RANGE_NONE;
		uint32_t uses;
		bool waits;

		if (!gm_lock(&gm_state.ranges_lock))
			return;
		waits = early[i].used && !early[i].range;
		uses = early[i].uses;
		if (waits)
			memcpy(text, early[i].text, sizeof(text));
		gm_unlock(&gm_state.ranges_lock);
		if (!waits)
			continue;
		begin(text, &range);
		if (!gm_lock(&gm_state.ranges_lock))
			return;
		if (early[i].used && early[i].uses == uses) {
			early[i].range = range;
			range = GM_RANGE_NONE;
		}
		gm_unlock(&gm_state.ranges_lock);
		if (range != GM_RANGE_NONE)	/* another thread has ended it just now */
			gm_annotate_end(range, GM_NONE);
	}
}

static int end_early(int64_t value)
{
	uint64_t range = GM_RANGE_NONE;
	struct early *at;
	int r = -EINVAL;

	if ((value & 0xff) >= EARLY_MOST)
		return -EINVAL;
	at = &early[value & 0xff];
	if (!gm_lock(&gm_state.ranges_lock))
		return -ETIMEDOUT;
	if (at->used && (EARLY_MARK | (int64_t)at->uses << 8 | (value & 0xff)) == value) {
		range = at->range;
		at->used = false;
		r = 0;
	}
	gm_unlock(&gm_state.ranges_lock);
	if (!r && range && range != GM_RANGE_NONE && recording())
		gm_annotate_end(range, GM_NONE);
	return r;
}

int64_t gpumem_range_start(const char *text)
{
	uint64_t range;
	int r;

	if (!text)
		return -EINVAL;
	if (!recording())
		return wait_for_history(text);
	r = begin(text, &range);
	return r ? r : (int64_t)range;
}

int gpumem_range_end(int64_t range)
{
	if (range > 0 && range & EARLY_MARK)
		return end_early(range);
	if (!recording())
		return -ENODATA;
	return range > 0 && gm_annotate_end((uint64_t)range, GM_NONE) ? 0 : -EINVAL;
}
