/*
 * race_access.c - who touched which bytes, and the rules that two accesses must keep.
 *
 * Of two accesses to the same bytes that no order connects:
 *
 *   in the same life of a block   one writes: "unordered". A kernel whose access is not known is
 *                                 sure to touch the byte its pointer names, in an unknown way: it
 *                                 conflicts with a copy or fill of that byte, not with another such
 *                                 kernel. A stream-ordered free conflicts with all: "freed".
 *   in different lives            not both only read: "reused". A kernel counts for all of the
 *                                 block.
 *
 * An access is forgotten when a later one that knows it stands for it in every judgement to come,
 * and when everything to come knows it.
 *
 * All under fc.lock.
 */
#include "test/fakecuda/race/race.h"

#include <stdlib.h>

struct access {
	struct race_node node;
	struct race_use use;
	struct race_op *ro;	/* counted */
};

static struct race_tree accesses;
static size_t pruned_at;	/* how many were left then */

static struct access *access_of(struct race_node *n)
{
	return (struct access *)n;	/* its first member */
}

static void forget(struct access *a)
{
	race_tree_remove(&accesses, &a->node);
	race_op_put(a->ro);
	free(a);
}

static void enter(struct race_op *ro, const struct race_use *use)
{
	struct access *a = calloc(1, sizeof(*a));

	if (!a) {
		race_broken();
		return;
	}
	a->node.start = use->start;
	a->node.end = use->end;
	a->use = *use;
	a->ro = race_op_get(ro);
	race_tree_add(&accesses, &a->node);
}

static bool holds(const struct race_use *use, uint64_t point)
{
	return use->start <= point && point < use->end;
}

static bool conflict_in_life(const struct race_use *a, const struct race_use *b)
{
	if (a->kind == RACE_FREE || b->kind == RACE_FREE)
		return a->kind != b->kind;
	if (a->kind == RACE_WORD || b->kind == RACE_WORD)
		return false;
	if (a->kind == RACE_USE || b->kind == RACE_USE)
		return a->kind != b->kind &&
		       (a->kind == RACE_USE ? holds(b, a->point) : holds(a, b->point));
	return a->kind == RACE_WRITE || b->kind == RACE_WRITE;
}

static bool conflict_across(const struct race_use *a, const struct race_use *b)
{
	if (a->kind == RACE_FREE || b->kind == RACE_FREE)
		return false;
	return a->kind != RACE_READ || b->kind != RACE_READ;
}

static const char *rule_of(const struct race_use *a, const struct race_use *b)
{
	if (a->life != b->life)
		return "reused";
	return a->kind == RACE_FREE || b->kind == RACE_FREE ? "freed" : "unordered";
}

/* @a is known to whoever knows @b: does @b stand for it from now on? */
static bool stands_for(const struct race_use *b, const struct race_use *a)
{
	if (a->life != b->life || b->start > a->start || b->end < a->end || b->late != a->late)
		return false;
	if (a->kind == b->kind)
		return a->kind != RACE_USE || a->point == b->point;
	return b->kind == RACE_WRITE && a->kind != RACE_FREE;
}

/* What a waiting kernel touches after the word has changed can be judged at its end only. */
static bool judged_later(const struct access *a, const struct race_use *use)
{
	if (a->use.life != use->life || a->use.kind == RACE_FREE || use->kind == RACE_FREE)
		return false;
	return use->late || (a->use.late && !a->ro->end_ok);
}

void race_access_start(struct race_op *ro, const struct race_use *use)
{
	size_t n;
	struct race_node **near = race_tree_find(&accesses, use->start, use->end, &n);

	for (size_t i = 0; i < n; i++) {
		struct access *a = access_of(near[i]);

		if (a->ro == ro)
			continue;
		if (race_vc_knows(&ro->start, a->ro->lane, a->ro->epoch)) {
			if (stands_for(use, &a->use))
				forget(a);
			continue;
		}
		if (judged_later(a, use))
			continue;
		if (a->use.life == use->life ? conflict_in_life(&a->use, use) :
					       conflict_across(&a->use, use))
			race_report(rule_of(&a->use, use), a->ro, &a->use, ro, use, NULL);
	}
	enter(ro, use);
}

void race_access_end(struct race_op *ro, const struct race_use *use)
{
	size_t n;
	struct race_node **near;

	if (!use->late)
		return;
	near = race_tree_find(&accesses, use->start, use->end, &n);
	for (size_t i = 0; i < n; i++) {
		struct access *a = access_of(near[i]);

		if (a->ro == ro || a->use.life != use->life || a->use.kind == RACE_FREE ||
		    (a->use.late && !a->ro->end_ok) ||
		    race_vc_knows(&ro->end, a->ro->lane, a->ro->epoch) ||
		    race_vc_knows(&a->ro->start, ro->lane, ro->epoch))
			continue;
		if (conflict_in_life(&a->use, use))
			race_report("unordered", a->ro, &a->use, ro, use, NULL);
	}
}

static void gone_unresolved(uint64_t start, uint64_t end, const char *by)
{
	for (struct race_op *ro = race_unresolved(); ro; ro = ro->next)
		for (size_t i = 0; !ro->start_ok && i < ro->n_uses; i++)
			if (ro->uses[i].start < end && ro->uses[i].end > start)
				race_report("gone", ro, &ro->uses[i], NULL, NULL, by);
}

void race_access_freed(uint64_t start, uint64_t end, const struct race_vc *vc, const char *by)
{
	size_t n;
	struct race_node **near = race_tree_find(&accesses, start, end, &n);

	for (size_t i = 0; i < n; i++) {
		struct access *a = access_of(near[i]);

		if (a->use.kind != RACE_FREE &&
		    !race_vc_knows(vc, a->ro->lane, a->ro->epoch))
			race_report("gone", a->ro, &a->use, NULL, NULL, by);
	}
	gone_unresolved(start, end, by);
}

void race_access_drop(uint64_t start, uint64_t end)
{
	size_t n;
	struct race_node **near = race_tree_find(&accesses, start, end, &n);

	for (size_t i = 0; i < n; i++)
		forget(access_of(near[i]));
}

void race_access_prune(const struct race_vc *vc)
{
	size_t n;
	struct race_node **all;

	if (accesses.count < 2 * pruned_at + 64)
		return;
	all = race_tree_find(&accesses, 0, UINT64_MAX, &n);
	for (size_t i = 0; i < n; i++) {
		struct access *a = access_of(all[i]);

		if (race_vc_knows(vc, a->ro->lane, a->ro->epoch))
			forget(a);
	}
	pruned_at = accesses.count;
}

static bool ended(const struct race_op *ro)
{
	return ro->end_ok && fc_op_done(ro->op);
}

void race_access_writers(uint64_t ptr, struct race_vc *into)
{
	size_t n;
	struct race_node **near = race_tree_find(&accesses, ptr, ptr + 1, &n);

	for (size_t i = 0; i < n; i++) {
		struct access *a = access_of(near[i]);

		if ((a->use.kind == RACE_WRITE || a->use.kind == RACE_USE) && ended(a->ro))
			race_vc_join(into, &a->ro->end);
	}
}

void race_access_frees(uint64_t start, uint64_t end, struct race_vc *into)
{
	size_t n;
	struct race_node **near = race_tree_find(&accesses, start, end, &n);

	for (size_t i = 0; i < n; i++) {
		struct access *a = access_of(near[i]);

		if (a->use.kind != RACE_FREE || !a->ro->end_ok)
			continue;
		race_vc_join(into, &a->ro->end);
		if (a->use.start >= start && a->use.end <= end)
			forget(a);
	}
}

size_t race_access_count(void)
{
	return accesses.count;
}

void race_access_reset(void)
{
	race_access_drop(0, UINT64_MAX);
	pruned_at = 0;
}
