/*
 * module_path.c - names of modules (see module_path.h).
 *
 * Owns the executable's path, written once by gm_module_path_init.
 */
#define _GNU_SOURCE			/* program_invocation_name */
#include "recorder/modules/module_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "recorder/journal/probe.h"

static char executable[GM_MODULE_PATH_BYTES];

static void copy(char *dst, const char *src)
{
	size_t length = strlen(src);

	if (length >= GM_MODULE_PATH_BYTES) {		/* the end has the file's name */
		src += length - (GM_MODULE_PATH_BYTES - 1);
		length = GM_MODULE_PATH_BYTES - 1;
	}
	memcpy(dst, src, length + 1);
}

static void make_absolute(const char *name, char *dst)
{
	char directory[512];
	long got;
	size_t length;

	if (name[0] == '/' || !strchr(name, '/')) {
		copy(dst, name);
		return;
	}
	got = gm_syscall(SYS_getcwd, (long)directory, sizeof(directory), 0, 0, 0, 0);
	length = got > 1 && directory[0] == '/' ? (size_t)got - 1 : 0;
	while (name[0] == '.' && name[1] == '/')
		name += 2;
	if (length == 0 || length + 1 + strlen(name) >= GM_MODULE_PATH_BYTES) {
		copy(dst, name);
		return;
	}
	memcpy(dst, directory, length);
	if (length > 1)
		dst[length++] = '/';
	memcpy(dst + length, name, strlen(name) + 1);
}

void gm_module_path_init(void)
{
	static const char deleted[] = " (deleted)";
	int saved = errno;
	long got = gm_syscall(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)executable,
			      sizeof(executable) - 1, 0, 0);

	if (got > 0) {
		size_t cut = sizeof(deleted) - 1;

		executable[got] = 0;
		/* the kernel's remark on an executable replaced since */
		if ((size_t)got > cut && !strcmp(executable + got - cut, deleted))
			executable[(size_t)got - cut] = 0;
	} else {			/* no /proc: as execve was given it, else argv[0] */
		const char *name = (const char *)getauxval(AT_EXECFN);

		make_absolute(name && name[0] ? name : program_invocation_name, executable);
	}
	errno = saved;
}

void gm_module_path(const char *name, char ret_path[GM_MODULE_PATH_BYTES])
{
	if (name[0])
		make_absolute(name, ret_path);
	else
		copy(ret_path, executable);
}

bool gm_module_passes_on(const char *path)
{
	/* by the beginning of the file's name: wheels rename (libcudart-8774224f.so.12) */
	static const char *const names[] = {
		"libcuda.so", "libcudart.so", "libcudart-", "libcupti.so", "libcupti-",
		"libgpumem.so", "libdl.so", "libdl-", "ld-linux", "ld-2.", "ld.so",
	};
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}
