/*
 * flame.h - flame graphs: the weight of each stack, and the formats that show it. Single-threaded.
 */
#ifndef GM_TOOLS_FLAME_H
#define GM_TOOLS_FLAME_H

#include <stdio.h>

#include "tools/show/lives.h"
#include "tools/show/stacks.h"

enum gm_weigh {
	GM_WEIGH_LIVE,			/* bytes that are live */
	GM_WEIGH_PEAK,			/* bytes that were live at the peak (gm_lives_peak) */
	GM_WEIGH_COUNT,			/* allocations made */
	GM_WEIGH_BYTES,			/* bytes allocated */
	GM_WEIGH_CHURN			/* bytes allocated and freed again */
};

struct gm_flame {
	const struct gm_stacks *stacks;
	int64_t *weights;		/* by stack: bytes or allocations. Of stacks that are shown alike the first
					 * has the sum, the others 0 */
	uint32_t *alike;		/* by frame: the first frame that is shown like this one */
	size_t count;			/* of @weights: stacks->count, at least 1 */
	int64_t total;
	enum gm_weigh weigh;
	struct gm_stacks own;		/* folded or inverted stacks; then @stacks points here */
	struct gm_snapshot view;	/* the frames of each stack of @own */
};

/* @by_line: frames are one frame only if file and line are the same, too, not just the label; ignored with @fold or
 * @invert. @fold: user code first (stacks.h); the outer frames that the limit on depth cut off are taken from other
 * stacks. @invert: the allocating function is the root, its callers are above it. */
struct gm_flame_ways { enum gm_weigh weigh; bool by_line, fold, invert; };

/* Return "live bytes", "peak bytes" ... */
const char *gm_weigh_name(enum gm_weigh weigh);

/* Weigh the stacks of the @lives that count for @device (gm_life_counts). Frames with the same label are shown as one.
 * Return 0 or -ENOMEM. gm_flame_close frees @flame. @flame must not move, because it may point into itself. */
int gm_flame_open(struct gm_flame *flame, const struct gm_stacks *stacks, const struct gm_lives *lives,
		  const char *device, const struct gm_flame_ways *ways);
void gm_flame_close(struct gm_flame *flame);

/* For flame_data.c and flame_fold.c: find the frames that are shown alike; make the folded or inverted stacks. Return 0
 * or -ENOMEM. */
int gm_flame_find_alike(struct gm_flame *flame, bool by_line);
int gm_flame_fold(struct gm_flame *flame, const struct gm_stacks *stacks, bool folded, bool invert);

/* Add to each allocation's stack, as outermost frames, the named ranges (phases.h) that were open then. This changes
 * @stacks and @lives; @stacks points into *@ret until gm_flame_phases_close. Return 0 or -ENOMEM; after an error
 * @stacks and @lives can only be closed. */
struct gm_flame_phases { struct gm_snapshot view; };
int gm_flame_phases_open(struct gm_flame_phases *ret, struct gm_stacks *stacks, struct gm_lives *lives,
			 const struct gm_snapshot *snapshot, const char *device);
void gm_flame_phases_close(struct gm_flame_phases *phases);

/* Write one line for each stack, outermost frame first: "main;f;g 1024". */
void gm_flame_folded(FILE *out, const struct gm_flame *flame);

/* Write speedscope's JSON with one profile for each of @flames, which share their stacks. Return 0 or -errno. */
int gm_flame_speedscope(FILE *out, const struct gm_flame *flames, size_t count, const char *title);

/* Write one SVG file that needs no other: tooltips, and a click zooms. @before (or NULL) is another run: a function is
 * red if it weighs more now, blue if less. Return 0 or -ENOMEM. */
int gm_flame_svg(FILE *out, const struct gm_flame *flame, const struct gm_flame *before, const char *title);

/* Write the label of a frame to @ret, cut to @room bytes: "name", for Python "name (file:line)". */
void gm_flame_label(const struct gm_frame *frame, char *ret, size_t room);

#endif
