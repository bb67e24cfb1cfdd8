/*
 * module.h - code as the driver holds it: images, modules, libraries, functions.
 */
#ifndef FC_MODULE_H
#define FC_MODULE_H

#include "test/fakecuda/state.h"

struct fc_global {		/* a variable at file scope of the PTX */
	char *name;
	size_t size, align;
	bool managed;
	uint8_t *init;		/* @size bytes; NULL: zero */
};

/* What one piece of code defines. Shared by its library, its modules and pending launches. */
struct fc_image {
	unsigned int refs;
	struct fc_kernel **kernels;
	size_t n_kernels;
	struct fc_global *globals;
	size_t n_globals;
};

/* fc_image_load - from PTX text, a fat binary or its wrapper. 209: nothing in it is PTX. */
CUresult fc_image_load(const void *code, struct fc_image **ret_image);
struct fc_image *fc_image_ref(struct fc_image *image);
void fc_image_put(struct fc_image *image);
struct fc_kernel *fc_image_kernel(const struct fc_image *image, const char *name);

/* fc_ptx_parse - what @text (@size bytes, need not end in NUL) defines, added to @image; names
 * already there are left alone. 0 or -ENOMEM. */
int fc_ptx_parse(struct fc_image *image, const char *text, size_t size);

/* fc_kernel_free - by fc_image_put. */
void fc_kernel_free(struct fc_kernel *k);

/* ---- module.c, for library.c ---- */

struct fc_module;

/* fc_module_behind - the module of the current context that stands behind @library. */
CUresult fc_module_behind(const void *library, struct fc_image *image, struct fc_module **ret_m);
CUmodule fc_module_handle(const struct fc_module *m);
CUresult fc_module_function(struct fc_module *m, const char *name, CUfunction *ret_f);
CUresult fc_module_global(struct fc_module *m, const char *name, bool managed, CUdeviceptr *dptr,
			  size_t *bytes);
/* fc_modules_drop - all of @ctx (NULL: of any) behind @library (NULL: any, or none). */
void fc_modules_drop(const struct fc_ctx *ctx, const void *library);
void fc_library_reset(void);

/* fc_read_file - the whole of it, with NULs behind; freed by the caller. */
CUresult fc_read_file(const char *path, char **ret_text);

/* ---- func.c ---- */

/* fc_function_new - a CUfunction for @k in the module @owner. NULL: no memory. */
CUfunction fc_function_new(struct fc_kernel *k, void *owner);
void fc_function_drop(CUfunction f);

#endif
