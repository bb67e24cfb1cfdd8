/*
 * units.h - bytes for people, and sums of numbers that may be anything.
 */
#ifndef GM_TOOLS_UNITS_H
#define GM_TOOLS_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* @bytes in the largest unit that leaves it at 1 or more: "512 B", "1.50 KiB", "20.00 GiB".
 * Writes at most @room bytes, NUL included; 32 are always enough. */
void gm_units_bytes(uint64_t bytes, char *ret, size_t room);

/* Bytes from "512", "20MiB", "40GiB", "1.5GB" (KB, MB ... count 1024 too, as PyTorch's do).
 * Returns 0, or -EINVAL and @ret unchanged. */
int gm_units_parse(const char *text, uint64_t *ret);

/* Seconds, from @least to @most. Returns 0, or -EINVAL when @text is none of these. */
int gm_units_seconds(const char *text, double least, double most, double *ret);

/* Sums of what a file says may be anything: they wrap. */
static inline int64_t gm_wrap_add(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t gm_wrap_subtract(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

#endif
