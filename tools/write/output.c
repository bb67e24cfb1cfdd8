/*
 * output.c - where a verb's result goes: see output.h. One thread.
 *
 * A file gets its name when it is complete (recorder/snapshot/outfile.c), so a reader, such as node_exporter or an open
 * viewer, never sees half a file. A file or link that had the name before is replaced and never written to, whoever
 * owns it.
 */
#define _GNU_SOURCE
#include "tools/write/output.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 18)
#define READER_MS 3000			/* the longest wait for a reader of a pipe */

/* Open the device or pipe at @path, which @seen describes. Return the descriptor, or -errno. */
static int open_special(const char *path, const struct stat *seen)
{
	const struct timespec pause = { 0, 10000000 };
	struct statfs where;
	struct stat st;
	int fd;

	if (S_ISBLK(seen->st_mode))
		return -ENOTSUP;
	for (int waited = 0;; waited += 10) {	/* open() itself could wait for ever */
		fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd >= 0 || errno != ENXIO || !S_ISFIFO(seen->st_mode) || waited >= READER_MS)
			break;
		nanosleep(&pause, NULL);
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_dev != seen->st_dev || st.st_ino != seen->st_ino ||
	    /* A named pipe of another user, who could read the output. */
	    (S_ISFIFO(st.st_mode) && st.st_uid != geteuid() && st.st_uid &&
	     (fstatfs(fd, &where) || where.f_type != PIPEFS_MAGIC))) {
		close(fd);
		return -EACCES;
	}
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

/* Look at what has the name @path now. Return 0 if a new file may take the name, a descriptor (above 0) of a device or
 * pipe to write to, or -errno. A link to a device is followed if we or root own the link. */
static int open_there(const char *path)
{
	struct stat st;
	bool follow;

	if (lstat(path, &st))
		return errno == ENOENT && path[0] ? 0 : -errno;
	follow = S_ISLNK(st.st_mode) && (st.st_uid == geteuid() || !st.st_uid);
	if ((follow && stat(path, &st)) || S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
		return 0;
	return S_ISDIR(st.st_mode) ? -EISDIR : open_special(path, &st);
}

int gm_output_open(struct gm_output *output, const char *path, bool public)
{
	int fd;

	output->out.fd = -1;
	output->file = stdout;
	if (!path || !strcmp(path, "-") || !strcmp(path, "/dev/stdout"))
		return 0;
	fd = open_there(path);
	if (!fd)
		fd = gm_outfile_create(&output->out, path, public);
	if (!fd) {
		fd = fcntl(output->out.fd, F_DUPFD_CLOEXEC, 3);	/* the file's lock outlasts its stream */
		fd = fd < 0 ? -errno : fd;
	}
	output->file = fd < 0 ? NULL : fdopen(fd, "w");
	if (output->file) {
		setvbuf(output->file, NULL, _IOFBF, BUFFER);
		return 0;
	}
	if (fd >= 0)
		close(fd);
	if (output->out.fd >= 0)
		gm_outfile_close(&output->out);
	return fd < 0 ? fd : -ENOMEM;
}

int gm_output_close(struct gm_output *output, int error)
{
	if (!error && (fflush(output->file) || ferror(output->file)))
		error = errno ? -errno : -EIO;
	if (output->file != stdout && fclose(output->file) && !error)
		error = -errno;
	if (output->out.fd < 0)
		return error;
	if (!error)
		error = gm_outfile_replace(&output->out);
	gm_outfile_close(&output->out);
	return error;
}
