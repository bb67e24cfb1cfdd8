/*
 * neighbours.h - other processes of this user are asked for memory that they do not use.
 *
 * Thread context: any, inside a hook; no lock held. Signal context: none.
 */
#ifndef GM_PRELOAD_NEIGHBOURS_H
#define GM_PRELOAD_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

/* The device of @domain is out of memory: have the other processes that cache memory of it give back what is idle
 * there, if @missing bytes (0: not known) can be had so. Waits for them, a second at most in all. Returns true where
 * some was given back. */
bool gm_neighbours_ask(uint8_t domain, uint64_t missing);

#endif
