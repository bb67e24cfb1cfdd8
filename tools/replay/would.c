/*
 * would.c - find the setting that would have served a refused request: see replay.h. One thread.
 */
#include "tools/replay/replay.h"

#include <errno.h>
#include <string.h>

#include "allocator/pages_heap.h"
#include "preload/options/options.h"

#define ROWS_MOST 300000u		/* a longer history takes too long for a summary */

static const char *const settings[] = {
	GM_WOULD_EXPANDABLE, "max_split_size_mb:32", "max_split_size_mb:128", "max_split_size_mb:512",
	"garbage_collection_threshold:0.6", "garbage_collection_threshold:0.8", "roundup_power2_divisions:4",
	"roundup_power2_divisions:8"
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Replay @trace within @limit bytes on a heap of @config. @ret_served: was every request served? @ret_peak: peak of
 * reserved bytes. Return 0, -E2BIG or -ENOMEM. */
static int run(const struct gm_trace *trace, struct gm_heap_config *config, uint64_t limit, bool *ret_served,
	       uint64_t *ret_peak)
{
	const struct gm_simulate_how how = { .capacity = limit, .lag = GM_SEARCH_LAG };
	struct gm_simulation ran;
	int r;

	config->limit = limit;
	r = gm_simulate(trace, config, &how, &ran);
	*ret_served = !r && !ran.failed;
	*ret_peak = ran.peak_used_bytes;
	return r;
}

/* As run, under the settings in force with @setting behind them, which so has precedence. */
static int try(const struct gm_trace *trace, const char *setting, uint64_t limit, bool *ret_served,
	       uint64_t *ret_peak)
{
	bool pages = !strcmp(setting, GM_WOULD_EXPANDABLE) || strstr(trace->conf, GM_WOULD_EXPANDABLE);
	char conf[sizeof(trace->conf) + 64], error[GM_OPTION_ERROR_BYTES];
	struct gm_heap_config config;
	int r;

	snprintf(conf, sizeof(conf), "%s%s%s", trace->conf, trace->conf[0] && setting[0] ? "," : "",
		 strcmp(setting, GM_WOULD_EXPANDABLE) ? setting : "");
	r = gm_trace_config(&config, trace, conf, true, error);
	if (pages)
		config.class = &gm_pages_class;
	return r ? r : run(trace, &config, limit, ret_served, ret_peak);
}

/* As run, on the model of the driver's own pool, where other settings have no effect. @ret_peak is in whole units. */
static int try_async(const struct gm_trace *trace, uint64_t limit, bool *ret_served, uint64_t *ret_peak)
{
	struct gm_heap_config config;
	int r;

	gm_heap_config_default(&config);
	config.class = &gm_pages_class;
	r = run(trace, &config, limit, ret_served, ret_peak);
	*ret_peak = (*ret_peak + GM_WOULD_ASYNC_UNIT - 1) / GM_WOULD_ASYNC_UNIT * GM_WOULD_ASYNC_UNIT;
	return r;
}

/* Find the setting that serves every request within @limit with the lowest peak; NULL: none does. Return 0 or
 * -errno. */
static int best_of(const struct gm_trace *trace, uint64_t limit, const char **ret_setting, uint64_t *ret_peak)
{
	uint64_t peak;
	bool served;
	int r = 0;

	*ret_setting = NULL;
	for (size_t i = 0; !r && i < SETTINGS; i++) {
		r = try(trace, settings[i], limit, &served, &peak);
		if (r || !served || (*ret_setting && peak >= *ret_peak))
			continue;
		*ret_setting = settings[i];
		*ret_peak = peak;
	}
	return r;
}

int gm_would_serve(const struct gm_snapshot *snapshot, const struct gm_snapshot_pool *pool, int device,
		   uint64_t limit, struct gm_would *ret)
{
	struct gm_history history;
	uint64_t error = (uint64_t)((double)limit * GM_SEARCH_ERROR), peak;
	uint64_t units = limit - limit % GM_WOULD_ASYNC_UNIT;
	bool served = false;
	int r;

	*ret = (struct gm_would){ .result = GM_WOULD_UNKNOWN, .limit = limit, .dropped = pool ? pool->dropped : 0 };
	if ((pool ? pool->row_count : snapshot->row_count) > ROWS_MOST || !limit)
		return 0;
	r = gm_history_open(&history, snapshot, pool, device);
	if (r)
		return r == -ENODATA ? 0 : r;
	if (history.refused) {
		r = try(&history.trace, "", limit, &served, &peak);
		ret->result = r ? GM_WOULD_UNKNOWN : served ? GM_WOULD_UNSEEN : GM_WOULD_NOT;
	}
	if (!r && ret->result == GM_WOULD_NOT) {
		r = best_of(&history.trace, limit, &ret->setting, &ret->peak);
		ret->result = ret->setting ? GM_WOULD_SERVE : GM_WOULD_NOT;
	}
	if (!r && ret->result == GM_WOULD_SERVE)
		r = try(&history.trace, ret->setting, limit - error, &ret->sure, &peak);
	else if (!r && ret->result == GM_WOULD_NOT)
		r = best_of(&history.trace, limit + error, &ret->setting_with_more, &peak);
	if (!r && pool && ret->result >= GM_WOULD_NOT)
		r = try_async(&history.trace, units, &ret->async, &ret->async_peak);
	if (!r && ret->async)
		r = try_async(&history.trace, (uint64_t)((double)units / (1 + GM_WOULD_ASYNC_ERROR)), &ret->async_sure,
			      &peak);
	gm_trace_free(&history.trace);
	if (r == -EINVAL) {		/* our heaps do not know the settings in force */
		ret->result = GM_WOULD_UNKNOWN;
		r = 0;
	}
	return r;
}
