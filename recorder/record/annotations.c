/*
 * annotations.c - annotations in the history: see annotations.h. Annotations may fill an eighth of the
 * history at once, and a 64th of it in each second after that.
 */
#include "recorder/record/annotations.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "recorder/record/tables.h"

#define SHARE_LEAST 32			/* events that are added to both limits, for a short history */

/* The number of a range packs string id / 8, a count, the device and a mark. The mark tells valid numbers from
 * others, because programs end ranges that never began. */
#define RANGE_COUNT_SHIFT 29
#define RANGE_COUNT_MASK UINT32_C(0xfffff)
#define RANGE_DEVICE_SHIFT 49
#define RANGE_MARK_SHIFT 56

struct open_range {
	uint32_t name;
	uint16_t scope;
	uint8_t device;			/* NO_DEVICE: the range is not recorded */
};
#define NO_DEVICE 0xffu

static __thread struct {
	struct open_range open[GM_RANGES_OPEN];
	uint32_t depth, deeper;		/* ranges in @open; open ranges beyond those */
} own;

static struct {
	_Atomic(int64_t) left;		/* events that annotations may still write */
	_Atomic(uint64_t) filled_ns;	/* when @left was last refilled */
	int64_t most, each_second;
} share;

static _Atomic(uint32_t) ranges;

static uint64_t coarse_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void gm_annotations_begin(uint64_t events)
{
	share.most = (int64_t)(events / 8) + SHARE_LEAST;
	share.each_second = (int64_t)(events / 64) + SHARE_LEAST;
	gm_set(&share.left, share.most);
	gm_set(&share.filled_ns, coarse_ns());
}

/* ---- the share --------------------------------------------------------------------------------- */

static void fill_share(void)
{
	uint64_t now = coarse_ns(), since = gm_get(&share.filled_ns);
	int64_t more, left = gm_get(&share.left);

	if (now < since + 1000000 ||
	    !atomic_compare_exchange_strong(&share.filled_ns, &since, now))
		return;
	/* The time modulo a day, so that the product cannot overflow. */
	more = (int64_t)((now - since) / 1000 % UINT64_C(86400000000)) * share.each_second / 1000000;
	if (more > share.most - left)
		more = share.most - left;
	if (more > 0)
		atomic_fetch_add_explicit(&share.left, more, memory_order_relaxed);
}

static bool take(int64_t events)
{
	if (gm_get(&share.left) < events)
		fill_share();
	if (atomic_fetch_sub_explicit(&share.left, events, memory_order_relaxed) >= events)
		return true;
	atomic_fetch_add_explicit(&share.left, events, memory_order_relaxed);
	gm_count(&gm_header_get()->annotations_lost, 1);
	return false;
}

/* ---- events ------------------------------------------------------------------------------------ */

static int write_event(uint8_t device, enum gm_stage stage, uint32_t name, uint32_t scope_name,
		       uint64_t range)
{
	struct gm_event_place at;
	struct gm_change change;
	int r = gm_change_enter(&change, device, 0);

	if (r < 0)
		return r;
	at = gm_event_open(&change.writer, change.counts, GM_ACTION_ANNOTATE);
	if (at.event) {
		*at.event = (struct gm_event){
			.commit = gm_get(&at.event->commit), .tsc = gm_stamp(), .op = change.op,
			.size = range, .stack = name, .context = scope_name, .domain = device,
			.action = GM_ACTION_ANNOTATE, .flags = (uint8_t)stage,
		};
		gm_event_commit(&change.writer, at);
	}
	gm_change_leave(&change);
	return 0;
}

int gm_annotate_mark(const struct gm_annotation *what)
{
	if (!gm_header_get())
		return -ENODEV;
	if (!take(1))
		return -EAGAIN;
	return write_event(what->device, GM_STAGE_MARK, what->name, what->scope_name, 0);
}

void gm_annotate_push(const struct gm_annotation *what, uint16_t scope)
{
	struct open_range *range;

	if (own.depth == GM_RANGES_OPEN) {
		own.deeper++;
		if (what && gm_header_get())
			gm_count(&gm_header_get()->annotations_lost, 1);
		return;
	}
	range = &own.open[own.depth++];
	*range = (struct open_range){ .scope = scope, .device = NO_DEVICE };
	if (!what || !gm_header_get() || !take(2))
		return;
	range->name = what->name;
	if (write_event(what->device, GM_STAGE_START, what->name, what->scope_name, 0) == 0)
		range->device = what->device;
}

void gm_annotate_pop(uint16_t scope, uint32_t scope_name)
{
	struct open_range range;
	uint32_t at = own.depth;

	if (own.deeper) {
		own.deeper--;
		return;
	}
	while (at && own.open[at - 1].scope != scope)
		at--;
	if (!at)
		return;
	range = own.open[at - 1];
	memmove(&own.open[at - 1], &own.open[at], (own.depth - at) * sizeof(range));
	own.depth--;
	if (range.device != NO_DEVICE && gm_header_get())
		write_event(range.device, GM_STAGE_END, range.name, scope_name, 0);
}

uint64_t gm_annotate_start(const struct gm_annotation *what)
{
	uint64_t count;

	if (!gm_header_get() || !take(2))
		return GM_RANGE_NONE;
	do		/* skip 0, which stands for "no range" */
		count = atomic_fetch_add_explicit(&ranges, 1, memory_order_relaxed) &
			RANGE_COUNT_MASK;
	while (!count);
	if (write_event(what->device, GM_STAGE_START, what->name, what->scope_name, count))
		return GM_RANGE_NONE;
	return what->name / 8 | count << RANGE_COUNT_SHIFT |
	       (uint64_t)what->device << RANGE_DEVICE_SHIFT | UINT64_C(1) << RANGE_MARK_SHIFT;
}

bool gm_annotate_end(uint64_t range, uint32_t scope_name)
{
	uint64_t count = range >> RANGE_COUNT_SHIFT & RANGE_COUNT_MASK;

	if (!count || !gm_header_get() || range >> RANGE_MARK_SHIFT != 1)
		return false;
	write_event((uint8_t)(range >> RANGE_DEVICE_SHIFT & 0x7f), GM_STAGE_END,
		    (uint32_t)(range & ((UINT64_C(1) << RANGE_COUNT_SHIFT) - 1)) * 8, scope_name,
		    count);
	return true;
}
