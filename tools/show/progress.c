/*
 * progress.c - how far something long has come: see progress.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/show/progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double began, drawn;
static bool shown;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void gm_progress(const char *what, size_t done, size_t all)
{
	double at = now();

	if (began <= 0)
		began = at;
	if (at - began < 1 || at - drawn < 0.2 || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%s: %zu of %zu\033[K", what, done, all);
	drawn = at;
	shown = true;
}

void gm_progress_end(void)
{
	if (shown)
		fputs("\r\033[K", stderr);
	shown = false;
	began = drawn = 0;
}
