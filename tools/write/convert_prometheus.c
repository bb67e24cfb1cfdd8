/*
 * convert_prometheus.c - Prometheus' text format and OpenMetrics: for node_exporter's textfile collector
 * (`gpumem convert`) and for Prometheus itself (`gpumem serve`). One thread.
 *
 * The format wants all lines of a metric together, those of all processes. So each metric has its own text, to which
 * one process after the other adds its lines. Only one snapshot is in memory at a time.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/attach.h"
#include "tools/write/convert.h"
#include "tools/show/show.h"
#include "tools/read/table.h"

#define PROCESS_BYTES_MOST ((long)1 << 20)	/* bytes of one process's lines; a training on 8 devices has 60,000 */

/* One process. */
struct process {
	const json_t *root;
	const struct gm_labels *labels;	/* on every line; NULL: only those of the snapshot */
	int64_t pid;			/* 0: the snapshot's */
	const json_t **devices;		/* each number once: a repeated line makes the whole page invalid */
	size_t device_count;
	bool failed;			/* out of memory */
};

/* Return a copy of @text, at most 4,095 bytes, in a static buffer. Control characters become '?', except line ends,
 * which put_label escapes. */
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

/* Write "gpumem_NAME{...} " with the labels. @device and @label may be NULL. */
static void begin_sample(FILE *out, const struct process *process, const char *name, const json_t *device,
			 const char *label, const char *text)
{
	const json_t *identity = gm_json_object(process->root, "process");

	fprintf(out, "gpumem_%s{", name);
	put_label(out, "command", clean(gm_json_text(identity, "command")));
	fprintf(out, ",pid=\"%" PRId64 "\"", process->pid ? process->pid : gm_json_number(identity, "pid"));
	if (json_is_integer(json_object_get(identity, "rank")))
		fprintf(out, ",rank=\"%" PRId64 "\"", gm_json_number(identity, "rank"));
	for (size_t i = 0; process->labels && i < GM_LABELS; i++)
		if (process->labels->text[i][0]) {
			putc(',', out);
			put_label(out, gm_label_names[i], clean(process->labels->text[i]));
		}
	if (device)
		fprintf(out, ",device=\"%" PRId64 "\"", gm_json_number(device, "device"));
	if (label) {
		putc(',', out);
		put_label(out, label, text);
	}
	fputs("} ", out);
}

/* One metric, with one value for the process or for each device:
 *   without @member    @value of the process; NULL: the time of the snapshot
 *   with @member       this member of each device or, with @stats, of its memory statistics
 *   with @label        the list @member of each device, summed by the member @row, which becomes the label @label */
struct metric {
	const char *name, *type, *help, *member;
	bool stats;
	const char *label, *row;
	int64_t (*value)(const json_t *root);
};

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

#define HOLDERS "Bytes allocated, by who asked or of which kind"

static const struct metric metrics[] = {
	{ "allocated_bytes", "gauge",
	  "Bytes allocated on the device", .member = "allocated_bytes.all.current", .stats = true },
	{ "allocated_bytes_peak", "gauge",
	  "The most bytes that were allocated", .member = "allocated_bytes.all.peak", .stats = true },
	{ "reserved_bytes", "gauge",
	  "Bytes taken from the driver", .member = "reserved_bytes.all.current", .stats = true },
	{ "reserved_bytes_peak", "gauge",
	  "The most bytes that were taken from the driver", .member = "reserved_bytes.all.peak", .stats = true },
	{ "unreleasable_bytes", "gauge",
	  "Idle bytes in segments that are in use", .member = "inactive_split_bytes.all.current", .stats = true },
	{ "allocations_total", "counter",
	  "Allocations made", .member = "allocation.all.allocated", .stats = true },
	{ "frees_total", "counter",
	  "Allocations freed", .member = "allocation.all.freed", .stats = true },
	{ "allocated_bytes_total", "counter",
	  "Bytes allocated since the start", .member = "allocated_bytes.all.allocated", .stats = true },
	{ "ooms_total", "counter",
	  "Calls that found no memory", .member = "num_ooms", .stats = true },
	{ "device_total_bytes", "gauge",
	  "Bytes that the device has", .member = "total_bytes" },
	{ "device_free_bytes", "gauge",
	  "Bytes of the device that were free when it was last asked", .member = "free_bytes" },
	{ "unattributed_bytes", "gauge",
	  "Bytes of the device that nobody here recorded", .member = "unattributed_bytes" },
	{ "module_allocated_bytes", "gauge", HOLDERS, .member = "by_module", .label = "module", .row = "path" },
	{ "kind_allocated_bytes", "gauge", HOLDERS, .member = "by_kind", .label = "kind", .row = "kind" },
	{ "host_allocated_bytes", "gauge", "Bytes of pinned host memory", .value = host_bytes },
	{ "history_events_total", "counter", "Events recorded", .value = events_recorded },
	{ "history_lost_events_total", "counter", "Events that found no room", .value = events_lost },
	{ "snapshot_timestamp_seconds", "gauge", "The moment that is shown", .value = NULL },
};
#define METRICS (sizeof(metrics) / sizeof(metrics[0]))

struct gm_prometheus {
	bool is_openmetrics;		/* OpenMetrics: HELP and TYPE name a counter without "_total" */
	struct { FILE *out; char *text; size_t bytes; } lines[METRICS];
};

static void put_head(FILE *out, bool is_openmetrics, const char *name, const char *type, const char *help)
{
	size_t length = strlen(name);

	if (is_openmetrics && length > 6 && !strcmp(name + length - 6, "_total"))
		length -= 6;
	fprintf(out, "# HELP gpumem_%.*s %s\n# TYPE gpumem_%.*s %s\n", (int)length, name, help, (int)length, name,
		type);
}

static void put_devices(FILE *out, const struct process *process, const struct metric *metric)
{
	for (size_t i = 0; i < process->device_count; i++) {
		const json_t *device = process->devices[i];
		const json_t *value = json_object_get(metric->stats ? gm_json_object(device, "memory_stats") : device,
						      metric->member);

		if (!json_is_integer(value) || !json_is_true(json_object_get(device, "present")))
			continue;
		begin_sample(out, process, metric->name, device, NULL, NULL);
		fprintf(out, "%" PRId64 "\n", (int64_t)json_integer_value(value));
	}
}

/* Return the allocated bytes of @rows, summed by the text @member, because a library that was loaded twice has two
 * rows. */
static json_t *sum_rows(struct process *process, const json_t *rows, const char *member)
{
	json_t *sums = json_object();
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		const char *text = clean(gm_json_text(row, member));
		int64_t sum = gm_wrap_add(gm_json_number(sums, text), gm_json_number(row, "allocated_bytes"));

		process->failed |= json_object_set_new(sums, text, json_integer(sum)) != 0;
	}
	return sums;
}

/* Write the allocated bytes of each device by module or by kind. */
static void put_holders(FILE *out, struct process *process, const struct metric *metric)
{
	for (size_t d = 0; d < process->device_count; d++) {
		json_t *sums = sum_rows(process, gm_json_list(process->devices[d], metric->member), metric->row);
		const json_t *sum;
		const char *text;

		json_object_foreach(sums, text, sum) {
			begin_sample(out, process, metric->name, process->devices[d], metric->label, text);
			fprintf(out, "%" PRId64 "\n", (int64_t)json_integer_value(sum));
		}
		json_decref(sums);
	}
}

static void find_devices(struct process *process)
{
	const json_t *list = gm_json_list(process->root, "devices"), *device;
	struct gm_table known = { NULL, 0, 0 };
	size_t i;

	process->devices = calloc(json_array_size(list) + 1, sizeof(*process->devices));
	process->failed |= !process->devices;
	json_array_foreach(list, i, device) {
		uint64_t number = (uint64_t)gm_json_number(device, "device");

		if (process->failed || !json_is_object(device) || gm_table_get(&known, number, 0))
			continue;
		process->devices[process->device_count++] = device;
		process->failed |= gm_table_put(&known, number, 0, 1) != 0;
	}
	gm_table_free(&known);
}

static void put_lines(FILE *out, struct process *process, const struct metric *metric)
{
	if (metric->label) {
		put_holders(out, process, metric);
	} else if (metric->member) {
		put_devices(out, process, metric);
	} else {
		begin_sample(out, process, metric->name, NULL, NULL, NULL);
		if (metric->value)
			fprintf(out, "%" PRId64 "\n", metric->value(process->root));
		else
			fprintf(out, "%.3f\n", (double)gm_json_number(process->root, "time_us") / 1e6);
	}
}

struct gm_prometheus *gm_prometheus_open(bool is_openmetrics)
{
	struct gm_prometheus *made = calloc(1, sizeof(*made));

	if (!made)
		return NULL;
	made->is_openmetrics = is_openmetrics;
	for (size_t m = 0; m < METRICS; m++) {
		made->lines[m].out = open_memstream(&made->lines[m].text, &made->lines[m].bytes);
		if (!made->lines[m].out) {
			gm_prometheus_free(made);
			return NULL;
		}
	}
	return made;
}

int gm_prometheus_add(struct gm_prometheus *to, const json_t *root, const struct gm_labels *labels, int64_t pid)
{
	struct process process = { .root = root, .labels = labels, .pid = pid };
	long begun[METRICS], bytes = 0;
	bool failed;

	find_devices(&process);
	failed = process.failed;
	for (size_t m = 0; m < METRICS; m++)
		begun[m] = ftell(to->lines[m].out);
	for (size_t m = 0; !failed && m < METRICS && bytes <= PROCESS_BYTES_MOST; m++) {
		FILE *out = to->lines[m].out;

		put_lines(out, &process, &metrics[m]);
		bytes += ftell(out) - begun[m];
		failed = process.failed || ferror(out);
	}
	free(process.devices);
	if (!failed && bytes <= PROCESS_BYTES_MOST)
		return 0;
	for (size_t m = 0; m < METRICS; m++) {
		fseek(to->lines[m].out, begun[m], SEEK_SET);
		clearerr(to->lines[m].out);
	}
	return failed ? -ENOMEM : -E2BIG;
}

int gm_prometheus_write(struct gm_prometheus *of, FILE *out, size_t unread)
{
	for (size_t m = 0; m < METRICS; m++) {
		if (fflush(of->lines[m].out))
			return -ENOMEM;
		if (of->lines[m].bytes)
			put_head(out, of->is_openmetrics, metrics[m].name, metrics[m].type, metrics[m].help);
		fwrite(of->lines[m].text, 1, of->lines[m].bytes, out);
	}
	if (unread != SIZE_MAX) {
		put_head(out, of->is_openmetrics, "unread_processes", "gauge",
			 "Processes that may have a journal and could not be read");
		fprintf(out, "gpumem_unread_processes %zu\n", unread);
	}
	if (of->is_openmetrics)
		fputs("# EOF\n", out);
	return 0;
}

void gm_prometheus_free(struct gm_prometheus *of)
{
	if (!of)
		return;
	for (size_t m = 0; m < METRICS; m++) {
		if (of->lines[m].out)
			fclose(of->lines[m].out);
		free(of->lines[m].text);
	}
	free(of);
}

int gm_convert_prometheus(FILE *out, struct gm_loaded *loaded, char note[256])
{
	struct gm_prometheus *one = gm_prometheus_open(false);
	int r = one ? gm_prometheus_add(one, loaded->snapshot.root, NULL, loaded->pid) : -ENOMEM;

	if (r == -E2BIG) {
		snprintf(note, 256, "its metrics are longer than 1 MiB: not written");
		r = -EOVERFLOW;
	}
	if (!r)
		r = gm_prometheus_write(one, out, SIZE_MAX);
	gm_prometheus_free(one);
	return r;
}
