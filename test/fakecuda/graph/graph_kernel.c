/*
 * graph_kernel.c - kernel nodes: their parameters and their launch attributes.
 *
 * All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

static CUresult set_kernel(struct fc_node *n, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	CUDA_KERNEL_NODE_PARAMS_v2 old;
	const CUlaunchAttribute *attrs;
	unsigned int n_attrs;
	struct fc_work *w = NULL;
	CUresult r;

	if (!p || !fc_work_kernel_params(n->work, &old, &attrs, &n_attrs))
		return CUDA_ERROR_INVALID_VALUE;
	r = fc_work_kernel(n->work->ctx, p, attrs, n_attrs, &w);
	return fc_node_replace(n, r, w);
}

CUresult fc_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	const CUlaunchAttribute *attrs;
	unsigned int n_attrs;
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &n);

	if (r)
		return r;
	if (!nodeParams || !fc_work_kernel_params(n->work, nodeParams, &attrs, &n_attrs))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult fc_cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;
	CUresult r = nodeParams ? fc_cuGraphKernelNodeGetParams_v2(hNode, &p) :
				  CUDA_ERROR_INVALID_VALUE;

	if (!r)
		memcpy(nodeParams, &p, sizeof(*nodeParams));	/* the older one is its front */
	return r;
}

CUresult fc_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
					  const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &n);

	return r ? r : set_kernel(n, nodeParams);
}

CUresult fc_cuGraphKernelNodeSetParams(CUgraphNode hNode,
				       const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	p = fc_kernel_params_v2(nodeParams);
	return fc_cuGraphKernelNodeSetParams_v2(hNode, &p);
}

CUresult fc_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
					      const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct fc_node *n;
	CUresult r = fc_exec_typed(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, &n);

	return r ? r : set_kernel(n, nodeParams);
}

CUresult fc_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	p = fc_kernel_params_v2(nodeParams);
	return fc_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &p);
}

/* ---- attributes of kernel nodes ---- */

CUresult fc_cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
					  CUkernelNodeAttrValue *value_out)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;
	const CUlaunchAttribute *attrs;
	unsigned int n_attrs;
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &n);

	if (r)
		return r;
	if (!value_out || !fc_work_kernel_params(n->work, &p, &attrs, &n_attrs))
		return CUDA_ERROR_INVALID_VALUE;
	memset(value_out, 0, sizeof(*value_out));
	for (unsigned int i = 0; i < n_attrs; i++)
		if (attrs[i].id == attr)
			*value_out = attrs[i].value;
	return CUDA_SUCCESS;
}

/* @n's kernel again, with @attrs; one of them replaced or added where @id is given. */
static CUresult set_attrs(struct fc_node *n, const CUlaunchAttribute *attrs, unsigned int n_attrs,
			  const CUlaunchAttribute *one)
{
	CUlaunchAttribute *all = calloc(n_attrs + 1, sizeof(*all));
	CUDA_KERNEL_NODE_PARAMS_v2 p;
	const CUlaunchAttribute *old;
	unsigned int n_old, n_all = 0;
	struct fc_work *w = NULL;
	CUresult r;

	if (!all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < n_attrs; i++)
		if (!one || attrs[i].id != one->id)
			all[n_all++] = attrs[i];
	if (one)
		all[n_all++] = *one;
	r = fc_work_kernel_params(n->work, &p, &old, &n_old) ? CUDA_SUCCESS :
							       CUDA_ERROR_INVALID_VALUE;
	r = r ? r : fc_work_kernel(n->work->ctx, &p, all, n_all, &w);
	free(all);
	return fc_node_replace(n, r, w);
}

CUresult fc_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
					  const CUkernelNodeAttrValue *value)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;
	const CUlaunchAttribute *attrs;
	unsigned int n_attrs;
	CUlaunchAttribute one = { .id = attr };
	struct fc_node *n;
	CUresult r = fc_node_typed(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &n);

	if (r)
		return r;
	if (!value || (unsigned int)attr >= FC_MAX_ATTRS ||
	    !fc_work_kernel_params(n->work, &p, &attrs, &n_attrs))
		return CUDA_ERROR_INVALID_VALUE;
	one.value = *value;
	return set_attrs(n, attrs, n_attrs, &one);
}

CUresult fc_cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;
	const CUlaunchAttribute *attrs;
	unsigned int n_attrs;
	struct fc_node *d, *s;
	CUresult r = fc_node_typed(dst, CU_GRAPH_NODE_TYPE_KERNEL, &d);

	r = r ? r : fc_node_typed(src, CU_GRAPH_NODE_TYPE_KERNEL, &s);
	if (r)
		return r;
	if (!fc_work_kernel_params(s->work, &p, &attrs, &n_attrs))
		return CUDA_ERROR_INVALID_VALUE;
	return set_attrs(d, attrs, n_attrs, NULL);
}
