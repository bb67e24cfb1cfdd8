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

static CUresult set_attribute(struct fc_kernel *k, CUfunction_attribute attrib, int value)
{
	if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (value < 0 || value > MAX_SHARED)
			return CUDA_ERROR_INVALID_VALUE;
		k->max_dynamic_shared = value;
		return CUDA_SUCCESS;
	}
	return attrib >= CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
	       attrib < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(hfunc, &k);

	return r ? r : get_attribute(k, attrib, pi);
}

CUresult fc_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(hfunc, &k);

	return r ? r : set_attribute(k, attrib, value);
}

CUresult fc_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
				 CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	return r ? r : fc_cuFuncGetAttribute(pi, attrib, (CUfunction)kernel);
}

CUresult fc_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
				 CUdevice dev)
{
	struct fc_device *device;
	CUresult r = fc_device_get(dev, &device);

	return r ? r : fc_cuFuncSetAttribute((CUfunction)kernel, attrib, val);
}

CUresult fc_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	struct fc_kernel *k;

	(void)config;
	return fc_kernel_get(hfunc, &k);
}

CUresult fc_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	(void)dev;
	return fc_cuFuncSetCacheConfig((CUfunction)kernel, config);
}

CUresult fc_cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
	struct fc_kernel *k;

	(void)config;
	return fc_kernel_get(hfunc, &k);
}

CUresult fc_cuFuncGetName(const char **name, CUfunction hfunc)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(hfunc, &k);

	if (r)
		return r;
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = k->name;
	return CUDA_SUCCESS;
}

CUresult fc_cuKernelGetName(const char **name, CUkernel hfunc)
{
	return fc_cuFuncGetName(name, (CUfunction)hfunc);
}

CUresult fc_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
			       size_t *paramSize)
{
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(func, &k);

	if (r)
		return r;
	if (!paramOffset || paramIndex >= k->n_params)
		return CUDA_ERROR_INVALID_VALUE;
	*paramOffset = k->offsets[paramIndex];
	if (paramSize)
		*paramSize = k->sizes[paramIndex];
	return CUDA_SUCCESS;
}

CUresult fc_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
				 size_t *paramSize)
{
	return fc_cuFuncGetParamInfo((CUfunction)kernel, paramIndex, paramOffset, paramSize);
}

CUresult fc_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	struct function *fn = get(hfunc);

	if (!fn || !hmod)
		return fn ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*hmod = fn->module;
	return CUDA_SUCCESS;
}

CUresult fc_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	if (!get(function) || !state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

CUresult fc_cuFuncLoad(CUfunction function)
{
	return get(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- the old launch ---- */

CUresult fc_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
	struct function *fn = get(hfunc);

	if (!fn || x <= 0 || y <= 0 || z <= 0)
		return fn ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	fn->block[0] = (unsigned int)x;
	fn->block[1] = (unsigned int)y;
	fn->block[2] = (unsigned int)z;
	return CUDA_SUCCESS;
}

CUresult fc_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
	struct function *fn = get(hfunc);

	if (!fn)
		return CUDA_ERROR_INVALID_HANDLE;
	fn->shared = bytes;
	return CUDA_SUCCESS;
}

CUresult fc_cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
	if (!get(hfunc))
		return CUDA_ERROR_INVALID_HANDLE;
	return numbytes <= OLD_PARAMS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	struct function *fn = get(hfunc);

	if (!fn)
		return CUDA_ERROR_INVALID_HANDLE;
	if (offset < 0 || !ptr || numbytes > OLD_PARAMS ||
	    (unsigned int)offset > OLD_PARAMS - numbytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!fn->params)
		fn->params = calloc(1, OLD_PARAMS);
	if (!fn->params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(fn->params + offset, ptr, numbytes);
	return CUDA_SUCCESS;
}

CUresult fc_cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
	return fc_cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult fc_cuParamSetf(CUfunction hfunc, int offset, float value)
{
	return fc_cuParamSetv(hfunc, offset, &value, sizeof(value));
}

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
