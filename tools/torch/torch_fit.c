/*
 * torch_fit.c - which segments and events PyTorch's viewer can follow: see torch.h. One thread.
 *
 * The viewer (and `_memory_viz.py segment_plot`) starts from the blocks that are live at the end and undoes the events,
 * newest first. It fails on a block outside every segment, on an event of a block that it does not have, and on a
 * mapping outside its segment. Such events come from a program that allocated before the history begins, from lost
 * events, and from calls in flight. This file undoes the events as the viewer does, and leaves out those that fail.
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

/* ---- disjoint ranges of addresses, in a tree of libc's (search.h) ------------------------------- */

struct range { uint64_t start, end; int64_t what; };	/* end: the first byte after the range */
struct ranges { void *root; };

/* Ranges that overlap compare as equal, so the tree never holds two of these. */
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

/* Return a range that overlaps [@start, @end), or NULL. The caller may change its .what only. */
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
	struct ranges segments;	/* range.what: the stream */
	struct ranges blocks;
};

struct fitting {
	struct gm_snapshot *snapshot;
	struct gm_torch_fit *fit;
	struct device *devices;		/* DEVICES of them */
	struct gm_table sizes, places;	/* (device, handle) -> the most bytes; -> address */
	uint64_t next_place;
	bool failed;			/* out of memory */
};

/* Add a range. Return false if it is empty or overlaps another, or without memory (f->failed). */
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

/* Return the range that begins at @start, or NULL. */
static struct range *exactly(const struct ranges *in, uint64_t start)
{
	struct range *found = ranges_at(in, start);

	return found && found->start == start ? found : NULL;
}

/* Return the range that contains [@start, @end), or NULL. */
static struct range *around(const struct ranges *in, uint64_t start, uint64_t end)
{
	struct range *found = ranges_at(in, start);

	return found && end > start && found->end >= end ? found : NULL;
}

/* ---- handles ---------------------------------------------------------------------------------- */

/*
 * Arrays, graphs and unmapped VMM memory have a handle in place of an address. Handles are close together, whatever the
 * size of their memory: as addresses they would overlap. So each gets an address that no memory has. An address of
 * mapped VMM memory is a multiple of 64 KiB, because VMM maps whole pages.
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

/* Return the address that replaces a handle. Return @address if it is no handle, or if no addresses are left. */
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

/* ---- segments and blocks at the end ----------------------------------------------------------- */

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

/* ---- events, undone from the newest on -------------------------------------------------------- */

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

/* Remove the mapped range; the rest of its segment on either side stays. */
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

/* Put back the unmapped range, joined with adjacent segments of the same stream. */
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

/* Turn a mapping into a segment if it is not a part of one. The viewer pairs segment_alloc with segment_free, and
 * ignores mappings where it draws segments. PyTorch (kind "device") and our cache (also kind "pool", for default pools)
 * map parts of segments. Every other recorded mapping moves or resizes a whole segment. */
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
			fit->ipc_left_out++;
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
