/*
 * func.c - functions and kernels: what they are called, what they need, what fits; and the launch
 * of CUDA 2, with parameters set one by one. Lock: fc.lock.
 */
#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/code/module.h"

#define DEFAULT_SHARED 49152
#define MAX_SHARED 232448
#define OLD_PARAMS 4096

struct function {		/* behind a CUfunction */
	struct fc_kernel *k;
	CUmodule module;
	uint8_t *params;	/* of the old launch; NULL: none set */
	unsigned int block[3], shared;
};

static struct function *get(CUfunction f)
{
	return fc_handle_get(f, FC_H_FUNCTION);
}

CUfunction fc_function_new(struct fc_kernel *k, void *owner)
{
	struct function *fn = calloc(1, sizeof(*fn));
	CUfunction f;

	if (!fn)
		return NULL;
	fn->k = k;
	fn->module = owner;
	fn->block[0] = fn->block[1] = fn->block[2] = 1;
	f = fc_handle_new(FC_H_FUNCTION, fn);
	if (!f)
		free(fn);
	return f;
}

void fc_function_drop(CUfunction f)
{
	struct function *fn = get(f);

	fc_handle_drop(f);
	free(fn->params);
	free(fn);
}

/* A CUkernel may stand wherever a CUfunction is wanted. */
CUresult fc_kernel_get(CUfunction f, struct fc_kernel **ret_k)
{
	struct function *fn = get(f);

	*ret_k = fn ? fn->k : fc_handle_get(f, FC_H_KERNEL);
	return *ret_k ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- attributes ---- */

static CUresult get_attribute(const struct fc_kernel *k, CUfunction_attribute attrib, int *pi)
{
	if (!pi || (int)attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attrib) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*pi = 1024;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*pi = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*pi = 75;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*pi = 90;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*pi = k->max_dynamic_shared ? k->max_dynamic_shared : DEFAULT_SHARED;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*pi = -1;
		break;
	default:
		*pi = 0;
	}
	return CUDA_SUCCESS;
}

CUresult fc_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(hfunc, &k);

	return r ? r : get_attribute(k, attrib, pi);
}

CUresult fc_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
				 CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	return r ? r : fc_cuFuncGetAttribute(pi, attrib, (CUfunction)kernel);
}

CUresult fc_cuFuncLoad(CUfunction function)
{
	return get(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- the old launch ---- */

CUresult fc_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	static const uint8_t zeroes[OLD_PARAMS];
	struct function *fn = get(f);
	size_t size = OLD_PARAMS;
	void *extra[5];

	if (!fn)
		return CUDA_ERROR_INVALID_HANDLE;
	extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	extra[1] = fn->params ? fn->params : (void *)(uintptr_t)zeroes;
	extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	extra[3] = &size;
	extra[4] = CU_LAUNCH_PARAM_END;
	return fc_cuLaunchKernel(f, (unsigned int)grid_width, (unsigned int)grid_height, 1,
				 fn->block[0], fn->block[1], fn->block[2], fn->shared, hStream,
				 NULL, extra);
}

CUresult fc_cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
	return fc_cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult fc_cuLaunch(CUfunction f)
{
	return fc_cuLaunchGrid(f, 1, 1);
}
