/* conf.h - how the conformance program prints, and what its sections share.
 *
 * Every line is "section | call -> result". A result is an error code, a truth, a size or a
 * relation: nothing that differs from run to run. Lines come from the call as it stands in the
 * source (CODE) or from a sentence (TRUTH, VALUE).
 *
 * Thread context: the main thread prints, unless a section says otherwise.
 */
#ifndef TEST_CONFORMANCE_CONF_H
#define TEST_CONFORMANCE_CONF_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *conf_section = "";

static inline void conf_print(const char *what, const char *format, ...)
{
	va_list args;

	printf("%s | %s -> ", conf_section, what);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static inline int conf_code(const char *what, int code)
{
	conf_print(what, "%d", code);
	cudaGetLastError();
	return code;
}

/* Make the call and print its code, runtime or driver: they share their numbers. */
#define CODE(call) conf_code(#call, (int)(call))
/* The same under a name that says more than the call. */
#define CODE_OF(what, call) conf_code(what, (int)(call))
#define TRUTH(what, condition) conf_print(what, "%s", (condition) ? "yes" : "no")
#define VALUE(what, number) conf_print(what, "%lld", (long long)(number))

/* What a section cannot do without: if it fails the section ends with a line that says so. */
#define NEED(call)                                                                             \
	do {                                                                                   \
		int need_code = (int)(call);                                                   \
		if (need_code) {                                                               \
			conf_print("SECTION CUT SHORT at " #call, "%d", need_code);            \
			cudaGetLastError();                                                    \
			return;                                                                \
		}                                                                              \
	} while (0)

/* A driver entry point by name and version; a stand-in that returns 500 where there is none. */
static inline CUresult conf_missing(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

static inline void *conf_entry(const char *name, unsigned version)
{
	cudaDriverEntryPointQueryResult status;
	void *function = NULL;

	if (cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault,
					     &status) != cudaSuccess || !function)
		function = (void *)conf_missing;
	cudaGetLastError();
	return function;
}
#define DRIVER(name, version) ((PFN_##name##_v##version)conf_entry(#name, version))

/* ---- kernels: the fake driver knows these names ---- */

/* Busy for @ns nanoseconds on a GPU, for five virtual seconds on the fake. */
extern "C" __global__ void spin(unsigned long long ns)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - start < ns);
}

extern "C" __global__ void fill(uint32_t *p, uint32_t value, uint32_t n)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		p[i] = value;
}

/* Writes where there is nothing: the context is lost. */
extern "C" __global__ void fault(uint32_t *p)
{
	*p = 1;
}

#define SPIN_NS 250000000ull

/* A stream that does not synchronise with the legacy one, for work that is in the way. */
static cudaStream_t conf_busy;

static inline void busy_start(void)
{
	spin<<<1, 1, 0, conf_busy>>>(SPIN_NS);
}

static inline bool busy(void)
{
	cudaError_t error = cudaStreamQuery(conf_busy);

	cudaGetLastError();
	return error == cudaErrorNotReady;
}

static inline void busy_end(void)
{
	cudaStreamSynchronize(conf_busy);
}

/* Make @call while the busy stream runs a long kernel; print its code and whether it waited. */
#define WAITS(what, call)                                                                      \
	do {                                                                                   \
		int waits_code;                                                                \
		busy_start();                                                                  \
		waits_code = (int)(call);                                                      \
		conf_print(what, "%d, waited: %s", waits_code, busy() ? "no" : "yes");         \
		cudaGetLastError();                                                            \
		busy_end();                                                                    \
	} while (0)

/* Bytes that cudaMemGetInfo counts as used. */
static inline long long used_bytes(void)
{
	size_t free_bytes = 0, total_bytes = 0;

	cudaDeviceSynchronize();
	cudaMemGetInfo(&free_bytes, &total_bytes);
	return (long long)(total_bytes - free_bytes);
}

static inline bool conf_holds(const void *ptr, unsigned char value, size_t bytes)
{
	unsigned char *copy = (unsigned char *)calloc(1, bytes);
	bool same = copy && cudaMemcpy(copy, ptr, bytes, cudaMemcpyDefault) == cudaSuccess;

	for (size_t i = 0; i < bytes && same; i++)
		same = copy[i] == value;
	free(copy);
	return same;
}

#endif
