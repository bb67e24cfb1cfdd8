/*
 * real.c - the tables made from hooks.def: names, hooks, the driver's functions, and the way from
 * a driver's address to our hook.
 *
 * The way back goes by address, never by name: one name has several ABIs (cuGetProcAddress picks
 * by version), one address has exactly one.
 *
 * Nothing here takes a lock: filling is idempotent, two threads that fill at once store the same
 * values, and a child forked in between fills again. Thread context: any. See real.h.
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
	void *lost;			/* what gm_real holds while there is no real one */
	uint8_t class;
	bool has_body;
};

/* ---- where the driver, or the function, is missing ------------------------------------------- */

static CUresult missing(void)
{
	return gm_driver_loaded() ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_INITIALIZED;
}

/* The first call of a function finds the driver; a call of one that it lacks fails. */
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

/* In the order of struct gm_real, which is a row of pointers. */
static const struct hook hooks[] = {
#define GM_HOOK(class, name, type, params, args) \
	{ #name, (void *)name, (void *)lost_##name, GM_CLASS_##class, true },
#define GM_PASS(class, name, type, params, args) \
	{ #name, (void *)name, (void *)lost_##name, GM_CLASS_##class, false },
#define GM_CALL(name, type, params, args) { #name, NULL, (void *)lost_##name, 0, false },
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
 * The one switch: is this hook handed out by the resolvers? A body that only passes on is not
 * worth a call. While allocator is native nothing has to be known of work and identity. Exported
 * names that are called directly go through us either way.
 */
static bool wanted(const struct hook *hook)
{
	uint32_t classes = 1u << GM_CLASS_RESOLVE | 1u << GM_CLASS_ALLOC |
				 1u << GM_CLASS_FREE | 1u << GM_CLASS_QUERY | 1u << GM_CLASS_LIFE |
				 1u << GM_CLASS_END | 1u << GM_CLASS_ORDER;

	if (work_wanted)
		classes |= 1u << GM_CLASS_WORK | 1u << GM_CLASS_IDENTITY;
	return hook->has_body && (classes >> hook->class & 1);
}

/* ---- from an address of the driver to the hook ------------------------------------------------ */

#define BUCKETS 1024u			/* a power of two; twice the hooks at least */
_Static_assert(BUCKETS >= 2 * HOOKS, "room to probe");

/* Index + 1 of the hook whose real function hashes here; 0 empty. Entries are only ever added. */
static uint16_t by_address[BUCKETS];
static uint32_t found;			/* the table and gm_real are complete */

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

/* Where two names are one function of the driver (an alias), the one put first stands for it. */
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

/* The number at *@text, and what follows it. Not strtol: nothing that a host's sanitizer or
 * allocator may stand in front of is called here, since those look functions up while they start. */
static unsigned int take_number(const char **text)
{
	unsigned int number = 0;

	while (**text >= '0' && **text <= '9')
		number = number * 10 + (unsigned int)(*(*text)++ - '0');
	return number;
}

/* The version of dlsym that this glibc has: asking for one that it has not would have the loader
 * compose an error message, with malloc, perhaps inside the host's malloc. */
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
	/* An ordinary call: RTLD_NEXT means "after libgpumem" here, which is what is wanted. */
	gm_libc.dlclose = real(RTLD_NEXT, "dlclose");
	gm_libc.exit_now = real(RTLD_NEXT, "_exit");
	gm_libc.exit_now_c = real(RTLD_NEXT, "_Exit");
	gm_libc.quick_exit = real(RTLD_NEXT, "quick_exit");
	gm_libc.getenv = real(RTLD_NEXT, "getenv");
	__atomic_store_n(&gm_libc.dlsym, real, __ATOMIC_RELEASE);
}

/* A handle of the loaded driver, one reference more; NULL. Whatever dlerror() would say to the
 * host about it is taken away again. */
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
	/* The reference is kept: the driver stays loaded while gm_real points into it. */
	handle = driver_handle();
	if (!handle)
		return false;
	extent.object = handle;		/* what a handle is in glibc */
	dl_iterate_phdr(find_extent, &extent);
	for (size_t i = 0; i < HOOKS; i++) {
		real[i] = gm_libc.dlsym(handle, hooks[i].name);
		/* A handle's scope holds what the driver links, too: only its own object counts. */
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
