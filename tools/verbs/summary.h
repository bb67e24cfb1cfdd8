/*
 * summary.h - shared by the files of gpumem summary: what to show, and the functions that print parts of it.
 * Single-threaded.
 */
#ifndef GM_TOOLS_SUMMARY_H
#define GM_TOOLS_SUMMARY_H

#include "tools/read/level.h"
#include "tools/show/explain.h"
#include "tools/show/groups.h"

struct gm_summary {
	const json_t *root;
	const char *device;
	enum gm_by by;			/* how to group what is live */
	const struct gm_scene *scene;
	const struct gm_explanation *explanation;
	const json_t *pool_lines;	/* of gm_explain_pool */
	enum gm_pool_level level;
	bool full;			/* --full: all tables */
	size_t top;			/* rows of a table of call sites or ranges; 0: --top was not given */
};

/* summary_short.c: print devices, pools, the largest call sites, and what to look at next, for the input @word. @before
 * of the 30 lines have been printed. */
void gm_summary_short(const struct gm_summary *view, const char *word, unsigned int before);

/* summary_crash.c: if a signal ended the process, print the signal, the address and the block there, the stack, and the
 * last events of the thread. Returns the number of lines. */
unsigned int gm_summary_crash(const struct gm_summary *view);

/* Print @text in lines of at most 80 columns, behind @indent blanks (0 or 2). Returns the number of lines. */
unsigned int gm_summary_wrapped(const char *text, int indent);

/* summary_tables.c: print the table "by module" or "by kind" of a device or of the host (@of). */
void gm_summary_holders(const struct gm_summary *view, const json_t *of, bool by_module);

/* Print what each pool of a device has handed out, and what is idle in it. */
void gm_summary_pools(const struct gm_summary *view, int64_t device);

/* Print what is live on @device, by call site or as --by says. Return the same for view->device as JSON; the caller
 * owns it. */
void gm_summary_groups(const struct gm_summary *view, const char *device);
json_t *gm_summary_json(const struct gm_summary *view);
/* Return the idle memory of each pool as JSON; the caller owns it. */
json_t *gm_summary_json_pools(const struct gm_summary *view);

#endif
