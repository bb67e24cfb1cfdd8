/*
 * debugger.h - is a tool here that watches the program's memory or its kernels?
 *
 * Thread context: the thread that starts the library. Signal context: none.
 */
#ifndef GM_PRELOAD_DEBUGGER_H
#define GM_PRELOAD_DEBUGGER_H

/* Its name, NULL: none is seen. Reads the environment and the loader's list of objects. */
const char *gm_debugger(void);

#endif
