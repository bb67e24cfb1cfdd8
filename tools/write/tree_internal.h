/*
 * tree_internal.h - what the two writers of trees share. Single-threaded.
 */
#ifndef GM_TOOLS_TREE_INTERNAL_H
#define GM_TOOLS_TREE_INTERNAL_H

#include "tools/write/sink.h"
#include "tools/read/table.h"
#include "tools/write/tree_write.h"

#define GM_TREE_DEPTH 80
#define GM_TREE_TEXTS 256u		/* a power of two */

struct gm_tree_level {
	enum gm_tree_type type;
	unsigned int batch;		/* pickle: items since the last mark */
	bool begun;			/* JSON: something stands here already */
	bool named;			/* JSON: a name stands here, its value is missing, */
	bool colon;			/* but not the colon between them */
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
	void (*name)(struct gm_tree *tree, const char *string);
	bool (*again)(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort);
	void (*expect)(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort, bool soon);
	void (*close)(struct gm_tree *tree);
};

/* JSON: texts of what may come again, each behind its length. */
struct gm_tree_kept {
	char *bytes;
	size_t count, room, most;
	struct gm_table places;		/* key of again -> place and length, never 0 */
	uint64_t pending;		/* key for what is begun next, 0 none */
	size_t from;			/* where the one under way begins */
	unsigned int depth;		/* of the one under way; 0: none */
};

struct gm_tree {
	const struct gm_tree_ops *ops;
	struct gm_sink sink;
	int error;			/* the first one; then nothing more is written */
	unsigned int depth;
	struct gm_tree_level levels[GM_TREE_DEPTH];
	/* pickle */
	struct gm_table known;		/* key of again, or a text -> memo number + 1 */
	uint64_t pending;		/* key for what is begun next, 0 none */
	struct gm_values *texts;
	uint32_t memoised;
	struct gm_tree_text { const struct gm_value *text; uint32_t number; } lately[GM_TREE_TEXTS];
	/* JSON */
	uint64_t written;		/* bytes */
	struct gm_tree_kept kept[2];	/* leaves; lists of leaves */
};

/* A writer of @ops; NULL: out of memory. */
struct gm_tree *gm_tree_open(FILE *out, const struct gm_tree_ops *ops);

#endif
