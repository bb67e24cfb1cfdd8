/*
 * writer.c - write JSON or a pickle: see writer.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/write/writer.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/snapshot/jsonw.h"
#include "tools/read/table.h"
#include "tools/read/value.h"

#define DEPTH 80
#define BATCH 1000u			/* items; PyTorch's viewer passes a batch as arguments of one call */
#define JSON_MOST (UINT64_C(1) << 33)	/* bytes */
#define KEPT_MOST ((size_t)128 << 20)	/* bytes of kept lists */
#define LENGTH_BITS 24			/* of the length, in the word that has place and length of a kept list */
#define LENGTH_MOST (((size_t)1 << LENGTH_BITS) - 1)

struct level { enum gm_writer_type type; uint64_t items; };	/* in a pickle: items since the last mark */

struct gm_writer {
	struct gm_out out;
	bool pickle;
	unsigned int indent;		/* of JSON: blanks for each level; 0: one line */
	int error;			/* the first one; then nothing more is written */
	unsigned int depth;
	struct level levels[DEPTH];
	uint64_t pending;		/* gm_writer_again: the key of the list or dict that begins next; 0: none */
	struct gm_table known;		/* a pickle: (key, 1) or (text, 0) -> number in the reader's memo + 1;
					 * JSON: (key, 1) -> place << LENGTH_BITS | length in @kept */
	/* a pickle */
	struct gm_values *texts;
	uint32_t memoised;		/* how many numbers of the memo are taken */
	/* JSON */
	uint64_t written;		/* bytes of this document */
	char *kept;			/* texts of lists that may be written again */
	size_t kept_count, kept_room;
	size_t from;			/* where the list that is being kept begins in @kept */
	unsigned int kept_depth;	/* its level; 0: no list is being kept */
	uint64_t key;			/* its key */
};

struct gm_writer *gm_writer_open(FILE *file, bool pickle)
{
	struct gm_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->out = gm_out_to(file);
	w->pickle = pickle;
	if (!pickle)
		return w;
	w->texts = gm_values_open();
	if (!w->texts)
		w->error = -ENOMEM;
	gm_out_put(&w->out, "\x80\x02", 2);
	return w;
}

void gm_writer_indent(struct gm_writer *w, unsigned int blanks)
{
	w->indent = blanks;
}

uint64_t gm_writer_bytes(const struct gm_writer *w)
{
	return w->written;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* Stop keeping the list that is being written. */
static void forget(struct gm_writer *w)
{
	w->kept_count = w->from;
	w->kept_depth = 0;
}

static void keep(struct gm_writer *w, const char *bytes, size_t count)
{
	if (w->kept_count + count > KEPT_MOST || w->kept_count - w->from + count > LENGTH_MOST) {
		forget(w);
		return;
	}
	if (w->kept_count + count > w->kept_room) {
		size_t room = (w->kept_room + count) * 2;
		char *larger = realloc(w->kept, room);

		if (!larger) {
			forget(w);
			return;
		}
		w->kept = larger;
		w->kept_room = room;
	}
	memcpy(w->kept + w->kept_count, bytes, count);
	w->kept_count += count;
}

static void put(struct gm_writer *w, const void *bytes, size_t count)
{
	w->written += count;
	if (w->kept_depth)
		keep(w, bytes, count);
	gm_out_put(&w->out, bytes, count);
	if (w->out.error && !w->error)
		w->error = w->out.error;
}

static void put_text(struct gm_writer *w, const char *text)
{
	put(w, text, strlen(text));
}

/* Write an opcode of a pickle and the @count low bytes of @word, little-endian. */
static void put_op(struct gm_writer *w, unsigned char op, uint64_t word, unsigned int count)
{
	unsigned char bytes[9] = { op };

	word = htole64(word);
	memcpy(bytes + 1, &word, sizeof(word));
	put(w, bytes, count + 1);
}

static void end_batch(struct gm_writer *w, struct level *level)
{
	if (level->items)
		put_op(w, level->type == GM_WRITER_LIST ? 'e' : 'u', 0, 0);
	level->items = 0;
}

static void put_line_end(struct gm_writer *w, unsigned int depth)
{
	put(w, "\n", 1);
	for (unsigned int i = 0; i < depth * w->indent; i++)
		put(w, " ", 1);
}

/* Write what separates the next value from the one before: a comma, a colon, a line end; in a pickle the ends of
 * batches. Return false after an error. */
static bool before(struct gm_writer *w)
{
	struct level *level = &w->levels[w->depth];
	bool dict = level->type == GM_WRITER_DICT;

	if (w->error)
		return false;
	if (!w->depth) {
		if (!w->pickle && w->written) {
			put(w, "\n", 1);
			w->written = 0;
		}
		return !w->error;
	}
	if (!w->pickle) {
		bool value = dict && level->items % 2;

		if (level->items++)
			put(w, value ? ": " : ",", value && w->indent ? 2 : 1);
		if (w->indent && !value)
			put_line_end(w, w->depth);
	} else if (level->type != GM_WRITER_TUPLE) {
		if (level->items == (dict ? 2 * BATCH : BATCH))
			end_batch(w, level);
		if (!level->items++)
			put_op(w, '(', 0, 0);
	}
	return !w->error;
}

/* ---- values that are written again ------------------------------------------------------------ */

/* Give the value on top of the reader's stack the next number of the memo, and store the number under (@a, @b). */
static void memoise(struct gm_writer *w, uint64_t a, uint64_t b)
{
	if (w->memoised == UINT32_MAX || gm_table_put(&w->known, a, b, w->memoised + UINT64_C(1))) {
		w->error = -ENOMEM;
		return;
	}
	if (w->memoised < 256)
		put_op(w, 'q', w->memoised, 1);
	else
		put_op(w, 'r', w->memoised, 4);
	w->memoised++;
}

static void put_number(struct gm_writer *w, uint64_t number)
{
	if (number < 256)
		put_op(w, 'h', number, 1);
	else
		put_op(w, 'j', number, 4);
}

bool gm_writer_again(struct gm_writer *w, uint64_t key, bool frames)
{
	bool can = w->pickle || (frames && !w->kept_depth);
	uint64_t known = can ? gm_table_get(&w->known, key, 1) : 0;

	if (w->error)
		return true;
	w->pending = can && !known ? key : 0;
	if (!known || !before(w))
		return w->error != 0;
	if (w->pickle)
		put_number(w, known - 1);
	else
		put(w, w->kept + (known >> LENGTH_BITS), known & LENGTH_MOST);
	return true;
}

void gm_writer_begin(struct gm_writer *w, enum gm_writer_type type)
{
	uint64_t key = w->pending;

	if (w->depth + 1 >= DEPTH || (!w->pickle && w->written > JSON_MOST))
		w->error = w->error ? w->error : -EMSGSIZE;
	if (!before(w))
		return;
	w->pending = 0;
	w->levels[++w->depth] = (struct level){ .type = type };
	if (w->pickle) {
		put_op(w, type == GM_WRITER_LIST ? ']' : type == GM_WRITER_DICT ? '}' : '(', 0, 0);
		if (key && type != GM_WRITER_TUPLE)
			memoise(w, key, 1);
		return;
	}
	if (key) {
		w->from = w->kept_count;
		w->kept_depth = w->depth;
		w->key = key;
	}
	put(w, type == GM_WRITER_DICT ? "{" : "[", 1);
}

void gm_writer_end(struct gm_writer *w)
{
	struct level *level = &w->levels[w->depth];

	if (w->error)
		return;
	if (!w->pickle && w->indent && level->items)
		put_line_end(w, w->depth - 1);
	if (!w->pickle)
		put(w, level->type == GM_WRITER_DICT ? "}" : "]", 1);
	else if (level->type == GM_WRITER_TUPLE)
		put_op(w, 't', 0, 0);
	else
		end_batch(w, level);
	if (w->kept_depth && w->kept_depth == w->depth) {
		uint64_t length = w->kept_count - w->from;

		if (gm_table_put(&w->known, w->key, 1, (uint64_t)w->from << LENGTH_BITS | length))
			w->error = -ENOMEM;
		w->kept_depth = 0;
	}
	w->depth--;
}

int gm_writer_close(struct gm_writer *w)
{
	int error;

	put(w, w->pickle ? "." : "\n", 1);
	if (!w->pickle && w->written > JSON_MOST && !w->error)
		w->error = -EMSGSIZE;
	error = gm_out_end(&w->out);
	error = w->error ? w->error : error;
	gm_table_free(&w->known);
	gm_values_close(w->texts);
	free(w->kept);
	free(w);
	return error;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

void gm_writer_null(struct gm_writer *w)
{
	if (before(w))
		put_text(w, w->pickle ? "N" : "null");
}

void gm_writer_bool(struct gm_writer *w, bool truth)
{
	if (before(w))
		put_text(w, w->pickle ? truth ? "\x88" : "\x89" : truth ? "true" : "false");
}

/* Write a pickle's LONG1: @word, sign-extended by @negative, in as few bytes as hold it. */
static void put_long(struct gm_writer *w, uint64_t word, bool negative)
{
	unsigned char bytes[11] = { 0x8a };
	unsigned char fill = negative ? 0xff : 0;
	unsigned int count = 9;

	for (unsigned int i = 0; i < 9; i++)
		bytes[2 + i] = (unsigned char)(i < 8 ? word >> (8 * i) : fill);
	while (count > 1 && bytes[1 + count] == fill && (bytes[count] & 0x80) == (fill & 0x80))
		count--;
	bytes[1] = (unsigned char)count;
	put(w, bytes, count + 2);
}

static void put_digits(struct gm_writer *w, uint64_t word, bool negative)
{
	char digits[GM_DIGITS];
	size_t at = gm_out_digits(digits, word, negative);

	put(w, digits + at, GM_DIGITS - at);
}

void gm_writer_int(struct gm_writer *w, int64_t integer)
{
	if (!before(w))
		return;
	if (!w->pickle)
		put_digits(w, integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer, integer < 0);
	else if (integer >= 0 && integer < 256)
		put_op(w, 'K', (uint64_t)integer, 1);
	else if (integer >= 0 && integer < 65536)
		put_op(w, 'M', (uint64_t)integer, 2);
	else if (integer >= INT32_MIN && integer <= INT32_MAX)
		put_op(w, 'J', (uint64_t)integer, 4);
	else
		put_long(w, (uint64_t)integer, integer < 0);
}

void gm_writer_word(struct gm_writer *w, uint64_t word)
{
	if (word <= INT64_MAX)
		gm_writer_int(w, (int64_t)word);
	else if (before(w) && w->pickle)
		put_long(w, word, false);
	else if (!w->error)
		put_digits(w, word, false);
}

/* Write the shortest decimal, of 15 to 17 digits, that is read as the same number. */
static void put_decimal(struct gm_writer *w, double real)
{
	char text[40];

	for (int precision = 15; precision <= 17; precision++) {
		snprintf(text, sizeof(text) - 2, "%.*g", precision, real);
		if (strtod(text, NULL) == real)
			break;
	}
	if (!strpbrk(text, ".e"))
		strcat(text, ".0");
	put_text(w, text);
}

void gm_writer_real(struct gm_writer *w, double real)
{
	uint64_t bits;

	if (!before(w))
		return;
	memcpy(&bits, &real, sizeof(bits));
	if (w->pickle)
		put_op(w, 'G', __builtin_bswap64(bits), 8);	/* alone in a pickle, this is big-endian */
	else if (isfinite(real))
		put_decimal(w, real);
	else
		put_text(w, "null");		/* JSON has no infinities and no NaN */
}

/* ---- texts ------------------------------------------------------------------------------------ */

/* Return the character that escapes byte @c behind a backslash; 0: @c needs no escape. */
static char escape_of(unsigned char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *found = c ? strchr(from, (char)c) : NULL;

	return found ? to[found - from] : c < 0x20 || c == 0x7f ? 'u' : '\0';
}

/* Return the bytes of the character at @at if it must be escaped: JSON forbids it, a terminal would obey it, or it is a
 * lone surrogate. 0: it needs no escape. */
static size_t odd_bytes(const unsigned char *at, size_t left)
{
	if (*at < 0x80)
		return escape_of(*at) != '\0';
	if (*at == 0xed)			/* a lone surrogate */
		return left >= 3 && at[1] >= 0xa0 ? 3 : 0;
	return gm_utf8_control(at);
}

/* Return the code point of the character at @at, which has @bytes bytes, at most three. */
static unsigned int code_of(const char *at, size_t bytes)
{
	const unsigned char *c = (const unsigned char *)at;

	return bytes == 1 ? c[0] : bytes == 2 ? (c[0] & 0x1fu) << 6 | (c[1] & 0x3fu) :
	       (c[0] & 0xfu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
}

static void put_escape(struct gm_writer *w, const char *bytes, size_t count)
{
	char code[8], escape = escape_of((unsigned char)bytes[0]);

	if (count > 1 || escape == 'u')
		snprintf(code, sizeof(code), "\\u%04x", code_of(bytes, count));
	else
		snprintf(code, sizeof(code), "\\%c", escape);
	put_text(w, code);
}

/* Needs byte @c no escape, whatever follows? */
static inline bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_quoted(struct gm_writer *w, const char *text, size_t bytes)
{
	size_t plain = 0, odd;

	put(w, "\"", 1);
	for (size_t i = 0; i < bytes; i++) {
		if (is_plain((unsigned char)text[i]))
			continue;
		odd = odd_bytes((const unsigned char *)text + i, bytes - i);
		if (!odd)
			continue;
		put(w, text + plain, i - plain);
		put_escape(w, text + i, odd);
		i += odd - 1;
		plain = i + 1;
	}
	put(w, text + plain, bytes - plain);
	put(w, "\"", 1);
}

/* Write a text or, if the memo has it, its number. */
static void put_memoised(struct gm_writer *w, const char *text, size_t bytes)
{
	const struct gm_value *one = gm_value_text(w->texts, text, bytes);
	uint64_t number;

	if (!one) {
		w->error = -ENOMEM;
		return;
	}
	number = gm_table_get(&w->known, (uint64_t)(uintptr_t)one, 0);
	if (number) {
		put_number(w, number - 1);
		return;
	}
	put_op(w, 'X', bytes, 4);
	put(w, text, bytes);
	memoise(w, (uint64_t)(uintptr_t)one, 0);
}

void gm_writer_text(struct gm_writer *w, const char *text, size_t bytes)
{
	if (!before(w))
		return;
	if (w->pickle)
		put_memoised(w, text, bytes);
	else
		put_quoted(w, text, bytes);
}

void gm_writer_string(struct gm_writer *w, const char *text)
{
	gm_writer_text(w, text, strlen(text));
}

/* ---- members ---------------------------------------------------------------------------------- */

void gm_writer_put_begin(struct gm_writer *w, const char *name, enum gm_writer_type type)
{
	gm_writer_string(w, name);
	gm_writer_begin(w, type);
}

void gm_writer_put_string(struct gm_writer *w, const char *name, const char *text)
{
	gm_writer_string(w, name);
	gm_writer_string(w, text);
}

void gm_writer_put_int(struct gm_writer *w, const char *name, int64_t integer)
{
	gm_writer_string(w, name);
	gm_writer_int(w, integer);
}

void gm_writer_put_bool(struct gm_writer *w, const char *name, bool truth)
{
	gm_writer_string(w, name);
	gm_writer_bool(w, truth);
}

void gm_writer_put_members(struct gm_writer *w, const json_t *object)
{
	const json_t *item;
	const char *name;

	json_object_foreach((json_t *)(uintptr_t)object, name, item) {
		gm_writer_string(w, name);
		gm_writer_put(w, item);
	}
}

void gm_writer_put(struct gm_writer *w, const json_t *value)
{
	const json_t *item;
	size_t i;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		gm_writer_begin(w, GM_WRITER_DICT);
		gm_writer_put_members(w, value);
		gm_writer_end(w);
		break;
	case JSON_ARRAY:
		gm_writer_begin(w, GM_WRITER_LIST);
		json_array_foreach(value, i, item)
			gm_writer_put(w, item);
		gm_writer_end(w);
		break;
	case JSON_STRING:
		gm_writer_text(w, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		gm_writer_int(w, json_integer_value(value));
		break;
	case JSON_REAL:
		gm_writer_real(w, json_real_value(value));
		break;
	case JSON_NULL:
		gm_writer_null(w);
		break;
	default:
		gm_writer_bool(w, json_is_true(value));
	}
}
