/*
 * slots.c - numbered records of one size in private memory (see slots.h).
 *
 * Thread context: the caller's lock. Signal context: none.
 */
#define _GNU_SOURCE	/* mremap */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/process/slots.h"

#define FIRST_BYTES 65536u
#define MAX_BYTES (UINT64_C(1) << 30)	/* limit of our share of the host's memory */

static int grow(struct gm_slots *slots)
{
	uint64_t bytes = slots->base ? slots->bytes * 2 : FIRST_BYTES;
	int saved_errno = errno;		/* keep the host's, because we run inside its call */
	void *base;

	if (bytes > MAX_BYTES)
		return -1;
	base = slots->base ? mremap(slots->base, slots->bytes, bytes, MREMAP_MAYMOVE)
			   : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = saved_errno;
	if (base == MAP_FAILED)
		return -1;
	slots->base = base;
	slots->bytes = bytes;
	slots->capacity = (uint32_t)(bytes / slots->item_bytes);
	if (!slots->used)
		slots->used = 1;	/* id 0 is no record */
	return 0;
}

uint32_t gm_slots_new(struct gm_slots *slots)
{
	uint32_t id = slots->unused;

	if (id) {
		memcpy(&slots->unused, gm_slots_at(slots, id), sizeof(slots->unused));
		memset(gm_slots_at(slots, id), 0, slots->item_bytes);
		return id;
	}
	if (slots->used == slots->capacity && grow(slots))
		return 0;
	return slots->used++;
}

void gm_slots_drop(struct gm_slots *slots, uint32_t id)
{
	memcpy(gm_slots_at(slots, id), &slots->unused, sizeof(slots->unused));
	slots->unused = id;
}
