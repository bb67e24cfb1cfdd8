/*
 * ranges.c - ranges of addresses that do not overlap: see ranges.h.
 */
#define _GNU_SOURCE
#include "tools/show/ranges.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

/* Ranges that overlap are equal: no two of those in the tree do. */
static int compare(const void *a, const void *b)
{
	const struct gm_range *x = a, *y = b;

	return x->end <= y->start ? -1 : x->start >= y->end;
}

void gm_ranges_free(struct gm_ranges *ranges)
{
	tdestroy(ranges->root, free);
	ranges->root = NULL;
}

int gm_ranges_add(struct gm_ranges *ranges, struct gm_range range)
{
	struct gm_range *one, **found;

	if (range.end <= range.start)
		return -EEXIST;
	one = malloc(sizeof(*one));
	if (!one)
		return -ENOMEM;
	*one = range;
	found = tsearch(one, &ranges->root, compare);
	if (found && *found == one)
		return 0;
	free(one);
	return found ? -EEXIST : -ENOMEM;
}

void gm_ranges_remove(struct gm_ranges *ranges, struct gm_range *range)
{
	tdelete(range, &ranges->root, compare);
	free(range);
}

struct gm_range *gm_ranges_overlap(const struct gm_ranges *ranges, uint64_t start, uint64_t end)
{
	struct gm_range key = { start, end, 0 };
	struct gm_range **found = end > start ? tfind(&key, &ranges->root, compare) : NULL;

	return found ? *found : NULL;
}

struct gm_range *gm_ranges_at(const struct gm_ranges *ranges, uint64_t address)
{
	return gm_ranges_overlap(ranges, address, address + 1);
}
