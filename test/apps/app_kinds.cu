/* app_kinds.cu - one allocation of every kind that CUDA has, a checkpoint after each step.
 *
 * At each checkpoint a recorder's account must equal the driver's, for every device and kind.
 * A second process, this program again, imports memory and has checkpoints of its own.
 */
#include <cudaTypedefs.h>
#include <sys/mman.h>

#include "test/apps/app.h"
#include "test/apps/child.h"

static void *linear, *small_ones[3], *pitched, *managed, *managed_host;
static struct cudaPitchedPtr box;

static void linear_memory(void)
{
	size_t pitch;

	CHECK(cudaMalloc(&linear, 3000000));
	checkpoint("cudaMalloc of 3000000");
	for (int i = 0; i < 3; i++)
		CHECK(cudaMalloc(&small_ones[i], (size_t)100 << (4 * i)));
	checkpoint("three small ones");
	CHECK(cudaMallocPitch(&pitched, &pitch, 1000, 333));
	CHECK(cudaMemset2D(pitched, pitch, 3, 1000, 333));
	checkpoint("cudaMallocPitch");
	CHECK(cudaMalloc3D(&box, make_cudaExtent(100, 50, 20)));
	CHECK(cudaMemset3D(box, 4, make_cudaExtent(100, 50, 20)));
	checkpoint("cudaMalloc3D");
	CHECK(cudaFree(small_ones[1]));
	checkpoint("one small one freed");
	CHECK(cudaMallocManaged(&managed, 3 << 20));
	CHECK(cudaMallocManaged(&managed_host, 12345, cudaMemAttachHost));
	memset(managed, 5, 3 << 20);
	expect(holds_byte(managed, 5, 3 << 20), "managed memory");
	checkpoint("cudaMallocManaged");
}

static void free_linear_memory(void)
{
	CHECK(cudaFree(linear));
	CHECK(cudaFree(small_ones[0]));
	CHECK(cudaFree(small_ones[2]));
	CHECK(cudaFree(pitched));
	CHECK(cudaFree(box.ptr));
	CHECK(cudaFree(managed));
	CHECK(cudaFree(managed_host));
	checkpoint("linear memory freed");
}

static void arrays(void)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
	cudaChannelFormatDesc byte_format = cudaCreateChannelDesc<unsigned char>();
	cudaArray_t flat, deep, layered, level;
	cudaMipmappedArray_t pyramid;
	unsigned char out[64 * 16], back[64 * 16];

	CHECK(cudaMallocArray(&flat, &byte_format, 64, 16));
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (unsigned char)(i * 7);
	CHECK(cudaMemcpy2DToArray(flat, 0, 0, out, 64, 64, 16, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy2DFromArray(back, 64, flat, 0, 0, 64, 16, cudaMemcpyDeviceToHost));
	expect(!memcmp(out, back, sizeof(out)), "an array keeps its contents");
	checkpoint("cudaMallocArray");
	CHECK(cudaMalloc3DArray(&deep, &format, make_cudaExtent(64, 32, 16)));
	CHECK(cudaMalloc3DArray(&layered, &format, make_cudaExtent(128, 128, 6), cudaArrayLayered));
	checkpoint("cudaMalloc3DArray, deep and layered");
	CHECK(cudaMallocMipmappedArray(&pyramid, &format, make_cudaExtent(256, 256, 0), 5));
	CHECK(cudaGetMipmappedArrayLevel(&level, pyramid, 2));
	checkpoint("cudaMallocMipmappedArray");
	CHECK(cudaFreeArray(deep));
	checkpoint("one array freed");
	CHECK(cudaFreeArray(flat));
	CHECK(cudaFreeArray(layered));
	CHECK(cudaFreeMipmappedArray(pyramid));
	checkpoint("arrays freed");
}

static void host_memory(void)
{
	void *pinned, *portable, *mapped, *on_device;
	size_t bytes = 1 << 20;
	void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(cudaMallocHost(&pinned, 3 << 20));
	checkpoint("cudaMallocHost");
	CHECK(cudaHostAlloc(&portable, 5000, cudaHostAllocPortable));
	CHECK(cudaHostAlloc(&mapped, 70000, cudaHostAllocMapped));
	CHECK(cudaHostGetDevicePointer(&on_device, mapped, 0));
	checkpoint("cudaHostAlloc, portable and mapped");
	if (pages == MAP_FAILED)
		DIE("mmap");
	CHECK(cudaHostRegister(pages, bytes, cudaHostRegisterDefault));
	checkpoint("cudaHostRegister");
	CHECK(cudaHostUnregister(pages));
	munmap(pages, bytes);
	CHECK(cudaFreeHost(pinned));
	checkpoint("one freed, one unregistered");
	CHECK(cudaFreeHost(portable));
	CHECK(cudaFreeHost(mapped));
	checkpoint("host memory freed");
}

/* ---- virtual memory management ---- */

static CUmemAllocationProp vmm_prop(void)
{
	CUmemAllocationProp prop = {};

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = 0;
	return prop;
}

static void map_at(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {};

	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = 0;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	CHECK_DRIVER(DRIVER(cuMemMap, 10020)(at, bytes, 0, handle, 0));
	CHECK_DRIVER(DRIVER(cuMemSetAccess, 10020)(at, bytes, &access, 1));
}

/* A handle lives by its references and by its mappings; only when all are gone is it freed. */
static void virtual_memory(void)
{
	auto release = DRIVER(cuMemRelease, 10020);
	auto unmap = DRIVER(cuMemUnmap, 10020);
	CUmemAllocationProp prop = vmm_prop();
	CUmemGenericAllocationHandle handle, other, again;
	CUdeviceptr range;
	size_t page = 0;

	CHECK_DRIVER(DRIVER(cuMemGetAllocationGranularity, 10020)(
		&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK_DRIVER(DRIVER(cuMemAddressReserve, 10020)(&range, 16 * page, 0, 0, 0));
	checkpoint("addresses reserved");
	CHECK_DRIVER(DRIVER(cuMemCreate, 10020)(&handle, 2 * page, &prop, 0));
	CHECK_DRIVER(DRIVER(cuMemCreate, 10020)(&other, 3 * page, &prop, 0));
	checkpoint("two handles, not mapped");
	map_at(range, 2 * page, handle);
	map_at(range + 4 * page, 3 * page, other);
	map_at(range + 8 * page, 2 * page, handle);
	CHECK(cudaMemset((void *)range, 9, 2 * page));
	CHECK(cudaDeviceSynchronize());
	expect(holds_byte((void *)(range + 8 * page), 9, 2 * page), "one handle at two addresses");
	checkpoint("three mappings of two handles");
	CHECK_DRIVER(DRIVER(cuMemRetainAllocationHandle, 11000)(&again, (void *)range));
	CHECK_DRIVER(release(handle));
	checkpoint("one reference taken, one given back");
	CHECK_DRIVER(release(again));
	CHECK_DRIVER(unmap(range, 2 * page));
	checkpoint("no reference left, one mapping gone");
	expect(holds_byte((void *)(range + 8 * page), 9, 2 * page), "still there by a mapping");
	CHECK_DRIVER(unmap(range + 8 * page, 2 * page));
	checkpoint("its last mapping gone");
	CHECK_DRIVER(unmap(range + 4 * page, 3 * page));
	checkpoint("the other unmapped, still referenced");
	CHECK_DRIVER(release(other));
	CHECK_DRIVER(DRIVER(cuMemAddressFree, 10020)(range, 16 * page));
	checkpoint("virtual memory freed");
}

/* ---- memory in stream order ---- */

static void stream_ordered(void)
{
	cudaMemPoolProps props = {};
	cudaMemPool_t pool, normal;
	cudaStream_t stream;
	uint64_t keep = UINT64_MAX;
	void *a, *b, *c, *d;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMallocAsync(&a, 1000000, stream));
	CHECK(cudaMallocAsync(&b, 100, stream));
	checkpoint("cudaMallocAsync, twice");
	CHECK(cudaFreeAsync(a, stream));
	checkpoint("cudaFreeAsync");
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	props.location.id = 0;
	CHECK(cudaMemPoolCreate(&pool, &props));
	CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	CHECK(cudaMallocFromPoolAsync(&c, 5000000, pool, stream));
	checkpoint("cudaMallocFromPoolAsync of a pool of its own");
	CHECK(cudaDeviceGetMemPool(&normal, 0));
	CHECK(cudaDeviceSetMemPool(0, pool));
	CHECK(cudaMallocAsync(&d, 700000, stream));
	CHECK(cudaDeviceSetMemPool(0, normal));
	checkpoint("cudaMallocAsync with that pool as the device's");
	CHECK(cudaFreeAsync(c, stream));
	checkpoint("freed, and kept by the pool");
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemPoolTrimTo(pool, 0));
	checkpoint("the pool trimmed");
	CHECK(cudaFree(d));
	CHECK(cudaFreeAsync(b, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemPoolDestroy(pool));
	CHECK(cudaStreamDestroy(stream));
	checkpoint("stream-ordered memory freed");
}

/* ---- graphs that own memory ---- */

static void graph_from_capture(cudaStream_t stream)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	void *ptr;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	CHECK(cudaMallocAsync(&ptr, 6 << 20, stream));
	CHECK(cudaMemsetAsync(ptr, 1, 6 << 20, stream));
	CHECK(cudaFreeAsync(ptr, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	checkpoint("a captured graph with memory, instantiated");
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	checkpoint("launched");
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	checkpoint("destroyed");
	CHECK(cudaDeviceGraphMemTrim(0));
	checkpoint("cudaDeviceGraphMemTrim");
}

/* Explicit nodes; the memory outlives the launch and is freed outside the graph. */
static void graph_from_nodes(cudaStream_t stream)
{
	cudaMemAllocNodeParams params = {};
	cudaMemsetParams set = {};
	cudaGraphNode_t alloc, memset_node;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	params.poolProps.allocType = cudaMemAllocationTypePinned;
	params.poolProps.location.type = cudaMemLocationTypeDevice;
	params.poolProps.location.id = 0;
	params.bytesize = 3 << 20;
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
	set.dst = params.dptr;
	set.value = 8;
	set.elementSize = 1;
	set.width = 3 << 20;
	set.height = 1;
	CHECK(cudaGraphAddMemsetNode(&memset_node, graph, &alloc, 1, &set));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	expect(holds_byte(params.dptr, 8, 3 << 20), "memory of a graph");
	checkpoint("a graph of nodes, its memory live after the launch");
	CHECK(cudaFreeAsync(params.dptr, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaDeviceGraphMemTrim(0));
	checkpoint("freed, destroyed and trimmed");
}

static void graphs(void)
{
	cudaStream_t stream;

	CHECK(cudaStreamCreate(&stream));
	graph_from_capture(stream);
	graph_from_nodes(stream);
	CHECK(cudaStreamDestroy(stream));
}

/* ---- memory of other processes and other APIs ---- */

static void between_processes(struct child *child)
{
	cudaIpcMemHandle_t handle;
	void *shared;

	CHECK(cudaMalloc(&shared, 4 << 20));
	CHECK(cudaMemset(shared, 0x11, 4 << 20));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaIpcGetMemHandle(&handle, shared));
	checkpoint("exported to another process");
	child_send(child, &handle, sizeof(handle));
	expect(child_finish(child, "importer: ") == 0, "the importer");
	CHECK(cudaFree(shared));
	checkpoint("freed after the importer closed it");
}

static int importer(void)
{
	cudaIpcMemHandle_t handle;
	void *ptr, *own;

	if (!child_receive(&handle, sizeof(handle)))
		return 1;
	CHECK(cudaMalloc(&own, 2 << 20));
	CHECK(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess));
	checkpoint_as("importer", 1, "opened");
	expect(holds_byte(ptr, 0x11, 4 << 20), "contents of another process");
	CHECK(cudaIpcCloseMemHandle(ptr));
	checkpoint_as("importer", 1, "closed");
	CHECK(cudaFree(own));
	return 0;
}

/* Import a file descriptor of memory that the driver itself exported, as a graphics API would
 * hand one over. Drivers may refuse. */
static void external_memory(void)
{
	cudaExternalMemoryHandleDesc desc = {};
	cudaExternalMemoryBufferDesc buffer = {};
	CUmemAllocationProp prop = vmm_prop();
	CUmemGenericAllocationHandle handle;
	cudaExternalMemory_t memory;
	size_t page = 0;
	int fd = -1;
	void *ptr;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CHECK_DRIVER(DRIVER(cuMemGetAllocationGranularity, 10020)(
		&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK_DRIVER(DRIVER(cuMemCreate, 10020)(&handle, page, &prop, 0));
	CHECK_DRIVER(DRIVER(cuMemExportToShareableHandle, 10020)(
		&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	desc.type = cudaExternalMemoryHandleTypeOpaqueFd;
	desc.handle.fd = fd;
	desc.size = page;
	if (cudaImportExternalMemory(&memory, &desc) != cudaSuccess) {
		say("external memory: not supported by this driver");
		cudaGetLastError();
		close(fd);
	} else {
		checkpoint("external memory imported");
		buffer.size = page;
		CHECK(cudaExternalMemoryGetMappedBuffer(&ptr, memory, &buffer));
		CHECK(cudaMemset(ptr, 1, page));
		checkpoint("and mapped");
		CHECK(cudaFree(ptr));
		CHECK(cudaDestroyExternalMemory(memory));
	}
	CHECK_DRIVER(DRIVER(cuMemRelease, 10020)(handle));
	checkpoint("external memory given back");
}

int main(int argc, char **argv)
{
	struct child child;

	if (argc > 1 && !strcmp(argv[1], "--importer"))
		return importer();
	child = child_start("--importer");
	CHECK(cudaSetDevice(0));
	checkpoint("nothing yet");
	linear_memory();
	arrays();
	host_memory();
	virtual_memory();
	stream_ordered();
	graphs();
	external_memory();
	free_linear_memory();
	between_processes(&child);
	say("app_kinds: done");
	return 0;
}
