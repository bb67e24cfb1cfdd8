/*
 * oracle.h - the same stack by three unwinders: ours (plain, and on its trail), libunwind's
 * unw_backtrace, glibc's backtrace() (which is libgcc's). For tests and benchmarks; libunwind is opened by dlopen, so
 * that its _Unwind_* do not become the program's.
 */
#ifndef GM_TEST_UNWIND_ORACLE_H
#define GM_TEST_UNWIND_ORACLE_H

#include <dlfcn.h>
#include <execinfo.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "recorder/unwind.h"
#include "recorder/unwind_trail.h"

#define ORACLE_FRAMES 600

static int (*oracle_unw_backtrace)(void **, int);

/* Returns false when there is no libunwind. glibc's first backtrace() loads libgcc_s: here, not
 * in a signal handler. */
static inline bool oracle_open(void)
{
	void *handle = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
	void *frames[4];

	if (handle)
		*(void **)&oracle_unw_backtrace = dlsym(handle, "unw_backtrace");
	return backtrace(frames, 4) > 0 && oracle_unw_backtrace;
}

/* libunwind's destructor of its per-thread cache and TSan's end of a thread do not go together. */
#ifdef __SANITIZE_THREAD__
enum oracle_against { ORACLE_GLIBC = 1, ORACLE_LIBUNWIND = 0, ORACLE_BOTH = 1 };
#else
enum oracle_against { ORACLE_GLIBC = 1, ORACLE_LIBUNWIND = 2, ORACLE_BOTH = 3 };
#endif

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

		if (ours == theirs)
			continue;
		oracle_describe(a, sizeof(a), ours);
		oracle_describe(b, sizeof(b), theirs);
		snprintf(o->why, sizeof(o->why), "frame %d of %d (%s: %d): %s, %s: %s", i, o->count,
			 who, their_count, a, who, b);
		return false;
	}
	return true;
}

/* Ours again, on the trail of this thread's last walk, where it can be. */
static inline bool oracle_same_on_trail(struct oracle *o, const struct gm_regs *regs, int max)
{
	int count = o->count < max ? o->count : max, i = 0;
	unsigned int flags = o->count > max ? GM_UNWIND_MORE : o->flags;
	struct gm_trail_walk walk;

	if (!gm_trail_walk(regs, max, &walk))
		return true;
	while (i < walk.count && i < count && walk.pcs[i] == o->ours[i])
		i++;
	if (walk.count != count || i != count || walk.flags != flags)
		snprintf(o->why, sizeof(o->why), "frame %d of %d (on the trail: %d, flags %u)", i,
			 count, walk.count, walk.flags);
	else if (gm_trail_hash(&walk, 0, count) != gm_trail_hash_of(o->ours, count) ||
		 gm_trail_hash(&walk, count / 2, count / 3) !=
			 gm_trail_hash_of(o->ours + count / 2, count / 3))
		snprintf(o->why, sizeof(o->why), "the hash of %d frames on the trail", count);
	gm_trail_leave(&walk);
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
	if (!oracle_same_on_trail(o, &regs, GM_TRAIL_MOST) || !oracle_same_on_trail(o, &regs, 12))
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
