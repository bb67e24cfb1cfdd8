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

#include "recorder/read/copy.h"
#include "test/unit/journal/aux_check.h"

static void report(void *arg, const char *what, uint64_t where)
{
	(void)arg;
	printf("  %s at %" PRIu64 "\n", what, where);
}

static int check(const char *path)
{
	struct gm_copy copy;
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc, bad;

	memset(&copy, 0, sizeof(copy));
	rc = fd < 0 ? -errno : gm_copy_from_file(&copy, fd);
	if (!rc)
		rc = gm_copy_resolve(&copy, UINT64_MAX);
	bad = rc ? 1 : gm_copy_check(&copy, report, NULL);
	printf("%s: %s %d, %zu events, %zu in flight\n", path, rc ? copy.error : "violations",
	       rc ? rc : bad, copy.event_count, copy.flight_count);
	gm_copy_free(&copy);
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
