/* pools.h - conformance of memory in stream order: pools, their attributes, reuse. */
#ifndef TEST_CONFORMANCE_POOLS_H
#define TEST_CONFORMANCE_POOLS_H

#include "test/conformance/conf.h"

static uint64_t pool_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
	uint64_t value = 0;

	cudaMemPoolGetAttribute(pool, attribute, &value);
	return value;
}

/* The four counters in one line. */
static void pool_counters(const char *what, cudaMemPool_t pool)
{
	conf_print(what, "used %llu, high %llu; reserved %llu, high %llu",
		   (unsigned long long)pool_attribute(pool, cudaMemPoolAttrUsedMemCurrent),
		   (unsigned long long)pool_attribute(pool, cudaMemPoolAttrUsedMemHigh),
		   (unsigned long long)pool_attribute(pool, cudaMemPoolAttrReservedMemCurrent),
		   (unsigned long long)pool_attribute(pool, cudaMemPoolAttrReservedMemHigh));
}

static cudaMemPool_t make_pool(size_t max_size)
{
	cudaMemPoolProps props = {};
	cudaMemPool_t pool = NULL;

	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	props.maxSize = max_size;
	if (cudaMemPoolCreate(&pool, &props) != cudaSuccess)
		pool = NULL;
	return pool;
}

static void pool_defaults(void)
{
	cudaMemPool_t normal = NULL, current = NULL, pool = make_pool(0);
	int flag = -1;

	conf_section = "pool defaults";
	NEED(cudaDeviceGetDefaultMemPool(&normal, 0));
	NEED(cudaDeviceGetMemPool(&current, 0));
	TRUTH("the current pool is the default one", normal == current);
	TRUTH("a pool can be made", pool != NULL);
	VALUE("release threshold", pool_attribute(normal, cudaMemPoolAttrReleaseThreshold));
	NEED(cudaMemPoolGetAttribute(normal, cudaMemPoolReuseFollowEventDependencies, &flag));
	VALUE("reuse follows events", flag);
	NEED(cudaMemPoolGetAttribute(normal, cudaMemPoolReuseAllowOpportunistic, &flag));
	VALUE("reuse when it happens to be free", flag);
	NEED(cudaMemPoolGetAttribute(normal, cudaMemPoolReuseAllowInternalDependencies, &flag));
	VALUE("reuse by waiting", flag);
	pool_counters("a new pool", pool);
	CODE(cudaDeviceSetMemPool(0, pool));
	NEED(cudaDeviceGetMemPool(&current, 0));
	TRUTH("the pool is current", current == pool);
	CODE_OF("the default pool destroyed", cudaMemPoolDestroy(normal));
	CODE_OF("the current pool destroyed", cudaMemPoolDestroy(pool));
	NEED(cudaDeviceGetMemPool(&current, 0));
	TRUTH("the default pool is current again", current == normal);
	CODE_OF("an unknown attribute",
		cudaMemPoolGetAttribute(normal, (cudaMemPoolAttr)0x77, &flag));
}

/* One pool through a life: what it holds after each step. */
static void pool_life(uint64_t threshold)
{
	cudaMemPool_t pool = make_pool(0);
	cudaStream_t stream = conf_busy;
	uint64_t zero = 0, one = 1;
	void *a, *b, *c;

	conf_section = threshold ? "a pool that keeps" : "a pool that gives back";
	NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
	NEED(cudaMallocFromPoolAsync(&a, 1, pool, stream));
	pool_counters("1 byte", pool);
	NEED(cudaMallocFromPoolAsync(&b, 1000000, pool, stream));
	pool_counters("and 1000000", pool);
	NEED(cudaMallocFromPoolAsync(&c, 40 << 20, pool, stream));
	pool_counters("and 40 MiB", pool);
	NEED(cudaFreeAsync(b, stream));
	NEED(cudaStreamSynchronize(stream));
	pool_counters("the 1000000 freed, synchronised", pool);
	NEED(cudaFreeAsync(c, stream));
	NEED(cudaStreamSynchronize(stream));
	pool_counters("the 40 MiB freed, synchronised", pool);
	NEED(cudaDeviceSynchronize());
	pool_counters("the device synchronised", pool);
	NEED(cudaFreeAsync(a, stream));
	pool_counters("all freed, not synchronised", pool);
	NEED(cudaStreamSynchronize(stream));
	pool_counters("all freed, synchronised", pool);
	CODE_OF("the used high mark set to 0",
		cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
	CODE_OF("the reserved high mark set to 0",
		cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &zero));
	CODE_OF("the used high mark set to 1",
		cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &one));
	CODE_OF("the used current set",
		cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &zero));
	pool_counters("marks reset", pool);
	CODE(cudaMemPoolTrimTo(pool, 3 << 20));
	pool_counters("trimmed to 3 MiB", pool);
	CODE(cudaMemPoolTrimTo(pool, 0));
	pool_counters("trimmed to 0", pool);
	CODE(cudaMemPoolDestroy(pool));
}

static void pool_reuse(void)
{
	cudaMemPool_t pool = make_pool(0);
	uint64_t keep = UINT64_MAX;
	cudaStream_t a_stream, b_stream;
	cudaEvent_t event;
	void *a, *b;

	conf_section = "pool reuse";
	NEED(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	NEED(cudaStreamCreateWithFlags(&a_stream, cudaStreamNonBlocking));
	NEED(cudaStreamCreateWithFlags(&b_stream, cudaStreamNonBlocking));
	NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));

	NEED(cudaMallocFromPoolAsync(&a, 1 << 20, pool, a_stream));
	NEED(cudaFreeAsync(a, a_stream));
	NEED(cudaMallocFromPoolAsync(&b, 1 << 20, pool, a_stream));
	TRUTH("the same stream gets the block again at once", a == b);
	spin<<<1, 1, 0, a_stream>>>(SPIN_NS);
	NEED(cudaFreeAsync(b, a_stream));
	NEED(cudaMallocFromPoolAsync(&a, 1 << 20, pool, b_stream));
	TRUTH("another stream gets it while the free is pending", a == b);
	NEED(cudaFreeAsync(a, b_stream));
	NEED(cudaStreamSynchronize(b_stream));
	NEED(cudaEventRecord(event, a_stream));
	NEED(cudaStreamWaitEvent(b_stream, event, 0));
	NEED(cudaMallocFromPoolAsync(&a, 1 << 20, pool, b_stream));
	pool_counters("a stream that waits for the free asks", pool);
	NEED(cudaFreeAsync(a, b_stream));
	NEED(cudaDeviceSynchronize());
	NEED(cudaStreamDestroy(a_stream));
	NEED(cudaStreamDestroy(b_stream));
	NEED(cudaEventDestroy(event));
	CODE(cudaMemPoolDestroy(pool));
}

static void pool_odds(void)
{
	cudaMemPool_t pool = make_pool(0), limited = make_pool(64 << 20);
	cudaStream_t stream = conf_busy;
	cudaMemPoolPtrExportData data;
	cudaMemLocation here = { cudaMemLocationTypeDevice, 0 };
	cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
	cudaMemPoolProps props = {};
	size_t free_bytes, total_bytes;
	CUdeviceptr base;
	void *p, *q;
	int fd = -1;

	conf_section = "pools, the rest";
	NEED(cudaMemGetInfo(&free_bytes, &total_bytes));
	NEED(cudaMallocFromPoolAsync(&p, 5000, pool, stream));
	NEED(cudaStreamSynchronize(stream));
	NEED(DRIVER(cuMemGetAddressRange, 3020)(&base, &free_bytes, (CUdeviceptr)p + 100));
	TRUTH("address range: the base", base == (CUdeviceptr)p);
	VALUE("address range: the size", free_bytes);
	TRUTH("512 byte aligned", ((uintptr_t)p & 511) == 0);
	CODE_OF("a pointer exported from a pool that shares nothing",
		cudaMemPoolExportPointer(&data, p));
	CODE_OF("such a pool exported",
		cudaMemPoolExportToShareableHandle(&fd, pool,
						   cudaMemHandleTypePosixFileDescriptor, 0));
	CODE(cudaMemPoolGetAccess(&flags, pool, &here));
	VALUE("access of its own device", flags);
	CODE_OF("more than there is", cudaMallocFromPoolAsync(&q, 2 * total_bytes, pool, stream));
	CODE_OF("more than the pool's limit, at once",
		cudaMallocFromPoolAsync(&q, 128 << 20, limited, stream));
	CODE_OF("and within it", cudaMallocFromPoolAsync(&q, 32 << 20, limited, stream));
	CODE(cudaFreeAsync(q, stream));
	CODE_OF("the pool destroyed with memory live", cudaMemPoolDestroy(pool));
	CODE_OF("that memory used", cudaMemsetAsync(p, 1, 5000, stream));
	CODE_OF("that memory freed", cudaFreeAsync(p, stream));
	CODE(cudaStreamSynchronize(stream));
	CODE(cudaMemPoolDestroy(limited));
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	props.location.id = 1000;
	CODE_OF("a pool of a device that is not there", cudaMemPoolCreate(&pool, &props));
	props.location.type = cudaMemLocationTypeInvalid;
	CODE_OF("a pool of no location", cudaMemPoolCreate(&pool, &props));
	CODE_OF("cudaMallocAsync of NULL", cudaMallocAsync(NULL, 10, stream));
}

#endif
