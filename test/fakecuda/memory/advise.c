/*
 * advise.c - hints about where memory should be: advice, prefetch, discard. They move nothing here;
 * they check their range and take their place in the stream. Lock: fc.lock.
 */
#include <string.h>

#include "test/fakecuda/memory/memory.h"

/* Does [@ptr, @ptr + @count) lie within one allocation? Managed memory, or what a prefetch may
 * name as well: pools of managed memory are mapped alike. */
static bool managed(CUdeviceptr ptr, size_t count)
{
	struct fc_alloc *a = fc_alloc_find(ptr);

	return a && count && a->readable_by_host && a->kind != FC_MEM_HOST &&
	       ptr + count <= a->base + a->size;
}

static CUresult submit(const char *name, CUdeviceptr ptr, size_t count, bool write, CUstream h)
{
	struct fc_stream *s;
	struct fc_work *w;
	CUresult r = fc_stream_get(h, &s);

	if (r)
		return r;
	w = fc_work_new(sizeof(*w), FC_WORK_OTHER, name, s->ctx, 1000 + count / 32);
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = fc_work_touch(w, ptr, count, write) ? CUDA_ERROR_OUT_OF_MEMORY :
						  fc_submit(s, w, NULL);
	fc_work_put(w);
	return r;
}

static CUresult check_location(CUmemLocation location)
{
	struct fc_device *dev;

	if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return fc_device_get(location.id, &dev);
	return location.type >= CU_MEM_LOCATION_TYPE_HOST &&
	       location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ? CUDA_SUCCESS :
									 CUDA_ERROR_INVALID_VALUE;
}

static CUmemLocation location_of(CUdevice device)
{
	CUmemLocation l = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };

	if (device == CU_DEVICE_CPU)
		l.type = CU_MEM_LOCATION_TYPE_HOST;
	return l;
}

CUresult fc_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
				  unsigned int flags, CUstream hStream)
{
	CUresult r = check_location(location);

	if (r)
		return r;
	if (flags || !managed(devPtr, count))
		return CUDA_ERROR_INVALID_VALUE;
	return submit("cuMemPrefetchAsync", devPtr, count, false, hStream);
}

CUresult fc_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
			       CUstream hStream)
{
	return fc_cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

static CUresult check_batch(const CUdeviceptr *dptrs, const size_t *sizes, size_t count)
{
	if (!dptrs || !sizes || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (!managed(dptrs[i], sizes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult submit_batch(const char *name, const CUdeviceptr *dptrs, const size_t *sizes,
			     size_t count, bool write, CUstream h)
{
	CUresult r = check_batch(dptrs, sizes, count);

	for (size_t i = 0; i < count && !r; i++)
		r = submit(name, dptrs[i], sizes[i], write, h);
	return r;
}

static CUresult check_locations(const CUmemLocation *locs, const size_t *idxs, size_t n,
				size_t count)
{
	CUresult r = CUDA_SUCCESS;

	if (!locs || !idxs || !n || n > count || idxs[0])
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n && !r; i++)
		r = check_location(locs[i]);
	return r;
}

CUresult fc_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
				    CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
				    size_t numPrefetchLocs, unsigned long long flags,
				    CUstream hStream)
{
	CUresult r = check_locations(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count);

	if (r || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_batch("cuMemPrefetchBatchAsync", dptrs, sizes, count, false, hStream);
}

/* What is discarded may read as anything: a write, for whoever looks at the order. */
CUresult fc_cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
				   unsigned long long flags, CUstream hStream)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_batch("cuMemDiscardBatchAsync", dptrs, sizes, count, true, hStream);
}

CUresult fc_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
					      CUmemLocation *prefetchLocs,
					      size_t *prefetchLocIdxs, size_t numPrefetchLocs,
					      unsigned long long flags, CUstream hStream)
{
	CUresult r = check_locations(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count);

	if (r || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_batch("cuMemDiscardAndPrefetchBatchAsync", dptrs, sizes, count, true,
			    hStream);
}
