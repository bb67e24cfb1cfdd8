/*
 * convert_prometheus.c - Prometheus' text format, for node_exporter's textfile collector: for
 * `gpumem convert`. One thread.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert.h"

/* What every line of one process carries. */
struct page { FILE *out; const json_t *root; };

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

static void put_labels(const struct page *page)
{
	const json_t *process = gm_json_object(page->root, "process");

	putc('{', page->out);
	put_label(page->out, "command", gm_json_text(process, "command"));
	fprintf(page->out, ",pid=\"%" PRId64 "\"", gm_json_number(process, "pid"));
	if (json_is_integer(json_object_get(process, "rank")))
		fprintf(page->out, ",rank=\"%" PRId64 "\"", gm_json_number(process, "rank"));
}

static void put_head(const struct page *page, const char *name, const char *type, const char *help)
{
	fprintf(page->out, "# HELP gpumem_%s %s\n# TYPE gpumem_%s %s\n", name, help, name, type);
}

static void put_value(const struct page *page, const json_t *value)
{
	fprintf(page->out, "} %" PRId64 "\n", (int64_t)json_integer_value(value));
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
	const json_t *device, *value;
	bool headed = false;
	size_t i;

	json_array_foreach(gm_json_list(page->root, "devices"), i, device) {
		value = json_object_get(metric->stats ? gm_json_object(device, "memory_stats") : device,
					metric->key);
		if (!json_is_integer(value) || !json_is_true(json_object_get(device, "present")))
			continue;
		if (!headed)
			put_head(page, metric->name, metric->type, metric->help);
		headed = true;
		fprintf(page->out, "gpumem_%s", metric->name);
		put_labels(page);
		fprintf(page->out, ",device=\"%" PRId64 "\"", gm_json_number(device, "device"));
		put_value(page, value);
	}
}

/* Who holds a device: by module or by kind. */
static void put_holders(const struct page *page, const char *name, const char *list,
			const char *label, const char *member)
{
	const json_t *device, *row;
	size_t i, k;

	put_head(page, name, "gauge", "Bytes allocated, by who asked or of which kind");
	json_array_foreach(gm_json_list(page->root, "devices"), i, device)
		json_array_foreach(gm_json_list(device, list), k, row) {
			fprintf(page->out, "gpumem_%s", name);
			put_labels(page);
			fprintf(page->out, ",device=\"%" PRId64 "\",", gm_json_number(device, "device"));
			put_label(page->out, label, gm_json_text(row, member));
			put_value(page, json_object_get(row, "allocated_bytes"));
		}
}

static void put_single(const struct page *page, const char *name, const char *type, const char *help,
		       int64_t value)
{
	put_head(page, name, type, help);
	fprintf(page->out, "gpumem_%s", name);
	put_labels(page);
	fprintf(page->out, "} %" PRId64 "\n", value);
}

int gm_convert_prometheus(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	struct page page = { out, loaded->root };
	const json_t *root = loaded->root;
	const json_t *host = gm_json_object(gm_json_object(root, "host"), "memory_stats");

	(void)note;
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		put_metric(&page, &metrics[i]);
	put_holders(&page, "module_allocated_bytes", "by_module", "module", "path");
	put_holders(&page, "kind_allocated_bytes", "by_kind", "kind", "kind");
	put_single(&page, "host_allocated_bytes", "gauge", "Bytes of pinned host memory",
		   gm_json_number(host, "allocated_bytes.all.current"));
	put_single(&page, "history_dropped_events_total", "counter", "Events that the history no longer has",
		   gm_json_number(gm_json_object(root, "history"), "dropped"));
	put_head(&page, "snapshot_timestamp_seconds", "gauge", "The moment that is shown");
	fputs("gpumem_snapshot_timestamp_seconds", out);
	put_labels(&page);
	fprintf(out, "} %.3f\n", (double)gm_json_number(root, "time_us") / 1e6);
	return 0;
}
