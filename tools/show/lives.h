/*
 * lives.h - the allocations of a snapshot, each from its birth to its end: what events and tables
 * say together. Single-threaded.
 */
#ifndef GM_TOOLS_LIVES_H
#define GM_TOOLS_LIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/read/snapshot.h"
#include "tools/show/show.h"

#define GM_LIFE_BEFORE UINT32_MAX	/* born: before the history that was kept */
#define GM_LIFE_LIVE UINT32_MAX		/* died: not before the snapshot */

struct gm_life {
	uint64_t address;
	int64_t size;			/* bytes asked for */
	int64_t stream, stack, thread, module;
	int64_t time_us;		/* of the birth; 0 not known */
	const char *kind;		/* of the snapshot: valid as long as it is */
	const char *name;		/* as that: by which the program called it; NULL: it did not, or it has ended */
	int device;			/* GM_ROW_HOST: pinned memory of the host */
	uint32_t born, died;		/* rows */
	uint16_t pool;			/* whose block it is: its place + 1, by level.h; 0: the driver's */
	bool freed;			/* live, and the program has freed it: not reusable yet */
};

struct gm_lives {
	const struct gm_row *rows;	/* of the snapshot */
	size_t row_count;
	struct gm_life *list;
	size_t count;
	/* Who held the peak of each device and of the host, as it was counted when it happened: sums of bytes by stack,
	 * module and kind. Of a device with pools, at the level of pools: what was live at the highest moment of the
	 * history; where the history is not whole, the peaks of the pools and of the rest, each of its own moment. */
	struct gm_life *held;
	size_t held_count;
	bool held_known;		/* the snapshot has them: older ones and PyTorch's do not */
};

/* All lives of @snapshot, which must outlive them; registered host memory is none. Returns 0, -E2BIG
 * (2^32 rows) or -ENOMEM. */
int gm_lives_open(struct gm_lives *lives, const struct gm_snapshot *snapshot);
void gm_lives_close(struct gm_lives *lives);

/* Does @life count? Those of @device do, a number or "host"; NULL: of all devices, but not of the host. Another
 * process's memory (ipc) never does. */
bool gm_life_counts(const struct gm_life *life, const char *device);

/* Bytes at the highest moment that the history shows, and the row after which it was (-1: before
 * the first). Returns -1 when it is out of memory. */
int64_t gm_lives_shown_peak(const struct gm_lives *lives, const char *device, int64_t *ret_row);

/* Bytes at the peak: the sum of @held, of several devices what each had at its own. Where the snapshot does not say
 * who held them (@lives->held_known), as gm_lives_shown_peak. *@ret_row: GM_LIVES_PEAK, or the row. */
int64_t gm_lives_peak(const struct gm_lives *lives, const char *device, int64_t *ret_row);

/* The most bytes that the program held on @device at once, by the requests of the history: a block ends when the
 * program frees it, whenever the GPU is done with it. Returns -1 where the history is not whole, or -ENOMEM. */
int64_t gm_lives_held_peak(const struct gm_lives *lives, const struct gm_snapshot *snapshot, int64_t device);

/* Was @life live after @row (-1: before the first)? GM_LIVES_END: is it live in the end, and not freed? */
#define GM_LIVES_END INT64_MIN
#define GM_LIVES_PEAK (INT64_MIN + 1)	/* for whoever reads @held; no life was there */
bool gm_life_at(const struct gm_life *life, int64_t row);

#endif
