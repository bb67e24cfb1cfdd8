/*
 * source.c - the bytes of an input, read as a parser gets to them: see source.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/read/source.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/read/limit.h"

#define BYTES_MOST ((size_t)1 << 33)	/* of any input; a million events take 120 MB */
#define STEP ((size_t)1 << 22)		/* read at once */
#define SLACK ((size_t)1 << 16)		/* that a file may grow by while it is read */

int gm_source_open(struct gm_source *source, int fd)
{
	size_t room = BYTES_MOST, page = (size_t)sysconf(_SC_PAGESIZE);
	struct stat st;
	void *at;

	*source = (struct gm_source){ .fd = fd };
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0) {
		if ((uint64_t)st.st_size > BYTES_MOST - SLACK)
			return -EFBIG;
		room = (size_t)st.st_size + SLACK;
	}
	room = (room + page - 1) & ~(page - 1);
	gm_limit_input(0, (int64_t)(room + page));
	at = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (at == MAP_FAILED) {
		gm_limit_input(0, -(int64_t)(room + page));
		return -ENOMEM;
	}
	source->bytes = at;
	source->room = room;
	source->mapped = room + page;
	return 0;
}

struct gm_source gm_source_of(const char *bytes, size_t have)
{
	return (struct gm_source){ .bytes = (char *)(uintptr_t)bytes, .have = have, .whole = true, .fd = -1 };
}

void gm_source_close(struct gm_source *source)
{
	if (source->mapped) {
		munmap(source->bytes, source->mapped);
		gm_limit_input(0, -(int64_t)source->mapped);
	}
	*source = (struct gm_source){ .whole = true, .fd = -1 };
}

static void forget(struct gm_source *source, size_t used)
{
	used &= ~(STEP - 1);
	if (used <= source->dropped)
		return;
	madvise(source->bytes + source->dropped, used - source->dropped, MADV_DONTNEED);
	source->dropped = used;
}

bool gm_source_more(struct gm_source *source, size_t needed, size_t used)
{
	size_t before = source->have;

	if (source->whole)
		return false;
	forget(source, used);
	if (needed < source->have + STEP)
		needed = source->have + STEP;
	while (source->have < needed && !source->whole) {
		size_t left = source->room - source->have;
		ssize_t n = left ? read(source->fd, source->bytes + source->have, left < STEP ? left : STEP) : -1;

		if (n < 0 && left && errno == EINTR)
			continue;
		if (n <= 0)
			source->whole = true;
		if (n < 0)
			source->error = left ? -errno : -EFBIG;
		if (n > 0) {
			source->have += (size_t)n;
			gm_limit_input((uint64_t)n, 0);
		}
	}
	return source->have > before;
}
