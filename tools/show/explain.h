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
	GM_CAUSE_REFUSED,		/* enough was free, but the driver refused */
	GM_CAUSE_OTHERS,		/* others, which are not recorded here, held the memory */
	GM_CAUSE_FRAGMENTED,		/* enough lies idle in the cache, in pieces too small */
	GM_CAUSE_PENDING,		/* enough is freed, but the GPU may still be using it */
	GM_CAUSE_LEAK,			/* the program holds the memory, and one call site grows without end */
	GM_CAUSE_LARGE,			/* the request is over half of the device, and more than the program holds */
	GM_CAUSE_FULL,			/* the program holds the memory */
	GM_CAUSE_HOST			/* the request was for pinned memory, which is the machine's */
};

struct gm_explanation {
	enum gm_cause cause;
	char why[1024], change[1024];	/* sentences; "" for GM_CAUSE_NONE */
	int64_t row;			/* of the history, when memory ran out; GM_LIVES_END: the snapshot's end */
	int64_t stack;			/* of the call that failed */
	int device;			/* GM_ROW_HOST: pinned memory */
	int64_t pool;			/* number of the pool that could not serve it; 0: the driver could not */
};

/* Explain the failure that the snapshot was made for, else the last failure in the snapshot. */
void gm_explain(const struct gm_scene *scene, struct gm_explanation *ret);
const char *gm_cause_name(enum gm_cause cause);

/* Write where memory ran out, as option --device has it: "host" or the device's number. Returns @ret. */
const char *gm_explain_device(const struct gm_explanation *explanation, char ret[16]);

/* Return the bytes of the largest idle block in a cache on @device; 0: none. */
int64_t gm_largest_idle(const struct gm_snapshot *snapshot, int64_t device);

/* Group what was live on that device at that time, the largest group first. Returns 0, or -ENOMEM and nothing to
 * close. */
int gm_explain_holders(const struct gm_scene *scene, const struct gm_explanation *explanation,
		       enum gm_by by, struct gm_groups *ret);

/* explain_pool.c: return more sentences on a failure in a pool, a list of texts that may be empty; the caller owns it.
 * What the blocks hold, by call site; what was idle in the pool, and why that could not serve the request; which
 * setting would have served the request. */
json_t *gm_explain_pool(const struct gm_scene *scene, const struct gm_explanation *explanation);

/* The idle memory in a pool's pieces, @held bytes in all. @stuck: the idle bytes of the pieces that are in use. */
struct gm_idle { int64_t bytes, largest, pieces, held, stuck; };
struct gm_idle gm_pool_idle(const struct gm_snapshot_pool *pool);

/* ---- between explain.c, which finds the facts, and explain_say.c, which says them -------------- */

/* The call site that holds more than half of what is live. */
struct gm_growth {
	char site[256];			/* "": no call site holds so much */
	int64_t bytes, blocks, freed;	/* @freed: blocks of the site that were freed in the history */
	bool grows;			/* the live blocks are of all ages, so the site only grew */
	bool leaks;			/* it grows while other blocks come and go: this is no loading phase */
};

/* What is known of one failure. Sizes are bytes; -1: not known. */
struct gm_facts {
	int64_t asked, free, total, live, time_us;
	int64_t needed;			/* from the driver for @asked: whole pages, or PyTorch's segment */
	int64_t rounding;		/* what blocks take beyond the requests; 0: none, or not known */
	int64_t cached, pending, largest;	/* at the failure, if the snapshot says */
	bool capturing;			/* some stream captured a graph at the failure */
	int64_t limit, limit_used;	/* of the limit of ours that refused the request */
	const char *refused_by;		/* the limit's name, or "driver"; "": not known */
	const char *conf;		/* PYTORCH_CUDA_ALLOC_CONF */
	int device;			/* GM_ROW_HOST: pinned memory; @free and @total are the current device's */
	const char *module;
	int64_t stack;
	int64_t pool;			/* number of the pool that could not serve the request; 0: none */
	int64_t pool_held;		/* the driver's memory in that pool */
	bool torch;			/* PyTorch's allocator reported the failure */
	bool expandable;		/* PyTorch's segments are expandable */
	bool holders_known;		/* it is known what was live at the failure */
	struct gm_growth growth;
};

/* explain_more.c: find the call site that holds more than half of the @live bytes, and whether it grows. */
void gm_explain_growth(const struct gm_scene *scene, const struct gm_explanation *explanation, int64_t live,
		       struct gm_growth *ret);

/* explain_more.c: try which settings of this library would have served a request that our own cache could not serve.
 * Write a sentence for each such setting to @ret, with a blank behind it. Returns false if there is none. */
bool gm_explain_ours(const struct gm_scene *scene, const struct gm_facts *facts, int64_t row, char *ret, size_t room);

/* Return by how many bytes too little was free; 0 or less: the request would have fitted. */
int64_t gm_facts_missing(const struct gm_facts *facts);

/* Return the bytes of the driver's memory in PyTorch's allocator: those of the pool, if one is recorded. */
int64_t gm_facts_torch_held(const struct gm_facts *facts);

/* Return the bytes of the device that were taken and are not recorded here. */
int64_t gm_facts_others(const struct gm_facts *facts);

/* Write @ret->why and @ret->change. @ret->cause must be set. */
void gm_explain_say(const struct gm_scene *scene, const struct gm_facts *facts,
		    struct gm_explanation *ret);

#endif
