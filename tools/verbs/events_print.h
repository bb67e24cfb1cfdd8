/*
 * events_print.h - how `gpumem events` shows what it found. Single-threaded.
 */
#ifndef GM_TOOLS_EVENTS_PRINT_H
#define GM_TOOLS_EVENTS_PRINT_H

#include "tools/show/stacks.h"
#include "tools/read/snapshot.h"

enum gm_events_format { GM_EVENTS_TABLE, GM_EVENTS_CSV, GM_EVENTS_JSONL };

struct gm_events {
	const json_t *root;
	const struct gm_row *rows;
	size_t count;
	int64_t origin_us;		/* what a table's times count from */
	const struct gm_stacks *stacks;	/* each event with its own; NULL: without */
	bool only_ooms;			/* of a table: just those of what could not be had */
};

/* On standard output. Returns 0 or -errno. */
int gm_events_print(const struct gm_events *events, enum gm_events_format format);

#endif
