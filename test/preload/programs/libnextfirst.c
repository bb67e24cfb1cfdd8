/*
 * libnextfirst.c - stands in front of libnextlast.c, as interposers do: finds the next definition
 * of its own function by dlsym(RTLD_NEXT), whose meaning depends on who asks.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#pragma GCC visibility push(default)

int next_probe(int depth);
int cuNextProbe(int depth);

static int next(const char *name, int depth)
{
	int (*found)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

	if (depth > 3)
		return -1;		/* it found itself: for ever, but for this */
	return found ? found(depth + 1) + 10 : -2;
}

int next_probe(int depth)
{
	return next("next_probe", depth);
}

/* Named as the driver's functions are. */
int cuNextProbe(int depth)
{
	return next("cuNextProbe", depth);
}
