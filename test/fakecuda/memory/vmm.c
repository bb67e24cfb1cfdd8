/*
 * vmm.c - virtual memory management: handles of physical memory, reserved addresses, mappings.
 *
 * A handle lives while it has references or mappings. A mapping is an allocation record of its own;
 * the device reaches it only after cuMemSetAccess. Nothing here waits for the device, and nothing
 * is tied to a context. Handles that may be exported have a memfd of their own (share.c), as has
 * host memory, which is mapped where the program sees it once the host has access.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct handle {
	CUmemGenericAllocationHandle id;
	unsigned int refs, maps;
	struct fc_phys *phys;
	CUmemAllocationProp prop;
	struct handle *next;
};

struct mapping {		/* the owner of an FC_MEM_VMM allocation */
	struct handle *h;
	CUmemAccess_flags access[FC_MAX_DEVICES];
	bool host_mapped;
};

static struct handle *handles;

static bool on_host(const struct handle *h)
{
	return h->prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

static void account(const struct handle *h, int sign)
{
	enum fakecuda_kind kind = h->phys->imported ? FAKECUDA_IPC :
				  on_host(h) ? FAKECUDA_HOST : FAKECUDA_VMM;

	fc_account(h->phys->dev, kind, sign * (int64_t)h->phys->size, sign);
}

static struct handle *get(CUmemGenericAllocationHandle id)
{
	return fc_handle_get((void *)(uintptr_t)id, FC_H_VMM);
}

static CUresult make(struct fc_phys *phys, const CUmemAllocationProp *prop, struct handle **ret_h)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return CUDA_ERROR_OUT_OF_MEMORY;
	h->id = (uintptr_t)fc_handle_new(FC_H_VMM, h);
	if (!h->id) {
		free(h);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	h->refs = 1;
	h->phys = phys;
	h->prop = *prop;
	h->next = handles;
	handles = h;
	account(h, 1);
	*ret_h = h;
	return CUDA_SUCCESS;
}

static void drop_if_dead(struct handle *h)
{
	struct handle **at = &handles;

	if (h->refs || h->maps)
		return;
	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	account(h, -1);
	fc_phys_put(h->phys);
	free(h);
}

/* ---- handles ---- */

static CUresult check_prop(const CUmemAllocationProp *prop, struct fc_device **ret_dev)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	*ret_dev = NULL;
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return fc_device_get(prop->location.id, ret_dev);
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult fc_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct fc_device *dev;
	struct fc_phys *phys;
	struct handle *h;
	CUresult r = check_prop(prop, &dev);

	if (r)
		return r;
	if (!handle || !size || size % FC_CHUNK || flags)
		return CUDA_ERROR_INVALID_VALUE;
	r = prop->requestedHandleTypes || !dev ? fc_phys_shared(dev, size, &phys) :
						 fc_phys_new(dev, size, &phys);
	if (r)
		return r;
	r = make(phys, prop, &h);
	if (r)
		fc_phys_put(phys);
	else
		*handle = h->id;
	return r;
}

CUresult fc_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct handle *h = get(handle);

	if (!h || !h->refs)
		return CUDA_ERROR_INVALID_VALUE;
	if (--h->refs)
		return CUDA_SUCCESS;
	fc_handle_drop((void *)(uintptr_t)handle);
	h->id = 0;
	drop_if_dead(h);
	return CUDA_SUCCESS;
}

/* A handle whose last reference is gone gets a new name, as long as a mapping keeps it alive. */
CUresult fc_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct fc_alloc *a = fc_alloc_find((uint64_t)(uintptr_t)addr);
	struct handle *h;

	if (!handle || !a || a->kind != FC_MEM_VMM)
		return CUDA_ERROR_INVALID_VALUE;
	h = ((struct mapping *)a->owner)->h;
	if (!h->id)
		h->id = (uintptr_t)fc_handle_new(FC_H_VMM, h);
	if (!h->id)
		return CUDA_ERROR_OUT_OF_MEMORY;
	h->refs++;
	*handle = h->id;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						   CUmemGenericAllocationHandle handle)
{
	struct handle *h = get(handle);

	if (!h || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = h->prop;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					  CUmemAllocationGranularity_flags option)
{
	struct fc_device *dev;
	CUresult r = check_prop(prop, &dev);

	if (r)
		return r;
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
			     option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = FC_CHUNK;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
					 CUmemAllocationHandleType handleType,
					 unsigned long long flags)
{
	struct handle *h = get(handle);
	int fd;

	if (!shareableHandle || !h || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(h->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_INVALID_VALUE;
	fd = fc_phys_export(h->phys);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)shareableHandle = fd;
	return CUDA_SUCCESS;
}

/* Back in the process that made it, a descriptor is one more reference to the same memory. */
CUresult fc_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					   CUmemAllocationHandleType shHandleType)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };
	struct fc_phys *phys;
	struct handle *h;
	CUresult r;

	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	for (h = handles; h; h = h->next)
		if (h->id && fc_phys_is_fd(h->phys, (int)(intptr_t)osHandle)) {
			h->refs++;
			*handle = h->id;
			return CUDA_SUCCESS;
		}
	r = fc_phys_import((int)(intptr_t)osHandle, &phys);
	if (r)
		return r;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.type = phys->dev ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST;
	prop.location.id = phys->dev ? phys->dev->ordinal : 0;
	r = make(phys, &prop, &h);
	if (r)
		fc_phys_put(phys);
	else
		*handle = h->id;
	return r;
}

/* ---- addresses ---- */

CUresult fc_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				unsigned long long flags)
{
	uint64_t va;

	if (!ptr || !size || size % FC_CHUNK || (alignment & (alignment - 1)) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	va = fc_region_take(size, alignment > FC_CHUNK ? alignment : FC_CHUNK, addr, false);
	if (!va)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ptr = va;
	return CUDA_SUCCESS;
}

/* Is a range free of mappings? */
static bool empty(uint64_t va, size_t size)
{
	struct fc_alloc *a = fc_alloc_next(va);

	return !fc_alloc_find(va) && (!a || a->base >= va + size);
}

CUresult fc_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	uint64_t base;
	size_t whole;

	if (!fc_region_find(ptr, &base, &whole) || base != ptr || whole != size ||
	    !empty(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	fc_region_give(ptr);
	return CUDA_SUCCESS;
}

/* ---- mappings ---- */

CUresult fc_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
		     CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct handle *h = get(handle);
	struct mapping *m;
	struct fc_alloc *a;
	uint64_t base;
	size_t whole;

	if (!h || !size || size % FC_CHUNK || ptr % FC_CHUNK || offset % FC_CHUNK || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || size != h->phys->size)
		return CUDA_ERROR_NOT_SUPPORTED;	/* whole handles only */
	if (!fc_region_find(ptr, &base, &whole) || ptr + size > base + whole || !empty(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	a = m ? fc_mem_new(FC_MEM_VMM, h->phys->dev, NULL, ptr, size, NULL) : NULL;
	if (!a) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->h = h;
	h->maps++;
	a->owner = m;
	fc_race_alloc(a, NULL);
	return CUDA_SUCCESS;
}

CUmemAllocationHandleType fc_vmm_handle_types(const struct fc_alloc *a)
{
	return ((const struct mapping *)a->owner)->h->prop.requestedHandleTypes;
}

/* Called by fc_mem_drop. */
void fc_vmm_mapping_drop(struct fc_alloc *a)
{
	struct mapping *m = a->owner;

	if (m->host_mapped)
		mmap((void *)(uintptr_t)a->base, a->size, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	m->h->maps--;
	drop_if_dead(m->h);
	free(m);
}

/* Do whole mappings, side by side, make up exactly this range? */
static bool covered(uint64_t ptr, size_t size)
{
	uint64_t end = ptr + size;

	while (ptr < end) {
		struct fc_alloc *a = fc_alloc_find(ptr);

		if (!a || a->kind != FC_MEM_VMM || a->base != ptr || a->size > end - ptr)
			return false;
		ptr += a->size;
	}
	return size > 0;
}

/* Does no mapping lie across an end of the range? Holes in it do not matter. */
static bool whole_mappings(uint64_t ptr, size_t size)
{
	struct fc_alloc *first = fc_alloc_find(ptr), *last = fc_alloc_find(ptr + size - 1);

	return (!first || first->base == ptr) && (!last || last->base + last->size == ptr + size);
}

CUresult fc_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	uint64_t base;
	size_t whole;

	if (!size || size % FC_CHUNK || ptr % FC_CHUNK || !fc_region_find(ptr, &base, &whole) ||
	    ptr + size > base + whole || !whole_mappings(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	fc_race_unmap(ptr, size);
	for (struct fc_alloc *a = fc_alloc_next(ptr); a && a->base < ptr + size;
	     a = fc_alloc_next(ptr)) {
		if (a->kind != FC_MEM_VMM)
			return CUDA_ERROR_INVALID_VALUE;
		fc_race_free(a, NULL);
		fc_mem_drop(a);
	}
	return CUDA_SUCCESS;
}

static CUresult check_access(const CUmemAccessDesc *desc, size_t count)
{
	struct fc_device *dev;

	for (size_t i = 0; i < count; i++) {
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
			CUresult r = fc_device_get(desc[i].location.id, &dev);

			if (r)
				return r;
		} else if (desc[i].location.type < CU_MEM_LOCATION_TYPE_HOST ||
			   desc[i].location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult set_access(struct fc_alloc *a, const CUmemAccessDesc *desc)
{
	struct mapping *m = a->owner;
	bool any = false;

	if (desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
		m->access[desc->location.id] = desc->flags;
	} else if (!m->host_mapped) {
		if (!on_host(m->h))
			return CUDA_ERROR_NOT_SUPPORTED;
		if (fc_phys_map_at(m->h->phys, a->base, a->size))
			return CUDA_ERROR_OUT_OF_MEMORY;
		m->host_mapped = true;
		a->readable_by_host = true;
	}
	for (int i = 0; i < fc.n_devices; i++)
		any = any || m->access[i] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	a->host = any || m->host_mapped ? m->h->phys->host : NULL;
	return CUDA_SUCCESS;
}

CUresult fc_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult r;

	if (!desc || !count || !covered(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	r = check_access(desc, count);
	for (uint64_t at = ptr; !r && at < ptr + size;) {
		struct fc_alloc *a = fc_alloc_find(at);

		for (size_t i = 0; i < count && !r; i++)
			r = set_access(a, &desc[i]);
		at += a->size;
	}
	return r;
}

CUresult fc_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
			   CUdeviceptr ptr)
{
	struct fc_alloc *a = fc_alloc_find(ptr);
	struct fc_device *dev;
	struct mapping *m;
	CUresult r;

	if (!flags || !location || !a || a->kind != FC_MEM_VMM)
		return CUDA_ERROR_INVALID_VALUE;
	m = a->owner;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
		*flags = m->host_mapped ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
		return CUDA_SUCCESS;
	}
	r = fc_device_get(location->id, &dev);
	if (!r)
		*flags = m->access[dev->ordinal];
	return r;
}

void fc_vmm_reset(void)
{
	for (struct fc_alloc *a = fc_alloc_next(0), *next; a; a = next) {
		next = fc_alloc_next(a->base + 1);
		if (a->kind == FC_MEM_VMM)
			fc_mem_drop(a);
	}
	while (handles) {
		handles->refs = 0;
		drop_if_dead(handles);
	}
}
