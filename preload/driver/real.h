/*
 * real.h - the driver: where it is loaded, its functions, and the hook that stands for each.
 *
 * Found once, after somebody's own look-up in it succeeded or an exported hook was called; never
 * loaded by us. What is found here stays true in a forked child, and takes no lock: it is not
 * part of struct gm_state.
 * Thread context: any. Signal context: gm_hook_for and gm_hook_is_ours only.
 */
#ifndef GM_PRELOAD_REAL_H
#define GM_PRELOAD_REAL_H

#include <stdbool.h>

/* glibc's own functions, or the next interposer's; NULL before gm_libc_find. */
struct gm_libc {
	void *(*dlsym)(void *handle, const char *name);
	int (*dlclose)(void *handle);
	void (*exit_now)(int status);	/* _exit */
	void (*exit_now_c)(int status);	/* _Exit */
	void (*quick_exit)(int status);
	char *(*getenv)(const char *name);
};
extern struct gm_libc gm_libc __attribute__((visibility("hidden")));

/* Fill gm_libc. Any time, any number of times; calls no malloc on a glibc that has the versions. */
void gm_libc_find(void);

/* Is a driver loaded in this process (libcuda.so.1, whatever the file is called)? */
bool gm_driver_loaded(void);

/* Find the driver's functions if it is loaded. Returns true when gm_real is filled. */
bool gm_real_find(void);

/* The hook that stands for the driver's function @real; NULL: none, or none is wanted. */
void *gm_hook_for(const void *real);

/* Is @address one of our exported hooks? */
bool gm_hook_is_ours(const void *address);

#endif
