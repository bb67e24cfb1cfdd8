/*
 * summary_short.c - gpumem summary without --full: the first things to know, in at most 30 lines of 80 columns.
 *
 * "live" is what was asked for and not freed. "peak" is the most of that at once, with freed blocks until the GPU is
 * done with them. "reserved" is what was taken from the driver. run, leaks, merge and top show the same numbers. One
 * thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"
#include "tools/verbs/arguments.h"
#include "tools/verbs/summary.h"

#define WIDTH 80
#define LINES 30u
#define NEXT_LINES 3u
#define SITES_MOST 10u
#define SITES_LEAST 3u
#define DEVICES_MOST 4u
#define POOLS_MOST 4u

/* Lines that were printed or will certainly follow. */
static unsigned int used;

unsigned int gm_summary_wrapped(const char *text, int indent)
{
	unsigned int lines;

	printf("%*s", indent, "");
	lines = gm_show_wrapped(stdout, text, indent, indent ? "  " : "", WIDTH);
	used += lines;
	return lines;
}

static void blank(void)
{
	putchar('\n');
	used++;
}

/* ---- devices ----------------------------------------------------------------------------------- */

static const char *setting(const struct gm_summary *view, const char *name)
{
	const json_t *options = gm_json_object(gm_json_object(view->root, "allocator_settings"), "gpumem");

	return gm_json_text(gm_json_object(options, name), "value");
}

static void print_use(const struct gm_summary *view, const json_t *device)
{
	const char *name = gm_json_text(device, "name"), *limit = setting(view, "memory_limit");
	int64_t total = gm_json_number(device, "total_bytes"), others = gm_json_number(device, "unattributed_bytes");
	int64_t taken = gm_wrap_subtract(total, gm_json_number(device, "free_bytes"));
	int64_t reserved = gm_json_number(gm_json_object(device, "memory_stats"), "reserved_bytes.all.current");
	/* Less may be in use than reserved because the driver's numbers are old, or because managed memory is reserved
	 * and not on the device. */
	bool old = taken < reserved && gm_json_number(device, "sampled_us") < gm_json_number(view->root, "time_us");
	char text[512];
	int length = snprintf(text, sizeof(text), "device %lld%s%s%s", (long long)gm_json_number(device, "device"),
			      name[0] ? " (" : "", gm_show_cut(name, 24), name[0] ? ")" : "");

	if (total > 0)
		length += snprintf(text + length, sizeof(text) - (size_t)length, ": %s of %s in use%s",
				   gm_show_bytes(taken), gm_show_bytes(total), old ? " (read earlier)" : "");
	if (total > 0 && others > 0)
		length += snprintf(text + length, sizeof(text) - (size_t)length, ", %s not recorded",
				   gm_show_bytes(others));
	if (limit[0] && strcmp(limit, "unlimited"))
		snprintf(text + length, sizeof(text) - (size_t)length, "; memory_limit %s", gm_show_cut(limit, 40));
	gm_summary_wrapped(text, 0);
}

/* Return the difference of two statistics. */
static int64_t between(const json_t *stats, const char *one, const char *less)
{
	return gm_wrap_subtract(gm_json_number(stats, one), gm_json_number(stats, less));
}

/* Write what is reserved, and which parts of it the program does not use. */
static void put_reserved(char *text, size_t bytes, const json_t *stats)
{
	int64_t reserved = gm_json_number(stats, "reserved_bytes.all.current");
	int64_t idle = between(stats, "reserved_bytes.all.current", "active_bytes.all.current");
	int64_t pending = between(stats, "active_bytes.all.current", "allocated_bytes.all.current");
	int64_t rounding = between(stats, "active_bytes.all.current", "requested_bytes.all.current");
	const struct { int64_t bytes; const char *what; } parts[] = {
		{ idle, "idle" }, { pending, "waiting for the GPU" },
		{ rounding >= reserved / 100 ? rounding : 0, "rounding" },
	};
	int length = snprintf(text, bytes, "; reserved %s", gm_show_bytes(reserved));
	const char *before = " (";

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].bytes > 0) {
			length += snprintf(text + length, bytes - (size_t)length, "%s%s %s", before,
					   gm_show_bytes(parts[i].bytes), parts[i].what);
			before = ", ";
		}
	if (*before == ',')
		snprintf(text + length, bytes - (size_t)length, ")");
}

static void print_device(const struct gm_summary *view, const json_t *device)
{
	const json_t *stats = gm_json_object(device, "memory_stats");
	struct gm_totals of;
	char number[24], text[256];
	int length;

	snprintf(number, sizeof(number), "%lld", (long long)gm_json_number(device, "device"));
	of = gm_scene_totals(view->scene, number, view->level == GM_LEVEL_POOL);
	print_use(view, device);
	length = of.blocks || of.live ? snprintf(text, sizeof(text), "live %s in %s", gm_show_bytes(of.live),
						 gm_show_count(of.blocks, "block")) :
					snprintf(text, sizeof(text), "nothing live");
	if (of.peak >= 0)
		length += snprintf(text + length, sizeof(text) - (size_t)length, ", peak %s", gm_show_bytes(of.peak));
	put_reserved(text + length, sizeof(text) - (size_t)length, stats);
	gm_summary_wrapped(text, 2);
}

static bool is_wanted(const struct gm_summary *view, const json_t *device)
{
	char number[24];

	snprintf(number, sizeof(number), "%lld", (long long)gm_json_number(device, "device"));
	return json_is_true(json_object_get(device, "present")) && (!view->device || !strcmp(view->device, number));
}

/* Print the devices and the host. Returns the number of devices; *@ret_any: is a device or pinned memory in the
 * snapshot? */
static size_t print_devices(const struct gm_summary *view, bool *ret_any)
{
	const json_t *host = gm_json_object(view->root, "host"), *device;
	size_t i, count = 0;
	char text[160];

	json_array_foreach(gm_json_list(view->root, "devices"), i, device)
		if (is_wanted(view, device) && ++count <= DEVICES_MOST)
			print_device(view, device);
	if (count > DEVICES_MOST) {
		snprintf(text, sizeof(text), "... and %s (--full)",
			 gm_show_count((int64_t)(count - DEVICES_MOST), "more device"));
		gm_summary_wrapped(text, 0);
	}
	*ret_any = i || json_array_size(gm_json_list(host, "by_kind"));
	if ((view->device && strcmp(view->device, "host")) || !json_array_size(gm_json_list(host, "by_kind")))
		return count;
	snprintf(text, sizeof(text), "pinned host memory: live %s, peak %s",
		 gm_show_bytes(gm_json_number(gm_json_object(host, "memory_stats"), "requested_bytes.all.current")),
		 gm_show_bytes(gm_json_number(gm_json_object(host, "memory_stats"), "requested_bytes.all.peak")));
	gm_summary_wrapped(text, 0);
	return count;
}

static void print_pools(const struct gm_summary *view)
{
	const struct gm_snapshot *snapshot = view->scene->snapshot;
	size_t shown = 0;

	for (size_t i = 0; i < snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[i];
		const json_t *stats = gm_json_object(pool->root, "memory_stats");
		char device[24];

		snprintf(device, sizeof(device), "%lld", (long long)pool->device);
		if ((view->device && strcmp(view->device, device)) || shown++ >= POOLS_MOST)
			continue;
		if (shown == 1) {
			blank();
			gm_show_heading(stdout, "%12s %12s %12s %12s  by pool", "live", "peak", "reserved",
					"idle in it");
			used++;
		}
		printf("%12s %12s %12s %12s  %s of device %s\n",
		       gm_show_bytes(gm_json_number(stats, "allocated_bytes.all.current")),
		       gm_show_bytes(gm_json_number(stats, "allocated_bytes.all.peak")),
		       gm_show_bytes(gm_json_number(stats, "reserved_bytes.all.current")),
		       gm_show_bytes(gm_pool_idle(pool).bytes), gm_show_cut(pool->name, 12), device);
		used++;
	}
	if (shown > POOLS_MOST) {
		printf("... and %s (--full)\n", gm_show_count((int64_t)(shown - POOLS_MOST), "more pool"));
		used++;
	}
}

/* ---- call sites -------------------------------------------------------------------------------- */

/* Say that "at the peak" is of a lower moment than the peak, because the history begins after the peak. */
static void print_late(int64_t peak, int64_t shown)
{
	char text[200];

	if (peak <= shown)
		return;
	snprintf(text, sizeof(text), "(\"at the peak\" is of the highest moment in the history, %s; the peak, %s, was "
		 "before)", gm_show_bytes(shown), gm_show_bytes(peak));
	gm_summary_wrapped(text, 0);
}

static void print_sites(const struct gm_summary *view, size_t devices)
{
	struct gm_groups groups;
	char site[GM_SITE_FIT];
	int64_t shown, peak = gm_scene_totals(view->scene, view->device, view->level == GM_LEVEL_POOL).peak;
	size_t most;

	if (gm_groups_and_peak(&groups, view->by, view->scene, view->device, &shown))
		return;
	if (devices != 1)		/* several devices have their peaks at different moments */
		peak = shown;
	if (groups.count) {
		blank();
		gm_show_heading(stdout, "%12s %12s %8s  by %s (bytes asked for)", "live", "at the peak", "blocks",
				view->by == GM_BY_SITE ? "call site" : gm_by_name(view->by));
		/* The heading, the sum, and the line for rows that are left out. */
		used += 3 + NEXT_LINES + (groups.peak_shown && peak > shown ? 2 : 0);
		most = used + SITES_LEAST < LINES ? LINES - used : SITES_LEAST;
		most = view->top ? view->top : most < SITES_MOST ? most : SITES_MOST;
		for (size_t i = 0; i < groups.count && i < most; i++) {
			printf("%12s %12s %8lld  ", gm_show_bytes(groups.list[i].bytes[1]),
			       groups.peak_known ? gm_show_bytes(groups.list[i].bytes[0]) : "-",
			       (long long)groups.list[i].count[1]);
			puts(gm_site_fit(groups.list[i].key, WIDTH - 36, site));
		}
		if (groups.count > most)
			gm_more_rows(stdout, groups.count - most, "more row");
		printf("%12s %12s %8lld  in all\n", gm_show_bytes(groups.all_bytes[1]),
		       groups.peak_known ? gm_show_bytes(shown) : "-", (long long)groups.all_count[1]);
		if (groups.peak_shown && groups.peak_known)
			print_late(peak, shown);
	}
	gm_groups_close(&groups);
}

/* ---- what else --------------------------------------------------------------------------------- */

static void print_trouble(const char *format, int64_t count, const char *one)
{
	char text[200];

	if (count <= 0)
		return;
	snprintf(text, sizeof(text), format, gm_show_count(count, one));
	gm_summary_wrapped(text, 0);
}

static void print_listed(const char *what, int64_t count, const char *one)
{
	char text[200];

	if (count <= 0)
		return;
	snprintf(text, sizeof(text), "%s%s (--full lists %s)", gm_show_count(count, one), what,
		 count == 1 ? "it" : "them");
	gm_summary_wrapped(text, 0);
}

static void print_troubles(const struct gm_summary *view)
{
	const json_t *history = gm_json_object(view->root, "history"), *one;
	const char *area;

	print_listed("", (int64_t)json_array_size(gm_json_list(view->root, "failures")), "request without memory");
	print_listed(" had begun and not returned",
		     (int64_t)json_array_size(gm_json_list(gm_json_object(view->root, "recovered"), "in_flight")),
		     "call");
	print_trouble("the history begins late: %s dropped from its beginning", gm_json_number(history, "dropped"),
		      "event");
	print_trouble("%s not recorded", gm_json_number(history, "operations_lost"), "call");
	json_object_foreach((json_t *)(uintptr_t)gm_json_object(view->root, "refused"), area, one)
		if (json_integer_value(one) > 0) {
			char text[200];

			snprintf(text, sizeof(text), "the journal had no room for %s of '%s'",
				 gm_show_count(json_integer_value(one), "item"), gm_show_cut(area, 40));
			gm_summary_wrapped(text, 0);
		}
}

/* Print a command to copy, and what it shows. */
static void print_command(const struct gm_summary *view, const char *what, const char *verb, const char *word)
{
	printf("%s: gpumem %s ", what, verb);
	if (view->device)
		printf("--device %s ", view->device);
	gm_put_input(stdout, word);
	putchar('\n');
}

static void print_next(const struct gm_summary *view, const char *word)
{
	const char *life = gm_json_text(gm_json_object(view->root, "process"), "life");
	struct gm_totals of = gm_scene_totals(view->scene, view->device, view->level == GM_LEVEL_POOL);
	enum gm_cause cause = view->explanation->cause;

	if (!strcmp(word, "-"))
		return;
	blank();
	if (!strcmp(life, "crashed") || !strcmp(life, "killed"))
		print_command(view, "what it did last", "events --last 20", word);
	else if (of.live > 0 && (cause == GM_CAUSE_NONE || cause == GM_CAUSE_LEAK))
		print_command(view, strcmp(life, "running") ? "what was not freed" : "what lives, by stack", "leaks",
			      word);
	else if (of.peak > of.live)
		print_command(view, "the peak", "flame --weigh peak -o peak.svg", word);
	print_command(view, "every table", "summary --full", word);
}

void gm_summary_short(const struct gm_summary *view, const char *word, unsigned int before)
{
	size_t devices;
	bool any;

	used = before;
	devices = print_devices(view, &any);
	print_pools(view);
	print_troubles(view);
	if (view->by == GM_BY_SITE)
		print_sites(view, devices);
	else
		gm_summary_groups(view, view->device);
	if (!any)
		puts("nothing was allocated: no device is in it");
	if (any)
		print_next(view, word);
}
