/*
 * tree_write.c - what the two writers of trees share: see tree_write.h. One thread.
 */
#include "tools/write/tree_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/write/tree_internal.h"
#include "tools/read/value.h"

struct gm_tree *gm_tree_open(FILE *out, const struct gm_tree_ops *ops)
{
	struct gm_tree *tree = calloc(1, sizeof(*tree));

	if (!tree || gm_sink_open(&tree->sink, out)) {
		free(tree);
		return NULL;
	}
	tree->ops = ops;
	return tree;
}

uint64_t gm_tree_bytes(const struct gm_tree *tree)
{
	return tree->written;
}

int gm_tree_close(struct gm_tree *tree)
{
	FILE *out;
	int error;

	if (!tree)
		return -ENOMEM;
	if (!tree->error)
		tree->ops->close(tree);
	out = tree->sink.file;
	error = gm_sink_close(&tree->sink);
	errno = 0;
	if (!error && (fflush(out) || ferror(out)))
		error = errno ? -errno : -EIO;
	error = tree->error ? tree->error : error;
	gm_table_free(&tree->known);
	gm_values_close(tree->texts);
	for (int i = 0; i < 2; i++) {
		gm_table_free(&tree->kept[i].places);
		free(tree->kept[i].bytes);
	}
	free(tree);
	return error;
}

void gm_tree_begin(struct gm_tree *tree, enum gm_tree_type type)
{
	if (tree->depth + 1 >= GM_TREE_DEPTH && !tree->error)
		tree->error = -EMSGSIZE;
	if (tree->error)
		return;
	tree->ops->begin(tree, type);
	tree->levels[++tree->depth] = (struct gm_tree_level){ .type = type };
}

void gm_tree_end(struct gm_tree *tree)
{
	if (tree->error)
		return;
	tree->ops->end(tree);
	tree->depth--;
}

void gm_tree_null(struct gm_tree *tree)
{
	if (!tree->error)
		tree->ops->null(tree);
}

void gm_tree_bool(struct gm_tree *tree, bool truth)
{
	if (!tree->error)
		tree->ops->truth(tree, truth);
}

void gm_tree_int(struct gm_tree *tree, int64_t integer)
{
	if (!tree->error)
		tree->ops->integer(tree, integer);
}

void gm_tree_uint(struct gm_tree *tree, uint64_t word)
{
	if (!tree->error)
		tree->ops->word(tree, word);
}

void gm_tree_real(struct gm_tree *tree, double real)
{
	if (!tree->error)
		tree->ops->real(tree, real);
}

void gm_tree_text(struct gm_tree *tree, const char *text, size_t bytes)
{
	if (!tree->error)
		tree->ops->text(tree, text, bytes);
}

void gm_tree_string(struct gm_tree *tree, const char *text)
{
	gm_tree_text(tree, text, strlen(text));
}

void gm_tree_name(struct gm_tree *tree, const char *name)
{
	if (!tree->error)
		tree->ops->name(tree, name);
}

bool gm_tree_again(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort)
{
	return tree->error || tree->ops->again(tree, key, sort);
}

void gm_tree_expect(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort, bool soon)
{
	if (!tree->error)
		tree->ops->expect(tree, key, sort, soon);
}
