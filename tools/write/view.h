/*
 * view.h - the page of `gpumem view`: one HTML file with the viewer and its snapshots.
 *
 * A snapshot is packed (tools/viewer/README.md has the format), compressed, and written into the page as base64.
 * Single-threaded.
 */
#ifndef GM_TOOLS_VIEW_H
#define GM_TOOLS_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/show/groups.h"
#include "tools/show/show.h"

/* Return the page without snapshots, as tools/viewer/build.mjs makes it; NULL: this gpumem was built without the
 * page. */
const char *gm_view_page(size_t *ret_bytes);

struct gm_pack { unsigned char *bytes; size_t count, room; int error; };

/* Pack a snapshot, which the page calls @name (need not be UTF-8). @pools: each pool becomes a source of its own, else
 * pools are left out. Return 0 or -ENOMEM. The caller frees @ret->bytes in every case. */
int gm_view_pack(const struct gm_scene *scene, const char *name, bool pools, struct gm_pack *ret);

/* Write the page with @count packs. Return 0, -ENOSYS (this gpumem was built without the page), -ENOMEM, -EOVERFLOW
 * (gm_limit_output) or the error of a write. */
int gm_view_write(FILE *file, const struct gm_pack *packs, size_t count);

/* ---- view_columns.c --------------------------------------------------------------------------- */

/*
 * Columns of numbers, shared by view_pack.c, view_stacks.c and view_columns.c.
 */

struct gm_packing {
	const struct gm_scene *scene;
	struct gm_pack planes;			/* the bytes of all columns */
	char prefix[16];			/* of the names of a source's columns: the source's number and "." */
	json_t *columns, *texts, *numbers;	/* lists of the header */
	struct gm_table text_ids, number_ids;	/* pointer of a text, number -> place in its list + 1 */
	struct gm_values *values;
	bool pools;				/* pools become sources of their own */
	int64_t *numbers_of;			/* the column that is being made */
	int64_t base;				/* its first number, if differences are written; else 0 */
	uint32_t *mates;			/* by event of the source: see find_mates */
	struct gm_table open;			/* events that no later one ended: (address, space) -> event + 1 */
	uint32_t *order;			/* indices of the events, those of one action together */
};

/* The number that is subtracted before a number is written: PLAIN, 0; DELTA, the number before; MATED, the number of
 * the event's mate, or 0 without one; PAIRED, as MATED for completed frees, else 0. */
enum gm_coding { GM_PLAIN, GM_DELTA, GM_MATED, GM_PAIRED };

/* Add @count bytes; without memory set @pack->error. */
void gm_pack_put(struct gm_pack *pack, const void *bytes, size_t count);

/* Return the place of @text in the header's list of texts; the place of @number, a stream or thread, in its list of
 * numbers. Streams and threads have a list because they may be too large for a number of JavaScript. Without memory
 * p->planes.error is set. */
int64_t gm_pack_text(struct gm_packing *p, const char *text);
int64_t gm_pack_number(struct gm_packing *p, int64_t number);

/* Write the numbers of p->numbers_of as column @prefix@name: gm_pack_planes as they are, with the caller's name for
 * their coding; gm_pack_column as differences by @coding. @ordered: in the order p->order, for events. Errors are in
 * p->planes.error. */
void gm_pack_planes(struct gm_packing *p, const char *prefix, const char *name, size_t count, const char *coding,
		    bool ordered);
void gm_pack_column(struct gm_packing *p, const char *prefix, const char *name, size_t count,
		    enum gm_coding coding, bool ordered);

/* Write a column with the EXPRESSION of each item of a list. The item is called @one; @first is the address of item
 * i_. */
#define GM_COLUMN(p, prefix, name, coding, count, type, one, first, EXPRESSION) do {	\
	for (size_t i_ = 0; i_ < (count); i_++) {					\
		const type *one = first;						\
		(p)->numbers_of[i_] = (int64_t)(EXPRESSION);				\
	}										\
	gm_pack_column(p, prefix, name, count, coding, false);				\
} while (0)

/* view_stacks.c: write the columns of stacks and frames. Return 0 or -ENOMEM. */
int gm_pack_stacks(struct gm_packing *p);

#endif
