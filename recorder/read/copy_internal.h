/*
 * copy_internal.h - functions that the files of the journal copy share: memory, sorting, the steps of
 * resolving. Contexts as copy.h.
 */
#ifndef GM_RECORDER_COPY_INTERNAL_H
#define GM_RECORDER_COPY_INTERNAL_H

#include "recorder/read/copy.h"

static inline uint64_t gm_less_u64(uint64_t a, uint64_t b)	/* a - b; 0 if that is negative */
{
	return a > b ? a - b : 0;
}

/* Get zeroed memory, which gm_scratch_drop, gm_scratch_free or gm_copy_free returns. NULL: no memory. */
void *gm_scratch_get(struct gm_scratch *scratch, size_t bytes);
void gm_scratch_drop(struct gm_scratch *scratch, void *at);
void gm_scratch_free(struct gm_scratch *scratch);

/* Map @bytes for the journal copy itself. Returns 0 or -ENOMEM. */
int gm_copy_map(struct gm_copy *copy, uint64_t bytes);

/* Let the kernel back @length bytes of the copy at @offset now, before they are written. */
void gm_copy_touch(struct gm_copy *copy, uint64_t offset, uint64_t length);

/* Check that this program can read a journal with the header @copy->header, and that its regions are
 * disjoint and inside @file_bytes. Returns 0; -EBADMSG, and @copy->error says why. */
int gm_copy_validate(struct gm_copy *copy, uint64_t file_bytes);

/* Return how many bytes of a region may be read now: those in use and backed by memory. */
uint64_t gm_copy_readable(const struct gm_region *region);

struct gm_pair { uint64_t key, value; };

/* Sort by key, stably. Returns @pairs or @scratch, whichever holds the sorted pairs. O(n), no recursion. */
struct gm_pair *gm_pairs_sort(struct gm_pair *pairs, struct gm_pair *scratch, size_t count);

/* Does memory of this kind have an address in the process, so that ranges can overlap? Other kinds have a handle
 * instead, which can only be compared for equality. */
bool gm_copy_has_range(unsigned int kind, unsigned int flags);

/* Frees that were under way (copy_frees.c). */
struct gm_freeing;
struct gm_frees {
	struct gm_freeing *list;	/* by address */
	size_t count;
	struct gm_chunk *made;		/* events that were made: one chunk for each free that took effect */
	size_t made_count;
};

/* List the frees under way. Find in the tables which of their addresses were handed out again. */
int gm_frees_begin(struct gm_copy *copy, struct gm_frees *frees);
/* Note an event at @tsc about memory @of: an allocation; or, with @back, a free by a block that is no longer in the
 * tables. If a block whose free is under way was allocated there before @tsc, the event belongs to a later owner: the
 * free of an earlier owner has an earlier stamp, because a free is stamped before the driver's call. */
struct gm_owned { uint64_t address, size; uint8_t kind, flags, domain; };
void gm_frees_note(struct gm_frees *frees, const struct gm_owned *of, uint64_t tsc, bool back);
/* Complete the frees whose address was handed out again, in tables, counters, events and flights. */
int gm_frees_complete(struct gm_copy *copy, struct gm_frees *frees);

/* Count blocks of one module and kind that begin or end, in the domain's live bytes and usage rows. The
 * domain must exist. */
struct gm_counted { uint16_t module; uint8_t domain, kind; };
void gm_copy_count(struct gm_copy *copy, const struct gm_counted *of, const struct gm_flow *flow);

/* gm_resolve_sites: set @live of each row of SITES to its bytes at the peak: in the rows of devices and the host, or
 * with @pools in those of pools. Before that, for pools: gm_sites_begin_pools sets @live to 0, and gm_sites_add_line
 * adds the block of each line to it. */
void gm_resolve_sites(struct gm_copy *copy, bool pools);
void gm_sites_begin_pools(struct gm_copy *copy);
void gm_sites_add_line(struct gm_copy *copy, const struct gm_live *line);

/* The parts of gm_copy_resolve, in this order. They return 0 or -errno. */
int gm_resolve_lives(struct gm_copy *copy);
int gm_resolve_flights(struct gm_copy *copy);
int gm_resolve_events(struct gm_copy *copy, uint64_t max_events);

#endif
