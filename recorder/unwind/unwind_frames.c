/*
 * unwind_frames.c - the chain of frame records (see unwind_frames.h). Owns nothing. Any context.
 */
#include "recorder/unwind/unwind_frames.h"

#include <stddef.h>

#include "recorder/unwind/unwind_step.h"
#include "recorder/unwind/window.h"

#if defined(__aarch64__)

/* A return address without its signature (pointer authentication). */
static uintptr_t strip(uintptr_t pc)
{
	register uintptr_t x30 __asm__("x30") = pc;

	__asm__("hint #7" : "+r"(x30));		/* xpaclri, a no-op where there is none */
	return x30;
}

static bool is_likely(uintptr_t pc)
{
	(void)pc;
	return true;			/* the ABI has the chain */
}

#else

static uintptr_t strip(uintptr_t pc)
{
	return pc;
}

/* The register may hold anything where its owner was compiled without frame pointers. */
static bool is_likely(uintptr_t pc)
{
	return !pc || gm_step_is_after_call(pc);
}

#endif

int gm_unwind_frames(const struct gm_regs *from, uintptr_t *ret_pcs, uintptr_t *ret_ends, int max,
		     unsigned int *ret_flags)
{
	uintptr_t pc = from->r[GM_REG_PC], sp = from->r[GM_REG_SP], fp = from->r[GM_REG_FP];
	struct gm_window window;
	unsigned int flags = 0;
	int count = 0;

	gm_window_open(&window, sp);
	while (pc || !count) {
		uintptr_t record = fp;

		if (count == max) {
			flags |= GM_UNWIND_MORE;
			break;
		}
		if (ret_ends)
			ret_ends[count] = UINTPTR_MAX;
		ret_pcs[count++] = pc;
		if (!record)
			break;
		/* records lie ever higher; an equal one would be a loop */
		if (record < sp || !gm_window_read(&window, record, &fp) ||
		    !gm_window_read(&window, record + 8, &pc) || !is_likely(strip(pc))) {
			flags |= GM_UNWIND_TRUNCATED;
			break;
		}
		pc = strip(pc);
		sp = record + 16;
		/* locals lie above a function's own record, below its caller's */
		if (ret_ends && fp)
			ret_ends[count - 1] = fp;
	}
	if (ret_flags)
		*ret_flags = flags;
	return count;
}
