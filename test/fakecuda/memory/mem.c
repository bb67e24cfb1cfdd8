/*
 * mem.c - allocations: the record of each, and cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged,
 * cuMemFree.
 *
 * cuMemAlloc never waits for the device. cuMemFree of its memory waits for all work of the context
 * the memory belongs to, in whatever stream; of stream-ordered memory it does not. Lock: fc.lock,
 * given up while waiting: a->freed then keeps others from freeing it too.
 */
#include "test/fakecuda/memory/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "test/fakecuda/context.h"
#include "test/fakecuda/memory/ipc.h"
#include "test/fakecuda/memory/pool.h"

static const struct {
	enum fakecuda_kind kind;
	bool accounted;
} accounts[] = {
	[FC_MEM_DEVICE] = { FAKECUDA_DEVICE, true },
	[FC_MEM_MANAGED] = { FAKECUDA_MANAGED, true },
	[FC_MEM_HOST] = { FAKECUDA_HOST, true },
	[FC_MEM_IPC] = { FAKECUDA_IPC, true },
	[FC_MEM_EXTERNAL] = { 0, false },
	[FC_MEM_ARRAY] = { 0, false },	/* array.c counts those */
};

static void account(const struct fc_alloc *a, int sign)
{
	if (a->kind == FC_MEM_POOL)
		fc_account(a->dev, fc_pool_kind(a->pool), sign * (int64_t)a->size, sign);
	else if (accounts[a->kind].accounted)
		fc_account(a->dev, accounts[a->kind].kind, sign * (int64_t)a->size, sign);
}

struct fc_alloc *fc_mem_new(enum fc_alloc_kind kind, struct fc_device *dev, struct fc_ctx *ctx,
			    uint64_t base, size_t size, uint8_t *host)
{
	struct fc_alloc *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->kind = kind;
	a->dev = dev;
	a->ctx = ctx ? fc_ctx_ref(ctx) : NULL;
	a->base = base;
	a->size = size;
	a->reserved = size;
	a->host = host;
	fc_alloc_add(a);
	account(a, 1);
	return a;
}

/* The memory behind @a back to where it came from. */
static void give_back(struct fc_alloc *a)
{
	switch (a->kind) {
	case FC_MEM_MANAGED:
	case FC_MEM_HOST:
		munmap((void *)(uintptr_t)a->base, a->reserved);
		break;
	case FC_MEM_POOL:
		fc_pool_block_drop(a);
		break;
	case FC_MEM_IPC:
		fc_ipc_drop(a);
		break;
	case FC_MEM_VMM:
		fc_vmm_mapping_drop(a);
		break;
	case FC_MEM_EXTERNAL:
		fc_external_drop(a);
		break;
	case FC_MEM_DEVICE:
	case FC_MEM_GLOBAL:
	case FC_MEM_ARRAY:
		if (a->readable_by_host)	/* a module's managed variable */
			munmap((void *)(uintptr_t)a->base, a->reserved);
		else if (a->phys)
			fc_region_give(a->base);	/* below 4 GiB */
		else
			fc_arena_free(a->dev, a->base, a->size);
		break;
	default:
		break;
	}
	fc_phys_put(a->phys);
}

static void unlist(struct fc_alloc *a)
{
	fc_alloc_remove(a);
	account(a, -1);
}

static void forget(struct fc_alloc *a)
{
	fc_ctx_put(a->ctx);
	free(a);
}

void fc_mem_drop(struct fc_alloc *a)
{
	unlist(a);
	give_back(a);
	forget(a);
}

struct fc_alloc *fc_mem_is_base(uint64_t ptr)
{
	struct fc_alloc *a = fc_alloc_find(ptr);

	return a && a->base == ptr && !a->freed ? a : NULL;
}

/* Memory that a context takes with it. */
static bool dies_with(const struct fc_alloc *a, const struct fc_ctx *ctx)
{
	return a->ctx && a->ctx->base == ctx && a->kind != FC_MEM_POOL && a->kind != FC_MEM_GRAPH &&
	       a->kind != FC_MEM_VMM;
}

void fc_mem_ctx_ended(struct fc_ctx *ctx)
{
	struct fc_alloc *next;

	for (struct fc_alloc *a = fc_alloc_next(0); a; a = next) {
		next = fc_alloc_next(a->base + 1);
		if (dies_with(a, ctx)) {
			fc_race_free(a, NULL);
			fc_mem_drop(a);
		}
	}
}

/* ---- entries ---- */

static CUresult begin(struct fc_ctx **ret_ctx)
{
	CUresult r = fc_ctx_current(ret_ctx);

	return r ? r : fc_capture_check(FC_UNSAFE_CALL, (*ret_ctx)->base, NULL);
}

static CUresult alloc(struct fc_ctx *ctx, size_t size, CUdeviceptr *ret_ptr)
{
	struct fc_alloc *a;
	uint64_t ptr;
	uint8_t *host;
	CUresult r = fc_arena_alloc(ctx->dev, ctx->base, size, &ptr, &host);

	if (r)
		return r;
	a = fc_mem_new(FC_MEM_DEVICE, ctx->dev, ctx, ptr, size, host);
	if (!a) {
		fc_arena_free(ctx->dev, ptr, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fc_race_alloc(a, NULL);
	*ret_ptr = ptr;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct fc_ctx *ctx;
	CUresult r = begin(&ctx);

	if (r)
		return r;
	if (!dptr || !bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc(ctx, bytesize, dptr);
}

/* The first ABI has 32 bits for an address: memory of its own behind one below 4 GiB. */
static CUresult alloc_low(struct fc_ctx *ctx, size_t size, CUdeviceptr_v1 *ret_ptr)
{
	struct fc_phys *phys;
	struct fc_alloc *a;
	uint64_t va;
	CUresult r = fc_phys_new(ctx->dev, size, &phys);

	if (r)
		return r;
	va = fc_region_take(phys->size, FC_CHUNK, 0, true);
	a = va ? fc_mem_new(FC_MEM_DEVICE, ctx->dev, ctx, va, size, phys->host) : NULL;
	if (!a) {
		fc_region_give(va);
		fc_phys_put(phys);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->phys = phys;
	fc_race_alloc(a, NULL);
	*ret_ptr = (CUdeviceptr_v1)va;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	struct fc_ctx *ctx;
	CUresult r = begin(&ctx);

	if (r)
		return r;
	if (!dptr || !bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc_low(ctx, bytesize, dptr);
}

/* 0: the parameters are no good. */
static size_t pitch_of(size_t width, size_t height, unsigned int element)
{
	if (!width || !height || (element != 4 && element != 8 && element != 16) ||
	    width > SIZE_MAX - 511)
		return 0;
	width = (width + 511) / 512 * 512;
	return width <= SIZE_MAX / height ? width : 0;
}

CUresult fc_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
			       size_t Height, unsigned int ElementSizeBytes)
{
	size_t pitch = pitch_of(WidthInBytes, Height, ElementSizeBytes);
	struct fc_ctx *ctx;
	CUresult r = begin(&ctx);

	if (r)
		return r;
	if (!dptr || !pPitch || !pitch)
		return CUDA_ERROR_INVALID_VALUE;
	r = alloc(ctx, pitch * Height, dptr);
	if (!r)
		*pPitch = pitch;
	return r;
}

CUresult fc_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			    unsigned int Height, unsigned int ElementSizeBytes)
{
	size_t pitch = pitch_of(WidthInBytes, Height, ElementSizeBytes);
	struct fc_ctx *ctx;
	CUresult r = begin(&ctx);

	if (r)
		return r;
	if (!dptr || !pPitch || !pitch)
		return CUDA_ERROR_INVALID_VALUE;
	r = alloc_low(ctx, pitch * Height, dptr);
	if (!r)
		*pPitch = (unsigned int)pitch;
	return r;
}

CUresult fc_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct fc_ctx *ctx;
	struct fc_alloc *a;
	size_t mapped = (bytesize + 4095) & ~(size_t)4095;
	void *p;
	CUresult r = begin(&ctx);

	if (r)
		return r;
	if (!dptr || !bytesize || mapped < bytesize ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	p = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a = fc_mem_new(FC_MEM_MANAGED, ctx->dev, ctx, (uint64_t)(uintptr_t)p, bytesize, p);
	if (!a) {
		munmap(p, mapped);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->reserved = mapped;
	a->flags = flags;
	a->readable_by_host = true;
	fc_race_alloc(a, NULL);
	*dptr = a->base;
	return CUDA_SUCCESS;
}

CUresult fc_mem_free_waiting(struct fc_alloc *a, const char *why)
{
	struct fc_ctx *ctx = fc_ctx_ref(a->ctx->base);
	uint64_t base = a->base, id = a->id;
	CUresult r;

	a->freed = true;
	r = fc_wait_ctx(ctx, why);
	r = r ? r : ctx->sticky;
	a = fc_alloc_find(base);
	if (!a || a->id != id) {
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;	/* and took it along, meanwhile */
	} else if (r) {
		a->freed = false;
	} else {
		fc_race_free(a, NULL);
		fc_mem_drop(a);
	}
	fc_ctx_put(ctx);
	return r;
}

/* Needs no context of its own: the pointer says whose it is. */
CUresult fc_cuMemFree_v2(CUdeviceptr dptr)
{
	struct fc_alloc *a = fc_mem_is_base(dptr);
	struct fc_ctx *ctx;
	CUresult r = begin(&ctx);

	if (r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		r = CUDA_SUCCESS;
	if (r || !dptr)
		return r;
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	switch (a->kind) {
	case FC_MEM_DEVICE:
	case FC_MEM_MANAGED:
	case FC_MEM_EXTERNAL:
		return fc_mem_free_waiting(a, "cuMemFree");
	case FC_MEM_IPC:
		if (!fc_ipc_from_pool(a))
			return CUDA_ERROR_INVALID_VALUE;
		/* fall through */
	case FC_MEM_POOL:
		fc_race_free(a, NULL);
		fc_mem_drop(a);
		return CUDA_SUCCESS;
	case FC_MEM_GRAPH:
		return fc_graph_free(a, NULL);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- cuMemFreeAsync of memory that is not stream-ordered ---- */

struct free_work {
	struct fc_work work;
	struct fc_alloc *a;
	bool given_back;
};

static CUresult do_free(struct fc_work *w, struct fc_op *op)
{
	struct free_work *f = (struct free_work *)w;

	(void)op;
	give_back(f->a);
	f->given_back = true;
	return CUDA_SUCCESS;
}

/* Also without do_free, in a context that a fault has poisoned. */
static void release_free(struct fc_work *w)
{
	struct free_work *f = (struct free_work *)w;

	if (f->a && !f->given_back)
		give_back(f->a);
	if (f->a)
		forget(f->a);
	free(f);
}

/* For the program it is gone at the call; its memory goes when the stream comes to it. */
CUresult fc_mem_free_async(struct fc_alloc *a, struct fc_stream *s)
{
	struct free_work *f;
	struct fc_op *op;
	CUresult r;

	f = (struct free_work *)fc_work_new(sizeof(*f), FC_WORK_FREE, "cuMemFreeAsync", s->ctx, 0);
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->work.effect = do_free;
	f->work.release = release_free;
	f->work.one_shot = true;
	f->a = a;
	r = fc_submit(s, &f->work, &op);
	if (r) {
		f->a = NULL;
	} else {
		unlist(a);
		fc_race_free(a, op);
		fc_op_put(op);
	}
	fc_work_put(&f->work);
	return r;
}
