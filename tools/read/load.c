/*
 * load.c - load the input of a verb as a snapshot: see load.h.
 */
#define _GNU_SOURCE
#include "tools/read/load.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/snapshot/jsonw.h"
#include "recorder/snapshot/snapshot.h"
#include "tools/read/attach.h"
#include "tools/read/input.h"
#include "tools/read/documents.h"
#include "tools/read/table.h"
#include "tools/torch/torch.h"

__attribute__((format(printf, 2, 3)))
static int refuse(struct gm_loaded *ret, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(ret->error, sizeof(ret->error), format, args);
	va_end(args);
	return -EBADMSG;
}

/* Return why @source is no snapshot, if it is something that users mistake for one; else NULL. */
static const char *mistaken(const struct gm_source *source)
{
	static const struct { const char *begins, *why; } known[] = {
		{ "\x1f\x8b", "compressed: name <(zcat FILE) in its place" },
		{ "\x28\xb5\x2f\xfd", "compressed: name <(zstdcat FILE) in its place" },
		{ "\xfd" "7zXZ", "compressed: name <(xzcat FILE) in its place" },
		{ "GPUMJNL1", "a journal, which is read from a file only: name it" },
		{ "PK\x03\x04", "a zip archive, not a snapshot" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (source->have >= strlen(known[i].begins) &&
		    !memcmp(source->bytes, known[i].begins, strlen(known[i].begins)))
			return known[i].why;
	return NULL;
}

/* Make a snapshot of the tree @root. With GM_LOAD_AS_SAID keep a tree of PyTorch's instead. */
static int understand(struct gm_values *values, const struct gm_value *root, bool pickle, struct gm_loaded *ret)
{
	bool torch = !gm_value_get(root, "format") &&
		     (gm_value_list(root, "segments") || gm_value_list(root, "device_traces"));
	int r;

	if (ret->what == GM_LOAD_AS_SAID && torch) {
		ret->from = GM_LOADED_TORCH;
		ret->torch = root;
		ret->values = values;
		return 0;
	}
	r = gm_snapshot_read(&ret->snapshot, values, root, pickle, &torch, ret->error, sizeof(ret->error));
	if (r || !torch)
		return r;
	ret->from = GM_LOADED_TORCH;
	return gm_torch_finish(&ret->snapshot);
}

static int parse(struct gm_source *source, struct gm_loaded *ret)
{
	const struct gm_value *root = NULL;
	struct gm_values *values;
	bool pickle;
	int r;

	gm_source_more(source, 1, 0);
	if (!source->have)
		return source->error ? source->error :
			refuse(ret, "%s", gm_input_nothing(source->fd));
	if (mistaken(source))
		return refuse(ret, "%s", mistaken(source));
	values = gm_values_open();
	if (!values)
		return -ENOMEM;
	pickle = (unsigned char)source->bytes[0] == 0x80;
	r = (pickle ? gm_pickle_read : gm_json_read)(values, source, &root, ret->error, sizeof(ret->error));
	if (!r)
		return understand(values, root, pickle, ret);
	gm_values_close(values);
	if (source->error) {
		ret->error[0] = '\0';
		r = source->error;
	}
	return r;
}

static bool begins_as_journal(int fd)
{
	uint64_t magic;

	return pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) && magic == GM_MAGIC;
}

static int load_document(int fd, struct gm_loaded *ret)
{
	struct gm_source source;
	int r = gm_source_open(&source, fd);

	if (r)
		return r;
	r = parse(&source, ret);
	gm_source_close(&source);
	if (r)
		gm_load_free(ret);
	return r;
}

/* ---- a journal -------------------------------------------------------------------------------- */

/* Builds a tree of the values that the library's JSON writer passes to a sink instead of writing text. The tree is the
 * one that gm_json_read would make of that text. */
struct planting {
	struct gm_jsonw_sink sink;
	struct gm_building tree;
	struct { size_t floor; bool dict, numbers; } open[GM_JSONW_DEPTH + 1];	/* @numbers: only numbers so far */
	unsigned int depth;
	struct gm_snapshot_block *blocks;	/* of the innermost list, if it has only blocks */
	size_t block_count;
};

/* Make a value of @text. U+FFFD replaces bytes that are not UTF-8, as in the JSON writer's text. */
static const struct gm_value *text_value(struct gm_values *values, const char *text, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)text;
	const struct gm_value *value;
	size_t good = 0, used, length;
	unsigned int bad;
	char *repaired;

	while (good < bytes && (length = gm_value_letter(at + good, bytes - good)))
		good += length;
	if (good == bytes)
		return gm_value_text(values, text, bytes);
	repaired = malloc(3 * bytes);	/* each bad byte becomes three */
	if (!repaired)
		return NULL;
	memcpy(repaired, text, good);
	used = good;
	for (size_t i = good; i < bytes; i += length ? length : bad) {
		length = at[i] < 0x80 ? 1 : gm_utf8_length(at + i, bytes - i, &bad);
		memcpy(repaired + used, length ? text + i : "\xef\xbf\xbd", length ? length : 3);
		used += length ? length : 3;
	}
	value = gm_value_text(values, repaired, used);
	free(repaired);
	return value;
}

static const struct gm_value *word_value(struct gm_values *values, const char *text, size_t bytes)
{
	char number[64];

	if (*text == 'n')
		return gm_value_null();
	if (*text == 't' || *text == 'f')
		return gm_value_bool(*text == 't');
	snprintf(number, sizeof(number), "%.*s", (int)bytes, text);
	return gm_value_real(values, strtod(number, NULL));
}

static int add_block(struct planting *p, const struct gm_snapshot_block *from)
{
	struct gm_snapshot_block *block = gm_list_add(&p->blocks, &p->block_count, sizeof(*block));
	const struct gm_value *name = *from->name ? text_value(p->tree.values, from->name, strlen(from->name)) : NULL;

	if (!block || (*from->name && !name))
		return -ENOMEM;
	*block = *from;
	block->name = name ? name->u.text : "";
	return 0;
}

static int end_blocks(struct planting *p)
{
	size_t count = p->block_count;

	p->block_count = 0;
	return gm_build_add(&p->tree, gm_value_blocks(p->tree.values, p->blocks, count));
}

static int end_container(struct planting *p)
{
	size_t floor = p->open[p->depth].floor;
	bool numbers = p->open[p->depth].numbers && p->tree.count > floor;

	if (!p->depth--)
		return -EINVAL;
	if (p->block_count)
		return end_blocks(p);
	return numbers ? gm_build_numbers(&p->tree, floor) :
			 gm_build_end(&p->tree, floor, p->open[p->depth + 1].dict);
}

static int plant(struct gm_jsonw_sink *sink, char type, const char *text, int64_t number)
{
	struct planting *p = (struct planting *)sink;
	struct gm_building *tree = &p->tree;

	if (type == '}')
		return end_container(p);
	if (type == 'b')
		return add_block(p, (const void *)text);
	if (type == 'i' && p->open[p->depth].numbers) {
		if (gm_build_room(tree))
			return -ENOMEM;
		tree->stack[tree->count++].number = number;
		return 0;
	}
	if (p->open[p->depth].numbers && gm_build_unpack(tree, p->open[p->depth].floor))
		return -ENOMEM;
	p->open[p->depth].numbers = false;
	if (type == 'i')
		return gm_build_add(tree, gm_value_int(tree->values, number));
	if (type == 's')
		return gm_build_add(tree, text_value(tree->values, text, (size_t)number));
	if (type == 'r')
		return gm_build_add(tree, word_value(tree->values, text, (size_t)number));
	if (p->depth == GM_JSONW_DEPTH)
		return -EINVAL;
	p->depth++;
	p->open[p->depth].floor = tree->count;
	p->open[p->depth].dict = type == '{';
	p->open[p->depth].numbers = type == '[';
	return 0;
}

/* Build the tree of @copy in @values. The time of a living process's snapshot is now, and not the time of the last
 * event. */
static int plant_copy(const struct gm_copy *copy, bool alive, enum gm_emit what, struct gm_values *values,
		      const struct gm_value **ret_root)
{
	struct planting p = { .sink.take = plant, .tree.values = values };
	struct gm_snapshot_request request = {
		.what = what, .reason = alive ? "outside" : "recovered", .recovered = !alive, .sink = &p.sink
	};
	struct timespec now;
	int r;

	if (alive && !clock_gettime(CLOCK_REALTIME, &now))
		request.time_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
	r = gm_snapshot_emit(copy, &request, -1);
	if (!r)
		*ret_root = p.tree.stack[0].value;
	free(p.tree.stack);
	free(p.blocks);
	return r;
}

/* Count all events that were written as dropped, because a copy without events does not know how many are left. */
static void count_events(struct gm_copy *copy)
{
	const struct gm_thread *thread = (const void *)
		(copy->base + copy->header->regions[GM_REGION_THREADS].offset);

	copy->dropped_total = copy->header->events_lost;
	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_THREADS); i++)
		copy->dropped_total += thread[i].events;
}

/* Build the tree of a journal. The copy is freed before the snapshot is made of the tree, because both are large. */
static int read_journal(int fd, bool alive, uint64_t bytes, struct gm_values *values, const struct gm_value **ret_root,
			struct gm_loaded *ret)
{
	enum gm_emit what = !alive ? GM_EMIT_ALL : ret->what == GM_LOAD_TABLES ? GM_EMIT_TABLES :
			    ret->what == GM_LOAD_STACKS ? GM_EMIT_STACKS : GM_EMIT_ALL;
	bool tables = what != GM_EMIT_ALL;
	struct gm_copy copy;
	int r;

	gm_limit_input(0, (int64_t)bytes);
	r = tables ? gm_copy_tables(&copy, fd) : gm_copy_from_file(&copy, fd);
	if (r)
		r = refuse(ret, "%s", copy.error);
	else
		r = gm_copy_resolve(&copy, tables ? 0 : UINT64_MAX);
	if (!r && tables)
		count_events(&copy);
	if (!r)
		r = plant_copy(&copy, alive, what, values, ret_root);
	gm_copy_free(&copy);
	gm_limit_input(0, -(int64_t)bytes);
	if (r == -EBADMSG && !ret->error[0])
		refuse(ret, "damaged: its snapshot would be out of all proportion");
	return r;
}

static int load_journal(int fd, bool alive, struct gm_loaded *ret)
{
	struct gm_values *values = gm_values_open();
	const struct gm_value *root = NULL;
	uint64_t bytes = 0;
	struct stat st;
	int r;

	if (!values)
		return -ENOMEM;
	if (!fstat(fd, &st)) {
		gm_limit_input((uint64_t)st.st_blocks * 512, 0);
		/* Copy as many bytes as the file has, but no more than the longest journal. */
		bytes = (uint64_t)st.st_size < gm_copy_longest() ? (uint64_t)st.st_size : gm_copy_longest();
	}
	r = read_journal(fd, alive, bytes, values, &root, ret);
	if (r)
		gm_values_close(values);
	else
		r = understand(values, root, false, ret);
	if (r)
		gm_load_free(ret);
	ret->from = alive ? GM_LOADED_PROCESS : GM_LOADED_JOURNAL;
	return r;
}

static int load_file(const char *path, struct gm_loaded *ret)
{
	int fd = gm_input_open(path, ret->error, sizeof(ret->error)), r;

	if (fd == -EISDIR)
		return refuse(ret, "a directory: name a snapshot or a journal in it");
	if (fd < 0)
		return fd;
	if (begins_as_journal(fd))
		r = load_journal(fd, gm_copy_alive(fd) != 0, ret);	/* if unknown, as if alive */
	else
		r = load_document(fd, ret);
	close(fd);
	return r;
}

static int load_attached(int64_t pid, const struct gm_attached *attached, struct gm_loaded *ret)
{
	ret->pid = pid;
	return load_journal(attached->fd, true, ret);
}

static int load_process(int64_t pid, struct gm_loaded *ret)
{
	struct gm_attached attached;
	int r = gm_attach(pid, &attached);

	if (r) {
		refuse(ret, "process %lld: %s", (long long)pid, gm_attach_explain(pid, r));
		return r;
	}
	r = load_attached(pid, &attached, ret);
	close(attached.fd);
	return r;
}

static int load_number(const char *word, struct gm_loaded *ret)
{
	char *end;
	long pid = strtol(word, &end, 10);

	return *end || pid <= 0 ? -ENOENT : load_process(pid, ret);
}

/* Set the error text for the result @r, unless it is set already. Returns @r. */
static int explained(int r, struct gm_loaded *ret)
{
	if (r && !ret->error[0])
		snprintf(ret->error, sizeof(ret->error), "%s", gm_limit_why(r));
	return r;
}

int gm_load(const char *word, enum gm_load what, struct gm_loaded *ret)
{
	int r;

	*ret = (struct gm_loaded){ .what = what };
	if (!strcmp(word, "-") && begins_as_journal(STDIN_FILENO))
		r = load_journal(STDIN_FILENO, gm_copy_alive(STDIN_FILENO) != 0, ret);
	else if (!strcmp(word, "-"))
		r = load_document(STDIN_FILENO, ret);
	else
		r = load_file(word, ret);
	if (r == -ENOENT && word[0] >= '0' && word[0] <= '9') {
		ret->error[0] = '\0';
		r = load_number(word, ret);
	}
	return explained(r, ret);
}

int gm_load_process(int64_t pid, const struct gm_attached *attached, enum gm_load what, struct gm_loaded *ret)
{
	*ret = (struct gm_loaded){ .what = what };
	return explained(attached ? load_attached(pid, attached, ret) : load_process(pid, ret), ret);
}

void gm_load_free(struct gm_loaded *loaded)
{
	gm_snapshot_free(&loaded->snapshot);
	gm_values_close(loaded->values);
	loaded->values = NULL;
	loaded->torch = NULL;
}
