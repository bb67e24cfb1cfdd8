/*
 * attach.c - the journal of a living process, found from outside: see attach.h.
 *
 * The kernel's own list of the process's mappings names it, so neither the process's options nor
 * its namespaces need to be known. The process may be another user's, and hostile: what is opened is
 * the very file that it has mapped, and opening it waits for nobody.
 */
#define _GNU_SOURCE
#include "tools/read/attach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "recorder/journal/format.h"
#include "tools/show/show.h"

#define TRIES_MOST 64u			/* mappings of one process that are looked into */
#define NOBODY ((uid_t)-1)

/* What a line of /proc/PID/maps says of a mapping that may be a journal. */
struct mapping { const char *range, *name; uint64_t device, inode; };

/* Something else may have the name by now that the file had when it was mapped. Some file systems show another
 * device in /proc than stat() does: of these only the inode numbers are compared. */
static bool is_mapped(int fd, const struct mapping *of)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_ino != of->inode)
		return false;
	return st.st_dev == of->device ||
	       (!fstatfs(fd, &fs) &&
		(fs.f_type == OVERLAYFS_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC));
}

/* The file behind @look, an O_PATH descriptor: nothing but a regular file is ever opened, which has no
 * side effect, and a lease (fcntl F_SETLEASE) on it is not waited for. */
static int open_journal(int look, struct gm_attached *attached)
{
	char through[64];
	uint64_t magic = 0;
	struct stat st;
	int fd, writable, r;

	if (fstat(look, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	snprintf(through, sizeof(through), "/proc/self/fd/%d", look);
	fd = open(through, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	r = pread(fd, &magic, sizeof(magic), 0) < 0 ? -errno : magic == GM_MAGIC ? 0 : -ENOENT;
	writable = r ? -1 : open(through, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	attached->writable = writable >= 0;
	attached->fd = r ? -1 : writable >= 0 ? writable : fd;
	if (attached->fd != fd)
		close(fd);
	return r;
}

/* The mapped file itself where the kernel lets us have it, whatever its name is by now; else what has
 * its name in the process's view, if that is it. */
static int try_mapping(pid_t pid, const struct mapping *mapping, struct gm_attached *attached)
{
	char path[4096];
	int look, r;

	snprintf(path, sizeof(path), "/proc/%ld/map_files/%s", (long)pid, mapping->range);
	look = open(path, O_PATH | O_CLOEXEC);
	if (look < 0) {
		snprintf(path, sizeof(path), "/proc/%ld/root%s", (long)pid, mapping->name);
		look = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (look < 0)
			return -errno;
		if (!is_mapped(look, mapping)) {
			close(look);
			return -ENOENT;
		}
	}
	r = open_journal(look, attached);
	close(look);
	return r;
}

/* "BEGIN-END rw-s OFFSET MAJOR:MINOR INODE   NAME": may that be a journal? */
static bool read_line(char *line, struct mapping *ret)
{
	unsigned int major_number, minor_number;
	unsigned long long inode;
	char *name = strchr(line, '/');

	if (!name || !strstr(line, " rw-s ") ||
	    sscanf(line, "%*s %*s %*s %x:%x %llu", &major_number, &minor_number, &inode) != 3)
		return false;
	name[strcspn(name, "\n")] = '\0';
	if (!strstr(name, ".journal") && !strstr(name, "memfd:gpumem"))
		return false;
	line[strcspn(line, " ")] = '\0';
	*ret = (struct mapping){ line, name, makedev(major_number, minor_number), inode };
	return true;
}

FILE *gm_attach_proc(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	return fopen(path, "re");
}

/* What /proc/PID/@name begins with; "": it cannot be read. */
static void read_proc(pid_t pid, const char *name, char *ret, size_t bytes)
{
	FILE *file = gm_attach_proc(pid, name);

	ret[file ? fread(ret, 1, bytes - 1, file) : 0] = '\0';
	if (file)
		fclose(file);
}

/* Whose journal it is: the user of the file, if every user number of the process is theirs, too. A process that
 * has given up another user's rights may have written anything into a journal of that user's. */
static uid_t owner_of(pid_t pid, int fd)
{
	char text[4096];
	unsigned int ids[4];
	const char *line;
	struct stat st;

	read_proc(pid, "status", text, sizeof(text));
	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4 ||
	    fstat(fd, &st))
		return NOBODY;
	for (unsigned int i = 0; i < 4; i++)
		if (ids[i] != st.st_uid)
			return NOBODY;
	return st.st_uid;
}

int gm_attach(int64_t number, struct gm_attached *ret_attached)
{
	pid_t pid = (pid_t)number;
	char *line = NULL;
	size_t room = 0;
	unsigned int tries = 0;
	FILE *maps;
	int r = -ENOENT;

	memset(ret_attached, 0, sizeof(*ret_attached));
	ret_attached->fd = -1;
	if (number <= 0 || number > INT32_MAX)
		return -ESRCH;
	maps = gm_attach_proc(pid, "maps");
	if (!maps)
		return errno == ENOENT ? -ESRCH : -errno;
	while (tries < TRIES_MOST && getline(&line, &room, maps) > 0) {
		struct mapping mapping;
		int one;

		if (!read_line(line, &mapping))
			continue;
		tries++;
		one = try_mapping(pid, &mapping, ret_attached);
		if (!one || one != -ENOENT)
			r = one;
		if (!one)
			break;
	}
	if (r && ferror(maps))
		r = -EACCES;
	free(line);
	fclose(maps);
	if (!r)
		ret_attached->owner = owner_of(pid, ret_attached->fd);
	return r;
}

bool gm_attach_stopped(int64_t pid)
{
	char text[512];
	const char *state;

	read_proc((pid_t)pid, "stat", text, sizeof(text));
	state = strrchr(text, ')');
	return state && state[1] == ' ' && (state[2] == 'T' || state[2] == 't');
}

/* The one mapping of a part of a journal. */
static struct { uint8_t *base; size_t bytes; volatile sig_atomic_t cut; } mapped;

static bool lay_zeroes(void)
{
	return mmap(mapped.base, mapped.bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* The file was cut short while we had a part of it mapped. An access to anything else is made again, and the
 * signal kills us. */
static void on_bus(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (mapped.base && (uintptr_t)info->si_addr - (uintptr_t)mapped.base < mapped.bytes && lay_zeroes())
		mapped.cut = 1;
	else
		signal(number, SIG_DFL);
}

void *gm_attach_map(const struct gm_attached *attached, size_t bytes)
{
	struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, attached->fd, 0);

	if (base == MAP_FAILED)
		return NULL;
	mapped.base = base;
	mapped.bytes = bytes;
	mapped.cut = 0;
	sigaction(SIGBUS, &action, NULL);
	return base;
}

bool gm_attach_was_cut(void)
{
	return mapped.cut;
}

void gm_attach_unmap(void)
{
	if (mapped.base)
		munmap(mapped.base, mapped.bytes);
	mapped.base = NULL;
}

const char *gm_attach_explain(int error)
{
	switch (-error) {
	case ESRCH:
		return "there is no such process";
	case ENOENT:
		return "it has no journal: it was not started under libgpumem, or has made no CUDA call yet";
	case EWOULDBLOCK:
		return "its journal is leased (fcntl F_SETLEASE): try again later";
	case EACCES:
	case EPERM:
		return "it may not be looked into: it belongs to another user, or has more rights than this one";
	default:
		return strerror(-error);
	}
}

void gm_discover(void (*visit)(void *arg, int64_t pid), void *arg)
{
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	while (proc && (entry = readdir(proc))) {
		struct gm_attached attached;
		long pid = strtol(entry->d_name, NULL, 10);

		if (pid <= 0 || pid == getpid() || gm_attach(pid, &attached))
			continue;
		close(attached.fd);
		visit(arg, pid);
	}
	if (proc)
		closedir(proc);
}
