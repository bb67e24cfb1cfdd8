/*
 * resolve.c - dlsym and cuGetProcAddress, by which a program gets the driver's functions; and dlclose, which
 * unloads objects.
 *
 * The real resolver is always asked first. If its result is an address of the driver that has a hook, the hook
 * is returned instead; every other result is returned unchanged.
 *
 * Nothing here starts the library, because a program that looks a function up has not used it yet.
 * Thread context: any, also inside the loader. Signal context: as dlsym's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "preload/order/context.h"
#include "preload/hooks/hook.h"
#include "preload/order/order.h"
#include "preload/driver/real.h"
#include "recorder/modules/modules.h"

typedef void *dlsym_fn(void *handle, const char *name);

dlsym_fn *gm_dlsym_route(void *handle, const char *name);
GM_PUBLIC int dlclose(void *handle);

static bool names_driver_function(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

static bool names_hook(const char *name)
{
#define GM_HOOK(class, hook, type, params, args) || strcmp(name, #hook) == 0
	return false
#include "preload/hooks/hooks.def"
	;
}

/* Without a driver the program must find what it would find without us: a function behind us in the search order, or
 * nothing. Our exports alone would make every hooked name look present. */
static void *dlsym_behind_us(void *handle, const char *name)
{
	void *found = gm_libc.dlsym(RTLD_NEXT, name);

	(void)handle;
	/* Not a tail call: "next" means behind the caller's object, so the caller must be this library. */
	__asm__ volatile("" : "+r"(found));
	return found;
}

/* Look @name up by an explicit handle. The caller's address does not matter then, so this is an ordinary call. */
static void *dlsym_mapped(void *handle, const char *name)
{
	void *real = gm_libc.dlsym(handle, name);
	void *hook;

	if (!real)
		return NULL;
	if (!gm_real_find())
		return gm_hook_is_ours(real) ? dlsym_behind_us(handle, name) : real;
	hook = gm_hook_for(real);
	return hook ? hook : real;
}

static void *dlsym_nothing(void *handle, const char *name)
{
	(void)handle;
	(void)name;
	return NULL;
}

/* Return the address to which dlsym jumps. Must stay small, because every dlsym of the host comes through here. */
dlsym_fn *gm_dlsym_route(void *handle, const char *name)
{
	if (__builtin_expect(!__atomic_load_n(&gm_libc.dlsym, __ATOMIC_ACQUIRE), 0))
		gm_libc_find();
	if (__builtin_expect(!gm_libc.dlsym, 0))
		return dlsym_nothing;
	if (gm_order_on && !gm_name_resolved)
		gm_name_resolved = true;
	if (__builtin_expect(!names_driver_function(name) || handle == RTLD_NEXT, 1))
		return gm_libc.dlsym;
	if (handle == RTLD_DEFAULT)
		return names_hook(name) && !gm_driver_loaded() ? dlsym_behind_us : gm_libc.dlsym;
	return dlsym_mapped;
}

/* ---- cuGetProcAddress -------------------------------------------------------------------------- */

static CUresult mapped(CUresult result, void **pfn)
{
	void *hook;

	if (result != CUDA_SUCCESS || !pfn || !*pfn)
		return result;
	hook = gm_hook_for(*pfn);
	if (hook)
		*pfn = hook;
	return result;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int driverVersion, cuuint64_t flags)
{
	return mapped(GM_REAL(cuGetProcAddress)(symbol, pfn, driverVersion, flags), pfn);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int driverVersion, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *symbolFound)
{
	return mapped(GM_REAL(cuGetProcAddress_v2)(symbol, pfn, driverVersion, flags, symbolFound),
		      pfn);
}

/* ---- dlclose ----------------------------------------------------------------------------------- */

/* Begin a new generation before the call, so that nothing relies on objects that are about to go, and after the call,
 * so that nothing relies on objects seen meanwhile. Do so even if the library has not started, because PyTorch's calls
 * are passed on before the start, and in forked children. */
int dlclose(void *handle)
{
	void (*bump)(void) = gm_state_is_mine() ? gm_modules_generation_bump : gm_modules_forget;
	int result;

	if (!gm_libc.dlclose)
		gm_libc_find();
	if (!gm_libc.dlclose)
		return -1;
	bump();
	result = gm_libc.dlclose(handle);
	bump();
	return result;
}
