/*
 * leaps.h - a clock that leaps, as the clock of a process does that was stopped: for tests of waits. It is read by a
 * system call, for tests that step through code, too. Only the test includes it; all code that is linked into the test
 * reads this clock.
 */
#ifndef GM_TEST_UNIT_LEAPS_H
#define GM_TEST_UNIT_LEAPS_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* By how many seconds the clock leaps at each reading; by how many it has leapt so far. */
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

/* Stop leaping. Call before the end of the test, because libcheck reads the clock, too. */
static inline void end_leaps(void)
{
	leap = 0;
	leapt = 0;
}

/* Wait until the clock was read @count more times, or until its reader has *@ended. */
static inline void await_readings(unsigned long count, const _Atomic(int) *ended)
{
	unsigned long until = readings + count;

	while (readings < until && !*ended)
		usleep(100);
}

#endif
