/*
 * ranges.h - ranges of addresses that do not overlap; each with a number of the caller's. Single-threaded.
 */
#ifndef GM_TOOLS_RANGES_H
#define GM_TOOLS_RANGES_H

#include <stdint.h>

struct gm_range { uint64_t start, end; int64_t what; };	/* end: the first byte behind it */

/* A set of zeros is empty. gm_ranges_free leaves it so. */
struct gm_ranges { void *root; };
void gm_ranges_free(struct gm_ranges *ranges);

/* Add one. Returns 0, -EEXIST (it overlaps another, or is empty), or -ENOMEM. */
int gm_ranges_add(struct gm_ranges *ranges, struct gm_range range);

/* Remove @range, which is in @ranges. */
void gm_ranges_remove(struct gm_ranges *ranges, struct gm_range *range);

/* One that overlaps [@start, @end), and the one that holds @address; NULL: none. Valid until it is
 * removed; all but start and end may be changed. */
struct gm_range *gm_ranges_overlap(const struct gm_ranges *ranges, uint64_t start, uint64_t end);
struct gm_range *gm_ranges_at(const struct gm_ranges *ranges, uint64_t address);

#endif
