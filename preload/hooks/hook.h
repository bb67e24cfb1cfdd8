/*
 * hook.h - what every hook body starts from: the real functions, the guard, the prototypes.
 *
 * A body, in hook_*.c, with its row in hooks.def turned from GM_PASS to GM_HOOK:
 *
 *	CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
 *	{
 *		GM_ENTER(cuMemAlloc_v2, dptr, bytesize);
 *		...
 *		result = GM_REAL(cuMemAlloc_v2)(dptr, bytesize);
 *		...
 *		return gm_leave(result);
 *	}
 *
 * GM_ENTER passes the call through, unrecorded, when this thread is inside a hook already (the
 * driver or another interposer called an exported name: never counted twice), and when nothing
 * can be recorded in this process. Between GM_ENTER and gm_leave the thread is "inside": whatever
 * the real function calls back passes through. Every way out of a body goes through gm_leave;
 * a longjmp or a cancellation past it heals at the thread's next hook.
 *
 * GM_REAL(name) is always callable, for every row of hooks.def, GM_CALL rows too: where no driver
 * is loaded it returns CUDA_ERROR_NOT_INITIALIZED, where the driver lacks the function
 * CUDA_ERROR_NOT_FOUND.
 *
 * Thread context: any. Signal context: a handler that calls CUDA inside a hook passes through.
 * Fork: in a child of a process that started the library every hook passes through (state.h).
 */
#ifndef GM_PRELOAD_HOOK_H
#define GM_PRELOAD_HOOK_H

/* cuda.h without its renames (cuMemAlloc -> cuMemAlloc_v2), with the old ABIs declared: every
 * body is checked against NVIDIA's prototype of its link name and against its PFN_ type. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/state.h"

/* Of cudaGL.h and cudaVDPAU.h, which need headers of OpenGL and VDPAU. */
typedef CUresult (CUDAAPI *PFN_gm_cuGLCtxCreate)(CUcontext *pctx, unsigned int flags, CUdevice dev);
typedef CUresult (CUDAAPI *PFN_gm_cuVDPAUCtxCreate)(CUcontext *pctx, unsigned int flags,
						     CUdevice dev, uint32_t vdp_device,
						     void *vdp_get_proc_address);

#define GM_PUBLIC __attribute__((visibility("default")))

enum gm_hook_class {
	GM_CLASS_RESOLVE, GM_CLASS_ALLOC, GM_CLASS_FREE, GM_CLASS_QUERY, GM_CLASS_WORK,
	GM_CLASS_ORDER, GM_CLASS_IDENTITY, GM_CLASS_LIFE, GM_CLASS_END
};

/* The class of each hook, as a constant: gm_class_cuMemAlloc_v2. */
enum gm_class_of_hook {
#define GM_HOOK(class, name, type, params, args) gm_class_##name = GM_CLASS_##class,
#include "preload/hooks/hooks.def"
};

/* The driver's functions, by link name. Filled at once when the driver is found (real.c). */
struct gm_real {
#define GM_HOOK(class, name, type, params, args) type name;
#define GM_CALL(name, type, params, args) type name;
#include "preload/hooks/hooks.def"
};
extern struct gm_real gm_real GM_HIDDEN;

#define GM_REAL(name) (gm_lock_rank_driver(), __atomic_load_n(&gm_real.name, __ATOMIC_RELAXED))

#define GM_HOOK(class, name, type, params, args) extern GM_PUBLIC __typeof__(*(type)0) name;
#include "preload/hooks/hooks.def"

/* Frame address of the hook that this thread is inside of; 0 outside. */
extern __thread uintptr_t gm_inside GM_HIDDEN;

bool gm_enter_slow(uintptr_t here, bool starts);

/* @starts: the call starts the library in a process where it has not started. What only frees or
 * ends does not: nothing that it could free is recorded, and a forked child on its way out makes
 * such calls. */
static inline __attribute__((always_inline)) bool gm_enter(bool starts)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	if (__builtin_expect(gm_state_word() != GM_STATE_RUNNING || gm_inside != 0, 0))
		return gm_enter_slow(here, starts);
	gm_inside = here;
	return true;
}

static inline CUresult gm_leave(CUresult result)
{
	gm_inside = 0;
	return result;
}

#define GM_ENTER(name, ...) GM_ENTER_WITH(name, (__VA_ARGS__))

/* The same for the rows of hooks.def, whose arguments stand in parentheses. */
#define GM_ENTER_WITH(name, args) \
	do { \
		if (!gm_enter((int)gm_class_##name != GM_CLASS_FREE && \
			      (int)gm_class_##name != GM_CLASS_END)) \
			return GM_REAL(name) args; \
	} while (0)

/*
 * What the bodies' own room (hook_*.c: maps, contexts) gives to init.c:
 *
 * gm_hooks_start - the journal is there and recording (gm_recorder_start returned 0); called once
 * in the life of a process, by the thread of its first hook, inside, before any body runs on.
 * Driver calls through GM_REAL are allowed. Returns 0, or -errno: nothing will be recorded then.
 */
int gm_hooks_start(void);

#endif
