/*
 * copy3d.c - the entries for copies of boxes, and to and from arrays. Lock: fc.lock.
 */
#include "test/fakecuda/memory/copy.h"

/* The descriptors differ in which fields they have and how wide; their names are the same. */
#define COMMON(p, c) do { \
	(p).srcXInBytes = (c)->srcXInBytes; \
	(p).srcY = (c)->srcY; \
	(p).srcMemoryType = (c)->srcMemoryType; \
	(p).srcHost = (c)->srcHost; \
	(p).srcDevice = (c)->srcDevice; \
	(p).srcArray = (c)->srcArray; \
	(p).srcPitch = (c)->srcPitch; \
	(p).dstXInBytes = (c)->dstXInBytes; \
	(p).dstY = (c)->dstY; \
	(p).dstMemoryType = (c)->dstMemoryType; \
	(p).dstHost = (c)->dstHost; \
	(p).dstDevice = (c)->dstDevice; \
	(p).dstArray = (c)->dstArray; \
	(p).dstPitch = (c)->dstPitch; \
	(p).WidthInBytes = (c)->WidthInBytes; \
	(p).Height = (c)->Height; \
} while (0)

#define LAYERS(p, c) do { \
	(p).srcZ = (c)->srcZ; \
	(p).srcHeight = (c)->srcHeight; \
	(p).dstZ = (c)->dstZ; \
	(p).dstHeight = (c)->dstHeight; \
	(p).Depth = (c)->Depth; \
} while (0)

static CUresult copy_2d(const char *name, const CUDA_MEMCPY2D *c, CUstream h, bool sync)
{
	CUDA_MEMCPY3D_PEER_v1 p = { .Depth = 1 };

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	COMMON(p, c);
	return fc_copy_submit(name, &p, h, sync);
}

static CUresult copy_2d_v1(const char *name, const CUDA_MEMCPY2D_v1 *c, CUstream h, bool sync)
{
	CUDA_MEMCPY3D_PEER_v1 p = { .Depth = 1 };

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	COMMON(p, c);
	return fc_copy_submit(name, &p, h, sync);
}

static CUresult copy_3d(const char *name, const CUDA_MEMCPY3D *c, CUstream h, bool sync)
{
	CUDA_MEMCPY3D_PEER_v1 p = { 0 };

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	COMMON(p, c);
	LAYERS(p, c);
	return fc_copy_submit(name, &p, h, sync);
}

static CUresult copy_3d_v1(const char *name, const CUDA_MEMCPY3D_v1 *c, CUstream h, bool sync)
{
	CUDA_MEMCPY3D_PEER_v1 p = { 0 };

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	COMMON(p, c);
	LAYERS(p, c);
	return fc_copy_submit(name, &p, h, sync);
}

CUresult fc_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy_2d("cuMemcpy2D", pCopy, NULL, true);
}

CUresult fc_cuMemcpy2D(const CUDA_MEMCPY2D_v1 *pCopy)
{
	return copy_2d_v1("cuMemcpy2D", pCopy, NULL, true);
}

CUresult fc_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy_2d("cuMemcpy2DUnaligned", pCopy, NULL, true);
}

CUresult fc_cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *pCopy)
{
	return copy_2d_v1("cuMemcpy2DUnaligned", pCopy, NULL, true);
}

CUresult fc_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return copy_2d("cuMemcpy2DAsync", pCopy, hStream, false);
}

CUresult fc_cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *pCopy, CUstream hStream)
{
	return copy_2d_v1("cuMemcpy2DAsync", pCopy, hStream, false);
}

CUresult fc_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
	return copy_3d("cuMemcpy3D", pCopy, NULL, true);
}

CUresult fc_cuMemcpy3D(const CUDA_MEMCPY3D_v1 *pCopy)
{
	return copy_3d_v1("cuMemcpy3D", pCopy, NULL, true);
}

CUresult fc_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return copy_3d("cuMemcpy3DAsync", pCopy, hStream, false);
}

CUresult fc_cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *pCopy, CUstream hStream)
{
	return copy_3d_v1("cuMemcpy3DAsync", pCopy, hStream, false);
}

CUresult fc_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
	return pCopy ? fc_copy_submit("cuMemcpy3DPeer", pCopy, NULL, true) :
		       CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
	return pCopy ? fc_copy_submit("cuMemcpy3DPeerAsync", pCopy, hStream, false) :
		       CUDA_ERROR_INVALID_VALUE;
}

/* ---- batches of boxes ---- */

/* Widths in a batch are elements of an array, bytes of a pointer; this driver takes bytes. */
static void set_src(CUDA_MEMCPY3D_PEER_v1 *p, const CUmemcpy3DOperand *o)
{
	if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		p->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		p->srcArray = o->op.array.array;
		p->srcXInBytes = o->op.array.offset.x;
		p->srcY = o->op.array.offset.y;
		p->srcZ = o->op.array.offset.z;
	} else {
		p->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
		p->srcDevice = o->op.ptr.ptr;
		p->srcPitch = o->op.ptr.rowLength;
		p->srcHeight = o->op.ptr.layerHeight;
	}
}

static void set_dst(CUDA_MEMCPY3D_PEER_v1 *p, const CUmemcpy3DOperand *o)
{
	if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		p->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		p->dstArray = o->op.array.array;
		p->dstXInBytes = o->op.array.offset.x;
		p->dstY = o->op.array.offset.y;
		p->dstZ = o->op.array.offset.z;
	} else {
		p->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
		p->dstDevice = o->op.ptr.ptr;
		p->dstPitch = o->op.ptr.rowLength;
		p->dstHeight = o->op.ptr.layerHeight;
	}
}

CUresult fc_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
				 unsigned long long flags, CUstream hStream)
{
	CUresult r = CUDA_SUCCESS;

	if (!numOps || !opList || flags || !hStream || hStream == CU_STREAM_LEGACY)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r && failIdx)
		*failIdx = SIZE_MAX;
	for (size_t i = 0; i < numOps && !r; i++) {
		CUDA_MEMCPY3D_PEER_v1 p = {
			.WidthInBytes = opList[i].extent.width,
			.Height = opList[i].extent.height,
			.Depth = opList[i].extent.depth,
		};

		set_src(&p, &opList[i].src);
		set_dst(&p, &opList[i].dst);
		r = fc_copy_submit("cuMemcpy3DBatchAsync", &p, hStream, false);
		if (r && failIdx)
			*failIdx = i;
	}
	return r;
}

CUresult fc_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
				    unsigned long long flags, CUstream hStream)
{
	return fc_cuMemcpy3DBatchAsync(numOps, opList, NULL, flags, hStream);
}

/* ---- one-dimensional arrays ---- */

static CUresult with_array(const char *name, CUarray dst_array, uint64_t dst, CUarray src_array,
			   uint64_t src, bool host, size_t n, CUstream h, bool sync)
{
	CUmemorytype other = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	CUDA_MEMCPY3D_PEER_v1 p = fc_copy_linear(dst_array ? CU_MEMORYTYPE_ARRAY : other, dst,
						 src_array ? CU_MEMORYTYPE_ARRAY : other, src, n);

	if (dst_array) {
		p.dstArray = dst_array;
		p.dstXInBytes = dst;
	}
	if (src_array) {
		p.srcArray = src_array;
		p.srcXInBytes = src;
	}
	if (n && ((!dst_array && !dst) || (!src_array && !src)))
		return CUDA_ERROR_INVALID_VALUE;
	return fc_copy_submit(name, &p, h, sync);
}

#define ADDRESS(p) ((uint64_t)(uintptr_t)(p))

CUresult fc_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
			    size_t ByteCount)
{
	return with_array("cuMemcpyDtoA", dstArray, dstOffset, NULL, srcDevice, false, ByteCount,
			  NULL, true);
}

CUresult fc_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
			    size_t ByteCount)
{
	return with_array("cuMemcpyAtoD", NULL, dstDevice, srcArray, srcOffset, false, ByteCount,
			  NULL, true);
}

CUresult fc_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
			    size_t ByteCount)
{
	return with_array("cuMemcpyHtoA", dstArray, dstOffset, NULL, ADDRESS(srcHost), true,
			  ByteCount, NULL, true);
}

CUresult fc_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return with_array("cuMemcpyAtoH", NULL, ADDRESS(dstHost), srcArray, srcOffset, true,
			  ByteCount, NULL, true);
}

CUresult fc_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
			    size_t ByteCount)
{
	return with_array("cuMemcpyAtoA", dstArray, dstOffset, srcArray, srcOffset, false,
			  ByteCount, NULL, true);
}

CUresult fc_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
				 size_t ByteCount, CUstream hStream)
{
	return with_array("cuMemcpyHtoAAsync", dstArray, dstOffset, NULL, ADDRESS(srcHost), true,
			  ByteCount, hStream, false);
}

CUresult fc_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
				 size_t ByteCount, CUstream hStream)
{
	return with_array("cuMemcpyAtoHAsync", NULL, ADDRESS(dstHost), srcArray, srcOffset, true,
			  ByteCount, hStream, false);
}

/* ---- the first ABI ---- */

CUresult fc_cuMemcpyDtoA(CUarray dstArray, unsigned int dstOffset, CUdeviceptr_v1 srcDevice,
			 unsigned int ByteCount)
{
	return fc_cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult fc_cuMemcpyAtoD(CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned int srcOffset,
			 unsigned int ByteCount)
{
	return fc_cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult fc_cuMemcpyHtoA(CUarray dstArray, unsigned int dstOffset, const void *srcHost,
			 unsigned int ByteCount)
{
	return fc_cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
}

CUresult fc_cuMemcpyAtoH(void *dstHost, CUarray srcArray, unsigned int srcOffset,
			 unsigned int ByteCount)
{
	return fc_cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
}

CUresult fc_cuMemcpyAtoA(CUarray dstArray, unsigned int dstOffset, CUarray srcArray,
			 unsigned int srcOffset, unsigned int ByteCount)
{
	return fc_cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}

CUresult fc_cuMemcpyHtoAAsync(CUarray dstArray, unsigned int dstOffset, const void *srcHost,
			      unsigned int ByteCount, CUstream hStream)
{
	return fc_cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult fc_cuMemcpyAtoHAsync(void *dstHost, CUarray srcArray, unsigned int srcOffset,
			      unsigned int ByteCount, CUstream hStream)
{
	return fc_cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
}
