/*
 * value_json.c - any value as jansson has it: see torch_read.h. One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/torch/torch_read.h"

#define RECENT ((size_t)1 << 14)

/* What values became lately. jansson would make each number and each text anew. */
struct recent { const struct gm_value *value; json_t *json; };

struct conversion {
	struct recent *recent;
	size_t left;			/* values that may still come: a pickle can name one many times */
};

json_t *gm_text_to_json(const struct gm_value *value)
{
	json_t *json = json_stringn(value->u.text, value->count);
	char *copy;

	if (json)
		return json;
	copy = malloc(value->count + (size_t)1);	/* with surrogates, then: three bytes each */
	if (!copy)
		return NULL;
	memcpy(copy, value->u.text, value->count);
	for (size_t i = 0; i + 2 < value->count; i++)
		if ((unsigned char)copy[i] == 0xed && (unsigned char)copy[i + 1] >= 0xa0)
			memcpy(copy + i, "\xef\xbf\xbd", 3);
	json = json_stringn(copy, value->count);
	free(copy);
	return json;
}

static json_t *scalar_of(struct conversion *to, const struct gm_value *value)
{
	struct recent *at = &to->recent[((uintptr_t)value / sizeof(*value)) & (RECENT - 1)];
	json_t *json;

	if (at->value == value)
		return json_incref(at->json);
	json = value->type == GM_VALUE_TEXT ? gm_text_to_json(value) : json_integer(value->u.integer);
	if (json) {
		json_decref(at->json);
		*at = (struct recent){ value, json_incref(json) };
	}
	return json;
}

static json_t *convert(struct conversion *to, const struct gm_value *value);

static json_t *dict_of(struct conversion *to, const struct gm_value *dict)
{
	json_t *json = json_object();

	for (uint32_t i = 0; json && i < gm_value_members(dict); i++) {
		json_t *name = gm_text_to_json(gm_value_name(dict, i));
		json_t *member = name ? convert(to, gm_value_member(dict, i)) : NULL;
		int failed = !member || json_object_setn_new_nocheck(json, json_string_value(name),
								     json_string_length(name), member);

		json_decref(name);
		if (failed) {
			json_decref(json);
			json = NULL;
		}
	}
	return json;
}

static json_t *numbers_of(struct conversion *to, const struct gm_value *list)
{
	json_t *json = list->count <= to->left ? json_array() : NULL;

	to->left -= json ? list->count : 0;
	for (uint32_t i = 0; json && i < list->count; i++)
		if (json_array_append_new(json, json_integer(list->u.numbers[i]))) {
			json_decref(json);
			json = NULL;
		}
	return json;
}

static json_t *list_of(struct conversion *to, const struct gm_value *list)
{
	json_t *json = json_array();

	for (uint32_t i = 0; json && i < list->count; i++)
		if (json_array_append_new(json, convert(to, list->u.items[i]))) {
			json_decref(json);
			json = NULL;
		}
	return json;
}

static json_t *convert(struct conversion *to, const struct gm_value *value)
{
	json_t *json;
	int64_t whole;

	if (!to->left--)
		return NULL;
	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_NULL:
		return json_null();
	case GM_VALUE_BOOL:
		return json_boolean(value->u.integer);
	case GM_VALUE_REAL:
		whole = gm_value_of_real(value->u.real);
		/* 2^63 itself is none: it was cut off. */
		if (whole != INT64_MAX && (double)whole == value->u.real)
			return json_integer(whole);	/* as 5.0 is, where integers are asked for */
		json = json_real(value->u.real);
		return json ? json : json_null();	/* jansson has no infinities */
	case GM_VALUE_NUMBERS:
		return numbers_of(to, value);
	case GM_VALUE_DICT:
		return dict_of(to, value);
	case GM_VALUE_LIST:
	case GM_VALUE_TUPLE:
		return list_of(to, value);
	default:
		return scalar_of(to, value);
	}
}

json_t *gm_value_to_json(const struct gm_value *value, size_t most)
{
	struct conversion to = { calloc(RECENT, sizeof(struct recent)), most };
	json_t *json;

	if (!to.recent)
		return NULL;
	json = convert(&to, value);
	for (size_t i = 0; i < RECENT; i++)
		json_decref(to.recent[i].json);
	free(to.recent);
	return json;
}
