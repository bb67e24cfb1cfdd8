/*
 * document.h - a document walked part by part: JSON as it comes, or a tree that is there already, as a
 * pickle is. Single-threaded.
 */
#ifndef GM_TOOLS_DOCUMENT_H
#define GM_TOOLS_DOCUMENT_H

#include "tools/read/json_read.h"
#include "tools/read/value.h"

#define GM_DOCUMENT_DEPTH 4		/* containers that may be entered */

struct gm_document {
	struct gm_json *json;		/* NULL: a tree */
	const struct gm_value *item;	/* of a tree: what comes next */
	struct { const struct gm_value *of; uint32_t at; } levels[GM_DOCUMENT_DEPTH];
	unsigned int depth;
	bool pickle;			/* the tree is one: a value in it may be in many places */
	int error;			/* the first one, -ENOMEM or -EBADMSG; then nothing more comes */
};

struct gm_document gm_document_of_json(struct gm_json *json);
struct gm_document gm_document_of_tree(const struct gm_value *root, bool pickle);

/* Is what comes next a dict, or a list (or a tuple)? */
bool gm_document_is(struct gm_document *document, enum gm_value_type type);

/* Enter the container that comes next. */
void gm_document_enter(struct gm_document *document);

/* Is there another item in the container that was entered last? It comes next, and must be entered or
 * read; else the container is left. @ret_name (or NULL) is its name in a dict. */
bool gm_document_next(struct gm_document *document, const char **ret_name);

/* Read what comes next; valid until the next call, unless it is lasting. NULL: an error. */
const struct gm_value *gm_document_value(struct gm_document *document);

#endif
