/*
 * sys.h - the recorder's system calls: memory, and files inside a program that is not ours.
 *
 * All of them go through one table, so that a test can make the n-th call fail, or give the recorder
 * its own file system, cgroup or clock. Only tests change the table.
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

/* Map @bytes that take memory only when they are touched. mlockall(MCL_FUTURE) would make a plain new
 * mapping resident at once, so the mapping is made without access, unlocked, and then made accessible.
 * @flags and @fd are those of mmap(2). Returns the mapping; NULL and errno on failure. */
void *gm_map(size_t bytes, int flags, int fd);
void *gm_map_private(size_t bytes);	/* anonymous, zeroed */

/* Return the large zeroed table at *@at, and map it at the first call. Such tables are not in .bss,
 * because RLIMIT_DATA counts .bss and a program that never calls CUDA may have no room for them. *@at
 * never changes once it is set. Returns NULL when there is no memory. Any thread; async-signal-safe;
 * keeps errno. */
void *gm_table_once(_Atomic(void *) *at, size_t bytes);

/* Keep our files off descriptors 0 to 2. open() takes the lowest free number; if the host has closed a
 * standard descriptor, another thread's printf could write into a file that we opened. While a guard
 * stands, O_PATH descriptors occupy the free numbers among 0 to 2. They can be neither read nor written,
 * so the host's calls fail with EBADF as they would without us. */
struct gm_fd_guard { bool placed[3]; };

void gm_fd_guard_begin(struct gm_fd_guard *guard);
void gm_fd_guard_end(struct gm_fd_guard *guard);

/* Open a file, close-on-exec. Returns a descriptor above 2, or -errno. */
int gm_file_open(int dirfd, const char *path, int flags, mode_t mode);

/* Read @bytes at offset @at. Returns how many were read (fewer at the end of the file), or -errno. */
ssize_t gm_file_get(int fd, void *buf, size_t bytes, uint64_t at);

/* Read the first @size - 1 bytes of a small file and put a NUL behind them. Returns how many bytes were
 * read; -errno, and @buf is "". */
ssize_t gm_file_read(const char *path, char *buf, size_t size);

#endif
