/*
 * reader.c - the reader of journals in the page of `gpumem view`, as WebAssembly: the journal copy of recorder/read/
 * and the snapshot of recorder/snapshot/, the same files as in the command, on what a page has in place of a system.
 *
 * The page lends two functions: one reads a part of the file that was dropped, one takes the next part of the JSON.
 * Memory is the module's own, and goes with it: a module reads one file. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/journal/sys.h"
#include "recorder/read/copy_internal.h"
#include "recorder/snapshot/snapshot.h"

/* A copy is as long as its journal says it is, though little of it may be there. All lengths below this fit into
 * 31 bits, which is what the numbers of a 32-bit machine can count. */
#define LENGTH_MOST (UINT64_C(1) << 30)

#define FROM_PAGE(name) __attribute__((import_module("page"), import_name(name)))
#define TO_PAGE(name) __attribute__((export_name(name)))

/* Read @bytes at @at of the file into @into. Returns how many there were, or -1: the browser could not read it. */
FROM_PAGE("get") int page_get(double at, void *into, int bytes);
/* The next @bytes of the JSON. 0, or -1: no more, it would be too long. */
FROM_PAGE("put") int page_put(const void *from, int bytes);

static double file_bytes;
static char why[sizeof(((struct gm_copy *)NULL)->error)];

/* ---- memory: the end of the module's own ---------------------------------------------------------- */

extern unsigned char __heap_base;
static uintptr_t top, clean;		/* in use below @top; from @clean on nothing was ever written */

void *gm_map_private(size_t bytes)
{
	uintptr_t at, have = __builtin_wasm_memory_size(0) << 16;

	if (!top)
		top = clean = ((uintptr_t)&__heap_base + GM_PAGE - 1) & ~(uintptr_t)(GM_PAGE - 1);
	bytes = (bytes + GM_PAGE - 1) & ~(size_t)(GM_PAGE - 1);
	at = top;
	if (bytes > UINTPTR_MAX - 65536 - at)
		return NULL;
	if (at + bytes > have && __builtin_wasm_memory_grow(0, (at + bytes - have + 65535) >> 16) == SIZE_MAX)
		return NULL;
	top = at + bytes;
	if (clean > at)
		memset((void *)at, 0, (clean < top ? clean : top) - at);
	if (clean < top)
		clean = top;
	return (void *)at;
}

/* Only what was mapped last is used again: copies and their scratch areas are few. */
int munmap(void *at, size_t bytes)
{
	bytes = (bytes + GM_PAGE - 1) & ~(size_t)(GM_PAGE - 1);
	if ((uintptr_t)at + bytes == top)
		top = (uintptr_t)at;
	return 0;
}

/* ---- the file, and the JSON ------------------------------------------------------------------------ */

ssize_t gm_file_get(int fd, void *into, size_t bytes, uint64_t at)
{
	(void)fd;
	int have = page_get((double)at, into, (int)bytes);

	return have < 0 ? -EIO : have;
}

/* Of both: a file, of which nothing says what it takes on a disk. */
int fstat(int fd, struct stat *ret)
{
	(void)fd;
	*ret = (struct stat){ .st_mode = S_IFREG, .st_size = (off_t)file_bytes };
	return 0;
}

/* A page sees no holes. */
#undef lseek
off_t lseek(int fd, off_t at, int whence)
{
	(void)fd, (void)at, (void)whence;
	errno = EINVAL;
	return -1;
}

ssize_t write(int fd, const void *from, size_t bytes)
{
	(void)fd;
	if (!page_put(from, (int)bytes))
		return (ssize_t)bytes;
	errno = EFBIG;
	return -1;
}

/* ---- what the page asks ---------------------------------------------------------------------------- */

static int refuse(const char *text)
{
	snprintf(why, sizeof(why), "%s", text);
	return -1;
}

static int emit(struct gm_copy *copy)
{
	/* Only the kernel's mark in the header says here that the process is dead. */
	bool dead = gm_header_sign(copy->header) == 0;
	struct gm_snapshot_request request = { .reason = dead ? "recovered" : "outside", .recovered = dead };
	int r = gm_copy_resolve(copy, UINT64_MAX);

	if (!r)
		r = gm_snapshot_emit(copy, &request, 1);
	switch (r) {
	case 0:
		return 0;
	case -EBADMSG:
		return refuse("damaged: its snapshot would be out of all proportion");
	case -EFBIG:
		return refuse("too many events for a browser to read: gpumem view FILE -o page.html makes a page "
			      "of it");
	case -ENOMEM:
		return refuse("too large for this browser's memory: gpumem view FILE -o page.html makes a page of it");
	default:
		return refuse(strerror(-r));
	}
}

/* Read the file, which has @bytes, and give its JSON. 0, or -1 and gm_page_why. */
TO_PAGE("read") int gm_page_read(double bytes);
TO_PAGE("why") const char *gm_page_why(void);

int gm_page_read(double bytes)
{
	static struct gm_header header;
	static struct gm_copy copy;

	file_bytes = bytes;
	if (gm_file_get(0, &header, sizeof(header), 0) < 0)
		return refuse("the browser could not read it");
	if (header.version == GM_FORMAT_VERSION && header.file_bytes > LENGTH_MOST && header.file_bytes < INT64_MAX) {
		snprintf(why, sizeof(why), "a journal %llu MiB long, and a page reads up to %llu MiB: "
			 "gpumem view FILE -o page.html makes a page of it",
			 (unsigned long long)(header.file_bytes >> 20), (unsigned long long)(LENGTH_MOST >> 20));
		return -1;
	}
	if (gm_copy_from_file(&copy, 0))
		return refuse(copy.error);
	return emit(&copy);
}

const char *gm_page_why(void)
{
	return why;
}
