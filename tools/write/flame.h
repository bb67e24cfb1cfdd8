/*
 * flame.h - stacks and what they weigh, and the formats that show it. Single-threaded.
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
	int64_t *weights;		/* by stack; stacks->count of them, at least one; of those that are
					 * shown alike the first has all */
	uint32_t *alike;		/* by frame: the first that is shown as it */
	size_t count;
	int64_t total;
	enum gm_weigh weigh;
	struct gm_stacks own;		/* what @stacks is, where the stacks are not as they were recorded, */
	struct gm_snapshot view;	/* and which frames those have */
};

/* @by_line: frames with one label are one only where file and line are the same, too; for stacks as they were recorded.
 * @fold: user code first (stacks.h), and stacks that were cut stand below the frames that others have there. @invert:
 * from who allocates to who called. */
struct gm_flame_ways { enum gm_weigh weigh; bool by_line, fold, invert; };

/* "live bytes", "peak bytes" ... */
const char *gm_weigh_name(enum gm_weigh weigh);

/* Weigh the stacks of @lives that count for @device. Frames with the same label are shown as one. Returns 0 or -ENOMEM;
 * gm_flame_close frees it. @flame must stay where it is. */
int gm_flame_open(struct gm_flame *flame, const struct gm_stacks *stacks, const struct gm_lives *lives,
		  const char *device, const struct gm_flame_ways *ways);
void gm_flame_close(struct gm_flame *flame);

/* Between flame_data.c and flame_fold.c: which frames are shown alike; the stacks as @ways has them. 0 or -ENOMEM. */
int gm_flame_find_alike(struct gm_flame *flame, bool by_line);
int gm_flame_fold(struct gm_flame *flame, const struct gm_stacks *stacks, bool folded, bool invert);

/* Put the named ranges (phases.h) that were open at each allocation below its stack. @stacks and @lives are changed,
 * and @stacks points into *@ret until gm_flame_phases_close. Returns 0, or -ENOMEM: then @stacks and @lives can only
 * be closed. */
struct gm_flame_phases { struct gm_snapshot view; };
int gm_flame_phases_open(struct gm_flame_phases *ret, struct gm_stacks *stacks, struct gm_lives *lives,
			 const struct gm_snapshot *snapshot, const char *device);
void gm_flame_phases_close(struct gm_flame_phases *phases);

/* A line a stack, outermost frame first: "main;f;g 1024". */
void gm_flame_folded(FILE *out, const struct gm_flame *flame);

/* speedscope's JSON, a profile for each of @flames, which share their stacks. Returns 0 or -errno. */
int gm_flame_speedscope(FILE *out, const struct gm_flame *flames, size_t count, const char *title);

/* One SVG file with all it needs: tool tips, and a click that zooms. With @before (NULL: none), what each function
 * weighed in another run: red where it weighs more now, blue where less. Returns 0 or -ENOMEM. */
int gm_flame_svg(FILE *out, const struct gm_flame *flame, const struct gm_flame *before, const char *title);

/* How a frame is called: "name", with the file and line of a Python one. @room of 512 is enough. */
void gm_flame_label(const struct gm_frame *frame, char *ret, size_t room);

#endif
