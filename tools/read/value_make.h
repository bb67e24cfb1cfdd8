/*
 * value_make.h - dicts and lists of values, made member by member. Single-threaded.
 *
 * Nothing here returns NULL: what finds no memory is null in what is made, and @failed says so.
 */
#ifndef GM_TOOLS_VALUE_MAKE_H
#define GM_TOOLS_VALUE_MAKE_H

#include "tools/read/value.h"

#define GM_DICT_MOST 128		/* members of a dict that is made; more are left out */

struct gm_maker { struct gm_values *values; bool failed; };

struct gm_dict { const struct gm_value *items[2 * GM_DICT_MOST]; size_t count; };

/* Its memory goes with gm_make_list, or free(list.items). */
struct gm_list { const struct gm_value **items; size_t count, room; };

/* @value, or null and failed. */
const struct gm_value *gm_make_sure(struct gm_maker *maker, const struct gm_value *value);

const struct gm_value *gm_make_text(struct gm_maker *maker, const char *string);
const struct gm_value *gm_make_int(struct gm_maker *maker, int64_t value);

/* A list of @count integers for the caller to fill: *@ret_numbers, NULL when there is no memory. */
const struct gm_value *gm_make_numbers(struct gm_maker *maker, size_t count, int64_t **ret_numbers);

void gm_make_set(struct gm_maker *maker, struct gm_dict *dict, const char *key,
		 const struct gm_value *value);
const struct gm_value *gm_make_dict(struct gm_maker *maker, const struct gm_dict *dict);

void gm_make_append(struct gm_maker *maker, struct gm_list *list, const struct gm_value *value);
const struct gm_value *gm_make_list(struct gm_maker *maker, struct gm_list *list);

/* @value once more, in the maker's memory; NULL when it has more than @left values. */
const struct gm_value *gm_make_copy(struct gm_maker *maker, const struct gm_value *value, size_t *left);

#endif
