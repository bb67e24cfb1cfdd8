/*
 * snapshot_pools.c - the section "pools": each pool of the program with its own statistics, holders, segments
 * and trace.
 *
 * The tables list a pool's pieces and its blocks side by side, as the pool reported them. Here the blocks are put
 * into the pieces, and the gaps between blocks become idle blocks, so that blocks tile a segment as they do
 * elsewhere. A block that lies in no piece, or on top of another block, becomes a segment of its own.
 *
 * Thread context: as snapshot.h.
 */
#include "recorder/snapshot/snapshot_internal.h"

/* One domain's records among all sorted ones: their end, and the next piece and the next block to handle. */
struct slice { const struct gm_snap *snap; size_t to, piece, block; };

static const struct gm_segment *record_at(const struct slice *slice, size_t i)
{
	return gm_copy_segment(slice->snap->copy, slice->snap->copy->segments[i]);
}

/* Return the index of the next piece (@held) or block from @i on; @slice->to: there is none. */
static size_t next_of(const struct slice *slice, size_t i, bool held)
{
	while (i < slice->to && !(record_at(slice, i)->flags & GM_SEGMENT_HELD) == held)
		i++;
	return i;
}

static struct slice slice_of(const struct gm_snap *snap, unsigned int domain)
{
	struct slice slice = { snap, 0, 0, 0 };
	size_t count = snap->copy->segment_count, from = 0;

	slice.to = count;
	while (from < count && record_at(&slice, from)->domain < domain)
		from++;
	for (slice.to = from; slice.to < count && record_at(&(struct slice){ snap, count, 0, 0 },
	     slice.to)->domain == domain;)
		slice.to++;
	slice.piece = next_of(&slice, from, true);
	slice.block = next_of(&slice, from, false);
	return slice;
}

/* A segment as it is shown: one piece, or several adjacent ones in expandable memory, with the blocks from @first to
 * before @last that begin in it; or a single block (@piece NULL). */
struct shown {
	const struct gm_segment *piece;
	uint64_t address, end;
	size_t first, last;
};

static bool next_shown(struct slice *slice, struct shown *ret)
{
	const struct gm_segment *block = slice->block < slice->to ? record_at(slice, slice->block) : NULL;
	const struct gm_segment *piece = slice->piece < slice->to ? record_at(slice, slice->piece) : NULL;

	if (!block && !piece)
		return false;
	ret->first = slice->block;
	ret->piece = piece;
	if (!piece || (block && block->address < piece->address)) {
		ret->piece = NULL;
		ret->address = block->address;
		ret->end = block->address + block->size;
		slice->block = ret->last = next_of(slice, slice->block + 1, false);
		return true;
	}
	ret->address = piece->address;
	ret->end = piece->address + piece->size;
	do {
		slice->piece = next_of(slice, slice->piece + 1, true);
		piece = slice->piece < slice->to ? record_at(slice, slice->piece) : NULL;
		if (!piece || piece->address > ret->end || (piece->address == ret->end &&
		    !(piece->flags & ret->piece->flags & GM_SEGMENT_EXPANDABLE)))
			break;
		if (piece->address + piece->size > ret->end)
			ret->end = piece->address + piece->size;
	} while (piece);
	while (slice->block < slice->to && record_at(slice, slice->block)->address < ret->end)
		slice->block = next_of(slice, slice->block + 1, false);
	ret->last = slice->block;
	return true;
}

/* Return the block of record @i, which is no piece. */
static const struct gm_block *block_at(const struct slice *slice, size_t i)
{
	return gm_copy_block(slice->snap->copy, record_at(slice, i)->first_block);
}

/* Step through the blocks of @shown in order: return the next block and the gap before it; at the end NULL and the
 * last gap. Blocks that lie on another block, or beyond the end, are skipped. */
struct step { size_t i; uint64_t at; };
static const struct gm_block *next_block(const struct slice *slice, const struct shown *shown,
					 struct step *step, uint64_t *ret_gap)
{
	for (; step->i < shown->last; step->i = next_of(slice, step->i + 1, false)) {
		const struct gm_block *block = block_at(slice, step->i);

		if (!block || block->address < step->at || block->address + block->size > shown->end)
			continue;
		*ret_gap = block->address - step->at;
		step->at = block->address + block->size;
		step->i = next_of(slice, step->i + 1, false);
		return block;
	}
	*ret_gap = shown->end - step->at;
	step->at = shown->end;
	return NULL;
}

uint64_t gm_snap_pool_largest_idle(const struct gm_snap *snap, unsigned int domain)
{
	struct slice slice = slice_of(snap, domain);
	uint64_t largest = 0, gap;
	struct shown shown;

	while (next_shown(&slice, &shown)) {
		struct step step = { shown.first, shown.address };
		const struct gm_block *block;

		do {
			block = next_block(&slice, &shown, &step, &gap);
			if (gap > largest)
				largest = gap;
		} while (block);
	}
	return largest;
}

static void put_gap(struct gm_snap *snap, uint64_t end, uint64_t gap, uint8_t kind)
{
	const struct gm_block idle = {
		.address = end - gap, .size = gap, .kind = kind, .state = GM_BLOCK_INACTIVE,
	};

	if (gap)
		gm_snap_block(snap, &idle);
}

static void put_blocks(struct gm_snap *snap, const struct slice *slice, const struct shown *shown,
		       uint8_t kind)
{
	struct step step = { shown->first, shown->address };
	const struct gm_block *block;
	uint64_t gap;

	gm_jsonw_key_array(snap->w, "blocks");
	while ((block = next_block(slice, shown, &step, &gap))) {
		put_gap(snap, block->address, gap, kind);
		gm_snap_block(snap, block);
	}
	put_gap(snap, shown->end, gap, kind);
	gm_jsonw_end(snap->w);
}

static uint64_t handed_out(const struct slice *slice, const struct shown *shown)
{
	struct step step = { shown->first, shown->address };
	const struct gm_block *block;
	uint64_t gap, sum = 0;

	while ((block = next_block(slice, shown, &step, &gap)))
		sum += block->size;
	return sum;
}

static void put_shown(struct gm_snap *snap, const struct slice *slice, const struct shown *shown)
{
	const struct gm_segment *record = shown->piece ? shown->piece : record_at(slice, shown->first);
	struct gm_segment_sums sums;

	sums.allocated = sums.active = sums.requested = handed_out(slice, shown);
	gm_jsonw_object(snap->w);
	gm_snap_segment_members(snap, record, shown->end - shown->address, &sums);
	if (!shown->piece)
		gm_jsonw_key_bool(snap->w, "outside", true);
	put_blocks(snap, slice, shown, record->kind);
	gm_jsonw_end(snap->w);
}

/* Write the blocks that next_block skipped, each as a segment of its own. */
static void put_others(struct gm_snap *snap, const struct slice *slice, const struct shown *shown)
{
	struct step step = { shown->first, shown->address };
	uint64_t gap;

	for (size_t i = shown->first; i < shown->last; i = next_of(slice, i + 1, false)) {
		const struct gm_block *block = block_at(slice, i);
		struct step here = step;

		if (next_block(slice, shown, &here, &gap) == block) {
			step = here;
		} else if (block) {
			struct shown alone = {
				.address = block->address, .end = block->address + block->size,
				.first = i, .last = next_of(slice, i + 1, false),
			};

			put_shown(snap, slice, &alone);
		}
	}
}

static void put_segments(struct gm_snap *snap, unsigned int domain)
{
	struct slice slice = slice_of(snap, domain);
	struct shown shown;

	gm_jsonw_key_array(snap->w, "segments");
	while (next_shown(&slice, &shown)) {
		put_shown(snap, &slice, &shown);
		put_others(snap, &slice, &shown);
	}
	gm_jsonw_end(snap->w);
}

static void put_pool(struct gm_snap *snap, unsigned int d, const struct gm_domain *domain)
{
	static const char *const sources[GM_POOL_SOURCES] = { "", "libc10", "nvtx", "api" };
	const struct gm_pool *pool = &domain->pool;
	bool says = pool->source == GM_POOL_LIBC10;
	struct gm_jsonw *w = snap->w;

	gm_jsonw_object(w);
	gm_jsonw_key_u64(w, "number", d - GM_DOMAIN_POOLS + 1);
	gm_snap_key_string(snap, "name", pool->name);
	gm_jsonw_key_text(w, "source", sources[pool->source]);
	gm_snap_key_device(snap, d);
	gm_snap_stats(snap, &domain->stats, gm_stats_list_pool);
	gm_jsonw_key_u64_if(w, "told_allocated_bytes", says, pool->told_allocated_bytes);
	gm_jsonw_key_u64_if(w, "told_reserved_bytes", says, pool->told_reserved_bytes);
	gm_jsonw_key_u64(w, "outside", pool->outside);
	gm_jsonw_key_u64(w, "unknown_frees", pool->unknown_frees);
	gm_jsonw_key_u64(w, "double_allocations", pool->double_allocations);
	gm_jsonw_key_u64(w, "lost", pool->lost);
	gm_snap_usage(snap, "by_module", d, true);
	gm_snap_usage(snap, "by_kind", d, false);
	gm_snap_peak(snap, d);
	put_segments(snap, d);
	gm_jsonw_key(w, "trace");
	gm_snap_trace(snap, d);
	gm_jsonw_end(w);
}

void gm_snap_pools(struct gm_snap *snap)
{
	gm_jsonw_key_array(snap->w, "pools");
	for (unsigned int d = GM_DOMAIN_POOLS; d < GM_DOMAINS; d++) {
		const struct gm_domain *domain = gm_copy_domain(snap->copy, d);

		if (domain && domain->pool.source && domain->pool.source < GM_POOL_SOURCES)
			put_pool(snap, d, domain);
	}
	gm_jsonw_end(snap->w);
}
