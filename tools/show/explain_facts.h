/*
 * explain_facts.h - what explain.c found of a failure, and explain_say.c says of it. Single-threaded.
 */
#ifndef GM_TOOLS_EXPLAIN_FACTS_H
#define GM_TOOLS_EXPLAIN_FACTS_H

#include "tools/show/explain.h"

/* What is known of one failure, bytes. -1: not known. */
struct gm_facts {
	int64_t asked, free, total, live, time_us;
	int64_t needed;			/* of the driver, for that: its pages, PyTorch's segments */
	int64_t cached, pending, largest;	/* of the moment, where the snapshot is of it */
	int64_t limit, limit_used;	/* of ours, that refused it */
	const char *refused_by;		/* its name; "driver", "" not known */
	const char *conf;		/* PYTORCH_CUDA_ALLOC_CONF */
	int device;
	const char *entry, *module;
	int64_t stack;
	bool torch;			/* PyTorch's allocator refused it, by its own word */
	bool expandable;		/* its segments are */
	bool holders_known;		/* what was live then is */
};

/* How much too little was free for it; 0 or less: it would have fitted. */
int64_t gm_facts_lacks(const struct gm_facts *facts);

/* What of the device was nobody's that is recorded. */
int64_t gm_facts_others(const struct gm_facts *facts);

/* Fill in @ret->why and @ret->change; its cause is known. */
void gm_explain_say(const struct gm_scene *scene, const struct gm_facts *facts,
		    struct gm_explanation *ret);

#endif
