/*
 * module.c - modules: code loaded into one context, with its functions and its variables.
 *
 * Variables lie in the context's device memory. A library (library.c) has a module behind it in
 * every context that asks it for a function or a variable. Lock: fc.lock, given up while
 * cuModuleUnload waits for the context's launches.
 */
#include "test/fakecuda/code/module.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/fakecuda/context.h"
#include "test/fakecuda/memory/memory.h"

struct fc_module {
	CUmodule handle;
	struct fc_image *image;		/* counted */
	struct fc_ctx *ctx;		/* not counted: unloaded with it */
	CUfunction *functions;		/* by kernel; NULL: not asked for yet */
	CUdeviceptr *globals;		/* by variable; 0: not placed */
	const void *library;		/* behind which it stands, or NULL */
	struct fc_module *next;
};

static struct fc_module *modules;

/* ---- modules ---- */

static CUresult module_new(struct fc_ctx *ctx, struct fc_image *image, const void *library,
			   struct fc_module **ret_m)
{
	struct fc_module *m = calloc(1, sizeof(*m));

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->functions = calloc(image->n_kernels + 1, sizeof(CUfunction));
	m->globals = calloc(image->n_globals + 1, sizeof(CUdeviceptr));
	m->handle = m->functions && m->globals ? fc_handle_new(FC_H_MODULE, m) : NULL;
	if (!m->handle) {
		free(m->functions);
		free(m->globals);
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->image = fc_image_ref(image);
	m->ctx = ctx->base;
	m->library = library;
	m->next = modules;
	modules = m;
	*ret_m = m;
	return CUDA_SUCCESS;
}

static void drop_global(CUdeviceptr ptr)
{
	struct fc_alloc *a = fc_alloc_find(ptr);

	if (a) {
		fc_race_free(a, NULL);
		fc_mem_drop(a);
	}
}

static void module_drop(struct fc_module *m)
{
	struct fc_module **at = &modules;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	for (size_t i = 0; i < m->image->n_kernels; i++)
		if (m->functions[i])
			fc_function_drop(m->functions[i]);
	for (size_t i = 0; i < m->image->n_globals; i++)
		if (m->globals[i])
			drop_global(m->globals[i]);
	fc_handle_drop(m->handle);
	fc_image_put(m->image);
	free(m->functions);
	free(m->globals);
	free(m);
}

void fc_modules_drop(const struct fc_ctx *ctx, const void *library)
{
	struct fc_module *next;

	for (struct fc_module *m = modules; m; m = next) {
		next = m->next;
		if ((!ctx || m->ctx == ctx) && (!library || m->library == library))
			module_drop(m);
	}
}

void fc_module_ctx_ended(struct fc_ctx *ctx)
{
	fc_modules_drop(ctx, NULL);
}

static CUresult function_of(struct fc_module *m, size_t i, CUfunction *ret_f)
{
	if (!m->functions[i])
		m->functions[i] = fc_function_new(m->image->kernels[i], m->handle);
	*ret_f = m->functions[i];
	return *ret_f ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fc_module_function(struct fc_module *m, const char *name, CUfunction *ret_f)
{
	for (size_t i = 0; i < m->image->n_kernels; i++)
		if (!strcmp(m->image->kernels[i]->name, name))
			return function_of(m, i, ret_f);
	return CUDA_ERROR_NOT_FOUND;
}

/* A managed variable lies where the host can reach it, but counts as no allocation. */
static CUresult global_memory(struct fc_module *m, const struct fc_global *g, uint64_t *ret_ptr,
			      uint8_t **ret_host, size_t *ret_mapped)
{
	void *p;

	*ret_mapped = 0;
	if (!g->managed)
		return fc_arena_alloc(m->ctx->dev, m->ctx, g->size, ret_ptr, ret_host);
	*ret_mapped = (g->size + 4095) & ~(size_t)4095;
	p = mmap(NULL, *ret_mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_ptr = (uint64_t)(uintptr_t)p;
	*ret_host = p;
	return CUDA_SUCCESS;
}

static CUresult place_global(struct fc_module *m, size_t i)
{
	const struct fc_global *g = &m->image->globals[i];
	struct fc_alloc *a;
	uint64_t ptr;
	uint8_t *host;
	size_t mapped;
	CUresult r = global_memory(m, g, &ptr, &host, &mapped);

	if (r)
		return r;
	a = fc_mem_new(FC_MEM_GLOBAL, m->ctx->dev, m->ctx, ptr, g->size, host);
	if (!a) {
		if (mapped)
			munmap(host, mapped);
		else
			fc_arena_free(m->ctx->dev, ptr, g->size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (mapped) {
		a->reserved = mapped;
		a->readable_by_host = true;
	}
	/* A mapping of its own and whole chunks (phys.c) come as zero: not touched, they take no time. */
	if (g->init)
		memcpy(host, g->init, g->size);
	else if (!mapped && g->size < FC_CHUNK)
		memset(host, 0, g->size);
	fc_race_alloc(a, NULL);
	m->globals[i] = ptr;
	return CUDA_SUCCESS;
}

CUresult fc_module_global(struct fc_module *m, const char *name, bool managed, CUdeviceptr *dptr,
			  size_t *bytes)
{
	for (size_t i = 0; i < m->image->n_globals; i++) {
		const struct fc_global *g = &m->image->globals[i];
		CUresult r;

		if (strcmp(g->name, name) || (managed && !g->managed))
			continue;
		r = m->globals[i] ? CUDA_SUCCESS : place_global(m, i);
		if (!r && dptr)
			*dptr = m->globals[i];
		if (!r && bytes)
			*bytes = g->size;
		return r;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult fc_cuModuleLoadData(CUmodule *module, const void *image)
{
	struct fc_image *loaded;
	struct fc_module *m;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_image_load(image, &loaded);
	if (r)
		return r;
	r = module_new(ctx, loaded, NULL, &m);
	fc_image_put(loaded);
	for (size_t i = 0; !r && i < m->image->n_globals; i++) {
		r = place_global(m, i);
		if (r)
			module_drop(m);
	}
	if (!r)
		*module = m->handle;
	return r;
}

CUresult fc_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
			       CUjit_option *options, void **optionValues)
{
	if (numOptions && (!options || !optionValues))
		return CUDA_ERROR_INVALID_VALUE;
	return fc_cuModuleLoadData(module, image);
}

CUresult fc_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return fc_cuModuleLoadData(module, fatCubin);
}

CUresult fc_read_file(const char *path, char **ret_text)
{
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct stat st;
	char *text = NULL;

	if (fd < 0)
		return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
	if (!fstat(fd, &st) && (text = calloc(1, (size_t)st.st_size + 16)) &&
	    read(fd, text, (size_t)st.st_size) != st.st_size) {
		free(text);
		text = NULL;
	}
	close(fd);
	*ret_text = text;
	return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_SOURCE;
}

CUresult fc_cuModuleLoad(CUmodule *module, const char *fname)
{
	char *text;
	CUresult r = fc_read_file(fname, &text);

	if (r)
		return r;
	r = fc_cuModuleLoadData(module, text);
	free(text);
	return r;
}

/* Waits for launches of the context, which may be using the module's variables. */
CUresult fc_cuModuleUnload(CUmodule hmod)
{
	struct fc_module *m = fc_handle_get(hmod, FC_H_MODULE);
	struct fc_ctx *ctx;
	CUresult r;

	if (!m || m->library)
		return CUDA_ERROR_INVALID_HANDLE;
	ctx = fc_ctx_ref(m->ctx);
	r = fc_wait_ctx(ctx, "cuModuleUnload");
	if (!r && fc_handle_get(hmod, FC_H_MODULE) == m)
		module_drop(m);
	fc_ctx_put(ctx);
	return r;
}

CUresult fc_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct fc_module *m = fc_handle_get(hmod, FC_H_MODULE);

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	return hfunc && name ? fc_module_function(m, name, hfunc) : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct fc_module *m = fc_handle_get(hmod, FC_H_MODULE);

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	return name ? fc_module_global(m, name, false, dptr, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod,
			      const char *name)
{
	CUdeviceptr ptr;
	size_t size;
	CUresult r = fc_cuModuleGetGlobal_v2(&ptr, &size, hmod, name);

	if (r)
		return r;
	if (ptr > UINT32_MAX)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (dptr)
		*dptr = (CUdeviceptr_v1)ptr;
	if (bytes)
		*bytes = (unsigned int)size;
	return CUDA_SUCCESS;
}

CUresult fc_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* The one of the current context, made if there is none. */
CUresult fc_module_behind(const void *library, struct fc_image *image, struct fc_module **ret_m)
{
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	for (struct fc_module *m = modules; m; m = m->next)
		if (m->library == library && m->ctx == ctx->base) {
			*ret_m = m;
			return CUDA_SUCCESS;
		}
	return module_new(ctx, image, library, ret_m);
}

CUmodule fc_module_handle(const struct fc_module *m)
{
	return m->handle;
}

void fc_module_reset(void)
{
	fc_library_reset();
	fc_modules_drop(NULL, NULL);
}
