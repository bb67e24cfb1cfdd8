/*
 * sys.h - what the recorder asks of the system: memory, and files in a program that is not ours.
 *
 * One table of entries, so that a test can make the n-th of them fail, or lend the recorder a
 * file system, a cgroup or a clock of its own. Nobody else changes it.
 * Thread context: any; the table is constant after start-up. Signal context: none for files.
 */
#ifndef GM_RECORDER_SYS_H
#define GM_RECORDER_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/types.h>

struct gm_sys {
	const char *shm;		/* "/dev/shm" */
	const char *proc;		/* "/proc" */
	const char *cgroup;		/* "/sys/fs/cgroup" */
	const char *clocksource;	/* the file that names the kernel's clock source */
	int (*open_file)(int dirfd, const char *path, int flags, mode_t mode);
	int (*memfd)(const char *name, unsigned int flags);
	int (*truncate)(int fd, off_t bytes);
	int (*allocate)(int fd, int mode, off_t offset, off_t bytes);
	int (*space)(int fd, struct statvfs *ret_space);
	int (*limit)(int resource, struct rlimit *ret_limit);
	void *(*map)(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset);
	int (*unmap)(void *addr, size_t bytes);
	int (*protect)(void *addr, size_t bytes, int prot);
	int (*advise)(void *addr, size_t bytes, int advice);
	int (*page)(void);		/* bytes of the kernel's pages: 4 KiB; on aarch64 up to 64 KiB */
};

extern struct gm_sys gm_sys;

/* A mapping that takes memory as it is touched, also under mlockall(MCL_FUTURE), which would bring
 * all of a new one into memory: made without access, unlocked, and only then opened. @flags and @fd
 * as of mmap(2). Returns it, NULL and errno when there is none. */
void *gm_map(size_t bytes, int flags, int fd);
void *gm_map_private(size_t bytes);	/* zeroed, nobody else's */

/* Memory for a large table, zeroed, taken as it is touched: mapped when it is first wanted, since a
 * program that never calls CUDA may have no room for it (RLIMIT_DATA counts .bss as well). *@at
 * once set stays. Returns it, NULL when there is none. Any thread, signal handlers too; errno is
 * kept. */
void *gm_table_once(_Atomic(void *) *at, size_t bytes);

/* The host may have closed its standard descriptors, and open() takes the lowest free number: a
 * printf of another thread would then write into what we opened. While a guard stands, 0 to 2 are
 * never free: O_PATH descriptors hold those that were, which can be neither read nor written (a
 * call of the host's fails with EBADF, as it would without us). */
struct gm_fd_guard { bool placed[3]; };

void gm_fd_guard_begin(struct gm_fd_guard *guard);
void gm_fd_guard_end(struct gm_fd_guard *guard);

/* Open by gm_sys.open_file, close-on-exec; never returns 0, 1 or 2. Returns -errno. */
int gm_file_open(int dirfd, const char *path, int flags, mode_t mode);

/* Read @bytes at @at. Returns how many there were, or -errno. */
ssize_t gm_file_get(int fd, void *buf, size_t bytes, uint64_t at);

/* Read the beginning of a small file and put a NUL after it. Returns its bytes (at most
 * @size - 1), or -errno and "" in @buf. */
ssize_t gm_file_read(const char *path, char *buf, size_t size);

#endif
