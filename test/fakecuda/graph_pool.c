/*
 * graph_pool.c - each device's memory for graphs, and its attributes.
 *
 * RESERVED_MEM is all of it, USED_MEM what lies behind an address; the rest is kept for the next
 * allocation node of the same size, until cuDeviceGraphMemTrim or the need of others. All under
 * fc.lock.
 */
#include "graph.h"

#include <stdlib.h>

struct cache {			/* device->graph: memory behind no address */
	struct fc_phys **phys;
	size_t n;
};

/* ---- the device's memory for graphs ---- */

static struct cache *cache_of(struct fc_device *dev)
{
	if (!dev->graph)
		dev->graph = calloc(1, sizeof(struct cache));
	return dev->graph;
}

static void raise_to(uint64_t *high, uint64_t now)
{
	if (*high < now)
		*high = now;
}

static void release_phys(struct fc_device *dev, struct fc_phys *p)
{
	dev->graph_reserved -= p->size;
	fc_account(dev, FAKECUDA_GRAPH, -(int64_t)p->size, -1);
	fc_phys_put(p);
}

void fc_gphys_release(struct fc_device *dev)
{
	struct cache *c = dev->graph;

	while (c && c->n)
		release_phys(dev, c->phys[--c->n]);
}

static CUresult take(struct fc_device *dev, size_t size, struct fc_phys **ret_phys)
{
	struct cache *c = dev->graph;
	CUresult r;

	for (size_t i = 0; c && i < c->n; i++)
		if (c->phys[i]->size == size) {
			*ret_phys = c->phys[i];
			c->phys[i] = c->phys[--c->n];
			return CUDA_SUCCESS;
		}
	r = fc_phys_new(dev, size, ret_phys);
	if (r && c && c->n) {
		fc_gphys_release(dev);
		r = fc_phys_new(dev, size, ret_phys);
	}
	if (r)
		return r;
	dev->graph_reserved += (*ret_phys)->size;
	raise_to(&dev->graph_reserved_high, dev->graph_reserved);
	fc_account(dev, FAKECUDA_GRAPH, (int64_t)(*ret_phys)->size, 1);
	return CUDA_SUCCESS;
}

CUresult fc_gphys_take(struct fc_device *dev, size_t size, struct fc_phys **ret_phys)
{
	CUresult r = take(dev, size, ret_phys);

	if (r)
		return r;
	dev->graph_used += (*ret_phys)->size;
	raise_to(&dev->graph_used_high, dev->graph_used);
	return CUDA_SUCCESS;
}

void fc_gphys_keep(struct fc_device *dev, struct fc_phys *p)
{
	struct cache *c = cache_of(dev);
	struct fc_phys **grown = c ? realloc(c->phys, (c->n + 1) * sizeof(struct fc_phys *)) : NULL;

	dev->graph_used -= p->size;
	if (!grown) {
		release_phys(dev, p);
		return;
	}
	c->phys = grown;
	grown[c->n++] = p;
}

/* ---- the device's attributes ---- */

CUresult fc_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	struct fc_device *dev;
	CUresult r = fc_device_get(device, &dev);
	cuuint64_t v;

	if (r)
		return r;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		v = dev->graph_used;
		break;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		v = dev->graph_used_high;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		v = dev->graph_reserved;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		v = dev->graph_reserved_high;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	*(cuuint64_t *)value = v;
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	struct fc_device *dev;
	CUresult r = fc_device_get(device, &dev);

	if (r)
		return r;
	if (!value || *(cuuint64_t *)value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		dev->graph_used_high = dev->graph_used;
	else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		dev->graph_reserved_high = dev->graph_reserved;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult fc_cuDeviceGraphMemTrim(CUdevice device)
{
	struct fc_device *dev;
	CUresult r = fc_device_get(device, &dev);

	if (r)
		return r;
	fc_clock_poll();
	fc_gmem_strip_idle(dev);
	fc_gphys_release(dev);
	return CUDA_SUCCESS;
}

void fc_gphys_reset(void)
{
	for (int i = 0; i < FC_MAX_DEVICES; i++) {
		struct fc_device *dev = &fc.devices[i];
		struct cache *c = dev->graph;

		fc_gphys_release(dev);
		if (c)
			free(c->phys);
		free(c);
		dev->graph = NULL;
		dev->graph_used_high = dev->graph_reserved_high = 0;
	}
}
