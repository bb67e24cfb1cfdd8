/*
 * groups.h - what is live, in one snapshot or in two, summed by where it came from. Single-threaded.
 */
#ifndef GM_TOOLS_GROUPS_H
#define GM_TOOLS_GROUPS_H

#include <stdio.h>

#include "tools/read/table.h"
#include "tools/show/lives.h"
#include "tools/show/stacks.h"

/* A snapshot with its stacks and lives: what verbs look into. */
struct gm_scene {
	const struct gm_snapshot *snapshot;
	const json_t *root;		/* of that */
	struct gm_stacks stacks;
	struct gm_lives lives;
};

/* Returns 0, -E2BIG or -ENOMEM; @snapshot must outlive it. */
int gm_scene_open(struct gm_scene *scene, const struct gm_snapshot *snapshot);
void gm_scene_close(struct gm_scene *scene);

/* The most bytes that were live on @device (as in gm_life_counts) at once, of a scene at the level of pools:
 * gm_lives_peak; of a snapshot that does not say who held the peak, by the history, or by a pool's own statistics where
 * these have more. INT64_MIN: that device has no pool. */
int64_t gm_scene_pool_peak(const struct gm_scene *scene, const char *device);

/* The totals of @device (as in gm_life_counts) that every verb shows: live is what gm_life_at finds in the end, and
 * peak the most of that at once, by the statistics or, where these have less or none, the history. With @pools, of a
 * scene at the level of pools, what pools have handed out counts in place of their pieces. A request that a pool could
 * not serve is often one of the driver's, too: @ooms is the larger number of the two. */
struct gm_totals gm_scene_totals(const struct gm_scene *scene, const char *device, bool pools);

/* GM_BY_STACK tells kinds apart, too, and modules where there is no stack. GM_BY_ANNOTATION: a block counts in every
 * phase (phases.h) that was open when it was allocated. GM_BY_CLASS: by the label that the program gave a pool's block,
 * which is known while the block lives. */
enum gm_by { GM_BY_SITE, GM_BY_STACK, GM_BY_MODULE, GM_BY_KIND, GM_BY_SIZE, GM_BY_STREAM, GM_BY_ANNOTATION,
	     GM_BY_CLASS };

/* "site", "stack" ... */
const char *gm_by_name(enum gm_by by);

struct gm_group {
	const char *key;		/* how it is called */
	int64_t bytes[2], count[2];	/* in the first and the second snapshot */
	const struct gm_scene *scene;	/* where an example is */
	int64_t stack;			/* its stack */
	int64_t module;			/* who asked */
	const char *kind;
	const char *name;		/* of the first one in the second snapshot that the program named; NULL: none */
	bool names;			/* others have other names */
	const char *function, *build;	/* of a site, single copies: the function with its module, that's build id */
	size_t run;			/* the first that had it: gm_groups.runs */
};

static inline int64_t gm_group_growth(const struct gm_group *group)
{
	return gm_wrap_subtract(group->bytes[1], group->bytes[0]);
}

struct gm_groups {
	enum gm_by by;
	struct gm_group *list;
	size_t count;
	struct gm_table found;
	struct gm_values *texts;
	struct gm_table places;		/* of the first snapshot: (build id, offset) -> the key of the frame there */
	struct gm_table place_runs;	/* the same -> the run that named it */
	bool many;			/* side 1 is of many snapshots: the first of any names a place */
	size_t runs;			/* calls of gm_groups_add */
	int64_t all_bytes[2], all_count[2];	/* of all that was added, each block once */
	bool peak_known, peak_shown;	/* gm_groups_and_peak: anything says who held it; the history alone does */
};

int gm_groups_open(struct gm_groups *groups, enum gm_by by);
void gm_groups_close(struct gm_groups *groups);

/* Is it known of these groups who held the peak, as @held of the lives has it? */
bool gm_by_has_peak(enum gm_by by);

/* Add what counts for @device (gm_life_counts) and was live after @row of the history (gm_life_at; GM_LIVES_PEAK: what
 * held the peak, whose blocks are not counted), to the numbers of
 * the first (@side 0) or second snapshot (1), without the leaks that are @known (NULL: none is). Returns 0 or
 * -ENOMEM. */
struct gm_suppressions;
int gm_groups_add(struct gm_groups *groups, int side, const struct gm_scene *scene, const char *device,
		  int64_t row, struct gm_suppressions *known);

/* Once all was added: which groups by site are of one function in two builds of its module, whose lines moved. They
 * count as the first of them, which gets the name of all: (*@ret_into)[i] is the place of group i's; free() it. NULL:
 * nothing is joined, since the groups are not by site. Returns 0 or -ENOMEM. */
int gm_groups_join_builds(struct gm_groups *groups, size_t **ret_into);

/* Add these up in @groups, if they are by site. Returns 0 or -ENOMEM. */
int gm_groups_merge_builds(struct gm_groups *groups);

/* The groups of @scene: side 1 has what is live at the end, side 0 what was live at the peak, *@ret_peak bytes in all;
 * by size, stream and annotation, and of snapshots that do not say who held the peak, at the highest moment that the
 * history shows. Those that have most on either side come first. Returns 0, or -ENOMEM and
 * nothing to close. */
int gm_groups_and_peak(struct gm_groups *ret, enum gm_by by, const struct gm_scene *scene, const char *device,
		       int64_t *ret_peak);

/* The groups of @scene alone, sorted. Returns 0, or -ENOMEM and nothing to close. */
int gm_groups_of(struct gm_groups *ret, enum gm_by by, const struct gm_scene *scene, const char *device,
		 int64_t row, struct gm_suppressions *known);

/* Largest growth first (of one snapshot: largest first), equal ones by key. */
void gm_groups_sort(struct gm_groups *groups);

/* End a line in which @used columns are written with two blanks, @key of @by and a line feed. On a terminal a call
 * site is cut to what is left of the line (gm_site_fit), or has the next line where less than 24 columns are left; any
 * other key has the next line where it does not fit. */
void gm_groups_put_key(FILE *out, enum gm_by by, const char *key, size_t used);

/* A frame in a line: "name (file:line)", "name (module)". Returns @text. */
#define GM_FRAME_TEXT 2100
const char *gm_groups_frame_text(const struct gm_frame *frame, char text[GM_FRAME_TEXT]);

/* The stack, a line a frame, innermost first, after @indent blanks. A terminal with no room for more has four, and its
 * lines are cut to its width (gm_site_fit) unless every frame is shown. */
void gm_groups_print_stack(FILE *out, const struct gm_scene *scene, int64_t stack, int indent);

/* The same as a list of { name, file, line, module }. NULL: out of memory. */
json_t *gm_groups_json_stack(const struct gm_scene *scene, int64_t stack);

/* ---- suppress.c ------------------------------------------------------------------------------- */

/*
 * Leaks that are known: a file of patterns, as LeakSanitizer's. A line is leak:PATTERN (or PATTERN); it matches a
 * stack with a frame whose function, source file or module contains it. * stands for anything, ^ and $ for the
 * start and the end. # begins a comment. A line that begins with another word and a colon is an error.
 */

struct gm_suppressions {
	char **patterns;
	size_t count;
	size_t matched;			/* allocations left out */
};

/* Read @path. Returns 0, or -errno with one clause of @error saying why. */
int gm_suppressions_read(struct gm_suppressions *suppressions, const char *path, char *ret_error,
			 size_t bytes);
void gm_suppressions_free(struct gm_suppressions *suppressions);

/* Is @stack one of them? Then it is counted as @matched. */
bool gm_suppressed(struct gm_suppressions *suppressions, const struct gm_scene *scene, int64_t stack);

#endif
