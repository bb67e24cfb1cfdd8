/*
 * image_internal.h - what the files of the image share: memory, the source of a copy, sorting.
 *
 * Thread context: as image.h. Nothing here is for other rooms.
 */
#ifndef GM_RECORDER_IMAGE_INTERNAL_H
#define GM_RECORDER_IMAGE_INTERNAL_H

#include "recorder/image.h"

/* A journal that claims more than this to be copied is refused, not believed. */
#define GM_IMAGE_MAX_FILE (UINT64_C(1) << 42)
#define GM_IMAGE_MAX_COPY (UINT64_C(1) << 37)

static inline uint64_t gm_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gm_less_u64(uint64_t a, uint64_t b)	/* a - b, not below 0 */
{
	return a > b ? a - b : 0;
}

/* Zeroed memory that gm_image_free gives back; NULL when there is none. */
void *gm_image_part(struct gm_image *image, size_t bytes);
/* Give one back early. */
void gm_image_part_free(struct gm_image *image, void *at);

/* Map @bytes for the copy itself. 0 or -ENOMEM. */
int gm_image_map(struct gm_image *image, uint64_t bytes);

/* Have the pages of the copy from @offset there before they are written. */
void gm_image_touch(struct gm_image *image, uint64_t offset, uint64_t length);

/* Is the header in @image->header one that this program can read, its regions inside @file_bytes
 * and apart? 0, or -EBADMSG and @image->error. */
int gm_image_validate(struct gm_image *image, uint64_t file_bytes);

/* Bytes of a region that may be read, as its descriptor says now. */
uint64_t gm_image_readable(const struct gm_region *region);

struct gm_pair { uint64_t key, value; };

/* Stable, by key. Sorted pairs are in @pairs or in @scratch: returns which. O(n), no recursion. */
struct gm_pair *gm_pairs_sort(struct gm_pair *pairs, struct gm_pair *scratch, size_t count);

/* The parts of gm_image_settle, in this order. */
void gm_settle_undo(struct gm_image *image);
int gm_settle_flights(struct gm_image *image);
/* @ret_made: events, a chunk each, for frees that took effect unrecorded. */
int gm_settle_segments(struct gm_image *image, struct gm_chunk **ret_made, size_t *ret_count);
int gm_settle_events(struct gm_image *image, uint64_t max_events,
		     const struct gm_chunk *made, size_t made_count);

#endif
