/*
 * pickle_read.c - read pickles as data: see documents.h. One thread.
 *
 * As in Python, a machine has a stack, marks on the stack, and a memo of earlier values. Each operation takes at least
 * one byte of the input and adds at most one item to the stack or the memo. So the size of the input bounds the memory.
 */
#define _GNU_SOURCE
#include "tools/read/documents.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"

#define DEPTH 64
#define MEMO_SLACK 4096			/* the largest number in the memo may exceed its count by this much */

enum opcode {
	MARK = '(', STOP = '.', NONE = 'N', BININT = 'J', BININT1 = 'K', BININT2 = 'M', BINFLOAT = 'G',
	BINUNICODE = 'X', EMPTY_LIST = ']', EMPTY_DICT = '}', EMPTY_TUPLE = ')', LIST = 'l', DICT = 'd',
	TUPLE = 't', APPEND = 'a', APPENDS = 'e', SETITEM = 's', SETITEMS = 'u', BINGET = 'h',
	LONG_BINGET = 'j', BINPUT = 'q', LONG_BINPUT = 'r', POP = '0',
	PROTO = 0x80, TUPLE1 = 0x85, TUPLE2 = 0x86, TUPLE3 = 0x87, NEWTRUE = 0x88, NEWFALSE = 0x89,
	LONG1 = 0x8a, LONG4 = 0x8b, SHORT_BINUNICODE = 0x8c, BINUNICODE8 = 0x8d, MEMOIZE = 0x94,
	FRAME = 0x95,
};

struct machine {
	struct gm_values *values;
	struct gm_source *source;
	const unsigned char *bytes;	/* of the source */
	size_t at;
	struct gm_value **stack, **memo;	/* NULL in @memo: nothing has that number */
	size_t *marks;			/* heights of the stack at the marks */
	size_t count, mark_count, memo_count;
	size_t memoised;		/* values in @memo, by MEMOIZE or PUT */
	char *error;
	size_t error_room;
};

__attribute__((format(printf, 2, 3)))
static int refuse(struct machine *m, const char *format, ...)
{
	char why[128];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	snprintf(m->error, m->error_room, "not a pickle that this gpumem reads: %s (byte %zu)", why,
		 m->at);
	return -EBADMSG;
}

static int short_of_bytes(struct machine *m)
{
	snprintf(m->error, m->error_room, "cut off: the pickle does not end");
	return -EBADMSG;
}

/* ---- the stack ------------------------------------------------------------------------------- */

static int push(struct machine *m, const struct gm_value *value)
{
	struct gm_value **item = value ? gm_list_add(&m->stack, &m->count, sizeof(*item)) : NULL;

	if (item)
		*item = (struct gm_value *)(uintptr_t)value;
	return item ? 0 : -ENOMEM;
}

/* Return the number of values above the newest mark. */
static size_t above_mark(const struct machine *m)
{
	return m->count - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}

/* Take the newest @count values from the stack. They can be read until the next push. */
static const struct gm_value *const *pop(struct machine *m, size_t count)
{
	if (above_mark(m) < count)
		return NULL;
	m->count -= count;
	return (const struct gm_value *const *)(m->stack + m->count);
}

/* Take the values above the newest mark, and the mark. */
static const struct gm_value *const *pop_marked(struct machine *m, size_t *ret_count)
{
	const struct gm_value *const *items;

	if (!m->mark_count)
		return NULL;
	*ret_count = above_mark(m);
	items = pop(m, *ret_count);
	m->mark_count--;
	return items;
}

/* ---- arguments -------------------------------------------------------------------------------- */

/* Has the input @bytes more bytes? */
static bool need(struct machine *m, uint64_t bytes)
{
	while (m->source->have - m->at < bytes)
		if (bytes > SIZE_MAX - m->at || !gm_source_more(m->source, m->at + bytes, m->at))
			return false;
	return true;
}

/* Read a number of 1 to 8 bytes, little-endian. */
static bool number(struct machine *m, unsigned int bytes, uint64_t *ret)
{
	uint64_t value = 0;

	if (!need(m, bytes))
		return false;
	if (m->source->have - m->at >= sizeof(value)) {
		memcpy(&value, m->bytes + m->at, sizeof(value));
		value = le64toh(value) << (64 - 8 * bytes) >> (64 - 8 * bytes);
		m->at += bytes;
	} else {
		for (unsigned int i = 0; i < bytes; i++)
			value |= (uint64_t)m->bytes[m->at++] << (8 * i);
	}
	*ret = value;
	return true;
}

static int push_text(struct machine *m, unsigned int length_bytes)
{
	uint64_t length;
	const unsigned char *text;

	if (!number(m, length_bytes, &length) || !need(m, length))
		return short_of_bytes(m);
	text = m->bytes + m->at;
	if (!gm_value_is_text(text, length))
		return refuse(m, "a text that is not UTF-8");
	m->at += length;
	return push(m, gm_value_text(m->values, (const char *)text, length));
}

/* Read and push an integer of any length, little-endian, two's complement. */
static int push_long(struct machine *m, unsigned int length_bytes)
{
	uint64_t length, word = 0;
	const unsigned char *bytes;
	bool negative;

	if (!number(m, length_bytes, &length) || !need(m, length))
		return short_of_bytes(m);
	bytes = m->bytes + m->at;
	negative = length && bytes[length - 1] & 0x80;
	if (length)
		number(m, length < 8 ? (unsigned int)length : 8, &word);
	if (negative && length < 8)
		word |= ~UINT64_C(0) << (8 * length);
	m->at = (size_t)(bytes - m->bytes) + length;
	for (uint64_t i = 8; i < length; i++)
		if (bytes[i] != (negative ? 0xff : 0))
			return refuse(m, "an integer of more than 64 bits");
	if (negative && word <= INT64_MAX)
		return refuse(m, "an integer of more than 64 bits");
	return push(m, negative ? gm_value_int(m->values, (int64_t)word) :
		    gm_value_uint(m->values, word));
}

static int push_integer(struct machine *m, unsigned int bytes)
{
	uint64_t word;

	if (!number(m, bytes, &word))
		return short_of_bytes(m);
	return push(m, gm_value_int(m->values, bytes == 4 ? (int32_t)(uint32_t)word : (int64_t)word));
}

static int push_real(struct machine *m)
{
	uint64_t word;
	double real;

	if (!number(m, 8, &word))
		return short_of_bytes(m);
	word = __builtin_bswap64(word);		/* only reals are big-endian in a pickle */
	memcpy(&real, &word, sizeof(real));
	return push(m, gm_value_real(m->values, real));
}

/* ---- memo ------------------------------------------------------------------------------------- */

static int put(struct machine *m, uint64_t index)
{
	if (!above_mark(m))
		return refuse(m, "nothing to remember");
	if (index > m->memoised + MEMO_SLACK)
		return refuse(m, "a memo number out of order");
	while (m->memo_count <= index) {
		struct gm_value **item = gm_list_add(&m->memo, &m->memo_count, sizeof(*item));

		if (!item)
			return -ENOMEM;
		*item = NULL;
	}
	m->memo[index] = m->stack[m->count - 1];
	m->memoised++;
	return 0;
}

static int put_numbered(struct machine *m, unsigned int bytes)
{
	uint64_t index;

	return number(m, bytes, &index) ? put(m, index) : short_of_bytes(m);
}

static int get(struct machine *m, unsigned int bytes)
{
	uint64_t index;

	if (!number(m, bytes, &index))
		return short_of_bytes(m);
	if (index >= m->memo_count || !m->memo[index])
		return refuse(m, "a memo number that stands for nothing");
	return push(m, m->memo[index]);
}

/* ---- containers ------------------------------------------------------------------------------- */

static struct gm_value *new_container(struct machine *m, enum gm_value_type type)
{
	struct gm_value *value = gm_value_container(m->values, type);

	if (value)
		value->lasting = true;
	return value;
}

static int add(struct machine *m, struct gm_value *to, const struct gm_value *const *items,
	       size_t count)
{
	bool dict = to->type == GM_VALUE_DICT;

	if (dict && count % 2)
		return refuse(m, "a key without its value");
	for (size_t i = 0; dict && i < count; i += 2)
		if (items[i]->type != GM_VALUE_TEXT)
			return refuse(m, "a key that is no text");
	return gm_value_append(m->values, to, items, count);
}

static int add_to(struct machine *m, enum gm_value_type type, const struct gm_value *const *items,
		  size_t count)
{
	struct gm_value *to = items && above_mark(m) ? m->stack[m->count - 1] : NULL;

	return to && to->type == type ? add(m, to, items, count) :
	       refuse(m, "items for something that holds none");
}

static int add_marked(struct machine *m, enum gm_value_type type)
{
	size_t count = 0;
	const struct gm_value *const *items = pop_marked(m, &count);

	return add_to(m, type, items, count);
}

/* Push a container of @items, which were taken from the stack. */
static int push_of(struct machine *m, enum gm_value_type type, const struct gm_value *const *items,
		   size_t count)
{
	struct gm_value *of;
	int r;

	if (!items)
		return refuse(m, "fewer values than it takes");
	of = new_container(m, type);
	r = of ? add(m, of, items, count) : -ENOMEM;
	return r ? r : push(m, of);
}

static int push_marked(struct machine *m, enum gm_value_type type)
{
	size_t count = 0;
	const struct gm_value *const *items = pop_marked(m, &count);

	return push_of(m, type, items, count);
}

static int mark(struct machine *m)
{
	size_t *height = gm_list_add(&m->marks, &m->mark_count, sizeof(*height));

	if (height)
		*height = m->count;
	return height ? 0 : -ENOMEM;
}

static int protocol(struct machine *m)
{
	uint64_t version;

	if (!number(m, 1, &version))
		return short_of_bytes(m);
	return version >= 2 && version <= 5 ? 0 : refuse(m, "protocol %d", (int)version);
}

static int frame(struct machine *m)
{
	uint64_t length;

	if (!number(m, 8, &length) || !need(m, length))
		return short_of_bytes(m);
	return 0;
}

static int step(struct machine *m, unsigned int opcode)
{
	switch ((enum opcode)opcode) {
	case PROTO:		return protocol(m);
	case FRAME:		return frame(m);
	case MARK:		return mark(m);
	case POP:		return pop(m, 1) ? 0 : refuse(m, "nothing to take back");
	case NONE:		return push(m, gm_value_null());
	case NEWTRUE:		return push(m, gm_value_bool(true));
	case NEWFALSE:		return push(m, gm_value_bool(false));
	case BININT:		return push_integer(m, 4);
	case BININT1:		return push_integer(m, 1);
	case BININT2:		return push_integer(m, 2);
	case LONG1:		return push_long(m, 1);
	case LONG4:		return push_long(m, 4);
	case BINFLOAT:		return push_real(m);
	case SHORT_BINUNICODE:	return push_text(m, 1);
	case BINUNICODE:	return push_text(m, 4);
	case BINUNICODE8:	return push_text(m, 8);
	case EMPTY_LIST:	return push(m, new_container(m, GM_VALUE_LIST));
	case EMPTY_DICT:	return push(m, new_container(m, GM_VALUE_DICT));
	case EMPTY_TUPLE:	return push(m, new_container(m, GM_VALUE_TUPLE));
	case LIST:		return push_marked(m, GM_VALUE_LIST);
	case DICT:		return push_marked(m, GM_VALUE_DICT);
	case TUPLE:		return push_marked(m, GM_VALUE_TUPLE);
	case TUPLE1:		return push_of(m, GM_VALUE_TUPLE, pop(m, 1), 1);
	case TUPLE2:		return push_of(m, GM_VALUE_TUPLE, pop(m, 2), 2);
	case TUPLE3:		return push_of(m, GM_VALUE_TUPLE, pop(m, 3), 3);
	case APPEND:		return add_to(m, GM_VALUE_LIST, pop(m, 1), 1);
	case APPENDS:		return add_marked(m, GM_VALUE_LIST);
	case SETITEM:		return add_to(m, GM_VALUE_DICT, pop(m, 2), 2);
	case SETITEMS:		return add_marked(m, GM_VALUE_DICT);
	case MEMOIZE:		return put(m, m->memoised);
	case BINPUT:		return put_numbered(m, 1);
	case LONG_BINPUT:	return put_numbered(m, 4);
	case BINGET:		return get(m, 1);
	case LONG_BINGET:	return get(m, 4);
	case STOP:		break;
	}
	if (opcode == 'c' || opcode == 0x93 || opcode == 'R' || opcode == 'b' || opcode == 0x81)
		return refuse(m, "it names code to run, which is never done");
	return refuse(m, "operation %#x", opcode);
}

static int run(struct machine *m)
{
	while (need(m, 1)) {
		unsigned int opcode = m->bytes[m->at++];
		int r;

		if (m->at == 1 && opcode != PROTO)
			return refuse(m, "it does not begin as one");
		if (opcode == STOP)
			return m->count == 1 && !m->mark_count ? 0 :
				refuse(m, "it does not end with one value");
		r = step(m, opcode);
		if (r)
			return r;
	}
	return short_of_bytes(m);
}

int gm_pickle_read(struct gm_values *values, struct gm_source *source, const struct gm_value **ret_root,
		   char *error, size_t room)
{
	struct machine m = {
		.values = values, .source = source, .bytes = (unsigned char *)source->bytes,
		.error = error, .error_room = room
	};
	int r = push(&m, gm_value_null());

	m.count = 0;			/* @stack is allocated now, so no items have an address, too */
	if (!r)
		r = run(&m);
	if (!r && !gm_value_sound(m.stack[0], DEPTH))
		r = refuse(&m, "nested too deeply, or in itself");
	if (!r)
		*ret_root = m.stack[0];
	free(m.stack);
	free(m.marks);
	free(m.memo);
	return r;
}
