/*
 * phases.h - the ranges of the history that the program named (NVTX, gpumem_range_start), and the memory of each.
 * Single-threaded.
 *
 * Ranges of one name are one phase. An allocation counts once in every phase that is open at that time in its own
 * thread or in the leading thread. The leading thread is the main thread or, if the main thread has no ranges, the
 * first thread that has one. The leading thread counts because PyTorch runs backward in threads of its own, while the
 * leading thread waits within a range.
 */
#ifndef GM_TOOLS_PHASES_H
#define GM_TOOLS_PHASES_H

#include "tools/read/table.h"
#include "tools/show/lives.h"

struct gm_phase {
	const char *name;		/* without the numbers of PyTorch's profiler; the domain is in brackets */
	int64_t ranges;			/* how often the phase was entered */
	/* what was allocated in the phase */
	int64_t live, blocks;		/* bytes and blocks live in the end */
	int64_t own_peak;		/* the most bytes live at once */
	int64_t allocated, allocations;	/* bytes and blocks in all */
	int64_t peak;			/* the most bytes live at once while it was open, whoever allocated them */
	/* while the history is read */
	uint32_t open;			/* ranges of the phase */
	int64_t held;			/* bytes live now that were allocated in the phase */
};

/* The first two phases: what was allocated in no range, and what was allocated before the history, in unknown
 * ranges. */
enum { GM_PHASE_NONE, GM_PHASE_BEFORE, GM_PHASE_FIRST };

/* The phases that were open: a chain of nodes from the innermost phase to node 0, which is no phase. */
struct gm_phase_node {
	uint32_t parent, phase;
	bool again;			/* an outer node is of this phase, too */
};

struct gm_phases {
	struct gm_phase *list;
	struct gm_phase_node *nodes;
	uint32_t *of;			/* the node of each life; UINT32_MAX: born before the history */
	size_t count, node_count;
	struct gm_table names, chains;
	struct gm_values *texts;
};

/* Find the phases of @snapshot, with the bytes of @lives that count for @device (gm_life_counts). Call
 * gm_snapshot_annotate before. Returns 0, or -ENOMEM and nothing to close. */
int gm_phases_open(struct gm_phases *phases, const struct gm_snapshot *snapshot,
		   const struct gm_lives *lives, const char *device);
void gm_phases_close(struct gm_phases *phases);

/* Return the next phase in which the life with the index @life counts; NULL after the last. Begin with *@at 0. */
struct gm_phase *gm_phases_next(const struct gm_phases *phases, size_t life, uint32_t *at);

/* Return the phases that were entered or held something, the highest peak first. The caller frees the list. NULL, and a
 * count of 0: out of memory. */
const struct gm_phase **gm_phases_sorted(const struct gm_phases *phases, size_t *ret_count);

/* Return a sentence on what is missing from the phases of @snapshot because the history has not kept it. NULL: nothing
 * is missing. Static memory. */
const char *gm_phases_missing(const struct gm_snapshot *snapshot);

/* Return a phase as verbs print it in JSON; the caller owns it. The peak of a phase that was never entered is null. */
json_t *gm_phase_json(const struct gm_phase *phase);

#endif
