/*
 * convert_chrome.c - the Trace Event Format of chrome://tracing and Perfetto: for `gpumem convert`.
 * One thread.
 *
 * A process for each device: counters of what is live by kind and of what is reserved, an instant
 * for each call that found no memory, annotations as slices (START and END) or instants.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/write/convert.h"
#include "tools/show/lives.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/read/value.h"
#include "tools/write/writer.h"

#define DEVICES 1024
#define KINDS 16

struct counters {
	int64_t live[KINDS], reserved;
	bool seen[KINDS], any;
};

struct chrome {
	struct gm_writer *writer;
	struct gm_lives lives;
	struct counters *devices;	/* by device + 1: the host is 0 */
	const char *kinds[KINDS];	/* the last one stands for all others */
	int64_t origin_us;
};

static void add(int64_t *to, int64_t value)
{
	*to = gm_wrap_add(*to, value);
}

static unsigned int kind_of(struct chrome *c, const char *name)
{
	unsigned int k = 0;

	while (k < KINDS - 1 && c->kinds[k] && strcmp(c->kinds[k], name))
		k++;
	if (!c->kinds[k])
		c->kinds[k] = k < KINDS - 1 ? name : "others";
	return k;
}

static struct counters *device_of(struct chrome *c, int64_t device)
{
	return device >= GM_ROW_HOST && device < DEVICES ? &c->devices[device + 1] : NULL;
}

static void begin_event(struct chrome *c, const char *phase, const char *name, int64_t device,
			int64_t time_us)
{
	gm_writer_begin(c->writer, GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "ph", phase);
	gm_writer_put_string(c->writer, "name", name);
	gm_writer_put_int(c->writer, "pid", gm_wrap_add(device, 1));
	gm_writer_put_int(c->writer, "ts", gm_wrap_subtract(time_us, c->origin_us));
}

static void end_args_and_event(struct chrome *c)
{
	gm_writer_end(c->writer);
	gm_writer_end(c->writer);
}

/* How a process of the format is called, or a thread of it, @track. */
static void put_name(struct chrome *c, int64_t device, const int64_t *track, const char *name)
{
	gm_writer_begin(c->writer, GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "ph", "M");
	gm_writer_put_string(c->writer, "name", track ? "thread_name" : "process_name");
	gm_writer_put_int(c->writer, "pid", gm_wrap_add(device, 1));
	if (track)
		gm_writer_put_int(c->writer, "tid", *track);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "name", name);
	end_args_and_event(c);
}

static void put_live(struct chrome *c, int device, int64_t time_us)
{
	const struct counters *of = &c->devices[device + 1];

	begin_event(c, "C", "live bytes", device, time_us);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	for (unsigned int k = 0; k < KINDS; k++)
		if (of->seen[k])
			gm_writer_put_int(c->writer, c->kinds[k], of->live[k]);
	end_args_and_event(c);
}

static void put_reserved(struct chrome *c, int device, int64_t time_us)
{
	begin_event(c, "C", "reserved bytes", device, time_us);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	gm_writer_put_int(c->writer, "reserved", c->devices[device + 1].reserved);
	end_args_and_event(c);
}

/* What other processes allocated is reserved by none of ours. */
static int64_t reserved_change(const struct gm_row *row)
{
	return !strcmp(row->kind, "ipc") ? 0 :
	       !strcmp(row->action, "segment_alloc") || !strcmp(row->action, "segment_map") ? row->size :
	       !strcmp(row->action, "segment_free") || !strcmp(row->action, "segment_unmap") ?
	       gm_wrap_subtract(0, row->size) :
	       0;
}

/* What was live and reserved before the first event. */
static void start(struct chrome *c, const struct gm_snapshot *snapshot)
{
	size_t i;

	for (i = 0; i < c->lives.count; i++) {
		const struct gm_life *life = &c->lives.list[i];
		struct counters *of = device_of(c, life->device);

		if (!of)
			continue;
		of->any = true;
		of->seen[kind_of(c, life->kind)] = true;
		if (life->born == GM_LIFE_BEFORE)
			add(&of->live[kind_of(c, life->kind)], life->size);
	}
	for (i = 0; i < snapshot->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &snapshot->segments[i];
		struct counters *of = device_of(c, segment->device);

		if (of && !segment->registered && strcmp(segment->kind, "ipc"))
			add(&of->reserved, segment->total_size);
	}
	for (i = 0; i < c->lives.row_count; i++) {
		struct counters *of = device_of(c, c->lives.rows[i].device);

		if (!of)
			continue;
		of->any = true;
		add(&of->reserved, gm_wrap_subtract(0, reserved_change(&c->lives.rows[i])));
	}
}

static void put_oom(struct chrome *c, const struct gm_row *row)
{
	begin_event(c, "i", "out of memory", row->device, row->time_us);
	gm_writer_put_string(c->writer, "s", "p");
	gm_writer_put_int(c->writer, "tid", row->thread);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	gm_writer_put_int(c->writer, "requested", row->size);
	gm_writer_put_int(c->writer, "free", (int64_t)row->address);
	end_args_and_event(c);
}

static void put_rows(struct chrome *c)
{
	int64_t *change = calloc(c->lives.row_count + 1, sizeof(*change));

	for (size_t i = 0; change && i < c->lives.count; i++) {
		const struct gm_life *life = &c->lives.list[i];

		if (life->born != GM_LIFE_BEFORE)
			change[life->born] = gm_wrap_add(change[life->born], life->size);
		if (life->died < c->lives.row_count)
			change[life->died] = gm_wrap_subtract(change[life->died], life->size);
	}
	for (size_t i = 0; change && i < c->lives.row_count; i++) {
		const struct gm_row *row = &c->lives.rows[i];
		struct counters *of = device_of(c, row->device);

		if (!of)
			continue;
		if (change[i]) {
			add(&of->live[kind_of(c, row->kind)], change[i]);
			put_live(c, row->device, row->time_us);
		}
		if (reserved_change(row)) {
			add(&of->reserved, reserved_change(row));
			put_reserved(c, row->device, row->time_us);
		}
		if (!strcmp(row->action, "oom"))
			put_oom(c, row);
	}
	free(change);
}

/* ---- annotations ------------------------------------------------------------------------------ */

#define TRACKS_FROM 1073741824		/* above every thread's number */

/* Ranges nest within a thread and a domain: each domain but the default one has tracks of its own. */
struct tracks {
	struct gm_values *texts;
	struct gm_table numbers;	/* (thread, domain) -> track - TRACKS_FROM + 1 */
	struct gm_table depths;		/* (track, device) -> how many ranges are open */
	size_t count;
	bool failed;
};

static int64_t track_of(struct tracks *t, const json_t *one)
{
	const char *domain = gm_json_text(one, "domain");
	int64_t thread = gm_json_number(one, "thread");
	const char *text;
	uint64_t known;

	if (!domain[0])
		return thread;
	text = gm_values_string(t->texts, domain, strlen(domain));
	t->failed |= !text;
	known = text ? gm_table_get(&t->numbers, (uint64_t)thread, (uint64_t)(uintptr_t)text) : 0;
	if (!known && text) {
		known = ++t->count;
		t->failed |= gm_table_put(&t->numbers, (uint64_t)thread, (uint64_t)(uintptr_t)text, known) != 0;
	}
	return TRACKS_FROM + (int64_t)known - 1;
}

/* The first time that a track is met on a device it gets its name. */
static void name_track(struct chrome *c, struct tracks *t, const json_t *one, int64_t device,
		       int64_t track)
{
	char name[400];

	if (gm_table_get(&t->depths, (uint64_t)track, (uint64_t)device))
		return;
	t->failed |= gm_table_put(&t->depths, (uint64_t)track, (uint64_t)device, 1) != 0;
	snprintf(name, sizeof(name), "thread %lld%s%.300s", (long long)gm_json_number(one, "thread"),
		 track < TRACKS_FROM ? "" : ", ", gm_json_text(one, "domain"));
	put_name(c, device, &track, gm_show_repair(name));
}

/* A range that does not nest, and may end in another thread: "b" and "e" with its number. */
static void put_async(struct chrome *c, const json_t *one, bool start, int64_t device, int64_t time_us)
{
	const char *domain = gm_json_text(one, "domain");
	char id[24];

	snprintf(id, sizeof(id), "0x%llx", (unsigned long long)gm_json_number(one, "range"));
	begin_event(c, start ? "b" : "e", gm_json_text(one, "name"), device, time_us);
	gm_writer_put_int(c->writer, "tid", gm_json_number(one, "thread"));
	gm_writer_put_string(c->writer, "cat", domain[0] ? domain : "ranges");
	gm_writer_put_string(c->writer, "id", id);
	gm_writer_end(c->writer);
}

static void put_nested(struct chrome *c, struct tracks *t, const json_t *one, const char *stage,
		       int64_t device, int64_t time_us)
{
	bool start = !strcmp(stage, "START"), end = !strcmp(stage, "END");
	int64_t track = track_of(t, one);
	uint64_t depth;

	name_track(c, t, one, device, track);
	depth = gm_table_get(&t->depths, (uint64_t)track, (uint64_t)device);
	/* An end alone: its beginning is older than the trace. */
	if (end && depth <= 1) {
		begin_event(c, "X", gm_json_text(one, "name"), device, c->origin_us);
		gm_writer_put_int(c->writer, "dur",
				  time_us > c->origin_us ? gm_wrap_subtract(time_us, c->origin_us) : 0);
	} else {
		begin_event(c, start ? "B" : end ? "E" : "i", gm_json_text(one, "name"), device, time_us);
	}
	gm_writer_put_int(c->writer, "tid", track);
	if (!start && !end)
		gm_writer_put_string(c->writer, "s", "t");
	gm_writer_end(c->writer);
	if (start || (end && depth > 1))
		t->failed |= gm_table_put(&t->depths, (uint64_t)track, (uint64_t)device,
					  start ? depth + 1 : depth - 1) != 0;
}

static int put_annotations(struct chrome *c, const struct gm_snapshot *snapshot)
{
	struct tracks tracks = { .texts = snapshot->texts };
	const json_t *one;
	size_t i;

	json_array_foreach(gm_json_list(snapshot->root, "annotations"), i, one) {
		const char *stage = gm_json_text(one, "stage");
		bool mark = strcmp(stage, "START") && strcmp(stage, "END");
		int64_t device = gm_json_number(one, "device"), time_us = gm_json_number(one, "time_us");

		if (tracks.failed)
			break;
		if (!mark && gm_json_number(one, "range"))
			put_async(c, one, !strcmp(stage, "START"), device, time_us);
		else
			put_nested(c, &tracks, one, stage, device, time_us);
	}
	gm_table_free(&tracks.numbers);
	gm_table_free(&tracks.depths);
	return tracks.failed ? -ENOMEM : 0;
}

static int write_all(struct chrome *c, const struct gm_snapshot *snapshot)
{
	/* Times count from what is oldest. */
	const json_t *first = json_array_get(gm_json_list(snapshot->root, "annotations"), 0);
	int64_t noted = gm_json_number(first, "time_us");
	char name[32];
	int r;

	c->origin_us = c->lives.row_count ? c->lives.rows[0].time_us : noted;
	if (first && noted < c->origin_us)
		c->origin_us = noted;
	start(c, snapshot);
	gm_writer_begin(c->writer, GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "displayTimeUnit", "ms");
	gm_writer_put_begin(c->writer, "traceEvents", GM_WRITER_LIST);
	for (int d = GM_ROW_HOST; d < DEVICES; d++)
		if (c->devices[d + 1].any) {
			snprintf(name, sizeof(name), d == GM_ROW_HOST ? "pinned host memory" : "device %d", d);
			put_name(c, d, NULL, name);
			put_live(c, d, c->origin_us);
			put_reserved(c, d, c->origin_us);
		}
	put_rows(c);
	r = put_annotations(c, snapshot);
	gm_writer_end(c->writer);
	gm_writer_end(c->writer);
	return r;
}

int gm_convert_chrome(FILE *out, struct gm_loaded *loaded, char note[256])
{
	struct chrome c = { .devices = calloc(DEVICES + 1, sizeof(*c.devices)), .writer = gm_writer_open(out, false) };
	int r = gm_lives_open(&c.lives, &loaded->snapshot), end;

	if (!r)
		r = c.devices && c.writer ? write_all(&c, &loaded->snapshot) : -ENOMEM;
	if (!c.lives.row_count)
		snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	gm_lives_close(&c.lives);
	free(c.devices);
	end = c.writer ? gm_writer_close(c.writer) : -ENOMEM;
	return r ? r : end;
}
