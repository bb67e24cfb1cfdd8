/*
 * launch.c - kernel launches, in all their forms, as one kind of work.
 *
 * The values of the parameters are copied at the call, by the layout of the kernel's `.entry`.
 * Lock: fc.lock.
 */
#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/code/kernels.h"
#include "test/fakecuda/code/module.h"

#define MAX_SHARED 232448u	/* of a block, opted in */
#define DEFAULT_SHARED 49152u

struct kernel_work {
	struct fc_work work;
	CUDA_KERNEL_NODE_PARAMS_v2 p;
	struct fc_args args;
	uint8_t *values;
	CUlaunchAttribute *attrs;
	unsigned int n_attrs;
};

static CUresult effect(struct fc_work *w, struct fc_op *op)
{
	(void)op;
	return fc_kernel_run(&((struct kernel_work *)w)->args);
}

static void release(struct fc_work *work)
{
	struct kernel_work *w = (struct kernel_work *)work;

	fc_image_put(w->args.k->module);
	free(w->args.args);
	free(w->values);
	free(w->attrs);
	free(w);
}

/* ---- parameters ---- */

/* The buffer that CU_LAUNCH_PARAM_BUFFER_POINTER in @extra names, or NULL. */
static const uint8_t *extra_buffer(void *const *extra, size_t *ret_size)
{
	const uint8_t *p = NULL;

	*ret_size = 0;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			p = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*ret_size = *(size_t *)extra[1];
	}
	return p;
}

static CUresult copy_params(struct kernel_work *w)
{
	const struct fc_kernel *k = w->args.k;
	const uint8_t *buffer = NULL;
	size_t size = 0;

	w->values = calloc(1, k->params_size + 8);
	w->args.args = calloc(k->n_params + 1u, sizeof(void *));
	if (!w->values || !w->args.args)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (w->p.extra)
		buffer = extra_buffer(w->p.extra, &size);
	if (k->n_params && !w->p.kernelParams && (!buffer || size < k->params_size))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < k->n_params; i++) {
		const void *from = buffer ? buffer + k->offsets[i] : w->p.kernelParams[i];

		w->args.args[i] = w->values + k->offsets[i];
		memcpy(w->args.args[i], from, k->sizes[i]);
	}
	w->p.kernelParams = w->args.args;
	w->p.extra = NULL;
	return CUDA_SUCCESS;
}

static CUresult copy_attrs(struct kernel_work *w, const CUlaunchAttribute *attrs, unsigned int n)
{
	if (!n)
		return CUDA_SUCCESS;
	if (!attrs)
		return CUDA_ERROR_INVALID_VALUE;
	w->attrs = malloc(n * sizeof(*attrs));
	if (!w->attrs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(w->attrs, attrs, n * sizeof(*attrs));
	w->n_attrs = n;
	for (unsigned int i = 0; i < n; i++)
		if (attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			w->work.overlaps = attrs[i].value.programmaticStreamSerializationAllowed;
	return CUDA_SUCCESS;
}

static CUresult check_shape(const CUDA_KERNEL_NODE_PARAMS_v2 *p, const struct fc_kernel *k)
{
	unsigned int shared = k->max_dynamic_shared ? (unsigned int)k->max_dynamic_shared :
						      DEFAULT_SHARED;

	if (!p->gridDimX || !p->gridDimY || !p->gridDimZ || p->gridDimY > 65535 ||
	    p->gridDimZ > 65535 || p->gridDimX > 2147483647u || !p->blockDimX || !p->blockDimY ||
	    !p->blockDimZ || p->blockDimX > 1024 || p->blockDimY > 1024 || p->blockDimZ > 64 ||
	    p->blockDimX * p->blockDimY * p->blockDimZ > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	return p->sharedMemBytes > shared ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult fc_work_kernel(struct fc_ctx *ctx, const CUDA_KERNEL_NODE_PARAMS_v2 *p,
			const CUlaunchAttribute *attrs, unsigned int n_attrs,
			struct fc_work **ret_work)
{
	struct kernel_work *w;
	struct fc_kernel *k;
	CUresult r = fc_kernel_get(p->func ? p->func : (CUfunction)p->kern, &k);

	r = r ? r : check_shape(p, k);
	if (r)
		return r;
	w = (struct kernel_work *)fc_work_new(sizeof(*w), FC_WORK_KERNEL, k->name, ctx,
					      fc_kernel_ns(k->name));
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->work.effect = effect;
	w->work.release = release;
	w->p = *p;
	w->args.k = k;
	fc_image_ref(k->module);
	r = copy_params(w);
	r = r ? r : copy_attrs(w, attrs, n_attrs);
	if (!r && fc_kernel_touch(&w->work, &w->args))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r) {
		fc_work_put(&w->work);
		return r;
	}
	fc_waiting_kernel(&w->work, k, w->args.args);
	*ret_work = &w->work;
	return CUDA_SUCCESS;
}

/* ---- entries ---- */

static CUresult launch(const CUDA_KERNEL_NODE_PARAMS_v2 *p, const CUlaunchAttribute *attrs,
		       unsigned int n_attrs, CUstream hStream)
{
	struct fc_stream *s;
	struct fc_work *w;
	CUresult r = fc_stream_get(hStream, &s);

	r = r ? r : fc_work_kernel(s->ctx, p, attrs, n_attrs, &w);
	if (r)
		return r;
	r = fc_submit(s, w, NULL);
	fc_work_put(w);
	return r;
}

CUresult fc_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
			   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
			   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
			   void **kernelParams, void **extra)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p = {
		.func = f,
		.gridDimX = gridDimX, .gridDimY = gridDimY, .gridDimZ = gridDimZ,
		.blockDimX = blockDimX, .blockDimY = blockDimY, .blockDimZ = blockDimZ,
		.sharedMemBytes = sharedMemBytes, .kernelParams = kernelParams, .extra = extra,
	};

	if (kernelParams && extra)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(&p, NULL, 0, hStream);
}

CUresult fc_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
			     void **extra)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;

	if (!config || (kernelParams && extra))
		return CUDA_ERROR_INVALID_VALUE;
	p = (CUDA_KERNEL_NODE_PARAMS_v2){
		.func = f,
		.gridDimX = config->gridDimX, .gridDimY = config->gridDimY,
		.gridDimZ = config->gridDimZ, .blockDimX = config->blockDimX,
		.blockDimY = config->blockDimY, .blockDimZ = config->blockDimZ,
		.sharedMemBytes = config->sharedMemBytes,
		.kernelParams = kernelParams, .extra = extra,
	};
	return launch(&p, config->attrs, config->numAttrs, config->hStream);
}

CUresult fc_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
				      unsigned int gridDimZ, unsigned int blockDimX,
				      unsigned int blockDimY, unsigned int blockDimZ,
				      unsigned int sharedMemBytes, CUstream hStream,
				      void **kernelParams)
{
	return fc_cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
				 sharedMemBytes, hStream, kernelParams, NULL);
}
