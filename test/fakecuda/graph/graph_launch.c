/*
 * graph_launch.c - launching an executable graph: operations for its nodes, between a first and a
 * last one in the stream.
 *
 *   stream ... ─ first ┬ node ─ node ┬ last ─ ...
 *                      └ node ───────┘
 *
 * All operations are made, with their dependencies, before the first is committed: a launch happens
 * as a whole or not at all. Launches of one executable graph come after each other. All under
 * fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdlib.h>

struct item {
	struct fc_op *op;	/* counted */
	struct fc_node *node;	/* NULL: begin or end of a graph */
};

struct launch {
	struct fc_stream *s;
	struct item *items;	/* in an order in which they may be committed */
	size_t n, max;
};

static CUresult add_item(struct launch *l, struct fc_op *op, struct fc_node *node)
{
	if (l->n == l->max) {
		size_t max = l->max ? 2 * l->max : 32;
		struct item *grown = realloc(l->items, max * sizeof(*grown));

		if (!grown) {
			fc_op_put(op);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		l->items = grown;
		l->max = max;
	}
	l->items[l->n++] = (struct item){ .op = op, .node = node };
	return CUDA_SUCCESS;
}

/* An operation of @w, which is consumed (NULL: out of memory), outside any stream. */
static CUresult new_op(struct launch *l, struct fc_work *w, struct fc_stream *s,
		       struct fc_node *node, struct fc_op **ret_op)
{
	struct fc_op *op = w ? fc_op_new(w->ctx, s, w) : NULL;
	CUresult r;

	fc_work_put(w);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = add_item(l, op, node);
	if (!r)
		*ret_op = op;
	return r;
}

static struct fc_work *marker(struct launch *l, const char *name)
{
	return fc_work_new(sizeof(struct fc_work), FC_WORK_OTHER, name, l->s->ctx, 0);
}

static CUresult work_of(struct launch *l, const struct fc_node *n, struct fc_work **ret_work)
{
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		*ret_work = fc_work_new(sizeof(struct fc_work), FC_WORK_ALLOC, "graph allocation",
					l->s->ctx, 0);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return fc_gmem_free_work(n->mem, "graph free", l->s->ctx, ret_work);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		*ret_work = marker(l, "graph event record");
		break;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		*ret_work = marker(l, "graph event wait");
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		*ret_work = marker(l, "embedded graph begins");
		break;
	default:
		*ret_work = n->work && !n->disabled ? fc_work_get(n->work) :
						      marker(l, "empty node");
	}
	return *ret_work ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static int after_edge(struct fc_op *op, const struct fc_edge *e)
{
	if (e->data.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
		return fc_op_after(op, e->node->op, FC_AFTER_END);
	return fc_op_after(op, e->node->op, FC_AFTER_START) ||
	       fc_op_after(op, e->node->op, FC_END_AFTER_END);
}

static CUresult depend(struct fc_op *op, const struct fc_node *n, struct fc_op *begin)
{
	int bad = 0;

	for (size_t i = 0; i < n->deps.n; i++)
		bad |= after_edge(op, &n->deps.e[i]);
	if (!n->deps.n)
		bad |= fc_op_after(op, begin, FC_AFTER_END);
	if (n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
		bad |= fc_op_after(op, n->event->op, FC_AFTER_END);
	return bad ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult build(struct launch *l, struct fc_graph *g, struct fc_node *const *order,
		      struct fc_op *begin, struct fc_stream *end_stream, struct fc_op **ret_end);

static CUresult build_child(struct launch *l, struct fc_node *n)
{
	struct fc_node **order;
	CUresult r = fc_graph_order(n->child, &order);

	if (r)
		return r;
	r = build(l, n->child, order, n->op, NULL, &n->op);
	free(order);
	return r;
}

static CUresult build_node(struct launch *l, struct fc_node *n, struct fc_op *begin)
{
	struct fc_work *w;
	CUresult r = work_of(l, n, &w);

	r = r ? r : new_op(l, w, NULL, n, &n->op);
	r = r ? r : depend(n->op, n, begin);
	return r || !n->child ? r : build_child(l, n);
}

static CUresult build(struct launch *l, struct fc_graph *g, struct fc_node *const *order,
		      struct fc_op *begin, struct fc_stream *end_stream, struct fc_op **ret_end)
{
	struct fc_op *end;
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; i < g->n_nodes && !r; i++)
		r = build_node(l, order[i], begin);
	r = r ? r : new_op(l, marker(l, "graph ends"), end_stream, NULL, &end);
	if (r)
		return r;
	if (fc_op_after(end, begin, FC_AFTER_END))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < g->n_nodes; i++)
		if (!order[i]->outs.n && fc_op_after(end, order[i]->op, FC_AFTER_END))
			return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_end = end;
	return CUDA_SUCCESS;
}

/* ---- what a launch needs first ---- */

static CUresult each_mem(struct fc_graph *g, CUresult (*fn)(struct fc_node *, void *), void *arg)
{
	CUresult r = CUDA_SUCCESS;

	for (struct fc_node *n = g->nodes; n && !r; n = n->next)
		r = n->mem ? fn(n, arg) : n->child ? each_mem(n->child, fn, arg) : CUDA_SUCCESS;
	return r;
}

static CUresult back(struct fc_node *n, void *unused)
{
	(void)unused;
	return n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? fc_gmem_back(n->mem) : CUDA_SUCCESS;
}

CUresult fc_exec_back(struct fc_exec *x)
{
	return each_mem(x->graph, back, NULL);
}

/* May its allocations and frees happen now? */
static CUresult check_mem(struct fc_node *n, void *flags)
{
	bool auto_free = *(uint64_t *)flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

	if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? fc_gmem_live(n->mem) && !auto_free :
						      !fc_gmem_may_end(n->mem))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult free_unfreed(struct fc_node *n, void *s)
{
	return n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && fc_gmem_live(n->mem) ?
		       fc_gmem_free_in(n->mem, s) : CUDA_SUCCESS;
}

static CUresult make_busy(struct fc_node *n, void *busy)
{
	fc_gmem_busy(n->mem, *(bool *)busy);
	return CUDA_SUCCESS;
}

static CUresult check_ctx(struct fc_graph *g)
{
	CUresult r = CUDA_SUCCESS;

	for (struct fc_node *n = g->nodes; n && !r; n = n->next) {
		if (n->work && !n->work->ctx->active)
			r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		else if (n->work)
			r = n->work->ctx->sticky;
		else if (n->child)
			r = check_ctx(n->child);
	}
	return r;
}

/* ---- the launch ---- */

static void launch_done(struct fc_op *op)
{
	struct fc_exec *x = op->user;
	bool busy = false;

	op->user = NULL;
	each_mem(x->graph, make_busy, &busy);
	x->running--;
	fc_exec_put(x);
}

static void commit(struct launch *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct fc_op *op = l->items[i].op;
		struct fc_node *n = l->items[i].node;

		fc_op_commit(op);
		if (!n)
			continue;
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			fc_gmem_begin(n->mem, op);
		else if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && fc_gmem_live(n->mem))
			fc_gmem_end(n->mem, op);
		else if (n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
			fc_event_set_op(n->event, op);
	}
}

static CUresult launch(struct fc_exec *x, struct launch *l)
{
	struct fc_op *begin, *end;
	bool busy = true;
	CUresult r = new_op(l, marker(l, "cuGraphLaunch"), l->s, NULL, &begin);

	if (r)
		return r;
	if (fc_op_order(begin, l->s) || fc_op_after(begin, x->last, FC_AFTER_END))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = build(l, x->graph, x->order, begin, l->s, &end);
	if (r)
		return r;
	each_mem(x->graph, make_busy, &busy);
	end->user = x;
	end->done = launch_done;
	x->refs++;
	x->running++;
	fc_op_put(x->last);
	x->last = fc_op_get(end);
	fc_stream_push(l->s, end);
	commit(l);
	return CUDA_SUCCESS;
}

static CUresult launch_in(struct fc_exec *x, struct fc_stream *s)
{
	struct launch l = { .s = s };
	CUresult r = check_ctx(x->graph);

	r = r ? r : each_mem(x->graph, check_mem, &x->flags);
	r = r ? r : fc_exec_back(x);
	r = r ? r : each_mem(x->graph, free_unfreed, s);
	r = r ? r : launch(x, &l);
	while (l.n)
		fc_op_put(l.items[--l.n].op);
	free(l.items);
	return r;
}

CUresult fc_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	struct fc_exec *x;
	struct fc_stream *s;
	CUresult r = fc_exec_get(hGraph, &x);

	r = r ? r : fc_stream_get(hStream, &s);
	if (r)
		return r;
	if (s->ctx->sticky)
		return s->ctx->sticky;
	if (fc_capture_on(s))
		return fc_capture_graph(s, x->graph);
	r = fc_capture_legacy(s);
	return r ? r : launch_in(x, s);
}

CUresult fc_exec_upload(struct fc_exec *x, struct fc_stream *s)
{
	struct launch l = { .s = s };
	struct fc_work *w;
	CUresult r = fc_exec_back(x);

	if (r)
		return r;
	w = marker(&l, "cuGraphUpload");
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = fc_submit(s, w, NULL);
	fc_work_put(w);
	return r;
}

CUresult fc_cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
	struct fc_exec *x;
	struct fc_stream *s;
	CUresult r = fc_exec_get(hGraph, &x);

	r = r ? r : fc_stream_get(hStream, &s);
	return r ? r : fc_exec_upload(x, s);
}
