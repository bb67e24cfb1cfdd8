/* wait.cuh - a kernel that waits for a word, and what ends a program whose call failed. For programs that name the case
 * that they run in @which.
 */
#ifndef TEST_GPU_WAIT_CUH
#define TEST_GPU_WAIT_CUH

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                            \
	do {                                                                                   \
		int check_error = (int)(call);                                                 \
		if (check_error) {                                                             \
			printf("%s: %s: error %d\n", which, #call, check_error);               \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

static const char *which;

/* Wait until @word is not 0; after @seconds set @late and end. */
__global__ void wait(volatile int *word, int *late, unsigned long long seconds)
{
	unsigned long long began, now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
	do {
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
		if (now - began > seconds * 1000000000ull) {
			*late = 1;
			return;
		}
		__nanosleep(1000);
	} while (!*word);
}

#endif
