/* driver.c - the driver library and its entry points.
 *
 * Owns the handle of libcuda.so.1 and the table of everything in queries.def. As in NVIDIA's
 * runtime the only dlsym is for cuGetProcAddress_v2: every other entry point comes through it, at
 * the first runtime call, long before most of them are needed. Interposers depend on that order,
 * so it is kept exactly.
 *
 * Thread context: any thread; done once. Fork: the table stays valid in the child.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "cudart.h"

void *cudart_driver[CUDART_QUERIES];
PFN_cuGetProcAddress_v12000 cudart_get_proc_address;

static const struct {
	const char *name;
	int version;
	cuuint64_t flags;
} queries[CUDART_QUERIES] = {
#define CUDART_QUERY(name, version, flags) { #name, version, flags },
#include "queries.def"
#undef CUDART_QUERY
};

/* Stands in for an entry point that an old driver lacks. It is called with the arguments of any
 * of them: the calling conventions we run on let a callee ignore arguments. */
static CUresult entry_point_missing(void)
{
	return (CUresult)cudaErrorCallRequiresNewerDriver;
}

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static cudaError_t load_error;

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUdriverProcAddressQueryResult found;
	void *address;

	if (!library) {
		load_error = cudaErrorInsufficientDriver;
		return;
	}
	cudart_get_proc_address =
		(PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
	if (!cudart_get_proc_address) {
		/* The driver is older than 12.0. NVIDIA's runtime falls back on plain dlsym; it
		 * then refuses to run, and so do we. */
		load_error = cudaErrorInsufficientDriver;
		return;
	}

	/* NVIDIA's runtime opens with a question that has no answer; the result is not used. */
	cudart_get_proc_address("", &address, 0, 0, &found);

	for (int i = 0; i < CUDART_QUERIES; i++) {
		address = NULL;
		if (cudart_get_proc_address(queries[i].name, &address, queries[i].version,
					    queries[i].flags, &found) != CUDA_SUCCESS || !address)
			address = (void *)entry_point_missing;
		cudart_driver[i] = address;
	}
}

cudaError_t cudart_driver_load(void)
{
	pthread_once(&load_once, load);
	return load_error;
}
