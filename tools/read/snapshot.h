/*
 * snapshot.h - a snapshot in memory: what may have millions of items as plain arrays, all else as
 * jansson has it. Every verb works on one of these, whatever it was read from (load.h).
 *
 * Single-threaded.
 */
#ifndef GM_TOOLS_SNAPSHOT_H
#define GM_TOOLS_SNAPSHOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/snapshot/block.h"

#define GM_ROW_HOST (-1)		/* in the place of a device's number: pinned memory of the host */

#define GM_ANNOTATIONS_MOST 0x7fffffffu	/* larger files are not read */

/* An event. Texts here, and below, are valid as long as the snapshot is, and never NULL. */
struct gm_row {
	int64_t time_us;
	int device;			/* GM_ROW_HOST: the host */
	/* An annotate, after gm_snapshot_annotate: the place of its annotation, + 1. A pool's block, by level.h: the
	 * place of its pool, + 1. Else 0. */
	uint32_t place : 31;
	uint32_t of_pool : 1;		/* its free has the stack of its allocation */
	const char *action, *kind;
	uint64_t address;
	int64_t size, stream, thread, module, stack;
};

struct gm_snapshot_segment {
	int64_t device;			/* GM_ROW_HOST: the host */
	uint64_t address;
	int64_t total_size, allocated_size, active_size, requested_size, stream, pool[2];
	int64_t module, stack, time_us;
	int64_t handle;			/* 0: none */
	const char *type, *kind;
	bool expandable, registered, unmapped;
	bool outside;			/* of a pool: a block in no piece of memory that is known */
	uint32_t of_pool;		/* by level.h: the pool's place + 1; else 0 */
	struct gm_snapshot_block *blocks;	/* in the arena of @texts */
	size_t block_count;
};

struct gm_snapshot_frame {
	const char *name, *file;
	const char *symbol;		/* as it was recorded, where @name is another one by now; NULL: it is @name */
	int64_t line, module, offset;
	bool python, inlined;
};

/* What the program handed out of the memory in @segments above: docs/snapshot.md has the members. Stacks
 * and modules are numbered as in the snapshot. */
struct gm_snapshot_pool {
	json_t *root;			/* an object: all members but the following */
	int64_t number, device;		/* which @root has, too, as it has @name */
	const char *name;
	struct gm_snapshot_segment *segments;
	size_t segment_count;
	struct gm_row *rows;		/* by time */
	size_t row_count;
	int64_t dropped;		/* events that are no longer here */
};

struct gm_snapshot {
	json_t *root;			/* an object: all members but the following */
	struct gm_row *rows;		/* of all devices and the host, by time */
	size_t row_count;
	struct gm_snapshot_segment *segments;	/* of the devices and the host */
	size_t segment_count;
	struct gm_snapshot_frame *frames;
	size_t frame_count;
	uint32_t *ids;			/* frames of all stacks, innermost first; less than @frame_count, or 0 */
	size_t *starts;			/* stack s: ids[starts[s]] to ids[starts[s + 1]]; s < stack_count */
	size_t stack_count;
	int64_t *dropped;		/* by device: events that are no longer here */
	size_t trace_count;		/* devices that have a trace */
	int64_t host_dropped;
	struct gm_snapshot_pool *pools;	/* in the order of their numbers; none in a snapshot of PyTorch's */
	size_t pool_count;
	bool of_pools;			/* level.h: @rows and @segments have pools' blocks in place of their pieces */
	struct gm_values *texts;
};

void gm_snapshot_free(struct gm_snapshot *snapshot);

/* Free what @pool has, as gm_snapshot_free does for each pool. */
void gm_snapshot_free_pool(struct gm_snapshot_pool *pool);

/* Find the annotation of each row whose action is "annotate", and add a row for each annotation that has none
 * (PyTorch's). Returns 0 or -ENOMEM. */
int gm_snapshot_annotate(struct gm_snapshot *snapshot);

/* Return the annotation of a row; NULL: it has none. */
const json_t *gm_row_annotation(const json_t *root, const struct gm_row *row);

/* Has @pool expandable segments? Programs also choose them while they run, which no environment variable shows. */
bool gm_pool_is_expandable(const struct gm_snapshot_pool *pool);

/* Sort the rows by time, and rows of one time by device. Each part, from @starts[i] to @starts[i + 1], is sorted
 * already. Returns 0 or -ENOMEM. */
int gm_rows_merge(struct gm_row *rows, const size_t *starts, size_t parts);

/* Return the value of @key in @object if it has the function's type; otherwise 0, "" or NULL. */
int64_t gm_json_number(const json_t *object, const char *key);
const char *gm_json_text(const json_t *object, const char *key);
const json_t *gm_json_list(const json_t *object, const char *key);
const json_t *gm_json_object(const json_t *object, const char *key);

#endif
