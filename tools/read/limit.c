/*
 * limit.c - the limits of what an input may cost: see input.h.
 *
 * The kernel limits the memory of the whole process (RLIMIT_DATA). A request beyond the limit fails with -ENOMEM, and
 * each verb reports that.
 */
#define _GNU_SOURCE
#include "tools/read/input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/show/show.h"

#define MEMORY_LEAST (UINT64_C(512) << 20)
#define MEMORY_TIMES 64u
#define THREAD (UINT64_C(16) << 20)	/* for the stack of one thread on each processor */
#define OUTPUT_LEAST (UINT64_C(64) << 20)
#define OUTPUT_TIMES 1000u
#define UNPACKED_LEAST (UINT64_C(64) << 20)
#define UNPACKED_TIMES 100u

static struct {
	bool lifted, set;
	rlim_t before;		/* the limit with which the process began */
	uint64_t had, read, reserved;
} limit;

static uint64_t sum(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) || sum > INT64_MAX ? INT64_MAX : sum;
}

static uint64_t times(uint64_t bytes, uint64_t by, uint64_t least)
{
	uint64_t product;

	return __builtin_mul_overflow(bytes, by, &product) ? INT64_MAX : sum(product, least);
}

/* Return the bytes that count for RLIMIT_DATA: private writable pages. */
static uint64_t data_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (!file || fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Return the limit of memory, in bytes beyond those that the process had at first. */
static uint64_t memory(void)
{
	return times(limit.read, MEMORY_TIMES, MEMORY_LEAST);
}

static void set(rlim_t bytes)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_DATA, &now))
		return;
	if (!limit.set)
		limit.before = now.rlim_cur;
	now.rlim_cur = bytes < limit.before ? bytes : limit.before;
	limit.set = !setrlimit(RLIMIT_DATA, &now);
}

void gm_limit_lift(void)
{
	limit.lifted = true;
	if (limit.set)
		set(RLIM_INFINITY);
}

void gm_limit_input(uint64_t bytes, int64_t reserved)
{
	if (limit.lifted)
		return;
	if (!limit.had)
		limit.had = data_bytes() + (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) * THREAD;
	limit.read = sum(limit.read, bytes);
	if (reserved >= 0)
		limit.reserved = sum(limit.reserved, (uint64_t)reserved);
	else
		limit.reserved -= 0 - (uint64_t)reserved < limit.reserved ? 0 - (uint64_t)reserved : limit.reserved;
	set(sum(sum(limit.had, limit.reserved), memory()));
}

void gm_limit_forget(void)
{
	limit.read = 0;
	gm_limit_input(0, 0);
}

uint64_t gm_limit_output(void)
{
	return limit.lifted ? UINT64_MAX : times(limit.read, OUTPUT_TIMES, OUTPUT_LEAST);
}

uint64_t gm_limit_unpacked(uint64_t packed)
{
	return limit.lifted ? UINT64_MAX : times(packed, UNPACKED_TIMES, UNPACKED_LEAST);
}

const char *gm_limit_why(int r)
{
	static char text[200];
	char bytes[40], read[40];

	if (limit.lifted || !limit.read || (r != -ENOMEM && r != -EOVERFLOW))
		return strerror(-r);
	gm_units_bytes(r == -ENOMEM ? memory() : gm_limit_output(), bytes, sizeof(bytes));
	gm_units_bytes(limit.read, read, sizeof(read));
	snprintf(text, sizeof(text), "more than %s%s would come of %s that were read: --no-limit is for who means "
		 "it", bytes, r == -ENOMEM ? " of memory" : "", read);
	return text;
}
