/*
 * value.c - a tree of values in an arena: see value.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/read/value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/snapshot/block.h"
#include "recorder/snapshot/jsonw.h"
#include "tools/read/table.h"

#define CHUNK ((size_t)1 << 18)

struct chunk { struct chunk *next; };

struct arena {
	struct chunk *chunks;
	char *at, *end;			/* free room in the newest chunk */
};

struct gm_values {
	struct arena tree, texts;
	struct gm_table known;		/* (hash of a text, number of other texts with this hash) -> its address */
};

struct gm_values *gm_values_open(void)
{
	return calloc(1, sizeof(struct gm_values));
}

static void free_arena(struct arena *arena)
{
	struct chunk *next;

	for (struct chunk *chunk = arena->chunks; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	*arena = (struct arena){ .chunks = NULL };
}

void gm_values_free_tree(struct gm_values *values)
{
	free_arena(&values->tree);
}

void gm_values_close(struct gm_values *values)
{
	if (!values)
		return;
	free_arena(&values->tree);
	free_arena(&values->texts);
	gm_table_free(&values->known);
	free(values);
}

static void *take(struct arena *arena, size_t bytes)
{
	size_t chunk = CHUNK;
	struct chunk *new;
	void *at;

	bytes = (bytes + 7) & ~(size_t)7;
	if (bytes > (size_t)(arena->end - arena->at)) {
		if (bytes > chunk - sizeof(*new))
			chunk = bytes + sizeof(*new);
		new = malloc(chunk);
		if (!new)
			return NULL;
		new->next = arena->chunks;
		arena->chunks = new;
		arena->at = (char *)(new + 1);
		arena->end = (char *)new + chunk;
	}
	at = arena->at;
	arena->at += bytes;
	return at;
}

static struct gm_value *scalar(struct gm_values *values, enum gm_value_type type, uint64_t word)
{
	struct gm_value *value = take(&values->tree, sizeof(*value));

	if (value)
		*value = (struct gm_value){ .type = (uint8_t)type, .u.word = word };
	return value;
}

const struct gm_value *gm_value_null(void)
{
	static const struct gm_value null = { .type = GM_VALUE_NULL };

	return &null;
}

const struct gm_value *gm_value_bool(bool truth)
{
	static const struct gm_value truths[2] = {
		{ .type = GM_VALUE_BOOL, .u.integer = 0 }, { .type = GM_VALUE_BOOL, .u.integer = 1 }
	};

	return &truths[truth];
}

const struct gm_value *gm_value_int(struct gm_values *values, int64_t integer)
{
	return scalar(values, GM_VALUE_INT, (uint64_t)integer);
}

const struct gm_value *gm_value_uint(struct gm_values *values, uint64_t word)
{
	return scalar(values, word <= INT64_MAX ? GM_VALUE_INT : GM_VALUE_UINT, word);
}

const struct gm_value *gm_value_real(struct gm_values *values, double real)
{
	struct gm_value *value = scalar(values, GM_VALUE_REAL, 0);

	if (value)
		value->u.real = real;
	return value;
}

/* ---- texts ------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 29);
}

static uint64_t hash_of(const char *text, size_t bytes)
{
	uint64_t hash = mix(GM_VALUE_TEXT, bytes), word;
	size_t at = 0;

	for (; at + 8 <= bytes; at += 8) {
		memcpy(&word, text + at, 8);
		hash = mix(hash, word);
	}
	for (; at < bytes; at++)
		hash = mix(hash, (unsigned char)text[at]);
	return hash;
}

const struct gm_value *gm_value_text(struct gm_values *values, const char *text, size_t bytes)
{
	uint64_t hash = hash_of(text, bytes), same = 0, known;
	struct gm_value *value;
	char *copy;

	if (bytes > UINT32_MAX)
		return NULL;
	for (; (known = gm_table_get(&values->known, hash, same)); same++) {
		value = (struct gm_value *)(uintptr_t)known;
		if (value->count == bytes && !memcmp(value->u.text, text, bytes))
			return value;
	}
	value = take(&values->texts, sizeof(*value));
	copy = value ? take(&values->texts, bytes + 1) : NULL;
	if (!copy || gm_table_put(&values->known, hash, same, (uint64_t)(uintptr_t)value))
		return NULL;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	*value = (struct gm_value){ .type = GM_VALUE_TEXT, .count = (uint32_t)bytes, .u.text = copy };
	return value;
}

const char *gm_values_string(struct gm_values *values, const char *text, size_t bytes)
{
	const struct gm_value *value = gm_value_text(values, text, bytes);

	return value ? value->u.text : NULL;
}

void *gm_values_room(struct gm_values *values, size_t bytes)
{
	return take(&values->texts, bytes + !bytes);
}

size_t gm_value_letter(const unsigned char *at, size_t left)
{
	unsigned int bad;

	return *at < 0x80 ? 1 : gm_utf8_length(at, left, &bad);
}

bool gm_value_is_text(const unsigned char *bytes, size_t count)
{
	size_t letter;

	for (size_t i = 0; i < count; i += letter) {
		letter = bytes[i] < 0x80 ? 1 : gm_value_letter(bytes + i, count - i);
		/* a lone surrogate */
		if (!letter && count - i >= 3 && bytes[i] == 0xed && bytes[i + 1] >= 0xa0 &&
		    bytes[i + 1] < 0xc0 && (bytes[i + 2] & 0xc0) == 0x80)
			letter = 3;
		if (!letter)
			return false;
	}
	return true;
}

void gm_value_repair(char *text, size_t bytes)
{
	if (!memchr(text, 0xed, bytes))
		return;
	for (size_t i = 0; i + 2 < bytes; i++)
		if ((unsigned char)text[i] == 0xed && (unsigned char)text[i + 1] >= 0xa0)
			memcpy(text + i, "\xef\xbf\xbd", 3);
}

/* ---- containers ------------------------------------------------------------------------------- */

static const struct gm_value *packed(struct gm_values *values, struct arena *arena, enum gm_value_type type,
				     const void *list, size_t count, size_t bytes)
{
	struct gm_value *value = count <= UINT32_MAX ? scalar(values, type, 0) : NULL;
	void *copy = value ? take(arena, count * bytes) : NULL;

	if (!copy)
		return NULL;
	if (count)
		memcpy(copy, list, count * bytes);
	value->u.packed = copy;
	value->count = (uint32_t)count;
	return value;
}

const struct gm_value *gm_value_numbers(struct gm_values *values, const int64_t *numbers, size_t count)
{
	return packed(values, &values->tree, GM_VALUE_NUMBERS, numbers, count, sizeof(*numbers));
}

const struct gm_value *gm_value_blocks(struct gm_values *values, const struct gm_snapshot_block *blocks, size_t count)
{
	return packed(values, &values->texts, GM_VALUE_BLOCKS, blocks, count, sizeof(*blocks));
}

struct gm_value *gm_value_container(struct gm_values *values, enum gm_value_type type)
{
	return scalar(values, type, 0);
}

/* Return the room of @value in items. Most containers are filled at once and get exactly the room for that. A container
 * that grows later gets a power of two. */
static size_t room_of(const struct gm_value *value)
{
	return value->room_log2 ? (size_t)1 << value->room_log2 : value->count;
}

int gm_value_append(struct gm_values *values, struct gm_value *to,
		    const struct gm_value *const *items, size_t count)
{
	size_t needed = to->count + count;

	if (!count)
		return 0;
	if (needed > UINT32_MAX)
		return -ENOMEM;
	if (needed > room_of(to)) {
		uint8_t log2 = to->count ? 63 - (uint8_t)__builtin_clzll(2 * needed) : 0;
		size_t room = log2 ? (size_t)1 << log2 : needed;
		const struct gm_value **larger = take(&values->tree, room * sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		if (to->count)
			memcpy(larger, to->u.items, to->count * sizeof(*larger));
		to->u.items = larger;
		to->room_log2 = log2;
	}
	memcpy(to->u.items + to->count, items, count * sizeof(*items));
	to->count = (uint32_t)needed;
	return 0;
}

/* ---- a tree under construction ---------------------------------------------------------------- */

int gm_build_grow(struct gm_building *b)
{
	size_t room = b->room ? 2 * b->room : 64;
	void *stack = reallocarray(b->stack, room, sizeof(*b->stack));

	if (!stack)
		return -ENOMEM;
	b->room = room;
	b->stack = stack;
	return 0;
}

int gm_build_add(struct gm_building *b, const struct gm_value *value)
{
	if (!value || gm_build_room(b))
		return -ENOMEM;
	b->stack[b->count++].value = value;
	return 0;
}

int gm_build_unpack(struct gm_building *b, size_t floor)
{
	for (size_t i = floor; i < b->count; i++) {
		b->stack[i].value = gm_value_int(b->values, b->stack[i].number);
		if (!b->stack[i].value)
			return -ENOMEM;
	}
	return 0;
}

int gm_build_end(struct gm_building *b, size_t floor, bool dict)
{
	struct gm_value *made = gm_value_container(b->values, dict ? GM_VALUE_DICT : GM_VALUE_LIST);
	int r = made ? gm_value_append(b->values, made, &b->stack[floor].value, b->count - floor) : -ENOMEM;

	b->count = floor;
	return r ? r : gm_build_add(b, made);
}

int gm_build_numbers(struct gm_building *b, size_t floor)
{
	size_t count = b->count - floor;

	b->count = floor;
	return gm_build_add(b, gm_value_numbers(b->values, &b->stack[floor].number, count));
}

enum { UNSEEN, OPEN, FIRST };		/* gm_value.mark: from FIRST on, FIRST + height */

/* Return the height of the tree under @value; -1: it exceeds @depth or has a cycle. Each value is visited once, because
 * its mark keeps its height. */
static int height(struct gm_value *value, int depth)
{
	int highest = 0;

	if (value->type < GM_VALUE_LIST)
		return 0;
	if (value->mark == OPEN || depth <= 0)
		return -1;
	if (value->mark != UNSEEN)
		return value->mark - FIRST <= depth ? value->mark - FIRST : -1;
	value->mark = OPEN;
	for (uint32_t i = 0; i < value->count; i++) {
		int below = height((struct gm_value *)(uintptr_t)value->u.items[i], depth - 1);

		if (below < 0)
			return -1;
		highest = below > highest ? below : highest;
	}
	value->mark = (uint8_t)(FIRST + highest + 1);
	return highest + 1;
}

bool gm_value_sound(const struct gm_value *root, int depth)
{
	return height((struct gm_value *)(uintptr_t)root, depth < 200 ? depth : 200) >= 0;
}

/* ---- items of containers ---------------------------------------------------------------------- */

const struct gm_value *gm_value_get(const struct gm_value *dict, const char *key)
{
	size_t length = strlen(key);

	if (!dict || dict->type != GM_VALUE_DICT)
		return NULL;
	for (uint32_t i = dict->count; i; i -= 2) {
		const struct gm_value *name = dict->u.items[i - 2];

		if (name->count == length && name->u.text[0] == key[0] && !memcmp(name->u.text, key, length))
			return dict->u.items[i - 1];
	}
	return NULL;
}

int64_t gm_value_of_real(double real)
{
	if (isnan(real))
		return 0;
	return real >= 0x1p63 ? INT64_MAX : real < -0x1p63 ? INT64_MIN : (int64_t)real;
}

int64_t gm_value_as_number(const struct gm_value *value)
{
	switch (value ? (enum gm_value_type)value->type : GM_VALUE_NULL) {
	case GM_VALUE_BOOL:
	case GM_VALUE_INT:
	case GM_VALUE_UINT:	return value->u.integer;
	case GM_VALUE_REAL:	return gm_value_of_real(value->u.real);
	default:		return 0;
	}
}

int64_t gm_value_number(const struct gm_value *dict, const char *key)
{
	return gm_value_as_number(gm_value_get(dict, key));
}

const struct gm_value *gm_value_as_list(const struct gm_value *value)
{
	return value && (value->type == GM_VALUE_LIST || value->type == GM_VALUE_TUPLE) ? value : NULL;
}

const struct gm_value *gm_value_list(const struct gm_value *dict, const char *key)
{
	return gm_value_as_list(gm_value_get(dict, key));
}

size_t gm_value_length(const struct gm_value *list)
{
	return list ? list->count : 0;
}

int64_t gm_value_int_at(const struct gm_value *list, size_t i)
{
	if (i >= gm_value_length(list))
		return 0;
	return list->type == GM_VALUE_NUMBERS ? list->u.numbers[i] : gm_value_as_number(list->u.items[i]);
}

const struct gm_value *gm_value_at(const struct gm_value *list, size_t i)
{
	return i < gm_value_length(list) && list->type != GM_VALUE_NUMBERS ? list->u.items[i] : NULL;
}

/* ---- jansson's values ------------------------------------------------------------------------- */

static json_t *text_to_json(const struct gm_value *value)
{
	char *copy = malloc(value->count + (size_t)1);
	json_t *json;

	if (!copy)
		return NULL;
	memcpy(copy, value->u.text, value->count);
	gm_value_repair(copy, value->count);
	json = json_stringn(copy, value->count);
	free(copy);
	return json;
}

static json_t *dict_to_json(const struct gm_value *dict, size_t *left)
{
	json_t *json = json_object();

	for (uint32_t i = 0; json && i < dict->count; i += 2) {
		json_t *name = text_to_json(dict->u.items[i]);
		json_t *member = name ? gm_value_to_json(dict->u.items[i + 1], left) : NULL;
		int failed = !member || json_object_setn_new_nocheck(json, json_string_value(name),
								     json_string_length(name), member);

		json_decref(name);
		if (failed) {
			json_decref(json);
			return NULL;
		}
	}
	return json;
}

static json_t *list_to_json(const struct gm_value *list, size_t *left)
{
	json_t *json = json_array();

	for (uint32_t i = 0; json && i < list->count; i++) {
		json_t *item = list->type != GM_VALUE_NUMBERS ? gm_value_to_json(list->u.items[i], left) :
			       *left && (*left)-- ? json_integer(list->u.numbers[i]) : NULL;

		if (!item || json_array_append_new(json, item)) {
			json_decref(json);
			return NULL;
		}
	}
	return json;
}

/* Convert a real. A whole number becomes an integer, and an infinity null, because JSON has none. INT64_MAX does not
 * count as whole, because larger numbers are cut to it. */
static json_t *real_to_json(double real)
{
	int64_t whole = gm_value_of_real(real);
	json_t *json = whole != INT64_MAX && (double)whole == real ? json_integer(whole) : json_real(real);

	return json ? json : json_null();
}

json_t *gm_value_to_json(const struct gm_value *value, size_t *left)
{
	if (!*left)
		return NULL;
	--*left;
	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_NULL:	return json_null();
	case GM_VALUE_BOOL:	return json_boolean(value->u.integer);
	case GM_VALUE_INT:
	case GM_VALUE_UINT:	return json_integer(value->u.integer);
	case GM_VALUE_REAL:	return real_to_json(value->u.real);
	case GM_VALUE_TEXT:	return text_to_json(value);
	case GM_VALUE_DICT:	return dict_to_json(value, left);
	default:		return list_to_json(value, left);
	}
}
