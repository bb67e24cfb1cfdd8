/*
 * torch_fit.c - which segments and events PyTorch's viewer can follow: see torch.h. One thread.
 *
 * The viewer (and `_memory_viz.py segment_plot`) starts with what is live at the end and undoes the
 * events, newest first. It fails on a block outside of every segment, on the free of a block that it
 * does not have, on a mapping outside of its segment. Such events come of a history that began before our record, of
 * lost events and of calls in flight. They are found here by doing what the viewer does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"
#include "tools/torch/torch.h"

#define DEVICES 1024
#define PLACES_START (UINT64_C(1) << 52)	/* above every address, and still exact in JavaScript */
#define PLACES_END (UINT64_C(1) << 53)
#define PLACES_UNIT (UINT64_C(1) << 21)

enum { ALLOCATED, PENDING };		/* range.what of a block */

/* ---- ranges of addresses that do not overlap, in a tree of libc's ------------------------------- */

struct range { uint64_t start, end; int64_t what; };	/* end: the first byte behind it */
struct ranges { void *root; };

/* Ranges that overlap are equal: no two of those in the tree do. */
static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->end <= y->start ? -1 : x->start >= y->end;
}

static void ranges_remove(struct ranges *ranges, struct range *range)
{
	tdelete(range, &ranges->root, compare_ranges);
	free(range);
}

/* One that overlaps [@start, @end); NULL: none. All but start and end may be changed. */
static struct range *ranges_overlap(const struct ranges *ranges, uint64_t start, uint64_t end)
{
	struct range key = { start, end, 0 };
	struct range **found = end > start ? tfind(&key, &ranges->root, compare_ranges) : NULL;

	return found ? *found : NULL;
}

static struct range *ranges_at(const struct ranges *ranges, uint64_t address)
{
	return ranges_overlap(ranges, address, address + 1);
}

/* ---- the devices ------------------------------------------------------------------------------- */

struct device {
	struct ranges segments;	/* what: the stream */
	struct ranges blocks;
};

struct fitting {
	struct gm_snapshot *snapshot;
	struct gm_torch_fit *fit;
	struct device *devices;		/* DEVICES of them */
	struct gm_table sizes, places;	/* (device, handle) -> bytes at the most; -> address */
	uint64_t next_place;
	bool failed;			/* out of memory */
};

/* Add a range that is not empty and overlaps no other; say whether that went. */
static bool add(struct fitting *f, struct ranges *to, uint64_t start, int64_t size, int64_t what)
{
	struct range *one, **found;

	if (size <= 0 || start + (uint64_t)size <= start)
		return false;
	one = malloc(sizeof(*one));
	if (one)
		*one = (struct range){ start, start + (uint64_t)size, what };
	found = one ? tsearch(one, &to->root, compare_ranges) : NULL;
	f->failed |= !found;
	if (found && *found == one)
		return true;
	free(one);
	return false;
}

static struct range *exactly(const struct ranges *in, uint64_t start)
{
	struct range *found = ranges_at(in, start);

	return found && found->start == start ? found : NULL;
}

static struct range *around(const struct ranges *in, uint64_t start, uint64_t end)
{
	struct range *found = ranges_at(in, start);

	return found && end > start && found->end >= end ? found : NULL;
}

/* ---- handles ---------------------------------------------------------------------------------- */

/*
 * Arrays, graphs and VMM memory that is not mapped have a handle where others have an address.
 * Handles lie close together, whatever the size of what they stand for: taken for addresses, each
 * would lie in its neighbour. They get places where no address is. (VMM maps whole pages.)
 */
static bool is_handle(const char *kind, uint64_t address)
{
	return !strcmp(kind, "array") || !strcmp(kind, "graph") ||
	       (!strcmp(kind, "vmm") && address % 65536);
}

static void note_handle(struct fitting *f, int64_t device, const char *kind, uint64_t address,
			int64_t size)
{
	if (size > 0 && is_handle(kind, address) &&
	    gm_table_get(&f->sizes, (uint64_t)device, address) < (uint64_t)size &&
	    gm_table_put(&f->sizes, (uint64_t)device, address, (uint64_t)size))
		f->failed = true;
}

/* Where a handle's memory is shown; anything else, and what finds no room, stays where it is. */
static uint64_t place_of(struct fitting *f, int64_t device, const char *kind, uint64_t address)
{
	uint64_t size, place;

	if (!is_handle(kind, address))
		return address;
	place = gm_table_get(&f->places, (uint64_t)device, address);
	if (place)
		return place;
	size = gm_table_get(&f->sizes, (uint64_t)device, address);
	if (!size || size > PLACES_END - f->next_place - PLACES_UNIT)
		return address;
	place = f->next_place;
	f->next_place += (size + PLACES_UNIT - 1) & ~(PLACES_UNIT - 1);
	if (gm_table_put(&f->places, (uint64_t)device, address, place))
		f->failed = true;
	return place;
}

static void place_handles(struct fitting *f)
{
	struct gm_snapshot *of = f->snapshot;
	size_t i;

	f->next_place = PLACES_START;
	for (i = 0; i < of->segment_count; i++)
		note_handle(f, of->segments[i].device, of->segments[i].kind, of->segments[i].address,
			    of->segments[i].total_size);
	for (i = 0; i < of->row_count; i++)
		if (strcmp(of->rows[i].action, "oom"))
			note_handle(f, of->rows[i].device, of->rows[i].kind, of->rows[i].address,
				    of->rows[i].size);
	for (i = 0; i < of->segment_count; i++)
		f->fit->segment_address[i] = place_of(f, of->segments[i].device, of->segments[i].kind,
						      of->segments[i].address);
	for (i = 0; i < of->row_count; i++)
		if (strcmp(of->rows[i].action, "oom"))
			of->rows[i].address = place_of(f, of->rows[i].device, of->rows[i].kind,
						       of->rows[i].address);
}

/* ---- the end ---------------------------------------------------------------------------------- */

static void add_blocks(struct fitting *f, struct device *device, const struct gm_snapshot_segment *segment,
		       uint64_t place)
{
	for (size_t i = 0; i < segment->block_count; i++) {
		const struct gm_snapshot_block *block = &segment->blocks[i];
		uint64_t start = block->address + (place - segment->address);

		if (strcmp(block->state, "inactive") && block->size > 0 &&
		    around(&device->segments, start, start + (uint64_t)block->size))
			add(f, &device->blocks, start, block->size,
			    strcmp(block->state, "active_allocated") ? PENDING : ALLOCATED);
	}
}

static bool is_others(const char *kind)
{
	return !strcmp(kind, "ipc");
}

static void add_segments(struct fitting *f)
{
	for (size_t i = 0; i < f->snapshot->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &f->snapshot->segments[i];
		int64_t device = segment->device;

		if (device == GM_ROW_HOST || is_others(segment->kind) ||
		    !segment->total_size)		/* graphs that hold nothing now */
			continue;
		f->fit->keep_segment[i] = device >= 0 && device < DEVICES &&
			add(f, &f->devices[device].segments, f->fit->segment_address[i], segment->total_size,
			    segment->stream);
		if (!f->fit->keep_segment[i]) {
			f->fit->segments_left_out++;
			continue;
		}
		if ((size_t)device >= f->fit->device_count)
			f->fit->device_count = (size_t)device + 1;
		add_blocks(f, &f->devices[device], segment, f->fit->segment_address[i]);
	}
}

/* ---- backward --------------------------------------------------------------------------------- */

static bool undo_alloc(struct device *device, const struct gm_row *row)
{
	struct range *block = exactly(&device->blocks, row->address);

	if (!block)
		return false;
	ranges_remove(&device->blocks, block);
	return true;
}

static bool undo_free_requested(struct device *device, const struct gm_row *row)
{
	struct range *block = exactly(&device->blocks, row->address);

	if (!block || block->what != PENDING)
		return false;
	block->what = ALLOCATED;
	return true;
}

static bool undo_segment_alloc(struct device *device, const struct gm_row *row)
{
	struct range *segment = exactly(&device->segments, row->address);

	if (!segment || segment->end - segment->start != (uint64_t)row->size ||
	    ranges_overlap(&device->blocks, segment->start, segment->end))
		return false;
	ranges_remove(&device->segments, segment);
	return true;
}

/* The mapped range goes; what is left of its segment on either side stays. */
static bool undo_map(struct fitting *f, struct device *device, const struct gm_row *row)
{
	uint64_t end = row->address + (uint64_t)row->size;
	struct range *found = row->size > 0 ? around(&device->segments, row->address, end) : NULL;
	struct range segment;

	if (!found || ranges_overlap(&device->blocks, row->address, end))
		return false;
	segment = *found;
	ranges_remove(&device->segments, found);
	add(f, &device->segments, segment.start, (int64_t)(row->address - segment.start), segment.what);
	add(f, &device->segments, end, (int64_t)(segment.end - end), segment.what);
	return true;
}

/* The unmapped range comes back, one with its neighbours of the same stream. */
static bool undo_unmap(struct fitting *f, struct device *device, const struct gm_row *row)
{
	uint64_t start = row->address, end = start + (uint64_t)row->size;
	struct range *left, *right;

	if (row->size <= 0 || end <= start || ranges_overlap(&device->segments, start, end))
		return false;
	right = exactly(&device->segments, end);
	if (right && right->what == row->stream) {
		end = right->end;
		ranges_remove(&device->segments, right);
	}
	left = ranges_at(&device->segments, start - 1);
	if (left && left->end == start && left->what == row->stream) {
		start = left->start;
		ranges_remove(&device->segments, left);
	}
	return add(f, &device->segments, start, (int64_t)(end - start), row->stream);
}

static bool undo(struct fitting *f, const struct gm_row *row)
{
	struct device *device = &f->devices[row->device];
	const char *action = row->action;

	if (!strcmp(action, "alloc"))
		return undo_alloc(device, row);
	if (!strcmp(action, "free_completed"))
		return row->size > 0 &&
		       around(&device->segments, row->address, row->address + (uint64_t)row->size) &&
		       add(f, &device->blocks, row->address, row->size, PENDING);
	if (!strcmp(action, "free_requested"))
		return undo_free_requested(device, row);
	if (!strcmp(action, "segment_alloc"))
		return undo_segment_alloc(device, row);
	if (!strcmp(action, "segment_free"))
		return row->size > 0 && add(f, &device->segments, row->address, row->size, row->stream);
	if (!strcmp(action, "segment_map"))
		return undo_map(f, device, row);
	if (!strcmp(action, "segment_unmap"))
		return undo_unmap(f, device, row);
	return !strcmp(action, "oom") || !strcmp(action, "snapshot");
}

/* The viewer pairs segment_alloc with segment_free, and where it draws segments it looks at no mapping.
 * PyTorch maps parts of segments (its memory is of kind "device"), and so does our cache, which serves default pools
 * (kind "pool"), too; where we record another mapping, a whole segment goes from one place to another, or gets another
 * size. */
static void pair_segments(struct gm_row *row)
{
	if (!strcmp(row->kind, "device") || !strcmp(row->kind, "pool"))
		return;
	if (!strcmp(row->action, "segment_map"))
		row->action = "segment_alloc";
	else if (!strcmp(row->action, "segment_unmap"))
		row->action = "segment_free";
}

static void undo_all(struct fitting *f)
{
	struct gm_torch_fit *fit = f->fit;

	for (size_t i = f->snapshot->row_count; i-- && !f->failed;) {
		struct gm_row *row = &f->snapshot->rows[i];

		if (row->device < 0 || row->device >= DEVICES || !strcmp(row->action, "annotate"))
			continue;
		if (is_others(row->kind)) {
			fit->others_left_out++;
			continue;
		}
		pair_segments(row);
		fit->keep[i] = undo(f, row);
		fit->left_out += !fit->keep[i];
		if (fit->keep[i] && (size_t)row->device >= fit->device_count)
			fit->device_count = (size_t)row->device + 1;
	}
}

int gm_torch_make_fit(struct gm_torch_fit *fit, struct gm_snapshot *snapshot)
{
	struct fitting f = { .snapshot = snapshot, .fit = fit };

	memset(fit, 0, sizeof(*fit));
	fit->keep = calloc(snapshot->row_count + 1, sizeof(*fit->keep));
	fit->keep_segment = calloc(snapshot->segment_count + 1, sizeof(*fit->keep_segment));
	fit->segment_address = calloc(snapshot->segment_count + 1, sizeof(*fit->segment_address));
	f.devices = calloc(DEVICES, sizeof(*f.devices));
	f.failed = !fit->keep || !fit->keep_segment || !fit->segment_address || !f.devices;
	if (!f.failed) {
		fit->device_count = snapshot->trace_count < DEVICES ? snapshot->trace_count : DEVICES;
		place_handles(&f);
		add_segments(&f);
		undo_all(&f);
	}
	for (size_t d = 0; f.devices && d < DEVICES; d++) {
		tdestroy(f.devices[d].segments.root, free);
		tdestroy(f.devices[d].blocks.root, free);
	}
	free(f.devices);
	gm_table_free(&f.sizes);
	gm_table_free(&f.places);
	if (f.failed)
		gm_torch_unfit(fit);
	return f.failed ? -ENOMEM : 0;
}

void gm_torch_unfit(struct gm_torch_fit *fit)
{
	free(fit->keep);
	free(fit->keep_segment);
	free(fit->segment_address);
	memset(fit, 0, sizeof(*fit));
}
