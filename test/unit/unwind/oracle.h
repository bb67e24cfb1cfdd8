/*
 * oracle.h - the same stack by three unwinders: ours (walked, and from the cache), libunwind's
 * unw_backtrace, glibc's backtrace() (which is libgcc's). For tests and benchmarks; libunwind is opened
 * by dlopen, so that its _Unwind_* do not become the program's.
 */
#ifndef GM_TEST_UNWIND_ORACLE_H
#define GM_TEST_UNWIND_ORACLE_H

#include <dlfcn.h>
#include <execinfo.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "recorder/stacks/stack_cache.h"
#include "recorder/unwind/unwind.h"

#define ORACLE_FRAMES 600

static int (*oracle_unw_backtrace)(void **, int);

/* libunwind's destructor of its per-thread cache and TSan's end of a thread do not go together. */
#if defined(__SANITIZE_THREAD__) || defined(__aarch64__)	/* and there is no libunwind for the tests there */
enum oracle_against { ORACLE_GLIBC = 1, ORACLE_LIBUNWIND = 0, ORACLE_BOTH = 1 };
#else
enum oracle_against { ORACLE_GLIBC = 1, ORACLE_LIBUNWIND = 2, ORACLE_BOTH = 3 };
#endif

/* Returns false when there is no libunwind. glibc's first backtrace() loads libgcc_s: here, not
 * in a signal handler. */
static inline bool oracle_open(void)
{
	void *handle = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
	void *frames[4];

	if (handle)
		*(void **)&oracle_unw_backtrace = dlsym(handle, "unw_backtrace");
	return backtrace(frames, 4) > 0 && (oracle_unw_backtrace || !ORACLE_LIBUNWIND);
}

struct oracle {
	uintptr_t ours[ORACLE_FRAMES];
	void *theirs[ORACLE_FRAMES];
	int count;
	unsigned int flags;
	char why[512];			/* of the first difference */
};

static inline void oracle_describe(char *at, size_t bytes, uintptr_t pc)
{
	Dl_info info = { 0 };

	dladdr((void *)pc, &info);
	snprintf(at, bytes, "%#lx %s %s+%#lx", (unsigned long)pc,
		 info.dli_fname ? info.dli_fname : "?", info.dli_sname ? info.dli_sname : "?",
		 info.dli_fname ? (unsigned long)(pc - (uintptr_t)info.dli_fbase) : 0);
}

/* glibc's unwinder ends where there are no tables: on aarch64 in the stubs by which objects call each other. */
static bool oracle_may_stop;

/* Frame 0 is oracle_check itself, at a different call each; a sanitizer's wrapper of backtrace()
 * puts one more before it. */
static inline bool oracle_same(struct oracle *o, const char *who, int their_count)
{
	char a[160], b[160];
	int more = 0;

	while (more < 2 && more + 1 < their_count && o->count > 1 &&
	       (uintptr_t)o->theirs[more + 1] != o->ours[1])
		more++;
	for (int i = 1; i < o->count || i + more < their_count; i++) {
		uintptr_t ours = i < o->count ? o->ours[i] : 0;
		uintptr_t theirs = i + more < their_count ? (uintptr_t)o->theirs[i + more] : 0;

		if (ours == theirs || (theirs == 0 && oracle_may_stop))
			continue;
		oracle_describe(a, sizeof(a), ours);
		oracle_describe(b, sizeof(b), theirs);
		snprintf(o->why, sizeof(o->why), "frame %d of %d (%s: %d): %s, %s: %s", i, o->count,
			 who, their_count, a, who, b);
		return false;
	}
	return true;
}

static inline uint64_t oracle_hash(const uintptr_t *pcs, int count)
{
	uint64_t hash = (uint64_t)count;

	for (int i = 0; i < count; i++)
		hash = (hash ^ pcs[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* Ours again, if it is in this thread's cache; else it is kept there, where that can be. */
static inline bool oracle_same_in_cache(struct oracle *o, const struct gm_regs *regs, int max)
{
	int count = o->count < max ? o->count : max;
	unsigned int flags = o->count > max ? GM_UNWIND_MORE : o->flags;
	struct gm_stack_key key = { .from = regs, .what = (uint64_t)max };
	struct gm_walked_stack stack = {
		.pcs = o->ours, .count = count, .more = flags & GM_UNWIND_MORE,
		.hash = oracle_hash(o->ours, count), .value = oracle_hash(o->ours, count) | 1,
	};
	struct gm_stack_cache *cache = gm_stack_cache_enter(regs);
	struct gm_cached_stack *entry = cache ? gm_stack_cache_find(cache, &key) : NULL;

	if (!cache)
		return true;
	if (entry && (entry->hash != stack.hash || flags & ~(unsigned int)GM_UNWIND_MORE))
		snprintf(o->why, sizeof(o->why), "another stack of %d frames is in the cache", count);
	else if (entry)
		gm_stack_cache_met(cache, entry);
	else if (!(flags & GM_UNWIND_TRUNCATED))
		gm_stack_cache_keep(cache, &key, &stack);
	gm_stack_cache_leave(cache);
	return !o->why[0];
}

/* The stack from the caller on, ours and theirs; false and @o->why where they differ. */
static __attribute__((noinline, unused)) bool oracle_check(struct oracle *o, unsigned int against)
{
	struct gm_regs regs;
	int theirs;

	o->why[0] = 0;
	gm_regs_capture(&regs);
	o->count = gm_unwind(&regs, o->ours, ORACLE_FRAMES, &o->flags);
	if (!oracle_same_in_cache(o, &regs, 264) || !oracle_same_in_cache(o, &regs, 12))
		return false;
	if (against & ORACLE_GLIBC) {
		theirs = backtrace(o->theirs, ORACLE_FRAMES);
		if (!oracle_same(o, "backtrace", theirs))
			return false;
	}
	if (against & ORACLE_LIBUNWIND) {
		theirs = oracle_unw_backtrace(o->theirs, ORACLE_FRAMES);
		if (!oracle_same(o, "libunwind", theirs))
			return false;
	}
	return true;
}

#endif
