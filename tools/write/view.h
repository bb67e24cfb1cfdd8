/*
 * view.h - the page of `gpumem view`: one HTML file with the viewer and the snapshots that it shows.
 *
 * A snapshot is packed for it (the format: tools/viewer/README.md), compressed, and written into the page as
 * base64. Single-threaded.
 */
#ifndef GM_TOOLS_VIEW_H
#define GM_TOOLS_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/show/groups.h"
#include "tools/show/show.h"

/* The page without snapshots, as tools/viewer/build.mjs makes it; NULL: this gpumem was built without. */
const char *gm_view_page(size_t *ret_bytes);

struct gm_pack { unsigned char *bytes; size_t count, room; int error; };

/* Pack a snapshot for the page, which calls it @name (need not be UTF-8); with its @pools as sources of their own, or
 * without. Returns 0 or -ENOMEM; @ret->bytes is freed by the caller, whatever is returned. */
int gm_view_pack(const struct gm_scene *scene, const char *name, bool pools, struct gm_pack *ret);

/* Write the page with @count packs. Returns 0, -ENOSYS (this gpumem was built without the page), -ENOMEM, -EOVERFLOW
 * (input.h) or the error of a write. */
int gm_view_write(FILE *file, const struct gm_pack *packs, size_t count);

/* ---- view_columns.c --------------------------------------------------------------------------- */

/*
 * Between view_pack.c, view_stacks.c and view_columns.c: columns of numbers.
 */

struct gm_packing {
	const struct gm_scene *scene;
	struct gm_pack planes;			/* of all columns */
	char prefix[16];			/* of the columns of the source that is being packed: its number */
	json_t *columns, *texts, *numbers;	/* lists of the header */
	struct gm_table text_ids, number_ids;	/* a text's place in memory, a number -> its place + 1 */
	struct gm_values *values;
	bool pools;				/* are sources of their own */
	int64_t *numbers_of;			/* the column that is being made */
	int64_t base;				/* what its first number was, where they are differences */
	uint32_t *mates;			/* of the events of a source: see find_mates */
	struct gm_table open;			/* those that nothing ended: address -> event + 1 */
	uint32_t *order;			/* and their places, those of one action together */
};

/* What is taken from a number before it is written: nothing; the number before it; that of its event's mate, if there
 * is one. PAIRED: that of the mate, of completed frees alone. */
enum gm_coding { GM_PLAIN, GM_DELTA, GM_MATED, GM_PAIRED };

/* Add @count bytes; a lack of memory is noted in @pack->error. */
void gm_pack_put(struct gm_pack *pack, const void *bytes, size_t count);

/* The place of a text among the header's texts; of a stream or a thread among its numbers, since they may be
 * too large for the browser's. */
int64_t gm_pack_text(struct gm_packing *p, const char *text);
int64_t gm_pack_number(struct gm_packing *p, int64_t number);

/* The numbers of p->numbers_of as column @prefix@name, as they are (@coding names what the caller has made of
 * them), or as differences; of events (@ordered) in p->order. */
void gm_pack_planes(struct gm_packing *p, const char *prefix, const char *name, size_t count, const char *coding,
		    bool ordered);
void gm_pack_column(struct gm_packing *p, const char *prefix, const char *name, size_t count,
		    enum gm_coding coding, bool ordered);

/* A column of a list: EXPRESSION of each @one. */
#define GM_COLUMN(p, prefix, name, coding, count, type, one, first, EXPRESSION) do {	\
	for (size_t i_ = 0; i_ < (count); i_++) {					\
		const type *one = first;						\
		(p)->numbers_of[i_] = (int64_t)(EXPRESSION);				\
	}										\
	gm_pack_column(p, prefix, name, count, coding, false);				\
} while (0)

/* view_stacks.c: the columns of stacks and frames. Returns 0 or -ENOMEM. */
int gm_pack_stacks(struct gm_packing *p);

#endif
