/*
 * held.c - the sorted list of the pieces that a pool holds: see held.h.
 */
#define _GNU_SOURCE
#include "preload/pools/held.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_BYTES ((size_t)16384)

static int grow(struct gm_held_list *list)
{
	size_t bytes = list->bytes ? 2 * list->bytes : FIRST_BYTES;
	int saved_errno = errno;
	void *at = list->at ? mremap(list->at, list->bytes, bytes, MREMAP_MAYMOVE) :
			      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at != MAP_FAILED) {
		madvise(at, bytes, MADV_DONTFORK);
		list->at = at;
		list->bytes = bytes;
	}
	errno = saved_errno;
	return at == MAP_FAILED ? -ENOMEM : 0;
}

int gm_held_insert(struct gm_held_list *list, size_t index, const struct gm_held_piece *piece)
{
	if ((list->count + 1) * sizeof(*piece) > list->bytes && grow(list))
		return -ENOMEM;
	memmove(&list->at[index + 1], &list->at[index], (list->count - index) * sizeof(*piece));
	list->at[index] = *piece;
	list->count++;
	return 0;
}

void gm_held_remove(struct gm_held_list *list, size_t index)
{
	list->count--;
	memmove(&list->at[index], &list->at[index + 1], (list->count - index) * sizeof(*list->at));
}
