/* register.c - fat binaries, kernels and variables that nvcc's host code registers.
 *
 * Constructors register; nothing is loaded then. A module's library is loaded with
 * cuLibraryLoadData at the first launch of one of its kernels or the first use of one of its
 * variables, and unloaded when its module unregisters at exit.
 *
 * Thread context: any thread; registry_lock covers the lists. Constructors and dlclose run
 * registration on whatever thread they happen on.
 */
#include <fatbinary_section.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cudart.h"

struct function {
	struct function *next;
	const void *host_fun;
	const char *name;	/* in the program's own data */
	CUkernel kernel;	/* NULL until asked for */
};

struct variable {
	struct variable *next;
	const void *host_var;
	void **managed;		/* the host's pointer to a __managed__ variable, or NULL */
	const char *name;
	size_t size;
};

struct module {
	struct module *next;
	const __fatBinC_Wrapper_t *binary;
	CUlibrary library;	/* NULL until loaded */
	struct function *functions;
	struct variable *variables;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct module *modules;

void **__cudaRegisterFatBinary(void *fat_cubin)
{
	const __fatBinC_Wrapper_t *binary = fat_cubin;
	struct module *module = calloc(1, sizeof(*module));

	if (!module || binary->magic != FATBINC_MAGIC) {
		free(module);
		return NULL;
	}
	module->binary = binary;
	pthread_mutex_lock(&registry_lock);
	module->next = modules;
	modules = module;
	pthread_mutex_unlock(&registry_lock);
	return (void **)module;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;	/* nothing waits for the list to be complete: loading is lazy */
}

void __cudaRegisterFunction(void **handle, const char *host_fun, char *device_fun,
			    const char *name, int thread_limit, uint3 *tid, uint3 *bid,
			    dim3 *block, dim3 *grid, int *warp_size)
{
	struct module *module = (struct module *)handle;
	struct function *function = module ? calloc(1, sizeof(*function)) : NULL;

	(void)device_fun, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid;
	(void)warp_size;
	if (!function)
		return;
	function->host_fun = host_fun;
	function->name = name;
	pthread_mutex_lock(&registry_lock);
	function->next = module->functions;
	module->functions = function;
	pthread_mutex_unlock(&registry_lock);
}

static void add_variable(void **handle, const void *host_var, void **managed, const char *name,
			 size_t size)
{
	struct module *module = (struct module *)handle;
	struct variable *variable = module ? calloc(1, sizeof(*variable)) : NULL;

	if (!variable)
		return;
	variable->host_var = host_var;
	variable->managed = managed;
	variable->name = name;
	variable->size = size;
	pthread_mutex_lock(&registry_lock);
	variable->next = module->variables;
	module->variables = variable;
	pthread_mutex_unlock(&registry_lock);
}

void __cudaRegisterVar(void **handle, char *host_var, char *device_address, const char *name,
		       int ext, size_t size, int constant, int global)
{
	(void)device_address, (void)ext, (void)constant, (void)global;
	add_variable(handle, host_var, NULL, name, size);
}

void __cudaRegisterManagedVar(void **handle, void **host_var, char *device_address,
			      const char *name, int ext, size_t size, int constant, int global)
{
	(void)device_address, (void)ext, (void)constant, (void)global;
	add_variable(handle, host_var, host_var, name, size);
}

static cudaError_t load_locked(struct module *module)
{
	if (module->library)
		return cudaSuccess;
	/* The driver takes the wrapper as it stands in the program, as from NVIDIA's runtime. */
	return (cudaError_t)CUDART_DRV(cuLibraryLoadData, 12000)(&module->library, module->binary,
								 NULL, NULL, 0, NULL, NULL, 0);
}

static struct function *find_function(const void *host_fun, struct module **ret_module)
{
	for (struct module *module = modules; module; module = module->next) {
		for (struct function *f = module->functions; f; f = f->next) {
			if (f->host_fun == host_fun) {
				*ret_module = module;
				return f;
			}
		}
	}
	return NULL;
}

cudaError_t cudart_kernel(const void *host_fun, CUkernel *ret_kernel)
{
	cudaError_t error = cudaSuccess;
	struct function *function;
	struct module *module;

	if (!host_fun)
		return cudaErrorInvalidDeviceFunction;
	pthread_mutex_lock(&registry_lock);
	function = find_function(host_fun, &module);
	if (!function) {
		*ret_kernel = (CUkernel)(uintptr_t)host_fun;
		goto out;
	}
	if (!function->kernel) {
		error = load_locked(module);
		if (!error)
			error = (cudaError_t)CUDART_DRV(cuLibraryGetKernel, 12000)(
				&function->kernel, module->library, function->name);
		if (error == cudaErrorSymbolNotFound)
			error = cudaErrorInvalidDeviceFunction;
	}
	if (!error)
		*ret_kernel = function->kernel;
out:
	pthread_mutex_unlock(&registry_lock);
	return error;
}

static cudaError_t variable_address_locked(struct module *module, const struct variable *variable,
					   CUdeviceptr *ret_address, size_t *ret_size)
{
	cudaError_t error = load_locked(module);

	if (error)
		return error;
	if (variable->managed)
		return (cudaError_t)CUDART_DRV(cuLibraryGetManaged, 12000)(
			ret_address, ret_size, module->library, variable->name);
	return (cudaError_t)CUDART_DRV(cuLibraryGetGlobal, 12000)(ret_address, ret_size,
								  module->library, variable->name);
}

cudaError_t cudart_symbol(const void *host_var, CUdeviceptr *ret_address, size_t *ret_size)
{
	cudaError_t error = cudaErrorInvalidSymbol;

	pthread_mutex_lock(&registry_lock);
	for (struct module *module = modules; module; module = module->next) {
		for (struct variable *v = module->variables; v; v = v->next) {
			/* A __managed__ variable is named by its address or by where it points. */
			if (v->host_var != host_var && !(v->managed && *v->managed == host_var))
				continue;
			error = variable_address_locked(module, v, ret_address, ret_size);
			goto out;
		}
	}
out:
	pthread_mutex_unlock(&registry_lock);
	return error;
}

cudaError_t cudaGetSymbolAddress(void **ptr, const void *symbol)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUdeviceptr address = 0;
	size_t size = 0;

	if (!error)
		error = cudart_symbol(symbol, &address, &size);
	if (!error)
		*ptr = (void *)address;
	return cudart_record(error);
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUdeviceptr address = 0;

	if (!error)
		error = cudart_symbol(symbol, &address, size);
	return cudart_record(error);
}

/* Before a module's host code touches a __managed__ variable: give each its address. Returns
 * whether the module is ready; the generated code asks again while it is not. */
char __cudaInitModule(void **handle)
{
	struct module *module = (struct module *)handle;
	cudaError_t error = cudart_enter(CUDART_NEED_CONTEXT);
	CUdeviceptr address;
	size_t size;

	if (error || !module) {
		cudart_record(error);
		return 0;
	}
	pthread_mutex_lock(&registry_lock);
	for (struct variable *v = module->variables; v && !error; v = v->next) {
		if (!v->managed)
			continue;
		error = variable_address_locked(module, v, &address, &size);
		if (!error)
			*v->managed = (void *)address;
	}
	pthread_mutex_unlock(&registry_lock);
	cudart_record(error);
	return error == cudaSuccess;
}

static void free_module_locked(struct module *module)
{
	while (module->functions) {
		struct function *next = module->functions->next;

		free(module->functions);
		module->functions = next;
	}
	while (module->variables) {
		struct variable *next = module->variables->next;

		free(module->variables);
		module->variables = next;
	}
	if (module->library)
		CUDART_DRV(cuLibraryUnload, 12000)(module->library);
	free(module);
}

void __cudaUnregisterFatBinary(void **handle)
{
	struct module *module = (struct module *)handle;

	pthread_mutex_lock(&registry_lock);
	for (struct module **at = &modules; *at; at = &(*at)->next) {
		if (*at == module) {
			*at = module->next;
			free_module_locked(module);
			break;
		}
	}
	pthread_mutex_unlock(&registry_lock);
}

void cudart_unload_modules(void)
{
	pthread_mutex_lock(&registry_lock);
	while (modules) {
		struct module *module = modules;

		modules = module->next;
		free_module_locked(module);
	}
	pthread_mutex_unlock(&registry_lock);
}
