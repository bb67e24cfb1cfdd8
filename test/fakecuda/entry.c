/*
 * entry.c - every exported entry point, and the resolver that hands them out.
 *
 * entries.def makes one wrapper a row. It counts the call, refuses it in a forked child, inside a
 * host function or (some) before cuInit, lets an injected failure take its place, and holds fc.lock
 * around the fc_ function that does the work. The exported name is an alias of the wrapper, and the
 * table holds the wrapper itself: what cuGetProcAddress returns is this library's own entry point
 * even where another library interposes the name, and equals what dlsym on this library returns.
 *
 * Any thread; no signal context. The counters are atomic and outlive cuInit and fork.
 */
#include "test/fakecuda/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/fakecuda/fail.h"
#include "test/fakecuda/state.h"
#include "test/fakecuda/memory/watch.h"

enum { FC_PLAIN, FC_PTDS, FC_PTSZ };	/* which default stream NULL means */
#define FC_ANYTIME 1			/* in a forked child and inside host functions too */
#define FC_IN_HOST 2			/* inside host functions */
#define FC_AFTER_INIT 4			/* refused before cuInit */

enum {
#define FC_ROW(name, impl, base, since, pt, flags, params, args) FC_ID_##name,
#define FC_ROW_GONE(name, base, since, pt) FC_ID_##name,
#include "test/fakecuda/entries.def"
	FC_N_ENTRIES
};

struct entry {
	const char *name, *base;
	int since;
	unsigned char pt, flags;
	void *address;
	void *work;		/* NULL: nobody does it, 801 */
};

static const struct entry entries[FC_N_ENTRIES];
static atomic_ullong calls[FC_N_ENTRIES];

__thread struct fc_tls fc_tls;

/* The checks every call passes; 0 with fc.lock held, else the error with it released. */
static CUresult enter(unsigned int id)
{
	const struct entry *e = &entries[id];
	CUresult r;

	atomic_fetch_add_explicit(&calls[id], 1, memory_order_relaxed);
	if (fc_watching)
		fc_watch_tell(e->name, -1);
	fc_configure();
	if (fc_forked() && !(e->flags & FC_ANYTIME))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (fc_tls.in_host_function && !(e->flags & (FC_ANYTIME | FC_IN_HOST)))
		return CUDA_ERROR_NOT_PERMITTED;
	if (e->since > fc.driver_version)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = fc_fail_check(e->name, e->base);
	if (r)
		return r;
	fc_lock();
	if (!fc.pid && (e->flags & FC_AFTER_INIT)) {
		fc_unlock();
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	fc_tls.entry = e->name;
	fc_tls.ptds = e->pt != FC_PLAIN;
	return CUDA_SUCCESS;
}

static CUresult leave(unsigned int id, CUresult r)
{
	if (fc_watching)
		fc_watch_tell(entries[id].name, (int)r);
	return r;
}

/* Weak references: an entry whose work nobody does is refused, not a broken link. */
#define FC_ROW(name, impl, base, since, pt, flags, params, args) \
	extern __typeof__(fc_##impl) fc_##impl __attribute__((weak));
#define FC_ROW_GONE(name, base, since, pt)
#include "test/fakecuda/entries.def"

#define FC_ROW(name, impl, base, since, pt, flags, params, args) \
	static CUresult wrap_##name params \
	{ \
		CUresult r = enter(FC_ID_##name); \
		if (!r) { \
			r = fc_##impl ? fc_##impl args : CUDA_ERROR_NOT_SUPPORTED; \
			fc_unlock(); \
		} \
		return leave(FC_ID_##name, r); \
	} \
	FC_EXPORT __typeof__(wrap_##name) name __attribute__((alias("wrap_" #name)));
#define FC_ROW_GONE(name, base, since, pt) \
	static CUresult wrap_##name(void) \
	{ \
		CUresult r = enter(FC_ID_##name); \
		if (!r) { \
			r = CUDA_ERROR_NOT_SUPPORTED; \
			fc_unlock(); \
		} \
		return leave(FC_ID_##name, r); \
	} \
	FC_EXPORT __typeof__(wrap_##name) name __attribute__((alias("wrap_" #name)));
#include "test/fakecuda/entries.def"

static const struct entry entries[FC_N_ENTRIES] = {
#define FC_ROW(name, impl, base, since, pt, flags, params, args) \
	[FC_ID_##name] = { #name, #base, since, pt, flags, (void *)wrap_##name, \
			   (void *)fc_##impl },
#define FC_ROW_GONE(name, base, since, pt) \
	[FC_ID_##name] = { #name, #base, since, pt, 0, (void *)wrap_##name, NULL },
#include "test/fakecuda/entries.def"
};

/* ---- the resolver ---- */

static uint16_t by_base[FC_N_ENTRIES];
static pthread_once_t sorted = PTHREAD_ONCE_INIT;

static int compare_base(const void *a, const void *b)
{
	return strcmp(entries[*(const uint16_t *)a].base, entries[*(const uint16_t *)b].base);
}

static void sort_by_base(void)
{
	for (uint16_t i = 0; i < FC_N_ENTRIES; i++)
		by_base[i] = i;
	qsort(by_base, FC_N_ENTRIES, sizeof(by_base[0]), compare_base);
}

static size_t first_of(const char *base)
{
	size_t lo = 0, hi = FC_N_ENTRIES;

	pthread_once(&sorted, sort_by_base);
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (strcmp(entries[by_base[mid]].base, base) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The newest ABI of @base that @version knows. Where there are forms for the per-thread default
 * stream, only those serve who asks for them. */
static const struct entry *resolve(const char *base, int version, bool per_thread, bool *ret_known)
{
	const struct entry *best[2] = { NULL, NULL };	/* plain, per thread */
	bool has_per_thread = false;

	for (size_t i = first_of(base); i < FC_N_ENTRIES; i++) {
		const struct entry *e = &entries[by_base[i]];
		bool pt = e->pt != FC_PLAIN;

		if (strcmp(e->base, base) != 0)
			break;
		if (e->since > fc.driver_version)
			continue;
		*ret_known = true;
		has_per_thread = has_per_thread || pt;
		if (e->since <= version && (!best[pt] || e->since > best[pt]->since))
			best[pt] = e;
	}
	return best[per_thread && has_per_thread];
}

#define NO_SUCH_VERSION 20000	/* 99000 is refused, newer toolkits than the driver's are not */

CUresult fc_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				CUdriverProcAddressQueryResult *symbolStatus)
{
	const struct entry *e;
	bool known = false;

	const cuuint64_t known_flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM |
				       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

	if (!symbol || !pfn || (flags & ~known_flags) || cudaVersion >= NO_SUCH_VERSION)
		return CUDA_ERROR_INVALID_VALUE;
	e = resolve(symbol, cudaVersion,
		    flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &known);
	*pfn = e ? e->address : NULL;
	if (symbolStatus)
		*symbolStatus = e ? CU_GET_PROC_ADDRESS_SUCCESS :
				known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT :
				CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!e && *symbol)
		fc_log("cuGetProcAddress: %s %d: %s", symbol, cudaVersion,
		       known ? "no such version" : "no such name");
	return CUDA_SUCCESS;
}

CUresult fc_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult r = fc_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);

	return r ? r : *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The private tables belong to NVIDIA's own runtime; this driver has none. */
CUresult fc_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	if (!ppExportTable || !pExportTableId)
		return CUDA_ERROR_INVALID_VALUE;
	*ppExportTable = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

/* ---- counters, and what there is ---- */

FC_EXPORT const char *fakecuda_entry(size_t n, int *ret_since, int *ret_implemented)
{
	if (n >= FC_N_ENTRIES)
		return NULL;
	if (ret_since)
		*ret_since = entries[n].since;
	if (ret_implemented)
		*ret_implemented = entries[n].work != NULL;
	return entries[n].name;
}

FC_EXPORT uint64_t fakecuda_calls(const char *entry)
{
	uint64_t n = 0;

	for (size_t i = 0; i < FC_N_ENTRIES; i++)
		if (!entry || !strcmp(entry, entries[i].name) || !strcmp(entry, entries[i].base))
			n += atomic_load_explicit(&calls[i], memory_order_relaxed);
	return n;
}

FC_EXPORT void fakecuda_reset_calls(void)
{
	for (size_t i = 0; i < FC_N_ENTRIES; i++)
		atomic_store_explicit(&calls[i], 0, memory_order_relaxed);
}
