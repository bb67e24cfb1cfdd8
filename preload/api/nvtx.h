/*
 * nvtx.h - what NVTX's extensions (nvtx_mem.c) need of its core (nvtx.c).
 *
 * Thread context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_NVTX_H
#define GM_PRELOAD_NVTX_H

#include <stdbool.h>
#include <stdint.h>

/* Does option nvtx want any of it? */
bool gm_nvtx_is_wanted(void);

/* The string id of a message of NVTX, which has a type; GM_NONE where there is none, or no room. */
uint32_t gm_nvtx_message_id(int32_t type, const void *message);

#endif
