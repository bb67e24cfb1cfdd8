/*
 * bulk.c - the large parts of a loaded snapshot: see bulk.h. One thread.
 *
 * jansson has no room in an object for a pointer, so the roots that were made here are listed.
 */
#define _GNU_SOURCE
#include "tools/read/bulk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/torch/torch_read.h"
#include "tools/write/tree_put.h"

static const char *const names[] = {
	"segments", "host_segments", "device_traces", "host_trace", "stacks", "frames"
};
#define NAMES (sizeof(names) / sizeof(names[0]))

struct root { struct root *next; const json_t *json; const struct gm_value *parts[NAMES]; };

static struct root *roots;

/* The place of @name among the names, NAMES when it is none of them. */
static size_t place_of(const char *name)
{
	size_t i = 0;

	while (i < NAMES && strcmp(name, names[i]))
		i++;
	return i;
}

static struct root *root_of(const json_t *json)
{
	struct root *root = roots;

	while (root && root->json != json)
		root = root->next;
	return root;
}

json_t *gm_bulk_root(const struct gm_value *whole)
{
	struct root *root = malloc(sizeof(*root));
	json_t *json = json_object();

	for (uint32_t i = 0; json && i < gm_value_members(whole); i++) {
		json_t *name, *member;

		if (place_of(gm_value_name(whole, i)->u.text) < NAMES)
			continue;
		name = gm_text_to_json(gm_value_name(whole, i));
		member = gm_value_to_json(gm_value_member(whole, i), SIZE_MAX);
		if (!name || json_object_setn_new_nocheck(json, json_string_value(name),
							  json_string_length(name), member)) {
			json_decref(json);
			json = NULL;
		}
		json_decref(name);
	}
	if (!root || !json) {
		json_decref(json);
		free(root);
		return NULL;
	}
	*root = (struct root){ .next = roots, .json = json };
	for (size_t i = 0; i < NAMES; i++)
		root->parts[i] = gm_value_get(whole, names[i]);
	roots = root;
	return json;
}

void gm_bulk_forget(const json_t *json)
{
	struct root **link = &roots, *found;

	while (*link && (*link)->json != json)
		link = &(*link)->next;
	found = *link;
	if (found) {
		*link = found->next;
		free(found);
	}
}

const struct gm_value *gm_bulk(const json_t *json, const char *name)
{
	const struct root *root = root_of(json);
	size_t place = root ? place_of(name) : NAMES;

	return place < NAMES ? root->parts[place] : NULL;
}

void gm_bulk_replace(const json_t *json, const char *name, const struct gm_value *part)
{
	struct root *root = root_of(json);
	size_t place = root ? place_of(name) : NAMES;

	if (place < NAMES)
		root->parts[place] = part;
}

const struct gm_value *gm_bulk_list(const json_t *json, const char *name)
{
	const struct gm_value *part = gm_bulk(json, name);

	return part && (part->type == GM_VALUE_LIST || part->type == GM_VALUE_TUPLE) ? part : NULL;
}

json_t *gm_bulk_json(const json_t *json, const char *name)
{
	json_t *known = json_object_get(json, name), *made;
	const struct gm_value *part = known ? NULL : gm_bulk(json, name);

	if (!part)
		return known;
	made = gm_value_to_json(part, SIZE_MAX);
	return made && !json_object_set_new((json_t *)(uintptr_t)json, name, made) ? made : NULL;
}

int gm_bulk_write(const json_t *json, FILE *out)
{
	const struct root *root = root_of(json);
	struct gm_tree *tree = gm_tree_json(out);
	const json_t *item;
	const char *name;

	if (!tree)
		return -ENOMEM;
	gm_tree_begin(tree, GM_TREE_DICT);
	json_object_foreach((json_t *)(uintptr_t)json, name, item) {
		gm_tree_string(tree, name);
		gm_tree_put_json(tree, item);
	}
	for (size_t i = 0; root && i < NAMES; i++) {
		const struct gm_value *part = root->parts[i];

		if (!part || json_object_get(json, names[i]))
			continue;
		gm_tree_string(tree, names[i]);
		gm_tree_put_value(tree, part);
	}
	gm_tree_end(tree);
	return gm_tree_close(tree);
}
