/*
 * libnextfirst.c - stands in front of libnextlast.c, as interposers do: finds the next definition
 * of its own function by dlsym(RTLD_NEXT), whose meaning depends on who asks.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#pragma GCC visibility push(default)

int next_probe(int depth);

int next_probe(int depth)
{
	int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "next_probe");

	if (depth > 3)
		return -1;		/* it found itself: for ever, but for this */
	return next ? next(depth + 1) + 10 : -2;
}
