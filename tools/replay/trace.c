/*
 * trace.c - reading a recorded history of allocations: see replay.h.
 */
#include "tools/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "tools/read/input.h"
#include "tools/read/table.h"

static int fail(struct gm_trace *trace, uint32_t number, const char *what)
{
	snprintf(trace->error, sizeof(trace->error), "line %u: %s", number, what);
	return -EINVAL;
}

/* The dense id of @id in the file: a new one for an allocation, the known one otherwise. */
static int resolve(struct gm_trace *trace, struct gm_table *ids, uint64_t id, struct gm_trace_line *line)
{
	uint64_t known;

	if (line->op == GM_TRACE_ALLOC) {	/* an id may be used again */
		line->id = trace->ids++;
		return gm_table_put(ids, id, 0, line->id + 1);
	}
	known = gm_table_get(ids, id, 0);
	if (!known)
		return fail(trace, line->number, "frees what was never allocated");
	line->id = known - 1;
	return 0;
}

/* A line that begins with '#': a setting, a call of the driver, or a comment. 1: keep @line. */
static int comment(struct gm_trace *trace, const char *text, struct gm_trace_line *line)
{
	static const struct { const char *name; enum gm_trace_op op; } calls[] = {
		{ "segment_alloc", GM_TRACE_SEGMENT_ALLOC },
		{ "segment_free", GM_TRACE_SEGMENT_FREE }, { "oom", GM_TRACE_OOM }
	};
	unsigned long long bytes, stream, address = 0;
	char name[32];
	int fields;

	if (!strncmp(text, "# conf=", 7)) {
		snprintf(trace->conf, sizeof(trace->conf), "%s", text + 7);
		return 0;
	}
	if (!strncmp(text, "# memory_limit_bytes=", 21)) {
		trace->memory_limit_bytes = strtoull(text + 21, NULL, 10);
		return 0;
	}
	fields = sscanf(text, "# %31s %llu %llu %llx", name, &bytes, &stream, &address);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (fields >= 3 && !strcmp(name, calls[i].name)) {
			line->op = (uint8_t)calls[i].op;
			line->bytes = bytes;
			line->stream = stream;
			line->address = address;
			return 1;
		}
	return 0;
}

static int parse(struct gm_trace *trace, struct gm_table *ids, const char *text,
		 struct gm_trace_line *line)
{
	unsigned long long id = 0, bytes = 0, stream = 0, address = 0;
	int r;

	switch (text[0]) {
	case '\0':
		return 0;
	case '#':
		return comment(trace, text, line);
	case 'a':
		line->op = GM_TRACE_ALLOC;
		if (sscanf(text, "a %llu %llu %llu %llx", &id, &bytes, &stream, &address) < 3)
			return fail(trace, line->number, "expected: a ID BYTES STREAM ADDRESS");
		break;
	case 'r':
	case 'f':
		line->op = text[0] == 'r' ? GM_TRACE_REQUEST : GM_TRACE_COMPLETE;
		if (sscanf(text + 1, " %llu", &id) != 1)
			return fail(trace, line->number, "expected an id");
		break;
	case 'e':
		line->op = GM_TRACE_EMPTY;
		return 1;
	default:
		return fail(trace, line->number, "is not a line of a trace");
	}
	line->bytes = bytes;
	line->stream = stream;
	line->address = address;
	r = resolve(trace, ids, id, line);
	return r ? r : 1;
}

int gm_trace_read(struct gm_trace *trace, const char *path)
{
	struct gm_table ids = { NULL, 0, 0 };
	char text[2048];
	uint32_t number = 0;
	uint64_t text_bytes = 0, most = UINT64_MAX;
	struct stat st;
	gzFile file;
	int r = 0, status;

	memset(trace, 0, sizeof(*trace));
	errno = 0;
	file = gzopen(path, "rb");
	if (!file)
		return errno ? -errno : -ENOMEM;
	if (!stat(path, &st)) {
		gm_limit_input((uint64_t)st.st_size, 0);
		most = gzdirect(file) ? UINT64_MAX : gm_limit_unpacked((uint64_t)st.st_size);
	}
	while (r >= 0 && text_bytes <= most && gzgets(file, text, sizeof(text))) {
		struct gm_trace_line line = { .number = number + 1 }, *kept;

		number++;
		text_bytes += strlen(text);
		if (!strchr(text, '\n') && !gzeof(file)) {
			r = fail(trace, number, "is too long");
			break;
		}
		text[strcspn(text, "\r\n")] = '\0';
		r = parse(trace, &ids, text, &line);
		if (r != 1)
			continue;
		kept = gm_list_add(&trace->lines, &trace->count, sizeof(*kept));
		if (kept)
			*kept = line;
		r = kept ? 0 : -ENOMEM;
	}
	if (r >= 0 && text_bytes > most)
		r = fail(trace, number, "a hundred times what is packed has come of it, and 64 MiB: "
			 "--no-limit is for who means it");
	gzerror(file, &status);
	if (r >= 0 && status != Z_OK && status != Z_STREAM_END)
		r = fail(trace, number, "the compressed data is damaged");
	gzclose(file);
	gm_table_free(&ids);
	return r < 0 ? r : 0;
}

bool gm_trace_is(const char *path)
{
	gzFile file = gzopen(path, "rb");
	int first = file ? gzgetc(file) : -1;

	if (file)
		gzclose(file);
	return first > 0 && strchr("#arfe\r\n", first);
}

void gm_trace_free(struct gm_trace *trace)
{
	free(trace->lines);
	trace->lines = NULL;
	trace->count = 0;
}
