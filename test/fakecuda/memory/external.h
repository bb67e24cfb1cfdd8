/*
 * external.h - imported external memory, as arrays need it.
 */
#ifndef FC_EXTERNAL_H
#define FC_EXTERNAL_H

#include "test/fakecuda/state.h"

/* fc_external_map - an address for [@offset, @offset + @size) of it: an FC_MEM_EXTERNAL allocation
 * of @ctx, which keeps the memory alive. */
CUresult fc_external_map(CUexternalMemory extMem, struct fc_ctx *ctx, uint64_t offset, size_t size,
			 struct fc_alloc **ret_a);

#endif
