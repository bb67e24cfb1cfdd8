/*
 * explain.h - why memory ran out, in a sentence, and what to change. Single-threaded.
 */
#ifndef GM_TOOLS_EXPLAIN_H
#define GM_TOOLS_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/show/groups.h"

enum gm_cause {
	GM_CAUSE_NONE,			/* memory never ran out */
	GM_CAUSE_TOO_LARGE,		/* more than the device has */
	GM_CAUSE_LIMIT,			/* a limit of ours or of PyTorch's, not the device */
	GM_CAUSE_REFUSED,		/* so much was free, and the driver refused all the same */
	GM_CAUSE_OTHERS,		/* what nobody here recorded is in the way */
	GM_CAUSE_FRAGMENTED,		/* enough lies idle in the cache, in pieces too small */
	GM_CAUSE_PENDING,		/* enough is freed that the GPU may still be using */
	GM_CAUSE_LARGE,			/* the request is most of the device, and more than is held */
	GM_CAUSE_FULL			/* the program holds it */
};

struct gm_explanation {
	enum gm_cause cause;
	char why[1024], change[1024];	/* sentences; "" for GM_CAUSE_NONE */
	int64_t row; /* of the history, at which it was; GM_EXPLAIN_END: the snapshot's end */
	int64_t stack;			/* of the call that failed */
	int device;
};
#define GM_EXPLAIN_END INT64_MIN

/* Explain the failure that the snapshot was made for, else the last one that it knows of. */
void gm_explain(const struct gm_scene *scene, struct gm_explanation *ret);
const char *gm_cause_name(enum gm_cause cause);

/* The largest block of @device that lies idle in a cache; 0 none. */
int64_t gm_largest_idle(const struct gm_snapshot *snapshot, int64_t device);

/* Who held how much of that device then, the largest first: 0 or -ENOMEM; gm_groups_close it. */
int gm_explain_holders(const struct gm_scene *scene, const struct gm_explanation *explanation,
		       enum gm_by by, struct gm_groups *ret);

#endif
