/*
 * value_make.c - dicts and lists of values, made member by member: see value_make.h. One thread.
 */
#include "tools/read/value_make.h"

#include <stdlib.h>
#include <string.h>

const struct gm_value *gm_make_sure(struct gm_maker *maker, const struct gm_value *value)
{
	maker->failed |= !value;
	return value ? value : gm_value_null();
}

const struct gm_value *gm_make_text(struct gm_maker *maker, const char *string)
{
	return gm_make_sure(maker, gm_value_text(maker->values, string, strlen(string)));
}

const struct gm_value *gm_make_int(struct gm_maker *maker, int64_t value)
{
	return gm_make_sure(maker, gm_value_int(maker->values, value));
}

const struct gm_value *gm_make_numbers(struct gm_maker *maker, size_t count, int64_t **ret_numbers)
{
	return gm_make_sure(maker, gm_value_room(maker->values, count, ret_numbers));
}

void gm_make_set(struct gm_maker *maker, struct gm_dict *dict, const char *key,
		 const struct gm_value *value)
{
	if (dict->count + 2 > 2 * GM_DICT_MOST)
		return;
	dict->items[dict->count++] = gm_make_text(maker, key);
	dict->items[dict->count++] = value;
}

const struct gm_value *gm_make_dict(struct gm_maker *maker, const struct gm_dict *dict)
{
	return gm_make_sure(maker, gm_value_plain(maker->values, GM_VALUE_DICT, dict->items,
						  dict->count));
}

static bool make_room(struct gm_maker *maker, struct gm_list *list)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 256;
		void *larger = realloc(list->items, room * sizeof(*list->items));

		if (!larger) {
			maker->failed = true;
			return false;
		}
		list->items = larger;
		list->room = room;
	}
	return true;
}

void gm_make_append(struct gm_maker *maker, struct gm_list *list, const struct gm_value *value)
{
	if (make_room(maker, list))
		list->items[list->count++] = value;
}

const struct gm_value *gm_make_list(struct gm_maker *maker, struct gm_list *list)
{
	const struct gm_value *value = gm_make_sure(maker, gm_value_plain(maker->values, GM_VALUE_LIST,
									  list->items,
							      list->count));

	free(list->items);
	*list = (struct gm_list){ .count = 0 };
	return value;
}

const struct gm_value *gm_make_copy(struct gm_maker *maker, const struct gm_value *value, size_t *left)
{
	struct gm_list items = { .count = 0 };
	const struct gm_value *copy;
	bool whole = true, dict = value->type == GM_VALUE_DICT;

	if (!*left)
		return NULL;
	--*left;
	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_INT:	return gm_make_int(maker, value->u.integer);
	case GM_VALUE_UINT:	return gm_make_sure(maker, gm_value_uint(maker->values, value->u.word));
	case GM_VALUE_REAL:	return gm_make_sure(maker, gm_value_real(maker->values, value->u.real));
	case GM_VALUE_TEXT:
		return gm_make_sure(maker, gm_value_text(maker->values, value->u.text, value->count));
	case GM_VALUE_NUMBERS:
		return gm_make_sure(maker, gm_value_numbers(maker->values, value->u.numbers, value->count));
	case GM_VALUE_NULL:
	case GM_VALUE_BOOL:	return value;	/* there is one of each */
	default:		break;
	}
	for (size_t i = 0; whole && i < (dict ? 2 * (size_t)gm_value_members(value) : value->count); i++) {
		uint32_t at = (uint32_t)(dict ? i / 2 : i);
		const struct gm_value *of = !dict ? value->u.items[at] : i % 2 ? gm_value_member(value, at) :
					    gm_value_name(value, at);
		const struct gm_value *item = gm_make_copy(maker, of, left);

		whole = item != NULL;
		if (item)
			gm_make_append(maker, &items, item);
	}
	copy = whole ? gm_make_sure(maker, gm_value_plain(maker->values, value->type, items.items,
							  items.count)) : NULL;
	free(items.items);
	return copy;
}
