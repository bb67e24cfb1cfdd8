/*
 * copy_sort.c - a stable radix sort of (key, value) pairs: a million events in tens of ms.
 *
 * Least significant digit first, 11 bits at a time; digits in which all keys agree are skipped.
 * Works in the two arrays it is given, with 8 KiB of stack. Any context.
 */
#include "recorder/read/copy_internal.h"

#include <string.h>

#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)

/* By the digit at @shift, from @from to @to. */
static void scatter(const struct gm_pair *from, struct gm_pair *to, size_t count,
		    unsigned int shift)
{
	uint32_t place[DIGITS];
	uint32_t sum = 0;

	memset(place, 0, sizeof(place));
	for (size_t i = 0; i < count; i++)
		place[(from[i].key >> shift) & (DIGITS - 1)]++;
	for (unsigned int d = 0; d < DIGITS; d++) {
		uint32_t n = place[d];

		place[d] = sum;
		sum += n;
	}
	for (size_t i = 0; i < count; i++)
		to[place[(from[i].key >> shift) & (DIGITS - 1)]++] = from[i];
}

struct gm_pair *gm_pairs_sort(struct gm_pair *pairs, struct gm_pair *scratch, size_t count)
{
	uint64_t all_or = 0, all_and = UINT64_MAX, last = 0;
	bool sorted = true;

	for (size_t i = 0; i < count; i++) {
		all_or |= pairs[i].key;
		all_and &= pairs[i].key;
		sorted &= pairs[i].key >= last;
		last = pairs[i].key;
	}
	if (sorted)
		return pairs;
	for (unsigned int shift = 0; shift < 64; shift += DIGIT_BITS) {
		struct gm_pair *other = scratch;

		if (!(((all_or ^ all_and) >> shift) & (DIGITS - 1)))
			continue;
		scatter(pairs, scratch, count, shift);
		scratch = pairs;
		pairs = other;
	}
	return pairs;
}
