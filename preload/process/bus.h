/*
 * bus.h - a journal that somebody cuts short does not kill the program: see bus.c.
 */
#ifndef GM_PRELOAD_BUS_H
#define GM_PRELOAD_BUS_H

/* Once, behind gm_crash_start, in the first hook. */
void gm_bus_start(void);

#endif
