/*
 * torch_read.c - a snapshot of PyTorch as one of ours: see torch_read.h. One thread.
 *
 * What PyTorch's does not know is what "not known" looks like in ours: module 0, thread 0, stack 0.
 */
#include "tools/torch_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/table.h"

#define DEVICES 1024			/* traces of more are not read */
#define MEMBERS 128			/* of one dict at the most */
#define SETTINGS 65536			/* values among the settings */

/* A list that is being made. */
struct list { const struct gm_value **items; size_t count, room; };

struct reading {
	struct gm_values *to;		/* where ours goes */
	const struct gm_value *root;
	struct gm_table ids;		/* frame or stack, by its one value -> number + 1 */
	struct list frames, stacks;
	bool failed;			/* out of memory */
};

/* A dict that is being made. */
struct making { const struct gm_value *items[2 * MEMBERS]; size_t count; };

bool gm_torch_is(const struct gm_value *root)
{
	return gm_value_list(root, "segments") || gm_value_list(root, "device_traces");
}

static const struct gm_value *sure(struct reading *r, const struct gm_value *value)
{
	r->failed |= !value;
	return value ? value : gm_value_null();
}

static const struct gm_value *text(struct reading *r, const char *string)
{
	return sure(r, gm_value_text(r->to, string, strlen(string)));
}

static const struct gm_value *number(struct reading *r, int64_t value)
{
	return sure(r, gm_value_int(r->to, value));
}

static void set(struct reading *r, struct making *dict, const char *key, const struct gm_value *value)
{
	if (dict->count + 2 > 2 * MEMBERS)
		return;
	dict->items[dict->count++] = text(r, key);
	dict->items[dict->count++] = value;
}

static const struct gm_value *made(struct reading *r, const struct making *dict)
{
	return sure(r, gm_value_plain(r->to, GM_VALUE_DICT, dict->items, dict->count));
}

static bool make_room(struct reading *r, struct list *list)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 256;
		void *larger = realloc(list->items, room * sizeof(*list->items));

		if (!larger) {
			r->failed = true;
			return false;
		}
		list->items = larger;
		list->room = room;
	}
	return true;
}

static void append(struct reading *r, struct list *list, const struct gm_value *value)
{
	if (make_room(r, list))
		list->items[list->count++] = value;
}

/* The list as a value; its memory goes. */
static const struct gm_value *ended(struct reading *r, struct list *list)
{
	const struct gm_value *value = sure(r, gm_value_plain(r->to, GM_VALUE_LIST, list->items,
							      list->count));

	free(list->items);
	*list = (struct list){ .count = 0 };
	return value;
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
	return sure(r, gm_value_text(r->to, value->u.text, value->count));
}

static const struct gm_value *new_frame(struct reading *r, const struct gm_value *const *parts,
					int64_t line)
{
	struct making frame = { .count = 0 };
	size_t length = parts[1]->count;

	set(r, &frame, "filename", parts[1]);
	set(r, &frame, "name", parts[0]);
	set(r, &frame, "line", number(r, line));
	set(r, &frame, "module", number(r, 0));
	set(r, &frame, "offset", number(r, 0));
	set(r, &frame, "python",
	    gm_value_bool(length > 3 && !strcmp(parts[1]->u.text + length - 3, ".py")));
	return made(r, &frame);
}

/* The number of a frame: equal ones have one, however often the file has them. */
static size_t frame_id(struct reading *r, const struct gm_value *frame)
{
	const struct gm_value *parts[3], *one;
	int64_t line = gm_value_number(frame, "line");
	size_t id = gm_table_get(&r->ids, (uint64_t)(uintptr_t)frame, 0);

	if (id)
		return id - 1;
	parts[0] = copy_text(r, text_under(frame, "name"));
	parts[1] = copy_text(r, text_under(frame, "filename"));
	parts[2] = sure(r, gm_value_text(r->to, (const char *)&line, sizeof(line)));
	one = sure(r, gm_value_shared(r->to, GM_VALUE_TUPLE, parts, 3));
	id = gm_table_get(&r->ids, (uint64_t)(uintptr_t)one, 0);
	if (!id) {
		append(r, &r->frames, new_frame(r, parts, line));
		id = r->frames.count;
	}
	if (gm_table_put(&r->ids, (uint64_t)(uintptr_t)one, 0, id) ||
	    gm_table_put(&r->ids, (uint64_t)(uintptr_t)frame, 0, id))
		r->failed = true;
	return id - 1;
}

static const struct gm_value *new_stack(struct reading *r, const struct gm_value *list)
{
	int64_t *numbers;
	const struct gm_value *stack = sure(r, gm_value_room(r->to, list->count, &numbers));

	for (uint32_t i = 0; numbers && i < list->count; i++)
		numbers[i] = (int64_t)frame_id(r, list->u.items[i]);
	return stack;
}

/* The number of what @of has as "frames", 0 without any. */
static int64_t stack_of(struct reading *r, const struct gm_value *of)
{
	const struct gm_value *list = gm_value_list(of, "frames");
	uint64_t key;
	size_t id;

	if (!gm_value_length(list))		/* before PyTorch 2.0 */
		list = gm_value_list(gm_value_at(gm_value_list(of, "history"), 0), "frames");
	if (!gm_value_length(list))
		return 0;
	key = (uint64_t)(uintptr_t)list;
	id = gm_table_get(&r->ids, key, 1);
	if (!id) {
		append(r, &r->stacks, new_stack(r, list));
		id = r->stacks.count;
		if (gm_table_put(&r->ids, key, 1, id))
			r->failed = true;
	}
	return (int64_t)id - 1;
}

/* ---- segments --------------------------------------------------------------------------------- */

static void copy_numbers(struct reading *r, struct making *to, const struct gm_value *from,
			 const char *const *keys)
{
	for (; *keys; keys++)
		set(r, to, *keys, number(r, gm_value_number(from, *keys)));
}

static const struct gm_value *block_of(struct reading *r, const struct gm_value *block,
				       int64_t *address)
{
	int64_t size = gm_value_number(block, "size");
	struct making made_of = { .count = 0 }, *to = &made_of;

	if (gm_value_get(block, "address"))	/* absent before PyTorch 2.1: they tile the segment */
		*address = gm_value_number(block, "address");
	set(r, to, "address", number(r, *address));
	*address = (int64_t)((uint64_t)*address + (uint64_t)size);
	set(r, to, "size", number(r, size));
	set(r, to, "requested_size", number(r, gm_value_number(block, gm_value_get(block, "requested_size") ?
							       "requested_size" : "size")));
	set(r, to, "state", copy_text(r, text_under(block, "state")));
	set(r, to, "stack", number(r, stack_of(r, block)));
	set(r, to, "time_us", number(r, 0));
	set(r, to, "thread", number(r, 0));
	set(r, to, "kind", text(r, "device"));
	set(r, to, "module", number(r, 0));
	return made(r, to);
}

static const struct gm_value *pool_of(struct reading *r, const struct gm_value *segment)
{
	const struct gm_value *pool = gm_value_row(segment, "segment_pool_id");
	int64_t ids[2] = { gm_value_int_at(pool, 0), gm_value_int_at(pool, 1) };

	return sure(r, gm_value_numbers(r->to, ids, 2));
}

static const struct gm_value *segment_of(struct reading *r, const struct gm_value *segment)
{
	static const char *const keys[] = {
		"device", "address", "total_size", "allocated_size", "active_size", "requested_size",
		"stream", NULL
	};
	const struct gm_value *list = gm_value_list(segment, "blocks");
	int64_t address = gm_value_number(segment, "address");
	struct making made_of = { .count = 0 }, *to = &made_of;
	struct list blocks = { .count = 0 };

	copy_numbers(r, to, segment, keys);
	set(r, to, "segment_type", copy_text(r, text_under(segment, "segment_type")));
	set(r, to, "segment_pool_id", pool_of(r, segment));
	set(r, to, "is_expandable", gm_value_bool(gm_value_number(segment, "is_expandable")));
	set(r, to, "kind", text(r, "device"));
	set(r, to, "module", number(r, 0));
	set(r, to, "stack", number(r, stack_of(r, segment)));
	set(r, to, "time_us", number(r, 0));
	for (size_t i = 0; i < gm_value_length(list); i++)
		append(r, &blocks, block_of(r, list->u.items[i], &address));
	set(r, to, "blocks", ended(r, &blocks));
	return made(r, to);
}

/* ---- traces ----------------------------------------------------------------------------------- */

/* A column of @count numbers; of @list's entries when @key is not NULL. */
static const struct gm_value *numbers_of(struct reading *r, const struct gm_value *list, size_t count,
					 const char *key)
{
	int64_t *numbers;
	const struct gm_value *column = sure(r, gm_value_room(r->to, count, &numbers));

	for (size_t i = 0; numbers && i < count; i++)
		numbers[i] = key ? gm_value_number(list->u.items[i], key) : 0;
	return column;
}

/* Of an oom, PyTorch has what was free in place of an address. */
static const struct gm_value *addresses_of(struct reading *r, const struct gm_value *list,
					   size_t count)
{
	int64_t *numbers;
	const struct gm_value *column = sure(r, gm_value_room(r->to, count, &numbers));

	for (size_t i = 0; numbers && i < count; i++) {
		bool oom = !strcmp(gm_value_string(list->u.items[i], "action"), "oom");

		numbers[i] = gm_value_number(list->u.items[i], oom ? "device_free" : "addr");
	}
	return column;
}

static const struct gm_value *stacks_of(struct reading *r, const struct gm_value *list, size_t count)
{
	int64_t *numbers;
	const struct gm_value *column = sure(r, gm_value_room(r->to, count, &numbers));

	for (size_t i = 0; numbers && i < count; i++)
		numbers[i] = stack_of(r, list->u.items[i]);
	return column;
}

/* A column of texts: the actions of @list's entries, or "device" for each. */
static const struct gm_value *words_of(struct reading *r, const struct gm_value *list, size_t count,
				       bool actions)
{
	const struct gm_value *word = text(r, "device"), *last = NULL;
	struct list words = { .count = 0 };

	for (size_t i = 0; i < count; i++) {
		const struct gm_value *name = actions ? text_under(list->u.items[i], "action") : NULL;

		if (name != last)		/* one text for a run of the same */
			word = copy_text(r, name);
		last = name;
		append(r, &words, word);
	}
	return ended(r, &words);
}

static const struct gm_value *trace_of(struct reading *r, const struct gm_value *list)
{
	size_t count = gm_value_length(list);
	struct making made_of = { .count = 0 }, *to = &made_of;

	set(r, to, "dropped", number(r, 0));
	set(r, to, "action", words_of(r, list, count, true));
	set(r, to, "addr", addresses_of(r, list, count));
	set(r, to, "size", numbers_of(r, list, count, "size"));
	set(r, to, "stream", numbers_of(r, list, count, "stream"));
	set(r, to, "time_us", numbers_of(r, list, count, "time_us"));
	set(r, to, "stack", stacks_of(r, list, count));
	set(r, to, "thread", numbers_of(r, list, count, NULL));
	set(r, to, "kind", words_of(r, list, count, false));
	set(r, to, "module", numbers_of(r, list, count, NULL));
	return made(r, to);
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

static const struct gm_value *device_of(struct reading *r, size_t device)
{
	static const char *const names[9] = {
		"allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes",
		"inactive_split_bytes", "allocation", "active", "segment", "inactive_split"
	};
	static const char *const pools[3] = { "all", "large_pool", "small_pool" };
	const struct gm_value *segments = gm_value_list(r->root, "segments");
	const struct gm_value *nothing = sure(r, gm_value_plain(r->to, GM_VALUE_LIST, NULL, 0));
	struct making stats = { .count = 0 }, made_of = { .count = 0 }, *to = &made_of;
	int64_t sums[9][3] = { { 0 } };
	char key[64];

	for (size_t i = 0; i < gm_value_length(segments); i++)
		if (gm_value_number(segments->u.items[i], "device") == (int64_t)device)
			count_segment(sums, segments->u.items[i]);
	for (int k = 0; k < 9; k++)
		for (int p = 0; p < 3; p++) {
			snprintf(key, sizeof(key), "%s.%s.current", names[k], pools[p]);
			set(r, &stats, key, number(r, sums[k][p]));
		}
	set(r, to, "device", number(r, (int64_t)device));
	set(r, to, "present", gm_value_bool(true));
	set(r, to, "name", text(r, ""));
	set(r, to, "total_bytes", gm_value_null());
	set(r, to, "memory_stats", made(r, &stats));
	set(r, to, "by_module", nothing);
	set(r, to, "by_kind", nothing);
	set(r, to, "unattributed_bytes", gm_value_null());
	return made(r, to);
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

/* @value once more, in our memory; NULL when it is more than @left values. */
static const struct gm_value *copy_of(struct reading *r, const struct gm_value *value, size_t *left)
{
	struct list items = { .count = 0 };
	const struct gm_value *copy;
	bool whole = true;

	if (!*left)
		return NULL;
	--*left;
	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_INT:	return number(r, value->u.integer);
	case GM_VALUE_UINT:	return sure(r, gm_value_uint(r->to, value->u.word));
	case GM_VALUE_REAL:	return sure(r, gm_value_real(r->to, value->u.real));
	case GM_VALUE_TEXT:	return copy_text(r, value);
	case GM_VALUE_NUMBERS:	return sure(r, gm_value_numbers(r->to, value->u.numbers, value->count));
	case GM_VALUE_NULL:
	case GM_VALUE_BOOL:	return value;	/* there is one of each */
	default:		break;
	}
	for (uint32_t i = 0; whole && i < value->count; i++) {
		const struct gm_value *item = copy_of(r, value->u.items[i], left);

		whole = item != NULL;
		if (item)
			append(r, &items, item);
	}
	copy = whole ? sure(r, gm_value_plain(r->to, value->type, items.items, items.count)) : NULL;
	free(items.items);
	return copy;
}

static const struct gm_value *settings_of(struct reading *r)
{
	const struct gm_value *settings = gm_value_get(r->root, "allocator_settings");
	size_t left = SETTINGS;
	const struct gm_value *copy = settings && settings->type == GM_VALUE_DICT ?
				      copy_of(r, settings, &left) : NULL;

	return copy ? copy : sure(r, gm_value_plain(r->to, GM_VALUE_DICT, NULL, 0));
}

static const struct gm_value *annotations_of(struct reading *r)
{
	static const char *const keys[] = { "device", "time_us", NULL };
	const struct gm_value *list = gm_value_list(r->root, "external_annotations");
	struct list annotations = { .count = 0 };

	for (size_t i = 0; i < gm_value_length(list); i++) {
		struct making one = { .count = 0 };

		set(r, &one, "name", copy_text(r, text_under(list->u.items[i], "name")));
		set(r, &one, "stage", copy_text(r, text_under(list->u.items[i], "stage")));
		copy_numbers(r, &one, list->u.items[i], keys);
		set(r, &one, "thread", number(r, 0));
		append(r, &annotations, made(r, &one));
	}
	return ended(r, &annotations);
}

/* Frame 0 and module 0: not known. */
static const struct gm_value *nobody(struct reading *r, bool frame)
{
	const struct gm_value *none = text(r, ""), *parts[2] = { none, none };
	struct making module = { .count = 0 };

	if (frame)
		return new_frame(r, parts, 0);
	set(r, &module, "path", none);
	set(r, &module, "build_id", none);
	return made(r, &module);
}

static void put_traces(struct reading *r, struct making *to)
{
	const struct gm_value *traces = gm_value_list(r->root, "device_traces");
	struct list device_traces = { .count = 0 }, devices = { .count = 0 };
	size_t count = count_devices(r->root);

	for (size_t d = 0; d < count; d++) {
		const struct gm_value *trace = gm_value_at(traces, d);

		append(r, &devices, device_of(r, d));
		append(r, &device_traces, trace_of(r, trace && trace->type == GM_VALUE_LIST ? trace : NULL));
	}
	set(r, to, "devices", ended(r, &devices));
	set(r, to, "device_traces", ended(r, &device_traces));
	set(r, to, "host_trace", trace_of(r, NULL));
}

static const struct gm_value *build(struct reading *r)
{
	const struct gm_value *segments = gm_value_list(r->root, "segments");
	struct list list = { .count = 0 }, modules = { .count = 0 };
	struct making root = { .count = 0 }, *to = &root;

	append(r, &r->stacks, sure(r, gm_value_plain(r->to, GM_VALUE_LIST, NULL, 0)));
	append(r, &r->frames, nobody(r, true));
	append(r, &modules, nobody(r, false));
	set(r, to, "format", text(r, "gpumem-snapshot"));
	set(r, to, "version", number(r, 1));
	set(r, to, "reason", text(r, "pytorch"));
	set(r, to, "time_us", number(r, last_time(gm_value_list(r->root, "device_traces"))));
	set(r, to, "consistent", gm_value_bool(true));
	set(r, to, "process", sure(r, gm_value_plain(r->to, GM_VALUE_DICT, NULL, 0)));
	set(r, to, "allocator_settings", settings_of(r));
	for (size_t i = 0; i < gm_value_length(segments); i++)
		append(r, &list, segment_of(r, segments->u.items[i]));
	set(r, to, "segments", ended(r, &list));
	set(r, to, "host_segments", sure(r, gm_value_plain(r->to, GM_VALUE_LIST, NULL, 0)));
	put_traces(r, to);
	set(r, to, "stacks", ended(r, &r->stacks));
	set(r, to, "frames", ended(r, &r->frames));
	set(r, to, "modules", ended(r, &modules));
	set(r, to, "annotations", annotations_of(r));
	return made(r, to);
}

const struct gm_value *gm_torch_read(struct gm_values *to, const struct gm_value *root)
{
	struct reading r = { .to = to, .root = root };
	const struct gm_value *value = build(&r);

	free(r.frames.items);
	free(r.stacks.items);
	gm_table_free(&r.ids);
	return r.failed ? NULL : value;
}
