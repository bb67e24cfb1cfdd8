/*
 * nvtx.h - functions of NVTX's core (nvtx.c) for its extensions (nvtx_mem.c).
 *
 * Thread context: any. Signal context: none.
 */
#ifndef GM_PRELOAD_NVTX_H
#define GM_PRELOAD_NVTX_H

#include <stdbool.h>
#include <stdint.h>

/* Is NVTX recorded (option nvtx)? */
bool gm_nvtx_is_wanted(void);

/* Return the string id of an NVTX message of type @type; GM_NONE when there is no text, or no room for it. */
uint32_t gm_nvtx_message_id(int32_t type, const void *message);

#endif
