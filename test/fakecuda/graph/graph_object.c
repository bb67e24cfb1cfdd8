/*
 * graph_object.c - user objects: what a program wants to outlive its graphs and their launches.
 *
 * References are held by the program and by graphs; an executable graph takes those of the graph it
 * is made from. With the last one the destructor is called like a host function: on the worker
 * thread, where CUDA calls are refused. All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <limits.h>
#include <stdlib.h>

struct object {
	CUuserObject handle;
	unsigned long refs;	/* the program's, and the graphs' */
	void *ptr;
	CUhostFn destroy;
};

struct fc_uref {
	struct object *object;
	unsigned int count;
	struct fc_uref *next;
};

/* Without any context there is nothing to run it on: it is never called. */
static void call_destructor(const struct object *o)
{
	struct fc_ctx *ctx = fc.ctxs;
	struct fc_work *w;
	struct fc_op *op;

	while (ctx && ctx->sticky)
		ctx = ctx->next;
	if (!ctx || fc_work_host(ctx, o->destroy, o->ptr, &w)) {
		fc_log("no context for the destructor of a user object");
		return;
	}
	w->name = "destructor of a user object";
	w->duration_ns = 0;
	op = fc_op_new(ctx, NULL, w);
	if (op)
		fc_op_commit(op);
	fc_op_put(op);
	fc_work_put(w);
}

static void release(struct object *o, unsigned long count)
{
	o->refs -= count;
	if (o->refs)
		return;
	fc_handle_drop(o->handle);
	call_destructor(o);
	free(o);
}

static CUresult get(CUuserObject h, unsigned int count, struct object **ret_o)
{
	struct object *o = fc_handle_get(h, FC_H_USEROBJ);

	if (!o || !count || count > INT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_o = o;
	return CUDA_SUCCESS;
}

static CUresult add_ref(struct fc_graph *g, struct object *o, unsigned int count)
{
	struct fc_uref *u = g->objects;

	while (u && u->object != o)
		u = u->next;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return CUDA_ERROR_OUT_OF_MEMORY;
		u->object = o;
		u->next = g->objects;
		g->objects = u;
	}
	u->count += count;
	return CUDA_SUCCESS;
}

void fc_uref_drop_all(struct fc_graph *g)
{
	while (g->objects) {
		struct fc_uref *u = g->objects;

		g->objects = u->next;
		release(u->object, u->count);
		free(u);
	}
}

CUresult fc_uref_copy(const struct fc_graph *from, struct fc_graph *to)
{
	CUresult r = CUDA_SUCCESS;

	for (const struct fc_uref *u = from->objects; u && !r; u = u->next) {
		r = add_ref(to, u->object, u->count);
		if (!r)
			u->object->refs += u->count;
	}
	return r;
}

/* ---- entries ---- */

CUresult fc_cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
			       unsigned int initialRefcount, unsigned int flags)
{
	struct object *o;

	if (!object_out || !destroy || !initialRefcount || initialRefcount > INT_MAX ||
	    flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	o = calloc(1, sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->handle = fc_handle_new(FC_H_USEROBJ, o);
	if (!o->handle) {
		free(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->refs = initialRefcount;
	o->ptr = ptr;
	o->destroy = destroy;
	*object_out = o->handle;
	return CUDA_SUCCESS;
}

CUresult fc_cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	struct object *o;
	CUresult r = get(object, count, &o);

	if (!r)
		o->refs += count;
	return r;
}

CUresult fc_cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	struct object *o;
	CUresult r = get(object, count, &o);

	if (r)
		return r;
	if (count > o->refs)
		return CUDA_ERROR_INVALID_VALUE;
	release(o, count);
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
				    unsigned int flags)
{
	struct fc_graph *g;
	struct object *o;
	CUresult r = fc_graph_get(graph, &g);

	r = r ? r : get(object, count, &o);
	if (r)
		return r;
	if (flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	r = add_ref(g, o, count);
	if (!r && !(flags & CU_GRAPH_USER_OBJECT_MOVE))
		o->refs += count;
	return r;
}

CUresult fc_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	struct fc_graph *g;
	struct fc_uref **at;
	struct object *o;
	CUresult r = fc_graph_get(graph, &g);

	r = r ? r : get(object, count, &o);
	if (r)
		return r;
	for (at = &g->objects; *at && (*at)->object != o;)
		at = &(*at)->next;
	if (!*at || (*at)->count < count)
		return CUDA_ERROR_INVALID_VALUE;
	(*at)->count -= count;
	if (!(*at)->count) {
		struct fc_uref *u = *at;

		*at = u->next;
		free(u);
	}
	release(o, count);
	return CUDA_SUCCESS;
}
