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

#include "tools/bulk.h"
#include "tools/convert.h"
#include "tools/lives.h"
#include "tools/tree_write.h"

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
	gm_tree_string(c->tree, name);
	gm_tree_string(c->tree, text);
}

static void put_int(struct chrome *c, const char *name, int64_t value)
{
	gm_tree_string(c->tree, name);
	gm_tree_int(c->tree, value);
}

static void begin_event(struct chrome *c, const char *phase, const char *name, int64_t device,
			int64_t time_us)
{
	gm_tree_begin(c->tree, GM_TREE_DICT);
	put_text(c, "ph", phase);
	put_text(c, "name", name);
	put_int(c, "pid", device + 1);
	put_int(c, "ts", gm_wrap_subtract(time_us, c->origin_us));
}

static void begin_args(struct chrome *c)
{
	gm_tree_string(c->tree, "args");
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
	put_int(c, "pid", device + 1);
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

static int64_t reserved_change(const struct gm_row *row)
{
	return !strcmp(row->action, "segment_alloc") || !strcmp(row->action, "segment_map") ? row->size :
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

			if (of && gm_value_get(segment, "registered") != gm_value_bool(true))
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

static void put_annotations(struct chrome *c, const json_t *root)
{
	const json_t *one;
	size_t i;

	json_array_foreach(gm_json_list(root, "annotations"), i, one) {
		const char *stage = gm_json_text(one, "stage");
		const char *phase = !strcmp(stage, "START") ? "B" : !strcmp(stage, "END") ? "E" : "i";

		begin_event(c, phase, gm_json_text(one, "name"), gm_json_number(one, "device"),
			    gm_json_number(one, "time_us"));
		put_int(c, "tid", gm_json_number(one, "thread"));
		if (*phase == 'i')
			put_text(c, "s", "t");
		gm_tree_end(c->tree);
	}
}

int gm_convert_chrome(FILE *out, const struct gm_loaded *loaded, char note[256])
{
	struct chrome c = { .devices = calloc(DEVICES + 1, sizeof(*c.devices)) };
	int r = gm_lives_open(&c.lives, loaded->root);

	(void)note;
	c.tree = gm_tree_json(out);
	if (!r && (!c.devices || !c.tree))
		r = -ENOMEM;
	if (r)
		goto out_free;
	c.origin_us = c.lives.row_count ? c.lives.rows[0].time_us : 0;
	start(&c, loaded->root);
	gm_tree_begin(c.tree, GM_TREE_DICT);
	put_text(&c, "displayTimeUnit", "ms");
	gm_tree_string(c.tree, "traceEvents");
	gm_tree_begin(c.tree, GM_TREE_LIST);
	for (int d = GM_ROW_HOST; d < DEVICES; d++)
		if (c.devices[d + 1].any) {
			put_process(&c, d);
			put_live(&c, d, c.origin_us);
			put_reserved(&c, d, c.origin_us);
		}
	put_rows(&c);
	put_annotations(&c, loaded->root);
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
