/*
 * control.h - the part of the journal's header in which another process leaves a command for the
 * helper thread (gpumem ctl PID) and finds the answer.
 *
 * @turn says whose turn it is: (number of the command << 2) | enum gm_control_turn.
 *
 *	The asking process holds a lock on the file's bytes of this struct (fcntl). It fills in
 *	the command, stores ASKED with the next number, then increments @request of the header
 *	and wakes its futex.
 *	The helper thread changes ASKED to BEGUN by compare-and-swap, copies the command, does
 *	it, fills in the answer and stores ANSWERED.
 *
 * A process whose wait has run out changes ASKED back to IDLE by compare-and-swap; a stopped program
 * that is continued later then finds no command. The lock ends with the process that holds it, and
 * the next asking process takes back a command of a killed one in the same way. Neither side trusts
 * what it reads here.
 */
#ifndef GM_RECORDER_CONTROL_H
#define GM_RECORDER_CONTROL_H

#include <stdint.h>

#include "allocator/table.h"

#define GM_CONTROL_VERSION 1u		/* of the commands, and of this struct */
#define GM_CONTROL_ALL UINT32_MAX	/* as @device: every device */

enum gm_control_turn { GM_CONTROL_IDLE, GM_CONTROL_ASKED, GM_CONTROL_BEGUN, GM_CONTROL_ANSWERED,
		       GM_CONTROL_TURNS };
enum gm_control_command { GM_CONTROL_SHOW = 1, GM_CONTROL_HISTORY_ON, GM_CONTROL_HISTORY_OFF,
			  GM_CONTROL_RESET_PEAKS, GM_CONTROL_EMPTY_CACHE, GM_CONTROL_MEMORY_LIMIT,
			  GM_CONTROL_HISTORY_STATE, GM_CONTROL_COUNT };

/* The state of one device after the command. Sizes are bytes. */
struct gm_control_device {		/* 64 bytes */
	uint32_t used;			/* 1: the program has used the device; 0: so are all members */
	uint32_t limited_by;		/* enum gm_limit */
	uint64_t limit, limit_before;	/* of the cache; GM_HEAP_UNLIMITED: none */
	uint64_t allocated, reserved;
	uint64_t peak, peak_before;	/* of @allocated */
	uint64_t given_back;		/* to the driver, by this command */
};

struct gm_control {
	_Atomic(uint32_t) version;	/* GM_CONTROL_VERSION; 0: no helper thread reads commands yet */
	_Atomic(uint32_t) turn;

	/* the command */
	uint32_t command, device;	/* enum gm_control_command; GM_CONTROL_ALL or an ordinal */
	uint64_t bytes;			/* the limit, for GM_CONTROL_MEMORY_LIMIT */

	/* the answer */
	int32_t result;			/* 0 or -errno; most errors leave the rest unset */
	uint32_t caching;		/* 1: the cache serves allocations, and can be limited */
	uint32_t history, history_before;	/* enum gm_history_enabled */
	struct gm_control_device devices[GM_MAX_DEVICES];
};

_Static_assert(sizeof(struct gm_control_device) == 64, "on-disk layout");
_Static_assert(sizeof(struct gm_control) == 40 + GM_MAX_DEVICES * 64, "on-disk layout");

#endif
