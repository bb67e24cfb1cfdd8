/*
 * summary_crash.c - gpumem summary of a process that a signal ended: see summary.h. One thread.
 */
#include "tools/verbs/summary.h"

#include <stdio.h>
#include <string.h>

#include "recorder/modules/names.h"
#include "tools/show/show.h"

#define FRAMES_MOST 6u			/* frames of the stack; --full has all */
#define EVENTS_MOST 10u			/* events of the thread */
#define WIDTH 80u
#define SITE_LEAST 20u			/* columns that a call site always gets */
#define BESIDE_MOST ((uint64_t)2 << 20)	/* bytes between a block and an address that may have been meant for it */

/* Return the columns that remain behind @used columns. Lines of the short text have 80, those of --full the
 * terminal's. */
static size_t left(const struct gm_summary *view, size_t used)
{
	size_t columns = view->full ? gm_show_columns(stdout) : WIDTH;

	return used + SITE_LEAST < columns ? columns - used : SITE_LEAST;
}

/* ---- the address ------------------------------------------------------------------------------ */

struct near { const struct gm_snapshot_block *block; uint64_t distance; bool in, below; };

static void look_at(const struct gm_snapshot_block *block, uint64_t address, struct near *nearest)
{
	uint64_t size = (uint64_t)(block->requested_size > 0 ? block->requested_size : block->size);
	uint64_t end = block->address + size;
	struct near here = { block, 0, address >= block->address && address < end, address < block->address };

	here.distance = here.in ? 0 : here.below ? block->address - address : address - end;
	if (here.distance > BESIDE_MOST || (nearest->block && nearest->distance <= here.distance))
		return;
	*nearest = here;
}

/* Print in which block @address is, or beside which. Returns the number of lines. */
static unsigned int print_place(const struct gm_summary *view, uint64_t address)
{
	const struct gm_snapshot *snapshot = view->scene->snapshot;
	struct near nearest = { .block = NULL };
	char site[700], fit[GM_SITE_FIT], text[GM_SITE_FIT + 256];

	for (size_t s = 0; s < snapshot->segment_count; s++)
		for (size_t b = 0; b < snapshot->segments[s].block_count; b++)
			if (strcmp(snapshot->segments[s].blocks[b].state, "inactive"))
				look_at(&snapshot->segments[s].blocks[b], address, &nearest);
	if (!nearest.block) {
		puts("  in no block of GPU memory, nor beside one");
		return 1;
	}
	gm_site_text(&view->scene->stacks, nearest.block->stack, site, sizeof(site));
	snprintf(text, sizeof(text), "%s %s a block of %s that %s asked for",
		 gm_show_bytes((int64_t)(nearest.in ? address - nearest.block->address : nearest.distance)),
		 nearest.in ? "into" : nearest.below ? "before the beginning of" : "behind the end of",
		 gm_show_bytes(nearest.block->requested_size), gm_site_fit(site, left(view, 4), fit));
	return gm_summary_wrapped(text, 2);
}

/* ---- the stack -------------------------------------------------------------------------------- */

/* Print the walked addresses of a crash whose stack could not be interned. Returns the number of lines. */
static unsigned int print_walked(const struct gm_summary *view, const json_t *crash)
{
	const json_t *pcs = gm_json_list(crash, "pcs"), *pc;
	unsigned int lines = 0;
	size_t i;

	json_array_foreach(pcs, i, pc) {
		if (!view->full && i == FRAMES_MOST)
			break;
		printf("  %s+%#llx\n", gm_show_module(view->root, gm_json_number(pc, "module")),
		       (unsigned long long)gm_json_number(pc, "offset"));
		lines++;
	}
	return lines;
}

/* Is a frame one of those that call main or a thread's function, and so end every stack? */
static bool is_start(const struct gm_frame *frame)
{
	static const char *const names[] = { "_start", "__libc_start", "start_thread", "clone", "__clone" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(frame->name, names[i], strlen(names[i])))
			return true;
	return false;
}

static unsigned int print_stack(const struct gm_summary *view, const json_t *crash)
{
	size_t count;
	const uint32_t *ids = gm_stack(&view->scene->stacks, gm_json_number(crash, "stack"), &count);
	unsigned int lines;
	char text[GM_FRAME_TEXT], fit[GM_SITE_FIT];
	size_t most;

	while (!view->full && count > 1 && is_start(&view->scene->stacks.frames[ids[count - 1]]))
		count--;
	most = view->full || count <= FRAMES_MOST ? count : FRAMES_MOST - 1;
	lines = count ? (unsigned int)most : print_walked(view, crash);
	for (size_t i = 0; i < most; i++)
		printf("  %s\n", gm_site_fit(gm_groups_frame_text(&view->scene->stacks.frames[ids[i]], text),
					     left(view, 2), fit));
	if (most < count)
		printf("  ... (%zu more)\n", count - most);
	if (json_is_true(json_object_get(crash, "truncated")))
		puts("  ... (it could not be followed further)");
	return lines + (most < count) + json_is_true(json_object_get(crash, "truncated"));
}

/* ---- what it did last ------------------------------------------------------------------------- */

static unsigned int print_events(const struct gm_summary *view, int64_t thread, int64_t time_us)
{
	const struct gm_snapshot *snapshot = view->scene->snapshot;
	size_t found[EVENTS_MOST], count = 0;
	char site[700], fit[GM_SITE_FIT];

	for (size_t i = snapshot->row_count; i-- && count < EVENTS_MOST;)
		if (snapshot->rows[i].thread == thread)
			found[count++] = i;
	if (count)
		puts("the last events of that thread");
	for (size_t i = count; i--;) {
		const struct gm_row *row = &snapshot->rows[found[i]];

		gm_site_text(&view->scene->stacks, row->stack, site, sizeof(site));
		int used = printf("  %9.6f s %-14s %10s %#llx  ",
				  (double)gm_wrap_subtract(row->time_us, time_us) / 1e6, gm_show_clean(row->action),
				  gm_show_bytes(row->size), (unsigned long long)row->address);

		puts(row->stack > 0 ? gm_site_fit(site, left(view, (size_t)used), fit) : "");
	}
	return (unsigned int)count + (count > 0);
}

unsigned int gm_summary_crash(const struct gm_summary *view)
{
	const json_t *crash = gm_json_object(view->root, "failure");
	int64_t thread = gm_json_number(crash, "thread");
	bool wish = gm_signal_is_wish(gm_json_text(crash, "signal_name"));
	bool place = !wish && json_is_integer(json_object_get(crash, "address"));
	unsigned int lines = 1;

	if (strcmp(gm_json_text(crash, "type"), "crash"))
		return 0;
	printf(wish ? "ended by %s" : "died of %s", gm_show_clean(gm_json_text(crash, "signal_name")));
	if (!wish)
		printf(" in thread %lld", (long long)thread);
	if (place)
		printf(", address %#llx", (unsigned long long)gm_json_number(crash, "address"));
	else if (json_is_integer(json_object_get(crash, "sender_pid")))
		printf(", sent by process %lld", (long long)gm_json_number(crash, "sender_pid"));
	else if (wish)
		printf(", sent by the terminal");
	putchar('\n');
	if (wish && !view->full)
		return lines;
	if (place)
		lines += print_place(view, (uint64_t)gm_json_number(crash, "address"));
	lines += print_stack(view, crash);
	return lines + print_events(view, thread, gm_json_number(crash, "time_us"));
}
