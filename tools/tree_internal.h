/*
 * tree_internal.h - what the two writers of trees share. Single-threaded.
 */
#ifndef GM_TOOLS_TREE_INTERNAL_H
#define GM_TOOLS_TREE_INTERNAL_H

#include "tools/table.h"
#include "tools/tree_write.h"

#define GM_TREE_DEPTH 80

struct gm_tree_level {
	enum gm_tree_type type;
	unsigned int batch;		/* pickle: items since the last mark */
	bool begun;			/* JSON: something stands here already */
	bool named;			/* JSON: a name stands here, its value is missing */
};

struct gm_tree_ops {
	void (*begin)(struct gm_tree *tree, enum gm_tree_type type);
	void (*end)(struct gm_tree *tree);
	void (*null)(struct gm_tree *tree);
	void (*truth)(struct gm_tree *tree, bool truth);
	void (*integer)(struct gm_tree *tree, int64_t integer);
	void (*word)(struct gm_tree *tree, uint64_t word);
	void (*real)(struct gm_tree *tree, double real);
	void (*text)(struct gm_tree *tree, const char *text, size_t bytes);
	bool (*again)(struct gm_tree *tree, uint64_t key, bool leaf);
	void (*close)(struct gm_tree *tree);
};

struct gm_tree {
	const struct gm_tree_ops *ops;
	FILE *out;
	int error;			/* the first one; then nothing more is written */
	unsigned int depth;
	struct gm_tree_level levels[GM_TREE_DEPTH];
	struct gm_table known;		/* key of again -> pickle: memo number + 1; JSON: kept + 1 */
	uint64_t pending;		/* key for what is begun next, 0 none */
	/* pickle */
	struct gm_values *texts;
	uint32_t memoised;
	/* JSON */
	uint64_t written;		/* bytes */
	char *kept;			/* texts of leaves, each behind its length */
	size_t kept_bytes, kept_room;
	size_t keeping_from;		/* where the one under way begins */
	unsigned int keeping_depth;	/* 0: none under way */
};

/* A writer of @ops; NULL: out of memory. */
struct gm_tree *gm_tree_open(FILE *out, const struct gm_tree_ops *ops);

#endif
