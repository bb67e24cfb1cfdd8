/*
 * graph_mem.c - memory nodes: addresses that stay, memory that comes and goes behind them.
 *
 * An allocation node has an address range for as long as any graph, executable graph, launch or
 * unfreed allocation refers to it. Memory is put behind it when it is first launched or uploaded,
 * and stays there until no executable graph is left that has the node and it has been freed, or
 * until cuDeviceGraphMemTrim finds it idle. Allocations of one graph that could share memory do
 * not.
 *
 * All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "test/fakecuda/memory/memory.h"

struct fc_gmem {
	unsigned int refs;	/* nodes, frees on their way, a live allocation */
	unsigned int holds;	/* executable graphs that have it */
	unsigned int busy;	/* launches and frees that are not complete */
	struct fc_device *dev;
	struct fc_alloc *a;	/* host NULL: no memory behind it */
	uint64_t owner;		/* id of the graph with the allocation node */
	bool freed_inside, freed_elsewhere;	/* by a node */
	bool live;		/* allocated by a launch, no free submitted */
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUmemAccessDesc *access;
	struct fc_gmem *next, **prevp;
};

static struct fc_gmem *gmems;

/* ---- memory behind addresses ---- */

CUresult fc_gmem_back(struct fc_gmem *m)
{
	if (m->a->phys)
		return CUDA_SUCCESS;
	return fc_gphys_take(m->dev, m->a->reserved, &m->a->phys, &m->a->host);
}

/* Take the memory away from an address that nothing uses. */
static void strip(struct fc_gmem *m)
{
	struct fc_alloc *a = m->a;

	if (!a->phys || m->live || m->busy)
		return;
	fc_gphys_give(m->dev, a->phys, a->host, a->reserved);
	a->phys = NULL;
	a->host = NULL;
}

void fc_gmem_strip_idle(struct fc_device *dev)
{
	for (struct fc_gmem *m = gmems; m; m = m->next)
		if (m->dev == dev)
			strip(m);
}

static void strip_unheld(struct fc_gmem *m)
{
	if (!m->holds)
		strip(m);
}

/* ---- objects ---- */

static CUresult make(struct fc_device *dev, size_t size, struct fc_gmem **ret_m)
{
	size_t reserved = (size + FC_CHUNK - 1) / FC_CHUNK * FC_CHUNK;
	struct fc_gmem *m = calloc(1, sizeof(*m));
	uint64_t va = m && reserved >= size ? fc_region_take(reserved, FC_CHUNK, 0, false) : 0;

	if (!va) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->a = fc_mem_new(FC_MEM_GRAPH, dev, NULL, va, size, NULL);
	if (!m->a) {
		fc_region_give(va);
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->a->reserved = reserved;
	m->a->owner = m;
	m->a->freed = true;	/* unless it is live, nothing but a graph knows it */
	m->dev = dev;
	m->refs = 1;
	m->next = gmems;
	m->prevp = &gmems;
	if (gmems)
		gmems->prevp = &m->next;
	gmems = m;
	fc_race_alloc(m->a, NULL);
	*ret_m = m;
	return CUDA_SUCCESS;
}

struct fc_gmem *fc_gmem_get(struct fc_gmem *m)
{
	m->refs++;
	return m;
}

void fc_gmem_put(struct fc_gmem *m)
{
	uint64_t va;

	if (!m || --m->refs)
		return;
	m->live = false;
	m->busy = 0;
	strip(m);
	*m->prevp = m->next;
	if (m->next)
		m->next->prevp = m->prevp;
	va = m->a->base;
	fc_mem_drop(m->a);
	fc_region_give(va);
	free(m->access);
	free(m);
}

bool fc_gmem_live(const struct fc_gmem *m)
{
	return m->live;
}

bool fc_gmem_may_end(const struct fc_gmem *m)
{
	return m->live || m->freed_inside;
}

void fc_gmem_hold(struct fc_gmem *m)
{
	m->holds++;
}

void fc_gmem_unhold(struct fc_gmem *m)
{
	m->holds--;
	strip_unheld(m);
}

void fc_gmem_busy(struct fc_gmem *m, bool busy)
{
	if (busy)
		m->busy++;
	else if (m->busy)		/* none are left after a reset */
		m->busy--;
	strip_unheld(m);
}

/* ---- what happens to them ---- */

void fc_gmem_begin(struct fc_gmem *m, struct fc_op *op)
{
	m->live = true;
	m->a->freed = false;
	m->refs++;
	fc_race_alloc(m->a, op);
}

void fc_gmem_end(struct fc_gmem *m, struct fc_op *op)
{
	m->live = false;
	m->a->freed = true;
	fc_race_free(m->a, op);
	strip_unheld(m);
	fc_gmem_put(m);
}

struct free_work {
	struct fc_work work;
	struct fc_gmem *m;
	bool over;
};

static CUresult do_free(struct fc_work *w, struct fc_op *op)
{
	struct free_work *f = (struct free_work *)w;

	(void)op;
	f->over = true;
	fc_gmem_busy(f->m, false);
	return CUDA_SUCCESS;
}

/* Also without do_free, in a context that a fault has poisoned. */
static void release_free(struct fc_work *w)
{
	struct free_work *f = (struct free_work *)w;

	if (!f->over)
		fc_gmem_busy(f->m, false);
	fc_gmem_put(f->m);
	free(w);
}

CUresult fc_gmem_free_work(struct fc_gmem *m, const char *name, struct fc_ctx *ctx,
			   struct fc_work **ret_work)
{
	struct free_work *f = (struct free_work *)fc_work_new(sizeof(*f), FC_WORK_FREE, name, ctx,
							      0);

	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->work.one_shot = true;
	f->work.effect = do_free;
	f->work.release = release_free;
	f->m = fc_gmem_get(m);
	fc_gmem_busy(m, true);
	*ret_work = &f->work;
	return CUDA_SUCCESS;
}

CUresult fc_gmem_free_in(struct fc_gmem *m, struct fc_stream *s)
{
	struct fc_work *w;
	struct fc_op *op;
	CUresult r = fc_gmem_free_work(m, "cuMemFreeAsync", s->ctx, &w);

	if (r)
		return r;
	r = fc_submit(s, w, &op);
	fc_work_put(w);
	if (r)
		return r;
	fc_gmem_end(m, op);
	fc_op_put(op);
	return CUDA_SUCCESS;
}

/* cuMemFree: waits for nothing, and the memory stays until all that was submitted before is over
 * (an H200 let a fill, cuMemFree and cuDeviceGraphMemTrim follow each other at once). */
static CUresult free_behind_all(struct fc_gmem *m)
{
	struct fc_work *w = NULL;
	struct fc_op *op = NULL;
	struct fc_ctx *ctx;
	CUresult r = fc_ctx_current(&ctx);

	if (r)
		return r;
	ctx = ctx->base;
	r = fc_gmem_free_work(m, "cuMemFree", ctx, &w);
	if (!r)
		op = fc_op_new(ctx, NULL, w);
	fc_work_put(w);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (struct fc_stream *s = ctx->streams; s && !r; s = s->next)
		if (fc_op_after(op, s->tail, FC_AFTER_END))
			r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!r) {
		fc_op_commit(op);
		fc_gmem_end(m, op);
	}
	fc_op_put(op);
	return r;
}

CUresult fc_graph_free(struct fc_alloc *a, struct fc_stream *s)
{
	struct fc_gmem *m = a->owner;

	if (!m->live)
		return CUDA_ERROR_INVALID_VALUE;
	return s ? fc_gmem_free_in(m, s) : free_behind_all(m);
}

/* ---- nodes ---- */

static CUresult keep_params(struct fc_gmem *m, struct fc_device *dev, size_t size,
			    const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	if (p) {
		m->params = *p;
	} else {
		m->params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
		m->params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		m->params.poolProps.location.id = dev->ordinal;
	}
	m->params.bytesize = size;
	m->params.dptr = m->a->base;
	m->params.accessDescs = NULL;
	if (!p || !p->accessDescCount)
		return CUDA_SUCCESS;
	if (!p->accessDescs || p->accessDescCount > (size_t)fc.n_devices)
		return CUDA_ERROR_INVALID_VALUE;
	m->access = calloc(p->accessDescCount, sizeof(*m->access));
	if (!m->access)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(m->access, p->accessDescs, p->accessDescCount * sizeof(*m->access));
	m->params.accessDescs = m->access;
	return CUDA_SUCCESS;
}

CUresult fc_node_of_alloc(struct fc_graph *g, struct fc_device *dev, size_t size,
			  const CUDA_MEM_ALLOC_NODE_PARAMS *params, const struct fc_edge *deps,
			  size_t n_deps, struct fc_node **ret_node, CUdeviceptr *ret_ptr)
{
	struct fc_gmem *m;
	CUresult r = make(dev, size, &m);

	if (r)
		return r;
	r = keep_params(m, dev, size, params);
	r = r ? r : fc_node_new(g, CU_GRAPH_NODE_TYPE_MEM_ALLOC, deps, n_deps, ret_node);
	if (r) {
		fc_gmem_put(m);
		return r;
	}
	m->owner = g->id;
	(*ret_node)->mem = m;
	g->memory = true;
	*ret_ptr = m->a->base;
	return CUDA_SUCCESS;
}

static bool frees(const struct fc_graph *g, const struct fc_gmem *m)
{
	for (const struct fc_node *n = g->nodes; n; n = n->next)
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->mem == m)
			return true;
	return false;
}

CUresult fc_node_of_free(struct fc_graph *g, CUdeviceptr ptr, const struct fc_edge *deps,
			 size_t n_deps, struct fc_node **ret_node)
{
	struct fc_alloc *a = fc_alloc_find(ptr);
	struct fc_gmem *m = a && a->kind == FC_MEM_GRAPH && a->base == ptr ? a->owner : NULL;
	CUresult r;

	if (!m || m->freed_inside || frees(g, m) || (m->owner == g->id && m->freed_elsewhere))
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_node_new(g, CU_GRAPH_NODE_TYPE_MEM_FREE, deps, n_deps, ret_node);
	if (r)
		return r;
	if (m->owner == g->id)
		m->freed_inside = true;
	else
		m->freed_elsewhere = true;
	(*ret_node)->mem = fc_gmem_get(m);
	g->memory = true;
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
	struct fc_node *n;
	CUresult r = fc_node_get(hNode, &n);

	if (r)
		return r;
	if (!params_out || n->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return CUDA_ERROR_INVALID_VALUE;
	*params_out = n->mem->params;
	return CUDA_SUCCESS;
}

/* Graphs and executable graphs are gone: what is left was never freed, or operations that streams
 * still refer to know it. */
void fc_gmem_reset(void)
{
	struct fc_gmem *next;

	for (struct fc_gmem *m = gmems; m; m = next) {
		bool live = m->live;

		next = m->next;
		m->live = false;
		m->busy = 0;
		strip(m);
		if (live)
			fc_gmem_put(m);
	}
	fc_gphys_reset();
}
