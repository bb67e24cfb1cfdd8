/*
 * graph.c - graphs as objects: nodes, the edges between them, copies.
 *
 * An executable graph holds a copy of its graph without handles; nodes of a copy remember the id of
 * their original. Embedded graphs belong to their node. All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fc_graph *graphs;
static struct fc_exec *execs;

/* ---- graphs ---- */

struct fc_graph *fc_graph_new(bool with_handle)
{
	struct fc_graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	if (with_handle) {
		g->handle = fc_handle_new(FC_H_GRAPH, g);
		if (!g->handle) {
			free(g);
			return NULL;
		}
	}
	g->id = ++fc.next_id;
	g->tail = &g->nodes;
	g->next = graphs;
	g->prevp = &graphs;
	if (graphs)
		graphs->prevp = &g->next;
	graphs = g;
	return g;
}

void fc_graph_drop(struct fc_graph *g)
{
	if (!g)
		return;
	while (g->nodes)
		fc_node_drop(g->nodes);
	for (struct fc_exec *x = execs; x; x = x->next)
		if (x->of == g)
			x->of = NULL;
	*g->prevp = g->next;
	if (g->next)
		g->next->prevp = g->prevp;
	if (g->handle)
		fc_handle_drop(g->handle);
	free(g);
}

CUresult fc_graph_get(CUgraph h, struct fc_graph **ret_g)
{
	struct fc_graph *g = fc_handle_get(h, FC_H_GRAPH);

	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_g = g;
	return CUDA_SUCCESS;
}

CUresult fc_node_get(CUgraphNode h, struct fc_node **ret_n)
{
	struct fc_node *n = fc_handle_get(h, FC_H_NODE);

	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_n = n;
	return CUDA_SUCCESS;
}

bool fc_graph_has_memory(const struct fc_graph *g)
{
	if (g->memory)
		return true;
	for (const struct fc_node *n = g->nodes; n; n = n->next)
		if (n->child && fc_graph_has_memory(n->child))
			return true;
	return false;
}

/* ---- edges ---- */

struct fc_edge *fc_edge_find(const struct fc_edges *edges, const struct fc_node *node)
{
	for (size_t i = 0; i < edges->n; i++)
		if (edges->e[i].node == node)
			return &edges->e[i];
	return NULL;
}

bool fc_edge_plain(const CUgraphEdgeData *data)
{
	static const CUgraphEdgeData plain;

	return !memcmp(data, &plain, sizeof(plain));
}

static bool append(struct fc_edges *edges, struct fc_node *node, const CUgraphEdgeData *data)
{
	struct fc_edge *grown = realloc(edges->e, (edges->n + 1) * sizeof(*grown));

	if (!grown)
		return false;
	edges->e = grown;
	grown[edges->n].node = node;
	grown[edges->n++].data = data ? *data : (CUgraphEdgeData){ 0 };
	return true;
}

static void cut(struct fc_edges *edges, const struct fc_node *node)
{
	struct fc_edge *e = fc_edge_find(edges, node);

	if (e)
		memmove(e, e + 1, (size_t)(edges->e + --edges->n - e) * sizeof(*e));
}

CUresult fc_edge_add(struct fc_node *from, struct fc_node *to, const CUgraphEdgeData *data)
{
	if (!append(&to->deps, from, data))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!append(&from->outs, to, data)) {
		cut(&to->deps, from);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* ---- nodes ---- */

void fc_node_drop(struct fc_node *n)
{
	for (size_t i = 0; i < n->deps.n; i++)
		cut(&n->deps.e[i].node->outs, n);
	for (size_t i = 0; i < n->outs.n; i++)
		cut(&n->outs.e[i].node->deps, n);
	free(n->deps.e);
	free(n->outs.e);
	*n->prevp = n->next;
	if (n->next)
		n->next->prevp = n->prevp;
	else
		n->graph->tail = n->prevp;
	n->graph->n_nodes--;
	if (n->handle) {
		fc_capture_node_ended(n);
		fc_handle_drop(n->handle);
	}
	fc_work_put(n->work);
	fc_event_put(n->event);
	if (n->child) {
		n->child->parent = NULL;
		fc_graph_drop(n->child);
	}
	fc_gmem_put(n->mem);
	free(n);
}

static struct fc_node *make_node(struct fc_graph *g, CUgraphNodeType type, bool with_handle)
{
	struct fc_node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	if (with_handle) {
		n->handle = fc_handle_new(FC_H_NODE, n);
		if (!n->handle) {
			free(n);
			return NULL;
		}
	}
	n->graph = g;
	n->type = type;
	n->id = ++fc.next_id;
	n->prevp = g->tail;
	*g->tail = n;
	g->tail = &n->next;
	g->n_nodes++;
	return n;
}

CUresult fc_node_new(struct fc_graph *g, CUgraphNodeType type, const struct fc_edge *deps,
		     size_t n_deps, struct fc_node **ret_node)
{
	struct fc_node *n = make_node(g, type, true);
	CUresult r = n ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (size_t i = 0; !r && i < n_deps; i++)
		r = fc_edge_add(deps[i].node, n, &deps[i].data);
	if (r && n)
		fc_node_drop(n);
	else if (!r)
		*ret_node = n;
	return r;
}

/* ---- copies ---- */

static CUresult copy_node(struct fc_node *n, struct fc_graph *to, bool with_handles)
{
	struct fc_node *c = make_node(to, n->type, with_handles);
	CUresult r = CUDA_SUCCESS;

	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->source = n->id;
	n->copy = c;
	c->work = n->work ? fc_work_get(n->work) : NULL;
	c->event = n->event ? fc_event_ref(n->event) : NULL;
	c->mem = n->mem ? fc_gmem_get(n->mem) : NULL;
	c->disabled = n->disabled;
	if (n->child)
		r = fc_graph_copy(n->child, with_handles, &c->child);
	if (c->child)
		c->child->parent = c;
	return r;
}

CUresult fc_graph_copy(struct fc_graph *g, bool with_handles, struct fc_graph **ret_copy)
{
	struct fc_graph *copy = fc_graph_new(with_handles);
	CUresult r = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (struct fc_node *n = g->nodes; n && !r; n = n->next)
		r = copy_node(n, copy, with_handles);
	for (struct fc_node *n = g->nodes; n && !r; n = n->next)
		for (size_t i = 0; i < n->deps.n && !r; i++)
			r = fc_edge_add(n->deps.e[i].node->copy, n->copy, &n->deps.e[i].data);
	if (r) {
		fc_graph_drop(copy);
		return r;
	}
	copy->memory = g->memory;
	*ret_copy = copy;
	return CUDA_SUCCESS;
}

CUresult fc_graph_order(struct fc_graph *g, struct fc_node ***ret_order)
{
	struct fc_node **order = calloc(g->n_nodes ? g->n_nodes : 1, sizeof(struct fc_node *));
	size_t done = 0, n_order = 0;

	if (!order)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (struct fc_node *n = g->nodes; n; n = n->next) {
		n->unmet = n->deps.n;
		if (!n->unmet)
			order[n_order++] = n;
	}
	for (; done < n_order; done++)
		for (size_t i = 0; i < order[done]->outs.n; i++)
			if (!--order[done]->outs.e[i].node->unmet)
				order[n_order++] = order[done]->outs.e[i].node;
	if (n_order < g->n_nodes) {
		free(order);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_order = order;
	return CUDA_SUCCESS;
}

/* ---- executable graphs: the list of them ---- */

void fc_exec_link(struct fc_exec *x)
{
	x->next = execs;
	x->prevp = &execs;
	if (execs)
		execs->prevp = &x->next;
	execs = x;
}

/* ---- entries ---- */

CUresult fc_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	struct fc_graph *g;

	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	g = fc_graph_new(true);
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*phGraph = g->handle;
	return CUDA_SUCCESS;
}

/* One that belongs to a node, or that a capture still adds to, is not the program's to destroy. */
CUresult fc_cuGraphDestroy(CUgraph hGraph)
{
	struct fc_graph *g;
	CUresult r = fc_graph_get(hGraph, &g);

	if (r)
		return r;
	if (g->parent || g->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	fc_graph_drop(g);
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	struct fc_graph *g, *copy;
	CUresult r = fc_graph_get(originalGraph, &g);

	if (r)
		return r;
	if (!phGraphClone)
		return CUDA_ERROR_INVALID_VALUE;
	if (fc_graph_has_memory(g))
		return CUDA_ERROR_NOT_SUPPORTED;
	r = fc_graph_copy(g, true, &copy);
	if (!r)
		*phGraphClone = copy->handle;
	return r;
}

void fc_graph_ctx_ended(struct fc_ctx *ctx)
{
	(void)ctx;	/* graphs outlive contexts; launching one into a dead context is refused */
}

void fc_graph_reset(void)
{
	while (execs) {
		execs->refs = 1;
		fc_exec_put(execs);
	}
	while (graphs) {
		struct fc_graph *g = graphs;

		while (g->parent)
			g = g->parent->graph;
		fc_graph_drop(g);
	}
	fc_gmem_reset();
}

void fc_graph_dump(int fd)
{
	size_t n_graphs = 0, n_nodes = 0, n_execs = 0;

	for (const struct fc_graph *g = graphs; g; g = g->next, n_graphs++)
		n_nodes += g->n_nodes;
	for (const struct fc_exec *x = execs; x; x = x->next)
		n_execs++;
	dprintf(fd, "graphs %zu with %zu nodes, %zu of them executable\n", n_graphs, n_nodes,
		n_execs);
}
