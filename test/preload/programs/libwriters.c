/*
 * libwriters.c - a library under the names of those that do RDMA, or of NCCL: what it asks for.
 * For test_writers.py; loaded by writers.c.
 */
#include <stddef.h>

#include <cuda.h>

extern CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes);
__attribute__((visibility("default"))) CUresult writers_ask(size_t bytes, CUdeviceptr *ret);

/* The call is not the last thing done: this library, not its caller, asks. */
CUresult writers_ask(size_t bytes, CUdeviceptr *ret)
{
	volatile CUresult result = cuMemAlloc_v2(ret, bytes);

	return result;
}
