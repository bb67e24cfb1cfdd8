/*
 * search_run.c - many settings tried on one history at once: see search_run.h.
 *
 * Each run has memory of its own and only reads the history: a thread for each core takes the next
 * run as long as there is one, the calling thread too. Where no thread can be had it does it all.
 */
#define _GNU_SOURCE
#include "tools/replay/search_run.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define THREADS 16			/* at most: each takes memory of its own */

/* ---- what need not be run --------------------------------------------------------------------- */

/* Requests that reach the heap's tables (gm_heap_alloc refuses larger ones before). */
static bool is_request(const struct gm_trace_line *line)
{
	return (line->op == GM_TRACE_ALLOC || line->op == GM_TRACE_TRY) && line->bytes &&
	       line->bytes < GM_HEAP_REQUEST_LIMIT;
}

/* No block is larger than its segment. */
static uint64_t largest_segment(const struct gm_trace *trace, const struct gm_heap_config *config)
{
	uint64_t largest = 0;

	for (size_t i = 0; i < trace->count; i++)
		if (is_request(&trace->lines[i])) {
			uint64_t size = gm_heap_round(config, trace->lines[i].bytes);
			uint64_t segment = gm_heap_segment_bytes(config, size);

			largest = size > largest ? size : largest;
			largest = segment > largest ? segment : largest;
		}
	return largest;
}

/* Does every request take the same of the same segment under both? */
static bool same_sizes(const struct gm_trace *trace, const struct gm_heap_config *a,
		       const struct gm_heap_config *b)
{
	if (a->large_segment_size == b->large_segment_size &&
	    !memcmp(a->roundup_power2_divisions, b->roundup_power2_divisions,
		    sizeof(a->roundup_power2_divisions)))
		return true;
	for (size_t i = 0; i < trace->count; i++)
		if (is_request(&trace->lines[i])) {
			uint64_t size = gm_heap_round(a, trace->lines[i].bytes);

			if (size != gm_heap_round(b, trace->lines[i].bytes) ||
			    gm_heap_segment_bytes(a, size) != gm_heap_segment_bytes(b, size))
				return false;
		}
	return true;
}

/* Would it never have collected, as long as all else goes as it went in @known? */
static bool never_collects(const struct gm_search_known *known, const struct gm_heap_config *config)
{
	uint64_t peak = (uint64_t)known->run.stats.stat[GM_STAT_RESERVED_BYTES][GM_POOL_ALL].peak;

	return config->limit == GM_HEAP_UNLIMITED || config->garbage_collection_threshold <= 0 ||
	       peak <= (uint64_t)(config->garbage_collection_threshold * (double)config->limit);
}

/*
 * Is the run of @config that of @known? A setting shows only where the heap compares something with
 * it: sizes with max_split_size (and then with max_non_split_rounding), what is reserved with the
 * threshold. Where all comparisons come out the same for everything that the known run came across,
 * the next step is the same again, to the end.
 */
static bool is_known(const struct gm_search_known *known, const struct gm_heap_config *config)
{
	const struct gm_heap_config *start = &known->config;
	bool never_splits = start->max_split_size > known->largest && config->max_split_size > known->largest;

	return config->limit == start->limit && same_sizes(known->trace, start, config) &&
	       (never_splits || (config->max_split_size == start->max_split_size &&
				 config->max_non_split_rounding == start->max_non_split_rounding)) &&
	       (config->garbage_collection_threshold == start->garbage_collection_threshold ||
		(never_collects(known, start) && never_collects(known, config)));
}

int gm_search_start(struct gm_search_known *known, const struct gm_trace *trace,
		    const struct gm_heap_config *config)
{
	known->trace = trace;
	known->config = *config;
	known->largest = largest_segment(trace, config);
	return gm_simulate(trace, config, false, config->limit, &known->run);
}

/* ---- the runs --------------------------------------------------------------------------------- */

struct crew {
	const struct gm_search_known *known;
	struct gm_search_job *jobs;
	size_t count;
	size_t next, done;		/* atomic */
};

static void run_one(const struct gm_search_known *known, struct gm_search_job *job)
{
	job->error = 0;
	if (is_known(known, &job->config)) {
		*job->result = known->run;
		job->result->stats.max_split_size = job->config.max_split_size == GM_HEAP_UNLIMITED ? -1 :
						    (int64_t)job->config.max_split_size;
		return;
	}
	job->error = gm_simulate(known->trace, &job->config, false, job->config.limit, job->result);
}

/* The next job. False: there is none. */
static bool work(struct crew *crew)
{
	size_t at = __atomic_fetch_add(&crew->next, 1, __ATOMIC_RELAXED);

	if (at >= crew->count)
		return false;
	run_one(crew->known, &crew->jobs[at]);
	__atomic_fetch_add(&crew->done, 1, __ATOMIC_RELAXED);
	return true;
}

static void *work_on(void *arg)
{
	while (work(arg))
		;
	return NULL;
}

/* How many may run at a time, the calling thread among them. */
static size_t cores(size_t jobs)
{
	cpu_set_t set;
	size_t count = sched_getaffinity(0, sizeof(set), &set) ? 1 : (size_t)CPU_COUNT(&set);

	count = count < jobs ? count : jobs;
	return count < THREADS ? count : THREADS;
}

void gm_search_run(const struct gm_search_known *known, struct gm_search_job *jobs, size_t count,
		   void (*progress)(void *arg, size_t done), void *arg)
{
	struct crew crew = { .known = known, .jobs = jobs, .count = count };
	size_t helpers = 0, wanted = cores(count);
	pthread_t helper[THREADS];

	while (helpers + 1 < wanted && !pthread_create(&helper[helpers], NULL, work_on, &crew))
		helpers++;
	while (work(&crew))
		progress(arg, __atomic_load_n(&crew.done, __ATOMIC_RELAXED));
	while (helpers)
		pthread_join(helper[--helpers], NULL);
}
