/*
 * leaps.h - the program's clock, which leaps as it does for a process that was stopped: for a test of what waits.
 * Include it in the test alone; whatever the test is linked from reads this clock.
 */
#ifndef GM_TEST_UNIT_LEAPS_H
#define GM_TEST_UNIT_LEAPS_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Seconds by which it goes on at each reading, and has so far. */
static _Atomic(int64_t) leap, leapt;
static _Atomic(unsigned long) readings;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);

	readings++;
	leapt += leap;
	ret->tv_sec += leapt;
	return r;
}

/* Before the test's end: libcheck reads that clock, too. */
static inline void end_leaps(void)
{
	leap = 0;
	leapt = 0;
}

/* Wait until the clock was read @count more times, or who reads it has *@ended. */
static inline void await_readings(unsigned long count, const _Atomic(int) *ended)
{
	unsigned long until = readings + count;

	while (readings < until && !*ended)
		usleep(100);
}

#endif
