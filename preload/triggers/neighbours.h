/*
 * neighbours.h - ask other processes of this user to give back cached memory that they do not use.
 *
 * Thread context: any, inside a hook; no lock held. Signal context: none.
 */
#ifndef GM_PRELOAD_NEIGHBOURS_H
#define GM_PRELOAD_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

/* Get memory for the device of @domain, which is out of memory: ask the processes that cache memory of
 * that device to give their idle memory back to the driver. Asks nobody if all their idle memory is less
 * than @missing bytes (0: the amount is not known). Waits at most one second in all. Returns true if
 * some process gave memory back. */
bool gm_neighbours_ask(uint8_t domain, uint64_t missing);

#endif
