/*
 * torch_read.c - a snapshot of PyTorch as one of ours: see torch_read.h. One thread.
 *
 * What PyTorch's does not know is what "not known" looks like in ours: module 0, thread 0, stack 0.
 */
#include "tools/torch/torch_read.h"

#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"
#include "tools/torch/torch_device.h"
#include "tools/read/value_make.h"

#define AHEAD 12			/* events looked at before their turn */
#define SETTINGS 65536			/* values among the settings */

struct reading {
	struct gm_maker *m;		/* where ours goes */
	const struct gm_value *root;
	struct gm_table ids;		/* a frame as it was read -> number + 1 */
	struct gm_table known;		/* likewise a stack; apart, since every event asks */
	struct gm_table places;		/* (name, file) -> number + 1 */
	struct gm_table lines;		/* (that number, line) -> number of the frame + 1 */
	struct gm_list frames, stacks, annotations;
};

bool gm_torch_is(const struct gm_value *root)
{
	return gm_value_list(root, "segments") || gm_value_list(root, "device_traces");
}

/* ---- frames and stacks ------------------------------------------------------------------------ */

static const struct gm_value *text_under(const struct gm_value *dict, const char *key)
{
	static const struct gm_value none = { .type = GM_VALUE_TEXT, .u.text = "" };
	const struct gm_value *value = gm_value_get(dict, key);

	return value && value->type == GM_VALUE_TEXT ? value : &none;
}

static const struct gm_value *copy_text(struct reading *r, const struct gm_value *value)
{
	return gm_make_sure(r->m, gm_value_text(r->m->values, value->u.text, value->count));
}

static const struct gm_value *new_frame(struct reading *r, const struct gm_value *const *parts,
					int64_t line)
{
	struct gm_dict frame = { .count = 0 };
	size_t length = parts[1]->count;

	gm_make_set(r->m, &frame, "filename", parts[1]);
	gm_make_set(r->m, &frame, "name", parts[0]);
	gm_make_set(r->m, &frame, "line", gm_make_int(r->m, line));
	gm_make_set(r->m, &frame, "module", gm_make_int(r->m, 0));
	gm_make_set(r->m, &frame, "offset", gm_make_int(r->m, 0));
	gm_make_set(r->m, &frame, "python",
	    gm_value_bool(length > 3 && !strcmp(parts[1]->u.text + length - 3, ".py")));
	return gm_make_dict(r->m, &frame);
}

/* What is under (@a, @b), or from now on is @next; + 1. */
static size_t number_of(struct reading *r, struct gm_table *table, uint64_t a, uint64_t b, size_t next)
{
	size_t number = gm_table_get(table, a, b);

	if (!number) {
		number = next + 1;
		r->m->failed |= gm_table_put(table, a, b, number) != 0;
	}
	return number;
}

/* The number of a frame: equal ones have one, however often the file has them. */
static size_t frame_id(struct reading *r, const struct gm_value *frame)
{
	const struct gm_value *parts[2];
	size_t id = gm_table_get(&r->ids, (uint64_t)(uintptr_t)frame, 0), place;
	int64_t line;

	if (id)				/* before it is looked at: it lies anywhere */
		return id - 1;
	line = gm_value_number(frame, "line");
	parts[0] = copy_text(r, text_under(frame, "name"));
	parts[1] = copy_text(r, text_under(frame, "filename"));
	place = number_of(r, &r->places, (uint64_t)(uintptr_t)parts[0], (uint64_t)(uintptr_t)parts[1],
			  r->places.count);
	id = number_of(r, &r->lines, place, (uint64_t)line, r->frames.count);
	if (id > r->frames.count)
		gm_make_append(r->m, &r->frames, new_frame(r, parts, line));
	if (gm_table_put(&r->ids, (uint64_t)(uintptr_t)frame, 0, id))
		r->m->failed = true;
	return id - 1;
}

static const struct gm_value *new_stack(struct reading *r, const struct gm_value *list)
{
	int64_t *numbers;
	const struct gm_value *stack = gm_make_numbers(r->m, list->count, &numbers);

	for (uint32_t i = 0; numbers && i < list->count; i++)
		gm_table_fetch(&r->ids, (uint64_t)(uintptr_t)list->u.items[i], 0);
	for (uint32_t i = 0; numbers && i < list->count; i++)
		numbers[i] = (int64_t)frame_id(r, list->u.items[i]);
	return stack;
}

static const struct gm_value *as_list(const struct gm_value *value)
{
	return value && (value->type == GM_VALUE_LIST || value->type == GM_VALUE_TUPLE) ? value : NULL;
}

/* The number of the stack @frames, or before PyTorch 2.0 of what the first entry of @history has as
 * "frames"; 0 without any. */
static int64_t stack_number(struct reading *r, const struct gm_value *frames, const struct gm_value *history)
{
	size_t id = frames ? gm_table_get(&r->known, (uint64_t)(uintptr_t)frames, 0) : 0;
	const struct gm_value *list;

	if (id)				/* likewise */
		return (int64_t)id - 1;
	list = as_list(frames);
	if (!gm_value_length(list))
		list = gm_value_list(gm_value_at(as_list(history), 0), "frames");
	if (!gm_value_length(list))
		return 0;
	id = gm_table_get(&r->known, (uint64_t)(uintptr_t)list, 0);
	if (!id) {
		gm_make_append(r->m, &r->stacks, new_stack(r, list));
		id = r->stacks.count;
		if (gm_table_put(&r->known, (uint64_t)(uintptr_t)list, 0, id))
			r->m->failed = true;
	}
	return (int64_t)id - 1;
}

static int64_t stack_of(struct reading *r, const struct gm_value *of)
{
	return stack_number(r, gm_value_get(of, "frames"), gm_value_get(of, "history"));
}

/* ---- segments --------------------------------------------------------------------------------- */

static void copy_numbers(struct reading *r, struct gm_dict *to, const struct gm_value *from,
			 const char *const *keys)
{
	for (; *keys; keys++)
		gm_make_set(r->m, to, *keys, gm_make_int(r->m, gm_value_number(from, *keys)));
}

static const struct gm_value *block_of(struct reading *r, const struct gm_value *block,
				       int64_t *address)
{
	int64_t size = gm_value_number(block, "size");
	int64_t requested = gm_value_get(block, "requested_size") ?
			    gm_value_number(block, "requested_size") : size;
	struct gm_dict made_of = { .count = 0 }, *to = &made_of;

	if (gm_value_get(block, "address"))	/* absent before PyTorch 2.1: they tile the segment */
		*address = gm_value_number(block, "address");
	gm_make_set(r->m, to, "address", gm_make_int(r->m, *address));
	*address = (int64_t)((uint64_t)*address + (uint64_t)size);
	gm_make_set(r->m, to, "size", gm_make_int(r->m, size));
	gm_make_set(r->m, to, "requested_size", gm_make_int(r->m, requested));
	gm_make_set(r->m, to, "state", copy_text(r, text_under(block, "state")));
	gm_make_set(r->m, to, "stack", gm_make_int(r->m, stack_of(r, block)));
	gm_make_set(r->m, to, "time_us", gm_make_int(r->m, 0));
	gm_make_set(r->m, to, "thread", gm_make_int(r->m, 0));
	gm_make_set(r->m, to, "kind", gm_make_text(r->m, "device"));
	gm_make_set(r->m, to, "module", gm_make_int(r->m, 0));
	return gm_make_dict(r->m, to);
}

static const struct gm_value *pool_of(struct reading *r, const struct gm_value *segment)
{
	const struct gm_value *pool = gm_value_row(segment, "segment_pool_id");
	int64_t ids[2] = { gm_value_int_at(pool, 0), gm_value_int_at(pool, 1) };

	return gm_make_sure(r->m, gm_value_numbers(r->m->values, ids, 2));
}

static const struct gm_value *segment_of(struct reading *r, const struct gm_value *segment)
{
	static const char *const keys[] = {
		"device", "address", "total_size", "allocated_size", "active_size", "requested_size",
		"stream", NULL
	};
	const struct gm_value *list = gm_value_list(segment, "blocks");
	int64_t address = gm_value_number(segment, "address");
	struct gm_dict made_of = { .count = 0 }, *to = &made_of;
	struct gm_list blocks = { .count = 0 };

	copy_numbers(r, to, segment, keys);
	gm_make_set(r->m, to, "segment_type", copy_text(r, text_under(segment, "segment_type")));
	gm_make_set(r->m, to, "segment_pool_id", pool_of(r, segment));
	gm_make_set(r->m, to, "is_expandable", gm_value_bool(gm_value_number(segment, "is_expandable")));
	gm_make_set(r->m, to, "kind", gm_make_text(r->m, "device"));
	gm_make_set(r->m, to, "module", gm_make_int(r->m, 0));
	gm_make_set(r->m, to, "stack", gm_make_int(r->m, stack_of(r, segment)));
	gm_make_set(r->m, to, "time_us", gm_make_int(r->m, 0));
	for (size_t i = 0; i < gm_value_length(list); i++)
		gm_make_append(r->m, &blocks, block_of(r, list->u.items[i], &address));
	gm_make_set(r->m, to, "blocks", gm_make_list(r->m, &blocks));
	return gm_make_dict(r->m, to);
}

/* ---- traces ----------------------------------------------------------------------------------- */

enum { ACTION, ADDR, DEVICE_FREE, SIZE, STREAM, TIME, FRAMES, HISTORY, MEMBERS };

/* Where the members of an event are. Those of a file have the same names, most often, and then one
 * list of them. */
struct shape { const struct gm_value *names; uint32_t place[MEMBERS]; };	/* 0: none, as the names are */

static int member_of(const struct gm_value *name)
{
	static const char *const names[MEMBERS] = {
		"action", "addr", "device_free", "size", "stream", "time_us", "frames", "history"
	};
	int member = 0;

	while (member < MEMBERS && (strlen(names[member]) != name->count ||
				    memcmp(names[member], name->u.text, name->count) != 0))
		member++;
	return member;
}

static void learn(struct shape *shape, const struct gm_value *names)
{
	*shape = (struct shape){ .names = names };
	for (uint32_t i = 0; i < names->count; i++) {
		int member = member_of(names->u.items[i]);

		if (member < MEMBERS)
			shape->place[member] = i + 1;	/* the last of several */
	}
}

static void find_members(struct shape *shape, const struct gm_value *event,
			 const struct gm_value *ret[MEMBERS])
{
	bool any = event->type == GM_VALUE_DICT && event->count;

	if (any && shape->names != event->u.items[0])
		learn(shape, event->u.items[0]);
	for (int m = 0; m < MEMBERS; m++)
		ret[m] = any && shape->place[m] ? event->u.items[shape->place[m]] : NULL;
}

/* An event whose turn will come: of its stack it is looked up then whether it is known. */
static void foresee(const struct reading *r, const struct shape *shape, const struct gm_value *event)
{
	if (event->type == GM_VALUE_DICT && event->count && shape->names == event->u.items[0] &&
	    shape->place[FRAMES])
		gm_table_fetch(&r->known, (uint64_t)(uintptr_t)event->u.items[shape->place[FRAMES]], 0);
}

/* The columns of a trace, filled event by event. */
struct columns {
	int64_t *address, *size, *stream, *time_us, *stack, device;
	struct gm_list actions, kinds;
	const struct gm_value *name, *action;	/* one text for a run of the same */
	struct shape shape;
};

/* What a program said by an event of its own. */
static void add_annotation(struct reading *r, const struct gm_value *event, int64_t device, int64_t time_us)
{
	struct gm_dict one = { .count = 0 };

	gm_make_set(r->m, &one, "name", copy_text(r, text_under(event, "user_metadata")));
	gm_make_set(r->m, &one, "stage", gm_make_text(r->m, "MARK"));
	gm_make_set(r->m, &one, "device", gm_make_int(r->m, device));
	gm_make_set(r->m, &one, "time_us", gm_make_int(r->m, time_us));
	gm_make_set(r->m, &one, "thread", gm_make_int(r->m, 0));
	gm_make_append(r->m, &r->annotations, gm_make_dict(r->m, &one));
}

static void fill(struct reading *r, struct columns *c, size_t i, const struct gm_value *event)
{
	static const struct gm_value none = { .type = GM_VALUE_TEXT, .u.text = "" };
	const struct gm_value *m[MEMBERS], *name;
	bool oom;

	find_members(&c->shape, event, m);
	name = m[ACTION] && m[ACTION]->type == GM_VALUE_TEXT ? m[ACTION] : &none;
	if (name != c->name)
		c->action = copy_text(r, name);
	c->name = name;
	gm_make_append(r->m, &c->actions, c->action);
	/* Of an oom, PyTorch has what was free in place of an address. */
	oom = !strcmp(name->u.text, "oom");
	c->address[i] = gm_value_as_number(m[oom ? DEVICE_FREE : ADDR]);
	c->size[i] = gm_value_as_number(m[SIZE]);
	c->stream[i] = gm_value_as_number(m[STREAM]);
	c->time_us[i] = gm_value_as_number(m[TIME]);
	c->stack[i] = stack_number(r, m[FRAMES], m[HISTORY]);
	if (!strcmp(name->u.text, "annotate"))
		add_annotation(r, event, c->device, c->time_us[i]);
}

static const struct gm_value *trace_of(struct reading *r, const struct gm_value *list, int64_t device)
{
	size_t count = gm_value_length(list);
	struct gm_dict made_of = { .count = 0 }, *to = &made_of;
	const struct gm_value *addresses, *sizes, *streams, *times, *stacks, *unknown;
	const struct gm_value *kind = gm_make_text(r->m, "device");
	struct columns c = { .device = device };
	int64_t *zeros;

	addresses = gm_make_numbers(r->m, count, &c.address);
	sizes = gm_make_numbers(r->m, count, &c.size);
	streams = gm_make_numbers(r->m, count, &c.stream);
	times = gm_make_numbers(r->m, count, &c.time_us);
	stacks = gm_make_numbers(r->m, count, &c.stack);
	unknown = gm_make_numbers(r->m, count, &zeros);
	if (zeros)
		memset(zeros, 0, count * sizeof(*zeros));
	for (size_t i = 0; list && i < count && !r->m->failed; i++) {
		if (i + AHEAD < count)
			foresee(r, &c.shape, list->u.items[i + AHEAD]);
		fill(r, &c, i, list->u.items[i]);
		gm_make_append(r->m, &c.kinds, kind);
	}
	gm_make_set(r->m, to, "dropped", gm_make_int(r->m, 0));
	gm_make_set(r->m, to, "action", gm_make_list(r->m, &c.actions));
	gm_make_set(r->m, to, "addr", addresses);
	gm_make_set(r->m, to, "size", sizes);
	gm_make_set(r->m, to, "stream", streams);
	gm_make_set(r->m, to, "time_us", times);
	gm_make_set(r->m, to, "stack", stacks);
	gm_make_set(r->m, to, "thread", unknown);
	gm_make_set(r->m, to, "kind", gm_make_list(r->m, &c.kinds));
	gm_make_set(r->m, to, "module", unknown);
	return gm_make_dict(r->m, to);
}

static int64_t last_time(const struct gm_value *traces)
{
	int64_t last = 0;

	for (size_t d = 0; d < gm_value_length(traces); d++) {
		const struct gm_value *trace = traces->u.items[d];

		if (trace->type == GM_VALUE_LIST && trace->count) {
			int64_t time_us = gm_value_number(trace->u.items[trace->count - 1], "time_us");

			last = time_us > last ? time_us : last;
		}
	}
	return last;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static const struct gm_value *settings_of(struct reading *r)
{
	const struct gm_value *settings = gm_value_get(r->root, "allocator_settings");
	size_t left = SETTINGS;
	const struct gm_value *copy = settings && settings->type == GM_VALUE_DICT ?
				      gm_make_copy(r->m, settings, &left) : NULL;

	return copy ? copy : gm_make_dict(r->m, &(struct gm_dict){ .count = 0 });
}

static const struct gm_value *annotations_of(struct reading *r)
{
	static const char *const keys[] = { "device", "time_us", NULL };
	const struct gm_value *list = gm_value_list(r->root, "external_annotations");

	for (size_t i = 0; i < gm_value_length(list); i++) {
		struct gm_dict one = { .count = 0 };

		gm_make_set(r->m, &one, "name", copy_text(r, text_under(list->u.items[i], "name")));
		gm_make_set(r->m, &one, "stage", copy_text(r, text_under(list->u.items[i], "stage")));
		copy_numbers(r, &one, list->u.items[i], keys);
		gm_make_set(r->m, &one, "thread", gm_make_int(r->m, 0));
		gm_make_append(r->m, &r->annotations, gm_make_dict(r->m, &one));
	}
	return gm_make_list(r->m, &r->annotations);
}

/* Frame 0 and module 0: not known. */
static const struct gm_value *nobody(struct reading *r, bool frame)
{
	const struct gm_value *none = gm_make_text(r->m, ""), *parts[2] = { none, none };
	struct gm_dict module = { .count = 0 };

	if (frame)
		return new_frame(r, parts, 0);
	gm_make_set(r->m, &module, "path", none);
	gm_make_set(r->m, &module, "build_id", none);
	return gm_make_dict(r->m, &module);
}

static void put_traces(struct reading *r, struct gm_dict *to)
{
	const struct gm_value *traces = gm_value_list(r->root, "device_traces");
	struct gm_list device_traces = { .count = 0 }, devices = { .count = 0 };
	size_t count = gm_torch_device_count(r->root);

	for (size_t d = 0; d < count; d++) {
		const struct gm_value *trace = gm_value_at(traces, d);

		gm_make_append(r->m, &devices, gm_torch_device(r->m, r->root, d));
		if (trace && trace->type != GM_VALUE_LIST)
			trace = NULL;
		gm_make_append(r->m, &device_traces, trace_of(r, trace, (int64_t)d));
	}
	gm_make_set(r->m, to, "devices", gm_make_list(r->m, &devices));
	gm_make_set(r->m, to, "device_traces", gm_make_list(r->m, &device_traces));
	gm_make_set(r->m, to, "host_trace", trace_of(r, NULL, 0));
}

static const struct gm_value *build(struct reading *r)
{
	const struct gm_value *segments = gm_value_list(r->root, "segments");
	const struct gm_value *traces = gm_value_list(r->root, "device_traces");
	struct gm_list list = { .count = 0 }, modules = { .count = 0 };
	struct gm_dict root = { .count = 0 }, *to = &root;

	gm_make_append(r->m, &r->stacks, gm_make_list(r->m, &(struct gm_list){ .count = 0 }));
	gm_make_append(r->m, &r->frames, nobody(r, true));
	gm_make_append(r->m, &modules, nobody(r, false));
	gm_make_set(r->m, to, "format", gm_make_text(r->m, "gpumem-snapshot"));
	gm_make_set(r->m, to, "version", gm_make_int(r->m, 1));
	gm_make_set(r->m, to, "reason", gm_make_text(r->m, "pytorch"));
	gm_make_set(r->m, to, "time_us", gm_make_int(r->m, last_time(traces)));
	gm_make_set(r->m, to, "consistent", gm_value_bool(true));
	gm_make_set(r->m, to, "process", gm_make_dict(r->m, &(struct gm_dict){ .count = 0 }));
	gm_make_set(r->m, to, "allocator_settings", settings_of(r));
	for (size_t i = 0; i < gm_value_length(segments); i++)
		gm_make_append(r->m, &list, segment_of(r, segments->u.items[i]));
	gm_make_set(r->m, to, "segments", gm_make_list(r->m, &list));
	gm_make_set(r->m, to, "host_segments", gm_make_list(r->m, &(struct gm_list){ .count = 0 }));
	put_traces(r, to);
	gm_make_set(r->m, to, "stacks", gm_make_list(r->m, &r->stacks));
	gm_make_set(r->m, to, "frames", gm_make_list(r->m, &r->frames));
	gm_make_set(r->m, to, "modules", gm_make_list(r->m, &modules));
	gm_make_set(r->m, to, "annotations", annotations_of(r));
	return gm_make_dict(r->m, to);
}

const struct gm_value *gm_torch_read(struct gm_values *to, const struct gm_value *root)
{
	struct gm_maker maker = { .values = to };
	struct reading r = { .m = &maker, .root = root };
	const struct gm_value *value = build(&r);

	free(r.frames.items);
	free(r.stacks.items);
	free(r.annotations.items);
	gm_table_free(&r.ids);
	gm_table_free(&r.known);
	gm_table_free(&r.places);
	gm_table_free(&r.lines);
	return maker.failed ? NULL : value;
}
