/*
 * library.c - libraries: code loaded for all contexts.
 *
 * A library's kernels are usable in every context; where a context-bound function or a variable is
 * asked of it, a module of the current context stands behind it. It may be unloaded while launches
 * of its kernels are pending. Lock: fc.lock.
 */
#include "test/fakecuda/code/module.h"

#include <stdlib.h>
#include <string.h>

struct library {
	CUlibrary handle;
	struct fc_image *image;		/* counted */
	struct library *next;
};

static struct library *libraries;

static CUresult library_new(const void *code, CUlibrary *ret_handle)
{
	struct library *lib = calloc(1, sizeof(*lib));
	CUresult r;

	if (!lib)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = fc_image_load(code, &lib->image);
	if (!r && !(lib->handle = fc_handle_new(FC_H_LIBRARY, lib))) {
		fc_image_put(lib->image);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r) {
		free(lib);
		return r;
	}
	for (size_t i = 0; i < lib->image->n_kernels; i++)
		lib->image->kernels[i]->handle = fc_handle_new(FC_H_KERNEL, lib->image->kernels[i]);
	lib->next = libraries;
	libraries = lib;
	*ret_handle = lib->handle;
	return CUDA_SUCCESS;
}

static void library_drop(struct library *lib)
{
	struct library **at = &libraries;

	while (*at != lib)
		at = &(*at)->next;
	*at = lib->next;
	fc_modules_drop(NULL, lib);
	for (size_t i = 0; i < lib->image->n_kernels; i++) {
		fc_handle_drop(lib->image->kernels[i]->handle);
		lib->image->kernels[i]->handle = NULL;
	}
	fc_handle_drop(lib->handle);
	fc_image_put(lib->image);
	free(lib);
}

CUresult fc_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
			      void **jitOptionsValues, unsigned int numJitOptions,
			      CUlibraryOption *libraryOptions, void **libraryOptionValues,
			      unsigned int numLibraryOptions)
{
	if (!library || (numJitOptions && (!jitOptions || !jitOptionsValues)) ||
	    (numLibraryOptions && (!libraryOptions || !libraryOptionValues)))
		return CUDA_ERROR_INVALID_VALUE;
	return library_new(code, library);
}

CUresult fc_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
				  CUjit_option *jitOptions, void **jitOptionsValues,
				  unsigned int numJitOptions, CUlibraryOption *libraryOptions,
				  void **libraryOptionValues, unsigned int numLibraryOptions)
{
	char *text;
	CUresult r = fc_read_file(fileName, &text);

	if (r)
		return r;
	r = fc_cuLibraryLoadData(library, text, jitOptions, jitOptionsValues, numJitOptions,
				 libraryOptions, libraryOptionValues, numLibraryOptions);
	free(text);
	return r;
}

CUresult fc_cuLibraryUnload(CUlibrary library)
{
	struct library *lib = fc_handle_get(library, FC_H_LIBRARY);

	if (!lib)
		return CUDA_ERROR_INVALID_HANDLE;
	library_drop(lib);
	return CUDA_SUCCESS;
}

CUresult fc_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	struct library *lib = fc_handle_get(library, FC_H_LIBRARY);
	struct fc_kernel *k;

	if (!lib || !pKernel || !name)
		return lib ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	k = fc_image_kernel(lib->image, name);
	if (!k)
		return CUDA_ERROR_NOT_FOUND;
	*pKernel = k->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	struct library *lib = fc_handle_get(library, FC_H_LIBRARY);
	struct fc_module *m;
	CUresult r;

	if (!lib || !pMod)
		return lib ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	r = fc_module_behind(lib, lib->image, &m);
	if (!r)
		*pMod = fc_module_handle(m);
	return r;
}

static CUresult library_global(CUlibrary library, const char *name, bool managed,
			       CUdeviceptr *dptr, size_t *bytes)
{
	struct library *lib = fc_handle_get(library, FC_H_LIBRARY);
	struct fc_module *m;
	CUresult r;

	if (!lib || !name)
		return lib ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	r = fc_module_behind(lib, lib->image, &m);
	return r ? r : fc_module_global(m, name, managed, dptr, bytes);
}

CUresult fc_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
			       const char *name)
{
	return library_global(library, name, false, dptr, bytes);
}

CUresult fc_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				const char *name)
{
	return library_global(library, name, true, dptr, bytes);
}

CUresult fc_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	struct fc_kernel *k = fc_handle_get(kernel, FC_H_KERNEL);
	struct fc_module *m;
	CUresult r = CUDA_ERROR_INVALID_HANDLE;

	if (!k || !pFunc)
		return k ? CUDA_ERROR_INVALID_VALUE : r;
	for (struct library *l = libraries; l; l = l->next)
		if (l->image == k->module) {
			r = fc_module_behind(l, l->image, &m);
			return r ? r : fc_module_function(m, k->name, pFunc);
		}
	return r;
}

void fc_library_reset(void)
{
	while (libraries)
		library_drop(libraries);
}
