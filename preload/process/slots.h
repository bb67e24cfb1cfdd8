/*
 * slots.h - numbered records of one size in private memory, for the small tables of this floor.
 *
 * An id is an index; 0 is no record. Dropped records are reused first. The memory comes from mmap and may
 * move when it grows, so across a gm_slots_new keep ids, not pointers.
 * Thread context: the caller's lock. Signal context: none.
 */
#ifndef GM_PRELOAD_SLOTS_H
#define GM_PRELOAD_SLOTS_H

#include <stdint.h>

struct gm_slots {
	uint8_t *base;
	uint64_t bytes;			/* mapped */
	uint32_t item_bytes;		/* at least 4; set by the owner */
	uint32_t used;			/* ids ever handed out, id 0 included */
	uint32_t capacity;
	uint32_t unused;		/* list of dropped ids, linked by their first word */
};

/* Return the id of a new zeroed record; 0: no memory. */
uint32_t gm_slots_new(struct gm_slots *slots);

/* Drop record @id; a later gm_slots_new may return it. */
void gm_slots_drop(struct gm_slots *slots, uint32_t id);

static inline void *gm_slots_at(const struct gm_slots *slots, uint32_t id)
{
	return slots->base + (uint64_t)id * slots->item_bytes;
}

#endif
