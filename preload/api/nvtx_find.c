/*
 * nvtx_find.c - how NVTX finds us: it asks for NVTX_INJECTION64_PATH, at the first use in a library,
 * and loads what that names.
 *
 * Setting the variable would show: in what a program prints of its environment, and in children
 * that have no preload, which would load us for nothing. So the question is answered instead: our
 * getenv is the real one, but for that name, and only when the variable is not there. A profiler
 * that wants NVTX for itself sets it, and keeps it.
 *
 * Thread and signal context: getenv's own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "preload/hooks/hook.h"
#include "preload/api/nvtx.h"
#include "preload/driver/real.h"

GM_PUBLIC char *getenv(const char *name);

/* Asked before the first CUDA call, most times; what is wrong with the options is said then. */
bool gm_nvtx_wanted(void)
{
	static _Atomic(uint32_t) answer;	/* 0 not known; 1 no; 2 yes */
	uint32_t known = gm_get(&answer);
	struct gm_options options;

	if (!known && getauxval(AT_SECURE)) {
		known = 1;
	} else if (!known) {
		gm_options_read(&options, environ, NULL, NULL);
		known = options.nvtx ? 2 : 1;
	}
	gm_set(&answer, known);
	return known == 2;
}

/* We are loaded already: NVTX gets another reference to what it names by this very name. */
static char *our_path(void)
{
	Dl_info info;

	if (!gm_nvtx_wanted() || !dladdr((const void *)our_path, &info) || !info.dli_fname ||
	    !strchr(info.dli_fname, '/'))
		return NULL;
	return (char *)(uintptr_t)info.dli_fname;
}

/* Before we are set up: a constructor of another library asks. */
static char *find_variable(const char *name)
{
	size_t length = strlen(name);

	for (char **at = environ; at && *at; at++)
		if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
			return *at + length + 1;
	return NULL;
}

char *getenv(const char *name)
{
	char *value = gm_libc.getenv ? gm_libc.getenv(name) : find_variable(name);

	if (__builtin_expect(value || name[0] != 'N' || strcmp(name, "NVTX_INJECTION64_PATH"), 1))
		return value;
	return our_path();
}
