/*
 * graph.h - between the files of graphs, and captures. All under fc.lock.
 *
 *   graph.c          graphs as objects        graph_mem.c      memory nodes
 *   graph_node.c     making nodes             graph_pool.c     the memory behind them
 *   graph_exec.c     instantiating            graph_launch.c   launching
 *   graph_query.c    nodes, edges
 */
#ifndef FC_GRAPH_H
#define FC_GRAPH_H

#include "test/fakecuda/stream/waiting.h"

struct fc_graph;
struct fc_gmem;
struct fc_node;

struct fc_edge {
	struct fc_node *node;
	CUgraphEdgeData data;
};

struct fc_edges {
	struct fc_edge *e;
	size_t n;
};

struct fc_node {
	CUgraphNode handle;		/* NULL inside an executable graph */
	struct fc_graph *graph;
	CUgraphNodeType type;
	uint64_t id, source;		/* never reused; of the node it is a clone of, 0: none */
	/* By type. */
	struct fc_work *work;		/* kernel, copy, fill, host, stream memory operations */
	struct fc_event *event;		/* record, wait: counted */
	struct fc_graph *child;
	struct fc_gmem *mem;		/* allocation, free: counted */
	bool disabled;			/* in an executable graph */
	struct fc_edges deps, outs;
	struct fc_op *op;		/* while it is being launched: its end */
	size_t unmet;			/* while nodes are being sorted */
	struct fc_node *copy;		/* while its graph is being copied */
	struct fc_node *next, **prevp;
};

struct fc_graph {
	CUgraph handle;			/* NULL: of an executable graph */
	uint64_t id;
	struct fc_node *nodes, **tail;	/* by creation */
	size_t n_nodes;
	bool memory;			/* has, or had, allocation or free nodes */
	bool moved;			/* into its parent: the handle stays the program's */
	bool capturing;			/* capture.c adds to it */
	unsigned int execs;		/* instantiations alive */
	struct fc_node *parent;		/* the node it is embedded in */
	struct fc_graph *next, **prevp;	/* all of them */
};

struct fc_exec {
	unsigned int refs;		/* handle, launches not complete */
	CUgraphExec handle;		/* NULL: destroyed */
	struct fc_graph *graph;		/* its own copy */
	struct fc_graph *of;		/* what it was made from; NULL once that is gone */
	struct fc_node **order;		/* of graph's nodes: each after those it depends on */
	uint64_t flags;
	unsigned int running;		/* launches not complete */
	struct fc_op *last;		/* end of the last launch, counted */
	struct fc_exec *next, **prevp;
};

/* ---- graph.c ---- */

struct fc_graph *fc_graph_new(bool with_handle);
void fc_graph_drop(struct fc_graph *g);		/* nodes, embedded graphs, too */
CUresult fc_graph_get(CUgraph h, struct fc_graph **ret_g);
CUresult fc_node_get(CUgraphNode h, struct fc_node **ret_n);

/* fc_node_new - at the end of @g, depending on @n_deps of its nodes; only its type is set. */
CUresult fc_node_new(struct fc_graph *g, CUgraphNodeType type, const struct fc_edge *deps,
		     size_t n_deps, struct fc_node **ret_node);
void fc_node_drop(struct fc_node *n);
/* fc_edge_add - @to comes after @from. The caller has looked whether it does so already. */
CUresult fc_edge_add(struct fc_node *from, struct fc_node *to, const CUgraphEdgeData *data);
struct fc_edge *fc_edge_find(const struct fc_edges *edges, const struct fc_node *node);
bool fc_edge_plain(const CUgraphEdgeData *data);
/* fc_graph_copy - deep, each copy's source naming its original; without handles for an executable
 * graph. */
CUresult fc_graph_copy(struct fc_graph *g, bool with_handles, struct fc_graph **ret_copy);
/* fc_graph_order - @g's nodes, each after those it depends on; malloc'ed. 1: there is a cycle. */
CUresult fc_graph_order(struct fc_graph *g, struct fc_node ***ret_order);
bool fc_graph_has_memory(const struct fc_graph *g);
void fc_exec_link(struct fc_exec *x);
void fc_exec_put(struct fc_exec *x);

/* ---- graph_node.c ---- */

/* fc_node_of_work - a node for what a stream was given, its type by the kind of @w (counted). 900:
 * no graph can hold it. */
CUresult fc_node_of_work(struct fc_graph *g, struct fc_work *w, const struct fc_edge *deps,
			 size_t n_deps, struct fc_node **ret_node);
CUresult fc_node_of_event(struct fc_graph *g, struct fc_event *e, bool record,
			  const struct fc_edge *deps, size_t n_deps, struct fc_node **ret_node);
CUresult fc_node_of_graph(struct fc_graph *g, struct fc_graph *child, const struct fc_edge *deps,
			  size_t n_deps, struct fc_node **ret_node);
/* The works that parameters of nodes stand for. */
CUresult fc_graph_kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2 *p, const CUlaunchAttribute *attrs,
			      unsigned int n_attrs, struct fc_work **ret_work);
CUresult fc_graph_copy_work(const CUDA_MEMCPY3D *p, CUcontext ctx, struct fc_work **ret_work);
CUresult fc_graph_fill_work(const CUDA_MEMSET_NODE_PARAMS_v1 *p, CUcontext ctx,
			    struct fc_work **ret_work);
CUresult fc_graph_host_work(const CUDA_HOST_NODE_PARAMS_v1 *p, struct fc_work **ret_work);
CUresult fc_graph_memop_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct fc_work **ret_work);
CUresult fc_graph_signal_work(const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p, struct fc_work **ret_work);
CUresult fc_graph_wait_work(const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p, struct fc_work **ret_work);
/* fc_graph_any_work - by p->type; NULL without an error: that type stands for none. */
CUresult fc_graph_any_work(const CUgraphNodeParams *p, struct fc_work **ret_work);
CUDA_KERNEL_NODE_PARAMS_v2 fc_kernel_params_v2(const CUDA_KERNEL_NODE_PARAMS_v1 *p);

/* ---- graph_query.c ---- */

/* fc_node_typed - the node @h if it is of @type; fc_exec_typed - its copy in @hx. */
CUresult fc_node_typed(CUgraphNode h, CUgraphNodeType type, struct fc_node **ret_n);

/* ---- graph_mem.c ---- */

/* fc_node_of_alloc - an allocation node for @size bytes of @dev; *ret_ptr is its address for ever.
 * @params (may be NULL): what the program gave, for cuGraphMemAllocNodeGetParams. */
CUresult fc_node_of_alloc(struct fc_graph *g, struct fc_device *dev, size_t size,
			  const CUDA_MEM_ALLOC_NODE_PARAMS *params, const struct fc_edge *deps,
			  size_t n_deps, struct fc_node **ret_node, CUdeviceptr *ret_ptr);
CUresult fc_node_of_free(struct fc_graph *g, CUdeviceptr ptr, const struct fc_edge *deps,
			 size_t n_deps, struct fc_node **ret_node);
struct fc_gmem *fc_gmem_get(struct fc_gmem *m);
void fc_gmem_put(struct fc_gmem *m);
bool fc_gmem_live(const struct fc_gmem *m);
/* fc_gmem_may_end - may a graph be launched that frees it? */
bool fc_gmem_may_end(const struct fc_gmem *m);
/* fc_gmem_back - memory behind the address, if there is none. */
CUresult fc_gmem_back(struct fc_gmem *m);
/* fc_gmem_hold - an executable graph has it; _unhold - that is gone. fc_gmem_busy - a launch that
 * uses it is under way, or is over. */
void fc_gmem_hold(struct fc_gmem *m);
void fc_gmem_unhold(struct fc_gmem *m);
void fc_gmem_busy(struct fc_gmem *m, bool busy);
/* What a launch does at an allocation and at a free; @op is committed. */
void fc_gmem_begin(struct fc_gmem *m, struct fc_op *op);
void fc_gmem_end(struct fc_gmem *m, struct fc_op *op);
/* fc_gmem_free_work - the free as work: until it is done with, the memory stays. */
CUresult fc_gmem_free_work(struct fc_gmem *m, const char *name, struct fc_ctx *ctx,
			   struct fc_work **ret_work);
/* fc_gmem_free_in - a stream-ordered free in @s, as cuMemFreeAsync. */
CUresult fc_gmem_free_in(struct fc_gmem *m, struct fc_stream *s);
/* fc_gmem_strip_idle - no memory behind any address of @dev that nothing uses. */
void fc_gmem_strip_idle(struct fc_device *dev);
void fc_gmem_reset(void);

/* ---- graph_pool.c ---- */

/* fc_gphys_take - @size bytes (a multiple of 2 MiB) to be put behind an address, with a reference;
 * _give - back, and no reference. */
CUresult fc_gphys_take(struct fc_device *dev, size_t size, struct fc_phys **ret_phys,
		       uint8_t **ret_host);
void fc_gphys_give(struct fc_device *dev, struct fc_phys *phys, const uint8_t *host, size_t size);
/* fc_gphys_release - what lies behind no address goes back to the device. */
void fc_gphys_release(struct fc_device *dev);
void fc_gphys_reset(void);

/* ---- graph_exec.c ---- */

CUresult fc_exec_get(CUgraphExec h, struct fc_exec **ret_x);

/* ---- graph_launch.c ---- */

/* fc_exec_back - memory behind all its allocations; the error if there is not enough. */
CUresult fc_exec_back(struct fc_exec *x);
/* fc_exec_upload - as cuGraphUpload does. */
CUresult fc_exec_upload(struct fc_exec *x, struct fc_stream *s);

/* ---- capture.c ---- */

/* fc_capture_graph - a launch of @g into a stream that captures. */
CUresult fc_capture_graph(struct fc_stream *s, struct fc_graph *g);
/* fc_capture_node_ended - @n is destroyed: no stream depends on it any more. */
void fc_capture_node_ended(const struct fc_node *n);

#endif
