/*
 * snapshot_read.c - make a snapshot of a document: see documents.h. One thread.
 *
 * Our documents and PyTorch's differ in two ways. Ours have the number of a stack, PyTorch's have its frames; here
 * equal frames get one number. Our traces are columns, PyTorch's are lists of events. Values that PyTorch does not have
 * are unknown: module 0, thread 0.
 */
#include "tools/read/documents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"

#define READS "; this gpumem reads version 1"
#define TORCH_TRACES 1024		/* devices of PyTorch that are read at most */
#define TORCH_VALUES 65536		/* values that a member of a pickle may have: one can stand in many places */

struct reading {
	struct gm_snapshot *to;
	bool pickle;
	size_t *parts, part_count;	/* the rows at which traces begin */
	struct gm_table files;		/* (name, file) -> number + 1 */
	struct gm_table lines;		/* (that number, line) -> frame + 1 */
	struct gm_table stacks;		/* the frames of a stack, as a text -> stack + 1 */
	struct gm_table known;		/* a lasting frame, or list of them -> its number + 1 */
	json_t *annotations;		/* of a snapshot of PyTorch */
	const struct gm_value *version;	/* NULL: the document has none */
	bool has_format, is_ours, is_torch;
	bool failed;			/* memory was short */
};

/* Add an item as gm_list_add does, and remember a failure in @r. */
static void *add_item(struct reading *r, void *list_at, size_t *count, size_t bytes)
{
	void *item = gm_list_add(list_at, count, bytes);

	r->failed |= !item;
	return item;
}

/* Return the text of @value without lone surrogates; "" if it is no text. */
static const char *text_in(const struct gm_value *value)
{
	if (!value || value->type != GM_VALUE_TEXT)
		return "";
	gm_value_repair((char *)(uintptr_t)value->u.text, value->count);
	return value->u.text;
}

static const char *text_of(const struct gm_value *dict, const char *key)
{
	return text_in(gm_value_get(dict, key));
}

/* Is @value a list or a tuple, packed or not? */
static bool is_list(const struct gm_value *value)
{
	return value && (value->type == GM_VALUE_NUMBERS || gm_value_as_list(value));
}

/* ---- frames and stacks ------------------------------------------------------------------------ */

static void add_frame(struct reading *r, const struct gm_snapshot_frame *frame)
{
	struct gm_snapshot_frame *one = add_item(r, &r->to->frames, &r->to->frame_count,
						 sizeof(*one));

	if (one)
		*one = *frame;
}

static void add_id(struct reading *r, int64_t id)
{
	uint32_t *one = add_item(r, &r->to->ids, &r->to->starts[r->to->stack_count + 1],
				 sizeof(*one));

	if (one)
		*one = id > 0 && id <= UINT32_MAX ? (uint32_t)id : 0;
}

/* Begin a stack, to which add_id adds frames. The stack is complete when @stack_count includes it. */
static bool begin_stack(struct reading *r)
{
	size_t count = r->to->stack_count ? r->to->stack_count + 1 : 0, *starts;

	if (!add_item(r, &r->to->starts, &count, sizeof(*starts)))
		return false;
	starts = r->to->starts;
	if (!r->to->stack_count)
		starts[0] = 0;
	starts[r->to->stack_count + 1] = starts[r->to->stack_count];
	return true;
}

/* Add frame 0 and stack 0, which stand for none. */
static void add_nobody(struct reading *r)
{
	if (!r->to->frame_count)
		add_frame(r, &(struct gm_snapshot_frame){ .name = "", .file = "" });
	if (!r->to->stack_count && begin_stack(r))
		r->to->stack_count++;
}

/* Return the number of PyTorch's frame @from: that of an equal frame, or a new one. */
static uint64_t new_frame(struct reading *r, const struct gm_value *from)
{
	struct gm_snapshot_frame frame = {
		.name = text_of(from, "name"), .file = text_of(from, "filename"),
		.line = gm_value_number(from, "line"),
	};
	uint64_t a = (uint64_t)(uintptr_t)frame.name, b = (uint64_t)(uintptr_t)frame.file;
	uint64_t file = gm_table_get(&r->files, a, b), id;
	size_t length = strlen(frame.file);

	if (!file) {
		file = r->files.count + 1;
		r->failed |= gm_table_put(&r->files, a, b, file) != 0;
	}
	id = gm_table_get(&r->lines, file, (uint64_t)frame.line);
	if (!id) {
		frame.python = length > 3 && !strcmp(frame.file + length - 3, ".py");
		id = r->to->frame_count + 1;
		r->failed |= gm_table_put(&r->lines, file, (uint64_t)frame.line, id) != 0;
		add_frame(r, &frame);
	}
	return id - 1;
}

/* Return the number that @get finds for @from, a frame or a list of frames. For a lasting value @get is called once. */
static int64_t number_of(struct reading *r, const struct gm_value *from,
			 uint64_t (*get)(struct reading *r, const struct gm_value *from))
{
	uint64_t known = from->lasting ? gm_table_get(&r->known, (uint64_t)(uintptr_t)from, 0) : 0;

	if (known)
		return (int64_t)known - 1;
	known = get(r, from);
	if (from->lasting && gm_table_put(&r->known, (uint64_t)(uintptr_t)from, 0, known + 1))
		r->failed = true;
	return (int64_t)known;
}

/* Return the number of the stack of these frames: that of an equal stack, or a new one. */
static uint64_t new_stack(struct reading *r, const struct gm_value *list)
{
	const struct gm_value *known;
	size_t from;
	uint64_t id;

	add_nobody(r);
	if (r->failed || !begin_stack(r))
		return 0;
	from = r->to->starts[r->to->stack_count];
	for (uint32_t i = 0; i < list->count && !r->failed; i++)
		add_id(r, number_of(r, list->u.items[i], new_frame));
	if (r->failed)
		return 0;
	known = gm_value_text(r->to->texts, (const char *)(r->to->ids + from),
			      list->count * sizeof(uint32_t));
	id = known ? gm_table_get(&r->stacks, (uint64_t)(uintptr_t)known, 0) : 0;
	if (!id) {
		id = ++r->to->stack_count;
		r->failed |= !known || gm_table_put(&r->stacks, (uint64_t)(uintptr_t)known, 0, id);
	}
	return id - 1;
}

/* Return the number of the stack of @of: PyTorch's "frames" or, before PyTorch 2.0, "frames" of the first entry of
 * "history"; in our documents "stack". */
static int64_t stack_of(struct reading *r, const struct gm_value *of)
{
	const struct gm_value *list = gm_value_list(of, "frames");

	if (!gm_value_length(list))
		list = gm_value_list(gm_value_at(gm_value_list(of, "history"), 0), "frames");
	return gm_value_length(list) ? number_of(r, list, new_stack) : gm_value_number(of, "stack");
}

static void read_frames(struct reading *r, const struct gm_value *list)
{
	r->to->frame_count = 0;
	for (size_t i = 0; i < list->count && !r->failed; i++) {
		const struct gm_value *from = gm_value_at(list, i);
		struct gm_snapshot_frame frame = {
			.name = text_of(from, "name"), .file = text_of(from, "filename"),
			.line = gm_value_number(from, "line"), .module = gm_value_number(from, "module"),
			.offset = gm_value_number(from, "offset"),
			.python = gm_value_get(from, "python") == gm_value_bool(true),
			.inlined = gm_value_get(from, "inlined") == gm_value_bool(true),
		};
		const char *symbol = text_of(from, "symbol");

		frame.symbol = symbol[0] ? symbol : NULL;
		add_frame(r, &frame);
	}
}

static void read_stacks(struct reading *r, const struct gm_value *list)
{
	r->to->stack_count = 0;
	for (size_t s = 0; s < list->count && !r->failed; s++) {
		const struct gm_value *from = gm_value_at(list, s);

		if (!begin_stack(r))
			return;
		for (size_t i = 0; is_list(from) && i < from->count && !r->failed; i++)
			add_id(r, gm_value_int_at(from, i));
		r->to->stack_count++;
	}
}

/* ---- segments --------------------------------------------------------------------------------- */

/* Read a block. Before PyTorch 2.1 blocks have no addresses, and lie in the segment one behind the other. */
static struct gm_snapshot_block block_of(struct reading *r, const struct gm_value *from, uint64_t next)
{
	const struct gm_value *address = gm_value_get(from, "address"), *kind = gm_value_get(from, "kind");
	const struct gm_value *requested = gm_value_get(from, "requested_size");

	return (struct gm_snapshot_block){
		.address = address ? (uint64_t)gm_value_as_number(address) : next,
		.size = gm_value_number(from, "size"),
		.requested_size = requested ? gm_value_as_number(requested) : gm_value_number(from, "size"),
		.state = text_of(from, "state"), .stack = stack_of(r, from),
		.time_us = gm_value_number(from, "time_us"), .thread = gm_value_number(from, "thread"),
		.kind = kind ? text_in(kind) : "device", .module = gm_value_number(from, "module"),
		.name = text_of(from, "name"), .freeing = gm_value_number(from, "freeing"),
		.untraced = gm_value_number(from, "untraced"),
	};
}

static void add_segment(struct reading *r, const struct gm_value *from, bool host)
{
	const struct gm_value *device = gm_value_get(from, "device"), *kind = gm_value_get(from, "kind");
	const struct gm_value *pool = gm_value_get(from, "segment_pool_id");
	const struct gm_value *blocks = gm_value_get(from, "blocks");
	bool packed = blocks && blocks->type == GM_VALUE_BLOCKS;
	struct gm_snapshot_segment *to = add_item(r, &r->to->segments, &r->to->segment_count,
						  sizeof(*to));
	bool unnamed = device && device->type == GM_VALUE_NULL;
	uint64_t next = (uint64_t)gm_value_number(from, "address");

	if (!to)
		return;
	blocks = packed ? blocks : gm_value_as_list(blocks);
	*to = (struct gm_snapshot_segment){
		.device = host || unnamed ? GM_ROW_HOST : gm_value_as_number(device),
		.address = next, .total_size = gm_value_number(from, "total_size"),
		.allocated_size = gm_value_number(from, "allocated_size"),
		.active_size = gm_value_number(from, "active_size"),
		.requested_size = gm_value_number(from, "requested_size"),
		.stream = gm_value_number(from, "stream"), .type = text_of(from, "segment_type"),
		.expandable = gm_value_number(from, "is_expandable"),
		.kind = kind ? text_in(kind) : "device", .module = gm_value_number(from, "module"),
		.stack = stack_of(r, from), .time_us = gm_value_number(from, "time_us"),
		.handle = gm_value_number(from, "handle"), .registered = gm_value_number(from, "registered"),
		.unmapped = gm_value_number(from, "unmapped"), .outside = gm_value_number(from, "outside"),
		.blocks = packed ? (struct gm_snapshot_block *)(uintptr_t)blocks->u.blocks :
			  gm_values_room(r->to->texts, gm_value_length(blocks) * sizeof(*to->blocks)),
		.block_count = packed ? blocks->count : 0,
	};
	if (is_list(pool))
		for (size_t i = 0; i < 2; i++)
			to->pool[i] = gm_value_int_at(pool, i);
	if (!to->blocks)
		r->failed = true;
	for (size_t i = 0; !packed && i < gm_value_length(blocks) && !r->failed; i++) {
		to->blocks[i] = block_of(r, blocks->u.items[i], next);
		next = to->blocks[i].address + (uint64_t)to->blocks[i].size;
		to->block_count++;
	}
}

/* ---- traces ----------------------------------------------------------------------------------- */

static struct gm_row *add_row(struct reading *r)
{
	return add_item(r, &r->to->rows, &r->to->row_count, sizeof(struct gm_row));
}

/* Begin a trace with the next row. */
static void begin_trace(struct reading *r)
{
	size_t *part = add_item(r, &r->parts, &r->part_count, sizeof(*part));

	if (part)
		*part = r->to->row_count;
}

/* Read one of our traces. The shortest of its columns decides how many rows are read. */
static int64_t add_columns(struct reading *r, const struct gm_value *trace, int device)
{
	enum { ACTION, ADDR, SIZE, STREAM, TIME, STACK, THREAD, KIND, MODULE, COLUMNS };
	static const char *const names[COLUMNS] = {
		"action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"
	};
	const struct gm_value *columns[COLUMNS];
	size_t length = SIZE_MAX;

	for (int c = 0; c < COLUMNS; c++) {
		columns[c] = gm_value_get(trace, names[c]);
		if (!is_list(columns[c]))
			columns[c] = NULL;
		if (gm_value_length(columns[c]) < length)
			length = gm_value_length(columns[c]);
	}
	for (size_t i = 0; i < length && !r->failed; i++) {
		struct gm_row *row = add_row(r);

		if (row)
			*row = (struct gm_row){
				.time_us = gm_value_int_at(columns[TIME], i), .device = device,
				.action = text_in(gm_value_at(columns[ACTION], i)),
				.kind = text_in(gm_value_at(columns[KIND], i)),
				.address = (uint64_t)gm_value_int_at(columns[ADDR], i),
				.size = gm_value_int_at(columns[SIZE], i),
				.stream = gm_value_int_at(columns[STREAM], i),
				.thread = gm_value_int_at(columns[THREAD], i),
				.module = gm_value_int_at(columns[MODULE], i),
				.stack = gm_value_int_at(columns[STACK], i),
			};
	}
	return gm_value_number(trace, "dropped");
}

static void add_annotation(struct reading *r, const char *name, const char *stage, int64_t device,
			   int64_t time_us)
{
	json_t *one = json_pack("{ss ss sI sI si}", "name", name, "stage", stage, "device",
				(json_int_t)device, "time_us", (json_int_t)time_us, "thread", 0);

	r->failed |= !one || json_array_append_new(r->annotations, one);
}

/* Read an event of PyTorch. An oom has the free bytes in the place of an address. */
static void add_event(struct reading *r, const struct gm_value *event, int device)
{
	const char *action = text_of(event, "action");
	struct gm_row *row = add_row(r);

	if (!row)
		return;
	*row = (struct gm_row){
		.action = action, .kind = "device", .device = device,
		.address = (uint64_t)gm_value_number(event, strcmp(action, "oom") ? "addr" : "device_free"),
		.size = gm_value_number(event, "size"), .stream = gm_value_number(event, "stream"),
		.time_us = gm_value_number(event, "time_us"), .stack = stack_of(r, event),
	};
	if (!strcmp(action, "annotate"))
		add_annotation(r, text_of(event, "user_metadata"), "MARK", device, row->time_us);
}

static void read_trace(struct reading *r, const struct gm_value *trace)
{
	int device = (int)r->to->trace_count;
	int64_t *dropped = add_item(r, &r->to->dropped, &r->to->trace_count, sizeof(*dropped));
	const struct gm_value *events = device < TORCH_TRACES ? gm_value_as_list(trace) : NULL;

	if (!dropped)
		return;
	begin_trace(r);
	for (size_t i = 0; i < gm_value_length(events) && !r->failed; i++)
		add_event(r, events->u.items[i], device);
	*dropped = events ? 0 : add_columns(r, trace, device);
}

/* ---- pools ------------------------------------------------------------------------------------ */

/* Read the segments and rows of a pool into the snapshot's lists, whose own items are put aside meanwhile. */
static void read_pool_lists(struct reading *r, struct gm_snapshot_pool *pool, const struct gm_value *from)
{
	const struct gm_value *segments = gm_value_list(from, "segments"), *trace = gm_value_get(from, "trace");
	const struct gm_snapshot outer = *r->to;

	r->to->segments = NULL;
	r->to->rows = NULL;
	r->to->segment_count = r->to->row_count = 0;
	for (size_t i = 0; i < gm_value_length(segments) && !r->failed; i++)
		add_segment(r, segments->u.items[i], false);
	pool->dropped = trace ? add_columns(r, trace, (int)pool->device) : 0;
	pool->segments = r->to->segments;
	pool->segment_count = r->to->segment_count;
	pool->rows = r->to->rows;
	pool->row_count = r->to->row_count;
	r->to->segments = outer.segments;
	r->to->segment_count = outer.segment_count;
	r->to->rows = outer.rows;
	r->to->row_count = outer.row_count;
}

static void read_pool(struct reading *r, const struct gm_value *from)
{
	struct gm_snapshot_pool *pool = add_item(r, &r->to->pools, &r->to->pool_count,
						 sizeof(*pool));
	size_t left = SIZE_MAX;

	if (!pool)
		return;
	*pool = (struct gm_snapshot_pool){
		.root = json_object(), .number = gm_value_number(from, "number"),
		.device = gm_value_number(from, "device"), .name = text_of(from, "name"),
	};
	r->failed |= !pool->root;
	for (uint32_t i = 0; from->type == GM_VALUE_DICT && i < from->count && !r->failed; i += 2) {
		const char *name = from->u.items[i]->u.text;
		json_t *json;

		if (!strcmp(name, "segments") || !strcmp(name, "trace"))
			continue;
		json = gm_value_to_json(from->u.items[i + 1], &left);
		r->failed |= !json || json_object_set_new_nocheck(pool->root, name, json);
	}
	read_pool_lists(r, pool, from);
}

/* ---- the document ----------------------------------------------------------------------------- */

/* Read the member @name into the snapshot's own list for it. Returns false if the snapshot has no such list. */
static bool read_list(struct reading *r, const char *name, const struct gm_value *list)
{
	static const char *const names[] = {
		"segments", "host_segments", "device_traces", "external_annotations", "stacks", "frames"
	};
	size_t member = 0;

	while (member < sizeof(names) / sizeof(names[0]) && strcmp(name, names[member]))
		member++;
	if (member == sizeof(names) / sizeof(names[0]) || !is_list(list))
		return false;
	r->is_torch |= member == 0 || member == 2;
	if (member == 4)
		read_stacks(r, list);
	if (member == 5)
		read_frames(r, list);
	for (size_t i = 0; i < list->count && member < 4 && !r->failed; i++) {
		const struct gm_value *from = gm_value_at(list, i);

		if (member < 2)
			add_segment(r, from, member == 1);
		else if (member == 2)
			read_trace(r, from);
		else
			add_annotation(r, text_of(from, "name"), text_of(from, "stage"),
				       gm_value_number(from, "device"), gm_value_number(from, "time_us"));
	}
	return true;
}

/* Keep any other member as jansson's value, because it is small. */
static void read_member(struct reading *r, const char *name, const struct gm_value *value)
{
	size_t left = r->pickle ? TORCH_VALUES : SIZE_MAX;
	json_t *json;

	if (read_list(r, name, value))
		return;
	if (!r->pickle && !strcmp(name, "pools") && gm_value_as_list(value)) {
		for (size_t i = 0; i < gm_value_length(value) && !r->failed; i++)
			read_pool(r, value->u.items[i]);
		return;
	}
	if (!strcmp(name, "host_trace")) {
		begin_trace(r);
		r->to->host_dropped = add_columns(r, value, GM_ROW_HOST);
		return;
	}
	if (!strcmp(name, "format")) {
		r->has_format = true;
		r->is_ours = value->type == GM_VALUE_TEXT && !strcmp(value->u.text, "gpumem-snapshot");
	}
	if (!strcmp(name, "version"))
		r->version = value;
	if (r->pickle && strcmp(name, "allocator_settings"))
		return;			/* our snapshots are never pickles */
	json = gm_value_to_json(value, &left);
	if (json)
		r->failed |= json_object_set_new_nocheck(r->to->root, name, json) != 0;
	else
		r->failed |= !r->pickle;
}

static int check_version(const struct reading *r, char *error, size_t room)
{
	const struct gm_value *version = r->version;
	bool known = version && ((version->type == GM_VALUE_INT && version->u.integer == 1) ||
				 (version->type == GM_VALUE_REAL && version->u.real == 1));

	if (!r->is_ours)
		snprintf(error, room, r->pickle ? "a pickle, but not a snapshot of PyTorch" :
			 "JSON, but not a snapshot of gpumem or PyTorch");
	else if (!version)
		snprintf(error, room, "a snapshot that does not say its version");
	else if (version->type == GM_VALUE_REAL)
		snprintf(error, room, "a snapshot of version %.17g" READS, version->u.real);
	else if (version->type == GM_VALUE_UINT)
		snprintf(error, room, "a snapshot of version %llu" READS, (unsigned long long)version->u.word);
	else if (version->type == GM_VALUE_INT)
		snprintf(error, room, "a snapshot of version %lld" READS, (long long)version->u.integer);
	else
		snprintf(error, room, "a snapshot whose version is no number");
	return r->is_ours && known ? 0 : -EBADMSG;
}

/* Check the numbers of frames, which may follow the stacks that name them. A number out of range becomes 0. */
static int finish(struct reading *r)
{
	struct gm_snapshot *to = r->to;
	size_t count = to->stack_count ? to->starts[to->stack_count] : 0;

	for (size_t i = 0; i < count; i++)
		if (to->ids[i] >= to->frame_count)
			to->ids[i] = 0;
	begin_trace(r);			/* this ends the last trace */
	if (r->failed || gm_rows_merge(to->rows, r->parts, r->part_count - 1))
		return -ENOMEM;
	if (!json_array_size(r->annotations))
		return 0;
	return json_object_set(to->root, "annotations", r->annotations) ? -ENOMEM : 0;
}

int gm_snapshot_read(struct gm_snapshot *snapshot, struct gm_values *values, const struct gm_value *root,
		     bool pickle, bool *ret_torch, char *error, size_t room)
{
	struct reading r = { .to = snapshot, .pickle = pickle, .annotations = json_array() };
	uint32_t count = root->type == GM_VALUE_DICT ? root->count : 0;
	int result;

	*snapshot = (struct gm_snapshot){ .root = json_object(), .texts = values };
	r.failed = !snapshot->root || !r.annotations;
	for (uint32_t i = 0; i < count && !r.failed; i += 2)
		read_member(&r, root->u.items[i]->u.text, root->u.items[i + 1]);
	*ret_torch = r.is_torch && !r.has_format;
	result = r.failed ? -ENOMEM : *ret_torch ? 0 : check_version(&r, error, room);
	if (!result && *ret_torch)
		add_nobody(&r);
	if (!result)
		result = finish(&r);
	gm_table_free(&r.files);
	gm_table_free(&r.lines);
	gm_table_free(&r.stacks);
	gm_table_free(&r.known);
	gm_values_free_tree(values);
	json_decref(r.annotations);
	free(r.parts);
	return result;
}
