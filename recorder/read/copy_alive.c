/*
 * copy_alive.c - does the process that wrote a journal live?
 *
 * Its helper thread holds a robust mutex in the header. The kernel marks the mutex when the thread ends
 * in any way, exec included, so a mark proves that the process is dead. Without a mark the file may be a
 * copy or older than a reboot, or the helper thread may not have begun: then /proc is searched for a
 * process with the same boot, pid namespace, pid and start time. kill(pid, 0) would not do, because pids
 * repeat, over time and across namespaces.
 *
 * Thread context: one thread a call. Reads /proc with plain system calls, no malloc.
 */
#define _GNU_SOURCE
#include "recorder/read/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/journal/directory.h"
#include "recorder/journal/sys.h"
#include "recorder/journal/identity.h"

static uint64_t namespace_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

/* Is /proc/@pid, as we see it, the process? Returns 1, 0, or -errno. */
static int is_it(const struct gm_header *who, int64_t pid)
{
	char path[64], text[1024];
	uint64_t ticks;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	n = gm_file_read(path, text, sizeof(text));
	if (n < 0)
		return n == -ENOENT || n == -ESRCH ? 0 : (int)n;
	ticks = gm_identity_ticks(text);
	if (!ticks || ticks == who->start_ticks)
		return ticks != 0;
	/* In another time namespace start times are shifted, so they prove nothing. */
	snprintf(path, sizeof(path), "/proc/%lld/ns/time", (long long)pid);
	return namespace_of(path) == namespace_of("/proc/self/ns/time") ? 0 : -EXDEV;
}

/* Return the pid in the innermost namespace: the last number of the line "NSpid:"; 0: no such line. */
static int64_t innermost_pid(const char *status)
{
	const char *line = strstr(status, "\nNSpid:");
	const char *end, *last;

	if (!line)
		return 0;
	line += 7;
	end = strchr(line, '\n');
	if (!end)
		return 0;
	for (last = end; last > line && last[-1] >= '0' && last[-1] <= '9'; last--)
		;
	return strtoll(last, NULL, 10);
}

bool gm_copy_is_of(const struct gm_header *who, int64_t pid)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%lld/status", (long long)pid);
	if (gm_file_read(path, text, sizeof(text)) < 0 || innermost_pid(text) != who->pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%lld/ns/pid", (long long)pid);
	return namespace_of(path) == who->pid_namespace && is_it(who, pid) == 1;
}

struct search { const struct gm_header *who; bool found; };

/* Is the entry @name of /proc the process? We may see it from a namespace above its own. */
static bool look_at(void *arg, const char *name)
{
	struct search *search = arg;

	if (name[0] < '1' || name[0] > '9')
		return true;
	search->found = gm_copy_is_of(search->who, strtoll(name, NULL, 10));
	return !search->found;
}

/* Look at every process here, because a process in a namespace below ours has another number here.
 * Returns 1; -EXDEV when none matches: its namespace may be beside or above ours, where we cannot look. */
static int search_all(const struct gm_header *who)
{
	struct search search = { who, false };
	int fd = gm_file_open(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	gm_directory_each(fd, UINT_MAX, look_at, &search);
	close(fd);
	return search.found ? 1 : -EXDEV;
}

/* Find the process by boot, namespace, pid and start time. Returns 1, 0, or -errno when it is not known
 * here. */
static int look_for(const struct gm_header *who)
{
	uint64_t ours = namespace_of("/proc/self/ns/pid");
	char boot[sizeof(who->boot_id)];

	gm_identity_boot(boot);
	if (boot[0] && who->boot_id[0] && strncmp(boot, who->boot_id, sizeof(boot)))
		return 0;
	if (!ours || !who->pid_namespace || !who->start_ticks || who->pid <= 0)
		return -ENODATA;
	if (ours == who->pid_namespace)
		return is_it(who, who->pid);
	return search_all(who);
}

int gm_header_read(int fd, struct gm_header *ret)
{
	ssize_t n;

	memset(ret, 0, sizeof(*ret));
	n = gm_file_get(fd, ret, sizeof(*ret), 0);
	return n < 0 ? (int)n : 0;
}

int gm_header_alive(const struct gm_header *header)
{
	int sign = gm_header_sign(header), alive;
	struct gm_fd_guard guard;

	if (sign == 0)
		return 0;
	gm_fd_guard_begin(&guard);
	alive = look_for(header);
	gm_fd_guard_end(&guard);
	/* The process is out of sight in another namespace, but the kernel has not marked the mutex. */
	return alive < 0 && sign > 0 ? 1 : alive;
}

int gm_copy_alive(int fd)
{
	struct gm_header header;
	int r = gm_header_read(fd, &header);

	if (r < 0)
		return r;
	return header.magic == GM_MAGIC && header.version == GM_FORMAT_VERSION ?
	       gm_header_alive(&header) : -EBADMSG;
}
