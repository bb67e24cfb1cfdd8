/*
 * external.c - memory of another API: any descriptor that can be mapped stands for Vulkan's.
 *
 * It is counted while imported, not charged to the device, and lives on under its mapped buffers.
 * Lock: fc.lock.
 */
#include "test/fakecuda/memory/external.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/fakecuda/context.h"
#include "test/fakecuda/memory/memory.h"

struct extmem {
	CUexternalMemory handle;	/* NULL: destroyed, mapped buffers left */
	unsigned int refs;
	int fd;				/* ours since the import */
	uint64_t inode;
	uint8_t *host;
	size_t size;
	struct fc_ctx *ctx;		/* not counted: destroyed with it */
	struct extmem *next;
};

static struct extmem *imported;

static void put(struct extmem *x)
{
	struct extmem **at = &imported;

	if (--x->refs)
		return;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	munmap(x->host, x->size);
	fc_fd_close(x->fd, x->inode);
	free(x);
}

CUresult fc_cuImportExternalMemory(CUexternalMemory *extMem_out,
				   const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	struct extmem *x;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);
	void *p;

	if (r)
		return r;
	if (!extMem_out || !memHandleDesc || !memHandleDesc->size)
		return CUDA_ERROR_INVALID_VALUE;
	if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	x = calloc(1, sizeof(*x));
	if (!x)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = mmap(NULL, memHandleDesc->size, PROT_READ | PROT_WRITE, MAP_SHARED,
		 memHandleDesc->handle.fd, 0);
	x->handle = p == MAP_FAILED ? NULL : fc_handle_new(FC_H_EXTMEM, x);
	if (!x->handle) {
		if (p != MAP_FAILED)
			munmap(p, memHandleDesc->size);
		free(x);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	x->refs = 1;
	x->fd = memHandleDesc->handle.fd;
	x->inode = fc_fd_inode(x->fd);
	x->host = p;
	x->size = memHandleDesc->size;
	x->ctx = ctx->base;
	x->next = imported;
	imported = x;
	fc_account(ctx->dev, FAKECUDA_EXTERNAL, (int64_t)x->size, 1);
	*extMem_out = x->handle;
	return CUDA_SUCCESS;
}

static void destroy(struct extmem *x)
{
	fc_account(x->ctx->dev, FAKECUDA_EXTERNAL, -(int64_t)x->size, -1);
	fc_handle_drop(x->handle);
	x->handle = NULL;
	put(x);
}

CUresult fc_cuDestroyExternalMemory(CUexternalMemory extMem)
{
	struct extmem *x = fc_handle_get(extMem, FC_H_EXTMEM);

	if (!x)
		return CUDA_ERROR_INVALID_HANDLE;
	destroy(x);
	return CUDA_SUCCESS;
}

void fc_external_ctx_ended(struct fc_ctx *ctx)
{
	struct extmem *next;

	for (struct extmem *x = imported; x; x = next) {
		next = x->next;
		if (x->handle && x->ctx == ctx)
			destroy(x);
	}
}

CUresult fc_external_map(CUexternalMemory extMem, struct fc_ctx *ctx, uint64_t offset, size_t size,
			 struct fc_alloc **ret_a)
{
	struct extmem *x = fc_handle_get(extMem, FC_H_EXTMEM);
	uint64_t va;

	if (!x)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!size || offset > x->size || size > x->size - offset)
		return CUDA_ERROR_INVALID_VALUE;
	va = fc_region_take((size + FC_CHUNK - 1) / FC_CHUNK * FC_CHUNK, FC_CHUNK, 0, false);
	*ret_a = va ? fc_mem_new(FC_MEM_EXTERNAL, ctx->dev, ctx, va, size, x->host + offset) :
		      NULL;
	if (!*ret_a) {
		fc_region_give(va);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	x->refs++;
	(*ret_a)->owner = x;
	fc_race_alloc(*ret_a, NULL);
	return CUDA_SUCCESS;
}

/* Called by fc_mem_drop. */
void fc_external_drop(struct fc_alloc *a)
{
	fc_region_give(a->base);
	put(a->owner);
}

CUresult fc_cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
					    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	struct fc_alloc *a;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!devPtr || !bufferDesc || bufferDesc->flags)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_external_map(extMem, ctx, bufferDesc->offset, bufferDesc->size, &a);
	if (!r)
		*devPtr = a->base;
	return r;
}
