/*
 * span.c - the contents behind any address, device or host.
 *
 * Addresses in an arena or a region are the driver's: their contents lie elsewhere in this process,
 * or nowhere. Every other address is memory that the program itself can reach: taken as it is.
 * Lock: fc.lock.
 */
#include "test/fakecuda/memory/memory.h"

#include <string.h>

uint8_t *fc_span(uint64_t ptr, size_t n, size_t *ret_run)
{
	struct fc_alloc *a;
	uint8_t *p;

	if (fc_arena_span(ptr, n, &p, ret_run))
		return p;
	if (!fc_region_has(ptr)) {
		*ret_run = n;
		return (uint8_t *)(uintptr_t)ptr;
	}
	a = fc_alloc_find(ptr);
	if (!a || !a->host)
		return NULL;
	*ret_run = a->base + a->size - ptr;
	if (*ret_run > n)
		*ret_run = n;
	return a->host + (ptr - a->base);
}

/* Overlap within one allocation moves as memmove does; across runs it does not arise. */
CUresult fc_mem_move(uint64_t dst, uint64_t src, size_t n)
{
	while (n) {
		size_t run_d, run_s;
		uint8_t *d = fc_span(dst, n, &run_d), *s = fc_span(src, n, &run_s);

		if (!d || !s)
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		if (run_s < run_d)
			run_d = run_s;
		memmove(d, s, run_d);
		dst += run_d;
		src += run_d;
		n -= run_d;
	}
	return CUDA_SUCCESS;
}

static void fill_run(uint8_t *p, const void *pattern, size_t pattern_size, size_t count)
{
	if (pattern_size == 1)
		memset(p, *(const uint8_t *)pattern, count);
	else
		for (size_t i = 0; i < count; i++)
			memcpy(p + i * pattern_size, pattern, pattern_size);
}

CUresult fc_mem_fill(uint64_t dst, const void *pattern, size_t pattern_size, size_t count)
{
	while (count) {
		size_t run;
		uint8_t *p = fc_span(dst, count * pattern_size, &run);

		if (!p || run < pattern_size)
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		run /= pattern_size;
		fill_run(p, pattern, pattern_size, run);
		dst += run * pattern_size;
		count -= run;
	}
	return CUDA_SUCCESS;
}

/* ---- control ---- */

FC_EXPORT void *fakecuda_ptr(uint64_t ptr, size_t n)
{
	size_t run = 0;
	void *p;

	fc_enter_control();
	p = fc_span(ptr, n, &run);
	fc_leave_control();
	return p && run >= n ? p : NULL;
}

FC_EXPORT int fakecuda_read(void *dst, uint64_t src, size_t n)
{
	CUresult r;

	fc_enter_control();
	r = fc_mem_move((uint64_t)(uintptr_t)dst, src, n);
	fc_leave_control();
	return r ? -1 : 0;
}

FC_EXPORT int fakecuda_write(uint64_t dst, const void *src, size_t n)
{
	CUresult r;

	fc_enter_control();
	r = fc_mem_move(dst, (uint64_t)(uintptr_t)src, n);
	fc_leave_control();
	return r ? -1 : 0;
}
