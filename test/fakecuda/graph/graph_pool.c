/*
 * graph_pool.c - each device's memory for graphs, and its attributes.
 *
 * Memory comes in segments of 32 MiB (seen on an H200: the first launch of a graph with 5 MiB takes
 * 32), and lies behind the addresses of allocation nodes in chunks of 2 MiB. A segment goes back to
 * the device when cuDeviceGraphMemTrim, or another graph's need, finds nothing in it. USED_MEM and
 * RESERVED_MEM both count segments, as they did there. All under fc.lock.
 */
#include "test/fakecuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT ((size_t)32 << 20)
#define TRIM_NS 1000000ULL	/* a trim takes its time: short work ends before it looks */

struct segment {		/* device->graph: the first of them */
	struct fc_phys *phys;
	size_t n_chunks, n_used;
	struct segment *next;
	bool used[];		/* by chunk */
};

/* ---- segments ---- */

static void account(struct fc_device *dev, const struct segment *seg, int sign)
{
	dev->graph_reserved += (uint64_t)sign * seg->phys->size;
	dev->graph_used = dev->graph_reserved;
	if (dev->graph_reserved_high < dev->graph_reserved)
		dev->graph_reserved_high = dev->graph_reserved;
	if (dev->graph_used_high < dev->graph_used)
		dev->graph_used_high = dev->graph_used;
	fc_account(dev, FAKECUDA_GRAPH, sign * (int64_t)seg->phys->size, sign);
}

static CUresult add_segment(struct fc_device *dev, size_t size)
{
	size_t n_chunks = size / FC_CHUNK;
	struct segment *seg = calloc(1, sizeof(*seg) + n_chunks);
	CUresult r = seg ? fc_phys_new(dev, size, &seg->phys) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r) {
		free(seg);
		return r;
	}
	seg->n_chunks = n_chunks;
	seg->next = dev->graph;
	dev->graph = seg;
	account(dev, seg, 1);
	return CUDA_SUCCESS;
}

void fc_gphys_release(struct fc_device *dev)
{
	struct segment **at = (struct segment **)&dev->graph;

	while (*at) {
		struct segment *seg = *at;

		if (seg->n_used) {
			at = &seg->next;
			continue;
		}
		*at = seg->next;
		account(dev, seg, -1);
		fc_phys_put(seg->phys);
		free(seg);
	}
}

static CUresult grow(struct fc_device *dev, size_t size)
{
	CUresult r = add_segment(dev, (size + SEGMENT - 1) / SEGMENT * SEGMENT);

	if (!r)
		return r;
	fc_gphys_release(dev);
	return add_segment(dev, size);
}

/* ---- chunks ---- */

static bool find(const struct segment *seg, size_t n, size_t *ret_first)
{
	size_t run = 0;

	for (size_t i = 0; i < seg->n_chunks; i++) {
		run = seg->used[i] ? 0 : run + 1;
		if (run == n) {
			*ret_first = i + 1 - n;
			return true;
		}
	}
	return false;
}

static bool take(struct fc_device *dev, size_t n, struct fc_phys **ret_phys, uint8_t **ret_host)
{
	for (struct segment *seg = dev->graph; seg; seg = seg->next) {
		size_t first;

		if (!find(seg, n, &first))
			continue;
		memset(seg->used + first, true, n);
		seg->n_used += n;
		seg->phys->refs++;
		*ret_phys = seg->phys;
		*ret_host = seg->phys->host + first * FC_CHUNK;
		return true;
	}
	return false;
}

CUresult fc_gphys_take(struct fc_device *dev, size_t size, struct fc_phys **ret_phys,
		       uint8_t **ret_host)
{
	CUresult r;

	if (take(dev, size / FC_CHUNK, ret_phys, ret_host))
		return CUDA_SUCCESS;
	r = grow(dev, size);
	if (!r)
		take(dev, size / FC_CHUNK, ret_phys, ret_host);
	return r;
}

void fc_gphys_give(struct fc_device *dev, struct fc_phys *phys, const uint8_t *host, size_t size)
{
	size_t n = size / FC_CHUNK, first = (size_t)(host - phys->host) / FC_CHUNK;

	for (struct segment *seg = dev->graph; seg; seg = seg->next)
		if (seg->phys == phys) {
			memset(seg->used + first, false, n);
			seg->n_used -= n;
		}
	fc_phys_put(phys);
}

void fc_gphys_reset(void)
{
	for (int i = 0; i < FC_MAX_DEVICES; i++) {
		struct fc_device *dev = &fc.devices[i];

		for (struct segment *seg = dev->graph; seg; seg = seg->next)
			seg->n_used = 0;
		fc_gphys_release(dev);
		dev->graph_used_high = dev->graph_reserved_high = 0;
	}
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
	fc_clock_advance(fc.step_ns ? TRIM_NS : 0);
	fc_gmem_strip_idle(dev);
	fc_gphys_release(dev);
	return CUDA_SUCCESS;
}
