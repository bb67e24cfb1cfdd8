/*
 * link.c - the linker: PTX texts put together, one behind the other; the result is PTX again, which
 * is what this driver loads. Lock: fc.lock.
 */
#include "test/fakecuda/code/module.h"

#include <stdlib.h>
#include <string.h>

struct link {
	char *text;
	size_t size;		/* without the NUL behind it */
};

CUresult fc_cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
			    CUlinkState *stateOut)
{
	struct link *l;

	if (!stateOut || (numOptions && (!options || !optionValues)))
		return CUDA_ERROR_INVALID_VALUE;
	l = calloc(1, sizeof(*l));
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*stateOut = fc_handle_new(FC_H_LINK, l);
	if (*stateOut)
		return CUDA_SUCCESS;
	free(l);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fc_cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues,
			 CUlinkState *stateOut)
{
	return fc_cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult fc_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
			     const char *name, unsigned int numOptions, CUjit_option *options,
			     void **optionValues)
{
	struct link *l = fc_handle_get(state, FC_H_LINK);
	char *text;

	(void)name;
	(void)numOptions;
	(void)options;
	(void)optionValues;
	if (!l || !data || !size)
		return l ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (type != CU_JIT_INPUT_PTX)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	size = strnlen(data, size);
	text = realloc(l->text, l->size + size + 2);
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(text + l->size, data, size);
	l->text = text;
	l->size += size;
	l->text[l->size++] = '\n';
	l->text[l->size] = 0;
	return CUDA_SUCCESS;
}

CUresult fc_cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
			  const char *name, unsigned int numOptions, CUjit_option *options,
			  void **optionValues)
{
	return fc_cuLinkAddData_v2(state, type, data, size, name, numOptions, options,
				   optionValues);
}

CUresult fc_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
			     unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	char *text;
	CUresult r = fc_read_file(path, &text);

	if (r)
		return r;
	r = fc_cuLinkAddData_v2(state, type, text, strlen(text) + 1, path, numOptions, options,
				optionValues);
	free(text);
	return r;
}

CUresult fc_cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
			  unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	return fc_cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

/* The result belongs to the link, until that is destroyed. */
CUresult fc_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	struct link *l = fc_handle_get(state, FC_H_LINK);

	if (!l || !cubinOut || !l->text)
		return l ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*cubinOut = l->text;
	if (sizeOut)
		*sizeOut = l->size + 1;
	return CUDA_SUCCESS;
}

CUresult fc_cuLinkDestroy(CUlinkState state)
{
	struct link *l = fc_handle_get(state, FC_H_LINK);

	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	fc_handle_drop(state);
	free(l->text);
	free(l);
	return CUDA_SUCCESS;
}
