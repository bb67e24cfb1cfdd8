/*
 * replay.h - recorded histories of allocations, run through the library's own heap. Reading them is
 * single-threaded and trusts nothing.
 */
#ifndef GM_TOOLS_REPLAY_H
#define GM_TOOLS_REPLAY_H

#include <stdbool.h>
#include <stdio.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/heap.h"
#include "tools/read/snapshot.h"

/* ---- trace.c ---------------------------------------------------------------------------------- */

/*
 * Text, plain or gzip, a line an operation:
 *	a ID BYTES STREAM ADDRESS	allocate; ADDRESS (hexadecimal) is what the recorder got
 *	r ID				free requested
 *	f ID				free completed: reusable
 *	e				empty the cache
 *	# segment_alloc|segment_free|oom BYTES STREAM ADDRESS	what was asked of the driver there
 *	# conf=...			settings in force    # memory_limit_bytes=N	0: none
 * Other lines that begin with # are comments.
 */

enum gm_trace_op {
	GM_TRACE_ALLOC, GM_TRACE_REQUEST, GM_TRACE_COMPLETE, GM_TRACE_EMPTY, GM_TRACE_SEGMENT_ALLOC,
	GM_TRACE_SEGMENT_FREE, GM_TRACE_OOM,
	/* of snapshots only (history.c) */
	GM_TRACE_TRY,			/* was refused when it was recorded: can it be had, for a moment? */
	GM_TRACE_FREE,			/* completed, and requested if it was not */
	GM_TRACE_DIRECT, GM_TRACE_DIRECT_FREE	/* memory of another sort, past the cache */
};

struct gm_trace_line {
	uint64_t id;			/* 0 .. ids-1, dense */
	uint64_t bytes, stream, address;
	uint32_t number;		/* of the line in the file, from 1 */
	uint8_t op;
};

struct gm_trace {
	struct gm_trace_line *lines;
	size_t count;
	uint64_t ids;			/* allocations */
	uint64_t memory_limit_bytes;
	uint64_t device_bytes;		/* a snapshot's, if our cache is what is replayed; else 0 */
	double shared_segments;		/* of them: what our cache shared by default or by option */
	char conf[2048];
	char error[256];		/* why reading failed, with the line's number */
};

/* Is the first line of @path that is no comment one of a trace, plain or compressed? */
bool gm_trace_is(const char *path);

/* Read @path. Returns 0, -EINVAL (see @error), or -errno. Free with gm_trace_free. */
int gm_trace_read(struct gm_trace *trace, const char *path);

/* The configuration that @conf makes, beside what @trace says that the program ran with: the bound of our cache's
 * segments that blocks share, and pages where expandable_segments is on. Keys that are unknown are passed over with
 * @others. Returns 0, or -EINVAL with GM_OPTION_ERROR_BYTES of @ret_error saying why. */
int gm_trace_config(struct gm_heap_config *ret, const struct gm_trace *trace, const char *conf, bool others,
		    char *ret_error);

/* What any heap needs where a stream gets what another one freed only after @lag further operations: each stream keeps
 * the most that it held within them, in blocks rounded to GM_GRANULE until their frees are complete. @ret_bytes is the
 * most that all keep together; with a lag of 0 it is the most that was ever live. @ret_streams counts the streams that
 * allocated. Returns 0, -ENOMEM or -E2BIG. */
int gm_trace_needs(const struct gm_trace *trace, uint64_t lag, uint64_t *ret_bytes, uint64_t *ret_streams);

void gm_trace_free(struct gm_trace *trace);

/* ---- history.c -------------------------------------------------------------------------------- */

struct gm_history {
	struct gm_trace trace;		/* @conf: the settings in force, "" unknown */
	const char *variable;		/* where settings of what served it are put: "GPUMEM_CONF=" */
	int device;
	int64_t dropped;		/* events that the history has lost */
	int64_t total_bytes;		/* of the device, 0 unknown */
	int64_t others_bytes;		/* that nobody recorded: contexts, other processes */
	int64_t reserved_peak;		/* recorded, 0 unknown */
	int64_t reserved;		/* at the end */
	int64_t free_bytes;		/* of the device, when memory ran out last; -1 it never did */
	int64_t tries;			/* requests in it that were refused */
	unsigned int devices;		/* that have a history */
	bool of_pool;
};

#define GM_VARIABLE_TORCH "PYTORCH_CUDA_ALLOC_CONF="

/* The history of @device, or of the one with most events (-1). Pinned memory of the host and
 * imported memory are left out; managed memory, arrays and virtual memory go past the cache. With
 * @pool (else NULL) it is the history of that pool alone, and its blocks, of whatever kind, are as
 * if the cache had served them. Returns 0; -ENODATA: there is none; -ENOMEM. Free with
 * gm_trace_free(&history->trace). */
int gm_history_open(struct gm_history *history, const struct gm_snapshot *snapshot,
		    const struct gm_snapshot_pool *pool, int device);

/* ---- simulate.c ------------------------------------------------------------------------------- */

/*
 * The driver is either the recorded one (segment addresses handed out as they were recorded, every
 * difference noted) or an ideal one with a capacity.
 */

struct gm_simulation {
	struct gm_stats stats;		/* at the end */
	uint64_t peak_live_bytes;	/* requested */
	uint64_t allocations;
	uint64_t failed;		/* requests that ran out of memory */
	uint64_t failed_bytes;		/* the first of them */
	uint64_t missed;		/* those of them that were served when it was recorded */
	uint64_t peak_used_bytes;	/* got from the driver, past the cache included */
	uint64_t peak_held_bytes;	/* of the cache: blocks as they were rounded, until their frees are complete */
	/* The pages heap. */
	uint64_t peak_pages_bytes;	/* got from the driver for it */
	uint64_t pages_moved;
	uint64_t operations, ns;	/* and how long all of them took, in all */
	char difference[512];		/* the first one from the recording; "" none */
	int violations;			/* what @check returned, in all */
};

struct gm_simulate_how {
	bool follow;			/* against the recorded driver and addresses, up to the first difference */
	uint64_t capacity;		/* of the ideal device, GM_HEAP_UNLIMITED: no end */
	uint64_t lag;			/* pages heap: as in gm_trace_needs, operations */
	unsigned int order;		/* of the ideal device's addresses: 0 rising, 1 falling, 2 .. mixed */
	struct gm_replayed *into;	/* is told all that happens; NULL: nobody */
	/* Tests': how many rules of the heap are broken, asked now and then, and at the end. */
	int (*check)(struct gm_heap *heap, uint32_t first_segment);
};

/* Run @trace under @config. Returns 0, -ENOMEM, or -E2BIG. */
int gm_simulate(const struct gm_trace *trace, const struct gm_heap_config *config,
		const struct gm_simulate_how *how, struct gm_simulation *ret);

/* ---- replayed.c -------------------------------------------------------------------------------- */

/*
 * A replay as a snapshot in PyTorch's form: what would have happened, without call sites. A moment is the number of the
 * operation, in microseconds.
 */

/* Begin it in @file. NULL: no memory. */
struct gm_replayed *gm_replayed_open(FILE *file, const char *conf);

/* @action, in PyTorch's words, at @moment. */
void gm_replayed_event(struct gm_replayed *into, uint64_t moment, const char *action, uint64_t address, uint64_t bytes,
		       uint64_t stream);

/* What there is at the end. */
void gm_replayed_heap(struct gm_replayed *into, const struct gm_heap *heap, uint32_t first_segment);

/* Returns 0, -ENOMEM, or the error of the file, which stays open. */
int gm_replayed_close(struct gm_replayed *into);

/* ---- search.c --------------------------------------------------------------------------------- */

#define GM_SEARCH_CONF 2304u

#define GM_SEARCH_SETTINGS 6u
#define GM_SEARCH_ORDERS 4u		/* of addresses: which of two equal blocks is taken depends on them */

/* A point of the search: the value of each setting, NULL as at the start. */
struct gm_point { const char *value[GM_SEARCH_SETTINGS]; };

struct gm_tried {
	struct gm_point point;
	char conf[GM_SEARCH_CONF];	/* all settings, as the history's variable takes them */
	char what[160];			/* what is other than at the start, "" nothing */
	struct gm_simulation run;	/* with rising addresses */
	uint64_t low, high;		/* the peaks over GM_SEARCH_ORDERS of addresses, if it may be recommended */
};

struct gm_search {
	const struct gm_trace *trace;
	const char *conf;		/* where the search starts */
	uint64_t limit;			/* bytes of the device that may be had; GM_HEAP_UNLIMITED */
	struct gm_tried *tried; /* [0] is the start; in the order in which they were tried; free() it */
	size_t count;
	size_t best;			/* place in @tried; 0: nothing is better, or nothing fits */
	bool fits;			/* with some settings all that was served would be again */
	struct gm_simulation unlimited;	/* else: the start's run without a limit */
	struct gm_simulation pages;	/* the pages heap's, with a lag of GM_SEARCH_LAG */
	uint64_t pages_low, pages_high;	/* its peaks with that lag, without one, and with ten times as much */
	bool pages_better;		/* it serves all, and takes less than @best by more than GM_SEARCH_ERROR */
};

#define GM_SEARCH_LAG 100u	/* operations, on the pages heap: see struct gm_simulate_how */

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

/* search_print.c: search the settings for @history from @conf, and print what was tried and what is
 * recommended. @limit: NULL takes what the history knows. Returns the exit status. */
int gm_search_print(const struct gm_history *history, const char *word, const char *conf,
		    const uint64_t *limit, bool json);

/* Bytes got from the driver at the highest moment. */
static inline uint64_t gm_tried_peak(const struct gm_tried *tried)
{
	return tried->run.peak_used_bytes;
}

/* ---- would.c ---------------------------------------------------------------------------------- */

#define GM_WOULD_EXPANDABLE "expandable_segments:True"	/* replayed on the pages heap */

/* The driver's own pool. Its memory comes in units of 32 MiB and is moved between addresses by pages
 * (test/conformance/h200.golden, "a pool that gives back"), so it is modelled by the pages heap, in whole units. On an
 * H200 it reserved, with room to spare, 2.4% (mixture of experts), 4.8% (ResNet-50), 7.4% (GPT) and 28% (side streams)
 * more at its peak than the pages heap does on the histories of the same programs (test/traces). */
#define GM_WOULD_ASYNC "backend:cudaMallocAsync"
#define GM_WOULD_ASYNC_UNIT (UINT64_C(32) << 20)
#define GM_WOULD_ASYNC_ERROR 0.28

struct gm_would {
	enum {
		GM_WOULD_UNKNOWN,	/* no history with the request in it, or too long a one */
		GM_WOULD_UNSEEN,	/* replayed as it was, it is served: what is not recorded made it fail */
		GM_WOULD_NOT,		/* none of the settings */
		GM_WOULD_SERVE		/* @setting, with @peak bytes reserved at most */
	} result;
	const char *setting;
	bool sure;			/* also within GM_SEARCH_ERROR less than @limit */
	const char *perhaps;		/* of GM_WOULD_NOT: it does within GM_SEARCH_ERROR more; NULL: none does */
	uint64_t peak, limit;		/* bytes */
	/* Of GM_WOULD_ASYNC; set where @result is GM_WOULD_NOT or GM_WOULD_SERVE. It may serve where no setting does,
	 * and the other way round. */
	bool async, async_sure;		/* it serves; also if it takes GM_WOULD_ASYNC_ERROR more */
	uint64_t async_peak;		/* bytes, whole units */
	int64_t dropped;		/* events of the pool that are not in its history any more */
};

/* Replay what @pool handed out within @limit bytes, as it was and under one setting of PyTorch's after the other:
 * which serves all that was asked for? Without @pool (NULL) it is the history of @device, at the driver's level, and
 * the driver's own pool is not tried. Returns 0, -E2BIG or -ENOMEM. */
int gm_would_serve(const struct gm_snapshot *snapshot, const struct gm_snapshot_pool *pool, int device,
		   uint64_t limit, struct gm_would *ret);

#endif
