/*
 * merge.h - many ranks' snapshots in one report: for the verb merge. Single-threaded.
 *
 *	merge.c        the verb; reading
 *	merge_print.c  the report as text and as JSON
 */
#ifndef GM_TOOLS_MERGE_H
#define GM_TOOLS_MERGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_merge_rank {
	char label[24]; /* the rank; of a second file of it: "3b"; without one: "#2" */
	int64_t rank, pid;		/* rank: -1 none */
	char command[64], host[64], reason[32];
	const char *input;
	int64_t live, peak, reserved_peak, blocks, ooms;	/* of the devices that count */
	int64_t shown_peak;		/* the highest moment that the history shows */
};

struct gm_merge_row {
	char *name;
	json_t *stack;			/* by stack only */
	int64_t *bytes, *blocks;	/* by rank, in the order of the ranks */
	int64_t median, least, most,
		off; /* off: how far the one that is farthest is from the median */
	size_t least_rank, most_rank, off_rank;
};

struct gm_merge {
	struct gm_merge_rank *ranks;
	size_t rank_count;
	struct gm_merge_row *rows;
	size_t row_count;
	const char *by;
	bool at_peak;			/* else what is live in the end */
	size_t top;
};

/* @count values: the middle one, of an even number the lower middle one. */
int64_t gm_merge_median(const int64_t *values, size_t count);

void gm_merge_text(const struct gm_merge *merge);
void gm_merge_json(const struct gm_merge *merge);

#endif
