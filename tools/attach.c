/*
 * attach.c - the journal of a living process, found from outside: see attach.h.
 *
 * The kernel's own list of the process's mappings names it, so neither the process's options nor
 * its namespaces need to be known. A journal without a name left (unlinked, or a memfd) is opened
 * through /proc/PID/map_files.
 */
#define _GNU_SOURCE
#include "tools/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/format.h"

/* Does @fd begin with the header of a journal of this very version and process? */
static bool is_journal(int fd)
{
	uint64_t magic;
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	       pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) && magic == GM_MAGIC;
}

static int try_open(const char *path, struct gm_attached *attached)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);

	attached->writable = fd >= 0;
	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -errno;
	if (!is_journal(fd)) {
		close(fd);
		return -ENOENT;
	}
	attached->fd = fd;
	snprintf(attached->path, sizeof(attached->path), "%s", path);
	return 0;
}

/* One line of /proc/PID/maps: a mapping that may be a journal? */
static int try_mapping(pid_t pid, char *line, struct gm_attached *attached)
{
	char *name = strchr(line, '/');
	char path[4096];
	char range[64];
	size_t length;
	int r;

	if (!name || !strstr(line, " rw-s "))
		return -ENOENT;
	length = strlen(name);
	if (length && name[length - 1] == '\n')
		name[--length] = '\0';
	if (!strstr(name, ".journal") && !strstr(name, "memfd:gpumem"))
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/%ld/root%s", (long)pid, name);
	r = try_open(path, attached);
	if (!r)
		return 0;
	snprintf(range, sizeof(range), "%.*s", (int)strcspn(line, " "), line);
	snprintf(path, sizeof(path), "/proc/%ld/map_files/%s", (long)pid, range);
	if (!try_open(path, attached))
		return 0;
	return r;
}

int gm_attach(int64_t number, struct gm_attached *ret_attached)
{
	pid_t pid = (pid_t)number;
	char path[64];
	char *line = NULL;
	size_t room = 0;
	FILE *maps;
	int r = -ENOENT;

	memset(ret_attached, 0, sizeof(*ret_attached));
	ret_attached->fd = -1;
	if (number <= 0 || number > INT32_MAX)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%ld/maps", (long)pid);
	maps = fopen(path, "re");
	if (!maps)
		return errno == ENOENT ? -ESRCH : -errno;
	while (getline(&line, &room, maps) > 0) {
		int one = try_mapping(pid, line, ret_attached);

		if (!one || one != -ENOENT)
			r = one;
		if (!one)
			break;
	}
	if (r && ferror(maps))
		r = -EACCES;
	free(line);
	fclose(maps);
	return r;
}

const char *gm_attach_explain(int error)
{
	switch (-error) {
	case ESRCH:
		return "there is no such process";
	case ENOENT:
		return "it has no journal: it was not started under libgpumem, or has made no CUDA call yet";
	case EACCES:
	case EPERM:
		return "it may not be looked into: it belongs to another user, or has more rights than this one";
	default:
		return strerror(-error);
	}
}
