/*
 * storm.h - given by storm.cc to the libraries that it loads and unloads: functions of the driver, and counts of
 * calls that have returned.
 */
#ifndef TEST_PRELOAD_STORM_H
#define TEST_PRELOAD_STORM_H

#include <stddef.h>
#include <stdint.h>

struct storm {
	int (*alloc)(uint64_t *address, size_t bytes);
	int (*free)(uint64_t address);
	uint64_t allocations, frees, errors;	/* by __atomic builtins */
};

#ifdef __cplusplus
extern "C"
#else
extern
#endif
struct storm storm;

#endif
