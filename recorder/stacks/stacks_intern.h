/*
 * stacks_intern.h - a stack never seen: its frames to ids, Python's put in their places among the
 * native ones. Internal to recorder/stacks/stacks.c; contexts as stacks.h. Stack:
 * under 6 KiB, with Python frames under 16 KiB.
 */
#ifndef GM_RECORDER_STACKS_INTERN_H
#define GM_RECORDER_STACKS_INTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/python/python.h"
#include "recorder/unwind/unwind.h"

#define GM_STACK_DEPTH_MAX 256u		/* frames of a stack that are recorded */
#define GM_STACK_OWN_MOST 8		/* frames of our own that a stack begins with */

struct gm_stack_parts {
	const struct gm_regs *from;
	const uintptr_t *pcs;		/* native frames, beginning with our own */
	int own, count;			/* how many are; how many follow */
	int limit;			/* of frames in the stack */
	unsigned int flags;		/* of the native walk: GM_UNWIND_TRUNCATED, GM_UNWIND_MORE */
	bool native;			/* native frames are wanted */
	struct gm_python *python;	/* whose frames are wanted; NULL: none's */
};

/* The id of the stack; GM_NONE when it has no frames or there is no room. */
uint32_t gm_stack_intern(const struct gm_stack_parts *parts);

#endif
