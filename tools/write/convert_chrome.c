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

#include "tools/read/bulk.h"
#include "tools/write/convert.h"
#include "tools/show/lives.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/write/tree_write.h"

#define DEVICES 1024
#define KINDS 16

struct counters {
	int64_t live[KINDS], reserved;
	bool seen[KINDS], any;
};

struct chrome {
	struct gm_tree *tree;
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

static struct counters *device_of(struct chrome *c, int device)
{
	return device >= GM_ROW_HOST && device < DEVICES ? &c->devices[device + 1] : NULL;
}

static void put_text(struct chrome *c, const char *name, const char *text)
{
	gm_tree_name(c->tree, name);
	gm_tree_string(c->tree, text);
}

static void put_int(struct chrome *c, const char *name, int64_t value)
{
	gm_tree_name(c->tree, name);
	gm_tree_int(c->tree, value);
}

static void begin_event(struct chrome *c, const char *phase, const char *name, int64_t device,
			int64_t time_us)
{
	gm_tree_begin(c->tree, GM_TREE_DICT);
	put_text(c, "ph", phase);
	put_text(c, "name", name);
	put_int(c, "pid", gm_wrap_add(device, 1));
	put_int(c, "ts", gm_wrap_subtract(time_us, c->origin_us));
}

static void begin_args(struct chrome *c)
{
	gm_tree_name(c->tree, "args");
	gm_tree_begin(c->tree, GM_TREE_DICT);
}

static void end_args_and_event(struct chrome *c)
{
	gm_tree_end(c->tree);
	gm_tree_end(c->tree);
}

static void put_process(struct chrome *c, int device)
{
	char name[32] = "pinned host memory";

	if (device != GM_ROW_HOST)
		snprintf(name, sizeof(name), "device %d", device);
	gm_tree_begin(c->tree, GM_TREE_DICT);
	put_text(c, "ph", "M");
	put_text(c, "name", "process_name");
	put_int(c, "pid", gm_wrap_add(device, 1));
	begin_args(c);
	put_text(c, "name", name);
	end_args_and_event(c);
}

static void put_live(struct chrome *c, int device, int64_t time_us)
{
	const struct counters *of = &c->devices[device + 1];

	begin_event(c, "C", "live bytes", device, time_us);
	begin_args(c);
	for (unsigned int k = 0; k < KINDS; k++)
		if (of->seen[k])
			put_int(c, c->kinds[k], of->live[k]);
	end_args_and_event(c);
}

static void put_reserved(struct chrome *c, int device, int64_t time_us)
{
	begin_event(c, "C", "reserved bytes", device, time_us);
	begin_args(c);
	put_int(c, "reserved", c->devices[device + 1].reserved);
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
static void start(struct chrome *c, const json_t *root)
{
	static const char *const lists[] = { "segments", "host_segments" };
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
	for (int l = 0; l < 2; l++) {
		const struct gm_value *list = gm_bulk_list(root, lists[l]);

		for (i = 0; i < gm_value_length(list); i++) {
			const struct gm_value *segment = list->u.items[i];
			int64_t device = l ? GM_ROW_HOST : gm_value_number(segment, "device");
			struct counters *of = device >= GM_ROW_HOST && device < DEVICES ?
					      device_of(c, (int)device) : NULL;

			if (of && gm_value_get(segment, "registered") != gm_value_bool(true) &&
			    strcmp(gm_value_string(segment, "kind"), "ipc"))
				add(&of->reserved, gm_value_number(segment, "total_size"));
		}
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
	put_text(c, "s", "p");
	put_int(c, "tid", row->thread);
	begin_args(c);
	put_int(c, "requested", row->size);
	put_int(c, "free", (int64_t)row->address);
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
	const struct gm_value *text;
	uint64_t known;

	if (!domain[0])
		return thread;
	text = gm_value_text(t->texts, domain, strlen(domain));
	t->failed |= !text;
	known = text ? gm_table_get(&t->numbers, (uint64_t)thread, (uint64_t)(uintptr_t)text) : 0;
	if (!known && text) {
		known = ++t->count;
		t->failed |= gm_table_put(&t->numbers, (uint64_t)thread, (uint64_t)(uintptr_t)text, known) != 0;
	}
	return TRACKS_FROM + (int64_t)known - 1;
}

/* The first time that a track is met on a device it gets its name. */
static void name_track(struct chrome *c, struct tracks *t, const json_t *one, int64_t device, int64_t track)
{
	char name[400];

	if (gm_table_get(&t->depths, (uint64_t)track, (uint64_t)device))
		return;
	t->failed |= gm_table_put(&t->depths, (uint64_t)track, (uint64_t)device, 1) != 0;
	snprintf(name, sizeof(name), "thread %lld%s%.300s", (long long)gm_json_number(one, "thread"),
		 track < TRACKS_FROM ? "" : ", ", gm_json_text(one, "domain"));
	gm_show_repair(name);
	gm_tree_begin(c->tree, GM_TREE_DICT);
	put_text(c, "ph", "M");
	put_text(c, "name", "thread_name");
	put_int(c, "pid", gm_wrap_add(device, 1));
	put_int(c, "tid", track);
	begin_args(c);
	put_text(c, "name", name);
	end_args_and_event(c);
}

/* A range that does not nest, and may end in another thread: "b" and "e" with its number. */
static void put_async(struct chrome *c, const json_t *one, bool start, int64_t device, int64_t time_us)
{
	const char *domain = gm_json_text(one, "domain");
	char id[24];

	snprintf(id, sizeof(id), "0x%llx", (unsigned long long)gm_json_number(one, "range"));
	begin_event(c, start ? "b" : "e", gm_json_text(one, "name"), device, time_us);
	put_int(c, "tid", gm_json_number(one, "thread"));
	put_text(c, "cat", domain[0] ? domain : "ranges");
	put_text(c, "id", id);
	gm_tree_end(c->tree);
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
		put_int(c, "dur", time_us > c->origin_us ? gm_wrap_subtract(time_us, c->origin_us) : 0);
	} else {
		begin_event(c, start ? "B" : end ? "E" : "i", gm_json_text(one, "name"), device, time_us);
	}
	put_int(c, "tid", track);
	if (!start && !end)
		put_text(c, "s", "t");
	gm_tree_end(c->tree);
	if (start || (end && depth > 1))
		t->failed |= gm_table_put(&t->depths, (uint64_t)track, (uint64_t)device,
					  start ? depth + 1 : depth - 1) != 0;
}

static int put_annotations(struct chrome *c, const json_t *root)
{
	struct tracks tracks = { .texts = gm_values_open(SIZE_MAX) };
	const json_t *one;
	size_t i;

	if (!tracks.texts)
		return -ENOMEM;
	json_array_foreach(gm_json_list(root, "annotations"), i, one) {
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
	gm_values_close(tracks.texts);
	return tracks.failed ? -ENOMEM : 0;
}

/* The time of what is oldest. */
static int64_t origin_of(const struct chrome *c, const json_t *root)
{
	const json_t *first = json_array_get(gm_json_list(root, "annotations"), 0);
	int64_t noted = gm_json_number(first, "time_us");
	int64_t origin = c->lives.row_count ? c->lives.rows[0].time_us : noted;

	return first && noted < origin ? noted : origin;
}

int gm_convert_chrome(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	struct chrome c = { .devices = calloc(DEVICES + 1, sizeof(*c.devices)) };
	int r = gm_lives_open(&c.lives, loaded->root);

	c.tree = gm_tree_json(out);
	if (!r && (!c.devices || !c.tree))
		r = -ENOMEM;
	if (r)
		goto out_free;
	if (!c.lives.row_count)
		snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	c.origin_us = origin_of(&c, loaded->root);
	start(&c, loaded->root);
	gm_tree_begin(c.tree, GM_TREE_DICT);
	put_text(&c, "displayTimeUnit", "ms");
	gm_tree_name(c.tree, "traceEvents");
	gm_tree_begin(c.tree, GM_TREE_LIST);
	for (int d = GM_ROW_HOST; d < DEVICES; d++)
		if (c.devices[d + 1].any) {
			put_process(&c, d);
			put_live(&c, d, c.origin_us);
			put_reserved(&c, d, c.origin_us);
		}
	put_rows(&c);
	r = put_annotations(&c, loaded->root);
	gm_tree_end(c.tree);
	gm_tree_end(c.tree);
out_free:
	gm_lives_close(&c.lives);
	free(c.devices);
	if (c.tree) {
		int end = gm_tree_close(c.tree);

		r = r ? r : end;
	}
	return r;
}
