/*
 * snapshot_segments.c - the sections "segments" and "host_segments": what is live, by address, each
 * segment with the blocks that tile it. PyTorch's names and meaning.
 * Contexts as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

/* As PyTorch: active is allocated or pending; requested counts active blocks. */
static struct gm_segment_sums add_up(const struct gm_copy *copy, uint32_t segment)
{
	struct gm_block_walk walk = { 0 };
	struct gm_segment_sums sums = { 0 };
	uint32_t id = GM_NONE;

	while ((id = gm_copy_next_block(copy, segment, id, &walk)) != GM_NONE) {
		const struct gm_block *block = gm_copy_block(copy, id);

		if (block->state == GM_BLOCK_ACTIVE || block->state == GM_BLOCK_FREEING)
			sums.allocated += block->size;
		if (block->state != GM_BLOCK_INACTIVE) {
			sums.active += block->size;
			sums.requested += block->requested;
		}
	}
	return sums;
}

void gm_snap_block(struct gm_snap *snap, const struct gm_block *block)
{
	/* Of a free one the record still describes its last owner: that is not shown. */
	bool free = block->state == GM_BLOCK_INACTIVE;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	gm_jsonw_key_u64(w, "address", block->address);
	gm_jsonw_key_u64(w, "size", block->size);
	gm_jsonw_key_u64(w, "requested_size", free ? 0 : block->requested);
	gm_jsonw_key_text(w, "state", gm_block_state_name(block->state));
	gm_jsonw_key_u64(w, "stack", gm_snap_stack(snap, free ? GM_NONE : block->stack));
	gm_snap_key_time(snap, "time_us", free ? 0 : block->tsc);
	gm_jsonw_key_u64(w, "thread", free ? 0 : block->thread);
	gm_jsonw_key_text(w, "kind", gm_kind_name(block->kind));
	gm_jsonw_key_u64(w, "module", gm_snap_module(snap, free ? 0 : block->module));
	if (block->state == GM_BLOCK_FREEING)
		gm_jsonw_key_bool(w, "freeing", true);
	if (!free && block->flags & GM_BLOCK_UNTRACED)
		gm_jsonw_key_bool(w, "untraced", true);
	if (!free && block->domain >= GM_DOMAIN_POOLS && block->name)
		gm_snap_key_string(snap, "name", block->name);
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

static void put_segment(struct gm_snap *snap, uint32_t id)
{
	const struct gm_segment *segment = gm_copy_segment(snap->copy, id);
	struct gm_segment_sums sums = add_up(snap->copy, id);
	struct gm_block_walk walk = { 0 };
	struct gm_jsonw *w = snap->w;
	uint32_t block = GM_NONE;

	gm_jsonw_object(w);
	gm_snap_segment_members(snap, segment, segment->size, &sums);
	gm_jsonw_key_array(w, "blocks");
	while ((block = gm_copy_next_block(snap->copy, id, block, &walk)) != GM_NONE)
		gm_snap_block(snap, gm_copy_block(snap->copy, block));
	gm_jsonw_end(w);
	gm_jsonw_end(w);
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
