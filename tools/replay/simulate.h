/*
 * simulate.h - a recorded history run through the library's own heap, without a device.
 *
 * The driver is either the recorded one (segment addresses handed out as they were recorded, every
 * difference noted) or an ideal one with a capacity. Single-threaded.
 */
#ifndef GM_TOOLS_SIMULATE_H
#define GM_TOOLS_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/heap.h"
#include "tools/replay/trace.h"

struct gm_simulation {
	struct gm_stats stats;		/* at the end */
	uint64_t peak_live_bytes;	/* requested */
	uint64_t allocations;
	uint64_t failed;		/* requests that ran out of memory */
	uint64_t failed_bytes;		/* the first of them */
	uint64_t missed;		/* those of them that were served when it was recorded */
	uint64_t peak_used_bytes;	/* got from the driver, past the cache included */
	char difference[512];		/* the first one from the recording; "" none */
	int violations;			/* of gm_heap_check, when following: now and then, and at the end */
};

/* Run @trace under @config. @follow: against the recorded driver and the recorded addresses,
 * stopping at the first difference. @capacity: of the ideal device, GM_HEAP_UNLIMITED for none.
 * Returns 0, or -ENOMEM. */
int gm_simulate(const struct gm_trace *trace, const struct gm_heap_config *config, bool follow,
		uint64_t capacity, struct gm_simulation *ret);

#endif
