/* state.c - start-up, the devices, the context of each thread, the last error, and the end.
 *
 * Nothing happens before the first runtime call. That call loads the driver, initialises it and
 * reads every device's attributes; the first call that needs a context retains the primary one
 * of the thread's device. A thread is bound once: after that a runtime call goes straight to the
 * driver, which uses whatever context is current, also one that the program pushed through the
 * driver API.
 *
 * Thread context: any thread. cudart_lock covers retaining and releasing primary contexts.
 * Fork: a child inherits the state as it is; the driver refuses it there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cudart.h"

struct cudart_device cudart_devices[CUDART_MAX_DEVICES];
int cudart_device_count;

static pthread_mutex_t cudart_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t init_once = PTHREAD_ONCE_INIT;
static cudaError_t init_error;
static atomic_bool ended;	/* the process is at its end: see finish() */

/* Bumped by cudaDeviceReset: every thread must find its context again. */
static atomic_uint context_generation = 1;

static __thread unsigned int bound_generation;
static __thread int chosen_device;
static __thread cudaError_t last_error;

/* NVIDIA's runtime 13 wants a driver of its own major version. The stand-in takes 12 as well, so
 * that tests can see how programs fare on an older driver; what it lacks says so when called. */
#define OLDEST_DRIVER 12000

/* "Not ready" is an answer, not an error: NVIDIA's runtime does not remember it either. */
cudaError_t cudart_record(cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		last_error = error;
	return error;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

static void read_properties(struct cudart_device *device)
{
	struct cudaDeviceProp *prop = &device->prop;
	const int *attr = device->attribute;

#define FROM(field, name) prop->field = (__typeof__(prop->field))attr[CU_DEVICE_ATTRIBUTE_##name]
	FROM(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
	FROM(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	FROM(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	FROM(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
	FROM(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
	FROM(warpSize, WARP_SIZE);
	FROM(memPitch, MAX_PITCH);
	FROM(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
	FROM(maxThreadsDim[0], MAX_BLOCK_DIM_X);
	FROM(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
	FROM(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
	FROM(maxGridSize[0], MAX_GRID_DIM_X);
	FROM(maxGridSize[1], MAX_GRID_DIM_Y);
	FROM(maxGridSize[2], MAX_GRID_DIM_Z);
	FROM(totalConstMem, TOTAL_CONSTANT_MEMORY);
	FROM(major, COMPUTE_CAPABILITY_MAJOR);
	FROM(minor, COMPUTE_CAPABILITY_MINOR);
	FROM(textureAlignment, TEXTURE_ALIGNMENT);
	FROM(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
	FROM(multiProcessorCount, MULTIPROCESSOR_COUNT);
	FROM(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
	FROM(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
	FROM(integrated, INTEGRATED);
	FROM(canMapHostMemory, CAN_MAP_HOST_MEMORY);
	FROM(concurrentKernels, CONCURRENT_KERNELS);
	FROM(ECCEnabled, ECC_ENABLED);
	FROM(pciBusID, PCI_BUS_ID);
	FROM(pciDeviceID, PCI_DEVICE_ID);
	FROM(pciDomainID, PCI_DOMAIN_ID);
	FROM(asyncEngineCount, ASYNC_ENGINE_COUNT);
	FROM(unifiedAddressing, UNIFIED_ADDRESSING);
	FROM(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
	FROM(l2CacheSize, L2_CACHE_SIZE);
	FROM(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
	FROM(managedMemory, MANAGED_MEMORY);
	FROM(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS);
	FROM(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
	FROM(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
	FROM(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
	FROM(hostRegisterSupported, HOST_REGISTER_SUPPORTED);
	FROM(cooperativeLaunch, COOPERATIVE_LAUNCH);
	FROM(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
	FROM(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES);
	FROM(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED);
	FROM(ipcEventSupported, IPC_EVENT_SUPPORTED);
	FROM(clusterLaunch, CLUSTER_LAUNCH);
	FROM(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS);
#undef FROM
}

static cudaError_t read_device(int ordinal)
{
	struct cudart_device *device = &cudart_devices[ordinal];
	CUresult result = CUDART_DRV(cuDeviceGet, 2000)(&device->handle, ordinal);
	CUuuid uuid;

	if (result)
		return (cudaError_t)result;
	CUDART_DRV(cuDeviceGetName, 2000)(device->prop.name, sizeof(device->prop.name),
					  device->handle);
	CUDART_DRV(cuDeviceTotalMem, 3020)(&device->prop.totalGlobalMem, device->handle);
	for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; i++) {
		/* Not every number is an attribute, and not every driver knows the newest. */
		if (CUDART_DRV(cuDeviceGetAttribute, 2000)(&device->attribute[i],
							   (CUdevice_attribute)i, device->handle))
			device->attribute[i] = 0;
	}
	if (!CUDART_DRV(cuDeviceGetUuid, 9020)(&uuid, device->handle))
		memcpy(&device->prop.uuid, &uuid, sizeof(device->prop.uuid));
	read_properties(device);
	return cudaSuccess;
}

/* Registered at the first runtime call, so it runs after the exit handlers that the program
 * registers later and before all others, and before destructors; those get error 4, as on a GPU. */
static void finish(void)
{
	cudart_unload_modules();
	for (int i = 0; i < cudart_device_count; i++) {
		if (cudart_devices[i].retained)
			CUDART_DRV(cuDevicePrimaryCtxRelease, 7000)(cudart_devices[i].handle);
		cudart_devices[i].retained = false;
	}
	atomic_store(&ended, true);
}

static void init(void)
{
	CUmoduleLoadingMode mode;
	int version = 0;

	init_error = cudart_driver_load();
	if (init_error)
		return;
	CUDART_DRV(cuDriverGetVersion, 2020)(&version);
	if (version < OLDEST_DRIVER) {
		init_error = cudaErrorInsufficientDriver;
		return;
	}
	init_error = (cudaError_t)CUDART_DRV(cuInit, 2000)(0);
	if (init_error)
		return;
	CUDART_DRV(cuModuleGetLoadingMode, 11070)(&mode);
	init_error = (cudaError_t)CUDART_DRV(cuDeviceGetCount, 2000)(&cudart_device_count);
	if (init_error)
		return;
	if (cudart_device_count > CUDART_MAX_DEVICES)
		cudart_device_count = CUDART_MAX_DEVICES;
	if (cudart_device_count == 0)
		init_error = cudaErrorNoDevice;
	for (int i = 0; !init_error && i < cudart_device_count; i++)
		init_error = read_device(i);
	atexit(finish);
}

/* Make the primary context of @ordinal current, retaining it first if nobody has. */
static cudaError_t bind_primary(int ordinal)
{
	struct cudart_device *device = &cudart_devices[ordinal];
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&cudart_lock);
	if (!device->retained) {
		result = CUDART_DRV(cuDevicePrimaryCtxRetain, 7000)(&device->primary,
								    device->handle);
		device->retained = result == CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&cudart_lock);
	if (result)
		return (cudaError_t)result;
	return (cudaError_t)CUDART_DRV(cuCtxSetCurrent, 4000)(device->primary);
}

/* Which device's primary context @context is, or -1: the program made it itself. */
static int device_of_primary(CUcontext context)
{
	int found = -1;

	pthread_mutex_lock(&cudart_lock);
	for (int i = 0; i < cudart_device_count && found < 0; i++) {
		if (cudart_devices[i].primary == context)
			found = i;
	}
	pthread_mutex_unlock(&cudart_lock);
	return found;
}

static cudaError_t bind_thread(void)
{
	unsigned int generation = atomic_load(&context_generation);
	cudaError_t error = cudaSuccess;
	CUcontext context = NULL;
	CUdevice device;
	int primary_of;

	error = (cudaError_t)CUDART_DRV(cuCtxGetCurrent, 4000)(&context);
	if (error)
		return error;
	primary_of = context ? device_of_primary(context) : chosen_device;
	if (primary_of >= 0)
		error = bind_primary(primary_of);
	if (error)
		return error;
	CUDART_DRV(cuCtxGetCurrent, 4000)(&context);
	CUDART_DRV(cuCtxGetDevice, 13000)(&device, context);
	bound_generation = generation;
	return cudaSuccess;
}

cudaError_t cudart_enter(enum cudart_need need)
{
	pthread_once(&init_once, init);
	if (atomic_load_explicit(&ended, memory_order_relaxed))
		return cudaErrorCudartUnloading;
	if (init_error || need == CUDART_NEED_DRIVER)
		return init_error;
	if (bound_generation == atomic_load_explicit(&context_generation, memory_order_acquire))
		return cudaSuccess;
	return bind_thread();
}

bool cudart_rebind(void)
{
	CUcontext context = NULL;

	if (CUDART_DRV(cuCtxGetCurrent, 4000)(&context) != CUDA_SUCCESS || context)
		return false;
	bound_generation = 0;
	return bind_thread() == cudaSuccess;
}

int cudart_chosen_device(void)
{
	return chosen_device;
}

cudaError_t cudart_check_device(int device)
{
	return device >= 0 && device < cudart_device_count ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudart_current_device(int *ret_device)
{
	CUresult result = CUDART_DRV(cuCtxGetDevice, 2000)(ret_device);

	/* No context yet: the device that the next call will get one on. */
	if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
		*ret_device = chosen_device;
		result = CUDA_SUCCESS;
	}
	return (cudaError_t)result;
}

cudaError_t cudaSetDevice(int device)
{
	cudaError_t error = cudart_enter(CUDART_NEED_DRIVER);

	if (!error)
		error = cudart_check_device(device);
	if (error)
		return cudart_record(error);
	/* Leave whatever context the thread is in, also one of the driver API. */
	CUDART_DRV(cuCtxSetCurrent, 4000)(NULL);
	chosen_device = device;
	bound_generation = 0;
	return cudart_record(bind_thread());
}

cudaError_t cudaGetDevice(int *device)
{
	if (!device)
		return cudart_record(cudaErrorInvalidValue);
	return CUDART_RUN(CUDART_NEED_DRIVER, cudart_current_device(device));
}

cudaError_t cudaDeviceReset(void)
{
	cudaError_t error = cudart_enter(CUDART_NEED_DRIVER);
	struct cudart_device *device;
	CUcontext context = NULL;
	unsigned int version;
	int ordinal = chosen_device;

	if (error)
		return cudart_record(error);
	CUDART_DRV(cuCtxGetCurrent, 4000)(&context);
	if (context) {
		CUDART_DRV(cuCtxGetApiVersion, 3020)(context, &version);
		ordinal = device_of_primary(context);
		if (ordinal < 0)
			return cudart_record(cudaErrorIncompatibleDriverContext);
	}
	device = &cudart_devices[ordinal];

	pthread_mutex_lock(&cudart_lock);
	error = (cudaError_t)CUDART_DRV(cuDevicePrimaryCtxReset, 7000)(device->handle);
	device->retained = false;
	pthread_mutex_unlock(&cudart_lock);
	atomic_fetch_add_explicit(&context_generation, 1, memory_order_release);
	return cudart_record(error);
}
