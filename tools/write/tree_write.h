/*
 * tree_write.h - a tree of values written as it comes, as a pickle or as JSON.
 *
 * Pickles are of protocol 2 and use only what PyTorch's viewer can read: no batch of more than 1,000
 * items, what is equal written once. Single-threaded.
 */
#ifndef GM_TOOLS_TREE_WRITE_H
#define GM_TOOLS_TREE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum gm_tree_type { GM_TREE_LIST, GM_TREE_TUPLE, GM_TREE_DICT };

struct gm_tree;

/* Write to @out. NULL: out of memory. */
struct gm_tree *gm_tree_pickle(FILE *out);
struct gm_tree *gm_tree_json(FILE *out);

/* How many bytes have been written; of JSON alone. */
uint64_t gm_tree_bytes(const struct gm_tree *tree);

/* End it. Returns 0, -ENOMEM, -EMSGSIZE (JSON beyond 8 GiB), -EOVERFLOW (limit.h), or -errno of a write. */
int gm_tree_close(struct gm_tree *tree);

/* In a dict, names (texts) and values come in turn. */
void gm_tree_begin(struct gm_tree *tree, enum gm_tree_type type);
void gm_tree_end(struct gm_tree *tree);
void gm_tree_null(struct gm_tree *tree);
void gm_tree_bool(struct gm_tree *tree, bool truth);
void gm_tree_int(struct gm_tree *tree, int64_t integer);
void gm_tree_uint(struct gm_tree *tree, uint64_t word);
void gm_tree_real(struct gm_tree *tree, double real);
void gm_tree_text(struct gm_tree *tree, const char *text, size_t bytes);
void gm_tree_string(struct gm_tree *tree, const char *text);	/* the same, up to its NUL */

/* The name of a member: gm_tree_string, but faster where it is short and needs no escape. */
void gm_tree_name(struct gm_tree *tree, const char *name);

/* Has the list or dict that the caller knows as @key (not 0) been written before? Then it is
 * written again, and that is all. Else false, and what is begun next is remembered as @key. JSON,
 * which cannot refer, keeps the text of small ones alone: leaves, and lists of them, which the
 * caller says. */
enum gm_tree_sort { GM_TREE_LEAF, GM_TREE_LEAVES, GM_TREE_OTHER };
bool gm_tree_again(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort);

/* It will be asked for: first of all, some ten before, then @soon, some three before. It does nothing
 * but that what is known of it comes into the cache meanwhile. */
void gm_tree_expect(struct gm_tree *tree, uint64_t key, enum gm_tree_sort sort, bool soon);

#endif
