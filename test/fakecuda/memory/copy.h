/*
 * copy.h - copies as works, between copy.c, copyapi.c and copy3d.c.
 */
#ifndef FC_COPY_H
#define FC_COPY_H

#include "test/fakecuda/state.h"

/* fc_copy_submit - check @p, make the work, put it into stream @h (NULL: the default one), wait as
 * the entry must: @sync for the forms without Async. */
CUresult fc_copy_submit(const char *name, const CUDA_MEMCPY3D_PEER_v1 *p, CUstream h, bool sync);

/* fc_copy_linear - @p describes @n bytes in a row. Either side is host memory (type HOST), device
 * memory or whatever its address says (UNIFIED). */
CUDA_MEMCPY3D_PEER_v1 fc_copy_linear(CUmemorytype dst_type, uint64_t dst, CUmemorytype src_type,
				     uint64_t src, size_t n);

/* fc_array_place - where the contents of an array lie. False: no such array. */
bool fc_array_place(CUarray array, uint64_t *ret_base, size_t *ret_pitch, size_t *ret_height);

#endif
