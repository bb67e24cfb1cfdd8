/*
 * hostmem.c - pinned host memory: allocated, or the program's own registered. Addresses are the
 * same for host and device. Lock: fc.lock, given up while cuMemFreeHost waits for the device.
 */
#include "test/fakecuda/memory/memory.h"

#include <sys/mman.h>

static CUresult host_alloc(void **pp, size_t size, unsigned int flags)
{
	size_t mapped = (size + 4095) & ~(size_t)4095;
	struct fc_ctx *ctx;
	struct fc_alloc *a;
	void *p;
	CUresult r = fc_ctx_current(&ctx);

	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, ctx->base, NULL);
	if (r)
		return r;
	if (!pp)
		return CUDA_ERROR_INVALID_VALUE;
	if (mapped < size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pp = NULL;
	if (!size)
		return CUDA_SUCCESS;
	p = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a = fc_mem_new(FC_MEM_HOST, ctx->dev, ctx, (uint64_t)(uintptr_t)p, size, p);
	if (!a) {
		munmap(p, mapped);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->reserved = mapped;
	a->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
	a->readable_by_host = true;
	fc_race_alloc(a, NULL);
	*pp = p;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	const unsigned int known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				   CU_MEMHOSTALLOC_WRITECOMBINED;

	if (Flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	return host_alloc(pp, bytesize, Flags);
}

CUresult fc_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return host_alloc(pp, bytesize, 0);
}

CUresult fc_cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return host_alloc(pp, bytesize, 0);
}

CUresult fc_cuMemFreeHost(void *p)
{
	struct fc_alloc *a = fc_mem_is_base((uint64_t)(uintptr_t)p);
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		r = CUDA_SUCCESS;	/* the pointer says whose it is */
	r = r ? r : fc_capture_check(FC_UNSAFE_CALL, NULL, NULL);
	if (r)
		return r;
	if (!a || a->kind != FC_MEM_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return fc_mem_free_waiting(a, "cuMemFreeHost");
}

CUresult fc_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
				   CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
	uint64_t base = (uint64_t)(uintptr_t)p;
	struct fc_alloc *a, *next;
	struct fc_ctx *ctx;
	uint8_t *unused;
	size_t run;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!p || !bytesize || base + bytesize < base || (Flags & ~known))
		return CUDA_ERROR_INVALID_VALUE;
	a = fc_alloc_find(base);
	next = fc_alloc_next(base);
	if (!a && next && next->base < base + bytesize)
		a = next;
	if (a || fc_arena_span(base, 1, &unused, &run) || fc_region_has(base))
		return a && a->kind == FC_MEM_REGISTERED ?
		       CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
	a = fc_mem_new(FC_MEM_REGISTERED, ctx->dev, ctx, base, bytesize, p);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->flags = (Flags & CU_MEMHOSTREGISTER_PORTABLE) | CU_MEMHOSTALLOC_DEVICEMAP;
	a->readable_by_host = true;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return fc_cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult fc_cuMemHostUnregister(void *p)
{
	struct fc_alloc *a = fc_alloc_find((uint64_t)(uintptr_t)p);
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!a || a->freed)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	if (a->kind != FC_MEM_REGISTERED || a->base != (uint64_t)(uintptr_t)p)
		return CUDA_ERROR_INVALID_VALUE;
	return fc_mem_free_waiting(a, "cuMemHostUnregister");
}

static struct fc_alloc *pinned(const void *p)
{
	struct fc_alloc *a = fc_alloc_find((uint64_t)(uintptr_t)p);

	return a && (a->kind == FC_MEM_HOST || a->kind == FC_MEM_REGISTERED) ? a : NULL;
}

/* Of mapped memory, too, an H200 gives one (driver 580). */
static bool has_device_pointer(const void *p)
{
	const struct fc_alloc *a = fc_alloc_find((uint64_t)(uintptr_t)p);

	return pinned(p) || (a && a->kind == FC_MEM_VMM);
}

CUresult fc_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	if (!pdptr || Flags || !has_device_pointer(p))
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct fc_alloc *a = pinned(p);

	if (!pFlags || !a)
		return CUDA_ERROR_INVALID_VALUE;
	*pFlags = a->flags;
	return CUDA_SUCCESS;
}
