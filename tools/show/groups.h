/*
 * groups.h - the live allocations of one snapshot or two, summed by call site, stack, module and so on.
 * Single-threaded.
 */
#ifndef GM_TOOLS_GROUPS_H
#define GM_TOOLS_GROUPS_H

#include <stdio.h>

#include "tools/read/table.h"
#include "tools/show/lives.h"
#include "tools/show/stacks.h"

/* A snapshot with its stacks and lives. */
struct gm_scene {
	const struct gm_snapshot *snapshot;
	const json_t *root;		/* @snapshot's */
	struct gm_stacks stacks;
	struct gm_lives lives;
};

/* Open the scene of @snapshot, which must outlive @scene. Returns 0; -E2BIG or -ENOMEM and nothing to close. */
int gm_scene_open(struct gm_scene *scene, const struct gm_snapshot *snapshot);
void gm_scene_close(struct gm_scene *scene);

/* Return the most bytes that were live on @device (as in gm_life_counts) at once, in a scene at the level of pools.
 * This is gm_lives_peak. If the snapshot does not say who held the peak, it is the larger of the history's peak and
 * the largest peak in the statistics of one pool, or INT64_MIN if @device has no pool; @device must not be "host"
 * then. */
int64_t gm_scene_pool_peak(const struct gm_scene *scene, const char *device);

/* Return the totals of @device (a number; NULL: all devices) that every verb shows. @live and @blocks are what
 * gm_life_at finds in the end. @peak is of the statistics or, if these have none, gm_lives_peak. With @pools, for a
 * scene at the level of pools, @peak is gm_scene_pool_peak. A request that a pool could not serve is often a refused
 * request of the driver's, too, so @ooms is the larger of the two numbers. */
struct gm_totals gm_scene_totals(const struct gm_scene *scene, const char *device, bool pools);

/* GM_BY_STACK also separates kinds and, without a stack, modules. GM_BY_ANNOTATION counts a block in every phase
 * (phases.h) that was open when the block was allocated. GM_BY_CLASS groups by the name that the program gave a pool's
 * block; the name is known while the block lives. */
enum gm_by { GM_BY_SITE, GM_BY_STACK, GM_BY_MODULE, GM_BY_KIND, GM_BY_SIZE, GM_BY_STREAM, GM_BY_ANNOTATION,
	     GM_BY_CLASS };

/* Return "site", "stack" ... */
const char *gm_by_name(enum gm_by by);

struct gm_group {
	const char *key;		/* the group's name */
	int64_t bytes[2], count[2];	/* in the first and the second snapshot */
	/* the first life of the group */
	const struct gm_scene *scene;
	int64_t stack;
	int64_t module;			/* the caller's */
	const char *kind;
	const char *name;		/* the first name of a block in the second snapshot; NULL: none has one */
	bool other_names;		/* other blocks have other names */
	const char *function, *build;	/* GM_BY_SITE: function with module, and the module's build id; interned */
	size_t addition;		/* gm_groups.additions when the group was made */
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
	struct gm_table places;		/* (build id, offset) -> key of the frame in the first snapshot that has it */
	struct gm_table place_additions;	/* (build id, offset) -> the addition of that snapshot */
	bool many;			/* side 1 is of many snapshots; each may name places */
	size_t additions;		/* calls of gm_groups_add */
	int64_t all_bytes[2], all_count[2];	/* of all that was added, each block once */
	/* gm_groups_and_peak: is it known who held the peak? Is "the peak" the highest moment of the history? */
	bool peak_known, peak_shown;
};

/* Returns 0 or -ENOMEM. */
int gm_groups_open(struct gm_groups *groups, enum gm_by by);
void gm_groups_close(struct gm_groups *groups);

/* Can gm_lives.at_peak be grouped by @by? It has only stacks, modules and kinds. */
bool gm_by_has_peak(enum gm_by by);

/* Add the lives of @scene to the numbers of the first (@side 0) or second (1) snapshot: those that count for @device
 * (gm_life_counts) and were live after @row (gm_life_at). GM_LIVES_PEAK as @row adds the bytes of gm_lives.at_peak, and
 * no blocks. Leave out the @known leaks (NULL: there are none). Returns 0 or -ENOMEM. */
struct gm_suppressions;
int gm_groups_add(struct gm_groups *groups, int side, const struct gm_scene *scene, const char *device,
		  int64_t row, struct gm_suppressions *known);

/* Find the groups by site that are one function in two builds of its module, whose lines moved. Call this when all was
 * added. (*@ret_into)[i] is the place of the group that group i counts to, the first of its function; that group gets
 * the name of all. The caller frees *@ret_into; NULL: the groups are not by site. Returns 0 or -ENOMEM. */
int gm_groups_join_builds(struct gm_groups *groups, size_t **ret_into);

/* Merge the groups that gm_groups_join_builds finds. Returns 0 or -ENOMEM. */
int gm_groups_merge_builds(struct gm_groups *groups);

/* Make the groups of @scene: side 1 has what is live at the end, side 0 what was live at the peak, *@ret_peak bytes in
 * all. If gm_by_has_peak(@by) is false, or the snapshot does not say who held the peak, the peak is the highest moment
 * that the history shows. Groups that are largest on either side come first. Returns 0, or -ENOMEM and nothing to
 * close. */
int gm_groups_and_peak(struct gm_groups *ret, enum gm_by by, const struct gm_scene *scene, const char *device,
		       int64_t *ret_peak);

/* Make the groups of @scene after @row, as gm_groups_add on side 1, sorted. Returns 0, or -ENOMEM and nothing to
 * close. */
int gm_groups_of(struct gm_groups *ret, enum gm_by by, const struct gm_scene *scene, const char *device,
		 int64_t row, struct gm_suppressions *known);

/* Sort the groups, the largest growth first (of one snapshot: the largest group), equal ones by key. */
void gm_groups_sort(struct gm_groups *groups);

/* End a line that has @used columns: write two blanks, the key @key of @by, and a newline. On a terminal, cut a call
 * site to the rest of the line (gm_site_fit), or write it in the next line if less than 24 columns are left; write any
 * other key in the next line if it does not fit. */
void gm_groups_put_key(FILE *out, enum gm_by by, const char *key, size_t used);

/* Write a frame as "name (file:line)" or "name (module)". Returns @text. */
#define GM_FRAME_TEXT 2100
const char *gm_groups_frame_text(const struct gm_frame *frame, char text[GM_FRAME_TEXT]);

/* Print a stack, a line a frame, innermost first, behind @indent blanks (4 on a terminal that is too narrow). Lines are
 * cut to the terminal's width (gm_site_fit) unless gm_stacks_unfold was called. */
void gm_groups_print_stack(FILE *out, const struct gm_scene *scene, int64_t stack, int indent);

/* Return a stack as a list of { name, file, line, module }; the caller owns it. NULL: out of memory. */
json_t *gm_groups_json_stack(const struct gm_scene *scene, int64_t stack);

/* ---- suppress.c ------------------------------------------------------------------------------- */

/*
 * Known leaks: a file of patterns, as LeakSanitizer's. A line is leak:PATTERN (or PATTERN). It matches a stack if the
 * function, source file or module of a frame contains PATTERN. * stands for anything, ^ and $ for the start and the
 * end. # begins a comment. A line that begins with another word and a colon is an error.
 */

struct gm_suppressions {
	double since;			/* memory from before this time (gm_show_moment) is known; 0: none is */
	char **patterns;
	size_t count;
	size_t matched;			/* allocations that were left out */
};

/* Read the file @path. Returns 0, or -errno and the reason in @ret_error, one clause. */
int gm_suppressions_read(struct gm_suppressions *suppressions, const char *path, char *ret_error,
			 size_t bytes);
void gm_suppressions_free(struct gm_suppressions *suppressions);

/* Is @life known: is it older than @since, or does a pattern match its stack? @matched counts lives that a pattern
 * matches. */
bool gm_suppressed(struct gm_suppressions *suppressions, const struct gm_scene *scene, const struct gm_life *life);

#endif
