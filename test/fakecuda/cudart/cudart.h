/* cudart.h - what the files of the stand-in CUDA runtime share.
 *
 * The stand-in is a small CUDA runtime for tests, written from NVIDIA's public headers, so that
 * programs built by nvcc run on test/fakecuda's driver. NVIDIA's own libcudart refuses to run on
 * any driver but NVIDIA's; the stand-in takes no part in that and is never used with a real one's
 * private tables. It makes the driver calls that the real one makes for the same runtime call
 * (recorded on a GPU), so that a library between the two sees the same traffic.
 *
 *   program -- cudaMalloc --> stand-in -- cuMemAlloc, by address from cuGetProcAddress --> driver
 *
 * Layout: driver.c finds the driver and asks for its entry points (queries.def); state.c owns
 * start-up, contexts and the last error; register.c what nvcc's host code registers. The other
 * files are one family of runtime calls each. Files with calls that take a stream are compiled
 * twice, the second time by per_thread.c for the _ptds and _ptsz names.
 *
 * Thread context: everything may be called from any thread. Fork: a child of a process that had
 * initialised gets the driver's own refusals. Nothing here is signal safe, as in the real one.
 */
#ifndef FAKECUDA_CUDART_H
#define FAKECUDA_CUDART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <cudaTypedefs.h>

/* In libcudart.so the runtime's names are exported, in libcudart_static.a they are hidden, as in
 * NVIDIA's: two modules that link the archive have two runtimes. */
#ifdef CUDART_SHARED
#pragma GCC visibility push(default)
#else
#pragma GCC visibility push(hidden)
#endif
#include <cuda_runtime_api.h>

/* Called by the host code that nvcc generates; declared here because crt/host_runtime.h and
 * crt/device_functions.h, which have the same declarations, are for that code alone. */
void **__cudaRegisterFatBinary(void *fat_cubin);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterVar(void **handle, char *host_var, char *device_address, const char *name,
		       int ext, size_t size, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host_var, char *device_address,
			      const char *name, int ext, size_t size, int constant, int global);
void __cudaRegisterFunction(void **handle, const char *host_fun, char *device_fun,
			    const char *name, int thread_limit, uint3 *tid, uint3 *bid,
			    dim3 *block, dim3 *grid, int *warp_size);
char __cudaInitModule(void **handle);
cudaError_t __cudaGetKernel(cudaKernel_t *ret_kernel, const void *host_fun);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
				     struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
				       void *stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
			       size_t shared_bytes, cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
				    size_t shared_bytes, cudaStream_t stream);
#pragma GCC visibility pop

#pragma GCC visibility push(hidden)

/* ---- driver.c ---- */

enum cudart_query {
#define CUDART_QUERY(name, version, flags) CUDART_Q_##name##_##version##_##flags,
#include "queries.def"
#undef CUDART_QUERY
	CUDART_QUERIES
};

extern void *cudart_driver[CUDART_QUERIES];

/* The ABIs of these that the runtime asks for are older than any that cudaTypedefs.h still has. */
typedef CUresult(CUDAAPI *PFN_cuDevicePrimaryCtxRelease_v7000)(CUdevice device);
typedef CUresult(CUDAAPI *PFN_cuDevicePrimaryCtxReset_v7000)(CUdevice device);

extern PFN_cuGetProcAddress_v12000 cudart_get_proc_address;

/* The driver's entry point @name of the ABI @version, typed by NVIDIA's header. An entry point
 * that the driver lacks is a function that returns cudaErrorCallRequiresNewerDriver. */
#define CUDART_DRV(name, version)                                                              \
	((PFN_##name##_v##version)cudart_driver[CUDART_Q_##name##_##version##_0])

/* The same for calls on a stream: the legacy default stream's, or in a file compiled for it the
 * per-thread one's, which driver version @pt_version introduced. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define CUDART_STREAM_DRV(name, version, pt_version)                                           \
	((PFN_##name##_v##version)cudart_driver[CUDART_Q_##name##_##pt_version##_2])
#else
#define CUDART_STREAM_DRV(name, version, pt_version)                                           \
	((PFN_##name##_v##version)cudart_driver[CUDART_Q_##name##_##version##_0])
#endif

/* Find the driver and ask for everything in queries.def, once. Returns cudaSuccess, or
 * cudaErrorInsufficientDriver where there is no driver that answers. */
cudaError_t cudart_driver_load(void);

/* ---- state.c ---- */

struct cudart_device {
	CUdevice handle;
	CUcontext primary;	/* lock: cudart_lock; NULL until retained */
	bool retained;		/* lock: cudart_lock */
	struct cudaDeviceProp prop;
	int attribute[CU_DEVICE_ATTRIBUTE_MAX];
};

#define CUDART_MAX_DEVICES 64

extern struct cudart_device cudart_devices[CUDART_MAX_DEVICES];
extern int cudart_device_count;

/* What a runtime call needs before it may call the driver. */
enum cudart_need {
	CUDART_NEED_DRIVER,	/* cuInit and the list of devices */
	CUDART_NEED_CONTEXT,	/* that, and a context current on this thread */
};

/* Bring the calling thread to @need. Returns cudaSuccess or why not; records nothing. */
cudaError_t cudart_enter(enum cudart_need need);

/* Make a context current again after the driver said that there is none (a program that mixes
 * both APIs took it away). Returns whether the call is worth repeating. */
bool cudart_rebind(void);

/* Remember @error as this thread's last error unless it is none, or cudaErrorNotReady. Returns
 * @error. */
cudaError_t cudart_record(cudaError_t error);

/* The device this thread's next context-free call means, and the one its context belongs to. */
int cudart_chosen_device(void);
cudaError_t cudart_current_device(int *ret_device);

/* Check a device number against the list. Needs CUDART_NEED_DRIVER. */
cudaError_t cudart_check_device(int device);

/* Run one driver call as the body of a runtime call and give its result to the program. */
#define CUDART_RUN(need, call)                                                                 \
	({                                                                                     \
		cudaError_t run_error = cudart_enter(need);                                    \
		if (run_error == cudaSuccess) {                                                \
			run_error = (cudaError_t)(call);                                       \
			if (run_error == cudaErrorDeviceUninitialized && cudart_rebind())      \
				run_error = (cudaError_t)(call);                               \
		}                                                                              \
		cudart_record(run_error);                                                      \
	})

#define CUDART_CALL(call) CUDART_RUN(CUDART_NEED_CONTEXT, call)

/* ---- register.c ---- */

/* The driver's kernel for a host function that nvcc registered; loads its module when it is the
 * first. A pointer that was never registered is taken for a cudaKernel_t. */
cudaError_t cudart_kernel(const void *host_fun, CUkernel *ret_kernel);

/* Where a registered __device__, __constant__ or __managed__ variable lies in device memory. */
cudaError_t cudart_symbol(const void *host_var, CUdeviceptr *ret_address, size_t *ret_size);

/* Unload what is still loaded; after it no kernel or symbol is found. */
void cudart_unload_modules(void);

/* ---- device.c ---- */

/* The primary context of @device, without leaving the one that is current on this thread. Peer
 * access to a device brings its context into being, and so does this. */
cudaError_t cudart_primary(int device, CUcontext *ret_context);

/* ---- array.c ---- */

/* Bytes of one element of @array. */
cudaError_t cudart_array_element(cudaArray_const_t array, size_t *ret_bytes);

/* ---- convert.c ---- */

/* Fill the driver's form of a 3D copy. Sizes and places of arrays are in elements in the runtime
 * and in bytes in the driver, so this may ask the driver what an array holds. */
cudaError_t cudart_copy3d(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *ret_copy);

#pragma GCC visibility pop

#endif
