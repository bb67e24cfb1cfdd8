/*
 * ranges.c - ranges of addresses that do not overlap: see ranges.h. One thread.
 */
#include "tools/show/ranges.h"

#include <errno.h>
#include <stdlib.h>

/* Node 0 stands for "none", so that links need no other mark. */
struct gm_range_node { struct gm_range range; uint32_t left, right, priority; };

#define NODE(i) (ranges->nodes[i])

void gm_ranges_free(struct gm_ranges *ranges)
{
	free(ranges->nodes);
	*ranges = (struct gm_ranges){ NULL, 0, 0, 0, 0 };
}

static uint32_t priority_of(uint64_t start)
{
	start = (start ^ (start >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
	start = (start ^ (start >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
	return (uint32_t)(start >> 32);
}

/* A node to use; the freed ones hang on their left links. 0: out of memory. */
static uint32_t take(struct gm_ranges *ranges)
{
	uint32_t node = ranges->unused;

	if (node) {
		ranges->unused = NODE(node).left;
		return node;
	}
	if (ranges->count + 1 >= ranges->room) {
		uint32_t room = ranges->room ? ranges->room * 2 : 64;
		void *larger = room > ranges->room ? realloc(ranges->nodes, room * sizeof(*ranges->nodes)) :
			       NULL;

		if (!larger)
			return 0;
		ranges->nodes = larger;
		ranges->room = room;
		NODE(0) = (struct gm_range_node){ .priority = 0 };
	}
	return ++ranges->count;
}

/* The tree @at in two: what starts below @start, and the rest. */
static void split(struct gm_ranges *ranges, uint32_t at, uint64_t start, uint32_t *left,
		  uint32_t *right)
{
	while (at)
		if (NODE(at).range.start < start) {
			*left = at;
			left = &NODE(at).right;
			at = *left;
		} else {
			*right = at;
			right = &NODE(at).left;
			at = *right;
		}
	*left = 0;
	*right = 0;
}

static uint32_t join(struct gm_ranges *ranges, uint32_t left, uint32_t right)
{
	uint32_t root = 0, *link = &root;

	while (left && right)
		if (NODE(left).priority > NODE(right).priority) {
			*link = left;
			link = &NODE(left).right;
			left = *link;
		} else {
			*link = right;
			link = &NODE(right).left;
			right = *link;
		}
	*link = left ? left : right;
	return root;
}

int gm_ranges_add(struct gm_ranges *ranges, struct gm_range range)
{
	uint32_t node, *link = &ranges->root;

	if (range.end <= range.start || gm_ranges_overlap(ranges, range.start, range.end))
		return -EEXIST;
	node = take(ranges);
	if (!node)
		return -ENOMEM;
	NODE(node) = (struct gm_range_node){ range, 0, 0, priority_of(range.start) };
	while (*link && NODE(*link).priority >= NODE(node).priority)
		link = range.start < NODE(*link).range.start ? &NODE(*link).left : &NODE(*link).right;
	split(ranges, *link, range.start, &NODE(node).left, &NODE(node).right);
	*link = node;
	return 0;
}

void gm_ranges_remove(struct gm_ranges *ranges, uint64_t start)
{
	uint32_t node, *link = &ranges->root;

	while (*link && NODE(*link).range.start != start)
		link = start < NODE(*link).range.start ? &NODE(*link).left : &NODE(*link).right;
	node = *link;
	if (!node)
		return;
	*link = join(ranges, NODE(node).left, NODE(node).right);
	NODE(node).left = ranges->unused;
	ranges->unused = node;
}

struct gm_range *gm_ranges_floor(const struct gm_ranges *ranges, uint64_t address)
{
	uint32_t best = 0;

	for (uint32_t at = ranges->root; at;)
		if (NODE(at).range.start <= address) {
			best = at;
			at = NODE(at).right;
		} else {
			at = NODE(at).left;
		}
	return best ? &NODE(best).range : NULL;
}

struct gm_range *gm_ranges_overlap(const struct gm_ranges *ranges, uint64_t start, uint64_t end)
{
	struct gm_range *first = gm_ranges_floor(ranges, start);
	uint32_t best = 0;

	if (first && first->end > start)
		return first;
	for (uint32_t at = ranges->root; at;)
		if (NODE(at).range.start > start) {
			best = at;
			at = NODE(at).left;
		} else {
			at = NODE(at).right;
		}
	return best && NODE(best).range.start < end ? &NODE(best).range : NULL;
}
