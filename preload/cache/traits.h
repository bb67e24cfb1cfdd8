/*
 * traits.h - what is known of the modules that ask for memory, by the names of their files.
 *
 * Thread context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_TRAITS_H
#define GM_PRELOAD_TRAITS_H

#include <stdbool.h>
#include <stdint.h>

/* A module was published under @module. Any thread, no lock held. */
void gm_traits_seen(uint16_t module, const char *path);

/* It never leans on cudaFree as a wait for the GPU: its frees need not wait. */
bool gm_traits_frees_freely(uint16_t module);

#endif
