/*
 * snapshot_write.c - a snapshot as JSON: see writer.h. One thread.
 */
#include "tools/write/writer.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/* ---- segments --------------------------------------------------------------------------------- */

/* Write the member "time_us"; 0, as an idle block has, becomes null. */
static void put_time(struct gm_writer *w, int64_t time_us)
{
	gm_writer_string(w, "time_us");
	if (time_us)
		gm_writer_int(w, time_us);
	else
		gm_writer_null(w);
}

static void put_block(struct gm_writer *w, const struct gm_snapshot_block *block)
{
	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_put_int(w, "address", (int64_t)block->address);
	gm_writer_put_int(w, "size", block->size);
	gm_writer_put_int(w, "requested_size", block->requested_size);
	gm_writer_put_string(w, "state", block->state);
	gm_writer_put_int(w, "stack", block->stack);
	put_time(w, block->time_us);
	gm_writer_put_int(w, "thread", block->thread);
	gm_writer_put_string(w, "kind", block->kind);
	gm_writer_put_int(w, "module", block->module);
	if (block->freeing)
		gm_writer_put_bool(w, "freeing", true);
	if (block->untraced)
		gm_writer_put_bool(w, "untraced", true);
	if (*block->name)
		gm_writer_put_string(w, "name", block->name);
	gm_writer_end(w);
}

static void put_segment(struct gm_writer *w, const struct gm_snapshot_segment *segment)
{
	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_string(w, "device");
	if (segment->device == GM_ROW_HOST)
		gm_writer_null(w);
	else
		gm_writer_int(w, segment->device);
	gm_writer_put_int(w, "address", (int64_t)segment->address);
	gm_writer_put_int(w, "total_size", segment->total_size);
	gm_writer_put_int(w, "allocated_size", segment->allocated_size);
	gm_writer_put_int(w, "active_size", segment->active_size);
	gm_writer_put_int(w, "requested_size", segment->requested_size);
	gm_writer_put_int(w, "stream", segment->stream);
	gm_writer_put_string(w, "segment_type", segment->type);
	gm_writer_put_begin(w, "segment_pool_id", GM_WRITER_LIST);
	gm_writer_int(w, segment->pool[0]);
	gm_writer_int(w, segment->pool[1]);
	gm_writer_end(w);
	gm_writer_put_bool(w, "is_expandable", segment->expandable);
	gm_writer_put_string(w, "kind", segment->kind);
	gm_writer_put_int(w, "module", segment->module);
	gm_writer_put_int(w, "stack", segment->stack);
	put_time(w, segment->time_us);
	if (segment->handle)
		gm_writer_put_int(w, "handle", segment->handle);
	if (segment->registered)
		gm_writer_put_bool(w, "registered", true);
	if (segment->unmapped)
		gm_writer_put_bool(w, "unmapped", true);
	if (segment->outside)
		gm_writer_put_bool(w, "outside", true);
	gm_writer_put_begin(w, "blocks", GM_WRITER_LIST);
	for (size_t i = 0; i < segment->block_count; i++)
		put_block(w, &segment->blocks[i]);
	gm_writer_end(w);
	gm_writer_end(w);
}

static void put_segments(struct gm_writer *w, const struct gm_snapshot *snapshot, const char *name,
			 bool host)
{
	gm_writer_put_begin(w, name, GM_WRITER_LIST);
	for (size_t i = 0; i < snapshot->segment_count; i++)
		if (host == (snapshot->segments[i].device == GM_ROW_HOST))
			put_segment(w, &snapshot->segments[i]);
	gm_writer_end(w);
}

/* ---- traces ----------------------------------------------------------------------------------- */

/* One trace: the @count items of @rows, the snapshot's or a pool's, whose indices are @places. */
struct trace { const struct gm_row *rows; const size_t *places; size_t count; int64_t dropped; };

/* Write the rows' members at @offset, numbers or texts, as the list @name. */
static void put_column(struct gm_writer *w, const struct trace *trace, const char *name, size_t offset, bool text)
{
	gm_writer_put_begin(w, name, GM_WRITER_LIST);
	for (size_t i = 0; i < trace->count; i++) {
		const void *at = (const char *)&trace->rows[trace->places[i]] + offset;

		if (text)
			gm_writer_string(w, *(const char *const *)at);
		else
			gm_writer_int(w, *(const int64_t *)at);
	}
	gm_writer_end(w);
}

static void put_trace(struct gm_writer *w, const struct trace *trace)
{
	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_put_int(w, "dropped", trace->dropped);
	put_column(w, trace, "action", offsetof(struct gm_row, action), true);
	put_column(w, trace, "addr", offsetof(struct gm_row, address), false);
	put_column(w, trace, "size", offsetof(struct gm_row, size), false);
	put_column(w, trace, "stream", offsetof(struct gm_row, stream), false);
	put_column(w, trace, "time_us", offsetof(struct gm_row, time_us), false);
	put_column(w, trace, "stack", offsetof(struct gm_row, stack), false);
	put_column(w, trace, "thread", offsetof(struct gm_row, thread), false);
	put_column(w, trace, "kind", offsetof(struct gm_row, kind), true);
	put_column(w, trace, "module", offsetof(struct gm_row, module), false);
	gm_writer_end(w);
}

/* Return the trace of @row: 0 for the host, d + 1 for device d. Rows that belong to no trace get a number above these;
 * they are not written. */
static size_t trace_of(const struct gm_snapshot *snapshot, const struct gm_row *row)
{
	bool known = row->device >= GM_ROW_HOST && row->device < (int64_t)snapshot->trace_count;

	return known ? (size_t)(row->device + 1) : snapshot->trace_count + 1;
}

static int put_traces(struct gm_writer *w, const struct gm_snapshot *snapshot)
{
	size_t *starts = calloc(snapshot->trace_count + 4, sizeof(*starts));
	size_t *places = calloc(snapshot->row_count + 1, sizeof(*places));
	int r = starts && places ? 0 : -ENOMEM;

	/* Sort the rows by trace. After the sums, starts[t + 1] is where trace t begins in @places; after the last loop
	 * it is where trace t ends. */
	for (size_t i = 0; !r && i < snapshot->row_count; i++)
		starts[trace_of(snapshot, &snapshot->rows[i]) + 2]++;
	for (size_t t = 3; !r && t < snapshot->trace_count + 4; t++)
		starts[t] += starts[t - 1];
	for (size_t i = 0; !r && i < snapshot->row_count; i++)
		places[starts[trace_of(snapshot, &snapshot->rows[i]) + 1]++] = i;
	if (!r) {
		gm_writer_put_begin(w, "device_traces", GM_WRITER_LIST);
		for (size_t d = 0; d < snapshot->trace_count; d++)
			put_trace(w, &(struct trace){ snapshot->rows, places + starts[d + 1],
						      starts[d + 2] - starts[d + 1], snapshot->dropped[d] });
		gm_writer_end(w);
		gm_writer_string(w, "host_trace");
		put_trace(w, &(struct trace){ snapshot->rows, places, starts[1], snapshot->host_dropped });
	}
	free(starts);
	free(places);
	return r;
}

/* ---- pools ------------------------------------------------------------------------------------ */

static int put_pool(struct gm_writer *w, const struct gm_snapshot_pool *pool)
{
	size_t *places = calloc(pool->row_count + 1, sizeof(*places));

	for (size_t i = 0; places && i < pool->row_count; i++)
		places[i] = i;
	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_put_members(w, pool->root);
	gm_writer_put_begin(w, "segments", GM_WRITER_LIST);
	for (size_t i = 0; i < pool->segment_count; i++)
		put_segment(w, &pool->segments[i]);
	gm_writer_end(w);
	gm_writer_string(w, "trace");
	put_trace(w, &(struct trace){ pool->rows, places, places ? pool->row_count : 0, pool->dropped });
	gm_writer_end(w);
	free(places);
	return places ? 0 : -ENOMEM;
}

static int put_pools(struct gm_writer *w, const struct gm_snapshot *snapshot)
{
	int r = 0;

	gm_writer_put_begin(w, "pools", GM_WRITER_LIST);
	for (size_t i = 0; !r && i < snapshot->pool_count; i++)
		r = put_pool(w, &snapshot->pools[i]);
	gm_writer_end(w);
	return r;
}

/* ---- stacks, and the whole -------------------------------------------------------------------- */

static void put_stacks(struct gm_writer *w, const struct gm_snapshot *snapshot)
{
	gm_writer_put_begin(w, "stacks", GM_WRITER_LIST);
	for (size_t s = 0; s < snapshot->stack_count; s++) {
		gm_writer_begin(w, GM_WRITER_LIST);
		for (size_t i = snapshot->starts[s]; i < snapshot->starts[s + 1]; i++)
			gm_writer_int(w, snapshot->ids[i]);
		gm_writer_end(w);
	}
	gm_writer_end(w);
}

static void put_frames(struct gm_writer *w, const struct gm_snapshot *snapshot)
{
	gm_writer_put_begin(w, "frames", GM_WRITER_LIST);
	for (size_t i = 0; i < snapshot->frame_count; i++) {
		const struct gm_snapshot_frame *frame = &snapshot->frames[i];

		gm_writer_begin(w, GM_WRITER_DICT);
		gm_writer_put_string(w, "filename", frame->file);
		gm_writer_put_int(w, "line", frame->line);
		gm_writer_put_string(w, "name", frame->name);
		gm_writer_put_int(w, "module", frame->module);
		gm_writer_put_int(w, "offset", frame->offset);
		gm_writer_put_bool(w, "python", frame->python);
		if (frame->symbol)
			gm_writer_put_string(w, "symbol", frame->symbol);
		if (frame->inlined)
			gm_writer_put_bool(w, "inlined", true);
		gm_writer_end(w);
	}
	gm_writer_end(w);
}

int gm_snapshot_json(const struct gm_snapshot *snapshot, FILE *out)
{
	struct gm_writer *w = gm_writer_open(out, false);
	int r, end;

	if (!w)
		return -ENOMEM;
	gm_writer_begin(w, GM_WRITER_DICT);
	gm_writer_put_members(w, snapshot->root);
	put_segments(w, snapshot, "segments", false);
	put_segments(w, snapshot, "host_segments", true);
	r = put_traces(w, snapshot);
	if (!r)
		r = put_pools(w, snapshot);
	put_stacks(w, snapshot);
	put_frames(w, snapshot);
	gm_writer_end(w);
	end = gm_writer_close(w);
	return r ? r : end;
}
