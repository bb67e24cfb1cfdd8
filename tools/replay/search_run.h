/*
 * search_run.h - many settings tried on one history at once: on all cores, and each that differs
 * from the start in nothing that the history touches only in thought.
 */
#ifndef GM_TOOLS_SEARCH_RUN_H
#define GM_TOOLS_SEARCH_RUN_H

#include "tools/replay/simulate.h"

/* What can be said of the run of one setting without running others. */
struct gm_search_known {
	const struct gm_trace *trace;
	struct gm_heap_config config;
	struct gm_simulation run;
	uint64_t largest;		/* bytes of the largest block that there can have been */
};

/* Run @config, the start. Returns 0, -E2BIG or -ENOMEM. */
int gm_search_start(struct gm_search_known *known, const struct gm_trace *trace,
		    const struct gm_heap_config *config);

struct gm_search_job {
	struct gm_heap_config config;
	struct gm_simulation *result;
	int error;			/* afterwards: 0, or -ENOMEM */
};

/* Run all @jobs, each on an ideal device of as much memory as its limit. @progress, in the calling
 * thread, is told how many are done. */
void gm_search_run(const struct gm_search_known *known, struct gm_search_job *jobs, size_t count,
		   void (*progress)(void *arg, size_t done), void *arg);

#endif
