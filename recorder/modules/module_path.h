/*
 * module_path.h - names of modules: from the loader's to a path, and who only passes calls on.
 * Internal to recorder/modules/modules.c. Any context after gm_module_path_init; no malloc, errno kept.
 */
#ifndef GM_RECORDER_MODULE_PATH_H
#define GM_RECORDER_MODULE_PATH_H

#include <stdbool.h>

#define GM_MODULE_PATH_BYTES 1200

/* Learn the executable's path. Once; first CUDA call or earlier. */
void gm_module_path_init(void);

/* The path for the loader's name @name: the executable's for "", made absolute by the working
 * directory of this moment where it is relative, as it is for what is no file (the vDSO). */
void gm_module_path(const char *name, char ret_path[GM_MODULE_PATH_BYTES]);

/* Does the module at @path only pass allocations on (the CUDA driver and runtime, profilers'
 * libraries, this library, the loader)? */
bool gm_module_passes_on(const char *path);

#endif
