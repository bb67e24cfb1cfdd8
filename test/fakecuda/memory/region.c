/*
 * region.c - ranges of device addresses that have no memory of their own: reservations, imports,
 * graph memory. Two of them, PROT_NONE, made when first needed: a large one, and a small one below
 * 4 GiB for the 32-bit entry points. First fit from the bottom, so addresses come again as in life.
 *
 * Lock: fc.lock.
 */
#include "test/fakecuda/memory/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__) || defined(__aarch64__)
#define LARGE_SIZE ((size_t)66 << 30)	/* what the sanitizer, and what qemu, lets a program map */
#else
#define LARGE_SIZE ((size_t)16 << 40)
#endif
#define LOW_SIZE ((size_t)256 << 20)

struct taken {
	uint64_t base;
	size_t size;
	struct taken *next;
};

static struct region {
	uint64_t base;
	size_t size;
	struct taken *first;	/* by address */
	uint64_t again;		/* where it was last: qemu keeps a table of all addresses that ever were */
} large, low = { .again = UINT64_C(1) << 28 };

#ifndef MAP_32BIT
#define MAP_32BIT 0		/* x86-64 alone has it; elsewhere the kernel is told where */
#endif

static bool start(struct region *r, size_t size, int flags)
{
	void *p;

	if (r->base)
		return true;
	p = mmap((void *)(uintptr_t)r->again, size, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
	if (p == MAP_FAILED)
		return false;
	r->base = r->again = (uint64_t)(uintptr_t)p;
	r->size = size;
	return true;
}

static uint64_t round_up(uint64_t x, uint64_t align)
{
	return (x + align - 1) / align * align;
}

static uint64_t insert(struct taken **at, uint64_t base, size_t size)
{
	struct taken *t = malloc(sizeof(*t));

	if (!t)
		return 0;
	*t = (struct taken){ .base = base, .size = size, .next = *at };
	*at = t;
	return base;
}

static uint64_t take_at(struct region *r, size_t size, uint64_t wanted)
{
	struct taken **at = &r->first;

	if (wanted < r->base || size > r->size || wanted - r->base > r->size - size)
		return 0;
	while (*at && (*at)->base + (*at)->size <= wanted)
		at = &(*at)->next;
	if (*at && (*at)->base < wanted + size)
		return 0;
	return insert(at, wanted, size);
}

uint64_t fc_region_take(size_t size, size_t align, uint64_t wanted, bool is_low)
{
	struct region *r = is_low ? &low : &large;
	struct taken **at = &r->first;
	uint64_t base;

	if (!start(r, is_low ? LOW_SIZE : LARGE_SIZE, is_low ? MAP_32BIT : 0) || size > r->size)
		return 0;
	if (wanted && wanted % align == 0 && (base = take_at(r, size, wanted)))
		return base;
	base = round_up(r->base, align);
	for (; *at && (*at)->base < base + size; at = &(*at)->next)
		if (base < (*at)->base + (*at)->size)
			base = round_up((*at)->base + (*at)->size, align);
	if (base + size > r->base + r->size)
		return 0;
	return insert(at, base, size);
}

static struct region *region_of(uint64_t ptr)
{
	if (large.base && ptr - large.base < large.size)
		return &large;
	if (low.base && ptr - low.base < low.size)
		return &low;
	return NULL;
}

bool fc_region_has(uint64_t ptr)
{
	return region_of(ptr);
}

bool fc_region_find(uint64_t ptr, uint64_t *ret_base, size_t *ret_size)
{
	struct region *r = region_of(ptr);

	for (struct taken *t = r ? r->first : NULL; t; t = t->next)
		if (ptr - t->base < t->size) {
			*ret_base = t->base;
			*ret_size = t->size;
			return true;
		}
	return false;
}

void fc_region_give(uint64_t va)
{
	struct region *r = region_of(va);
	struct taken **at, *t;

	if (!r)
		return;
	for (at = &r->first; *at && (*at)->base != va; at = &(*at)->next)
		;
	t = *at;
	if (t) {
		*at = t->next;
		free(t);
	}
}

static void clear(struct region *r)
{
	while (r->first)
		fc_region_give(r->first->base);
	if (r->base)
		munmap((void *)(uintptr_t)r->base, r->size);
	r->base = 0;
}

void fc_region_reset(void)
{
	clear(&large);
	clear(&low);
}
