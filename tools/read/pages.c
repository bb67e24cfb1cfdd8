/*
 * pages.c - memory in large pages: see pages.h. Any thread.
 */
#define _GNU_SOURCE
#include "tools/read/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE ((size_t)2 << 20)		/* a large page of x86-64, and of aarch64 with pages of 4 KiB */

static size_t whole(size_t bytes)
{
	return (bytes + LARGE - 1) & ~(LARGE - 1);
}

/* Large pages lie at multiples of their size: what is too much at both ends goes back. */
void *gm_pages_new(size_t bytes)
{
	size_t taken = whole(bytes), front;
	char *at;

	if (bytes > SIZE_MAX / 2)
		return NULL;
	if (bytes < LARGE)
		return calloc(1, bytes ? bytes : 1);
	at = mmap(NULL, taken + LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	front = (LARGE - (uintptr_t)at % LARGE) % LARGE;
	if (front)
		munmap(at, front);
	if (front < LARGE)
		munmap(at + front + taken, LARGE - front);
	madvise(at + front, taken, MADV_HUGEPAGE);	/* without, it is only slower */
	return at + front;
}

void gm_pages_free(void *pages, size_t bytes)
{
	if (bytes < LARGE)
		free(pages);
	else if (pages)
		munmap(pages, whole(bytes));
}
