/*
 * occupancy.c - how many blocks fit a multiprocessor of the fake H200. Lock: fc.lock.
 */
#include "test/fakecuda/state.h"

#define THREADS 2048
#define BLOCKS 32
#define SHARED 233472ul
#define RESERVED_SHARED 1024ul
#define MULTIPROCESSORS 132

static int blocks(int block_size, size_t shared)
{
	int n = THREADS / ((block_size + 31) / 32 * 32);
	size_t by_shared = SHARED / (shared + RESERVED_SHARED);

	if (n > BLOCKS)
		n = BLOCKS;
	return (size_t)n > by_shared ? (int)by_shared : n;
}

CUresult fc_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(func, &k);

	if (r)
		return r;
	if (!numBlocks || blockSize <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	*numBlocks = blockSize > 1024 ? 0 : blocks(blockSize, dynamicSMemSize);
	return CUDA_SUCCESS;
}

CUresult fc_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func,
							int blockSize, size_t dynamicSMemSize)
{
	return fc_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
								       dynamicSMemSize, 0);
}

CUresult fc_cuOccupancyMaxPotentialBlockSizeWithFlags(
	int *minGridSize, int *blockSize, CUfunction func,
	CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
	unsigned int flags)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(func, &k);

	if (r)
		return r;
	if (!minGridSize || !blockSize || blockSizeLimit < 0 ||
	    flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	*blockSize = blockSizeLimit && blockSizeLimit < 1024 ? blockSizeLimit : 1024;
	if (blockSizeToDynamicSMemSize)
		dynamicSMemSize = blockSizeToDynamicSMemSize(*blockSize);
	*minGridSize = MULTIPROCESSORS * blocks(*blockSize, dynamicSMemSize);
	return CUDA_SUCCESS;
}

CUresult fc_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
					     CUoccupancyB2DSize blockSizeToDynamicSMemSize,
					     size_t dynamicSMemSize, int blockSizeLimit)
{
	return fc_cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func,
							    blockSizeToDynamicSMemSize,
							    dynamicSMemSize, blockSizeLimit, 0);
}

CUresult fc_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
						    int numBlocks, int blockSize)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(func, &k);

	if (r)
		return r;
	if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*dynamicSmemSize = SHARED / (size_t)numBlocks - RESERVED_SHARED;
	return CUDA_SUCCESS;
}

CUresult fc_cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
					       const CUlaunchConfig *config)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(func, &k);

	if (r)
		return r;
	if (!clusterSize || !config)
		return CUDA_ERROR_INVALID_VALUE;
	*clusterSize = 8;
	return CUDA_SUCCESS;
}

CUresult fc_cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
					 const CUlaunchConfig *config)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(func, &k);

	if (r)
		return r;
	if (!numClusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	*numClusters = MULTIPROCESSORS / 8;
	return CUDA_SUCCESS;
}
