/*
 * copy_internal.h - what the files of the journal copy share: memory, sorting, the steps of
 * resolving.
 * Contexts as copy.h.
 */
#ifndef GM_RECORDER_COPY_INTERNAL_H
#define GM_RECORDER_COPY_INTERNAL_H

#include "recorder/read/copy.h"

static inline uint64_t gm_less_u64(uint64_t a, uint64_t b)	/* a - b, not below 0 */
{
	return a > b ? a - b : 0;
}

/* Zeroed memory until gm_scratch_drop, gm_scratch_free or gm_copy_free; NULL when there is none. */
void *gm_scratch_get(struct gm_scratch *scratch, size_t bytes);
void gm_scratch_drop(struct gm_scratch *scratch, void *at);
void gm_scratch_free(struct gm_scratch *scratch);

/* Map @bytes for the journal copy itself. 0 or -ENOMEM. */
int gm_copy_map(struct gm_copy *copy, uint64_t bytes);

/* Have the kernel back @length bytes of the copy from @offset on before they are written. */
void gm_copy_touch(struct gm_copy *copy, uint64_t offset, uint64_t length);

/* Can this program read a journal with the header @copy->header, and are its regions inside
 * @file_bytes and disjoint? 0, or -EBADMSG and @copy->error. */
int gm_copy_validate(struct gm_copy *copy, uint64_t file_bytes);

/* Bytes of a region that may be read now: in use and backed by memory. */
uint64_t gm_copy_readable(const struct gm_region *region);

struct gm_pair { uint64_t key, value; };

/* Stable, by key. Sorted pairs are in @pairs or in @scratch: returns which. O(n), no recursion. */
struct gm_pair *gm_pairs_sort(struct gm_pair *pairs, struct gm_pair *scratch, size_t count);

/* Is the address of this kind one of the process's address space, so that ranges may overlap? Other
 * kinds have a handle there, which can only be equal or not. */
bool gm_copy_has_range(unsigned int kind, unsigned int flags);

/* The frees that were under way (copy_frees.c). */
struct gm_freeing;
struct gm_frees {
	struct gm_freeing *list;	/* by address */
	size_t count;
	struct gm_chunk *made;		/* events, in a chunk for each free that took effect */
	size_t made_count;
};

/* Find them, and which of their addresses were handed out again according to the tables. */
int gm_frees_begin(struct gm_copy *copy, struct gm_frees *frees);
/* An event shows that memory was handed out at @tsc; or, with @back, that a block which is in the
 * tables no more was freed, stamped @tsc. Such a block was handed out later than the one whose free
 * is under way: a free is stamped before the driver's call, so that an earlier owner's free never
 * has a later stamp than the next allocation. */
struct gm_owned { uint64_t address, size; uint8_t kind, flags, domain; };
void gm_frees_note(struct gm_frees *frees, const struct gm_owned *of, uint64_t tsc, bool back);
/* Complete the frees whose address was handed out again: in tables, counters, events and
 * flights. */
int gm_frees_complete(struct gm_copy *copy, struct gm_frees *frees);

/* Blocks of one module and kind become live or end: count them in the domain's live bytes and usage
 * rows. The domain exists. */
struct gm_counted { uint16_t module; uint8_t domain, kind; };
void gm_copy_count(struct gm_copy *copy, const struct gm_counted *of, const struct gm_flow *flow);

/* The parts of gm_copy_resolve, in this order. 0 or -errno. */
int gm_resolve_lives(struct gm_copy *copy);
int gm_resolve_flights(struct gm_copy *copy);
int gm_resolve_events(struct gm_copy *copy, uint64_t max_events);

#endif
