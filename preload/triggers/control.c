/*
 * control.c - do the commands of gpumem ctl: see control.h.
 *
 * Every process that may write the journal's file can change these words at any time. So the command is
 * copied once, and only the copy is checked and used. A command does only what the program itself could do
 * by gpumem.h, so a bad value does no more harm than such a call.
 */
#include "preload/triggers/control.h"

#include <errno.h>
#include <string.h>

#include "preload/api/history.h"
#include "preload/cache/cache_internal.h"
#include "preload/hooks/hook.h"
#include "preload/process/state.h"
#include "recorder/journal/recorder.h"

struct command { uint32_t what, device; uint64_t bytes; };

static bool is_meant(const struct command *command, uint32_t device)
{
	return command->device == GM_CONTROL_ALL || command->device == device;
}

/* Copy the figures of @device. Returns false when the program has not used the device. */
static bool look(uint8_t device, struct gm_control_device *ret)
{
	struct gm_stats stats;
	enum gm_limit which;
	uint32_t same;

	memset(ret, 0, sizeof(*ret));
	if (gm_record_used(device, &same) || gm_record_stats(device, &stats))
		return false;
	ret->used = 1;
	ret->limit = gm_cache_limit(device, &which);
	ret->limited_by = ret->limit == GM_HEAP_UNLIMITED ? GM_LIMIT_NONE : which;
	ret->allocated = (uint64_t)stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].current;
	ret->peak = (uint64_t)stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].peak;
	ret->reserved = (uint64_t)stats.stat[GM_STAT_RESERVED_BYTES][GM_POOL_ALL].current;
	return true;
}

/* Set the limit of a device. The device need not be in use yet, because the program may use it later. */
static int limit(uint8_t device, uint64_t bytes)
{
	size_t total = 0;
	double part;

	if (GM_REAL(cuDeviceTotalMem_v2)(&total, device) || !total)
		return -ENODEV;
	part = bytes < total ? (double)bytes / (double)total : 1;
	gm_cache_set_limit(device, bytes ? bytes : 1, part, GM_LIMIT_CTL);
	return 0;
}

/* Reset the peaks of the pools of the program that hand out memory of @device. */
static void reset_pools(uint8_t device)
{
	uint32_t of;

	for (uint32_t i = GM_DOMAIN_POOLS; i < GM_DOMAIN_POOLS + GM_MAX_POOLS; i++)
		if (!gm_record_used((uint8_t)i, &of) && of == device)
			gm_record_reset_stats((uint8_t)i, GM_RESET_PEAK);
}

/* Give the idle memory of @device back to the driver. Relaxed capture mode, because a capture may begin at any
 * time, and this thread's calls must not invalidate it. */
static uint64_t empty_cache(uint8_t device)
{
	struct gm_relaxed relaxed = gm_relax();
	uint64_t bytes = gm_cache_flush(device);

	gm_unrelax(&relaxed);
	return bytes;
}

/* Do the command for one device. @used: the program has used the device. */
static int change(const struct command *command, uint8_t device, bool used, uint64_t *ret_given_back)
{
	switch (command->what) {
	case GM_CONTROL_RESET_PEAKS:
		if (!used)
			return -ENODEV;
		reset_pools(device);
		return gm_record_reset_stats(device, GM_RESET_PEAK);
	case GM_CONTROL_EMPTY_CACHE:
		if (!used)
			return -ENODEV;
		*ret_given_back = empty_cache(device);
		return 0;
	case GM_CONTROL_MEMORY_LIMIT:
		return gm_cache_on() ? limit(device, command->bytes) : -ENOTSUP;
	default:
		return used ? 0 : -ENODEV;
	}
}

/* Do the command for the devices that it names. A command for all devices skips devices that do not exist. */
static int change_devices(const struct command *command, struct gm_control *control)
{
	for (uint32_t i = 0; i < GM_MAX_DEVICES; i++) {
		struct gm_control_device *row = &control->devices[i], before, after;
		uint64_t given_back = 0;
		bool used = look((uint8_t)i, &before);
		int r;

		memset(row, 0, sizeof(*row));
		if (!is_meant(command, i))
			continue;
		r = change(command, (uint8_t)i, used, &given_back);
		if (r && (r != -ENODEV || command->device != GM_CONTROL_ALL))
			return r;
		if (!used || !look((uint8_t)i, &after))
			continue;
		after.limit_before = before.limit;
		after.peak_before = before.peak;
		after.given_back = given_back;
		*row = after;
	}
	return 0;
}

static int obey(const struct command *command, struct gm_control *control)
{
	const struct gm_header *header = gm_recorder_header();
	int r = 0;

	if (command->what < GM_CONTROL_SHOW || command->what >= GM_CONTROL_COUNT ||
	    (command->device >= GM_MAX_DEVICES && command->device != GM_CONTROL_ALL))
		return -EINVAL;
	if (!gm_state_is_mine() || !header || gm_recorder_is_lost())
		return -ENODATA;
	/* The driver may be shutting down when the process ends, and the ending thread must not wait for us. */
	if (gm_get_acquire(&gm_state.exiting) || gm_get_acquire(&header->life) != GM_LIFE_RUNNING)
		return -ESHUTDOWN;
	control->caching = gm_cache_on();
	control->history_before = gm_get(&header->history_enabled);
	if (command->what == GM_CONTROL_HISTORY_ON)
		r = gm_history_switch(GM_HISTORY_ALL);
	else if (command->what == GM_CONTROL_HISTORY_STATE)
		r = gm_history_switch(GM_HISTORY_STATE);
	else if (command->what == GM_CONTROL_HISTORY_OFF)
		r = gm_history_switch(GM_HISTORY_NONE);
	control->history = gm_get(&header->history_enabled);
	return r ? r : change_devices(command, control);
}

void gm_control_begin(struct gm_control *control)
{
	gm_set_release(&control->version, GM_CONTROL_VERSION);
}

void gm_control_serve(struct gm_control *control)
{
	uint32_t turn = gm_get_acquire(&control->turn);
	uint32_t begun = (turn & ~3u) | GM_CONTROL_BEGUN;
	struct command command;
	uintptr_t before;

	if ((turn & 3u) != GM_CONTROL_ASKED || !atomic_compare_exchange_strong(&control->turn, &turn, begun))
		return;
	command.what = __atomic_load_n(&control->command, __ATOMIC_RELAXED);
	command.device = __atomic_load_n(&control->device, __ATOMIC_RELAXED);
	command.bytes = __atomic_load_n(&control->bytes, __ATOMIC_RELAXED);
	/* Mark this thread as inside a hook, so that driver calls that come back to our exported names pass
	 * through. */
	before = gm_inside;
	gm_inside = (uintptr_t)__builtin_frame_address(0);
	control->result = obey(&command, control);
	gm_inside = before;
	atomic_compare_exchange_strong(&control->turn, &begun, (turn & ~3u) | GM_CONTROL_ANSWERED);
}
