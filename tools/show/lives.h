/*
 * lives.h - the allocations of a snapshot, each from its birth to its end, by its events and its tables together.
 * Single-threaded.
 */
#ifndef GM_TOOLS_LIVES_H
#define GM_TOOLS_LIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/read/snapshot.h"
#include "tools/show/show.h"

#define GM_LIFE_BEFORE UINT32_MAX	/* as @born: before the history that was kept */
#define GM_LIFE_LIVE UINT32_MAX		/* as @died: not before the snapshot */

struct gm_life {
	uint64_t address;
	int64_t size;			/* bytes asked for */
	int64_t stream, stack, thread, module;
	int64_t time_us;		/* of the birth; 0 not known */
	/* texts of the snapshot */
	const char *kind;
	const char *name;		/* that the program gave a block; NULL: none, or the block has ended */
	int device;			/* GM_ROW_HOST: pinned memory of the host */
	uint32_t born, died;		/* rows */
	uint16_t pool;			/* that handed the block out: its place + 1, by level.h; 0: the driver */
	bool freed;			/* the program has freed the block, which is not reusable yet */
};

struct gm_lives {
	const struct gm_row *rows;	/* of the snapshot */
	size_t row_count;
	struct gm_life *list;
	size_t count;
	/* Who held the peak of each device and of the host: sums of bytes by stack, module and kind, which were
	 * counted when the peak happened. For a device with pools, at the level of pools: the lives at the highest
	 * moment of the history; if the history is not whole, the sums of each pool and of the rest, each at its own
	 * peak. */
	struct gm_life *at_peak;
	size_t at_peak_count;
	bool at_peak_known;		/* the snapshot has these sums; older ones and PyTorch's do not */
};

/* Find all lives of @snapshot, which must outlive @lives. Registered host memory counts 0 bytes. Returns 0; -E2BIG
 * (2^32 - 1 rows or more) or -ENOMEM and nothing to close. */
int gm_lives_open(struct gm_lives *lives, const struct gm_snapshot *snapshot);
void gm_lives_close(struct gm_lives *lives);

/* Does @life count for @device (a number or "host"; NULL: all devices, without the host)? Memory of another process
 * (ipc) never counts. */
bool gm_life_counts(const struct gm_life *life, const char *device);

/* Return the most bytes that were live at once in the history, and the row after which they were (-1: before the first
 * row). Returns -1 if memory is short. */
int64_t gm_lives_shown_peak(const struct gm_lives *lives, const char *device, int64_t *ret_row);

/* Return the bytes at the peak, the sum of @at_peak, and GM_LIVES_PEAK as *@ret_row. For several devices it adds up the
 * peak of each. If the snapshot does not say who held the peak (@lives->at_peak_known), as gm_lives_shown_peak. */
int64_t gm_lives_peak(const struct gm_lives *lives, const char *device, int64_t *ret_row);

/* Return the most requested bytes that the program held on @device at once, by the history: a block ends when the
 * program frees it, not when the GPU is done with it. Returns -1 if the history is not whole, or -ENOMEM. */
int64_t gm_lives_held_peak(const struct gm_lives *lives, const struct gm_snapshot *snapshot, int64_t device);

/* Was @life live after @row (-1: before the first row)? For GM_LIVES_END: is @life live in the end, and not freed? */
#define GM_LIVES_END INT64_MIN
#define GM_LIVES_PEAK (INT64_MIN + 1)	/* the moment of @at_peak; not for gm_life_at */
bool gm_life_at(const struct gm_life *life, int64_t row);

#endif
