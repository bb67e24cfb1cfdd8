/*
 * top_print.c - print samples as plain text and JSON: see top.h.
 */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/show/show.h"
#include "tools/show/stacks.h"
#include "tools/top/top.h"
#include "tools/verbs/arguments.h"

#define NAME_LEAST 20u			/* least columns of a call site on any terminal */
#define WIDE 135u			/* columns that a terminal needs for every number of a process */

const char *gm_top_clock(void)
{
	static char text[16];
	time_t now = time(NULL);
	struct tm tm;

	text[0] = '\0';
	if (localtime_r(&now, &tm))
		strftime(text, sizeof(text), "%H:%M:%S", &tm);
	return text;
}

const char *gm_top_missed(const struct gm_top *top)
{
	static char text[80];

	snprintf(text, sizeof(text), "; %zu could not be looked into", top->missed);
	return top->missed ? text : "";
}

/* Return the newest sample of the device with @uuid by the first @count processes; NULL: none of them uses it. */
static const struct gm_top_device *latest(const struct gm_top *top, size_t count, const char *uuid)
{
	const struct gm_top_device *found = NULL;

	for (size_t i = 0; i < count; i++)
		for (unsigned int d = 0; d < GM_MAX_DEVICES; d++) {
			const struct gm_top_device *device = &top->list[i]->devices[d];

			if (device->present && device->total > 0 && !strcmp(device->uuid, uuid) &&
			    device->sampled > (found ? found->sampled : 0))
				found = device;
		}
	return found;
}

const char *gm_top_in_use(const struct gm_top *top)
{
	static char text[512];
	size_t length = 0;

	text[0] = '\0';
	for (size_t i = 0; i < top->count; i++)
		for (unsigned int d = 0; d < GM_MAX_DEVICES && length + 80 < sizeof(text); d++) {
			const struct gm_top_device *device = &top->list[i]->devices[d];

			if (!device->present || latest(top, i, device->uuid))
				continue;
			device = latest(top, top->count, device->uuid);
			if (device)
				length += (size_t)snprintf(text + length, sizeof(text) - length,
							   "%s device %u: %s of %s in use", length ? "," : ";",
							   device->ordinal, gm_show_bytes(gm_wrap_subtract(
							   device->total, device->free)), gm_show_bytes(device->total));
		}
	return text;
}

/* ---- lines ----------------------------------------------------------------------------------- */

void gm_top_process_head(char *ret, size_t room, bool wide)
{
	if (wide)
		snprintf(ret, room, "%8s %4s %6s %11s %11s %11s %11s %11s %9s %9s %12s  %s", "pid",
			 "rank", "device", "live", "reserved", "cached", "limbo", "peak", "blocks",
			 "calls/s", "bytes/s", "command");
	else
		snprintf(ret, room, "%8s %4s %6s %10s %10s %10s  %s", "pid", "rank", "device",
			 "live", "reserved", "peak", "command");
}

/* Return the text that replaces the numbers of a process that has none. */
static const char *state_of(const struct gm_top_process *process)
{
	return process->state == GM_TOP_ENDED	     ? "has ended"
	       : process->state == GM_TOP_UNREADABLE ? gm_show_clean(process->error)
						     : "nothing allocated yet";
}

/* Write the numbers in two steps, because gm_show_bytes keeps only four texts at a time. */
static void put_numbers(char *ret, size_t room, const struct gm_top_device *device, bool wide)
{
	int n;

	if (!wide) {
		snprintf(ret, room, "%10s %10s %10s", gm_show_bytes(device->live),
			 gm_show_bytes(device->reserved), gm_show_bytes(device->peak));
		return;
	}
	n = snprintf(ret, room, "%11s %11s %11s %11s ", gm_show_bytes(device->live),
		     gm_show_bytes(device->reserved), gm_show_bytes(device->cached),
		     device->pending < 0 ? "-" : gm_show_bytes(device->pending));
	if (n > 0 && (size_t)n < room)
		snprintf(ret + n, room - (size_t)n, "%11s %9lld %9.0f %12s",
			 gm_show_bytes(device->peak), (long long)device->blocks, device->calls_rate,
			 gm_show_bytes((int64_t)device->bytes_rate));
}

void gm_top_process_line(char *ret, size_t room, const struct gm_top_process *process,
			 unsigned int d, bool wide)
{
	char rank[16] = "-", where[16] = "host", numbers[160];
	bool pool = d >= GM_DOMAIN_POOLS;

	if (process->rank >= 0)
		snprintf(rank, sizeof(rank), "%d", process->rank);
	if (d == GM_DOMAINS) {
		snprintf(ret, room, "%8lld %4s %6s %s%s%s", (long long)process->pid, rank, "-",
			 gm_show_clean(process->command), process->command[0] ? ": " : "",
			 state_of(process));
		return;
	}
	if (d != GM_DOMAIN_HOST)
		snprintf(where, sizeof(where), "%u", process->devices[d].ordinal);
	put_numbers(numbers, sizeof(numbers), &process->devices[d], wide);
	snprintf(ret, room, "%8lld %4s %6s %s  %s%s%s", (long long)process->pid, rank, where, numbers,
		 pool ? "pool " : "", gm_show_clean(pool ? process->devices[d].name : process->command),
		 process->state == GM_TOP_ENDED ? " (has ended)" : "");
}

void gm_top_row_head(char *ret, size_t room, const char *what, bool wide)
{
	if (wide)
		snprintf(ret, room, "%11s %11s %12s %9s %9s %12s  %s", "live", "peak", "growth",
			 "blocks", "calls/s", "bytes/s", what);
	else
		snprintf(ret, room, "%11s %12s %8s  %s", "live", "growth", "blocks", what);
}

void gm_top_row_line(char *ret, size_t room, const struct gm_top_row *row, bool wide, size_t columns)
{
	bool rates = row->allocations >= 0;
	char calls[24] = "-", growth[48], name[GM_SITE_FIT];
	int used;

	if (rates)
		snprintf(calls, sizeof(calls), "%.0f", row->calls_rate);
	snprintf(growth, sizeof(growth), "%s%s", row->growth > 0 ? "+" : "",
		 gm_show_bytes(row->growth));
	if (!wide)
		used = snprintf(ret, room, "%11s %12s %8lld  ", gm_show_bytes(row->live), growth,
				(long long)row->blocks);
	else
		used = snprintf(ret, room, "%11s %11s %12s %9lld %9s %12s  ", gm_show_bytes(row->live),
				row->peak < 0 ? "-" : gm_show_bytes(row->peak), growth, (long long)row->blocks, calls,
				rates ? gm_show_bytes((int64_t)row->bytes_rate) : "-");
	columns = columns > (size_t)used + NAME_LEAST ? columns - (size_t)used : NAME_LEAST;
	snprintf(ret + used, room - (size_t)used, "%s", gm_site_fit(row->name, columns, name));
}

struct gm_top_line *gm_top_lines(const struct gm_top *top, size_t *ret_count)
{
	struct gm_top_line *ret = calloc(top->count * GM_DOMAINS + 1, sizeof(*ret));
	size_t count = 0;

	for (size_t i = 0; ret && i < top->count; i++) {
		unsigned int most = top->driver ? GM_DOMAIN_POOLS : GM_DOMAINS;
		size_t before = count;

		for (unsigned int d = 0; d < most; d++)
			if (top->list[i]->devices[d].present)
				ret[count++] = (struct gm_top_line){ top->list[i], d };
		if (count == before)
			ret[count++] = (struct gm_top_line){ top->list[i], GM_DOMAINS };
	}
	*ret_count = count;
	return ret;
}

/* ---- plain text ------------------------------------------------------------------------------ */

static void put_rows(FILE *out, const struct gm_top_rows *rows, const char *what, size_t most)
{
	size_t columns = gm_show_columns(out);
	const struct gm_top_row **list = gm_top_sorted(rows, GM_TOP_BY_LIVE);
	char line[1400];

	gm_top_row_head(line, sizeof(line), what, columns >= WIDE);
	putc('\n', out);
	gm_show_heading(out, "%s", line);
	for (size_t i = 0; list && list[i] && i < most; i++) {
		gm_top_row_line(line, sizeof(line), list[i], columns >= WIDE, columns);
		fprintf(out, "%s\n", line);
	}
	if (rows->count > most)
		gm_more_rows(out, rows->count - most, "more row");
	free(list);
}

void gm_top_text(FILE *out, const struct gm_top *top, size_t most)
{
	size_t count, columns = gm_show_columns(out);
	struct gm_top_line *lines = gm_top_lines(top, &count);
	char line[1400];

	gm_show_line(out, "  ", "%s  %zu process%s under libgpumem%s%s", gm_top_clock(), top->count,
		     top->count == 1 ? "" : "es", gm_top_missed(top), gm_top_in_use(top));
	gm_top_process_head(line, sizeof(line), columns >= WIDE);
	gm_show_heading(out, "%s", line);
	for (size_t i = 0; i < count; i++) {
		gm_top_process_line(line, sizeof(line), lines[i].process, lines[i].device, columns >= WIDE);
		fprintf(out, "%s\n", gm_text_fit(line, columns));
	}
	put_rows(out, &top->modules, "module", most);
	put_rows(out, &top->sites, top->phases ? "annotation" : "call site", most);
	free(lines);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *device_object(const struct gm_top_device *device, unsigned int d)
{
	json_t *object = json_pack(
		"{sI sI sI sI sI sI sI sf sf}", "live_bytes", (json_int_t)device->live,
		"reserved_bytes", (json_int_t)device->reserved, "cached_bytes",
		(json_int_t)device->cached,
		"peak_bytes", (json_int_t)device->peak, "blocks", (json_int_t)device->blocks,
		"allocations", (json_int_t)device->allocations, "allocated_bytes",
		(json_int_t)device->allocated, "allocations_per_s", device->calls_rate,
		"bytes_per_s", device->bytes_rate);

	if (device->pending >= 0)
		json_object_set_new(object, "pending_bytes", json_integer(device->pending));
	json_object_set_new(object, "device", gm_show_number(d != GM_DOMAIN_HOST, device->ordinal));
	if (d >= GM_DOMAIN_POOLS)
		json_object_set_new(object, "name", json_string(gm_show_clean(device->name)));
	if (d >= GM_DOMAIN_HOST)
		return object;
	json_object_set_new(object, "uuid", json_string(device->uuid));
	json_object_set_new(object, "name", json_string(gm_show_clean(device->name)));
	json_object_set_new(object, "total_bytes", json_integer(device->total));
	json_object_set_new(object, "free_bytes", gm_show_number(device->sampled > 0, device->free));
	return object;
}

static json_t *row_object(const struct gm_top_row *row)
{
	json_t *object = json_pack("{ss sI sI sI}", "name", gm_show_clean(row->name), "live_bytes",
				   (json_int_t)row->live, "blocks", (json_int_t)row->blocks,
				   "growth_bytes", (json_int_t)row->growth);
	json_t *frames;

	if (row->peak >= 0)
		json_object_set_new(object, "peak_bytes", json_integer(row->peak));
	if (row->allocations >= 0) {
		json_object_set_new(object, "allocations", json_integer(row->allocations));
		json_object_set_new(object, "allocations_per_s", json_real(row->calls_rate));
		json_object_set_new(object, "bytes_per_s", json_real(row->bytes_rate));
	}
	if (!row->stacks)
		return object;
	frames = json_array();
	for (const char *at = row->stack ? row->stack->frames : NULL; at && *at; at += strcspn(at, "\n") + 1)
		json_array_append_new(frames, json_stringn(at, strcspn(at, "\n")));
	json_object_set_new(object, "stacks", json_integer((json_int_t)row->stacks));
	json_object_set_new(object, "stack", frames);
	json_object_set_new(object, "stack_bytes", json_integer(row->stack_live));
	return object;
}

static json_t *rows_list(const struct gm_top_rows *rows)
{
	const struct gm_top_row **list = gm_top_sorted(rows, GM_TOP_BY_LIVE);
	json_t *all = json_array();

	for (size_t i = 0; list && list[i]; i++)
		json_array_append_new(all, row_object(list[i]));
	free(list);
	return all;
}

void gm_top_json(FILE *out, const struct gm_top *top)
{
	static const char *const states[] = { "running", "ended", "unreadable" };
	json_t *processes = json_array(), *all;
	struct timespec now;

	for (size_t i = 0; i < top->count; i++) {
		const struct gm_top_process *process = top->list[i];
		json_t *devices = json_array(), *pools = json_array();

		for (unsigned int d = 0; d < GM_DOMAINS; d++)
			if (process->devices[d].present)
				json_array_append_new(d < GM_DOMAIN_POOLS ? devices : pools,
						      device_object(&process->devices[d], d));
		all = json_pack("{sI ss ss sb so so so so}", "pid", (json_int_t)process->pid,
				"command", gm_show_clean(process->command), "state",
				states[process->state], "consistent", (int)process->consistent,
				"devices", devices, "pools", pools, "modules", rows_list(&process->modules),
				process->phases ? "annotations" : "sites", rows_list(&process->sites));
		json_object_set_new(all, "rank", gm_show_number(process->rank >= 0, process->rank));
		json_array_append_new(processes, all);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	all = json_pack("{sI so sI}", "time_us", (json_int_t)now.tv_sec * 1000000 + now.tv_nsec / 1000,
			"processes", processes, "unread_processes", (json_int_t)top->missed);
	gm_show_document(out, all, 0);
}
