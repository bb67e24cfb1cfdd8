/*
 * trace.c - read a trace; compute the bytes that any heap needs for it: see replay.h. One thread.
 */
#include "tools/replay/replay.h"

#include "preload/options/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "tools/read/input.h"
#include "tools/read/table.h"
#include "tools/show/show.h"

#define COMMENTS_MOST 10000u	/* before the first line of a trace */

static int fail(struct gm_trace *trace, uint32_t number, const char *what)
{
	snprintf(trace->error, sizeof(trace->error), "line %u: %s", number, what);
	return -EINVAL;
}

/* Set line->id, the dense id of @id in the file: a new one for an allocation, else the one that @id has. Return 0,
 * -EINVAL or -ENOMEM. */
static int resolve(struct gm_trace *trace, struct gm_table *ids, uint64_t id, struct gm_trace_line *line)
{
	uint64_t known;

	if (line->op == GM_TRACE_ALLOC) {	/* an id may be used again */
		line->id = trace->ids++;
		return gm_table_put(ids, id, 0, line->id + 1);
	}
	known = gm_table_get(ids, id, 0);
	if (!known)
		return fail(trace, line->number, "frees an ID that was never allocated");
	line->id = known - 1;
	return 0;
}

/* Parse a line that begins with '#': a setting, a call of the driver, or a comment. Return 1 if @line belongs in the
 * trace, else 0. */
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
		gm_show_repair(trace->conf);	/* it ends up in JSON */
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

/* Return 1 if @line belongs in the trace, else 0, -EINVAL or -ENOMEM. */
static int parse(struct gm_trace *trace, struct gm_table *ids, const char *text,
		 struct gm_trace_line *line)
{
	unsigned long long id = 0, bytes = 0, stream = 0, address = 0;
	int r;

	errno = 0;
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
	if (errno == ERANGE || strchr(text, '-'))	/* sscanf would wrap a negative number */
		return fail(trace, line->number, "a number that is below 0 or above 2^64 - 1");
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
		r = fail(trace, number, "it unpacks to more than 64 MiB and a hundred times its size: "
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
	char text[2048] = "#";
	size_t comments = 0;

	for (; file && strchr("#\r\n", text[0]) && gzgets(file, text, sizeof(text)); comments++)
		if (comments > COMMENTS_MOST)
			break;
	if (file)
		gzclose(file);
	text[strcspn(text, "\r\n")] = '\0';
	if (text[0] == '#' || !text[0])	/* only comments and empty lines so far */
		return comments > 0;
	return !strcmp(text, "e") || (text[0] && strchr("arf", text[0]) && text[1] == ' ' && text[2] >= '0' &&
				      text[2] <= '9');
}

/* ---- the bytes that a trace needs ---- */

/* The bytes that a stream held from one line on; its index is the number of that line in the trace, from 1. Each stream
 * has a list of peaks with falling bytes. The first peak is the most that the stream held within the last @lag
 * operations. */
struct peak { uint64_t bytes; uint32_t before, after; };

struct stream { uint64_t bytes; uint32_t first, last; };	/* bytes now; its list of peaks */

struct needs {
	struct peak *peaks;
	struct stream *streams;
	size_t streams_count;
	uint64_t now;			/* the sum of all streams' first peaks */
};

/* Let stream @s hold @by more bytes (modulo 2^64) from line @at on. */
static void hold(struct needs *needs, struct stream *s, uint32_t at, uint64_t by)
{
	struct peak *peaks = needs->peaks;
	uint64_t before = peaks[s->first].bytes;

	s->bytes += by;
	/* Peaks that are not higher than the new one end; it begins where the first of them began. */
	for (; s->last && peaks[s->last].bytes <= s->bytes; s->last = peaks[at].before)
		at = s->last;
	peaks[at] = (struct peak){ s->bytes, s->last, 0 };
	if (s->last)
		peaks[s->last].after = at;
	else
		s->first = at;
	s->last = at;
	needs->now += peaks[s->first].bytes - before;
}

/* Drop the peaks of stream @s that ended before line @at. */
static void forget(struct needs *needs, struct stream *s, uint32_t at)
{
	struct peak *peaks = needs->peaks;

	for (uint32_t next; (next = peaks[s->first].after) && next <= at; s->first = next) {
		needs->now -= peaks[s->first].bytes - peaks[next].bytes;
		peaks[next].before = 0;
	}
}

/* Return the number of @stream, from 1; 0: out of memory. */
static uint32_t number_of(struct needs *needs, struct gm_table *numbers, uint64_t stream)
{
	uint64_t number = gm_table_get(numbers, stream, 0);
	struct stream *own;

	if (number)
		return (uint32_t)number;
	own = gm_list_add(&needs->streams, &needs->streams_count, sizeof(*own));
	if (!own || gm_table_put(numbers, stream, 0, needs->streams_count))
		return 0;
	*own = (struct stream){ .bytes = 0 };
	return (uint32_t)needs->streams_count;
}

int gm_trace_needs(const struct gm_trace *trace, uint64_t lag, uint64_t *ret_bytes, uint64_t *ret_streams)
{
	struct block { uint64_t bytes; uint32_t stream; } *blocks = calloc((size_t)trace->ids + 1, sizeof(*blocks));
	uint32_t *stream_at = calloc(trace->count + 1, sizeof(*stream_at));	/* by line: its stream's number */
	struct needs needs = { .peaks = calloc(trace->count + 1, sizeof(*needs.peaks)) };
	struct gm_table numbers = { NULL, 0, 0 };
	int r = !blocks || !stream_at || !needs.peaks ? -ENOMEM : trace->count >= UINT32_MAX ? -E2BIG : 0;

	*ret_bytes = 0;
	for (uint32_t at = 1; !r && at <= trace->count; at++) {
		const struct gm_trace_line *line = &trace->lines[at - 1];
		struct block *block = &blocks[line->id];
		uint64_t by = 0;

		if (line->op == GM_TRACE_ALLOC && line->bytes && line->bytes < GM_HEAP_REQUEST_LIMIT) {
			by = (line->bytes + GM_GRANULE - 1) & ~(GM_GRANULE - 1);
			*block = (struct block){ by, number_of(&needs, &numbers, line->stream) };
			r = block->stream ? 0 : -ENOMEM;
		} else if (line->op == GM_TRACE_COMPLETE || line->op == GM_TRACE_FREE) {
			by = -block->bytes;
			block->bytes = 0;
		}
		if (!r && by) {
			stream_at[at] = block->stream;
			hold(&needs, &needs.streams[block->stream - 1], at, by);
		}
		if (!r && at > lag && stream_at[at - lag])
			forget(&needs, &needs.streams[stream_at[at - lag] - 1], at - (uint32_t)lag);
		*ret_bytes = needs.now > *ret_bytes ? needs.now : *ret_bytes;
	}
	*ret_streams = needs.streams_count;
	gm_table_free(&numbers);
	free(needs.streams);
	free(needs.peaks);
	free(stream_at);
	free(blocks);
	return r;
}

void gm_trace_free(struct gm_trace *trace)
{
	free(trace->lines);
	trace->lines = NULL;
	trace->count = 0;
}

/* Return the last value of @key in @conf, "KEY:VALUE,..."; NULL: none. It ends at a comma or the end of @conf. */
static const char *value_in(const char *conf, const char *key)
{
	const char *found = NULL;
	size_t length = strlen(key);

	for (const char *at = strstr(conf, key); at; at = strstr(at + 1, key))
		if ((at == conf || at[-1] == ',') && at[length] == ':')
			found = at + length + 1;
	return found;
}

int gm_trace_config(struct gm_heap_config *ret, const struct gm_trace *trace, const char *conf, bool others,
		    char *ret_error)
{
	const char *part = value_in(conf, "shared_segments");
	double shared = part ? strtod(part, NULL) : trace->shared_segments;
	int r = gm_options_heap_parse(ret, conf, others, ret_error);

	if (trace->device_bytes && shared < 1)
		ret->shared_most = (uint64_t)(shared * (double)trace->device_bytes);
	if (strstr(conf, GM_WOULD_EXPANDABLE))
		ret->class = &gm_pages_class;
	return r;
}
