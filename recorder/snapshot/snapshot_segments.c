/*
 * snapshot_segments.c - the sections "segments" and "host_segments": live memory by address, each segment with
 * the blocks that tile it. Names and meaning are PyTorch's, so each stretch of a pages heap without a gap is
 * shown as a segment. Contexts as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

/* A segment as it is shown: a whole segment, or a run of adjacent blocks that have memory. */
struct piece {
	uint64_t address, size;
	struct gm_segment_sums sums;
	size_t blocks;
};

/* A walk over the blocks of a segment. */
struct cursor { uint32_t segment, id; struct gm_block_walk walk; };

static const struct gm_block *next_block(const struct gm_copy *copy, struct cursor *at)
{
	at->id = gm_copy_next_block(copy, at->segment, at->id, &at->walk);
	return at->id ? gm_copy_block(copy, at->id) : NULL;
}

/* As next_block, but skip blocks without memory. @ret_gap (may be NULL): whether any was skipped. */
static const struct gm_block *next_shown(const struct gm_copy *copy, struct cursor *at, bool *ret_gap)
{
	const struct gm_block *block = next_block(copy, at);
	bool gap = block && block->state == GM_BLOCK_UNMAPPED;

	while (block && block->state == GM_BLOCK_UNMAPPED)
		block = next_block(copy, at);
	if (ret_gap)
		*ret_gap = gap;
	return block;
}

/* As in PyTorch: active blocks are allocated or pending; requested counts active blocks. */
static void add(struct piece *piece, const struct gm_block *block)
{
	struct gm_segment_sums *sums = &piece->sums;

	piece->size += block->size;
	piece->blocks++;
	if (block->state == GM_BLOCK_ACTIVE || block->state == GM_BLOCK_FREEING)
		sums->allocated += block->size;
	if (block->state != GM_BLOCK_INACTIVE) {
		sums->active += block->size;
		sums->requested += block->requested;
	}
}

void gm_snap_block(struct gm_snap *snap, const struct gm_block *block)
{
	/* The record of a free block still describes its last owner, which is not shown. */
	bool free = block->state == GM_BLOCK_INACTIVE;
	uint32_t name = !free && block->domain >= GM_DOMAIN_POOLS ? block->name : GM_NONE;
	const struct gm_snapshot_block record = {
		.address = block->address, .size = (int64_t)block->size,
		.requested_size = free ? 0 : (int64_t)block->requested,
		.state = gm_block_state_name(block->state), .stack = gm_snap_stack(snap, free ? GM_NONE : block->stack),
		.time_us = free || !block->tsc ? 0 : (int64_t)gm_clock_wall_us(&snap->wall, block->tsc),
		.thread = free ? 0 : block->thread, .kind = gm_kind_name(block->kind),
		.module = gm_snap_module(snap, free ? 0 : block->module), .freeing = block->state == GM_BLOCK_FREEING,
		.untraced = !free && block->flags & GM_BLOCK_UNTRACED,
		.name = name ? gm_copy_string(snap->copy, name, NULL) : "",
	};
	struct gm_jsonw *w = snap->w;

	if (gm_jsonw_record(w, &record, sizeof(record)))
		return;
	gm_jsonw_object(w);
	gm_jsonw_key_u64(w, "address", record.address);
	gm_jsonw_key_i64(w, "size", record.size);
	gm_jsonw_key_i64(w, "requested_size", record.requested_size);
	gm_jsonw_key_text(w, "state", record.state);
	gm_jsonw_key_i64(w, "stack", record.stack);
	gm_jsonw_key_i64_if(w, "time_us", !free && block->tsc, record.time_us);
	gm_jsonw_key_i64(w, "thread", record.thread);
	gm_jsonw_key_text(w, "kind", record.kind);
	gm_jsonw_key_i64(w, "module", record.module);
	if (record.freeing)
		gm_jsonw_key_bool(w, "freeing", true);
	if (record.untraced)
		gm_jsonw_key_bool(w, "untraced", true);
	if (name)
		gm_snap_key_string(snap, "name", name);
	gm_jsonw_end(w);
}

void gm_snap_segment_members(struct gm_snap *snap, const struct gm_segment *segment, uint64_t size,
			     const struct gm_segment_sums *sums)
{
	struct gm_jsonw *w = snap->w;

	gm_snap_key_device(snap, segment->domain);
	gm_jsonw_key_u64(w, "address", segment->address);
	gm_jsonw_key_u64(w, "total_size", size);
	gm_jsonw_key_u64(w, "allocated_size", sums->allocated);
	gm_jsonw_key_u64(w, "active_size", sums->active);
	gm_jsonw_key_u64(w, "requested_size", sums->requested);
	gm_jsonw_key_u64(w, "stream", gm_stream_shown(segment->stream));
	gm_jsonw_key_text(w, "segment_type",
			  segment->flags & GM_SEGMENT_SMALL ? "small" : "large");
	gm_jsonw_key_array(w, "segment_pool_id");
	gm_jsonw_u64(w, segment->pool_lo);
	gm_jsonw_u64(w, segment->pool_hi);
	gm_jsonw_end(w);
	gm_jsonw_key_bool(w, "is_expandable", segment->flags & GM_SEGMENT_EXPANDABLE);
	gm_jsonw_key_text(w, "kind", gm_kind_name(segment->kind));
	gm_jsonw_key_u64(w, "module", gm_snap_module(snap, segment->module));
	gm_jsonw_key_u64(w, "stack", gm_snap_stack(snap, segment->stack));
	gm_snap_key_time(snap, "time_us", segment->tsc);
	if (segment->handle)
		gm_jsonw_key_u64(w, "handle", segment->handle);
	if (segment->flags & GM_SEGMENT_REGISTERED)
		gm_jsonw_key_bool(w, "registered", true);
	if (segment->flags & GM_SEGMENT_UNMAPPED)
		gm_jsonw_key_bool(w, "unmapped", true);
}

/* Write @piece of @segment. @shown stands before the first block of the piece. */
static void put_piece(struct gm_snap *snap, const struct gm_segment *segment, const struct piece *piece,
		      struct cursor *shown)
{
	struct gm_segment like = *segment;
	struct gm_jsonw *w = snap->w;

	like.address = piece->address;
	gm_jsonw_object(w);
	gm_snap_segment_members(snap, &like, piece->size, &piece->sums);
	gm_jsonw_key_array(w, "blocks");
	for (size_t i = 0; i < piece->blocks; i++)
		gm_snap_block(snap, next_shown(snap->copy, shown, NULL));
	gm_jsonw_end(w);
	gm_jsonw_end(w);
}

static void put_segment(struct gm_snap *snap, uint32_t id)
{
	const struct gm_segment *segment = gm_copy_segment(snap->copy, id);
	bool in_pages = segment->heap && segment->flags & GM_SEGMENT_EXPANDABLE, gap;
	struct cursor at = { .segment = id }, shown = { .segment = id };
	struct piece piece = { .address = segment->address };
	const struct gm_block *block;

	while ((block = next_shown(snap->copy, &at, &gap))) {
		if (gap && piece.blocks) {
			put_piece(snap, segment, &piece, &shown);
			piece = (struct piece){ .blocks = 0 };
		}
		if (!piece.blocks && in_pages)
			piece.address = block->address;
		add(&piece, block);
	}
	if (!in_pages)
		piece.size = segment->size;
	if (piece.blocks || !in_pages)
		put_piece(snap, segment, &piece, &shown);
}

static void put_segments(struct gm_snap *snap, const char *key, bool host)
{
	const struct gm_copy *copy = snap->copy;

	gm_jsonw_key_array(snap->w, key);
	for (size_t i = 0; i < copy->segment_count; i++)
		if (gm_copy_segment(copy, copy->segments[i])->domain < GM_DOMAIN_POOLS &&
		    host == (gm_copy_segment(copy, copy->segments[i])->domain == GM_DOMAIN_HOST))
			put_segment(snap, copy->segments[i]);
	gm_jsonw_end(snap->w);
}

void gm_snap_segments(struct gm_snap *snap)
{
	put_segments(snap, "segments", false);
	put_segments(snap, "host_segments", true);
}
