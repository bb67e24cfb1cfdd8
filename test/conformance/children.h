/* children.h - conformance of what needs a process of its own: before cuInit, after a fault, after
 * a reset, contexts, forks, the end of a process.
 *
 * Each section runs in a child that is this program again with "--child NAME". The child prints
 * its own lines; the parent waits for it, so the output stays one sequence.
 */
#ifndef TEST_CONFORMANCE_CHILDREN_H
#define TEST_CONFORMANCE_CHILDREN_H

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/conformance/vmm.h"

/* Run this program again with @arguments (NULL at the end), and print how it ended if not well. */
static void run_child(const char *const *arguments)
{
	const char *argv[16] = { program_invocation_name };
	int status = 0, count = 1;
	pid_t pid;

	while (*arguments && count < 15)
		argv[count++] = *arguments++;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		execv("/proc/self/exe", (char *const *)argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		conf_print("A CHILD ENDED BADLY", "%s, status %#x", argv[2], status);
}

static void in_a_child(const char *name)
{
	const char *arguments[] = { "--child", name, NULL };

	run_child(arguments);
}

/* ---- the driver before it is initialised, and without a context ---- */

static void *bare_library;

static void *bare_lookup(const char *name)
{
	void *address = bare_library ? dlsym(bare_library, name) : NULL;

	return address ? address : (void *)conf_missing;
}
#define BARE(name, type) ((type)bare_lookup(name))

static void bare_calls(const char *section)
{
	CUmemAllocationProp prop = {};
	CUmemGenericAllocationHandle handle = 0;
	CUmemPoolProps pool_props = {};
	unsigned int type = 0;
	CUmemoryPool pool = NULL;
	size_t size = 0, size2 = 0;
	CUdeviceptr address = 0;
	CUcontext context = NULL;
	CUstream stream = NULL;
	CUevent event = NULL;
	CUdevice device = 0;
	void *p = NULL;
	int count = 0;

	conf_section = section;
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	pool_props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	pool_props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	CODE_OF("cuDeviceGetCount", BARE("cuDeviceGetCount", PFN_cuDeviceGetCount_v2000)(&count));
	CODE_OF("cuDriverGetVersion",
		BARE("cuDriverGetVersion", PFN_cuDriverGetVersion_v2020)(&count));
	CODE_OF("cuCtxGetCurrent", BARE("cuCtxGetCurrent", PFN_cuCtxGetCurrent_v4000)(&context));
	CODE_OF("cuCtxGetDevice", BARE("cuCtxGetDevice", PFN_cuCtxGetDevice_v2000)(&device));
	CODE_OF("cuCtxSynchronize", BARE("cuCtxSynchronize", PFN_cuCtxSynchronize_v2000)());
	CODE_OF("cuMemGetInfo", BARE("cuMemGetInfo_v2", PFN_cuMemGetInfo_v3020)(&size, &size2));
	CODE_OF("cuMemAlloc", BARE("cuMemAlloc_v2", PFN_cuMemAlloc_v3020)(&address, 100));
	CODE_OF("cuMemAllocManaged",
		BARE("cuMemAllocManaged", PFN_cuMemAllocManaged_v6000)(&address, 100, 1));
	CODE_OF("cuMemFree", BARE("cuMemFree_v2", PFN_cuMemFree_v3020)(4096));
	CODE_OF("cuMemFree of 0", BARE("cuMemFree_v2", PFN_cuMemFree_v3020)(0));
	CODE_OF("cuMemHostAlloc", BARE("cuMemHostAlloc", PFN_cuMemHostAlloc_v2020)(&p, 100, 0));
	CODE_OF("cuMemFreeHost", BARE("cuMemFreeHost", PFN_cuMemFreeHost_v2000)(&count));
	CODE_OF("cuMemAllocAsync",
		BARE("cuMemAllocAsync", PFN_cuMemAllocAsync_v11020)(&address, 100, NULL));
	CODE_OF("cuMemPoolCreate",
		BARE("cuMemPoolCreate", PFN_cuMemPoolCreate_v11020)(&pool, &pool_props));
	CODE_OF("cuDeviceGetDefaultMemPool",
		BARE("cuDeviceGetDefaultMemPool", PFN_cuDeviceGetDefaultMemPool_v11020)(&pool, 0));
	CODE_OF("cuMemAddressReserve",
		BARE("cuMemAddressReserve", PFN_cuMemAddressReserve_v10020)(&address, 2 << 20, 0, 0,
									    0));
	CODE_OF("cuMemCreate",
		BARE("cuMemCreate", PFN_cuMemCreate_v10020)(&handle, 2 << 20, &prop, 0));
	CODE_OF("cuStreamCreate", BARE("cuStreamCreate", PFN_cuStreamCreate_v2000)(&stream, 1));
	CODE_OF("cuEventCreate", BARE("cuEventCreate", PFN_cuEventCreate_v2000)(&event, 0));
	CODE_OF("cuStreamSynchronize of the legacy stream",
		BARE("cuStreamSynchronize", PFN_cuStreamSynchronize_v2000)(NULL));
	CODE_OF("cuPointerGetAttribute",
		BARE("cuPointerGetAttribute", PFN_cuPointerGetAttribute_v4000)(
			&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&count));
}

static void child_bare(void)
{
	bare_library = dlopen("libcuda.so.1", RTLD_NOW);
	bare_calls("before cuInit");
	conf_section = "cuInit";
	CODE_OF("with flags", BARE("cuInit", PFN_cuInit_v2000)(1));
	CODE_OF("without", BARE("cuInit", PFN_cuInit_v2000)(0));
	CODE_OF("again", BARE("cuInit", PFN_cuInit_v2000)(0));
	bare_calls("without a context");
}

/* ---- contexts through the driver ---- */

static void child_contexts(void)
{
	CUcontext first = NULL, second = NULL, primary = NULL, again = NULL, current = NULL;
	CUctxCreateParams params = {};
	auto create = DRIVER(cuCtxCreate, 12050);
	auto destroy = DRIVER(cuCtxDestroy, 4000);
	auto set = DRIVER(cuCtxSetCurrent, 4000);
	auto state = DRIVER(cuDevicePrimaryCtxGetState, 7000);
	CUdeviceptr in_first = 0, in_second = 0;
	size_t before = 0, after = 0, total = 0;
	CUevent event = NULL;
	unsigned int flags = 0;
	int active = 9;

	conf_section = "contexts";
	NEED(cudaFree(0));
	NEED(DRIVER(cuCtxGetCurrent, 4000)(&primary));
	NEED(state(0, &flags, &active));
	VALUE("the primary context is active", active);
	CODE_OF("retained once more", DRIVER(cuDevicePrimaryCtxRetain, 7000)(&again, 0));
	TRUTH("it is the same", again == primary);
	CODE_OF("released", DRIVER(cuDevicePrimaryCtxRelease, 11000)(0));
	CODE_OF("cuCtxDestroy of the primary one", destroy(primary));
	CODE_OF("create", create(&first, &params, 0, 0));
	CODE_OF("create another", create(&second, &params, 0, 0));
	NEED(DRIVER(cuCtxGetCurrent, 4000)(&current));
	TRUTH("the newest is current", current == second);
	NEED(DRIVER(cuMemAlloc, 3020)(&in_second, 64 << 20));
	NEED(DRIVER(cuCtxPopCurrent, 4000)(&current));
	NEED(DRIVER(cuMemAlloc, 3020)(&in_first, 1 << 20));
	/* A memset of it from here would be accepted and then kill this context (719, seen). */
	CODE_OF("cuMemFree of another context's memory", DRIVER(cuMemFree, 3020)(in_second));
	NEED(set(second));
	NEED(DRIVER(cuMemAlloc, 3020)(&in_second, 64 << 20));
	NEED(DRIVER(cuEventCreate, 2000)(&event, 0));
	NEED(set(first));
	CODE_OF("an event of another context recorded", DRIVER(cuEventRecord, 2000)(event, NULL));
	CODE_OF("a context event of another context",
		DRIVER(cuCtxRecordEvent, 12050)(first, event));
	NEED(DRIVER(cuMemGetInfo, 3020)(&before, &total));
	CODE_OF("destroyed with memory live", destroy(second));
	NEED(DRIVER(cuMemGetInfo, 3020)(&after, &total));
	TRUTH("its memory is free again", after >= before + (64 << 20));
	CODE_OF("cuMemFree of its memory", DRIVER(cuMemFree, 3020)(in_second));
	CODE_OF("destroyed while current", destroy(first));
	NEED(DRIVER(cuCtxGetCurrent, 4000)(&current));
	TRUTH("the primary one is current again", current == primary);
	NEED(set(NULL));
	CODE_OF("cuMemFree with none", DRIVER(cuMemFree, 3020)(in_first));
	CODE_OF("cudaMalloc with none", cudaMalloc((void **)&in_first, 100));
	NEED(DRIVER(cuCtxGetCurrent, 4000)(&current));
	TRUTH("the runtime took the primary one again", current == primary);
}

/* ---- cudaDeviceReset ---- */

static void child_reset(void)
{
	void *linear = NULL, *async = NULL, *from_pool = NULL, *managed = NULL, *pinned = NULL;
	unsigned int flags = 0;
	cudaMemPoolProps props = {};
	CUmemGenericAllocationHandle handle = 0;
	CUmemAllocationProp prop = vmm_device_memory();
	uint64_t used = 9;
	cudaMemPool_t pool = NULL, normal = NULL;
	int active = 9;

	conf_section = "cudaDeviceReset";
	NEED(cudaMalloc(&linear, 1 << 20));
	NEED(cudaMallocAsync(&async, 1 << 20, 0));
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	NEED(cudaMemPoolCreate(&pool, &props));
	NEED(cudaMallocFromPoolAsync(&from_pool, 1 << 20, pool, 0));
	NEED(cudaMallocManaged(&managed, 1 << 20));
	NEED(cudaMallocHost(&pinned, 1 << 20));
	NEED(DRIVER(cuMemCreate, 10020)(&handle, 2 << 20, &prop, 0));
	NEED(cudaDeviceSynchronize());
	CODE(cudaDeviceReset());
	CODE_OF("state", DRIVER(cuDevicePrimaryCtxGetState, 7000)(0, &flags, &active));
	VALUE("the primary context is active", active);
	CODE_OF("cudaFree of cudaMalloc memory", cudaFree(linear));
	CODE_OF("cudaMemset of cudaMallocAsync memory", cudaMemset(async, 1, 1 << 20));
	CODE_OF("cudaFree of cudaMallocAsync memory", cudaFree(async));
	CODE_OF("cudaFreeAsync of a pool's memory", cudaFreeAsync(from_pool, 0));
	CODE(cudaDeviceSynchronize());
	NEED(cudaDeviceGetDefaultMemPool(&normal, 0));
	CODE(cudaMemPoolGetAttribute(normal, cudaMemPoolAttrUsedMemCurrent, &used));
	VALUE("used by the default pool", used);
	CODE_OF("the pool destroyed", cudaMemPoolDestroy(pool));
	CODE_OF("cudaFree of managed memory", cudaFree(managed));
	CODE_OF("cudaFreeHost of pinned memory", cudaFreeHost(pinned));
	CODE_OF("cuMemRelease", DRIVER(cuMemRelease, 10020)(handle));
	CODE_OF("cudaMalloc", cudaMalloc(&linear, 1 << 20));
	CODE_OF("cudaFree", cudaFree(linear));
	CODE_OF("reset again", cudaDeviceReset());
	CODE_OF("and again", cudaDeviceReset());
}

/* ---- errors that stick, and errors that do not ---- */

static void child_fault(void)
{
	size_t free_bytes, total_bytes;
	void *p = NULL, *q = NULL;
	cudaEvent_t event = NULL;

	conf_section = "after a fault";
	NEED(cudaMalloc(&p, 1000));
	NEED(cudaEventCreate(&event));
	fault<<<1, 1>>>((uint32_t *)16);
	CODE_OF("the launch", cudaGetLastError());
	/* Not cleared in between, as the other lines are. */
	conf_print("cudaDeviceSynchronize", "%d", (int)cudaDeviceSynchronize());
	conf_print("peek", "%d", (int)cudaPeekAtLastError());
	conf_print("get", "%d", (int)cudaGetLastError());
	conf_print("get", "%d", (int)cudaGetLastError());
	CODE_OF("cudaMalloc", cudaMalloc(&q, 1000));
	CODE_OF("cudaMallocAsync", cudaMallocAsync(&q, 1000, 0));
	CODE_OF("cudaMallocHost", cudaMallocHost(&q, 1000));
	CODE_OF("cudaFree", cudaFree(p));
	CODE_OF("cudaFree of NULL", cudaFree(NULL));
	CODE_OF("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes));
	CODE_OF("cudaEventQuery", cudaEventQuery(event));
	CODE_OF("cudaEventRecord", cudaEventRecord(event, 0));
	fault<<<1, 1>>>((uint32_t *)16);
	CODE_OF("a launch", cudaGetLastError());
	CODE_OF("cudaDeviceSynchronize", cudaDeviceSynchronize());
	CODE_OF("cudaDeviceReset", cudaDeviceReset());
	CODE_OF("cudaMalloc", cudaMalloc(&p, 1000));
	CODE_OF("cudaFree", cudaFree(p));
}

static void errors_that_pass(void)
{
	size_t free_bytes, total_bytes;
	uint32_t *p = NULL;
	void *q = NULL;

	conf_section = "errors that pass";
	NEED(cudaMalloc(&p, 4096));
	NEED(cudaMemGetInfo(&free_bytes, &total_bytes));
	CODE_OF("nothing yet", cudaPeekAtLastError());
	conf_print("more than there is", "%d", (int)cudaMalloc(&q, 2 * total_bytes));
	conf_print("peek", "%d", (int)cudaPeekAtLastError());
	conf_print("a call that succeeds", "%d", (int)cudaMalloc(&q, 1000));
	conf_print("peek", "%d", (int)cudaPeekAtLastError());
	conf_print("get", "%d", (int)cudaGetLastError());
	conf_print("get", "%d", (int)cudaGetLastError());
	CODE_OF("cudaFree", cudaFree(q));
	CODE_OF("an impossible size", cudaMalloc(&q, SIZE_MAX));
	CODE_OF("an impossible size, async", cudaMallocAsync(&q, SIZE_MAX, 0));
	CODE_OF("an impossible size, pinned", cudaMallocHost(&q, SIZE_MAX));
	CODE_OF("2^50, async", cudaMallocAsync(&q, 1ull << 50, 0));
	fill<<<1, 2048>>>(p, 1u, 1u);
	CODE_OF("a block too large", cudaGetLastError());
	fill<<<0, 1>>>(p, 1u, 1u);
	CODE_OF("an empty grid", cudaGetLastError());
	fill<<<1, 1, 1 << 20>>>(p, 1u, 1u);
	CODE_OF("too much shared memory", cudaGetLastError());
	CODE(cudaDeviceSynchronize());
	CODE_OF("a device that is not there", cudaSetDevice(1000));
	CODE_OF("an event of NULL", cudaEventRecord(NULL, 0));
	TRUTH("and memory still works",
	      cudaMemset(p, 9, 4096) == cudaSuccess && conf_holds(p, 9, 4096));
	CODE(cudaFree(p));
}

/* ---- fork ---- */

static void child_fork(void)
{
	void *p = NULL, *q = NULL;
	size_t free_bytes, total_bytes;
	cudaStream_t stream;
	int status = 0;
	pid_t pid;

	conf_section = "in a forked child";
	NEED(cudaMalloc(&p, 1000));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		CODE_OF("cudaMalloc", cudaMalloc(&q, 1000));
		CODE_OF("cudaFree of the parent's", cudaFree(p));
		CODE_OF("cudaFree of NULL", cudaFree(NULL));
		CODE_OF("cudaMallocAsync", cudaMallocAsync(&q, 1000, 0));
		CODE_OF("cudaMallocHost", cudaMallocHost(&q, 1000));
		CODE_OF("cudaMallocManaged", cudaMallocManaged(&q, 1000));
		CODE_OF("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes));
		CODE_OF("cudaStreamCreate", cudaStreamCreate(&stream));
		CODE_OF("cudaDeviceSynchronize", cudaDeviceSynchronize());
		CODE_OF("cudaSetDevice", cudaSetDevice(0));
		_exit(0);
	}
	waitpid(pid, &status, 0);
	TRUTH("the child ended well", WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CODE_OF("cudaFree in the parent", cudaFree(p));
}

/* ---- the end of a process ---- */

static void *exit_memory[6];

static void exit_try(const char *what, int index)
{
	void *p = NULL;

	conf_section = "at the end of a process";
	conf_print(what, "cudaFree %d, cudaMalloc %d", (int)cudaFree(exit_memory[index]),
		   (int)cudaMalloc(&p, 1000));
}

static bool exit_wanted;

struct exit_object {
	const char *name;
	int index;

	~exit_object()
	{
		if (exit_wanted)
			exit_try(name, index);
	}
};
static exit_object exit_global = { "a global object", 0 };

static void exit_before_cuda(void)
{
	exit_try("atexit from before the first CUDA call", 1);
}

static void exit_after_cuda(void)
{
	exit_try("atexit from after it", 2);
}

__attribute__((destructor)) static void exit_destructor(void)
{
	if (exit_wanted)
		exit_try("a destructor function", 3);
}

static void child_exit(void)
{
	exit_wanted = true;
	conf_section = "at the end of a process";
	atexit(exit_before_cuda);
	for (auto &p : exit_memory)
		NEED(cudaMalloc(&p, 1 << 20));
	atexit(exit_after_cuda);
	exit(0);
}

#endif
