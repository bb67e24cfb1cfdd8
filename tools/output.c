/*
 * output.c - where a verb's result goes: see output.h. One thread.
 *
 * A file is written under another name beside its own and then renamed: a reader (node_exporter, a
 * viewer that is open) never finds half of one.
 */
#define _GNU_SOURCE
#include "tools/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 18)

int gm_output_open(struct gm_output *output, const char *path)
{
	const char *slash;
	struct stat st;
	mode_t mask;
	int fd;

	memset(output, 0, sizeof(*output));
	if (!path || !strcmp(path, "-")) {
		output->file = stdout;
		return 0;
	}
	if (strlen(path) >= sizeof(output->path) || !path[0])
		return -ENAMETOOLONG;
	strcpy(output->path, path);
	/* /dev/null and its like are written to, not replaced. */
	if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
		output->file = S_ISDIR(st.st_mode) ? NULL : fopen(path, "we");
		return output->file ? 0 : S_ISDIR(st.st_mode) ? -EISDIR : -errno;
	}
	slash = strrchr(path, '/');
	snprintf(output->temporary, sizeof(output->temporary), "%.*s.gpumem-XXXXXX",
		 slash ? (int)(slash + 1 - path) : 0, path);
	fd = mkostemp(output->temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	mask = umask(0);
	umask(mask);
	fchmod(fd, 0666 & ~mask);
	output->file = fdopen(fd, "w");
	if (!output->file) {
		close(fd);
		unlink(output->temporary);
		return -ENOMEM;
	}
	setvbuf(output->file, NULL, _IOFBF, BUFFER);
	return 0;
}

int gm_output_close(struct gm_output *output, int keep)
{
	int error = 0;

	if (fflush(output->file) || ferror(output->file))
		error = errno ? errno : EIO;
	if (output->path[0] && fclose(output->file) && !error)
		error = errno;
	if (!output->temporary[0])
		return -error;
	if (keep && !error && rename(output->temporary, output->path))
		error = errno;
	if (!keep || error)
		unlink(output->temporary);
	return -error;
}
