/*
 * search.h - settings of the caching allocator tried on a recorded history. Single-threaded.
 */
#ifndef GM_TOOLS_SEARCH_H
#define GM_TOOLS_SEARCH_H

#include <stdbool.h>

#include "tools/replay/history.h"
#include "tools/replay/simulate.h"

#define GM_SEARCH_CONF 2304u

#define GM_SEARCH_SETTINGS 5u

/* A point of the search: the value of each setting, NULL as at the start. */
struct gm_point { const char *value[GM_SEARCH_SETTINGS]; };

struct gm_tried {
	struct gm_point point;
	char conf[GM_SEARCH_CONF];	/* all settings, as PYTORCH_CUDA_ALLOC_CONF takes them */
	char what[160];			/* what is other than at the start, "" nothing */
	struct gm_simulation run;
};

struct gm_search {
	const struct gm_trace *trace;
	const char *conf;		/* where the search starts */
	uint64_t limit;			/* bytes of the device that may be had; GM_HEAP_UNLIMITED */
	struct gm_tried *tried; /* [0] is the start; in the order in which they were tried */
	size_t count, room;
	size_t best;			/* place in @tried; 0: nothing is better, or nothing fits */
	bool fits;			/* with some settings all that was served would be again */
	struct gm_simulation unlimited;	/* else: the start's run without a limit */
};

/* What the simulation may be wrong by: it was 4.3% on the worst of ten histories whose programs were run
 * under the settings that it had tried. What is better by less is not better. */
#define GM_SEARCH_ERROR 0.05

/* Try the sensible values of each setting alone, then the best of them together. The best: fewest refused
 * requests, then least memory at the peak, then fewest calls of the driver. Returns 0,
 * -EINVAL (@conf), -E2BIG or -ENOMEM. */
int gm_search(struct gm_search *search);

extern const char *const gm_search_settings[];	/* their names, NULL behind the last */

/* The place of the best that was tried, of @setting alone (NULL: of all); 0 when it is no better than the
 * start by more than GM_SEARCH_ERROR, or was not tried. */
size_t gm_search_best(const struct gm_search *search, const char *setting);
void gm_search_free(struct gm_search *search);

/* search_print.c: search the settings for @history from @conf, and print what was tried and what is
 * recommended. @limit: NULL takes what the history knows. Returns the exit status. */
int gm_search_print(const struct gm_history *history, const char *word, const char *conf,
		    const uint64_t *limit, bool json);

/* Bytes got from the driver at the highest moment. */
static inline uint64_t gm_tried_peak(const struct gm_tried *tried)
{
	return tried->run.peak_used_bytes;
}

#endif
