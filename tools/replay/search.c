/*
 * search.c - find the settings that serve a recorded history best: see replay.h.
 *
 * The search tries each setting alone, with the values that people use. Then it starts from the best trial and adds
 * each other setting that helped, the best one first, if the addition helps. Better means fewer refused requests, then
 * less memory at the peak, then fewer calls of the driver; in the search a peak that differs by less than 1% counts as
 * equal. In the end the best of all trials is recommended if it is better by more than the simulation's error.
 *
 * Each run has its own memory and only reads the history. A thread for each core, the calling thread among them, takes
 * runs until none is left. Without other threads the calling thread takes all.
 */
#define _GNU_SOURCE
#include "tools/replay/replay.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "preload/options/options.h"
#include "tools/read/table.h"
#include "tools/show/show.h"

#define CHOICES 7

static const struct setting {
	const char *key;
	const char *values[CHOICES];
	bool limited;			/* has no effect without a limit */
	bool ours;			/* PyTorch's cache has no such setting */
} settings[GM_SEARCH_SETTINGS] = {
	{ "max_split_size_mb", { "21", "32", "64", "128", "256", "512", "1024" }, false, false },
	{ "roundup_power2_divisions", { "1", "2", "4", "8", "16", NULL }, false, false },
	{ "large_segment_size_mb", { "12", "32", "64", "128", "256", "512", NULL }, false, false },
	{ "garbage_collection_threshold", { "0.5", "0.6", "0.7", "0.8", "0.9", NULL }, true, false },
	{ "max_non_split_rounding_mb", { "32", "64", "128", "256", NULL }, false, false },
	{ "shared_segments", { "0", "0.05", "0.25", "0.5", "1", NULL }, false, true },
};
#define SETTINGS GM_SEARCH_SETTINGS
#define MOST (SETTINGS * CHOICES)	/* trials in one call of try() */
#define THREADS 16			/* at most, because each needs its own memory */

const char *const gm_search_settings[SETTINGS + 1] = {
	"max_split_size_mb",	     "roundup_power2_divisions",     "large_segment_size_mb",
	"max_non_split_rounding_mb", "garbage_collection_threshold", "shared_segments", NULL
};

/* Can setting @s have an effect? */
static bool applies(const struct gm_search *search, size_t s)
{
	return (!settings[s].limited || search->limit != GM_HEAP_UNLIMITED) &&
	       (!settings[s].ours || search->trace->device_bytes);
}

static size_t planned(const struct gm_search *search)
{
	size_t count = 1;

	for (size_t s = 0; s < SETTINGS; s++)
		for (size_t v = 0; v < CHOICES && settings[s].values[v]; v++)
			count += applies(search, s);
	return count;
}

/* Does @point set the key of @entry, "key:value"? */
static bool is_set(const struct gm_point *point, const char *entry)
{
	for (size_t s = 0; s < SETTINGS; s++) {
		size_t length = strlen(settings[s].key);

		if (point->value[s] && !strncmp(entry, settings[s].key, length) &&
		    entry[length] == ':')
			return true;
	}
	return false;
}

/* Write to ret->conf the settings of @start that @point does not set, then ret->what. */
static void join(const char *start, const struct gm_point *point, struct gm_trial *ret)
{
	size_t length = 0;

	ret->conf[0] = '\0';
	while (*start) {
		size_t end = 0;

		for (int depth = 0; start[end] && (depth || start[end] != ','); end++)
			depth += (start[end] == '[') - (start[end] == ']');
		if (end && !is_set(point, start))
			length += (size_t)snprintf(ret->conf + length, sizeof(ret->conf) - length,
						   "%s%.*s", length ? "," : "", (int)end, start);
		if (length >= sizeof(ret->conf))
			return;		/* cut: gm_trace_config refuses it */
		start += end + (start[end] == ',');
	}
	if (ret->what[0])
		snprintf(ret->conf + length, sizeof(ret->conf) - length, "%s%s", length ? "," : "",
			 ret->what);
}

static void describe(const struct gm_search *search, const struct gm_point *point,
		     struct gm_trial *ret)
{
	size_t length = 0;

	ret->what[0] = '\0';
	for (size_t s = 0; s < SETTINGS; s++)
		if (point->value[s])
			length += (size_t)snprintf(ret->what + length, sizeof(ret->what) - length,
						   "%s%s:%s", length ? "," : "", settings[s].key,
						   point->value[s]);
	join(search->conf, point, ret);
}

/* Add a trial of @point, and make its configuration. Return 0, -EINVAL if the settings exclude each other, or
 * -ENOMEM. */
static int plan(struct gm_search *search, const struct gm_point *point, struct gm_heap_config *config)
{
	struct gm_trial *one = gm_list_add(&search->trials, &search->count, sizeof(*one));
	char error[GM_OPTION_ERROR_BYTES];

	if (!one)
		return -ENOMEM;
	memset(one, 0, sizeof(*one));
	one->point = *point;
	describe(search, point, one);
	if (gm_trace_config(config, search->trace, one->conf, true, error))
		return -EINVAL;
	config->limit = search->limit;
	return 0;
}

/* ---- the runs --------------------------------------------------------------------------------- */

struct job { struct gm_heap_config config; size_t place; };	/* @place: of its trial in @trials */

struct crew {
	const struct gm_search *search;
	struct job jobs[MOST];
	size_t count, next, done;	/* @next and @done are atomic */
	int error;			/* atomic: the error of any run; 0: none */
};

/* Does @trial save more memory than the simulation's error? */
static bool saves(const struct gm_trial *start, const struct gm_trial *trial)
{
	return (double)gm_trial_peak(trial) < (1 - GM_SEARCH_ERROR) * (double)gm_trial_peak(start);
}

/* Run one trial. Only the start and trials that may be recommended are also run with other orders of addresses: a
 * program cannot choose the addresses that a device gives, so a saving by addresses alone is no gain. Return 0 or
 * -errno. */
static int run_orders(const struct gm_search *search, const struct gm_heap_config *config, struct gm_trial *trial)
{
	struct gm_simulate_how how = { .capacity = config->limit, .lag = GM_SEARCH_LAG };
	int r = gm_simulate(search->trace, config, &how, &trial->run);

	trial->low = trial->high = gm_trial_peak(trial);
	if (trial != search->trials && !saves(search->trials, trial))
		return r;
	for (how.order = 1; !r && how.order < GM_SEARCH_ORDERS; how.order++) {
		struct gm_simulation run;

		r = gm_simulate(search->trace, config, &how, &run);
		trial->low = run.peak_used_bytes < trial->low ? run.peak_used_bytes : trial->low;
		trial->high = run.peak_used_bytes > trial->high ? run.peak_used_bytes : trial->high;
	}
	return r;
}

/* Run the next job. Return false if there is none. */
static bool work(struct crew *crew)
{
	size_t at = __atomic_fetch_add(&crew->next, 1, __ATOMIC_RELAXED);
	struct job *job = &crew->jobs[at];
	int r;

	if (at >= crew->count)
		return false;
	r = run_orders(crew->search, &job->config, &crew->search->trials[job->place]);
	if (r)
		__atomic_store_n(&crew->error, r, __ATOMIC_RELAXED);
	__atomic_fetch_add(&crew->done, 1, __ATOMIC_RELAXED);
	return true;
}

static void *work_on(void *arg)
{
	while (work(arg))
		;
	return NULL;
}

/* Return the number of threads to use, the calling thread among them. */
static size_t cores(size_t jobs)
{
	cpu_set_t set;
	size_t count = sched_getaffinity(0, sizeof(set), &set) ? 1 : (size_t)CPU_COUNT(&set);

	count = count < jobs ? count : jobs;
	return count < THREADS ? count : THREADS;
}

static int run_all(struct crew *crew)
{
	const struct gm_search *search = crew->search;
	size_t helpers = 0, wanted = cores(crew->count);
	pthread_t helper[THREADS];

	while (helpers + 1 < wanted && !pthread_create(&helper[helpers], NULL, work_on, crew))
		helpers++;
	do {
		gm_progress("gpumem replay: settings tried",
			    search->count + __atomic_load_n(&crew->done, __ATOMIC_RELAXED), planned(search));
	} while (work(crew));
	while (helpers)
		pthread_join(helper[--helpers], NULL);
	return crew->error;
}

/* Try the @points whose settings do not exclude each other. Return 0 or -errno; -EINVAL only for the start. */
static int try(struct gm_search *search, const struct gm_point *points, size_t count)
{
	struct crew crew = { .search = search };
	size_t before = search->count;
	int r = 0;

	for (size_t i = 0; !r && i < count; i++) {
		crew.jobs[crew.count].place = search->count;
		r = plan(search, &points[i], &crew.jobs[crew.count].config);
		if (r == -EINVAL && before) {
			search->count--;
			r = 0;
		} else {
			crew.count++;
		}
	}
	search->count = before;			/* the progress line counts only finished trials */
	if (!r)
		r = run_all(&crew);
	if (!r)
		search->count += crew.count;
	return r;
}

/* ---- the walk --------------------------------------------------------------------------------- */

/* Did @a make fewer calls of the driver than @b, by more than 10 and a tenth of @b's? */
static bool fewer_calls(const struct gm_trial *a, const struct gm_trial *b)
{
	uint64_t calls = (uint64_t)a->run.stats.num_device_alloc;
	uint64_t others = (uint64_t)b->run.stats.num_device_alloc;

	return calls + others / 10 + 10 < others;
}

/* Compare two trials in the search. Return below 0 if @a is better than @b, above 0 if worse, 0 if equal. */
static int judge(const struct gm_trial *a, const struct gm_trial *b)
{
	uint64_t p = gm_trial_peak(a), q = gm_trial_peak(b);

	if (a->run.failed != b->run.failed)
		return a->run.failed < b->run.failed ? -1 : 1;
	if (p + q / 100 < q)
		return -1;
	if (q + p / 100 < p)
		return 1;
	return fewer_calls(a, b) ? -1 : fewer_calls(b, a);
}

/* Write to @ret_points @at with each value of setting @s. Return their number. */
static size_t values_of(size_t s, const struct gm_point *at, struct gm_point *ret_points)
{
	size_t count = 0;

	for (; count < CHOICES && settings[s].values[count]; count++) {
		ret_points[count] = *at;
		ret_points[count].value[s] = settings[s].values[count];
	}
	return count;
}

/* Return the place of the best trial, from @from on, that sets @s; @best if none is better than the one there. */
static size_t better_than(const struct gm_search *search, size_t best, size_t from, size_t s)
{
	for (size_t i = from; i < search->count; i++)
		if (search->trials[i].point.value[s] && judge(&search->trials[i], &search->trials[best]) < 0)
			best = i;
	return best;
}

/* Try each setting alone. @place gets each setting's best trial, 0: it does not help. @order gets the *@ret_count
 * settings that help, the best first. Return 0 or -errno. */
static int each_alone(struct gm_search *search, size_t order[], size_t place[], size_t *ret_count)
{
	const struct gm_point start = { { NULL } };
	struct gm_point points[MOST];
	size_t count = 0;
	int r;

	for (size_t s = 0; s < SETTINGS; s++)
		if (applies(search, s))
			count += values_of(s, &start, points + count);
	r = try(search, points, count);
	*ret_count = 0;
	for (size_t s = 0; !r && s < SETTINGS; s++) {
		size_t at = *ret_count;

		place[s] = better_than(search, 0, 1, s);
		if (!place[s])
			continue;
		for (; at && judge(&search->trials[place[s]], &search->trials[place[order[at - 1]]]) < 0; at--)
			order[at] = order[at - 1];
		order[at] = s;
		++*ret_count;
	}
	return r;
}

/* Try each value of setting @s on top of the trial at *@place, and move *@place to the best. Return 0 or -errno. */
static int improve(struct gm_search *search, size_t s, size_t *place)
{
	struct gm_point points[CHOICES];
	size_t from = search->count;
	int r = try(search, points, values_of(s, &search->trials[*place].point, points));

	if (!r)
		*place = better_than(search, *place, from, s);
	return r;
}

/* ---- the choice ------------------------------------------------------------------------------- */

/* Is @a better than @b? Compare exactly: requests missed, requests failed, peak, calls of the driver; with @calls,
 * calls before peak. */
static bool precedes(const struct gm_trial *a, const struct gm_trial *b, bool calls)
{
	uint64_t peak = gm_trial_peak(a), other_peak = gm_trial_peak(b);
	uint64_t made = (uint64_t)a->run.stats.num_device_alloc;
	uint64_t other_made = (uint64_t)b->run.stats.num_device_alloc;
	uint64_t p[] = { a->run.missed, a->run.failed, calls ? made : peak, calls ? peak : made };
	uint64_t q[] = { b->run.missed, b->run.failed, calls ? other_made : other_peak,
			 calls ? other_peak : other_made };

	for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++)
		if (p[i] != q[i])
			return p[i] < q[i];
	return false;
}

/* Did @trial change @setting alone? NULL: any trial counts. */
static bool is_of(const struct gm_trial *trial, const char *setting)
{
	size_t length = setting ? strlen(setting) : 0;

	return !setting || (!strncmp(trial->what, setting, length) && trial->what[length] == ':' &&
			    !strchr(trial->what, ','));
}

size_t gm_search_best(const struct gm_search *search, const char *setting)
{
	const struct gm_trial *start = &search->trials[0];
	size_t least = 0, fewest = 0;

	for (size_t i = 1; i < search->count; i++) {
		if (!is_of(&search->trials[i], setting))
			continue;
		if (precedes(&search->trials[i], &search->trials[least], false))
			least = i;
		if (gm_trial_peak(&search->trials[i]) <= gm_trial_peak(start) &&
		    precedes(&search->trials[i], &search->trials[fewest], true))
			fewest = i;
	}
	if (search->trials[least].run.missed < start->run.missed ||
	    search->trials[least].run.failed < start->run.failed ||
	    (search->trials[least].high < start->low && saves(start, &search->trials[least])))
		return least;
	return fewer_calls(&search->trials[fewest], start) ? fewest : 0;
}

/* Set search->fits, and search->best if a trial fits; else run the start without a limit. Return 0 or -errno. */
static int conclude(struct gm_search *search)
{
	struct gm_heap_config config;
	char error[GM_OPTION_ERROR_BYTES];

	for (size_t i = 0; i < search->count; i++)
		search->fits |= !search->trials[i].run.missed;
	if (search->fits) {
		search->best = gm_search_best(search, NULL);
		return 0;
	}
	gm_trace_config(&config, search->trace, search->conf, true, error);
	return gm_simulate(search->trace, &config, &(struct gm_simulate_how){ .capacity = GM_HEAP_UNLIMITED,
			   .lag = GM_SEARCH_LAG }, &search->unlimited);
}

/* Run the start's settings on the pages heap, with three lags: its memory depends on how far the GPU is behind, not on
 * addresses. Return 0 or -errno. */
static int try_pages(struct gm_search *search)
{
	static const uint64_t lags[] = { 0, 10 * GM_SEARCH_LAG, GM_SEARCH_LAG };
	struct gm_heap_config config;
	char error[GM_OPTION_ERROR_BYTES];
	int r = 0;

	gm_trace_config(&config, search->trace, search->conf, true, error);
	config.class = &gm_pages_class;
	config.limit = search->limit;
	search->pages_low = UINT64_MAX;
	for (size_t i = 0; !r && i < sizeof(lags) / sizeof(lags[0]); i++) {
		uint64_t peak;

		r = gm_simulate(search->trace, &config, &(struct gm_simulate_how){ .capacity = search->limit,
				.lag = lags[i] }, &search->pages);
		peak = search->pages.peak_used_bytes;
		search->pages_low = peak < search->pages_low ? peak : search->pages_low;
		search->pages_high = peak > search->pages_high ? peak : search->pages_high;
	}
	return r;
}

/* Is the pages heap better than the best trial? */
static bool pages_better(const struct gm_search *search)
{
	const struct gm_trial *best = &search->trials[search->best];

	if (search->pages.missed || search->pages.failed != best->run.failed)
		return !search->pages.missed && search->pages.failed < best->run.failed;
	return search->pages_high < best->low &&
	       (double)search->pages_high < (1 - GM_SEARCH_ERROR) * (double)gm_trial_peak(best);
}

int gm_search(struct gm_search *search)
{
	const struct gm_point start = { { NULL } };
	size_t place[SETTINGS], order[SETTINGS], count = 0, best = 0;
	int r = try(search, &start, 1);

	if (!r)
		r = each_alone(search, order, place, &count);
	if (!r && count)
		best = place[order[0]];
	for (size_t i = 1; !r && i < count; i++)
		r = improve(search, order[i], &best);
	if (!r)
		r = try_pages(search);
	if (!r)
		r = conclude(search);
	if (!r)
		search->pages_better = pages_better(search);
	gm_progress_end();
	return r;
}
