/*
 * race_tree.c - ranges of addresses that may overlap: a treap by start, with the largest end below
 * each node. The nodes are their owners'. All under fc.lock.
 */
#include "test/fakecuda/race/race.h"

#include <stdlib.h>

static struct race_node **found;
static size_t found_size;
static uint32_t seed = 1;

static uint32_t next_prio(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

static void update(struct race_node *n)
{
	n->max_end = n->end;
	if (n->left && n->left->max_end > n->max_end)
		n->max_end = n->left->max_end;
	if (n->right && n->right->max_end > n->max_end)
		n->max_end = n->right->max_end;
}

/* Total order, so that a node is found again among equal ranges. */
static bool before(const struct race_node *a, const struct race_node *b)
{
	return a->start != b->start ? a->start < b->start : (uintptr_t)a < (uintptr_t)b;
}

static struct race_node *merge(struct race_node *a, struct race_node *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a->prio > b->prio) {
		a->right = merge(a->right, b);
		update(a);
		return a;
	}
	b->left = merge(a, b->left);
	update(b);
	return b;
}

static void split(struct race_node *t, const struct race_node *at, struct race_node **ret_low,
		  struct race_node **ret_high)
{
	if (!t) {
		*ret_low = *ret_high = NULL;
	} else if (before(t, at)) {
		split(t->right, at, &t->right, ret_high);
		update(t);
		*ret_low = t;
	} else {
		split(t->left, at, ret_low, &t->left);
		update(t);
		*ret_high = t;
	}
}

void race_tree_add(struct race_tree *t, struct race_node *n)
{
	struct race_node *low, *high;

	n->left = n->right = NULL;
	n->prio = next_prio();
	n->max_end = n->end;
	split(t->root, n, &low, &high);
	t->root = merge(merge(low, n), high);
	t->count++;
}

static struct race_node *without(struct race_node *t, struct race_node *n)
{
	if (!t)
		return NULL;
	if (t == n)
		return merge(t->left, t->right);
	if (before(n, t))
		t->left = without(t->left, n);
	else
		t->right = without(t->right, n);
	update(t);
	return t;
}

void race_tree_remove(struct race_tree *t, struct race_node *n)
{
	t->root = without(t->root, n);
	t->count--;
}

static bool keep(struct race_node *n, size_t *count)
{
	if (*count == found_size) {
		size_t size = found_size ? 2 * found_size : 64;
		struct race_node **grown = realloc(found, size * sizeof(*grown));

		if (!grown) {
			race_broken();
			return false;
		}
		found = grown;
		found_size = size;
	}
	found[(*count)++] = n;
	return true;
}

static void collect(struct race_node *t, uint64_t start, uint64_t end, size_t *count)
{
	if (!t || t->max_end <= start)
		return;
	collect(t->left, start, end, count);
	if (t->start >= end)
		return;
	if (t->end > start && !keep(t, count))
		return;
	collect(t->right, start, end, count);
}

struct race_node **race_tree_find(const struct race_tree *t, uint64_t start, uint64_t end,
				  size_t *ret_n)
{
	*ret_n = 0;
	collect(t->root, start, end, ret_n);
	return found;
}

void race_tree_reset(void)
{
	free(found);
	found = NULL;
	found_size = 0;
	seed = 1;
}
