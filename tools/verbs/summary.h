/*
 * summary.h - what the files of gpumem summary share: what is shown, and the tables of who holds it.
 */
#ifndef GM_TOOLS_SUMMARY_H
#define GM_TOOLS_SUMMARY_H

#include "tools/read/level.h"
#include "tools/show/explain.h"
#include "tools/show/groups.h"

struct gm_summary {
	const json_t *root;
	const char *device;
	enum gm_by by;			/* how what is live is summed */
	const struct gm_scene *scene;
	const struct gm_explanation *explanation;
	const json_t *pool_lines;	/* what gm_explain_pool says */
	enum gm_pool_level level;
	bool full;			/* all tables */
	size_t top;			/* rows of a table of call sites or ranges; 0: as many as there is room for */
};

/* summary_short.c: devices, pools, the largest call sites, and what to look at next, for the input @word; @before lines
 * of the 30 have been printed. */
void gm_summary_short(const struct gm_summary *view, const char *word, unsigned int before);

/* summary_crash.c: the thread in which a signal ended the process, if one did: the signal, the address and the block
 * that it lies in, the stack, and what the thread did last. Returns how many lines. */
unsigned int gm_summary_crash(const struct gm_summary *view);

/* Print @text in lines of 80 columns at most, behind @indent blanks: 0 or 2. Returns how many lines. */
unsigned int gm_summary_wrapped(const char *text, int indent);

/* Rows "by module" or "by kind" of a device or of the host. */
void gm_summary_holders(const struct gm_summary *view, const json_t *of, bool by_module);

/* What each pool of a device has handed out and keeps. */
void gm_summary_pools(const struct gm_summary *view, int64_t device);

/* What is live on @device, by what was asked for; as JSON of all that is looked at. */
void gm_summary_groups(const struct gm_summary *view, const char *device);
json_t *gm_summary_json(const struct gm_summary *view);
/* Of each pool what it keeps idle. */
json_t *gm_summary_json_pools(const struct gm_summary *view);

#endif
