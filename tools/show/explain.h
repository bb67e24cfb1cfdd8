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
	GM_CAUSE_OTHERS,		/* memory that is not recorded here is in the way */
	GM_CAUSE_FRAGMENTED,		/* enough lies idle in the cache, in pieces too small */
	GM_CAUSE_PENDING,		/* enough is freed that the GPU may still be using */
	GM_CAUSE_LEAK,			/* the program holds it, and one call site grows without end */
	GM_CAUSE_LARGE,			/* the request is most of the device, and more than is held */
	GM_CAUSE_FULL,			/* the program holds it */
	GM_CAUSE_HOST			/* it was pinned memory: the machine's, and not the device's */
};

struct gm_explanation {
	enum gm_cause cause;
	char why[1024], change[1024];	/* sentences; "" for GM_CAUSE_NONE */
	int64_t row; /* of the history, at which it was; GM_LIVES_END: the snapshot's end */
	int64_t stack;			/* of the call that failed */
	int device;			/* GM_ROW_HOST: it was pinned memory */
	int64_t pool;			/* number of the one that could not serve it; 0: the driver could not */
};

/* Explain the failure that the snapshot was made for, else the last one that it knows of. */
void gm_explain(const struct gm_scene *scene, struct gm_explanation *ret);
const char *gm_cause_name(enum gm_cause cause);

/* Where memory ran out, as option --device names the place: "host" or the device's number, in @ret. */
const char *gm_explain_device(const struct gm_explanation *explanation, char ret[16]);

/* The largest block of @device that lies idle in a cache; 0 none. */
int64_t gm_largest_idle(const struct gm_snapshot *snapshot, int64_t device);

/* Who held how much of that device then, the largest first: 0 or -ENOMEM; gm_groups_close it. */
int gm_explain_holders(const struct gm_scene *scene, const struct gm_explanation *explanation,
		       enum gm_by by, struct gm_groups *ret);

/* explain_pool.c: more of a failure in a pool, a sentence each: what its blocks hold, by call site; what it held
 * idle, and why that could not serve; which setting would have served it. A list of texts, perhaps an empty one. */
json_t *gm_explain_pool(const struct gm_scene *scene, const struct gm_explanation *explanation);

/* What a pool keeps idle in the pieces that it holds, @held bytes; @stuck: in those that are in use. */
struct gm_idle { int64_t bytes, largest, pieces, held, stuck; };
struct gm_idle gm_pool_idle(const struct gm_snapshot_pool *pool);

/* ---- between explain.c, which finds the facts, and explain_say.c, which says them -------------- */

/* The call site that holds more than half of what is live. */
struct gm_growth {
	char site[256];			/* "": none holds so much */
	int64_t bytes, blocks, freed;	/* @freed: blocks of it, in the history */
	bool grows;			/* its blocks are of all ages, and so it only grew */
	bool leaks;			/* while other blocks came and went: it is not just being filled */
};

/* What is known of one failure, bytes. -1: not known. */
struct gm_facts {
	int64_t asked, free, total, live, time_us;
	int64_t needed;			/* of the driver, for that: its pages, PyTorch's segments */
	int64_t rounding;		/* of @live, what was not asked for; 0: none, or not known */
	int64_t cached, pending, largest;	/* of the moment, where the snapshot is of it */
	bool capturing;			/* some stream captured a graph then */
	int64_t limit, limit_used;	/* of ours, that refused it */
	const char *refused_by;		/* its name; "driver", "" not known */
	const char *conf;		/* PYTORCH_CUDA_ALLOC_CONF */
	int device;			/* GM_ROW_HOST: pinned memory, and @free and @total are the current device's */
	const char *module;
	int64_t stack;
	int64_t pool;			/* number of the one that could not serve it; 0 none */
	int64_t pool_held;		/* what that had of the driver's memory */
	bool torch;			/* PyTorch's allocator refused it, by its own word */
	bool expandable;		/* its segments are */
	bool holders_known;		/* what was live then is */
	struct gm_growth growth;
};

/* explain_more.c: find it; @live bytes were live. */
void gm_explain_growth(const struct gm_scene *scene, const struct gm_explanation *explanation, int64_t live,
		       struct gm_growth *ret);

/* explain_more.c: which settings of this library would have served a request that our own cache could not, each tried:
 * sentences in @ret, each with a blank behind. Returns false: none is known to. */
bool gm_explain_ours(const struct gm_scene *scene, const struct gm_facts *facts, int64_t row, char *ret, size_t room);

/* How much too little was free for it; 0 or less: it would have fitted. */
int64_t gm_facts_lacks(const struct gm_facts *facts);

/* What PyTorch's allocator had: the pool's, where one is recorded. */
int64_t gm_facts_torch_held(const struct gm_facts *facts);

/* How much of the device was held, and is not recorded here. */
int64_t gm_facts_others(const struct gm_facts *facts);

/* Fill in @ret->why and @ret->change. @ret->cause must be set. */
void gm_explain_say(const struct gm_scene *scene, const struct gm_facts *facts,
		    struct gm_explanation *ret);

#endif
