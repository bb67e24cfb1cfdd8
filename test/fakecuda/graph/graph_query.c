/*
 * graph_query.c - what a graph looks like, its edges as the program changes them, and its host functions.
 *
 * Lists follow one rule: a NULL array asks for the number; else as many as fit are given, the rest
 * of the array is cleared, and the number given is returned. Edge data that is not plain cannot be
 * left out: 402. All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

struct list {			/* being written to the program's arrays, any of them NULL */
	CUgraphNode *a, *b;
	CUgraphEdgeData *data;
	size_t max, n;
	bool lossy;
};

static void put(struct list *l, const struct fc_node *a, const struct fc_node *b,
		const CUgraphEdgeData *data)
{
	size_t i = l->n++;

	if (data && !l->data && l->a && !fc_edge_plain(data))
		l->lossy = true;
	if (i >= l->max)
		return;
	if (l->a)
		l->a[i] = a->handle;
	if (l->b)
		l->b[i] = b->handle;
	if (l->data && data)
		l->data[i] = *data;
}

static CUresult finish(struct list *l, size_t *ret_n)
{
	if (l->lossy)
		return CUDA_ERROR_LOSSY_QUERY;
	if (!l->a) {
		*ret_n = l->n;
		return CUDA_SUCCESS;
	}
	for (size_t i = l->n; i < l->max; i++) {
		l->a[i] = NULL;
		if (l->b)
			l->b[i] = NULL;
	}
	*ret_n = l->n < l->max ? l->n : l->max;
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	struct list l = { .a = nodes, .max = nodes && numNodes ? *numNodes : 0 };
	struct fc_graph *g;
	CUresult r = fc_graph_get(hGraph, &g);

	if (r)
		return r;
	if (!numNodes)
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct fc_node *n = g->nodes; n; n = n->next)
		put(&l, n, NULL, NULL);
	return finish(&l, numNodes);
}

CUresult fc_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	struct list l = { .a = rootNodes, .max = rootNodes && numRootNodes ? *numRootNodes : 0 };
	struct fc_graph *g;
	CUresult r = fc_graph_get(hGraph, &g);

	if (r)
		return r;
	if (!numRootNodes)
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct fc_node *n = g->nodes; n; n = n->next)
		if (!n->deps.n)
			put(&l, n, NULL, NULL);
	return finish(&l, numRootNodes);
}

CUresult fc_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
			       CUgraphEdgeData *edgeData, size_t *numEdges)
{
	struct list l = { .a = from, .b = to, .data = edgeData,
			  .max = from && numEdges ? *numEdges : 0 };
	struct fc_graph *g;
	CUresult r = fc_graph_get(hGraph, &g);

	if (r)
		return r;
	if (!numEdges || !from != !to || (edgeData && !from))
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct fc_node *n = g->nodes; n; n = n->next)
		for (size_t i = 0; i < n->outs.n; i++)
			put(&l, n, n->outs.e[i].node, &n->outs.e[i].data);
	return finish(&l, numEdges);
}

CUresult fc_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	struct fc_node *n;
	CUresult r = fc_node_get(hNode, &n);

	if (r)
		return r;
	if (!type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = n->type;
	return CUDA_SUCCESS;
}

/* ---- changing edges ---- */

static CUresult ends(const struct fc_graph *g, CUgraphNode from, CUgraphNode to,
		     struct fc_node **ret_from, struct fc_node **ret_to)
{
	CUresult r = fc_node_get(from, ret_from);

	r = r ? r : fc_node_get(to, ret_to);
	if (!r && ((*ret_from)->graph != g || (*ret_to)->graph != g || *ret_from == *ret_to))
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

CUresult fc_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
				      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
				      size_t numDependencies)
{
	struct fc_graph *g;
	struct fc_node *f, *t;
	CUresult r = fc_graph_get(hGraph, &g);

	if (!r && numDependencies && (!from || !to))
		r = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numDependencies && !r; i++) {
		r = ends(g, from[i], to[i], &f, &t);
		if (!r && fc_edge_find(&f->outs, t))
			r = CUDA_ERROR_INVALID_VALUE;
		r = r ? r : fc_edge_add(f, t, edgeData ? &edgeData[i] : NULL);
	}
	return r;
}

CUresult fc_node_typed(CUgraphNode h, CUgraphNodeType type, struct fc_node **ret_n)
{
	CUresult r = fc_node_get(h, ret_n);

	return r ? r : (*ret_n)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fc_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_HOST, &n);

	if (r)
		return r;
	return nodeParams && fc_work_host_params(n->work, nodeParams) ? CUDA_SUCCESS :
									CUDA_ERROR_INVALID_VALUE;
}
