/*
 * tree_put.c - what is in memory, written to a tree: see tree_put.h. One thread.
 */
#include "tools/write/tree_put.h"

void gm_tree_put_json(struct gm_tree *tree, const json_t *value)
{
	const json_t *item;
	const char *name;
	size_t i;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		gm_tree_begin(tree, GM_TREE_DICT);
		json_object_foreach((json_t *)(uintptr_t)value, name, item) {
			gm_tree_string(tree, name);
			gm_tree_put_json(tree, item);
		}
		gm_tree_end(tree);
		break;
	case JSON_ARRAY:
		gm_tree_begin(tree, GM_TREE_LIST);
		json_array_foreach(value, i, item)
			gm_tree_put_json(tree, item);
		gm_tree_end(tree);
		break;
	case JSON_STRING:
		gm_tree_text(tree, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		gm_tree_int(tree, json_integer_value(value));
		break;
	case JSON_REAL:
		gm_tree_real(tree, json_real_value(value));
		break;
	case JSON_NULL:
		gm_tree_null(tree);
		break;
	default:
		gm_tree_bool(tree, json_is_true(value));
	}
}

void gm_tree_put_value(struct gm_tree *tree, const struct gm_value *value)
{
	bool dict = value->type == GM_VALUE_DICT;

	switch ((enum gm_value_type)value->type) {
	case GM_VALUE_NULL:	gm_tree_null(tree); return;
	case GM_VALUE_BOOL:	gm_tree_bool(tree, value->u.integer); return;
	case GM_VALUE_INT:
	case GM_VALUE_UINT:	gm_tree_int(tree, value->u.integer); return;
	case GM_VALUE_REAL:	gm_tree_real(tree, value->u.real); return;
	case GM_VALUE_TEXT:	gm_tree_text(tree, value->u.text, value->count); return;
	default:		break;
	}
	gm_tree_begin(tree, dict ? GM_TREE_DICT : GM_TREE_LIST);
	for (uint32_t i = 0; dict && i < gm_value_members(value); i++) {
		gm_tree_put_value(tree, gm_value_name(value, i));
		gm_tree_put_value(tree, gm_value_member(value, i));
	}
	for (uint32_t i = 0; !dict && i < value->count; i++)
		if (value->type == GM_VALUE_NUMBERS)
			gm_tree_int(tree, value->u.numbers[i]);
		else
			gm_tree_put_value(tree, value->u.items[i]);
	gm_tree_end(tree);
}
