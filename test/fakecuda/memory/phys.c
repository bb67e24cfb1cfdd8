/*
 * phys.c - the memory of each device: one sparse memfd, handed out in 2 MiB chunks.
 *
 *   va    [ chunk 0 | chunk 1 | ...            ]  device addresses; PROT_NONE: host access faults
 *   host  [ chunk 0 | chunk 1 | ...            ]  the same bytes, readable and writable
 *
 * The arena is larger than the capacity, which alone decides what is out of memory: a GPU has page
 * tables, so fragments do not count. Chunks are taken from the bottom, first fit; a chunk given
 * back is punched out of the memfd and reads as zero when it comes again. Allocations under 2 MiB
 * lie in chunks that belong to one context each, first fit, 512 bytes apart; reused within such a
 * chunk they keep their old contents, as nothing promises otherwise.
 *
 * Lock: fc.lock.
 */
#define _GNU_SOURCE
#include "test/fakecuda/memory/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNITS (FC_CHUNK / FC_SMALL)	/* in a chunk of small allocations */

enum { CHUNK_FREE, CHUNK_ADDRESSED, CHUNK_HIDDEN };	/* hidden: behind a handle, no address */

struct small {			/* a chunk of small allocations */
	size_t index;
	struct fc_ctx *ctx;	/* whose; not counted: emptied before the context goes */
	unsigned int used;
	uint64_t map[UNITS / 64];
	struct small *next;
};

struct space {
	size_t n_chunks;
	uint8_t *state;		/* CHUNK_* */
	size_t lowest;		/* no free chunk below */
	struct small *small;	/* by index */
};

/* Both ranges come where they were last: qemu keeps a table of all addresses that ever were. */
CUresult fc_arena_start(struct fc_device *dev)
{
	static struct { void *host, *va; } again[FC_MAX_DEVICES];
	const ptrdiff_t number = dev - fc.devices;
	struct space *sp;
	size_t size = dev->capacity * 2 + ((size_t)1 << 30);
	void *va, *host;

	if (dev->space)
		return CUDA_SUCCESS;
	sp = calloc(1, sizeof(*sp));
	if (!sp)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sp->n_chunks = size / FC_CHUNK;
	sp->state = calloc(sp->n_chunks, 1);
	dev->fd = memfd_create("fakecuda", MFD_CLOEXEC);
	if (!sp->state || dev->fd < 0 || ftruncate(dev->fd, (off_t)size))
		goto fail;
	host = mmap(again[number].host, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, dev->fd, 0);
	if (host == MAP_FAILED)
		goto fail;
	/* A chunk more, to align to chunks. */
	va = mmap(again[number].va, size + FC_CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (va == MAP_FAILED) {
		munmap(host, size);
		goto fail;
	}
	again[number].host = host;
	again[number].va = va;
	/* A GPU's memory is in no core file; this would be a gigabyte in each. */
	madvise(host, size, MADV_DONTDUMP);
	dev->inode = fc_fd_inode(dev->fd);
	dev->host = host;
	dev->va = ((uint64_t)(uintptr_t)va + FC_CHUNK - 1) / FC_CHUNK * FC_CHUNK;
	dev->va_map = va;
	dev->va_size = size;
	dev->space = sp;
	return CUDA_SUCCESS;
fail:
	if (dev->fd >= 0)
		close(dev->fd);
	dev->fd = -1;
	free(sp->state);
	free(sp);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- chunks ---- */

/* The first @n free chunks in a row, or n_chunks. */
static size_t first_fit(const struct space *sp, size_t n)
{
	size_t run = 0;

	for (size_t i = sp->lowest; i < sp->n_chunks; i++) {
		run = sp->state[i] == CHUNK_FREE ? run + 1 : 0;
		if (run == n)
			return i + 1 - n;
	}
	return sp->n_chunks;
}

bool fc_device_fits(const struct fc_device *dev, size_t bytes)
{
	size_t used = dev->charged + fc_device_others(dev);

	return used <= dev->capacity && bytes <= dev->capacity - used;
}

static CUresult take(struct fc_device *dev, size_t n, uint8_t state, size_t *ret_index)
{
	size_t bytes = n * FC_CHUNK, i;
	struct space *sp;
	CUresult r = fc_arena_start(dev);

	if (r)
		return r;
	sp = dev->space;
	if (n > sp->n_chunks || !fc_device_fits(dev, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	i = first_fit(sp, n);
	if (i == sp->n_chunks)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(sp->state + i, state, n);
	while (sp->lowest < sp->n_chunks && sp->state[sp->lowest] != CHUNK_FREE)
		sp->lowest++;
	fc_device_charge(dev, (ssize_t)bytes);
	*ret_index = i;
	return CUDA_SUCCESS;
}

#if defined(__aarch64__)
#define ADVICE_IS_FREE true		/* qemu takes any and follows none */
#else
#define ADVICE_IS_FREE false
#endif

static void give(struct fc_device *dev, size_t index, size_t n)
{
	struct space *sp = dev->space;
	uint8_t *host = dev->host + index * FC_CHUNK;

	if (madvise(host, n * FC_CHUNK, MADV_REMOVE) || ADVICE_IS_FREE)
		memset(host, 0, n * FC_CHUNK);
	memset(sp->state + index, CHUNK_FREE, n);
	if (index < sp->lowest)
		sp->lowest = index;
	fc_device_charge(dev, -(ssize_t)(n * FC_CHUNK));
}

static size_t chunks(size_t size)
{
	return size / FC_CHUNK + (size % FC_CHUNK != 0);
}

/* ---- small allocations ---- */

static bool unit_used(const struct small *s, size_t unit)
{
	return s->map[unit / 64] >> (unit % 64) & 1;
}

static void mark_units(struct small *s, size_t first, size_t n, bool used)
{
	for (size_t u = first; u < first + n; u++)
		if (used)
			s->map[u / 64] |= 1ULL << (u % 64);
		else
			s->map[u / 64] &= ~(1ULL << (u % 64));
	s->used += used ? (unsigned int)n : -(unsigned int)n;
}

static size_t find_units(const struct small *s, size_t n)
{
	size_t run = 0;

	for (size_t u = 0; u < UNITS; u++) {
		run = unit_used(s, u) ? 0 : run + 1;
		if (run == n)
			return u + 1 - n;
	}
	return UNITS;
}

static CUresult new_small(struct fc_device *dev, struct fc_ctx *ctx, struct small **ret_s)
{
	struct small *s = calloc(1, sizeof(*s)), **at;
	struct space *sp;
	CUresult r;

	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = take(dev, 1, CHUNK_ADDRESSED, &s->index);
	if (r) {
		free(s);
		return r;
	}
	s->ctx = ctx;
	sp = dev->space;
	for (at = &sp->small; *at && (*at)->index < s->index; at = &(*at)->next)
		;
	s->next = *at;
	*at = s;
	*ret_s = s;
	return CUDA_SUCCESS;
}

static size_t units_of(size_t size)
{
	return size ? (size + FC_SMALL - 1) / FC_SMALL : 1;
}

static CUresult small_alloc(struct fc_device *dev, struct fc_ctx *ctx, size_t size,
			    uint64_t *ret_offset)
{
	size_t n = units_of(size), unit = UNITS;
	struct small *s = NULL;
	struct space *sp;
	CUresult r = fc_arena_start(dev);

	if (r)
		return r;
	sp = dev->space;
	for (s = sp->small; s; s = s->next)
		if (s->ctx == ctx && s->used + n <= UNITS && (unit = find_units(s, n)) < UNITS)
			break;
	if (!s) {
		r = new_small(dev, ctx, &s);
		if (r)
			return r;
		unit = 0;
	}
	mark_units(s, unit, n, true);
	*ret_offset = s->index * FC_CHUNK + unit * FC_SMALL;
	return CUDA_SUCCESS;
}

static void small_free(struct fc_device *dev, uint64_t offset, size_t size)
{
	struct space *sp = dev->space;
	struct small **at = &sp->small, *s;

	while (*at && (*at)->index != offset / FC_CHUNK)
		at = &(*at)->next;
	s = *at;
	if (!s)
		return;
	mark_units(s, offset % FC_CHUNK / FC_SMALL, units_of(size), false);
	if (s->used)
		return;
	*at = s->next;
	give(dev, s->index, 1);
	free(s);
}

/* ---- allocations with an address ---- */

CUresult fc_arena_segment(struct fc_device *dev, size_t size, uint64_t *ret_ptr,
			  uint8_t **ret_host)
{
	size_t index;
	CUresult r = take(dev, chunks(size), CHUNK_ADDRESSED, &index);

	if (r)
		return r;
	*ret_ptr = dev->va + index * FC_CHUNK;
	*ret_host = dev->host + index * FC_CHUNK;
	return CUDA_SUCCESS;
}

CUresult fc_arena_extend(struct fc_device *dev, uint64_t ptr, size_t size)
{
	struct space *sp = dev->space;
	size_t first = (ptr - dev->va) / FC_CHUNK, n = chunks(size);

	if (first + n > sp->n_chunks || !fc_device_fits(dev, n * FC_CHUNK))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = first; i < first + n; i++)
		if (sp->state[i] != CHUNK_FREE)
			return CUDA_ERROR_OUT_OF_MEMORY;
	memset(sp->state + first, CHUNK_ADDRESSED, n);
	fc_device_charge(dev, (ssize_t)(n * FC_CHUNK));
	return CUDA_SUCCESS;
}

CUresult fc_arena_alloc(struct fc_device *dev, struct fc_ctx *ctx, size_t size, uint64_t *ret_ptr,
			uint8_t **ret_host)
{
	uint64_t offset;
	CUresult r;

	if (size >= FC_CHUNK)
		return fc_arena_segment(dev, size, ret_ptr, ret_host);
	r = small_alloc(dev, ctx, size, &offset);
	if (r)
		return r;
	*ret_ptr = dev->va + offset;
	*ret_host = dev->host + offset;
	return CUDA_SUCCESS;
}

void fc_arena_free(struct fc_device *dev, uint64_t ptr, size_t size)
{
	uint64_t offset = ptr - dev->va;

	if (size >= FC_CHUNK)
		give(dev, offset / FC_CHUNK, chunks(size));
	else
		small_free(dev, offset, size);
}

bool fc_arena_span(uint64_t ptr, size_t n, uint8_t **ret_p, size_t *ret_run)
{
	for (int i = 0; i < fc.n_devices; i++) {
		struct fc_device *dev = &fc.devices[i];
		struct space *sp = dev->space;
		uint64_t offset = ptr - dev->va;
		size_t run = 0;

		if (!sp || offset >= dev->va_size)
			continue;
		while (run < n && offset + run < dev->va_size &&
		       sp->state[(offset + run) / FC_CHUNK] == CHUNK_ADDRESSED)
			run += FC_CHUNK - (offset + run) % FC_CHUNK;
		*ret_p = run ? dev->host + offset : NULL;
		*ret_run = run < n ? run : n;
		return true;
	}
	return false;
}

/* ---- memory behind handles ---- */

CUresult fc_phys_new(struct fc_device *dev, size_t size, struct fc_phys **ret_phys)
{
	struct fc_phys *p = calloc(1, sizeof(*p));
	size_t index;
	CUresult r;

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = take(dev, chunks(size), CHUNK_HIDDEN, &index);
	if (r) {
		free(p);
		return r;
	}
	p->refs = 1;
	p->dev = dev;
	p->offset = index * FC_CHUNK;
	p->size = chunks(size) * FC_CHUNK;
	p->host = dev->host + p->offset;
	*ret_phys = p;
	return CUDA_SUCCESS;
}

void fc_phys_put(struct fc_phys *p)
{
	if (!p || --p->refs)
		return;
	if (p->release)
		p->release(p);
	else if (p->dev)
		give(p->dev, p->offset / FC_CHUNK, p->size / FC_CHUNK);
	free(p);
}

int fc_arena_check(void)
{
	int bad = 0;

	for (int i = 0; i < fc.n_devices; i++) {
		const struct fc_device *dev = &fc.devices[i];
		const struct space *sp = dev->space;
		size_t used = 0;

		for (size_t c = 0; sp && c < sp->n_chunks; c++)
			used += sp->state[c] != CHUNK_FREE;
		bad += used * FC_CHUNK != dev->charged - dev->charged_apart;
		for (const struct small *s = sp ? sp->small : NULL; s; s = s->next)
			bad += !s->used || s->used > UNITS ||
			       sp->state[s->index] != CHUNK_ADDRESSED;
	}
	return bad;
}

void fc_phys_reset(void)
{
	for (int i = 0; i < FC_MAX_DEVICES; i++) {
		struct fc_device *dev = &fc.devices[i];
		struct space *sp = dev->space;

		if (!sp)
			continue;
		for (struct small *s = sp->small, *next; s; s = next) {
			next = s->next;
			free(s);
		}
		munmap(dev->host, dev->va_size);
		munmap(dev->va_map, dev->va_size + FC_CHUNK);
		fc_fd_close(dev->fd, dev->inode);
		free(sp->state);
		free(sp);
		dev->space = NULL;
	}
	fc_region_reset();
}
