/*
 * value_read.c - what a tree of values has where, and whether it is one: see value.h. One thread;
 * changes nothing but the mark that gm_value_sound leaves.
 */
#include "tools/read/value.h"

#include <math.h>
#include <string.h>

enum { UNSEEN, OPEN, FIRST };		/* gm_value.mark: from FIRST on, FIRST + height */

/* How high the tree under @value is, -1 when that is above @depth or without end. Each value is
 * looked at once: a height is kept in its mark. */
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
	for (uint32_t i = value->type == GM_VALUE_DICT; i < value->count; i++) {
		int below = height((struct gm_value *)(uintptr_t)value->u.items[i], depth - 1);

		if (below < 0)
			return -1;
		highest = below > highest ? below : highest;
	}
	value->mark = (uint8_t)(FIRST + highest + 1);
	return highest + 1;
}

bool gm_value_sound(const struct gm_value *root, unsigned int depth)
{
	return height((struct gm_value *)(uintptr_t)root, depth < 200 ? (int)depth : 200) >= 0;
}

const struct gm_value *gm_value_get(const struct gm_value *dict, const char *key)
{
	size_t length = strlen(key);

	if (!dict || dict->type != GM_VALUE_DICT)
		return NULL;
	for (uint32_t i = gm_value_members(dict); i--;) {
		const struct gm_value *name = gm_value_name(dict, i);

		if (name->count == length && !memcmp(name->u.text, key, length))
			return gm_value_member(dict, i);
	}
	return NULL;
}

int64_t gm_value_of_real(double real)
{
	if (isnan(real))
		return 0;
	return real >= 0x1p63 ? INT64_MAX : real < -0x1p63 ? INT64_MIN : (int64_t)real;
}

static int64_t number(const struct gm_value *value)
{
	return value->type == GM_VALUE_INT || value->type == GM_VALUE_UINT ? value->u.integer :
		value->type == GM_VALUE_REAL ? gm_value_of_real(value->u.real) : 0;
}

int64_t gm_value_number(const struct gm_value *dict, const char *key)
{
	return gm_value_as_number(gm_value_get(dict, key));
}

int64_t gm_value_as_number(const struct gm_value *value)
{
	if (!value)
		return 0;
	return value->type == GM_VALUE_BOOL ? value->u.integer : number(value);
}

const char *gm_value_string(const struct gm_value *dict, const char *key)
{
	const struct gm_value *value = gm_value_get(dict, key);

	return value && value->type == GM_VALUE_TEXT ? value->u.text : "";
}

const struct gm_value *gm_value_list(const struct gm_value *dict, const char *key)
{
	const struct gm_value *value = gm_value_get(dict, key);

	return value && (value->type == GM_VALUE_LIST || value->type == GM_VALUE_TUPLE) ? value : NULL;
}

size_t gm_value_length(const struct gm_value *list)
{
	return list ? list->count : 0;
}

const struct gm_value *gm_value_as_row(const struct gm_value *value)
{
	return value && (value->type == GM_VALUE_NUMBERS || value->type == GM_VALUE_LIST ||
			 value->type == GM_VALUE_TUPLE) ? value : NULL;
}

const struct gm_value *gm_value_row(const struct gm_value *dict, const char *key)
{
	return gm_value_as_row(gm_value_get(dict, key));
}

int64_t gm_value_int_at(const struct gm_value *list, size_t i)
{
	if (i >= gm_value_length(list))
		return 0;
	return list->type == GM_VALUE_NUMBERS ? list->u.numbers[i] : number(list->u.items[i]);
}

const struct gm_value *gm_value_at(const struct gm_value *list, size_t i)
{
	return i < gm_value_length(list) && list->type != GM_VALUE_NUMBERS ? list->u.items[i] : NULL;
}

bool gm_value_is_text(const unsigned char *bytes, size_t count)
{
	size_t i = 0;

	while (i < count) {
		unsigned char c = bytes[i];
		size_t more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : (c & 0xf0) == 0xe0 ? 2 :
			      c >= 0xf0 && c < 0xf5 ? 3 : 4;

		if (more > 3 || more >= count - i)
			return false;
		for (size_t k = 1; k <= more; k++)
			if ((bytes[i + k] & 0xc0) != 0x80)
				return false;
		if ((c == 0xe0 && bytes[i + 1] < 0xa0) || (c == 0xf0 && bytes[i + 1] < 0x90) ||
		    (c == 0xf4 && bytes[i + 1] > 0x8f))
			return false;
		i += more + 1;
	}
	return true;
}
