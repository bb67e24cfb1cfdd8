/*
 * search_print.c - the output of gpumem replay --search: see replay.h. One thread.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/input.h"
#include "tools/replay/replay.h"
#include "tools/show/groups.h"
#include "tools/show/show.h"

#define WIDE 120u			/* columns that the whole table needs */

/* Return the bytes of the device that this process could have: a memory limit, else the device's memory less what
 * others held; GM_HEAP_UNLIMITED: unknown. */
static uint64_t known_limit(const struct gm_history *history)
{
	if (history->trace.memory_limit_bytes)
		return history->trace.memory_limit_bytes;
	if (history->total_bytes <= 0)	/* PyTorch's snapshots have only the free bytes of a failure */
		return history->free_bytes >= 0 && history->reserved > 0 ?
			(uint64_t)history->reserved + (uint64_t)history->free_bytes : GM_HEAP_UNLIMITED;
	if (history->others_bytes > 0 && history->others_bytes < history->total_bytes)
		return (uint64_t)(history->total_bytes - history->others_bytes);
	return (uint64_t)history->total_bytes;
}

static int by_judgement(const void *a, const void *b)
{
	const struct gm_trial *p = *(const struct gm_trial *const *)a,
			      *q = *(const struct gm_trial *const *)b;
	uint64_t x = gm_trial_peak(p), y = gm_trial_peak(q);

	if (p->run.failed != q->run.failed)
		return p->run.failed < q->run.failed ? -1 : 1;
	if (x != y)
		return x < y ? -1 : 1;
	return strcmp(p->what, q->what);
}

/* Begin a sentence that is written in pieces; end() prints it, wrapped to the terminal's width, and frees *@text.
 * Return NULL if out of memory. */
static FILE *begin(char **text, size_t *length)
{
	*text = NULL;
	return open_memstream(text, length);
}

static void end(FILE *sentence, char **text)
{
	if (sentence && !fclose(sentence))
		gm_show_line(stdout, "    ", "%s", *text);
	free(*text);
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static const char *ran_out(const struct gm_trial *trial, bool narrow)
{
	static char text[64];

	if (!trial->run.failed)
		return "no";
	snprintf(text, sizeof(text), "%llu time%s%s%s",
		 (unsigned long long)trial->run.failed, trial->run.failed == 1 ? "" : "s", narrow ? "" : ", first at ",
		 narrow ? "" : gm_show_bytes((int64_t)trial->run.failed_bytes));
	return text;
}

static void print_head(const struct gm_history *history, const struct gm_search *search,
		       const char *word)
{
	const struct gm_trial *start = &search->trials[0];

	char device[40] = "", reserved[64] = "";

	if (history->devices)
		snprintf(device, sizeof(device), " of device %d", history->device);
	if (history->reserved_peak)
		snprintf(reserved, sizeof(reserved), ", %s reserved when it ran",
			 gm_show_bytes(history->reserved_peak));
	gm_show_line(stdout, "  ", "%s: %llu allocations%s, %s live at the peak%s", gm_show_clean(word),
		     (unsigned long long)start->run.allocations, device,
		     gm_show_bytes((int64_t)start->run.peak_live_bytes), reserved);
	if (history->dropped > 0)
		gm_show_line(stdout, "  ", "%lld older events were not kept: memory that was freed before the kept "
			     "ones is missing", (long long)history->dropped);
	if (history->devices > 1)
		printf("%u devices have a history (--device)\n", history->devices);
	if (search->limit == GM_HEAP_UNLIMITED)
		puts("no limit is known (--limit), so nothing tells whether memory would run out");
	else
		printf("within %s\n", gm_show_bytes((int64_t)search->limit));
}

static bool changes_nothing(const struct gm_trial *start, const struct gm_trial *trial)
{
	return trial != start && gm_trial_peak(trial) == gm_trial_peak(start) &&
	       trial->run.failed == start->run.failed &&
	       trial->run.stats.num_alloc_retries == start->run.stats.num_alloc_retries &&
	       trial->run.stats.num_device_alloc == start->run.stats.num_device_alloc;
}

static void print_trial(const struct gm_search *search, const struct gm_trial *trial, bool narrow)
{
	int used = printf("%*s %8.3f %*lld %8lld  %-*s", narrow ? 11 : 14,
			  gm_show_bytes((int64_t)gm_trial_peak(trial)),
			  share(gm_trial_peak(trial), trial->run.peak_live_bytes), narrow ? 6 : 12,
			  (long long)trial->run.stats.num_device_alloc,
			  (long long)trial->run.stats.num_alloc_retries, narrow ? 13 : 30, ran_out(trial, narrow));

	gm_groups_put_key(stdout, GM_BY_KIND, trial != search->trials ? trial->what : search->conf[0] ? search->conf :
			  search->trace->device_bytes ? "(gpumem's defaults)" : "(PyTorch's defaults)", (size_t)used);
}

/* Write how @trial differs from the start: "102.00 MiB less at the peak (3.1%)", and whether memory runs out. */
static void put_saved(FILE *out, const struct gm_trial *start, const struct gm_trial *trial)
{
	uint64_t before = gm_trial_peak(start), after = gm_trial_peak(trial);

	if (after <= before && (double)after > (1 - GM_SEARCH_ERROR) * (double)before)
		fprintf(out, "no more at the peak, in %lld calls of the driver instead of %lld",
		       (long long)trial->run.stats.num_device_alloc,
		       (long long)start->run.stats.num_device_alloc);
	else if (after <= before)
		fprintf(out, "%s less at the peak (%.1f%%)", gm_show_bytes((int64_t)(before - after)),
		       100 * share(before - after, before));
	else
		fprintf(out, "%s more at the peak, in %lld calls of the driver instead of %lld",
		       gm_show_bytes((int64_t)(after - before)),
		       (long long)trial->run.stats.num_device_alloc,
		       (long long)start->run.stats.num_device_alloc);
	if (start->run.failed && !trial->run.failed)
		fputs(", and memory would not have run out", out);
	else if (start->run.failed != trial->run.failed)
		fprintf(out, ", and memory would have run out %llu instead of %llu times",
		       (unsigned long long)trial->run.failed,
		       (unsigned long long)start->run.failed);
	else if (start->run.failed)
		fprintf(out, ", and the refused requests would be refused again");
}

static const char *in_force(const struct gm_search *search)
{
	return search->conf[0] ? "the settings in force" : "the defaults";
}

/* Nothing fits: print the memory that the program needs. */
static void print_unfit(const struct gm_search *search)
{
	const struct gm_simulation *all = &search->unlimited;

	gm_show_heading(stdout, "nothing that was tried fits into %s",
			gm_show_bytes((int64_t)search->limit));
	bool alone = all->peak_live_bytes > search->limit;

	gm_show_line(stdout, "  ", "what is live%s takes %s at the peak%s; without a limit %s would have reserved %s",
		     alone ? " alone" : "", gm_show_bytes((int64_t)all->peak_live_bytes),
		     alone ? ", whatever is set" : "", in_force(search),
		     gm_show_bytes((int64_t)all->peak_used_bytes));
}

/* Print the best value of each setting alone. */
static void print_alone(const struct gm_search *search)
{
	putchar('\n');
	gm_show_heading(stdout, "each setting alone");
	for (size_t s = 0; gm_search_settings[s]; s++) {
		size_t best = gm_search_best(search, gm_search_settings[s]);

		if (!strcmp(gm_search_settings[s], "garbage_collection_threshold") &&
		    search->limit == GM_HEAP_UNLIMITED)
			continue;
		if (!strcmp(gm_search_settings[s], "shared_segments") && !search->trace->device_bytes)
			continue;
		char *text;
		size_t length;
		FILE *out = begin(&text, &length);

		if (out && best) {
			fprintf(out, "  %-28s  %s would have reserved ", gm_search_settings[s],
				search->trials[best].what + strlen(gm_search_settings[s]) + 1);
			put_saved(out, search->trials, &search->trials[best]);
		} else if (out) {
			fprintf(out, "  %-28s  would have saved nothing beyond the simulation's error",
				gm_search_settings[s]);
		}
		end(out, &text);
	}
}

/* Print the run on the pages heap. */
static void print_pages(const struct gm_search *search)
{
	const struct gm_simulation *run = &search->pages;

	char failed[80] = "";

	if (run->failed)
		snprintf(failed, sizeof(failed), ", and memory would have run out %llu time%s",
			 (unsigned long long)run->failed, run->failed == 1 ? "" : "s");
	putchar('\n');
	gm_show_line(stdout, "  ", "the pages heap (--heap pages) would have reserved %s, %.3f of live%s",
		     gm_show_bytes((int64_t)run->peak_used_bytes), share(run->peak_used_bytes, run->peak_live_bytes),
		     failed);
	printf("however far the GPU is behind: %s to ", gm_show_bytes((int64_t)search->pages_low));
	printf("%s\n", gm_show_bytes((int64_t)search->pages_high));
}

static void print_pages_better(const struct gm_history *history, const struct gm_search *search)
{
	const struct gm_trial *best = &search->trials[search->best];
	uint64_t peak = gm_trial_peak(best), pages = search->pages.peak_used_bytes;
	const char *other = search->best || search->conf[0] ? "those settings" : "the defaults";

	if (!search->pages_better)
		return;
	putchar('\n');
	gm_show_heading(stdout, "%s%s", history->variable, GM_WOULD_EXPANDABLE);
	if (best->run.failed > search->pages.failed)
		puts("on the pages heap memory would not have run out");
	else
		gm_show_line(stdout, "  ", "the pages heap would have reserved %s less at the peak than %s (%.1f%%)",
			     gm_show_bytes((int64_t)(peak - pages)), other, 100 * share(peak - pages, peak));
}

/* Print the recommended settings as a line to set, or that none is better. */
static void print_recommended(const struct gm_history *history, const struct gm_search *search)
{
	const struct gm_trial *start = &search->trials[0], *best = &search->trials[search->best];
	char *text;
	size_t length;
	FILE *out;

	if (!search->best) {
		gm_show_line(stdout, "  ", "none is better than %s by more than the simulation's error "
			     "(%.0f%%, or the spread over addresses: %s to %s)", in_force(search),
			     100 * GM_SEARCH_ERROR, gm_show_bytes((int64_t)start->low),
			     gm_show_bytes((int64_t)start->high));
		return;
	}
	gm_show_heading(stdout, "%s%s", history->variable, gm_show_clean(best->conf));
	out = begin(&text, &length);
	if (out) {
		fputs("would have reserved ", out);
		put_saved(out, start, best);
	}
	end(out, &text);
	gm_show_line(stdout, "  ", "depending on the addresses that the device gives: %s to %s; %s take %s to %s",
		     gm_show_bytes((int64_t)best->low), gm_show_bytes((int64_t)best->high), in_force(search),
		     gm_show_bytes((int64_t)start->low), gm_show_bytes((int64_t)start->high));
}

static void print_text(const struct gm_history *history, const struct gm_search *search,
		       const char *word)
{
	const struct gm_trial *start = &search->trials[0];
	const struct gm_trial **order = calloc(search->count, sizeof(struct gm_trial *));
	size_t idle = 0;
	bool narrow = gm_show_columns(stdout) < WIDE;

	print_head(history, search, word);
	putchar('\n');
	gm_show_heading(stdout, "%*s %8s %*s %8s  %-*s  %s", narrow ? 11 : 14, narrow ? "peak" : "reserved, peak",
			"of live", narrow ? 6 : 12, narrow ? "calls" : "driver calls", "flushes",
			narrow ? 13 : 30, "out of memory", "settings");
	for (size_t i = 0; order && i < search->count; i++)
		order[i] = &search->trials[i];
	if (order)
		qsort(order, search->count, sizeof(struct gm_trial *), by_judgement);
	for (size_t i = 0; order && i < search->count; i++)
		if (changes_nothing(start, order[i]))
			idle++;
		else
			print_trial(search, order[i], narrow);
	if (idle)
		printf("%zu more trials change nothing (--json lists them)\n", idle);
	free(order);
	if (!search->fits) {
		putchar('\n');
		print_unfit(search);
		print_pages(search);
		print_pages_better(history, search);
		return;
	}
	print_alone(search);
	print_pages(search);
	putchar('\n');
	print_recommended(history, search);
	print_pages_better(history, search);
}

static json_t *object_of(const struct gm_trial *trial)
{
	json_t *object = json_pack("{ss ss sI sI sI sI sI sI sI}", "conf", trial->conf, "changed",
				   trial->what, "peak_reserved_bytes",
				   (json_int_t)gm_trial_peak(trial), "lowest_reserved_bytes",
				   (json_int_t)trial->low, "highest_reserved_bytes",
				   (json_int_t)trial->high, "driver_calls",
				   (json_int_t)trial->run.stats.num_device_alloc, "retries",
				   (json_int_t)trial->run.stats.num_alloc_retries, "ooms",
				   (json_int_t)trial->run.failed, "first_oom_bytes",
				   (json_int_t)trial->run.failed_bytes);

	return object;
}

static void print_json(const struct gm_history *history, const struct gm_search *search,
		       const char *word)
{
	json_t *trials = json_array(), *all;

	for (size_t i = 0; i < search->count; i++)
		json_array_append_new(trials, object_of(&search->trials[i]));
	all = json_pack("{ss sI sI sI so so so so sb so so so so so}", "input", gm_show_clean(word),
			"allocations", (json_int_t)search->trials[0].run.allocations,
			"peak_live_bytes", (json_int_t)search->trials[0].run.peak_live_bytes,
			"dropped_events", (json_int_t)history->dropped, "tried", trials,
			"device", gm_show_number(history->devices, history->device),
			"limit_bytes", gm_show_number(search->limit != GM_HEAP_UNLIMITED, (int64_t)search->limit),
			"recorded_reserved_peak_bytes", gm_show_number(history->reserved_peak, history->reserved_peak),
			"fits", search->fits,
			"needed_live_bytes", gm_show_number(!search->fits, (int64_t)search->unlimited.peak_live_bytes),
			"needed_reserved_bytes",
			gm_show_number(!search->fits, (int64_t)search->unlimited.peak_used_bytes),
			"pages_heap", json_pack("{ss sI sI sI sI sI sb}", "conf", GM_WOULD_EXPANDABLE,
						"peak_reserved_bytes",
						(json_int_t)search->pages.peak_used_bytes, "lowest_reserved_bytes",
						(json_int_t)search->pages_low, "highest_reserved_bytes",
						(json_int_t)search->pages_high, "pages_moved",
						(json_int_t)search->pages.pages_moved, "ooms",
						(json_int_t)search->pages.failed, "recommended",
						search->pages_better),
			"recommended", search->best ? object_of(&search->trials[search->best]) : json_null(),
			"line_to_set", search->best ?
			json_sprintf("%s%s", history->variable, search->trials[search->best].conf) : json_null());
	gm_show_document(stdout, all, 1);
}

int gm_search_print(const struct gm_history *history, const char *word, const char *conf,
		     const uint64_t *limit, bool json)
{
	struct gm_search search = {
		.trace = &history->trace, .conf = conf,
		.limit = limit ? *limit : known_limit(history)
	};
	int r = gm_search(&search);

	if (r)
		fprintf(stderr, "gpumem replay: %s: %s\n", gm_show_clean(word), r == -EINVAL ?
			"its settings are none that the allocator knows" : gm_limit_why(r));
	else if (json)
		print_json(history, &search, word);
	else
		print_text(history, &search, word);
	free(search.trials);
	return r ? GM_EXIT_FAILED : GM_EXIT_OK;
}
