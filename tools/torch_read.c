/*
 * torch_read.c - a snapshot of PyTorch as one of ours: see torch_read.h. One thread.
 *
 * What PyTorch's does not know is what "not known" looks like in ours: module 0, thread 0, stack 0.
 */
#include "tools/torch_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/table.h"

#define DEVICES 1024			/* traces of more are not read */
#define SETTINGS 65536			/* values among the settings */

struct reading {
	struct gm_values *values;
	const struct gm_value *root;
	struct gm_table ids;		/* frame or stack, by its one value -> number + 1 */
	json_t *frames, *stacks;
	json_t *zero;			/* most numbers are */
	bool failed;			/* out of memory */
};

bool gm_torch_is(const struct gm_value *root)
{
	return gm_value_list(root, "segments") || gm_value_list(root, "device_traces");
}

static void set(struct reading *r, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		r->failed = true;
}

static void append(struct reading *r, json_t *list, json_t *value)
{
	if (json_array_append_new(list, value))
		r->failed = true;
}

static json_t *number(struct reading *r, int64_t value)
{
	return value ? json_integer(value) : json_incref(r->zero);
}

/* ---- frames and stacks ------------------------------------------------------------------------ */

static const struct gm_value *text_under(struct reading *r, const struct gm_value *dict,
					 const char *key)
{
	const struct gm_value *text = gm_value_get(dict, key);

	return text && text->type == GM_VALUE_TEXT ? text : gm_value_text(r->values, "", 0);
}

static json_t *plain(const struct gm_value *text)
{
	return gm_value_to_json(text, 1);
}

/* The number of a frame: equal ones have one, however often the file has them. */
static size_t frame_id(struct reading *r, const struct gm_value *frame)
{
	const struct gm_value *parts[3], *one;
	int64_t line = gm_value_number(frame, "line");
	char digits[32];
	size_t id, length;
	json_t *json;

	snprintf(digits, sizeof(digits), "%lld", (long long)line);
	parts[0] = text_under(r, frame, "name");
	parts[1] = text_under(r, frame, "filename");
	parts[2] = gm_value_text(r->values, digits, strlen(digits));
	if (!parts[0] || !parts[1] || !parts[2]) {
		r->failed = true;
		return 0;
	}
	one = gm_value_shared(r->values, GM_VALUE_TUPLE, parts, 3);
	id = gm_table_get(&r->ids, (uint64_t)(uintptr_t)one, 0);
	if (id || !one)
		return id ? id - 1 : 0;
	id = json_array_size(r->frames);
	length = parts[1]->count;
	json = json_pack("{so so sI si si sb}", "filename", plain(parts[1]), "name", plain(parts[0]),
			 "line", (json_int_t)line, "module", 0, "offset", 0, "python",
			 length > 3 && !strcmp(parts[1]->u.text + length - 3, ".py"));
	append(r, r->frames, json);
	if (gm_table_put(&r->ids, (uint64_t)(uintptr_t)one, 0, id + 1))
		r->failed = true;
	return id;
}

static json_t *new_stack(struct reading *r, const struct gm_value *list)
{
	json_t *stack = json_array();

	for (uint32_t i = 0; i < list->count; i++)
		append(r, stack, json_integer((json_int_t)frame_id(r, list->u.items[i])));
	return stack;
}

/* The number of what @of has as "frames", 0 without any. */
static json_t *stack_of(struct reading *r, const struct gm_value *of)
{
	const struct gm_value *list = gm_value_list(of, "frames");
	uint64_t key = (uint64_t)(uintptr_t)list;
	size_t id;

	if (!gm_value_length(list) && gm_value_list(of, "history"))	/* before PyTorch 2.0 */
		list = gm_value_list(gm_value_list(of, "history")->count ?
				     gm_value_list(of, "history")->u.items[0] : NULL, "frames");
	if (!gm_value_length(list))
		return number(r, 0);
	id = gm_table_get(&r->ids, key, 1);
	if (!id) {
		id = json_array_size(r->stacks) + 1;
		append(r, r->stacks, new_stack(r, list));
		if (gm_table_put(&r->ids, key, 1, id))
			r->failed = true;
	}
	return number(r, (int64_t)id - 1);
}

/* ---- segments --------------------------------------------------------------------------------- */

static void copy_numbers(struct reading *r, json_t *to, const struct gm_value *from,
			 const char *const *keys)
{
	for (; *keys; keys++)
		set(r, to, *keys, number(r, gm_value_number(from, *keys)));
}

static json_t *block_of(struct reading *r, const struct gm_value *block, int64_t *address)
{
	static const char *const keys[] = { "size", "requested_size", NULL };
	json_t *json = json_object();

	if (gm_value_get(block, "address"))	/* absent before PyTorch 2.1: they tile the segment */
		*address = gm_value_number(block, "address");
	set(r, json, "address", number(r, *address));
	*address += gm_value_number(block, "size");
	copy_numbers(r, json, block, keys);
	if (!gm_value_get(block, "requested_size"))
		set(r, json, "requested_size", number(r, gm_value_number(block, "size")));
	set(r, json, "state", plain(text_under(r, block, "state")));
	set(r, json, "stack", stack_of(r, block));
	set(r, json, "time_us", number(r, 0));
	set(r, json, "thread", number(r, 0));
	set(r, json, "kind", json_string("device"));
	set(r, json, "module", number(r, 0));
	return json;
}

static json_t *segment_of(struct reading *r, const struct gm_value *segment)
{
	static const char *const keys[] = {
		"device", "address", "total_size", "allocated_size", "active_size", "requested_size",
		"stream", NULL
	};
	const struct gm_value *list = gm_value_list(segment, "blocks");
	const struct gm_value *pool = gm_value_list(segment, "segment_pool_id");
	int64_t address = gm_value_number(segment, "address");
	json_t *json = json_object(), *blocks = json_array();

	copy_numbers(r, json, segment, keys);
	set(r, json, "segment_type", plain(text_under(r, segment, "segment_type")));
	set(r, json, "segment_pool_id", pool ? gm_value_to_json(pool, 3) : json_pack("[ii]", 0, 0));
	set(r, json, "is_expandable", json_boolean(gm_value_number(segment, "is_expandable")));
	set(r, json, "kind", json_string("device"));
	set(r, json, "module", number(r, 0));
	set(r, json, "stack", stack_of(r, segment));
	set(r, json, "time_us", number(r, 0));
	for (size_t i = 0; i < gm_value_length(list); i++)
		append(r, blocks, block_of(r, list->u.items[i], &address));
	set(r, json, "blocks", blocks);
	return json;
}

/* ---- traces ----------------------------------------------------------------------------------- */

enum { ACTION, ADDR, SIZE, STREAM, TIME, STACK, THREAD, KIND, MODULE, COLUMNS };

static json_t *trace_of(struct reading *r, const struct gm_value *list)
{
	static const char *const names[COLUMNS] = {
		"action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"
	};
	json_t *trace = json_pack("{si}", "dropped", 0), *column[COLUMNS];
	json_t *kind = json_string("device"), *action = NULL;
	const struct gm_value *last = NULL;

	for (int c = 0; c < COLUMNS; c++)
		column[c] = json_array();
	for (size_t i = 0; i < gm_value_length(list); i++) {
		const struct gm_value *entry = list->u.items[i], *name = text_under(r, entry, "action");
		bool oom = name && !strcmp(name->u.text, "oom");

		if (name != last) {		/* one text for a run of the same */
			json_decref(action);
			action = plain(name);
			last = name;
		}
		append(r, column[ACTION], json_incref(action));
		append(r, column[ADDR], number(r, gm_value_number(entry, oom ? "device_free" : "addr")));
		append(r, column[SIZE], number(r, gm_value_number(entry, "size")));
		append(r, column[STREAM], number(r, gm_value_number(entry, "stream")));
		append(r, column[TIME], number(r, gm_value_number(entry, "time_us")));
		append(r, column[STACK], stack_of(r, entry));
		append(r, column[THREAD], number(r, 0));
		append(r, column[KIND], json_incref(kind));
		append(r, column[MODULE], number(r, 0));
	}
	json_decref(action);
	json_decref(kind);
	for (int c = 0; c < COLUMNS; c++)
		set(r, trace, names[c], column[c]);
	return trace;
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

/* ---- devices ---------------------------------------------------------------------------------- */

/* Add what a segment of PyTorch's is to the statistics of its device and its pool. */
static void count_segment(int64_t stats[][3], const struct gm_value *segment)
{
	enum { ALLOCATED, ACTIVE, REQUESTED, RESERVED, INACTIVE, ALLOCATION, ACTIVES, SEGMENTS, SPLITS };
	const struct gm_value *blocks = gm_value_list(segment, "blocks");
	int pool = strcmp(gm_value_string(segment, "segment_type"), "small") ? 1 : 2;
	bool expandable = gm_value_number(segment, "is_expandable");
	int64_t add[9] = {
		[ALLOCATED] = gm_value_number(segment, "allocated_size"),
		[ACTIVE] = gm_value_number(segment, "active_size"),
		[REQUESTED] = gm_value_number(segment, "requested_size"),
		[RESERVED] = gm_value_number(segment, "total_size"), [SEGMENTS] = !expandable,
	};

	for (size_t i = 0; i < gm_value_length(blocks); i++) {
		const char *state = gm_value_string(blocks->u.items[i], "state");
		bool idle = !strcmp(state, "inactive");

		add[ALLOCATION] += !strcmp(state, "active_allocated");
		add[ACTIVES] += !idle;
		if (idle && blocks->count > 1 && !expandable) {
			add[SPLITS]++;
			add[INACTIVE] += gm_value_number(blocks->u.items[i], "size");
		}
	}
	for (int k = 0; k < 9; k++) {
		stats[k][0] = (int64_t)((uint64_t)stats[k][0] + (uint64_t)add[k]);
		stats[k][pool] = (int64_t)((uint64_t)stats[k][pool] + (uint64_t)add[k]);
	}
}

static json_t *device_of(struct reading *r, size_t device)
{
	static const char *const names[9] = {
		"allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes",
		"inactive_split_bytes", "allocation", "active", "segment", "inactive_split"
	};
	static const char *const pools[3] = { "all", "large_pool", "small_pool" };
	const struct gm_value *segments = gm_value_list(r->root, "segments");
	json_t *json = json_object(), *stats = json_object();
	int64_t sums[9][3] = { { 0 } };
	char key[64];

	for (size_t i = 0; i < gm_value_length(segments); i++)
		if (gm_value_number(segments->u.items[i], "device") == (int64_t)device)
			count_segment(sums, segments->u.items[i]);
	for (int k = 0; k < 9; k++)
		for (int p = 0; p < 3; p++) {
			snprintf(key, sizeof(key), "%s.%s.current", names[k], pools[p]);
			set(r, stats, key, json_integer(sums[k][p]));
		}
	set(r, json, "device", json_integer((json_int_t)device));
	set(r, json, "present", json_true());
	set(r, json, "name", json_string(""));
	set(r, json, "total_bytes", json_null());
	set(r, json, "memory_stats", stats);
	set(r, json, "by_module", json_array());
	set(r, json, "by_kind", json_array());
	set(r, json, "unattributed_bytes", json_null());
	return json;
}

static size_t count_devices(const struct gm_value *root)
{
	const struct gm_value *segments = gm_value_list(root, "segments");
	size_t count = gm_value_length(gm_value_list(root, "device_traces"));

	for (size_t i = 0; i < gm_value_length(segments); i++) {
		int64_t device = gm_value_number(segments->u.items[i], "device");

		if (device >= (int64_t)count && device < DEVICES)
			count = (size_t)device + 1;
	}
	return count < DEVICES ? count : DEVICES;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static json_t *settings_of(const struct reading *r)
{
	const struct gm_value *settings = gm_value_get(r->root, "allocator_settings");
	json_t *json = settings && settings->type == GM_VALUE_DICT ?
		       gm_value_to_json(settings, SETTINGS) : NULL;

	return json ? json : json_object();
}

static json_t *annotations_of(struct reading *r)
{
	static const char *const keys[] = { "device", "time_us", NULL };
	const struct gm_value *list = gm_value_list(r->root, "external_annotations");
	json_t *annotations = json_array();

	for (size_t i = 0; i < gm_value_length(list); i++) {
		json_t *one = json_object();

		set(r, one, "name", plain(text_under(r, list->u.items[i], "name")));
		set(r, one, "stage", plain(text_under(r, list->u.items[i], "stage")));
		copy_numbers(r, one, list->u.items[i], keys);
		set(r, one, "thread", number(r, 0));
		append(r, annotations, one);
	}
	return annotations;
}

static json_t *build(struct reading *r)
{
	const struct gm_value *segments = gm_value_list(r->root, "segments");
	const struct gm_value *traces = gm_value_list(r->root, "device_traces");
	json_t *root = json_pack("{ss si ss sI sb s{}}", "format", "gpumem-snapshot", "version", 1,
				 "reason", "pytorch", "time_us", (json_int_t)last_time(traces),
				 "consistent", 1, "process");
	json_t *device_traces = json_array(), *devices = json_array(), *list = json_array();
	size_t count = count_devices(r->root);

	append(r, r->stacks, json_array());
	append(r, r->frames, json_pack("{ss si ss si si sb}", "filename", "", "line", 0, "name", "",
				       "module", 0, "offset", 0, "python", 0));
	set(r, root, "allocator_settings", settings_of(r));
	for (size_t d = 0; d < count; d++) {
		append(r, devices, device_of(r, d));
		append(r, device_traces, trace_of(r, d < gm_value_length(traces) &&
						  traces->u.items[d]->type == GM_VALUE_LIST ?
						  traces->u.items[d] : NULL));
	}
	for (size_t i = 0; i < gm_value_length(segments); i++)
		append(r, list, segment_of(r, segments->u.items[i]));
	set(r, root, "devices", devices);
	set(r, root, "segments", list);
	set(r, root, "host_segments", json_array());
	set(r, root, "device_traces", device_traces);
	set(r, root, "host_trace", trace_of(r, NULL));
	set(r, root, "stacks", json_incref(r->stacks));
	set(r, root, "frames", json_incref(r->frames));
	set(r, root, "modules", json_pack("[{ss ss}]", "path", "", "build_id", ""));
	set(r, root, "annotations", annotations_of(r));
	return root;
}

json_t *gm_torch_read(struct gm_values *values, const struct gm_value *root)
{
	struct reading r = { .values = values, .root = root };
	json_t *json;

	r.frames = json_array();
	r.stacks = json_array();
	r.zero = json_integer(0);
	json = build(&r);
	json_decref(r.zero);
	json_decref(r.frames);
	json_decref(r.stacks);
	gm_table_free(&r.ids);
	if (r.failed) {
		json_decref(json);
		json = NULL;
	}
	return json;
}
