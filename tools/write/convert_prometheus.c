/*
 * convert_prometheus.c - Prometheus' text format and OpenMetrics: for node_exporter's textfile collector
 * (`gpumem convert`) and for Prometheus itself (`gpumem serve`). One thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/attach.h"
#include "tools/write/convert.h"
#include "tools/show/show.h"
#include "tools/read/table.h"

/* One process, and what every line of it carries. */
struct page {
	FILE *out;
	const json_t *root;
	const struct gm_labels *labels;	/* NULL: none beside those of the snapshot */
	int64_t pid;			/* 0: the snapshot's */
	const json_t **devices;		/* each number once: a line twice makes the whole page invalid */
	size_t device_count;
	bool failed;			/* out of memory */
};

/* The lines of a metric stand together, those of all processes. */
struct book {
	FILE *out;
	struct page *pages;
	size_t count;
	bool is_open;			/* OpenMetrics: a counter is named without "_total" in its head */
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
	fprintf(page->out, ",pid=\"%" PRId64 "\"", page->pid ? page->pid : gm_json_number(process, "pid"));
	if (json_is_integer(json_object_get(process, "rank")))
		fprintf(page->out, ",rank=\"%" PRId64 "\"", gm_json_number(process, "rank"));
	for (size_t i = 0; page->labels && i < GM_LABELS; i++)
		if (page->labels->text[i][0]) {
			putc(',', page->out);
			put_label(page->out, gm_label_names[i], clean(page->labels->text[i]));
		}
	if (device)
		fprintf(page->out, ",device=\"%" PRId64 "\"", gm_json_number(device, "device"));
	if (label) {
		putc(',', page->out);
		put_label(page->out, label, text);
	}
	fputs("} ", page->out);
}

static void put_head(const struct book *book, const char *name, const char *type, const char *help)
{
	size_t length = strlen(name);

	if (book->is_open && length > 6 && !strcmp(name + length - 6, "_total"))
		length -= 6;
	fprintf(book->out, "# HELP gpumem_%.*s %s\n# TYPE gpumem_%.*s %s\n", (int)length, name, help, (int)length, name,
		type);
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

static void put_metric(const struct book *book, const struct metric *metric)
{
	const json_t *value;
	bool headed = false;

	for (size_t p = 0; p < book->count; p++) {
		const struct page *page = &book->pages[p];

		for (size_t i = 0; i < page->device_count; i++) {
			const json_t *device = page->devices[i];

			value = json_object_get(metric->stats ? gm_json_object(device, "memory_stats") : device,
						metric->key);
			if (!json_is_integer(value) || !json_is_true(json_object_get(device, "present")))
				continue;
			if (!headed)
				put_head(book, metric->name, metric->type, metric->help);
			headed = true;
			begin_sample(page, metric->name, device, NULL, NULL);
			fprintf(page->out, "%" PRId64 "\n", (int64_t)json_integer_value(value));
		}
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
static void put_holders(const struct book *book, const char *name, const char *list,
			const char *label, const char *member)
{
	put_head(book, name, "gauge", "Bytes allocated, by who asked or of which kind");
	for (size_t p = 0; p < book->count; p++) {
		struct page *page = &book->pages[p];

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

/* One number of a whole process, by what says it. */
static int64_t host_bytes(const json_t *root)
{
	return gm_json_number(gm_json_object(gm_json_object(root, "host"), "memory_stats"),
			      "allocated_bytes.all.current");
}

static int64_t events_recorded(const json_t *root)
{
	const json_t *history = gm_json_object(root, "history");

	return gm_wrap_add(gm_json_number(history, "dropped"), gm_json_number(history, "events"));
}

static int64_t events_lost(const json_t *root)
{
	return gm_json_number(gm_json_object(root, "history"), "events_lost");
}

static void put_single(const struct book *book, const char *name, const char *type, const char *help,
		       int64_t (*value)(const json_t *root))
{
	put_head(book, name, type, help);
	for (size_t p = 0; p < book->count; p++) {
		begin_sample(&book->pages[p], name, NULL, NULL, NULL);
		fprintf(book->out, "%" PRId64 "\n", value(book->pages[p].root));
	}
}

int gm_prometheus_write(FILE *out, const struct gm_prometheus *list, size_t count, bool is_open)
{
	struct book book = { .out = out, .count = count, .is_open = is_open };
	bool failed = false;

	book.pages = calloc(count + 1, sizeof(*book.pages));
	if (!book.pages)
		return -ENOMEM;
	for (size_t p = 0; p < count; p++) {
		book.pages[p] = (struct page){ .out = out, .root = list[p].root, .labels = list[p].labels,
					       .pid = list[p].pid };
		find_devices(&book.pages[p]);
	}
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		put_metric(&book, &metrics[i]);
	put_holders(&book, "module_allocated_bytes", "by_module", "module", "path");
	put_holders(&book, "kind_allocated_bytes", "by_kind", "kind", "kind");
	put_single(&book, "host_allocated_bytes", "gauge", "Bytes of pinned host memory", host_bytes);
	put_single(&book, "history_events_total", "counter", "Events recorded", events_recorded);
	put_single(&book, "history_lost_events_total", "counter", "Events that found no room", events_lost);
	put_head(&book, "snapshot_timestamp_seconds", "gauge", "The moment that is shown");
	for (size_t p = 0; p < count; p++) {
		begin_sample(&book.pages[p], "snapshot_timestamp_seconds", NULL, NULL, NULL);
		fprintf(out, "%.3f\n", (double)gm_json_number(book.pages[p].root, "time_us") / 1e6);
	}
	if (is_open)
		fputs("# EOF\n", out);
	for (size_t p = 0; p < count; p++) {
		failed |= book.pages[p].failed;
		free(book.pages[p].devices);
	}
	free(book.pages);
	return failed ? -ENOMEM : 0;
}

int gm_convert_prometheus(FILE *out, struct gm_loaded *loaded, char note[256])
{
	const struct gm_prometheus one = { loaded->snapshot.root, NULL, loaded->pid };

	(void)note;
	return gm_prometheus_write(out, &one, 1, false);
}
