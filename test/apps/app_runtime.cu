/* app_runtime.cu - the less common calls of the CUDA runtime, each verified by contents: symbols,
 * copies in two and three dimensions, launches of every form, graphs made by hand, host functions.
 *
 * On a GPU it passes with NVIDIA's runtime; with the stand-in it shows that the stand-in means the
 * same by the same arguments.
 */
#include <vector>

#include "test/apps/app.h"

__device__ uint32_t table[256];
__constant__ uint32_t constants[16];
__managed__ uint32_t managed_word = 77;

static void symbols(void)
{
	uint32_t in[256], out[256] = {}, *address;
	cudaStream_t stream;
	size_t size = 0;

	for (uint32_t i = 0; i < 256; i++)
		in[i] = i * 3;
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMemcpyToSymbol(table, in, sizeof(in)));
	CHECK(cudaMemcpyToSymbol(table, &in[200], 40, 80));
	CHECK(cudaMemcpyFromSymbol(out, table, sizeof(out)));
	expect(out[19] == 57 && out[20] == 600 && out[29] == 627 && out[30] == 90, "a symbol");
	CHECK(cudaMemcpyToSymbolAsync(constants, in, 64, 0, cudaMemcpyHostToDevice, stream));
	CHECK(cudaMemcpyFromSymbolAsync(out, constants, 32, 32, cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	expect(out[0] == 24 && out[7] == 45, "a constant");
	expect(cudaMemcpyToSymbol(constants, in, 65) == cudaErrorInvalidValue, "too much for it");
	cudaGetLastError();
	CHECK(cudaGetSymbolSize(&size, table));
	CHECK(cudaGetSymbolAddress((void **)&address, table));
	add<<<1, 256>>>(address, 1u, 256u);
	CHECK(cudaMemcpyFromSymbol(out, table, sizeof(out)));
	expect(size == sizeof(table) && out[255] == 766, "its address and size");
	expect(managed_word == 77, "a managed variable as it was initialised");
	managed_word = 5;
	add<<<1, 1>>>(&managed_word, 10u, 1u);
	CHECK(cudaDeviceSynchronize());
	expect(managed_word == 15, "and as both sides wrote it");
	CHECK(cudaStreamDestroy(stream));
}

/* Every byte of a box tells where it is. */
static unsigned char at(size_t x, size_t y, size_t z)
{
	return (unsigned char)(x + 17 * y + 101 * z);
}

static void two_dimensions(void)
{
	unsigned char in[20][64], out[20][48] = {};
	char *a, *b;
	size_t a_pitch, b_pitch;
	cudaStream_t stream;
	bool right = true;

	for (size_t y = 0; y < 20; y++) {
		for (size_t x = 0; x < 64; x++)
			in[y][x] = at(x, y, 0);
	}
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMallocPitch(&a, &a_pitch, 64, 20));
	CHECK(cudaMallocPitch(&b, &b_pitch, 700, 20));
	CHECK(cudaMemcpy2D(a, a_pitch, in, 64, 64, 20, cudaMemcpyHostToDevice));
	CHECK(cudaMemset2D(b, b_pitch, 0xee, 700, 20));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy2DAsync(b + 100, b_pitch, a + 3, a_pitch, 40, 20, cudaMemcpyDeviceToDevice,
				stream));
	CHECK(cudaMemcpy2DAsync(out, 48, b + 98, b_pitch, 44, 20, cudaMemcpyDefault, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (size_t y = 0; y < 20; y++) {
		right = right && out[y][1] == 0xee && out[y][42] == 0xee && out[y][44] == 0;
		for (size_t x = 0; x < 40; x++)
			right = right && out[y][x + 2] == at(x + 3, y, 0);
	}
	expect(right, "copies in two dimensions");
	CHECK(cudaFree(a));
	CHECK(cudaFree(b));
	CHECK(cudaStreamDestroy(stream));
}

/* Host to array, array to array, array to pitched memory, back to the host: a corner each. */
static void three_dimensions(void)
{
	cudaChannelFormatDesc pairs = cudaCreateChannelDesc<uchar2>();
	cudaExtent whole = make_cudaExtent(16, 10, 6), corner = make_cudaExtent(8, 5, 3);
	std::vector<unsigned char> in(32 * 10 * 6), out(16 * 5 * 3);
	cudaArray_t first, second;
	cudaMemcpy3DParms copy = {};
	cudaPitchedPtr box;
	bool right = true;

	for (size_t i = 0; i < in.size(); i++)
		in[i] = at(i % 32, i / 32 % 10, i / 320);
	CHECK(cudaMalloc3DArray(&first, &pairs, whole));
	CHECK(cudaMalloc3DArray(&second, &pairs, whole));
	CHECK(cudaMalloc3D(&box, make_cudaExtent(100, 9, 4)));
	CHECK(cudaMemset3D(box, 0x77, make_cudaExtent(100, 9, 4)));
	copy.srcPtr = make_cudaPitchedPtr(in.data(), 32, 32, 10);
	copy.dstArray = first;
	copy.extent = whole;
	copy.kind = cudaMemcpyHostToDevice;
	CHECK(cudaMemcpy3D(&copy));
	copy = {};
	copy.srcArray = first;
	copy.srcPos = make_cudaPos(4, 2, 1);	/* elements of two bytes */
	copy.dstArray = second;
	copy.dstPos = make_cudaPos(1, 1, 1);
	copy.extent = corner;
	copy.kind = cudaMemcpyDeviceToDevice;
	CHECK(cudaMemcpy3D(&copy));
	copy = {};
	copy.srcArray = second;
	copy.srcPos = make_cudaPos(1, 1, 1);
	copy.dstPtr = box;
	copy.dstPos = make_cudaPos(10, 2, 1);	/* elements: an array takes part */
	copy.extent = corner;
	copy.kind = cudaMemcpyDeviceToDevice;
	CHECK(cudaMemcpy3DAsync(&copy, 0));
	copy = {};
	copy.srcPtr = box;
	copy.srcPos = make_cudaPos(20, 2, 1);	/* bytes: none does */
	copy.dstPtr = make_cudaPitchedPtr(out.data(), 16, 16, 5);
	copy.extent = make_cudaExtent(16, 5, 3);
	copy.kind = cudaMemcpyDeviceToHost;
	CHECK(cudaMemcpy3D(&copy));
	for (size_t i = 0; i < out.size(); i++)
		right = right && out[i] == at(i % 16 + 8, i / 16 % 5 + 2, i / 80 + 1);
	expect(right, "copies in three dimensions");
	CHECK(cudaFreeArray(first));
	CHECK(cudaFreeArray(second));
	CHECK(cudaFree(box.ptr));
}

static void raise(void *arg)
{
	++*(int *)arg;
}

static void CUDART_CB called_back(cudaStream_t stream, cudaError_t error, void *arg)
{
	(void)stream;
	*(int *)arg += error == cudaSuccess ? 10 : 1000;
}

static void launches(void)
{
	uint32_t *p, value = 3, n = 1000;
	void *arguments[] = { &p, &value, &n };
	struct cudaFuncAttributes attributes;
	cudaLaunchConfig_t config = {};
	cudaEvent_t start, stop;
	cudaStream_t stream;
	int raised = 0;
	float ms = -1;

	CHECK(cudaMalloc(&p, n * sizeof(*p)));
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&start));
	CHECK(cudaEventCreate(&stop));
	CHECK(cudaEventRecord(start, stream));
	CHECK(cudaLaunchKernel((const void *)fill, dim3(4), dim3(256), arguments, 0, stream));
	config.gridDim = dim3(4);
	config.blockDim = dim3(256);
	config.stream = stream;
	CHECK(cudaLaunchKernelExC(&config, (const void *)add, arguments));
	CHECK(cudaLaunchKernelEx(&config, add, p, 4u, 1000u));
	CHECK(cudaLaunchCooperativeKernel((const void *)add, dim3(4), dim3(256), arguments, 0, stream));
	CHECK(cudaEventRecord(stop, stream));
	CHECK(cudaLaunchHostFunc(stream, raise, &raised));
	CHECK(cudaStreamAddCallback(stream, called_back, &raised, 0));
	CHECK(cudaStreamSynchronize(stream));
	expect(holds_word(p, 3 + 3 + 4 + 3, n), "launches of four forms");
	expect(raised == 11, "a host function and a callback");
	CHECK(cudaEventElapsedTime(&ms, start, stop));
	expect(ms > 0 && ms < 10000, "time went by");
	CHECK(cudaFuncGetAttributes(&attributes, (const void *)fill));
	expect(attributes.maxThreadsPerBlock >= 256 && attributes.binaryVersion > 0,
	       "attributes of a kernel");
	expect(cudaLaunchKernel(NULL, dim3(1), dim3(1), arguments, 0, stream) ==
		       cudaErrorInvalidDeviceFunction &&
	       cudaGetLastError() == cudaErrorInvalidDeviceFunction, "no kernel");
	CHECK(cudaEventDestroy(start));
	CHECK(cudaEventDestroy(stop));
	CHECK(cudaStreamDestroy(stream));
	CHECK(cudaFree(p));
}

/* fill -> add -> copy to the host -> host function, and a fill of bytes beside them. */
static cudaGraph_t graph_by_hand(uint32_t *p, uint32_t *bytes, uint32_t *out, int *raised)
{
	static uint32_t value = 9, more = 1, n = 500;
	void *fill_args[] = { &p, &value, &n }, *add_args[] = { &p, &more, &n };
	cudaGraphNode_t filled, added, copied, called, set, empty;
	cudaKernelNodeParams kernel = {};
	cudaHostNodeParams host = { raise, raised };
	cudaMemsetParams fill_bytes = {};
	cudaGraph_t graph;

	CHECK(cudaGraphCreate(&graph, 0));
	kernel.func = (void *)fill;
	kernel.gridDim = dim3(2);
	kernel.blockDim = dim3(256);
	kernel.kernelParams = fill_args;
	CHECK(cudaGraphAddKernelNode(&filled, graph, NULL, 0, &kernel));
	kernel.func = (void *)add;
	kernel.kernelParams = add_args;
	CHECK(cudaGraphAddKernelNode(&added, graph, &filled, 1, &kernel));
	CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, NULL, 0, out, p, n * sizeof(*p),
				       cudaMemcpyDeviceToHost));
	CHECK(cudaGraphAddDependencies(graph, &added, &copied, NULL, 1));
	CHECK(cudaGraphAddHostNode(&called, graph, &copied, 1, &host));
	fill_bytes.dst = bytes;
	fill_bytes.value = 0x41;
	fill_bytes.elementSize = 1;
	fill_bytes.width = 1000;
	fill_bytes.height = 1;
	CHECK(cudaGraphAddMemsetNode(&set, graph, NULL, 0, &fill_bytes));
	CHECK(cudaGraphAddEmptyNode(&empty, graph, &set, 1));
	return graph;
}

static void graphs(void)
{
	cudaGraph_t graph, clone, parent;
	uint32_t *p, *bytes, *out;
	cudaGraphExec_t exec;
	cudaStream_t stream;
	cudaGraphNode_t child;
	size_t nodes = 0, edges = 0, roots = 0;
	int raised = 0;

	CHECK(cudaMalloc(&p, 2000));
	CHECK(cudaMalloc(&bytes, 1000));
	CHECK(cudaMallocHost(&out, 2000));
	CHECK(cudaStreamCreate(&stream));
	graph = graph_by_hand(p, bytes, out, &raised);
	CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
	CHECK(cudaGraphGetRootNodes(graph, NULL, &roots));
	CHECK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
	expect(nodes == 6 && roots == 2 && edges == 4, "a graph made by hand");
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphUpload(exec, stream));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	expect(raised == 2 && out[0] == 10 && out[499] == 10 && holds_byte(bytes, 0x41, 1000),
	       "launched twice");
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphClone(&clone, graph));
	CHECK(cudaGraphCreate(&parent, 0));
	CHECK(cudaGraphAddChildGraphNode(&child, parent, NULL, 0, clone));
	CHECK(cudaGraphInstantiateWithFlags(&exec, parent, 0));
	CHECK(cudaMemset(p, 0, 2000));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	expect(raised == 3 && holds_word(p, 10, 500), "as a part of another graph");
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaGraphDestroy(clone));
	CHECK(cudaGraphDestroy(parent));
	CHECK(cudaStreamDestroy(stream));
	CHECK(cudaFreeHost(out));
	CHECK(cudaFree(bytes));
	CHECK(cudaFree(p));
}

static void device_queries(void)
{
	int least, greatest, priority, device = -1, same = -1, driver, runtime;
	unsigned int flags = 9;
	struct cudaDeviceProp prop;
	cudaStream_t stream;
	size_t limit = 0;
	char bus[32];

	CHECK(cudaGetDeviceProperties(&prop, 0));
	CHECK(cudaDeviceGetAttribute(&same, cudaDevAttrMultiProcessorCount, 0));
	expect(same == prop.multiProcessorCount && prop.totalGlobalMem > 0 && prop.warpSize == 32,
	       "properties and attributes agree");
	CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
	CHECK(cudaDeviceGetByPCIBusId(&device, bus));
	expect(device == 0, "a device by its bus id");
	CHECK(cudaDriverGetVersion(&driver));
	CHECK(cudaRuntimeGetVersion(&runtime));
	expect(driver >= 12000 && runtime >= 12000, "versions");
	CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
	CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
	expect(limit >= 16 << 20, "a limit");
	CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
	CHECK(cudaStreamGetPriority(stream, &priority));
	CHECK(cudaStreamGetFlags(stream, &flags));
	CHECK(cudaStreamGetDevice(stream, &device));
	expect(priority == greatest && flags == cudaStreamNonBlocking && device == 0, "a stream");
	CHECK(cudaStreamDestroy(stream));
	expect(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") &&
	       !strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"), "errors");
}

int main(void)
{
	symbols();
	two_dimensions();
	three_dimensions();
	launches();
	graphs();
	device_queries();
	checkpoint("all freed");
	say("app_runtime: done");
	return 0;
}
