/*
 * capture.c - stream capture: instead of being executed, what a stream is given becomes nodes.
 *
 * A capture has a graph, the stream it began in, and streams that joined it by waiting for an event
 * recorded in it. Each stream has the set of nodes that its next one will depend on. The capture
 * ends in the stream it began in, once all others have been joined back. All under fc.lock.
 */
#include "test/fakecuda/graph/capture.h"

#include <stdlib.h>
#include <string.h>

static struct capture *captures;

struct capture *cap_first(void)
{
	return captures;
}

/* ---- sets of nodes ---- */

bool cap_set_has(const struct cap_set *set, const struct fc_node *n)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->e[i].node == n)
			return true;
	return false;
}

CUresult cap_set_add(struct cap_set *set, struct fc_node *n, const CUgraphEdgeData *data)
{
	struct fc_edge *grown;

	if (cap_set_has(set, n))
		return CUDA_SUCCESS;
	grown = realloc(set->e, (set->n + 1) * sizeof(*grown));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	set->e = grown;
	grown[set->n++] = (struct fc_edge){ .node = n,
					    .data = data ? *data : (CUgraphEdgeData){ 0 } };
	return CUDA_SUCCESS;
}

CUresult cap_set_union(struct cap_set *into, const struct cap_set *from)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; i < from->n && !r; i++)
		r = cap_set_add(into, from->e[i].node, &from->e[i].data);
	return r;
}

void cap_set_clear(struct cap_set *set)
{
	free(set->e);
	set->e = NULL;
	set->n = 0;
}

void cap_set_remove(struct cap_set *set, const struct fc_node *n)
{
	size_t kept = 0;

	for (size_t i = 0; i < set->n; i++)
		if (set->e[i].node != n)
			set->e[kept++] = set->e[i];
	set->n = kept;
}

/* ---- captures ---- */

static CUresult cap_new(struct fc_stream *s, CUstreamCaptureMode mode, struct fc_graph *g,
			struct capture **ret_c)
{
	struct capture *c = calloc(1, sizeof(*c));
	CUresult r;

	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->refs = 1;
	c->id = ++fc.next_id;
	c->mode = mode;
	c->thread = fc_thread_id();
	c->given = g;
	c->graph = g ? g : fc_graph_new(true);
	c->origin = s;
	r = c->graph ? cap_join(c, s) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r) {
		if (!g)
			fc_graph_drop(c->graph);
		free(c);
		return r;
	}
	c->graph->capturing = true;
	c->next = captures;
	c->prevp = &captures;
	if (captures)
		captures->prevp = &c->next;
	captures = c;
	*ret_c = c;
	return CUDA_SUCCESS;
}

void cap_put(struct capture *c)
{
	if (--c->refs)
		return;
	free(c);
}

void cap_invalidate(struct capture *c)
{
	c->invalid = true;
}

CUresult cap_join(struct capture *c, struct fc_stream *s)
{
	struct cap_stream *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cs->cap = c;
	cs->s = s;
	cs->next = c->streams;
	c->streams = cs;
	s->capture = cs;
	s->ctx->captures++;
	return CUDA_SUCCESS;
}

static void leave(struct cap_stream *cs)
{
	struct cap_stream **at = &cs->cap->streams;

	while (*at != cs)
		at = &(*at)->next;
	*at = cs->next;
	cs->s->capture = NULL;
	cs->s->ctx->captures--;
	cap_set_clear(&cs->deps);
	free(cs);
}

void cap_end(struct capture *c, struct fc_graph **ret_graph)
{
	while (c->streams)
		leave(c->streams);
	cap_set_clear(&c->left);
	c->over = true;
	c->graph->capturing = false;
	*c->prevp = c->next;
	if (c->next)
		c->next->prevp = c->prevp;
	if (ret_graph)
		*ret_graph = c->graph;
	else if (!c->given)
		fc_graph_drop(c->graph);
	c->graph = NULL;
	cap_put(c);
}

/* ---- what becomes a node ---- */

bool fc_capture_on(struct fc_stream *s)
{
	return s->capture;
}

/* The stream that may have nodes now: NULL if it is not one of a capture in good order. */
static CUresult ready(struct fc_stream *s, struct cap_stream **ret_cs)
{
	*ret_cs = cap_of(s);
	return (*ret_cs)->cap->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

/* @n is now what the stream's next one depends on. */
static CUresult advance(struct cap_stream *cs, struct fc_node *n)
{
	cap_set_clear(&cs->deps);
	return cap_set_add(&cs->deps, n, NULL);
}

/* A launch that may overlap its predecessor, a kernel alone, keeps that in its edge. */
static void mark_overlap(struct cap_stream *cs, const struct fc_work *w)
{
	if (w->kind == FC_WORK_KERNEL && w->overlaps && cs->deps.n == 1 &&
	    cs->deps.e[0].node->type == CU_GRAPH_NODE_TYPE_KERNEL)
		cs->deps.e[0].data = (CUgraphEdgeData){
			.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
			.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC };
}

CUresult fc_capture_add(struct fc_stream *s, struct fc_work *w)
{
	struct cap_stream *cs;
	struct fc_node *n;
	CUresult r = ready(s, &cs);

	if (r)
		return r;
	mark_overlap(cs, w);
	r = fc_node_of_work(cs->cap->graph, w, cs->deps.e, cs->deps.n, &n);
	if (r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		cap_invalidate(cs->cap);
	return r ? r : advance(cs, n);
}

CUresult fc_capture_graph(struct fc_stream *s, struct fc_graph *g)
{
	struct cap_stream *cs;
	struct fc_node *n;
	CUresult r = ready(s, &cs);

	if (!r && fc_graph_has_memory(g)) {
		cap_invalidate(cs->cap);
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	r = r ? r : fc_node_of_graph(cs->cap->graph, g, cs->deps.e, cs->deps.n, &n);
	return r ? r : advance(cs, n);
}

CUresult fc_capture_alloc(struct fc_stream *s, size_t size, struct fc_pool *pool,
			  CUdeviceptr *ret_ptr)
{
	struct fc_device *dev = pool ? fc_pool_device(pool) : s->ctx->dev;
	struct cap_stream *cs;
	struct fc_node *n;
	CUresult r = ready(s, &cs);

	if (!r && (!ret_ptr || !dev))
		r = CUDA_ERROR_INVALID_VALUE;
	r = r ? r : fc_node_of_alloc(cs->cap->graph, dev, size ? size : 1, NULL, cs->deps.e,
				     cs->deps.n, &n, ret_ptr);
	return r ? r : advance(cs, n);
}

CUresult fc_capture_free(struct fc_stream *s, CUdeviceptr ptr)
{
	struct cap_stream *cs;
	struct fc_node *n;
	CUresult r = ready(s, &cs);

	r = r ? r : fc_node_of_free(cs->cap->graph, ptr, cs->deps.e, cs->deps.n, &n);
	return r ? r : advance(cs, n);
}

void fc_capture_node_ended(const struct fc_node *n)
{
	for (struct capture *c = captures; c; c = c->next) {
		for (struct cap_stream *cs = c->streams; cs; cs = cs->next)
			cap_set_remove(&cs->deps, n);
		for (struct cap_event *ce = c->events; ce; ce = ce->next)
			cap_set_remove(&ce->nodes, n);
		cap_set_remove(&c->left, n);
	}
}

/* ---- streams ---- */

/* Without the stream it began in a capture can never end well: it is over, and its graph gone. What
 * another stream still had to join stays to be joined. */
void fc_capture_stream_ended(struct fc_stream *s)
{
	struct cap_stream *cs = cap_of(s);

	fc_waiting_stream_ended(s);
	fc_race_stream_destroyed(s);
	if (!cs)
		return;
	if (cs->cap->origin == s) {
		cap_end(cs->cap, NULL);
		return;
	}
	if (cap_set_union(&cs->cap->left, &cs->deps))
		cap_invalidate(cs->cap);
	leave(cs);
}

static CUresult begin(CUstream hStream, CUstreamCaptureMode mode, struct fc_graph *g,
		      struct capture **ret_c)
{
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (s->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return cap_new(s, mode, g, ret_c);
}

CUresult fc_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	struct capture *c;

	return begin(hStream, mode, NULL, &c);
}

CUresult fc_cuStreamBeginCapture(CUstream hStream)
{
	return fc_cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult initial(struct fc_graph *g, const CUgraphNode *deps, const CUgraphEdgeData *data,
			size_t n_deps, struct cap_set *ret_set)
{
	CUresult r = n_deps && !deps ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	for (size_t i = 0; i < n_deps && !r; i++) {
		struct fc_node *n;

		r = fc_node_get(deps[i], &n);
		if (!r && n->graph != g)
			r = CUDA_ERROR_INVALID_VALUE;
		r = r ? r : cap_set_add(ret_set, n, data ? &data[i] : NULL);
	}
	if (r)
		cap_set_clear(ret_set);
	return r;
}

CUresult fc_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
					const CUgraphNode *dependencies,
					const CUgraphEdgeData *dependencyData,
					size_t numDependencies, CUstreamCaptureMode mode)
{
	struct cap_set deps = { 0 };
	struct fc_graph *g;
	struct capture *c;
	CUresult r = fc_graph_get(hGraph, &g);

	if (!r && (g->capturing || g->moved))
		r = CUDA_ERROR_INVALID_VALUE;
	r = r ? r : initial(g, dependencies, dependencyData, numDependencies, &deps);
	if (r)
		return r;
	r = begin(hStream, mode, g, &c);
	if (r)
		cap_set_clear(&deps);
	else
		c->streams->deps = deps;
	return r;
}

/* ---- the end ---- */

/* Mark what @set comes after, itself included; @stack has room for all nodes of the graph. */
static void mark_before(const struct cap_set *set, struct fc_node **stack)
{
	size_t n = 0;

	for (size_t i = 0; i < set->n; i++)
		if (!set->e[i].node->unmet++)
			stack[n++] = set->e[i].node;
	while (n) {
		const struct fc_node *at = stack[--n];

		for (size_t i = 0; i < at->deps.n; i++)
			if (!at->deps.e[i].node->unmet++)
				stack[n++] = at->deps.e[i].node;
	}
}

static bool all_marked(const struct cap_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		if (!set->e[i].node->unmet)
			return false;
	return true;
}

/* Is the end of every stream that took part known to the stream it began in? */
static bool joined(const struct capture *c)
{
	const struct cap_stream *origin = cap_of(c->origin);
	struct fc_node **stack = calloc(c->graph->n_nodes + 1, sizeof(*stack));
	bool all = stack;

	for (struct fc_node *n = c->graph->nodes; n; n = n->next)
		n->unmet = 0;
	if (stack)
		mark_before(&origin->deps, stack);
	free(stack);
	for (const struct cap_stream *cs = c->streams; cs && all; cs = cs->next)
		all = all_marked(&cs->deps);
	return all && all_marked(&c->left);
}

/* Ended in its stream, a capture is over, well or not (seen on an H200: from the wrong thread too,
 * while an attempt to end it in a stream that joined only invalidates it). */
static CUresult verdict(const struct capture *c)
{
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != fc_thread_id())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	return joined(c) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

CUresult fc_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	struct fc_graph *g;
	struct capture *c;
	struct fc_stream *s;
	CUresult r = fc_stream_get(hStream, &s);

	if (r)
		return r;
	if (!phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = NULL;
	if (!s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	c = cap_of(s)->cap;
	if (c->origin != s) {
		cap_invalidate(c);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	r = verdict(c);
	if (r) {
		cap_end(c, NULL);
		return r;
	}
	cap_end(c, &g);
	*phGraph = g->handle;
	return CUDA_SUCCESS;
}

void fc_capture_reset(void)
{
	while (captures)
		cap_end(captures, NULL);
}
