/*
 * op.c - work and operations as objects: making, counting, and the dependencies between them.
 *
 * clock.c decides when an operation starts and ends; this file only keeps the graph. Lock: fc.lock.
 */
#include "test/fakecuda/stream/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- work ---- */

struct fc_work *fc_work_new(size_t size, enum fc_work_kind kind, const char *name,
			    struct fc_ctx *ctx, uint64_t duration_ns)
{
	struct fc_work *w = calloc(1, size);

	if (!w)
		return NULL;
	w->refs = 1;
	w->kind = kind;
	w->name = name;
	w->ctx = ctx ? fc_ctx_ref(ctx) : NULL;	/* graphs outlive contexts */
	w->duration_ns = duration_ns;
	return w;
}

struct fc_work *fc_work_get(struct fc_work *w)
{
	w->refs++;
	return w;
}

void fc_work_put(struct fc_work *w)
{
	struct fc_ctx *ctx;

	if (!w || --w->refs)
		return;
	ctx = w->ctx;
	free(w->ranges);
	free(w->wait);
	if (w->release)
		w->release(w);
	else
		free(w);
	fc_ctx_put(ctx);
}

int fc_work_touch(struct fc_work *w, uint64_t ptr, size_t size, bool write)
{
	struct fc_range *ranges;

	if (!size)
		return 0;
	ranges = realloc(w->ranges, (w->n_ranges + 1) * sizeof(*ranges));
	if (!ranges)
		return -ENOMEM;
	ranges[w->n_ranges++] = (struct fc_range){ .ptr = ptr, .size = size, .write = write };
	w->ranges = ranges;
	return 0;
}

int fc_work_use(struct fc_work *w, uint64_t ptr)
{
	int err = fc_work_touch(w, ptr, 1, true);

	if (!err)
		w->ranges[w->n_ranges - 1].use = true;
	return err;
}

/* ---- operations ---- */

struct fc_op *fc_op_new(struct fc_ctx *ctx, struct fc_stream *s, struct fc_work *w)
{
	struct fc_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->refs = 1;
	op->state = FC_OP_NEW;
	op->work = fc_work_get(w);
	op->ctx = fc_ctx_ref(ctx);
	op->stream = s ? fc_stream_ref(s) : NULL;
	return op;
}

struct fc_op *fc_op_get(struct fc_op *op)
{
	op->refs++;
	return op;
}

/* An operation that is never committed leaves the lists of those it was to wait for. */
static void forget_outs(struct fc_op *op)
{
	for (size_t i = 0; i < op->n_deps; i++) {
		struct fc_op *on = op->deps[i].on;

		for (size_t j = 0; j < on->n_outs; j++)
			if (on->outs[j].on == op)
				on->outs[j--] = on->outs[--on->n_outs];
	}
}

void fc_op_drop_deps(struct fc_op *op)
{
	struct fc_dep *deps = op->deps;
	size_t n = op->n_deps;

	op->deps = NULL;
	op->n_deps = 0;
	for (size_t i = 0; i < n; i++)
		fc_op_put(deps[i].on);
	free(deps);
}

void fc_op_put(struct fc_op *op)
{
	if (!op || --op->refs)
		return;
	if (op->state == FC_OP_NEW)
		forget_outs(op);
	fc_race_op_ended(op);
	fc_op_drop_deps(op);
	free(op->outs);
	fc_work_put(op->work);
	fc_stream_put(op->stream);
	fc_ctx_put(op->ctx);
	free(op);
}

static int append(struct fc_dep **list, size_t *n, struct fc_op *op, enum fc_dep_kind kind)
{
	struct fc_dep *grown = *list;

	if (!(*n & (*n - 1))) {		/* 0, 1, 2, 4, ...: full */
		grown = realloc(*list, (*n ? 2 * *n : 1) * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		*list = grown;
	}
	grown[(*n)++] = (struct fc_dep){ .on = op, .kind = kind };
	return 0;
}

static bool already_met(const struct fc_op *on, enum fc_dep_kind kind)
{
	if (on->state == FC_OP_DONE)
		return true;
	return kind == FC_AFTER_START && on->state >= FC_OP_RUNNING;
}

int fc_op_after(struct fc_op *op, struct fc_op *on, enum fc_dep_kind kind)
{
	if (!on || on == op)
		return 0;
	for (size_t i = 0; i < op->n_deps; i++)
		if (op->deps[i].on == on && op->deps[i].kind == kind)
			return 0;
	if (append(&op->deps, &op->n_deps, on, kind))
		return -ENOMEM;
	fc_op_get(on);
	if (already_met(on, kind))
		return 0;
	if (append(&on->outs, &on->n_outs, op, kind))
		return -ENOMEM;
	if (kind == FC_END_AFTER_END)
		op->unmet_end++;
	else
		op->unmet_start++;
	return 0;
}

/* Dependencies always point to earlier submissions, and pending operations keep theirs; whatever is
 * DONE needs no search. An explicit stack of marked operations: chains are long, joins are many. */
bool fc_op_precedes(struct fc_op *a, struct fc_op *b)
{
	static uint64_t search;
	struct fc_op *stack = b;

	if (fc_op_done(a) || a == b)
		return true;
	if (!b)
		return false;
	b->mark = ++search;
	b->mark_next = NULL;
	while (stack) {
		struct fc_op *op = stack;

		stack = op->mark_next;
		for (size_t i = 0; i < op->n_deps; i++) {
			struct fc_op *on = op->deps[i].on;

			if (op->deps[i].kind == FC_AFTER_START || on->seq < a->seq ||
			    on->mark == search)
				continue;
			if (on == a)
				return true;
			on->mark = search;
			on->mark_next = stack;
			stack = on;
		}
	}
	return false;
}
