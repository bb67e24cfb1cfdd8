/*
 * journal_check.c - read the journals named, as gpumem recover would, and count violations of every
 * structural rule. Prints a line each; exits 1 when a rule is broken or a journal cannot be read.
 *
 * Thread context: one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "recorder/read/image.h"

static void report(void *arg, const char *what, uint64_t where)
{
	(void)arg;
	printf("  %s at %" PRIu64 "\n", what, where);
}

static int check(const char *path)
{
	struct gm_image image;
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc, bad;

	memset(&image, 0, sizeof(image));
	rc = fd < 0 ? -errno : gm_image_copy_file(&image, fd);
	if (!rc)
		rc = gm_image_settle(&image, UINT64_MAX);
	bad = rc ? 1 : gm_image_check(&image, report, NULL);
	printf("%s: %s %d, %zu events, %zu in flight\n", path, rc ? image.error : "violations",
	       rc ? rc : bad, image.event_count, image.flight_count);
	gm_image_free(&image);
	if (fd >= 0)
		close(fd);
	return bad != 0;
}

int main(int argc, char **argv)
{
	int failed = argc < 2;

	for (int i = 1; i < argc; i++)
		failed |= check(argv[i]);
	return failed;
}
