/*
 * array_size.h - bytes of a CUDA array as its descriptor tells them.
 *
 * The driver's own answer is better where it gives one (it knows the tiling); this is what stays.
 * Thread and signal context: any; pure.
 */
#ifndef GM_PRELOAD_ARRAY_SIZE_H
#define GM_PRELOAD_ARRAY_SIZE_H

#include <stdint.h>

#include "preload/hooks/hook.h"

/* Bytes of the texels of @levels mipmap levels (1 for a plain array), without padding between
 * rows. 0 for a NULL descriptor, and for arrays whose memory is mapped into them later (sparse,
 * deferred): that memory is a VMM handle's. */
uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels);

#endif
