/*
 * block.h - a block as a snapshot shows it: docs/snapshot.md has the members. A sink (jsonw.h) takes it as a record
 * instead of an object, because a process may have a million blocks.
 */
#ifndef GM_RECORDER_BLOCK_H
#define GM_RECORDER_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct gm_snapshot_block {
	uint64_t address;
	int64_t size, requested_size, stack, time_us, thread, module;	/* @time_us: 0 not known */
	const char *state, *kind;	/* of a record constants: they are there for ever */
	const char *name;		/* of a pool's, that the program gave it; "": none */
	bool freeing, untraced;
};

#endif
