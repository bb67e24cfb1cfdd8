/*
 * free_tree.h - one treap of free blocks, ordered by (size, address): a class of a free set.
 *
 * The links lie with the blocks' sizes and addresses (struct gm_free_link), so that a walk touches
 * nothing else. A tree is where its root is stored; so is every place in it.
 *
 * Context: the caller holds the lock of the domain. Private to free_set.c.
 */
#ifndef GM_ALLOCATOR_FREE_TREE_H
#define GM_ALLOCATOR_FREE_TREE_H

#include "allocator/free_set.h"

typedef unsigned __int128 gm_tree_key;	/* (size, address) as one number */

static inline gm_tree_key gm_tree_key_of(uint64_t size, uint64_t address)
{
	return (gm_tree_key)size << 64 | address;
}

/* Priorities of the treap: a fixed mix of the id, so that runs are repeatable. No two ids have the same
 * one; quadratic, so that ids at equal distances are no chain. */
static inline uint32_t gm_tree_priority(uint32_t id)
{
	return id * (2 * id + 1) * 0x9e3779b1u;
}

static inline bool gm_tree_before(const struct gm_free_link *links, uint32_t a, gm_tree_key key)
{
	return gm_tree_key_of(links[a].size, links[a].address) < key;
}

/* Split @root into what is before the key and the rest. */
static inline void gm_tree_split(struct gm_free_link *links, uint32_t root, gm_tree_key key,
				 uint32_t *ret_before, uint32_t *ret_rest)
{
	while (root) {
		if (gm_tree_before(links, root, key)) {
			*ret_before = root;
			ret_before = &links[root].right;
			root = *ret_before;
		} else {
			*ret_rest = root;
			ret_rest = &links[root].left;
			root = *ret_rest;
		}
	}
	*ret_before = GM_NONE;
	*ret_rest = GM_NONE;
}

static inline void gm_tree_insert(struct gm_free_link *links, uint32_t *at, uint32_t block,
				  gm_tree_key key)
{
	struct gm_free_link *link = &links[block];
	uint32_t priority;

	if (!*at) {			/* most often: the only one of its class */
		link->left = link->right = GM_NONE;
		*at = block;
		return;
	}
	priority = gm_tree_priority(block);
	while (*at && gm_tree_priority(*at) >= priority)
		at = gm_tree_before(links, *at, key) ? &links[*at].right : &links[*at].left;
	gm_tree_split(links, *at, key, &link->left, &link->right);
	*at = block;
}

/* The two below a block that goes, put where it was. */
static inline void gm_tree_unlink(struct gm_free_link *links, uint32_t *at, uint32_t block)
{
	uint32_t a = links[block].left, b = links[block].right;

	while (a && b) {
		if (gm_tree_priority(a) >= gm_tree_priority(b)) {
			*at = a;
			at = &links[a].right;
			a = *at;
		} else {
			*at = b;
			at = &links[b].left;
			b = *at;
		}
	}
	*at = a ? a : b;
}

/* Where @block hangs. NULL: it is not there, gm_free_set_check tells. */
static inline uint32_t *gm_tree_place(struct gm_free_link *links, uint32_t *at, uint32_t block)
{
	gm_tree_key key = gm_tree_key_of(links[block].size, links[block].address);

	while (*at && *at != block)
		at = gm_tree_before(links, *at, key) ? &links[*at].right : &links[*at].left;
	return *at ? at : NULL;
}

/* Where the first one not before @key hangs; NULL: there is none. */
static inline uint32_t *gm_tree_lower_bound(struct gm_free_link *links, uint32_t *at,
					    gm_tree_key key)
{
	uint32_t *found = NULL;

	while (*at) {
		if (gm_tree_before(links, *at, key)) {
			at = &links[*at].right;
		} else {
			found = at;
			at = &links[*at].left;
		}
	}
	return found;
}

/* Where the first one of all hangs, of one at least. */
static inline uint32_t *gm_tree_first(struct gm_free_link *links, uint32_t *at)
{
	while (links[*at].left)
		at = &links[*at].left;
	return at;
}

/* The last one smaller than @size; GM_NONE: there is none. */
static inline uint32_t gm_tree_last_below(const struct gm_free_link *links, uint32_t root, uint64_t size)
{
	uint32_t found = GM_NONE;

	while (root) {
		if (gm_tree_before(links, root, gm_tree_key_of(size, 0))) {
			found = root;
			root = links[root].right;
		} else {
			root = links[root].left;
		}
	}
	return found;
}

#endif
