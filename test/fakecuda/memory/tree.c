/*
 * tree.c - which live allocation an address points into: a treap by base address.
 *
 * Priorities are a hash of the address, so the shape is the same in every run. Lock: fc.lock.
 */
#include "test/fakecuda/memory/memory.h"

#include <stdlib.h>

static struct fc_alloc *root;

static uint32_t hash(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15u;
	x ^= x >> 32;
	return (uint32_t)x;
}

/* Everything below @key to the left, the rest to the right. */
static void split(struct fc_alloc *t, uint64_t key, struct fc_alloc **ret_l,
		  struct fc_alloc **ret_r)
{
	if (!t) {
		*ret_l = *ret_r = NULL;
	} else if (t->base < key) {
		split(t->right, key, &t->right, ret_r);
		*ret_l = t;
	} else {
		split(t->left, key, ret_l, &t->left);
		*ret_r = t;
	}
}

static struct fc_alloc *merge(struct fc_alloc *l, struct fc_alloc *r)
{
	if (!l || !r)
		return l ? l : r;
	if (l->prio > r->prio) {
		l->right = merge(l->right, r);
		return l;
	}
	r->left = merge(l, r->left);
	return r;
}

void fc_alloc_add(struct fc_alloc *a)
{
	struct fc_alloc **at = &root;

	a->prio = hash(a->base);
	a->id = ++fc.next_id;
	while (*at && (*at)->prio >= a->prio)
		at = a->base < (*at)->base ? &(*at)->left : &(*at)->right;
	split(*at, a->base, &a->left, &a->right);
	*at = a;
}

void fc_alloc_remove(struct fc_alloc *a)
{
	struct fc_alloc **at = &root;

	while (*at && *at != a)
		at = a->base < (*at)->base ? &(*at)->left : &(*at)->right;
	if (*at)
		*at = merge(a->left, a->right);
	a->left = a->right = NULL;
}

struct fc_alloc *fc_alloc_find(uint64_t ptr)
{
	struct fc_alloc *best = NULL;

	for (struct fc_alloc *a = root; a; a = ptr < a->base ? a->left : a->right)
		if (a->base <= ptr)
			best = a;
	return best && ptr - best->base < (best->size ? best->size : 1) ? best : NULL;
}

struct fc_alloc *fc_alloc_next(uint64_t ptr)
{
	struct fc_alloc *best = NULL;

	for (struct fc_alloc *a = root; a; a = ptr <= a->base ? a->left : a->right)
		if (a->base >= ptr)
			best = a;
	return best;
}

static int check(const struct fc_alloc *a, uint64_t *end)
{
	int bad = 0;

	if (!a)
		return 0;
	bad += check(a->left, end);
	bad += a->base < *end;
	*end = a->base + a->size;
	bad += (a->left && a->left->prio > a->prio) + (a->right && a->right->prio > a->prio);
	return bad + check(a->right, end);
}

int fc_tree_check(void)
{
	uint64_t end = 0;

	return check(root, &end);
}

void fc_tree_reset(void)
{
	while (root)
		fc_mem_drop(root);
}
