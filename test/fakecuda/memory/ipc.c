/*
 * ipc.c - memory of another process: cuIpc*MemHandle, and the pointers of exported pools.
 *
 * A handle says where in which process's arena an allocation lies; the importer opens that arena
 * through /proc/PID/fd and maps the same pages, so contents are shared as on a device. Nothing of
 * another process's is charged here. Lock: fc.lock.
 */
#define _GNU_SOURCE
#include "test/fakecuda/memory/ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/fakecuda/memory/pool.h"

#define MEM_MAGIC 0x4643495043303031ULL
#define POOL_MAGIC 0x4643504f4f4c3031ULL

/* Bytes 0-55 of a CUipcMemHandle, and of a CUmemPoolPtrExportData; 56-63 mean nothing. */
struct mem_handle {
	uint64_t magic;
	uint64_t inode;		/* of the arena: the descriptor may be another file's by now */
	uint64_t offset, size;
	int32_t pid, fd, device;
	int32_t unused;		/* no holes: handles of one allocation are the same, bit for bit */
};

_Static_assert(sizeof(struct mem_handle) == 4 * sizeof(uint64_t) + 4 * sizeof(int32_t) &&
	       sizeof(struct mem_handle) <= 56, "the driver's part of an IPC handle");

struct import {
	struct mem_handle from;
	unsigned int refs;	/* opens */
	struct fc_alloc *a;
	uint8_t *map;
	size_t map_size;
	bool from_pool;
	struct import *next;
};

static struct import *imports;

bool fc_ipc_from_pool(const struct fc_alloc *a)
{
	return ((const struct import *)a->owner)->from_pool;
}

static CUresult describe(const struct fc_alloc *a, struct mem_handle *ret_h)
{
	if (fc_fd_inode(a->dev->fd) != a->dev->inode)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*ret_h = (struct mem_handle){
		.magic = MEM_MAGIC, .inode = a->dev->inode,
		.offset = (uint64_t)(a->host - a->dev->host), .size = a->size,
		.pid = getpid(), .fd = a->dev->fd, .device = a->dev->ordinal,
	};
	return CUDA_SUCCESS;
}

static int open_arena(const struct mem_handle *h)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h->pid, (int)h->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && fc_fd_inode(fd) != h->inode) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Whole pages around the allocation; its place in the page stays what it is. */
static CUresult map_import(struct import *im)
{
	uint64_t first = im->from.offset & ~4095ULL;
	uint64_t end = (im->from.offset + im->from.size + 4095) & ~4095ULL;
	int fd = open_arena(&im->from);
	void *p;

	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	im->map_size = end - first;
	p = mmap(NULL, im->map_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
		 (off_t)first);
	close(fd);
	if (p == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	im->map = p;
	return CUDA_SUCCESS;
}

static CUresult import(struct fc_ctx *ctx, const struct mem_handle *h, bool from_pool,
		       CUdeviceptr *ret_ptr)
{
	struct import *im = calloc(1, sizeof(*im));
	uint64_t va;
	CUresult r;

	if (!im)
		return CUDA_ERROR_OUT_OF_MEMORY;
	im->from = *h;
	im->refs = 1;
	im->from_pool = from_pool;
	r = map_import(im);
	if (r) {
		free(im);
		return r;
	}
	va = fc_region_take(im->map_size, FC_CHUNK, 0, false);
	im->a = va ? fc_mem_new(FC_MEM_IPC, ctx->dev, ctx, va + h->offset % 4096, h->size,
				im->map + h->offset % 4096) : NULL;
	if (!im->a) {
		fc_region_give(va);
		munmap(im->map, im->map_size);
		free(im);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	im->a->owner = im;
	im->next = imports;
	imports = im;
	fc_race_alloc(im->a, NULL);
	*ret_ptr = im->a->base;
	return CUDA_SUCCESS;
}

/* Called by fc_mem_drop. */
void fc_ipc_drop(struct fc_alloc *a)
{
	struct import *im = a->owner, **at = &imports;

	while (*at != im)
		at = &(*at)->next;
	*at = im->next;
	fc_region_give(a->base & ~4095ULL);
	munmap(im->map, im->map_size);
	free(im);
}

static struct import *find_import(const struct mem_handle *h)
{
	for (struct import *im = imports; im; im = im->next)
		if (im->from.pid == h->pid && im->from.inode == h->inode &&
		    im->from.offset == h->offset && im->from.size == h->size && !im->from_pool)
			return im;
	return NULL;
}

/* ---- entries ---- */

CUresult fc_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct fc_alloc *a = fc_alloc_find(dptr);
	struct mem_handle h;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!pHandle || !a || a->freed || a->phys || a->readable_by_host ||
	    (a->kind != FC_MEM_DEVICE && a->kind != FC_MEM_GLOBAL))
		return CUDA_ERROR_INVALID_VALUE;
	r = describe(a, &h);
	if (r)
		return r;
	memset(pHandle, 0, sizeof(*pHandle));
	memcpy(pHandle->reserved, &h, sizeof(h));
	return CUDA_SUCCESS;
}

CUresult fc_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct mem_handle h;
	struct import *im;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	memcpy(&h, handle.reserved, sizeof(h));
	if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || h.magic != MEM_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (h.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	im = find_import(&h);
	if (im) {
		im->refs++;
		*pdptr = im->a->base;
		return CUDA_SUCCESS;
	}
	return import(ctx, &h, false, pdptr);
}

CUresult fc_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct fc_alloc *a = fc_mem_is_base(dptr);
	struct import *im;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!a || a->kind != FC_MEM_IPC || fc_ipc_from_pool(a))
		return CUDA_ERROR_INVALID_VALUE;
	im = a->owner;
	if (im->refs > 1) {
		im->refs--;
		return CUDA_SUCCESS;
	}
	return fc_mem_free_waiting(a, "cuIpcCloseMemHandle");
}

/* ---- pools ---- */

struct pool_ticket {
	uint64_t magic;
	int32_t pid, device;
};

CUresult fc_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
					     CUmemAllocationHandleType handleType,
					     unsigned long long flags)
{
	struct pool_ticket t = { .magic = POOL_MAGIC, .pid = getpid() };
	struct fc_pool *p;
	CUresult r = fc_pool_get(pool, &p);
	int fd;

	if (r)
		return r;
	if (!handle_out || flags || !p->dev || p->imported ||
	    handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(p->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_INVALID_VALUE;
	t.device = p->dev->ordinal;
	fd = memfd_create("fakecuda pool", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (write(fd, &t, sizeof(t)) != sizeof(t)) {
		close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*(int *)handle_out = fd;
	return CUDA_SUCCESS;
}

/* @handle is the descriptor itself, not where it is. */
CUresult fc_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
					       CUmemAllocationHandleType handleType,
					       unsigned long long flags)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED };
	struct pool_ticket t;
	struct fc_pool *p;
	CUresult r;

	if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    pread((int)(intptr_t)handle, &t, sizeof(t), 0) != sizeof(t) || t.magic != POOL_MAGIC ||
	    t.device < 0 || t.device >= fc.n_devices)
		return CUDA_ERROR_INVALID_VALUE;
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = t.device;
	r = fc_pool_make(&fc.devices[t.device], &props, &p);
	if (r)
		return r;
	p->imported = true;
	*pool_out = p->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct fc_alloc *a = fc_mem_is_base(ptr);
	struct mem_handle h;
	CUresult r;

	if (!shareData_out || !a || a->kind != FC_MEM_POOL || !a->pool->dev ||
	    !(a->pool->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_INVALID_VALUE;
	r = describe(a, &h);
	if (r)
		return r;
	memset(shareData_out, 0, sizeof(*shareData_out));
	memcpy(shareData_out->reserved, &h, sizeof(h));
	return CUDA_SUCCESS;
}

CUresult fc_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
				   CUmemPoolPtrExportData *shareData)
{
	struct mem_handle h;
	struct fc_pool *p;
	struct fc_ctx *ctx;
	CUresult r = fc_pool_get(pool, &p);

	r = r ? r : fc_ctx_current(&ctx);
	if (r)
		return r;
	if (!ptr_out || !shareData || !p->imported)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&h, shareData->reserved, sizeof(h));
	if (h.magic != MEM_MAGIC || h.device != p->dev->ordinal)
		return CUDA_ERROR_INVALID_VALUE;
	return import(ctx, &h, true, ptr_out);
}

void fc_ipc_reset(void)
{
	while (imports)
		fc_mem_drop(imports->a);
}
