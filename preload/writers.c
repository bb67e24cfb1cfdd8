/*
 * writers.c - who may write device memory without a stream: see writers.h.
 *
 * Thread context: any. Signal context: none. Fork: gm_writers_forget. No lock of its own.
 */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>

#include "allocator/rules.h"
#include "preload/cache.h"
#include "preload/order.h"
#include "preload/writers.h"

#define OWN_SEGMENT_BYTES (UINT64_C(2) << 20)

/* How file names begin, and what these libraries do with memory that they were given. */
static const struct library { const char *name, *what; } libraries[] = {
	{ "libucp.", "UCX is loaded" },
	{ "libuct.", "UCX is loaded" },
	{ "libmpi.", "MPI is loaded" },
	{ "libmpi_", "MPI is loaded" },
	{ "libmpich", "MPI is loaded" },
	{ "libnvshmem", "NVSHMEM is loaded" },
	{ "libtensorpipe", "tensorpipe is loaded" },
	{ "libgdrapi.", "GDRCopy is loaded" },
	{ "libibverbs.", "RDMA verbs are loaded" },
	{ "libfabric.", "libfabric is loaded" },
	{ "libcufile.", "GPUDirect Storage is loaded" },
};

static _Atomic(bool) any;
static _Atomic(const char *) met;		/* why, of a module met: not yet told */
static _Atomic(unsigned long long) loads;	/* the loader's count when it was looked */
static _Atomic(uint64_t) nccl[65536 / 64];	/* a bit for each number of a module */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const char *writes(const char *path)
{
	const char *name = base_name(path);

	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
		if (strncmp(name, libraries[i].name, strlen(libraries[i].name)) == 0)
			return libraries[i].what;
	return NULL;
}

bool gm_writers_any(void)
{
	return any;
}

void gm_writers_seen(const char *why)
{
	if (!gm_rule(GM_RULE_OTHER_WRITERS) || any)
		return;
	any = true;
	gm_order_unseen_work(why);
	if (gm_cache_on())
		gm_cache_dedicate();
}

struct look { unsigned long long loads; const char *what; bool counted; };

/* The first object tells whether there is anything new. */
static int look_at(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	struct look *look = arg;

	(void)bytes;
	if (!look->counted) {
		look->counted = true;
		if (look->loads == info->dlpi_adds)
			return 1;
		look->loads = info->dlpi_adds;
	}
	look->what = writes(info->dlpi_name);
	return look->what != NULL;
}

void gm_writers_look(void)
{
	struct look look = { .loads = loads };
	const char *why = met;

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

void gm_writers_module(uint16_t module, const char *path)
{
	const char *why = writes(path);

	if (why)
		met = why;
	if (module && strncmp(base_name(path), "libnccl", strlen("libnccl")) == 0)
		nccl[module / 64] |= UINT64_C(1) << module % 64;
}

bool gm_writers_own_segment(uint16_t module, uint64_t bytes)
{
	return bytes >= OWN_SEGMENT_BYTES && (nccl[module / 64] >> module % 64 & 1);
}

void gm_writers_forget(void)
{
	any = false;
	met = NULL;
	loads = 0;
	for (size_t i = 0; i < sizeof(nccl) / sizeof(nccl[0]); i++)
		if (nccl[i])	/* its pages may be untouched */
			nccl[i] = 0;
}
