/*
 * phases.h - the ranges of the history that the program named (NVTX, gpumem_range_start), and the memory of each.
 * Single-threaded.
 *
 * Ranges of one name are one phase. An allocation counts once in every phase that is open then, in its own thread
 * or in the leading thread: the main thread or, if that has no ranges, the first thread that has one. The leading
 * thread counts because PyTorch runs backward in threads of its own, while that one waits within a range.
 */
#ifndef GM_TOOLS_PHASES_H
#define GM_TOOLS_PHASES_H

#include "tools/read/table.h"
#include "tools/show/lives.h"

struct gm_phase {
	const char *name;		/* without the numbers that PyTorch's profiler adds; its domain in brackets */
	int64_t ranges;			/* how often it was entered */
	int64_t live, blocks;		/* of what was allocated in it: bytes and blocks live in the end, */
	int64_t most;			/* bytes live at once, at most, */
	int64_t allocated, allocations;	/* and bytes and blocks in all */
	int64_t peak;			/* bytes live at once, at most, while it was open, whoever allocated them */
	/* While the history is read: its open ranges; bytes live now of what was allocated in it. */
	uint32_t open;
	int64_t held;
};

/* The first two phases: what was allocated in no range; and before the history, in ranges that nobody knows. */
enum { GM_PHASE_NONE, GM_PHASE_BEFORE, GM_PHASE_FIRST };

/* Which phases were open: a chain of nodes to 0, the innermost first. */
struct gm_phase_node {
	uint32_t parent, phase;
	bool again;			/* an outer one is of this phase, too */
};

struct gm_phases {
	struct gm_phase *list;
	struct gm_phase_node *nodes;
	uint32_t *of;			/* by life: its node */
	size_t count, node_count;
	struct gm_table names, chains;
	struct gm_values *texts;
};

/* The phases of @snapshot, after gm_snapshot_annotate, with the bytes of @lives that count for @device. Returns
 * 0 or -ENOMEM. */
int gm_phases_open(struct gm_phases *phases, const struct gm_snapshot *snapshot,
		   const struct gm_lives *lives, const char *device);
void gm_phases_close(struct gm_phases *phases);

/* The next phase that the life @life counts to; *@at begins as 0, and the last is followed by NULL. */
struct gm_phase *gm_phases_next(const struct gm_phases *phases, size_t life, uint32_t *at);

/* The phases with the highest peak first, without those that were never entered and held nothing. free()
 * the list; NULL: out of memory, and a count of 0. */
const struct gm_phase **gm_phases_sorted(const struct gm_phases *phases, size_t *ret_count);

/* A sentence on what is missing from the phases of @snapshot, since its history dropped it. NULL: nothing is. Static
 * memory. */
const char *gm_phases_missing(const struct gm_snapshot *snapshot);

/* A phase as verbs print it in JSON: its peak is null for the two that are no range. */
json_t *gm_phase_json(const struct gm_phase *phase);

#endif
