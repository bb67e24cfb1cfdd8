/*
 * copyapi.c - the entries for copies of bytes in a row. Lock: fc.lock.
 */
#include "test/fakecuda/memory/copy.h"

#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED
#define ADDRESS(p) ((uint64_t)(uintptr_t)(p))

static CUresult linear(const char *name, CUmemorytype dst_type, uint64_t dst,
		       CUmemorytype src_type, uint64_t src, size_t n, CUstream h, bool sync)
{
	CUDA_MEMCPY3D_PEER_v1 p = fc_copy_linear(dst_type, dst, src_type, src, n);

	if (n && (!dst || !src))
		return CUDA_ERROR_INVALID_VALUE;
	return fc_copy_submit(name, &p, h, sync);
}

CUresult fc_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return linear("cuMemcpy", UNIFIED, dst, UNIFIED, src, ByteCount, NULL, true);
}

CUresult fc_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return linear("cuMemcpyAsync", UNIFIED, dst, UNIFIED, src, ByteCount, hStream, false);
}

CUresult fc_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return linear("cuMemcpyHtoD", DEVICE, dstDevice, HOST, ADDRESS(srcHost), ByteCount, NULL,
		      true);
}

CUresult fc_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
				 CUstream hStream)
{
	return linear("cuMemcpyHtoDAsync", DEVICE, dstDevice, HOST, ADDRESS(srcHost), ByteCount,
		      hStream, false);
}

CUresult fc_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return linear("cuMemcpyDtoH", HOST, ADDRESS(dstHost), DEVICE, srcDevice, ByteCount, NULL,
		      true);
}

CUresult fc_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
				 CUstream hStream)
{
	return linear("cuMemcpyDtoHAsync", HOST, ADDRESS(dstHost), DEVICE, srcDevice, ByteCount,
		      hStream, false);
}

CUresult fc_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return linear("cuMemcpyDtoD", DEVICE, dstDevice, DEVICE, srcDevice, ByteCount, NULL, true);
}

CUresult fc_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
				 CUstream hStream)
{
	return linear("cuMemcpyDtoDAsync", DEVICE, dstDevice, DEVICE, srcDevice, ByteCount, hStream,
		      false);
}

static CUresult peer(const char *name, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
		     CUcontext src_ctx, size_t n, CUstream h, bool sync)
{
	struct fc_ctx *ctx;
	CUresult r = dst_ctx ? fc_ctx_get(dst_ctx, &ctx) : CUDA_SUCCESS;

	r = r || !src_ctx ? r : fc_ctx_get(src_ctx, &ctx);
	return r ? r : linear(name, UNIFIED, dst, UNIFIED, src, n, h, sync);
}

CUresult fc_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
			 CUcontext srcContext, size_t ByteCount)
{
	return peer("cuMemcpyPeer", dstDevice, dstContext, srcDevice, srcContext, ByteCount, NULL,
		    true);
}

CUresult fc_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
			      CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	return peer("cuMemcpyPeerAsync", dstDevice, dstContext, srcDevice, srcContext, ByteCount,
		    hStream, false);
}

/* ---- the first ABI ---- */

CUresult fc_cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount)
{
	return fc_cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
}

CUresult fc_cuMemcpyHtoDAsync(CUdeviceptr_v1 dstDevice, const void *srcHost,
			      unsigned int ByteCount, CUstream hStream)
{
	return fc_cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

CUresult fc_cuMemcpyDtoH(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount)
{
	return fc_cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
}

CUresult fc_cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
			      CUstream hStream)
{
	return fc_cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

CUresult fc_cuMemcpyDtoD(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
			 unsigned int ByteCount)
{
	return fc_cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

CUresult fc_cuMemcpyDtoDAsync(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
			      unsigned int ByteCount, CUstream hStream)
{
	return fc_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

/* ---- batches ---- */

static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
		      CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
		      size_t *failIdx, CUstream hStream)
{
	CUresult r = CUDA_SUCCESS;

	if (!dsts || !srcs || !sizes || !count || !attrs || !attrsIdxs || !numAttrs ||
	    numAttrs > count || attrsIdxs[0] || !hStream || hStream == CU_STREAM_LEGACY)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r && failIdx)
		*failIdx = SIZE_MAX;
	for (size_t i = 0; i < count && !r; i++) {
		r = linear("cuMemcpyBatchAsync", UNIFIED, dsts[i], UNIFIED, srcs[i], sizes[i],
			   hStream, false);
		if (r && failIdx)
			*failIdx = i;
	}
	return r;
}

CUresult fc_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
			       size_t *failIdx, CUstream hStream)
{
	return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

CUresult fc_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
				  size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
				  size_t numAttrs, CUstream hStream)
{
	return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}
