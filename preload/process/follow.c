/*
 * follow.c - option follow:no: children do not get the preload.
 *
 * Removing the preload at the first CUDA call is not enough, because a shell or a launcher that never calls CUDA
 * would still hand it on. So the process that was started with the option marks the option with its number
 * ("no@4711") when the library is loaded. In a process with another number the library does nothing. The number
 * stays the same over exec.
 *
 * Thread context: the loader's, and the first hook. Another thread of the program may be reading the
 * environment, so no string is changed and nothing is freed: only a pointer of environ is replaced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/process/state.h"
#include "preload/options/options.h"
#include "preload/options/text.h"

static bool handed_on;			/* another process has handed the preload on to this one */

static const char name[] = "LD_PRELOAD=";

/* Does an entry of LD_PRELOAD name the file from which this library was loaded? */
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
	/* The loader searched for a bare name: compare the last part of the path. */
	return strrchr(us, '/') && strcmp(strrchr(us, '/') + 1, path) == 0;
}

/* Copy @list without this library to @ret, which is as large as @list. */
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

bool gm_follow_ends_here(void)
{
	return handed_on;
}

/* Find the entry of the environment that says follow:no; NULL: none does. */
static char **find_option(void)
{
	static const char variable[] = "GPUMEM_FOLLOW=", conf[] = "GPUMEM_CONF=";
	struct gm_options options;
	char **found = NULL;

	for (char **at = environ; at && *at; at++) {
		if (strncmp(*at, variable, sizeof(variable) - 1) == 0) {
			found = at;
			break;
		}
		if (strncmp(*at, conf, sizeof(conf) - 1) == 0 && strstr(*at, "follow"))
			found = at;
	}
	if (!found)
		return NULL;
	gm_options_read(&options, environ, NULL, NULL);
	return options.follow ? NULL : found;
}

/* Return the number behind the last '@' of @text; 0: none. */
static uint64_t owner_of(const char *text)
{
	const char *at = strrchr(text, '@');
	uint64_t owner = 0;

	for (at = at ? at + 1 : ""; *at; at++) {
		if (*at < '0' || *at > '9')
			return 0;
		owner = owner * 10 + (uint64_t)(*at - '0');
	}
	return owner;
}

/* Mark the option with @owner: as GPUMEM_FOLLOW=no@4711, or at the end of GPUMEM_CONF, where the last word wins. */
static void mark(char **entry, uint64_t owner)
{
	bool conf = strncmp(*entry, "GPUMEM_CONF=", 12) == 0;
	size_t bytes = strlen(*entry) + 40;
	struct gm_line line = { mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes, 0 };

	if (line.text == MAP_FAILED)
		return;
	gm_line_add(&line, *entry);
	gm_line_add(&line, conf ? ",follow:no@" : "@");
	gm_line_add_number(&line, owner);
	__atomic_store_n(entry, line.text, __ATOMIC_RELEASE);
}

void gm_follow_loaded(void)
{
	char **entry = getauxval(AT_SECURE) ? NULL : find_option();
	uint64_t owner = entry ? owner_of(*entry) : 0, me = (uint64_t)getpid();

	if (!entry)
		return;
	if (!owner) {
		mark(entry, me);
	} else if (owner != me) {
		handed_on = true;
		gm_follow_stop();
	}
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
