/*
 * json_read.c - JSON read as a tree of values: see documents.h. One thread.
 */
#include "tools/read/documents.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"

#define DEPTH 64			/* containers in each other */
#define AHEAD ((size_t)1 << 16)		/* bytes that are there before anything is looked at */

struct reader {
	struct gm_building tree;
	struct gm_values *seen;		/* texts of containers that are lasting */
	struct gm_source *source;
	const char *at, *end;		/* behind @end a NUL, and nothing more if the source is whole */
	struct gm_table lasting;	/* the text of a container that is lasting -> that */
	bool in_frames;			/* each dict that comes next is lasting */
	char *unescaped;		/* a text without its escapes */
	size_t unescaped_room;
	char *error;
	size_t error_room;
};

__attribute__((format(printf, 2, 3)))
static int refuse(struct reader *r, const char *format, ...)
{
	char why[128];
	va_list args;

	if (r->at >= r->end) {
		snprintf(r->error, r->error_room, "cut off: the JSON does not end");
		return -EBADMSG;
	}
	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	snprintf(r->error, r->error_room, "not a snapshot: %s (byte %zu)", why,
		 (size_t)(r->at - r->source->bytes));
	return -EBADMSG;
}

/* Read on in the input. Bytes before @from are not needed any more. */
static bool more(struct reader *r, const char *from, size_t bytes)
{
	bool came = gm_source_more(r->source, (size_t)(r->end - r->source->bytes) + bytes,
				   (size_t)(from - r->source->bytes));

	r->end = r->source->bytes + r->source->have;
	return came;
}

/* Skip white space, and read on until AHEAD bytes are there, if the input has them. */
static void skip_blanks(struct reader *r)
{
	do {
		while (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')
			r->at++;
	} while ((size_t)(r->end - r->at) < AHEAD && !r->source->whole && more(r, r->at, AHEAD));
}

/* ---- texts ------------------------------------------------------------------------------------ */

static int hex4(const char *at)
{
	int value = 0;

	for (int i = 0; i < 4; i++) {
		char c = at[i];
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			    c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	return value;
}

/* Write @code as UTF-8; a lone surrogate becomes three bytes, as with Python's 'surrogatepass'. */
static size_t put_code(char *to, unsigned int code)
{
	if (code < 0x80) {
		to[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		to[0] = (char)(0xc0 | code >> 6);
		to[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		to[0] = (char)(0xe0 | code >> 12);
		to[1] = (char)(0x80 | (code >> 6 & 0x3f));
		to[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | code >> 18);
	to[1] = (char)(0x80 | (code >> 12 & 0x3f));
	to[2] = (char)(0x80 | (code >> 6 & 0x3f));
	to[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

/* What @r->at, behind a backslash, stands for. Returns the bytes written to @to, 0: none. */
static size_t unescape(struct reader *r, char *to)
{
	static const char from[] = "\"\\/bfnrt", stands_for[] = "\"\\/\b\f\n\r\t";
	const char *simple = *r->at ? strchr(from, *r->at) : NULL;
	int code, low;

	if (simple) {
		r->at++;
		*to = stands_for[simple - from];
		return 1;
	}
	code = *r->at == 'u' ? hex4(r->at + 1) : -1;
	if (code < 0)
		return 0;
	r->at += 5;
	if (code >= 0xd800 && code < 0xdc00 && r->at[0] == '\\' && r->at[1] == 'u') {
		low = hex4(r->at + 2);
		if (low >= 0xdc00 && low < 0xe000) {
			r->at += 6;
			code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
		}
	}
	return put_code(to, (unsigned int)code);
}

/* A text with escapes; before @r->at it has none. */
static int read_escaped(struct reader *r, const char *start)
{
	const char *close = r->at;
	size_t length = (size_t)(r->at - start), most;

	for (;;) {
		while (close + 1 < r->end && *close != '"')
			close += *close == '\\' ? 2 : 1;
		if (close < r->end && *close == '"')
			break;
		if (!more(r, start, AHEAD))
			break;
	}
	if (close >= r->end || *close != '"') {
		r->at = r->end;
		return refuse(r, "%s", "");
	}
	most = (size_t)(close - start) + 8;	/* an escape is never shorter than what it stands for */
	if (most > r->unescaped_room) {
		char *larger = realloc(r->unescaped, most);

		if (!larger)
			return -ENOMEM;
		r->unescaped = larger;
		r->unescaped_room = most;
	}
	memcpy(r->unescaped, start, length);
	while (r->at < close) {
		size_t bytes = 1;

		if ((unsigned char)*r->at < 0x20)
			return refuse(r, "a control character in a text");
		if (*r->at == '\\') {
			r->at++;
			bytes = unescape(r, r->unescaped + length);
			if (!bytes)
				return refuse(r, "an escape that is none");
		} else {
			r->unescaped[length] = *r->at++;
		}
		length += bytes;
	}
	r->at = close + 1;
	if (!gm_value_is_text((const unsigned char *)r->unescaped, length))
		return refuse(r, "a text that is not UTF-8");
	return gm_build_add(&r->tree, gm_value_text(r->tree.values, r->unescaped, length));
}

static int read_text(struct reader *r)
{
	const char *start = ++r->at;
	unsigned char all = 0;

	do {
		while ((unsigned char)*r->at >= 0x20 && *r->at != '"' && *r->at != '\\')
			all |= (unsigned char)*r->at++;
	} while (r->at == r->end && more(r, start, AHEAD));
	if (*r->at == '\\')
		return read_escaped(r, start);
	if (*r->at != '"')
		return refuse(r, "a control character in a text");
	if (all & 0x80 && !gm_value_is_text((const unsigned char *)start, (size_t)(r->at - start)))
		return refuse(r, "a text that is not UTF-8");
	r->at++;
	return gm_build_add(&r->tree, gm_value_text(r->tree.values, start, (size_t)(r->at - start) - 1));
}

/* ---- the rest --------------------------------------------------------------------------------- */

static int read_number(struct reader *r)
{
	const char *start = r->at, *digits;
	bool negative = *r->at == '-', large = false;
	uint64_t word = 0;
	char *end;
	double real;

	r->at += negative;
	for (digits = r->at; *r->at >= '0' && *r->at <= '9'; r->at++) {
		if (r->at + 1 == r->end)
			more(r, start, AHEAD);
		large |= word > (UINT64_MAX - (uint64_t)(*r->at - '0')) / 10;
		word = word * 10 + (uint64_t)(*r->at - '0');
	}
	if (r->at == digits || (*digits == '0' && r->at - digits > 1))
		return refuse(r, "a number that is none");
	if (*r->at != '.' && *r->at != 'e' && *r->at != 'E' && !large &&
	    (!negative || word <= (uint64_t)INT64_MAX + 1))
		return gm_build_add(&r->tree, negative ? gm_value_int(r->tree.values, (int64_t)(0 - word)) :
			    gm_value_uint(r->tree.values, word));
	do					/* it ends at the NUL behind the text at the latest */
		real = strtod(start, &end);
	while (end == r->end && more(r, start, AHEAD));
	r->at = end;
	return gm_build_add(&r->tree, gm_value_real(r->tree.values, real));
}

static int read_word(struct reader *r)
{
	static const char *const words[] = { "null", "false", "true" };

	for (int i = 0; i < 3; i++) {
		size_t length = strlen(words[i]);

		if (!strncmp(r->at, words[i], length)) {
			r->at += length;
			return gm_build_add(&r->tree, i ? gm_value_bool(i == 2) : gm_value_null());
		}
		if ((size_t)(r->end - r->at) < length && !strncmp(r->at, words[i], (size_t)(r->end - r->at))) {
			r->at = r->end;
			break;
		}
	}
	return refuse(r, "something that is no JSON");
}

static int read_value(struct reader *r, unsigned int depth);
static int read_container(struct reader *r, unsigned int depth);

static int read_name(struct reader *r)
{
	int err;

	if (*r->at != '"')
		return refuse(r, "a member without a name");
	err = read_text(r);
	if (err)
		return err;
	skip_blanks(r);
	if (*r->at != ':')
		return refuse(r, "a name without a value");
	r->at++;
	skip_blanks(r);
	return 0;
}

/* One integer of at most 18 digits, if that is what is there. */
static bool plain_number(struct reader *r, int64_t *ret)
{
	const char *at = r->at + (*r->at == '-'), *digits = at;
	int64_t number = 0;

	while (*at >= '0' && *at <= '9' && at - digits < 18)
		number = number * 10 + (*at++ - '0');
	if (at == digits || (*at >= '0' && *at <= '9') || (*digits == '0' && at - digits > 1) || *at == '.' ||
	    *at == 'e' || *at == 'E')
		return false;
	*ret = *r->at == '-' ? -number : number;
	r->at = at;
	return true;
}

/*
 * Read a list from behind its '[', as far as its items are integers. Most of a snapshot is lists of integers alone.
 * Such a list takes eight bytes a number, and *@ret_done is true. At the first item of another type the numbers so far
 * become values, and the caller reads on at @r->at.
 */
static int read_numbers(struct reader *r, bool *ret_done)
{
	size_t floor = r->tree.count;
	int64_t number;

	*ret_done = false;
	while (plain_number(r, &number)) {
		if (gm_build_room(&r->tree))
			return -ENOMEM;
		r->tree.stack[r->tree.count++].number = number;
		skip_blanks(r);
		if (*r->at == ']') {
			r->at++;
			*ret_done = true;
			return gm_build_numbers(&r->tree, floor);
		}
		if (*r->at != ',')
			return refuse(r, "neither a comma nor an end");
		r->at++;
		skip_blanks(r);
	}
	return gm_build_unpack(&r->tree, floor);
}

/* Return the length of the container at @r->at, if its end has been read already; else 0. */
static size_t container_bytes(const struct reader *r)
{
	const char *at = r->at, *close;
	unsigned int open = 0;

	for (; at < r->end; at++) {
		if (*at == '"') {
			do {
				close = memchr(at + 1, '"', (size_t)(r->end - at - 1));
				if (!close)
					return 0;
				at = close;
				while (close[-1] == '\\')
					close--;
			} while ((at - close) % 2);
		}
		open += *at == '[' || *at == '{';
		open -= *at == ']' || *at == '}';
		if (!open)
			return (size_t)(at + 1 - r->at);
	}
	return 0;
}

/* Read a list named "frames" or a frame in it. Most have been read before in the same words: take that value. */
static int read_lasting(struct reader *r, unsigned int depth)
{
	size_t bytes = container_bytes(r);
	const struct gm_value *text = bytes ? gm_value_text(r->seen, r->at, bytes) : NULL;
	uint64_t known = text ? gm_table_get(&r->lasting, (uint64_t)(uintptr_t)text, 0) : 0;
	bool before = r->in_frames;
	struct gm_value *made;
	int err;

	if (known) {
		r->at += bytes;
		return gm_build_add(&r->tree, (const struct gm_value *)(uintptr_t)known);
	}
	r->in_frames = text != NULL;
	err = read_container(r, depth);
	r->in_frames = before;
	if (err || !text)
		return err;
	made = (struct gm_value *)(uintptr_t)r->tree.stack[r->tree.count - 1].value;
	made->lasting = true;
	return gm_table_put(&r->lasting, (uint64_t)(uintptr_t)text, 0, (uint64_t)(uintptr_t)made);
}

static int read_item(struct reader *r, bool dict, unsigned int depth)
{
	int err = dict ? read_name(r) : 0;

	if (err)
		return err;
	if (r->in_frames ? !dict && *r->at == '{' :
	    dict && *r->at == '[' && !strcmp(r->tree.stack[r->tree.count - 1].value->u.text, "frames"))
		return read_lasting(r, depth);
	return read_value(r, depth);
}

static int read_container(struct reader *r, unsigned int depth)
{
	bool dict = *r->at == '{';
	char close = dict ? '}' : ']';
	size_t floor = r->tree.count;
	bool done = false;
	int err;

	if (!depth)
		return refuse(r, "nested too deeply");
	r->at++;
	skip_blanks(r);
	if (!dict) {
		err = read_numbers(r, &done);
		if (err || done)
			return err;
	}
	while (*r->at != close || r->tree.count > floor) {
		err = read_item(r, dict, depth - 1);
		if (err)
			return err;
		skip_blanks(r);
		if (*r->at == close)
			break;
		if (*r->at != ',')
			return refuse(r, "neither a comma nor an end");
		r->at++;
		skip_blanks(r);
	}
	r->at++;
	return gm_build_end(&r->tree, floor, dict);
}

static int read_value(struct reader *r, unsigned int depth)
{
	skip_blanks(r);
	if (*r->at == '"')
		return read_text(r);
	if (*r->at == '{' || *r->at == '[')
		return read_container(r, depth);
	if (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'))
		return read_number(r);
	return read_word(r);
}

int gm_json_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		 char *error, size_t room)
{
	struct reader r = {
		.tree.values = values, .seen = gm_values_open(), .source = source, .at = source->bytes,
		.end = source->bytes + source->have, .error = error, .error_room = room
	};
	int err = r.seen && !gm_build_room(&r.tree) ? read_value(&r, DEPTH) : -ENOMEM;

	if (!err) {
		*ret_root = r.tree.stack[0].value;
		skip_blanks(&r);
		if (r.at != r.end)
			err = refuse(&r, "something behind the end");
	}
	gm_values_close(r.seen);
	gm_table_free(&r.lasting);
	free(r.tree.stack);
	free(r.unescaped);
	return err;
}
