/*
 * real.c - the tables made from hooks.def: names, hooks, the driver's functions, and the map from an
 * address of the driver to our hook (see real.h).
 *
 * The map is by address, because one name may have several ABIs (cuGetProcAddress picks one by version), but
 * one address has exactly one.
 *
 * Nothing here takes a lock. Filling is idempotent: two threads that fill at once store the same values, and
 * a child forked in between fills again. Thread context: any.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <string.h>

#include "preload/driver/real.h"

struct hook {
	const char *name;
	void *hook;			/* NULL: GM_CALL */
	void *lost;			/* in gm_real until the driver's function is found */
	uint8_t class;
};

/* ---- where the driver, or the function, is missing ------------------------------------------- */

static CUresult missing(void)
{
	return gm_driver_loaded() ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_INITIALIZED;
}

/* Define a function that finds the driver at its first call. If the driver lacks the function, the call fails. */
#define LOST(name, type, params, args) \
	static CUresult lost_##name params \
	{ \
		type real = gm_real_find() ? GM_REAL(name) : lost_##name; \
		\
		return real != lost_##name ? real args : missing(); \
	}
#define GM_HOOK(class, name, type, params, args) LOST(name, type, params, args)
#define GM_CALL(name, type, params, args) LOST(name, type, params, args)
#include "preload/hooks/hooks.def"

struct gm_real gm_real = {
#define GM_HOOK(class, name, type, params, args) .name = lost_##name,
#define GM_CALL(name, type, params, args) .name = lost_##name,
#include "preload/hooks/hooks.def"
};

/* In the order of struct gm_real, which consists of pointers only. */
static const struct hook hooks[] = {
#define GM_HOOK(class, name, type, params, args) \
	{ #name, (void *)name, (void *)lost_##name, GM_CLASS_##class },
#define GM_CALL(name, type, params, args) { #name, NULL, (void *)lost_##name, 0 },
#include "preload/hooks/hooks.def"
};
#define HOOKS (sizeof(hooks) / sizeof(hooks[0]))

_Static_assert(sizeof(struct gm_real) == HOOKS * sizeof(void *), "a row of pointers");

static void **slot_of(size_t i)
{
	return (void **)(void *)&gm_real + i;
}

static _Atomic(bool) work_wanted = true;

void gm_hooks_of_work(bool is_wanted)
{
	work_wanted = is_wanted;
}

/*
 * Do the resolvers hand out this hook? With allocator:native, hooks of work and identity are not needed.
 * A direct call of an exported name goes through the hook in any case.
 */
static bool wanted(const struct hook *hook)
{
	uint32_t classes = 1u << GM_CLASS_RESOLVE | 1u << GM_CLASS_ALLOC |
				 1u << GM_CLASS_FREE | 1u << GM_CLASS_QUERY | 1u << GM_CLASS_LIFE |
				 1u << GM_CLASS_END | 1u << GM_CLASS_ORDER;

	if (work_wanted)
		classes |= 1u << GM_CLASS_WORK | 1u << GM_CLASS_IDENTITY;
	return classes >> hook->class & 1;
}

/* ---- from an address of the driver to the hook ------------------------------------------------ */

#define BUCKETS 1024u			/* a power of two, at least twice the number of hooks */
_Static_assert(BUCKETS >= 2 * HOOKS, "room to probe");

/* Index + 1 of the hook whose real function hashes here; 0: empty. Entries are never removed. */
static uint16_t by_address[BUCKETS];
static uint32_t found;			/* 1: the table and gm_real are complete */

static unsigned int bucket_of(const void *address)
{
	return (unsigned int)(((uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15)) >> 54) % BUCKETS;
}

static const struct hook *hook_of(const void *real)
{
	unsigned int i = bucket_of(real);
	uint16_t entry;

	while ((entry = __atomic_load_n(&by_address[i], __ATOMIC_ACQUIRE)) != 0) {
		if (__atomic_load_n(slot_of(entry - 1u), __ATOMIC_RELAXED) == real)
			return &hooks[entry - 1u];
		i = (i + 1) % BUCKETS;
	}
	return NULL;
}

/* Add the function at @real. If two names are one function of the driver (an alias), the first one added wins. */
static void put(size_t index, const void *real)
{
	unsigned int i = bucket_of(real);
	uint16_t entry;

	for (;; i = (i + 1) % BUCKETS) {
		entry = 0;
		if (__atomic_compare_exchange_n(&by_address[i], &entry, (uint16_t)(index + 1),
						false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
			return;
		if (__atomic_load_n(slot_of(entry - 1u), __ATOMIC_RELAXED) == real)
			return;
	}
}

void *gm_hook_for(const void *real)
{
	const struct hook *hook;

	if (!real || !__atomic_load_n(&found, __ATOMIC_ACQUIRE))
		return NULL;
	hook = hook_of(real);
	return hook && hook->hook && wanted(hook) ? hook->hook : NULL;
}

bool gm_hook_is_ours(const void *address)
{
	for (size_t i = 0; i < HOOKS; i++)
		if (hooks[i].hook == address)
			return address != NULL;
	return false;
}

/* ---- finding ---------------------------------------------------------------------------------- */

struct gm_libc gm_libc;

/* Take the number at *@text. Without strtol, because a host's sanitizer or allocator may intercept it, and these look
 * functions up while they start. */
static unsigned int take_number(const char **text)
{
	unsigned int number = 0;

	while (**text >= '0' && **text <= '9')
		number = number * 10 + (unsigned int)(*(*text)++ - '0');
	return number;
}

/* Return the version of dlsym in this glibc. If we asked for a missing version, the loader would compose an error
 * message with malloc, perhaps inside the host's malloc. */
static const char *dl_version(void)
{
	const char *text = gnu_get_libc_version();
	unsigned int major = take_number(&text), minor;

	text += *text == '.';
	minor = take_number(&text);
	if (major > 2 || minor >= 34)
		return "GLIBC_2.34";
#if defined(__x86_64__)
	return "GLIBC_2.2.5";
#else
	return "GLIBC_2.17";
#endif
}

void gm_libc_find(void)
{
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5" };
	void *(*real)(void *, const char *) = dlvsym(RTLD_NEXT, "dlsym", dl_version());

	for (size_t i = 0; !real && i < sizeof(versions) / sizeof(versions[0]); i++)
		real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	if (!real)
		return;
	/* In these calls RTLD_NEXT means "after libgpumem", as intended. */
	gm_libc.dlclose = real(RTLD_NEXT, "dlclose");
	gm_libc.exit_now = real(RTLD_NEXT, "_exit");
	gm_libc.exit_now_c = real(RTLD_NEXT, "_Exit");
	gm_libc.quick_exit = real(RTLD_NEXT, "quick_exit");
	gm_libc.getenv = real(RTLD_NEXT, "getenv");
	__atomic_store_n(&gm_libc.dlsym, real, __ATOMIC_RELEASE);
}

/* Return a handle of the loaded driver with one more reference; NULL: not loaded. Clears dlerror(), so that the host
 * does not find our error. */
static void *driver_handle(void)
{
	static const char *const names[] = { "libcuda.so.1", "libcuda.so" };
	void *handle = NULL;

	for (size_t i = 0; !handle && i < sizeof(names) / sizeof(names[0]); i++)
		handle = dlopen(names[i], RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
	if (!handle)
		dlerror();
	return handle;
}

bool gm_driver_loaded(void)
{
	void *handle;

	if (__atomic_load_n(&found, __ATOMIC_ACQUIRE))
		return true;
	handle = driver_handle();
	if (handle && gm_libc.dlclose)
		gm_libc.dlclose(handle);
	return handle != NULL;
}

struct extent {
	const struct link_map *object;
	uintptr_t start, end;
};

static int find_extent(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	struct extent *extent = arg;

	(void)bytes;
	if (info->dlpi_addr != extent->object->l_addr ||
	    strcmp(info->dlpi_name, extent->object->l_name) != 0)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type != PT_LOAD)
			continue;
		if (!extent->end)
			extent->start = info->dlpi_addr + segment->p_vaddr;
		extent->end = info->dlpi_addr + segment->p_vaddr + segment->p_memsz;
	}
	return 1;
}

bool gm_real_find(void)
{
	void *handle, *real[HOOKS];
	struct extent extent = { NULL, 0, 0 };

	if (__atomic_load_n(&found, __ATOMIC_ACQUIRE))
		return true;
	if (!gm_libc.dlsym)
		gm_libc_find();
	if (!gm_libc.dlsym)
		return false;
	/* Keep the reference, so that the driver stays loaded while gm_real points into it. */
	handle = driver_handle();
	if (!handle)
		return false;
	extent.object = handle;		/* in glibc a handle is the struct link_map */
	dl_iterate_phdr(find_extent, &extent);
	for (size_t i = 0; i < HOOKS; i++) {
		real[i] = gm_libc.dlsym(handle, hooks[i].name);
		/* The scope of a handle includes the libraries that the driver links: accept only its own object. */
		if ((uintptr_t)real[i] < extent.start || (uintptr_t)real[i] >= extent.end)
			real[i] = NULL;
		if (real[i])
			__atomic_store_n(slot_of(i), real[i], __ATOMIC_RELAXED);
	}
	dlerror();
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < HOOKS; i++)
			if (real[i] && wanted(&hooks[i]) == (pass == 0))
				put(i, real[i]);
	__atomic_store_n(&found, 1, __ATOMIC_RELEASE);
	return true;
}
