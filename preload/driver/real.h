/*
 * real.h - the driver: whether it is loaded, its functions, and the hook for each.
 *
 * The driver is found once, after the program's own look-up in it succeeded or an exported hook was called.
 * The library never loads the driver. The results hold in a forked child, too, and need no lock, so they
 * are not part of struct gm_state. Thread context: any. Signal context: gm_hook_for and gm_hook_is_ours
 * only.
 */
#ifndef GM_PRELOAD_REAL_H
#define GM_PRELOAD_REAL_H

/* cuda.h without its renames (cuMemAlloc -> cuMemAlloc_v2) and with the old ABIs, so that the compiler checks
 * every body against NVIDIA's prototype of its link name and against its PFN_ type. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/state.h"

/* Copied from cudaGL.h and cudaVDPAU.h, which need headers of OpenGL and VDPAU. */
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

/* The driver's functions, by link name. All are filled in when the driver is found. */
struct gm_real {
#define GM_HOOK(class, name, type, params, args) type name;
#define GM_CALL(name, type, params, args) type name;
#include "preload/hooks/hooks.def"
};
extern struct gm_real gm_real GM_HIDDEN;

#define GM_REAL(name) (gm_lock_rank_driver(), __atomic_load_n(&gm_real.name, __ATOMIC_RELAXED))

#define GM_HOOK(class, name, type, params, args) extern GM_PUBLIC __typeof__(*(type)0) name;
#include "preload/hooks/hooks.def"

/* The functions of glibc, or of the next interposer; NULL before gm_libc_find. */
struct gm_libc {
	void *(*dlsym)(void *handle, const char *name);
	int (*dlclose)(void *handle);
	void (*exit_now)(int status);	/* _exit */
	void (*exit_now_c)(int status);	/* _Exit */
	void (*quick_exit)(int status);
	char *(*getenv)(const char *name);
};
extern struct gm_libc gm_libc __attribute__((visibility("hidden")));

/* Fill gm_libc. May be called at any time, and again. Calls no malloc if glibc has the versions. */
void gm_libc_find(void);

/* Is a driver loaded in this process (libcuda.so.1, under any file name)? */
bool gm_driver_loaded(void);

/* Find the driver's functions if the driver is loaded. Returns true when gm_real is filled. */
bool gm_real_find(void);

/* Return the hook to hand out in place of the driver's function @real; NULL: none. */
void *gm_hook_for(const void *real);

/* Choose whether the hooks of the classes WORK and IDENTITY are handed out: always until the library has
 * started, and afterwards if there is a cache. A program that has got such a hook keeps it. */
void gm_hooks_of_work(bool wanted);

/* Is @address one of our exported hooks? */
bool gm_hook_is_ours(const void *address);

/* Return the name of the tool in this process that checks the program's memory or kernels (debugger.c);
 * NULL: none. Reads the environment and the loader's list of objects. Called by the thread that starts the
 * library. */
const char *gm_debugger(void);

#endif
