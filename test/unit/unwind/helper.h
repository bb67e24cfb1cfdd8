/* helper.h - what the unwinder's tests share: the libraries beside the test program. */
#ifndef GM_TEST_UNWIND_HELPER_H
#define GM_TEST_UNWIND_HELPER_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "test/suite.h"

/* The path of test/unit/unwind/@name as built beside this program. */
static inline const char *helper_path(const char *name)
{
	static __thread char path[PATH_MAX + 64];
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	ck_assert(length > 0);
	self[length] = 0;
	snprintf(path, sizeof(path), "%s/unwind/%s", dirname(self), name);
	return path;
}

static inline void *helper_open(const char *name)
{
	void *handle = dlopen(helper_path(name), RTLD_NOW | RTLD_LOCAL);

	ck_assert_msg(handle != NULL, "%s", dlerror());
	return handle;
}

static inline void *helper_symbol(void *handle, const char *name)
{
	void *symbol = dlsym(handle, name);

	ck_assert_msg(symbol != NULL, "%s", dlerror());
	return symbol;
}

static inline uint64_t helper_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A small generator. */
static inline uint64_t helper_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

#endif
