/*
 * replay.h - recorded histories of allocations, replayed through the library's own heap. A history is read in one
 * thread, and no content of a file is trusted.
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
 * A trace is text, plain or gzip, with one operation in each line:
 *	a ID BYTES STREAM ADDRESS	allocate; ADDRESS (hexadecimal) is the recorded one
 *	r ID				free requested
 *	f ID				free completed: reusable
 *	e				empty the cache
 *	# segment_alloc|segment_free|oom BYTES STREAM ADDRESS	a recorded call of the driver
 *	# conf=...			settings in force    # memory_limit_bytes=N	0: none
 * Other lines that begin with # are comments.
 */

enum gm_trace_op {
	GM_TRACE_ALLOC, GM_TRACE_REQUEST, GM_TRACE_COMPLETE, GM_TRACE_EMPTY, GM_TRACE_SEGMENT_ALLOC,
	GM_TRACE_SEGMENT_FREE, GM_TRACE_OOM,
	/* of snapshots only (history.c) */
	GM_TRACE_REFUSED,		/* a request that was refused when it was recorded: allocate and free it */
	GM_TRACE_FREE,			/* free completed, and requested if it was not yet */
	GM_TRACE_DIRECT, GM_TRACE_DIRECT_FREE	/* memory of another kind, which the cache does not serve */
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
	uint64_t device_bytes;		/* that our cache could use in a snapshot; 0: it is not our cache's */
	double shared_segments;		/* the part of @device_bytes that blocks could share: our option's value */
	char conf[2048];
	char error[256];		/* why reading failed, with the line's number */
};

/* Is the first line of @path, plain or gzip, one of a trace? Comments and empty lines before it are skipped; a file of
 * only such lines counts as a trace. */
bool gm_trace_is(const char *path);

/* Read @path. Return 0, -EINVAL (trace->error says why), or -errno. gm_trace_free frees @trace in every case. */
int gm_trace_read(struct gm_trace *trace, const char *path);

/* Make the configuration of a heap from the settings @conf, "KEY:VALUE,...". The bound of shared segments is a part of
 * trace->device_bytes: shared_segments in @conf, else @trace's. With expandable_segments:True in @conf it is a pages
 * heap. @others: skip unknown keys. Return 0, or -EINVAL and the reason in @ret_error (GM_OPTION_ERROR_BYTES). */
int gm_trace_config(struct gm_heap_config *ret, const struct gm_trace *trace, const char *conf, bool others,
		    char *ret_error);

/* Compute the bytes that any heap needs if memory that one stream freed can serve another only @lag operations later.
 * Then each stream keeps the most that it held within the last @lag operations. Blocks are rounded to GM_GRANULE and
 * held until their frees are complete. @ret_bytes is the peak of the sum over all streams; with a lag of 0, the most
 * bytes ever live. @ret_streams is the number of streams that allocated. Return 0, -ENOMEM or -E2BIG. */
int gm_trace_needs(const struct gm_trace *trace, uint64_t lag, uint64_t *ret_bytes, uint64_t *ret_streams);

void gm_trace_free(struct gm_trace *trace);

/* ---- history.c -------------------------------------------------------------------------------- */

struct gm_history {
	struct gm_trace trace;		/* .conf: the settings in force; "": unknown, or none */
	const char *variable;		/* that sets them, with "=": "GPUMEM_CONF=" */
	int device;
	int64_t dropped;		/* events that the history has lost */
	int64_t total_bytes;		/* of the device; 0: unknown */
	int64_t others_bytes;		/* outside: contexts, other processes; for a pool also the program's rest */
	int64_t reserved_peak;		/* recorded; 0: unknown */
	int64_t reserved;		/* at the end */
	int64_t free_bytes;		/* of the device, when memory ran out last; -1: it never ran out */
	int64_t refused;		/* requests that were refused */
	unsigned int devices;		/* number of devices with a history */
	bool of_pool;
};

#define GM_VARIABLE_TORCH "PYTORCH_CUDA_ALLOC_CONF="

/* Make a trace of the history of @device; -1: of the device with the most events. Pinned memory of the host and
 * imported memory are left out. Managed memory, arrays and virtual memory bypass the cache. With @pool (or NULL), it is
 * the history of that pool alone, and the cache serves its blocks of every kind. Return 0, -ENODATA (no history),
 * -E2BIG or -ENOMEM. Free it with gm_trace_free(&history->trace). */
int gm_history_open(struct gm_history *history, const struct gm_snapshot *snapshot,
		    const struct gm_snapshot_pool *pool, int device);

/* ---- simulate.c ------------------------------------------------------------------------------- */

/*
 * The driver is either the recorded one, which gives segments their recorded addresses and notes the first difference,
 * or an ideal one with a capacity.
 */

struct gm_simulation {
	struct gm_stats stats;		/* at the end */
	uint64_t peak_live_bytes;	/* requested */
	uint64_t allocations;
	uint64_t failed;		/* requests that ran out of memory */
	uint64_t failed_bytes;		/* size of the first of them */
	uint64_t missed;		/* failed requests that were served when they were recorded */
	uint64_t peak_used_bytes;	/* got from the driver, with memory that bypasses the cache */
	uint64_t peak_held_bytes;	/* in the cache's blocks: rounded sizes, until their frees are complete */
	/* The pages heap. */
	uint64_t peak_pages_bytes;	/* got from the driver for pages */
	uint64_t pages_moved;
	uint64_t operations, ns;	/* number of operations; processor time of all of them */
	char difference[512];		/* the first difference from the recording; "": none */
	int violations;			/* sum of what @check returned */
};

struct gm_simulate_how {
	bool follow;			/* use the recorded driver, and stop at the first difference */
	uint64_t capacity;		/* of the ideal device, in bytes; GM_HEAP_UNLIMITED: no limit */
	uint64_t lag;			/* of the pages heap, in operations: see gm_trace_needs */
	unsigned int order;		/* of the ideal device's addresses: 0 rising, 1 falling, from 2 on mixed */
	struct gm_replayed *into;	/* gets every event; or NULL */
	/* For tests: return how many rules of the heap are broken. Called every few thousand operations and at the
	 * end; or NULL. */
	int (*check)(struct gm_heap *heap, uint32_t first_segment);
};

/* Run @trace under @config. Returns 0, -ENOMEM, or -E2BIG. */
int gm_simulate(const struct gm_trace *trace, const struct gm_heap_config *config,
		const struct gm_simulate_how *how, struct gm_simulation *ret);

/* ---- replayed.c -------------------------------------------------------------------------------- */

/*
 * A replay written as a snapshot in PyTorch's form, without call sites. The time of an event is the number of its
 * operation, in microseconds.
 */

/* Begin the snapshot in @file. @conf, the settings, must outlive it. NULL: out of memory. */
struct gm_replayed *gm_replayed_open(FILE *file, const char *conf);

/* Write the event @action, in PyTorch's words, of operation @moment. */
void gm_replayed_event(struct gm_replayed *into, uint64_t moment, const char *action, uint64_t address, uint64_t bytes,
		       uint64_t stream);

/* After the last event, write the segments and blocks that are left, and the settings. */
void gm_replayed_heap(struct gm_replayed *into, const struct gm_heap *heap, uint32_t first_segment);

/* Free @into; the file stays open. Return 0 or the first error: -ENOMEM, or that of the file. */
int gm_replayed_close(struct gm_replayed *into);

/* ---- search.c --------------------------------------------------------------------------------- */

#define GM_SEARCH_CONF 2304u

#define GM_SEARCH_SETTINGS 6u
#define GM_SEARCH_ORDERS 4u		/* of addresses, which decide which of two equal blocks is taken */

/* A point of the search: the value of each setting; NULL: that of the start. */
struct gm_point { const char *value[GM_SEARCH_SETTINGS]; };

struct gm_trial {
	struct gm_point point;
	char conf[GM_SEARCH_CONF];	/* all settings, as the history's variable takes them */
	char what[160];			/* the settings that differ from the start's; "": none */
	struct gm_simulation run;	/* with rising addresses */
	uint64_t low, high;		/* peaks over all GM_SEARCH_ORDERS, if it may be recommended; else of @run */
};

struct gm_search {
	const struct gm_trace *trace;
	const char *conf;		/* where the search starts */
	uint64_t limit;			/* bytes of the device that are available; or GM_HEAP_UNLIMITED */
	struct gm_trial *trials;	/* in the order of the trials, [0] is the start; free() it */
	size_t count;
	size_t best;			/* place in @trials; 0: nothing is better, or nothing fits */
	bool fits;			/* some settings serve every request that was served when it was recorded */
	struct gm_simulation unlimited;	/* unless @fits: the start's run without a limit */
	struct gm_simulation pages;	/* the run on the pages heap, with a lag of GM_SEARCH_LAG */
	uint64_t pages_low, pages_high;	/* the pages heap's peaks with lags of 0, one and ten GM_SEARCH_LAG */
	bool pages_better;		/* the pages heap beats @best: more requests served, or a lower peak */
};

#define GM_SEARCH_LAG 100u	/* operations, on the pages heap: see struct gm_simulate_how */

/* The error of the simulation. It was 4.3% on the worst of ten histories whose programs were run again under the
 * settings that the search had tried. Settings that are better by less than this do not count as better. */
#define GM_SEARCH_ERROR 0.05

/* Try sensible values of each setting alone, then the best of them together. The caller sets @trace, @conf and @limit.
 * Return 0, -EINVAL (@conf), -E2BIG or -ENOMEM. */
int gm_search(struct gm_search *search);

extern const char *const gm_search_settings[];	/* names of settings; NULL after the last */

/* Return the place of the best trial, of @setting alone (NULL: of all trials): the one with the fewest requests missed,
 * then refused, then the lowest peak, or else with clearly fewer calls of the driver. 0: no trial is better than the
 * start by more than GM_SEARCH_ERROR. */
size_t gm_search_best(const struct gm_search *search, const char *setting);

/* search_print.c: search for better settings than @conf for @history, and print the trials and the recommendation.
 * @limit: NULL takes the limit from the history. Return the exit status. */
int gm_search_print(const struct gm_history *history, const char *word, const char *conf,
		    const uint64_t *limit, bool json);

/* Return the most bytes that the run had from the driver at once. */
static inline uint64_t gm_trial_peak(const struct gm_trial *trial)
{
	return trial->run.peak_used_bytes;
}

/* ---- would.c ---------------------------------------------------------------------------------- */

#define GM_WOULD_EXPANDABLE "expandable_segments:True"	/* replayed on the pages heap */

/* The driver's own pool takes memory in units of 32 MiB and moves it between addresses by pages
 * (test/conformance/h200.golden, "a pool that gives back"). So the pages heap models it, rounded up to whole units. On
 * an H200 with memory to spare, its peak was above the model's by 2.4% (mixture of experts), 4.8% (ResNet-50), 7.4%
 * (GPT) and 28% (side streams); the histories of these programs are in test/traces. */
#define GM_WOULD_ASYNC "backend:cudaMallocAsync"
#define GM_WOULD_ASYNC_UNIT (UINT64_C(32) << 20)
#define GM_WOULD_ASYNC_ERROR 0.28

struct gm_would {
	enum {
		GM_WOULD_UNKNOWN,	/* no history with the refused request, or it is too long */
		GM_WOULD_UNSEEN,	/* the settings in force serve it: something unrecorded made it fail */
		GM_WOULD_NOT,		/* none of the settings serves it */
		GM_WOULD_SERVE		/* @setting serves it, with a peak of @peak bytes reserved */
	} result;
	const char *setting;
	bool sure;			/* @setting also serves it with GM_SEARCH_ERROR less than @limit */
	const char *setting_with_more;	/* of GM_WOULD_NOT: serves it with GM_SEARCH_ERROR more; NULL: none does */
	uint64_t peak, limit;		/* bytes */
	/* The driver's own pool (GM_WOULD_ASYNC), if @pool was given and @result is GM_WOULD_NOT or GM_WOULD_SERVE. */
	bool async, async_sure;		/* it serves; also if it takes GM_WOULD_ASYNC_ERROR more */
	uint64_t async_peak;		/* bytes, whole units */
	int64_t dropped;		/* events of the pool that its history has lost */
};

/* Replay the history of @pool within @limit bytes, under the settings in force and then under one setting of PyTorch's
 * after the other. Find the setting that serves every request with the lowest peak. Without @pool (NULL), replay the
 * history of @device at the driver's level, and leave out the driver's own pool. Return 0, -E2BIG or -ENOMEM. */
int gm_would_serve(const struct gm_snapshot *snapshot, const struct gm_snapshot_pool *pool, int device,
		   uint64_t limit, struct gm_would *ret);

#endif
