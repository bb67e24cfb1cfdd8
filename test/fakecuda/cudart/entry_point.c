/* entry_point.c - driver entry points for the program: cudaGetDriverEntryPoint and its like.
 *
 * Thread context: any thread. Compiled a second time by per_thread.c.
 */
#include "cudart.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define DEFAULT_SEARCH cudaEnablePerThreadDefaultStream
#else
#define DEFAULT_SEARCH cudaEnableDefault
#endif

/* As in NVIDIA's runtime a name that does not exist is no error: the pointer is NULL and the
 * reason in @status, which may be NULL. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
					     unsigned int version, unsigned long long flags,
					     enum cudaDriverEntryPointQueryResult *status)
{
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
	cudaError_t error;

	if (!symbol || !*symbol || !function)
		return cudart_record(cudaErrorInvalidValue);
	error = cudart_enter(CUDART_NEED_DRIVER);
	if (error)
		return cudart_record(error);

	if (flags == cudaEnableDefault)
		flags = DEFAULT_SEARCH;
	*function = NULL;
	error = (cudaError_t)cudart_get_proc_address(symbol, function, (int)version, flags, &found);
	if (status)
		*status = (enum cudaDriverEntryPointQueryResult)found;
	if (error == cudaErrorSymbolNotFound)
		error = cudaSuccess;
	return cudart_record(error);
}
