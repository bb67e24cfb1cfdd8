/*
 * seed.h - the seed of a random test. A test that passed yesterday passes today, so the seed is the same unless SEED
 * says otherwise: SEED=N is that seed, SEED=new takes the clock's, to look further.
 */
#ifndef GM_TEST_SEED_H
#define GM_TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEST_SEED UINT64_C(0x9e3779b97f4a7c15)

/* Returns the seed, never 0, and prints it. */
static inline uint64_t test_seed(void)
{
	const char *given = getenv("SEED");
	uint64_t seed = !given ? TEST_SEED : !strcmp(given, "new") ? (uint64_t)time(NULL) * 2654435761u :
			strtoull(given, NULL, 0);

	seed = seed ? seed : 1;
	printf("# SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

#endif
