/*
 * graph_query.c - what a graph looks like, and its edges as the program changes them.
 *
 * Lists follow one rule: a NULL array asks for the number; else as many as fit are given, the rest
 * of the array is cleared, and the number given is returned. Edge data that is not plain cannot be
 * left out: 402. All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdio.h>

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

CUresult fc_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	return fc_cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

static CUresult neighbours(const struct fc_edges *edges, CUgraphNode *nodes,
			   CUgraphEdgeData *edgeData, size_t *num)
{
	struct list l = { .a = nodes, .data = edgeData, .max = nodes && num ? *num : 0 };

	if (!num || (edgeData && !nodes))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < edges->n; i++)
		put(&l, edges->e[i].node, NULL, &edges->e[i].data);
	return finish(&l, num);
}

CUresult fc_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
					  CUgraphEdgeData *edgeData, size_t *numDependencies)
{
	struct fc_node *n;
	CUresult r = fc_node_get(hNode, &n);

	return r ? r : neighbours(&n->deps, dependencies, edgeData, numDependencies);
}

CUresult fc_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
				       size_t *numDependencies)
{
	return fc_cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult fc_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
					    CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
	struct fc_node *n;
	CUresult r = fc_node_get(hNode, &n);

	return r ? r : neighbours(&n->outs, dependentNodes, edgeData, numDependentNodes);
}

CUresult fc_cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
					 size_t *numDependentNodes)
{
	return fc_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
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

CUresult fc_cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
				   CUgraph hClonedGraph)
{
	struct fc_node *n;
	struct fc_graph *g;
	CUresult r = fc_node_get(hOriginalNode, &n);

	r = r ? r : fc_graph_get(hClonedGraph, &g);
	if (r)
		return r;
	if (!phNode)
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct fc_node *c = g->nodes; c; c = c->next)
		if (c->source == n->id) {
			*phNode = c->handle;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Nodes and edges alone, whatever @flags ask for. */
CUresult fc_cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
	struct fc_graph *g;
	FILE *f;
	CUresult r = fc_graph_get(hGraph, &g);

	(void)flags;
	if (r)
		return r;
	f = path ? fopen(path, "we") : NULL;
	if (!f)
		return CUDA_ERROR_INVALID_VALUE;
	fprintf(f, "digraph dot {\n");
	for (const struct fc_node *n = g->nodes; n; n = n->next)
		fprintf(f, "\t\"node_%llu\" [label=\"%s, type %d\"];\n", (unsigned long long)n->id,
			n->work ? n->work->name : "", (int)n->type);
	for (const struct fc_node *n = g->nodes; n; n = n->next)
		for (size_t i = 0; i < n->outs.n; i++)
			fprintf(f, "\t\"node_%llu\" -> \"node_%llu\";\n",
				(unsigned long long)n->id,
				(unsigned long long)n->outs.e[i].node->id);
	fprintf(f, "}\n");
	return fclose(f) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
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

CUresult fc_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				   size_t numDependencies)
{
	return fc_cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult fc_cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
					 const CUgraphNode *to, const CUgraphEdgeData *edgeData,
					 size_t numDependencies)
{
	struct fc_graph *g;
	struct fc_node *f, *t;
	CUresult r = fc_graph_get(hGraph, &g);

	(void)edgeData;
	if (!r && numDependencies && (!from || !to))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && numDependencies && g->memory)
		r = CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < numDependencies && !r; i++) {
		r = ends(g, from[i], to[i], &f, &t);
		if (!r && !fc_edge_find(&f->outs, t))
			r = CUDA_ERROR_INVALID_VALUE;
		if (!r)
			fc_edge_remove(f, t);
	}
	return r;
}

CUresult fc_cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from,
				      const CUgraphNode *to, size_t numDependencies)
{
	return fc_cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}
