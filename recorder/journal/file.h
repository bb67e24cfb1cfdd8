/*
 * file.h - opening files in a program that is not ours.
 *
 * The host may have closed its standard descriptors, and open() takes the lowest free number: a
 * printf of another thread would then write into what we opened. While a guard stands, 0 to 2 are
 * never free: O_PATH descriptors hold those that were, which can be neither read nor written (a
 * call of the host's fails with EBADF, as it would without us).
 *
 * Thread context: any. Signal context: none.
 */
#ifndef GM_RECORDER_FILE_H
#define GM_RECORDER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct gm_fd_guard { bool placed[3]; };

void gm_fd_guard_begin(struct gm_fd_guard *guard);
void gm_fd_guard_end(struct gm_fd_guard *guard);

/* Open by gm_sys.open_file, close-on-exec; never returns 0, 1 or 2. Returns -errno. */
int gm_file_open(int dirfd, const char *path, int flags, mode_t mode);

/* Read the beginning of a small file and put a NUL after it. Returns its bytes (at most
 * @size - 1), or -errno and "" in @buf. */
ssize_t gm_file_read(const char *path, char *buf, size_t size);

#endif
