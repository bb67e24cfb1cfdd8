/*
 * document.c - a document walked part by part: see document.h. One thread.
 */
#include "tools/read/document.h"

struct gm_document gm_document_of_json(struct gm_json *json)
{
	return (struct gm_document){ .json = json };
}

struct gm_document gm_document_of_tree(const struct gm_value *root, bool pickle)
{
	return (struct gm_document){ .item = root, .pickle = pickle };
}

bool gm_document_is(struct gm_document *document, enum gm_value_type type)
{
	if (document->error)
		return false;
	if (document->json)
		return gm_json_is(document->json, type);
	return document->item->type == type || (type == GM_VALUE_LIST && gm_value_as_list(document->item));
}

void gm_document_enter(struct gm_document *document)
{
	if (document->json) {
		document->error = gm_json_enter(document->json);
		return;
	}
	document->levels[document->depth].of = document->item;
	document->levels[document->depth++].at = 0;
}

/* The same of a tree. */
static bool next_of_tree(struct gm_document *document, const char **ret_name)
{
	const struct gm_value *of = document->levels[document->depth - 1].of;
	uint32_t *at = &document->levels[document->depth - 1].at;

	if (*at == of->count) {
		document->depth--;
		return false;
	}
	if (of->type == GM_VALUE_DICT && ret_name)
		*ret_name = of->u.items[*at]->u.text;
	*at += of->type == GM_VALUE_DICT;
	document->item = of->u.items[(*at)++];
	return true;
}

bool gm_document_next(struct gm_document *document, const char **ret_name)
{
	const char *name;
	int r;

	if (document->error)
		return false;
	if (!document->json)
		return next_of_tree(document, ret_name);
	r = gm_json_next(document->json, ret_name ? ret_name : &name);
	if (r < 0)
		document->error = r;
	return r > 0;
}

const struct gm_value *gm_document_value(struct gm_document *document)
{
	const struct gm_value *value = NULL;

	if (document->error)
		return NULL;
	if (!document->json)
		return document->item;
	document->error = gm_json_value(document->json, &value);
	return document->error ? NULL : value;
}
