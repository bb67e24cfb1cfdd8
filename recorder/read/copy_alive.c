/*
 * copy_alive.c - does the process that wrote a journal live?
 *
 * Its helper thread holds a robust mutex in the header: the kernel itself marks the word when the
 * thread ends, by whatever death, exec included. A word that says "dead" is believed. One that
 * says "alive" may be a copy of the file or come from before a reboot, and there may be no helper
 * yet: then the process is looked for by (boot, pid namespace, pid, start time), all of which must
 * agree. Never kill(pid, 0): pids repeat, across time and across namespaces.
 *
 * Thread context: one thread a call. Reads /proc with plain system calls, no malloc.
 */
#define _GNU_SOURCE
#include "recorder/read/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct gm_who {
	int64_t pid;
	uint64_t pid_namespace, start_ticks;
	char boot_id[sizeof(((struct gm_header *)0)->boot_id)];
};

static int read_text(int dirfd, const char *path, char *ret, size_t bytes)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, ret, bytes - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	ret[n > 0 ? n : 0] = '\0';
	return n < 0 ? (int)n : 0;
}

static uint64_t namespace_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

/* Field 22 of a stat file, 0 when it has none or the process is a zombie: its name (field 2) may
 * hold anything, so count from the last parenthesis. */
static uint64_t start_ticks(const char *text)
{
	const char *at = strrchr(text, ')');

	if (!at || !at[1] || at[2] == 'Z' || at[2] == 'X')
		return 0;
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* Is /proc/@pid of our own view the process? 1, 0, or -errno. */
static int is_it(const struct gm_who *who, int64_t pid)
{
	char path[64], text[1024];
	uint64_t ticks;
	int r;

	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	r = read_text(AT_FDCWD, path, text, sizeof(text));
	if (r == -ENOENT || r == -ESRCH)
		return 0;
	if (r)
		return r;
	ticks = start_ticks(text);
	if (!ticks || ticks == who->start_ticks)
		return ticks != 0;
	/* Start times are told by the reader's clock: another time namespace tells another one. */
	snprintf(path, sizeof(path), "/proc/%lld/ns/time", (long long)pid);
	return namespace_of(path) == namespace_of("/proc/self/ns/time") ? 0 : -EXDEV;
}

/* The last number of the line "NSpid:", the pid in the innermost namespace; 0: there is none. */
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

/* Is the entry @name of /proc the process, seen from a namespace above its own? */
static bool is_it_below(const struct gm_who *who, const char *name)
{
	char path[300], text[4096];

	if (name[0] < '1' || name[0] > '9')
		return false;
	snprintf(path, sizeof(path), "/proc/%s/status", name);
	if (read_text(AT_FDCWD, path, text, sizeof(text)) || innermost_pid(text) != who->pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%s/ns/pid", name);
	return namespace_of(path) == who->pid_namespace &&
	       is_it(who, strtoll(name, NULL, 10)) == 1;
}

/* In a namespace below ours the process has another number here: look at all. 1, or -EXDEV when
 * it was not found, which says nothing when its namespace is not below ours. */
static int search(const struct gm_who *who)
{
	char buffer[4096] __attribute__((aligned(8)));
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int found = -EXDEV;
	long n;

	if (fd < 0)
		return -errno;
	while (found < 0 && (n = syscall(SYS_getdents64, fd, buffer, sizeof(buffer))) > 0) {
		for (long at = 0; at < n && found < 0;) {
			const struct dirent64 *entry = (const void *)(buffer + at);

			if (is_it_below(who, entry->d_name))
				found = 1;
			at += entry->d_reclen;
		}
	}
	close(fd);
	return found;
}

/* By boot, namespace, pid and start time: 1, 0, or -errno when it cannot be told from here. */
static int look_for(const struct gm_who *who)
{
	char boot[64];
	uint64_t ours = namespace_of("/proc/self/ns/pid");

	if (!read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) &&
	    who->boot_id[0]) {
		boot[strcspn(boot, "\n")] = '\0';
		if (strcmp(boot, who->boot_id))
			return 0;
	}
	if (!ours || !who->pid_namespace || !who->start_ticks || who->pid <= 0)
		return -ENODATA;
	if (ours == who->pid_namespace)
		return is_it(who, who->pid);
	return search(who);
}

static int read_header(int fd, uint32_t version, struct gm_header *ret)
{
	size_t done = 0;

	while (done < sizeof(*ret)) {
		ssize_t n = pread(fd, (char *)ret + done, sizeof(*ret) - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		done += (size_t)n;
	}
	return ret->magic == GM_MAGIC && ret->version == version ? 0 : -EBADMSG;
}

int gm_copy_alive(int fd)
{
	return gm_copy_alive_of(fd, GM_FORMAT_VERSION);
}

int gm_copy_alive_of(int fd, uint32_t version)
{
	struct gm_header header;
	struct gm_who who;
	uint32_t word;
	int alive, r = read_header(fd, version, &header);

	if (r)
		return r;
	who = (struct gm_who){ .pid = header.pid, .pid_namespace = header.pid_namespace,
			       .start_ticks = header.start_ticks };
	memcpy(who.boot_id, header.boot_id, sizeof(who.boot_id) - 1);
	/* glibc's pthread_mutex_t begins with the futex word: the owner's tid and, after its
	 * death, FUTEX_OWNER_DIED. */
	memcpy(&word, &header.alive, sizeof(word));
	if (header.has_helper && ((word & FUTEX_OWNER_DIED) || !(word & FUTEX_TID_MASK)))
		return 0;
	alive = look_for(&who);
	/* Out of sight in another namespace, but the kernel has not marked the word. */
	if (alive < 0 && header.has_helper)
		return 1;
	return alive;
}
