/*
 * pass.c - the bodies of the GM_PASS rows of hooks.def: the call goes on to the driver.
 *
 * Thread, signal and fork context: the driver's own.
 */
#include "preload/hooks/hook.h"

#define GM_HOOK(class, name, type, params, args)
#define GM_PASS(class, name, type, params, args) \
	CUresult name params \
	{ \
		return GM_REAL(name) args; \
	}
#include "preload/hooks/hooks.def"
