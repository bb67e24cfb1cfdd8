/*
 * follow.c - option follow:no: children do not get the preload.
 *
 * Thread context: the first hook. Another thread of the program may be reading the environment,
 * so no string in it is changed and nothing is freed: one pointer of environ is replaced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/follow.h"

static const char name[] = "LD_PRELOAD=";

/* Is the file that one entry names the one that we were loaded from? */
static bool is_us(const char *entry, size_t length, const char *us)
{
	char path[4096];
	struct stat ours, its;

	if (length == 0 || length >= sizeof(path))
		return false;
	memcpy(path, entry, length);
	path[length] = '\0';
	if (strcmp(path, us) == 0)
		return true;
	if (strchr(path, '/'))
		return stat(us, &ours) == 0 && stat(path, &its) == 0 &&
		       ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
	/* A bare name was searched for; the loader went by its last part. */
	return strrchr(us, '/') && strcmp(strrchr(us, '/') + 1, path) == 0;
}

/* @list without us, into @ret, which has its room. */
static void without_us(const char *list, const char *us, char *ret)
{
	while (*list) {
		size_t length = strcspn(list, ": ");
		size_t separator = list[length] != '\0';

		if (!is_us(list, length, us)) {
			memcpy(ret, list, length + separator);
			ret += length + separator;
		}
		list += length + separator;
	}
	*ret = '\0';
}

void gm_follow_stop(void)
{
	Dl_info info;
	char *copy;
	size_t bytes;

	if (!environ || !dladdr((const void *)gm_follow_stop, &info) || !info.dli_fname)
		return;
	for (char **at = environ; *at; at++) {
		if (strncmp(*at, name, sizeof(name) - 1) != 0)
			continue;
		bytes = strlen(*at) + 1;
		copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (copy == MAP_FAILED)
			return;
		memcpy(copy, name, sizeof(name) - 1);
		without_us(*at + sizeof(name) - 1, info.dli_fname, copy + sizeof(name) - 1);
		__atomic_store_n(at, copy, __ATOMIC_RELEASE);
		return;
	}
}
