/*
 * convert_chrome.c - the Trace Event Format of chrome://tracing and Perfetto: for `gpumem convert`.
 * One thread.
 *
 * The process and its threads keep their own numbers, and times are microseconds since 1970. So the trace can be shown
 * together with a trace that another tool recorded at the same time. Every allocation is an async slice ("b" and "e",
 * because allocations do not nest), named after its call site. Each device has counters of its live bytes, by kind, and
 * of its reserved bytes. A call that found no memory is an instant. Annotations are slices (START and END) or instants.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/write/convert.h"
#include "tools/show/groups.h"
#include "tools/show/lives.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/read/value.h"
#include "tools/write/writer.h"

#define DEVICES 1024
#define KINDS 16
#define KEPT_MOST ((size_t)64 << 20)	/* bytes of texts of stacks */

struct counters {
	int64_t live[KINDS], reserved;
	bool seen[KINDS], any;
};

struct chrome {
	struct gm_writer *writer;
	const struct gm_stacks *stacks;
	const struct gm_lives *lives;
	const json_t *root;
	char **texts;			/* by stack; NULL: not made yet, or not kept */
	size_t kept;			/* bytes of @texts */
	int64_t pid, end_us;
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

static void begin_event(struct chrome *c, const char *phase, const char *name, int64_t time_us)
{
	gm_writer_begin(c->writer, GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "ph", phase);
	gm_writer_put_string(c->writer, "name", name);
	gm_writer_put_int(c->writer, "pid", c->pid);
	gm_writer_put_int(c->writer, "ts", time_us);
}

static void end_args_and_event(struct chrome *c)
{
	gm_writer_end(c->writer);
	gm_writer_end(c->writer);
}

/* Name the process or, if @track is not NULL, one of its tracks. */
static void put_name(struct chrome *c, const int64_t *track, const char *name)
{
	gm_writer_begin(c->writer, GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "ph", "M");
	gm_writer_put_string(c->writer, "name", track ? "thread_name" : "process_name");
	gm_writer_put_int(c->writer, "pid", c->pid);
	if (track)
		gm_writer_put_int(c->writer, "tid", *track);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "name", name);
	end_args_and_event(c);
}

/* "GPU 0: live bytes" */
static const char *name_of(int device, const char *what, char to[64])
{
	if (device == GM_ROW_HOST)
		snprintf(to, 64, "host, pinned%s%s", what[0] ? ": " : "", what);
	else
		snprintf(to, 64, "GPU %d%s%s", device, what[0] ? ": " : "", what);
	return to;
}

static void put_live(struct chrome *c, int device, int64_t time_us)
{
	const struct counters *of = &c->devices[device + 1];
	char name[64];

	begin_event(c, "C", name_of(device, "live bytes", name), time_us);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	for (unsigned int k = 0; k < KINDS; k++)
		if (of->seen[k])
			gm_writer_put_int(c->writer, c->kinds[k], of->live[k]);
	end_args_and_event(c);
}

static void put_reserved(struct chrome *c, int device, int64_t time_us)
{
	char name[64];

	begin_event(c, "C", name_of(device, "reserved bytes", name), time_us);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	gm_writer_put_int(c->writer, "reserved", c->devices[device + 1].reserved);
	end_args_and_event(c);
}

/* Return the change of reserved bytes in @row. Memory of another process (ipc) is reserved by that process. */
static int64_t reserved_change(const struct gm_row *row)
{
	return !strcmp(row->kind, "ipc") ? 0 :
	       !strcmp(row->action, "segment_alloc") || !strcmp(row->action, "segment_map") ? row->size :
	       !strcmp(row->action, "segment_free") || !strcmp(row->action, "segment_unmap") ?
	       gm_wrap_subtract(0, row->size) :
	       0;
}

/* Set the counters to the bytes that were live and reserved before the first event. */
static void start(struct chrome *c, const struct gm_snapshot *snapshot)
{
	size_t i;

	for (i = 0; i < c->lives->count; i++) {
		const struct gm_life *life = &c->lives->list[i];
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
	for (i = 0; i < c->lives->row_count; i++) {
		struct counters *of = device_of(c, c->lives->rows[i].device);

		if (!of)
			continue;
		of->any = true;
		add(&of->reserved, gm_wrap_subtract(0, reserved_change(&c->lives->rows[i])));
	}
}

/* ---- stacks, and allocations as slices ---------------------------------------------------------- */

/* Return stack @id as text, one line for each frame, innermost first; free() it. NULL: an empty stack, or out of
 * memory. */
static char *stack_text(const struct gm_stacks *stacks, int64_t id)
{
	char *text = NULL;
	size_t bytes, count;
	const uint32_t *ids = gm_stack(stacks, id, &count);
	FILE *to = count ? open_memstream(&text, &bytes) : NULL;

	for (size_t i = 0; to && i < count; i++) {
		const struct gm_frame *frame = &stacks->frames[ids[i]];

		fprintf(to, "%s%s", i ? "\n" : "", frame->name);
		if (frame->line > 0)
			fprintf(to, " (%s:%lld)", frame->file, (long long)frame->line);
		else if (frame->module[0])
			fprintf(to, " (%s)", frame->module);
	}
	if (to && fclose(to)) {
		free(text);
		return NULL;
	}
	return text;
}

/* Write stack @id as member @name. Its text is kept, up to KEPT_MOST bytes of all texts, because many events share a
 * stack. */
static void put_stack(struct chrome *c, const char *name, int64_t id)
{
	char *text, *made = NULL;

	if (id <= 0 || (uint64_t)id >= c->stacks->count)
		return;
	text = c->texts[id];
	if (!text)
		text = made = stack_text(c->stacks, id);
	if (!text)
		return;
	gm_writer_put_string(c->writer, name, text);
	if (made && c->kept + strlen(made) < KEPT_MOST) {
		c->kept += strlen(made);
		c->texts[id] = made;
	} else {
		free(made);
	}
}

static void begin_slice(struct chrome *c, const char *phase, size_t number, int64_t thread, int64_t time_us)
{
	const struct gm_life *life = &c->lives->list[number];
	char site[640], id[40], device[64];

	begin_event(c, phase, gm_site_text(c->stacks, life->stack, site, sizeof(site)), time_us);
	gm_writer_put_int(c->writer, "tid", thread);
	gm_writer_put_string(c->writer, "cat", name_of(life->device, "", device));
	/* The id contains the process's number, because several traces may be shown together. */
	snprintf(id, sizeof(id), "0x%llx%08llx", (unsigned long long)c->pid, (unsigned long long)number);
	gm_writer_put_string(c->writer, "id", id);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
}

static void begin_life(struct chrome *c, size_t number, int64_t time_us)
{
	const struct gm_life *life = &c->lives->list[number];
	char hex[24];

	begin_slice(c, "b", number, life->thread, time_us);
	gm_writer_put_int(c->writer, "bytes", life->size);
	snprintf(hex, sizeof(hex), "0x%llx", (unsigned long long)life->address);
	gm_writer_put_string(c->writer, "address", hex);
	gm_writer_put_string(c->writer, "kind", life->kind);
	snprintf(hex, sizeof(hex), "0x%llx", (unsigned long long)life->stream);
	gm_writer_put_string(c->writer, "stream", hex);
	gm_writer_put_string(c->writer, "module", gm_show_module_path(c->root, life->module));
	if (life->born == GM_LIFE_BEFORE)
		gm_writer_put_string(c->writer, "allocated", "before the history");
	if (life->died == GM_LIFE_LIVE)
		gm_writer_put_string(c->writer, "freed", "not before the snapshot");
	put_stack(c, "stack", life->stack);
	end_args_and_event(c);
}

/* @row ended life @number; NULL: no row did, and the slice ends with the trace. */
static void end_life(struct chrome *c, size_t number, const struct gm_row *row)
{
	begin_slice(c, "e", number, row ? row->thread : c->lives->list[number].thread, row ? row->time_us : c->end_us);
	if (row && strcmp(row->action, "alloc"))
		put_stack(c, "freed by", row->stack);
	end_args_and_event(c);
}

static void put_oom(struct chrome *c, const struct gm_row *row)
{
	begin_event(c, "i", "out of memory", row->time_us);
	gm_writer_put_string(c->writer, "s", "p");
	gm_writer_put_int(c->writer, "tid", row->thread);
	gm_writer_put_begin(c->writer, "args", GM_WRITER_DICT);
	gm_writer_put_int(c->writer, "requested", row->size);
	gm_writer_put_int(c->writer, "free", (int64_t)row->address);
	put_stack(c, "stack", row->stack);
	end_args_and_event(c);
}

/* @born, @died: the number + 1 of the life that begins or ends at @row; 0: none. */
static void put_row(struct chrome *c, const struct gm_row *row, size_t born, size_t died)
{
	struct counters *of = device_of(c, row->device);

	if (!of)
		return;
	if (died) {
		end_life(c, died - 1, row);
		add(&of->live[kind_of(c, row->kind)], gm_wrap_subtract(0, c->lives->list[died - 1].size));
	}
	if (born) {
		begin_life(c, born - 1, row->time_us);
		add(&of->live[kind_of(c, row->kind)], c->lives->list[born - 1].size);
	}
	if (born || died)
		put_live(c, row->device, row->time_us);
	if (reserved_change(row)) {
		add(&of->reserved, reserved_change(row));
		put_reserved(c, row->device, row->time_us);
	}
	if (!strcmp(row->action, "oom"))
		put_oom(c, row);
}

/* Write all lives and counters in order of time. A life from before the history begins with the history; otherwise the
 * oldest allocation would stretch the trace. */
static int put_rows(struct chrome *c)
{
	const struct gm_lives *lives = c->lives;
	size_t *born = calloc(lives->row_count + 1, sizeof(*born)), *died = calloc(lives->row_count + 1, sizeof(*died));
	int r = born && died ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < lives->count; i++) {
		const struct gm_life *life = &lives->list[i];

		if (life->born == GM_LIFE_BEFORE)
			begin_life(c, i, c->origin_us);
		else
			born[life->born] = i + 1;
		if (life->died < lives->row_count)
			died[life->died] = i + 1;
	}
	for (size_t i = 0; !r && i < lives->row_count; i++)
		put_row(c, &lives->rows[i], born[i], died[i]);
	for (size_t i = 0; !r && i < lives->count; i++)
		if (lives->list[i].died >= lives->row_count)
			end_life(c, i, NULL);
	free(born);
	free(died);
	return r;
}

/* ---- annotations ------------------------------------------------------------------------------ */

#define TRACKS_FROM 1073741824		/* above every thread's number */

/* Ranges nest only within one thread and one domain. So each domain, except the default one, has its own track for each
 * thread. */
struct tracks {
	struct gm_values *texts;
	struct gm_table numbers;	/* (thread, domain) -> track - TRACKS_FROM + 1 */
	struct gm_table depths;		/* (track, 0) -> number of open ranges + 1; 0: the track is new */
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

/* Name a domain's track the first time that the track is met. A thread's own track keeps the name that another tool
 * gave it. */
static void name_track(struct chrome *c, struct tracks *t, const json_t *one, int64_t track)
{
	char name[400];

	if (gm_table_get(&t->depths, (uint64_t)track, 0))
		return;
	t->failed |= gm_table_put(&t->depths, (uint64_t)track, 0, 1) != 0;
	if (track < TRACKS_FROM)
		return;
	snprintf(name, sizeof(name), "thread %lld, %.300s", (long long)gm_json_number(one, "thread"),
		 gm_json_text(one, "domain"));
	put_name(c, &track, gm_show_repair(name));
}

/* Write the start ("b") or end ("e") of a range that need not nest and may end in another thread. */
static void put_async(struct chrome *c, const json_t *one, bool start, int64_t time_us)
{
	const char *domain = gm_json_text(one, "domain");
	char id[24];

	snprintf(id, sizeof(id), "0x%llx", (unsigned long long)gm_json_number(one, "range"));
	begin_event(c, start ? "b" : "e", gm_json_text(one, "name"), time_us);
	gm_writer_put_int(c->writer, "tid", gm_json_number(one, "thread"));
	gm_writer_put_string(c->writer, "cat", domain[0] ? domain : "ranges");
	gm_writer_put_string(c->writer, "id", id);
	gm_writer_end(c->writer);
}

static void put_nested(struct chrome *c, struct tracks *t, const json_t *one, const char *stage, int64_t time_us)
{
	bool start = !strcmp(stage, "START"), end = !strcmp(stage, "END");
	int64_t track = track_of(t, one);
	uint64_t depth;

	name_track(c, t, one, track);
	depth = gm_table_get(&t->depths, (uint64_t)track, 0);
	/* The range began before the trace: one slice from the trace's beginning on. */
	if (end && depth <= 1) {
		begin_event(c, "X", gm_json_text(one, "name"), c->origin_us);
		gm_writer_put_int(c->writer, "dur",
				  time_us > c->origin_us ? gm_wrap_subtract(time_us, c->origin_us) : 0);
	} else {
		begin_event(c, start ? "B" : end ? "E" : "i", gm_json_text(one, "name"), time_us);
	}
	gm_writer_put_int(c->writer, "tid", track);
	if (!start && !end)
		gm_writer_put_string(c->writer, "s", "t");
	gm_writer_end(c->writer);
	if (start || (end && depth > 1))
		t->failed |= gm_table_put(&t->depths, (uint64_t)track, 0,
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
		int64_t time_us = gm_json_number(one, "time_us");

		if (tracks.failed)
			break;
		if (!mark && gm_json_number(one, "range"))
			put_async(c, one, !strcmp(stage, "START"), time_us);
		else
			put_nested(c, &tracks, one, stage, time_us);
	}
	gm_table_free(&tracks.numbers);
	gm_table_free(&tracks.depths);
	return tracks.failed ? -ENOMEM : 0;
}

/* Find the process's number and the times at which the trace begins and ends; name the process. */
static void describe(struct chrome *c)
{
	const json_t *first = json_array_get(gm_json_list(c->root, "annotations"), 0);
	const json_t *process = gm_json_object(c->root, "process");
	int64_t noted = gm_json_number(first, "time_us"), at = gm_json_number(c->root, "time_us");
	const char *name = gm_json_text(process, "command");

	c->origin_us = c->lives->row_count ? c->lives->rows[0].time_us : first ? noted : at;
	if (first && noted < c->origin_us)
		c->origin_us = noted;
	c->end_us = c->lives->row_count ? c->lives->rows[c->lives->row_count - 1].time_us : c->origin_us;
	c->end_us = at > c->end_us ? at : c->end_us;
	c->pid = gm_json_number(process, "pid");
	c->pid = c->pid > 0 && c->pid <= INT32_MAX ? c->pid : 1;	/* PyTorch's snapshots have none */
	put_name(c, NULL, name[0] ? name : "gpumem");
}

static int write_all(struct chrome *c, const struct gm_snapshot *snapshot)
{
	int r;

	gm_writer_begin(c->writer, GM_WRITER_DICT);
	gm_writer_put_string(c->writer, "displayTimeUnit", "ms");
	/* Times count from 1970; PyTorch's profiler says so in the same member. */
	gm_writer_put_int(c->writer, "baseTimeNanoseconds", 0);
	gm_writer_put_begin(c->writer, "traceEvents", GM_WRITER_LIST);
	describe(c);
	start(c, snapshot);
	for (int d = GM_ROW_HOST; d < DEVICES; d++)
		if (c->devices[d + 1].any) {
			put_live(c, d, c->origin_us);
			put_reserved(c, d, c->origin_us);
		}
	r = put_rows(c);
	if (!r)
		r = put_annotations(c, snapshot);
	gm_writer_end(c->writer);
	gm_writer_end(c->writer);
	return r;
}

int gm_convert_chrome(FILE *out, struct gm_loaded *loaded, char note[256])
{
	struct chrome c = { .devices = calloc(DEVICES + 1, sizeof(*c.devices)), .writer = gm_writer_open(out, false) };
	struct gm_scene scene;
	int r = gm_scene_open(&scene, &loaded->snapshot), end;

	c.texts = r ? NULL : calloc(scene.stacks.count + 1, sizeof(*c.texts));
	if (!r) {
		c.stacks = &scene.stacks;
		c.lives = &scene.lives;
		c.root = loaded->snapshot.root;
		r = c.devices && c.writer && c.texts ? write_all(&c, &loaded->snapshot) : -ENOMEM;
		if (!c.lives->row_count)
			snprintf(note, 256, GM_CONVERT_NO_EVENTS);
	}
	for (size_t i = 0; c.texts && i < scene.stacks.count; i++)
		free(c.texts[i]);
	free(c.texts);
	if (c.stacks)
		gm_scene_close(&scene);
	free(c.devices);
	end = c.writer ? gm_writer_close(c.writer) : -ENOMEM;
	return r ? r : end;
}
