/*
 * writers.c - recognise other writers, and other modules that need special treatment, by their file names: see
 * cache.h.
 *
 * Thread context: any. Signal context: none. No lock of its own.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "preload/cache/cache.h"
#include "preload/order/order.h"
#include "recorder/modules/modules.h"

/*
 * How the file names of the libraries begin, and what to say of them. Of some libraries it is enough that they are
 * loaded, because only programs that use them load them. But PyTorch links NVSHMEM, cuFile and the verbs whether it
 * uses them or not. These count from their first query about a block of ours (@asks), because they ask what a pointer
 * is before they hand it to a device.
 */
static const struct library { const char *name, *what; bool asks; } libraries[] = {
	{ "libucp.", "UCX is loaded", false },
	{ "libuct.", "UCX is loaded", false },
	{ "libmpi.", "MPI is loaded", false },
	{ "libmpi_", "MPI is loaded", false },
	{ "libmpich", "MPI is loaded", false },
	{ "libgdrapi.", "GDRCopy is loaded", false },
	{ "libnvshmem", "NVSHMEM is used", true },
	{ "libtensorpipe", "tensorpipe is used", true },
	{ "libibverbs.", "RDMA verbs are used", true },
	{ "libfabric.", "libfabric is used", true },
	{ "libcufile.", "GPUDirect Storage is used", true },
};

static _Atomic(bool) any;
static _Atomic(bool) suspects;		/* a library is loaded whose queries count */
static _Atomic(const char *) noticed;		/* why there is a writer; not acted on yet */
static _Atomic(unsigned long long) loads;	/* the loader's count at the last look */
/* A bit for each module number. A module that is wrongly in the second set can make a program read too early. */
static _Atomic(uint64_t) nccl[65536 / 64], frees_freely[65536 / 64], caches[65536 / 64];

/* Caching allocators: modules that keep freed memory themselves, and free to the driver only what it shall have. A
 * module does not count while the environment has @variable (with @value; NULL: with any value), because then it
 * calls the driver for each block. */
static const struct cache { const char *name, *variable, *value; } own_caches[] = {
	{ "libc10_cuda.so", "PYTORCH_NO_CUDA_MEMORY_CACHING", NULL },
	{ "xla_extension", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform" },
	{ "xla_cuda_plugin", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform" },
	{ "librmm.so", NULL, NULL },
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const struct library *library_of(const char *path)
{
	const char *name = base_name(path);

	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
		if (strncmp(name, libraries[i].name, strlen(libraries[i].name)) == 0)
			return &libraries[i];
	return NULL;
}

bool gm_writers_any(void)
{
	return any;
}

void gm_writers_seen(const char *why)
{
	if (any)
		return;
	any = true;
	gm_unseen_work(why);
}

void gm_writers_noticed(const char *why)
{
	noticed = why;
}

struct look { unsigned long long loads; const char *what; bool counted; };

/* The first object tells whether anything was loaded since the last look. */
static int look_at(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	const struct library *library;
	struct look *look = arg;

	(void)bytes;
	if (!look->counted) {
		look->counted = true;
		if (look->loads == info->dlpi_adds)
			return 1;
		look->loads = info->dlpi_adds;
	}
	library = library_of(info->dlpi_name);
	if (library && library->asks)
		suspects = true;
	else if (library)
		look->what = library->what;
	return look->what != NULL;
}

void gm_writers_look(void)
{
	struct look look = { .loads = loads };
	const char *why = noticed;

	if (any)
		return;
	if (!why) {
		dl_iterate_phdr(look_at, &look);
		loads = look.loads;
		why = look.what;
	}
	if (why)
		gm_writers_seen(why);
}

static bool has_cache(const char *path)
{
	const char *name = base_name(path);

	for (size_t i = 0; i < sizeof(own_caches) / sizeof(own_caches[0]); i++) {
		const struct cache *cache = &own_caches[i];
		const char *value = cache->variable ? secure_getenv(cache->variable) : NULL;

		if (strncmp(name, cache->name, strlen(cache->name)) == 0)
			return !value || (cache->value && strcmp(value, cache->value) != 0);
	}
	return strstr(path, "/cupy_backends/cuda/api/") != NULL;	/* CuPy's module that calls the CUDA runtime */
}

void gm_writers_module(uint16_t module, const char *path)
{
	const struct library *library = library_of(path);

	if (library)		/* the library itself calls for memory */
		noticed = library->what;
	if (!module)
		return;
	if (strncmp(base_name(path), "libnccl", strlen("libnccl")) == 0)
		nccl[module / 64] |= UINT64_C(1) << module % 64;
	if (has_cache(path))
		caches[module / 64] |= UINT64_C(1) << module % 64;
	/* PyTorch's allocator (c10::cuda) frees a segment only after it has waited for the segment's events itself,
	 * and does not promise its own callers any synchronisation. */
	if (strncmp(base_name(path), "libc10_cuda.so", strlen("libc10_cuda.so")) == 0)
		frees_freely[module / 64] |= UINT64_C(1) << module % 64;
}

void gm_writers_asked(const void *caller)
{
	const char *why;

	if (!suspects || any)
		return;
	gm_modules_caller(caller, NULL);	/* reports a new module to gm_writers_module */
	why = noticed;
	if (why)
		gm_writers_seen(why);
}

bool gm_writers_own_segment(uint16_t module)
{
	return nccl[module / 64] >> module % 64 & 1;
}

bool gm_writers_caches(uint16_t module)
{
	return caches[module / 64] >> module % 64 & 1;
}

bool gm_writers_frees_freely(uint16_t module)
{
	return frees_freely[module / 64] >> module % 64 & 1;
}
