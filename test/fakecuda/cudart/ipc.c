/* ipc.c - memory and events of other processes.
 *
 * Thread context: any thread.
 */
#include <string.h>

#include "cudart.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle) &&
		       sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle),
	       "handles are passed through");

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
	return CUDART_CALL(CUDART_DRV(cuIpcGetMemHandle, 4010)((CUipcMemHandle *)handle,
							       (CUdeviceptr)ptr));
}

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned int flags)
{
	CUipcMemHandle driver_handle;
	CUdeviceptr address = 0;
	cudaError_t error;

	memcpy(&driver_handle, &handle, sizeof(driver_handle));
	error = CUDART_CALL(CUDART_DRV(cuIpcOpenMemHandle, 11000)(&address, driver_handle, flags));
	if (!error)
		*ptr = (void *)address;
	return error;
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
	return CUDART_CALL(CUDART_DRV(cuIpcCloseMemHandle, 4010)((CUdeviceptr)ptr));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
	return CUDART_CALL(CUDART_DRV(cuIpcGetEventHandle, 4010)((CUipcEventHandle *)handle,
								 event));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
	CUipcEventHandle driver_handle;

	memcpy(&driver_handle, &handle, sizeof(driver_handle));
	return CUDART_CALL(CUDART_DRV(cuIpcOpenEventHandle, 4010)(event, driver_handle));
}

cudaError_t cudaImportExternalMemory(cudaExternalMemory_t *ret_memory,
				     const struct cudaExternalMemoryHandleDesc *desc)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC driver_desc;

	if (!ret_memory || !desc)
		return cudart_record(cudaErrorInvalidValue);
	driver_desc = (CUDA_EXTERNAL_MEMORY_HANDLE_DESC){
		.type = (CUexternalMemoryHandleType)desc->type,
		.size = desc->size,
		.flags = desc->flags,
	};
	memcpy(&driver_desc.handle, &desc->handle, sizeof(driver_desc.handle));
	return CUDART_CALL(CUDART_DRV(cuImportExternalMemory, 10000)(
		(CUexternalMemory *)ret_memory, &driver_desc));
}

cudaError_t cudaExternalMemoryGetMappedBuffer(void **ptr, cudaExternalMemory_t memory,
					      const struct cudaExternalMemoryBufferDesc *desc)
{
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC driver_desc;
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!ptr || !desc)
		return cudart_record(cudaErrorInvalidValue);
	driver_desc = (CUDA_EXTERNAL_MEMORY_BUFFER_DESC){ .offset = desc->offset,
							  .size = desc->size,
							  .flags = desc->flags };
	error = CUDART_CALL(CUDART_DRV(cuExternalMemoryGetMappedBuffer, 10000)(
		&address, (CUexternalMemory)memory, &driver_desc));
	if (!error)
		*ptr = (void *)address;
	return error;
}

cudaError_t cudaDestroyExternalMemory(cudaExternalMemory_t memory)
{
	return CUDART_CALL(CUDART_DRV(cuDestroyExternalMemory, 10000)((CUexternalMemory)memory));
}
