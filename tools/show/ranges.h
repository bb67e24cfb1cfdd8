/*
 * ranges.h - ranges of addresses that do not overlap, in order; each with a number of the caller's.
 *
 * A treap whose priorities are hashes of the starts: as good as random, and the same every time.
 * Single-threaded.
 */
#ifndef GM_TOOLS_RANGES_H
#define GM_TOOLS_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_range { uint64_t start, end; int64_t what; };	/* end: the first byte behind it */

/* A set of zeros is empty. gm_ranges_free leaves it so. */
struct gm_ranges { struct gm_range_node *nodes; uint32_t root, count, room, unused; };
void gm_ranges_free(struct gm_ranges *ranges);

/* Add one. Returns 0, -EEXIST (it overlaps another, or is empty), or -ENOMEM. */
int gm_ranges_add(struct gm_ranges *ranges, struct gm_range range);

/* Remove the one that starts at @start, which must be there. */
void gm_ranges_remove(struct gm_ranges *ranges, uint64_t start);

/* The last one that starts at or below @address; the first that overlaps [@start, @end). NULL:
 * none. Valid until the next call that adds; all but start and end may be changed. */
struct gm_range *gm_ranges_floor(const struct gm_ranges *ranges, uint64_t address);
struct gm_range *gm_ranges_overlap(const struct gm_ranges *ranges, uint64_t start, uint64_t end);

#endif
