/*
 * convert_prometheus.c - Prometheus' text format, for node_exporter's textfile collector: for
 * `gpumem convert`. One thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tools/write/convert.h"
#include "tools/show/show.h"
#include "tools/read/table.h"

/* What every line of one process carries. */
struct page {
	FILE *out;
	const json_t *root;
	const json_t **devices;		/* each number once: a line twice makes the whole page invalid */
	size_t device_count;
	bool failed;			/* out of memory */
};

/* What a terminal would obey is a '?', but for line ends, which the format can say. Static memory. */
static const char *clean(const char *text)
{
	static char cleaned[4096];
	size_t n = 0;

	for (size_t bad; *text && n < sizeof(cleaned) - 1; text += bad ? bad : 1) {
		bad = *text == '\n' ? 0 : gm_show_control(text);
		cleaned[n++] = bad ? '?' : *text;
	}
	cleaned[n] = '\0';
	return gm_show_repair(cleaned);
}

static void put_label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; *value; value++)
		if (*value == '\n')
			fputs("\\n", out);
		else if (*value == '"' || *value == '\\')
			fprintf(out, "\\%c", *value);
		else
			putc(*value, out);
	putc('"', out);
}

/* "gpumem_NAME{...} ": @device and @label may be NULL. */
static void begin_sample(const struct page *page, const char *name, const json_t *device, const char *label,
			 const char *text)
{
	const json_t *process = gm_json_object(page->root, "process");

	fprintf(page->out, "gpumem_%s{", name);
	put_label(page->out, "command", clean(gm_json_text(process, "command")));
	fprintf(page->out, ",pid=\"%" PRId64 "\"", gm_json_number(process, "pid"));
	if (json_is_integer(json_object_get(process, "rank")))
		fprintf(page->out, ",rank=\"%" PRId64 "\"", gm_json_number(process, "rank"));
	if (device)
		fprintf(page->out, ",device=\"%" PRId64 "\"", gm_json_number(device, "device"));
	if (label) {
		putc(',', page->out);
		put_label(page->out, label, text);
	}
	fputs("} ", page->out);
}

static void put_head(const struct page *page, const char *name, const char *type, const char *help)
{
	fprintf(page->out, "# HELP gpumem_%s %s\n# TYPE gpumem_%s %s\n", name, help, name, type);
}

/* One metric of every device: @member of it, or of its @stats. */
struct metric { const char *name, *type, *help, *key; bool stats; };

static const struct metric metrics[] = {
	{ "allocated_bytes", "gauge",
	  "Bytes allocated on the device", "allocated_bytes.all.current", true },
	{ "allocated_bytes_peak", "gauge",
	  "The most bytes that were allocated", "allocated_bytes.all.peak", true },
	{ "reserved_bytes", "gauge",
	  "Bytes taken from the driver", "reserved_bytes.all.current", true },
	{ "reserved_bytes_peak", "gauge",
	  "The most bytes that were taken from the driver", "reserved_bytes.all.peak", true },
	{ "unreleasable_bytes", "gauge",
	  "Idle bytes in segments that are in use", "inactive_split_bytes.all.current", true },
	{ "allocations_total", "counter",
	  "Allocations made", "allocation.all.allocated", true },
	{ "frees_total", "counter",
	  "Allocations freed", "allocation.all.freed", true },
	{ "allocated_bytes_total", "counter",
	  "Bytes allocated since the start", "allocated_bytes.all.allocated", true },
	{ "ooms_total", "counter",
	  "Calls that found no memory", "num_ooms", true },
	{ "device_total_bytes", "gauge",
	  "Bytes that the device has", "total_bytes", false },
	{ "device_free_bytes", "gauge",
	  "Bytes of the device that were free when it was last asked", "free_bytes", false },
	{ "unattributed_bytes", "gauge",
	  "Bytes of the device that nobody here recorded", "unattributed_bytes", false },
};

static void put_metric(const struct page *page, const struct metric *metric)
{
	const json_t *value;
	bool headed = false;

	for (size_t i = 0; i < page->device_count; i++) {
		const json_t *device = page->devices[i];

		value = json_object_get(metric->stats ? gm_json_object(device, "memory_stats") : device,
					metric->key);
		if (!json_is_integer(value) || !json_is_true(json_object_get(device, "present")))
			continue;
		if (!headed)
			put_head(page, metric->name, metric->type, metric->help);
		headed = true;
		begin_sample(page, metric->name, device, NULL, NULL);
		fprintf(page->out, "%" PRId64 "\n", (int64_t)json_integer_value(value));
	}
}

/* What a device's rows say, summed by their text: a library that was loaded twice has two. */
static json_t *sum_rows(struct page *page, const json_t *rows, const char *member)
{
	json_t *sums = json_object();
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		const char *text = clean(gm_json_text(row, member));
		int64_t sum = gm_wrap_add(gm_json_number(sums, text), gm_json_number(row, "allocated_bytes"));

		page->failed |= json_object_set_new(sums, text, json_integer(sum)) != 0;
	}
	return sums;
}

/* Who holds a device: by module or by kind. */
static void put_holders(struct page *page, const char *name, const char *list,
			const char *label, const char *member)
{
	put_head(page, name, "gauge", "Bytes allocated, by who asked or of which kind");
	for (size_t d = 0; d < page->device_count; d++) {
		json_t *sums = sum_rows(page, gm_json_list(page->devices[d], list), member);
		const json_t *sum;
		const char *text;

		json_object_foreach(sums, text, sum) {
			begin_sample(page, name, page->devices[d], label, text);
			fprintf(page->out, "%" PRId64 "\n", (int64_t)json_integer_value(sum));
		}
		json_decref(sums);
	}
}

static void find_devices(struct page *page)
{
	const json_t *list = gm_json_list(page->root, "devices"), *device;
	struct gm_table known = { NULL, 0, 0 };
	size_t i;

	page->devices = calloc(json_array_size(list) + 1, sizeof(*page->devices));
	page->failed |= !page->devices;
	json_array_foreach(list, i, device) {
		uint64_t number = (uint64_t)gm_json_number(device, "device");

		if (page->failed || !json_is_object(device) || gm_table_get(&known, number, 0))
			continue;
		page->devices[page->device_count++] = device;
		page->failed |= gm_table_put(&known, number, 0, 1) != 0;
	}
	gm_table_free(&known);
}

static void put_single(const struct page *page, const char *name, const char *type, const char *help,
		       int64_t value)
{
	put_head(page, name, type, help);
	begin_sample(page, name, NULL, NULL, NULL);
	fprintf(page->out, "%" PRId64 "\n", value);
}

int gm_convert_prometheus(FILE *out, struct gm_loaded *loaded, char note[256])
{
	struct page page = { .out = out, .root = loaded->snapshot.root };
	const json_t *root = loaded->snapshot.root;
	const json_t *host = gm_json_object(gm_json_object(root, "host"), "memory_stats");
	const json_t *history = gm_json_object(root, "history");

	(void)note;
	find_devices(&page);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		put_metric(&page, &metrics[i]);
	put_holders(&page, "module_allocated_bytes", "by_module", "module", "path");
	put_holders(&page, "kind_allocated_bytes", "by_kind", "kind", "kind");
	put_single(&page, "host_allocated_bytes", "gauge", "Bytes of pinned host memory",
		   gm_json_number(host, "allocated_bytes.all.current"));
	put_single(&page, "history_events_total", "counter", "Events recorded",
		   gm_wrap_add(gm_json_number(history, "dropped"), gm_json_number(history, "events")));
	put_single(&page, "history_lost_events_total", "counter", "Events that found no room",
		   gm_json_number(history, "events_lost"));
	put_head(&page, "snapshot_timestamp_seconds", "gauge", "The moment that is shown");
	begin_sample(&page, "snapshot_timestamp_seconds", NULL, NULL, NULL);
	fprintf(out, "%.3f\n", (double)gm_json_number(root, "time_us") / 1e6);
	free(page.devices);
	return page.failed ? -ENOMEM : 0;
}
