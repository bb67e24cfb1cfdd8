/*
 * image_settle.c - a copy made consistent: half-done changes are taken back, the live segments put
 * in order, and frees recognised that the driver had carried out but nobody had yet recorded.
 *
 * Works on a private copy that it may change; every offset and id is checked before it is followed
 * and every loop is bounded by the size of a table.
 * Thread context: one thread an image.
 */
#include "recorder/image_internal.h"

#include <errno.h>
#include <string.h>

/* May an undo entry of @domain name the word at @offset? Only words of the tables are logged. */
static bool may_undo(const struct gm_image *image, unsigned int domain, uint64_t offset)
{
	static const enum gm_region_id tables[] = {
		GM_REGION_SEGMENTS, GM_REGION_BLOCKS, GM_REGION_USAGE
	};
	uint64_t own = (uint64_t)((const uint8_t *)gm_image_domain(image, domain) - image->base);

	if (offset % 8)
		return false;
	if (offset >= own && offset < own + offsetof(struct gm_domain, undo_op))
		return true;
	for (unsigned int i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		uint64_t first = image->header->regions[tables[i]].offset;

		if (offset >= first && offset - first < (image->copied[tables[i]] & ~UINT64_C(7)))
			return true;
	}
	return false;
}

void gm_settle_undo(struct gm_image *image)
{
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		struct gm_domain *domain = gm_image_domain(image, d);
		uint32_t count;

		if (!domain || !domain->undo_op)
			continue;
		count = domain->undo_count;
		if (count > GM_UNDO_ENTRIES) {
			count = GM_UNDO_ENTRIES;
			image->damage++;
		}
		while (count--) {
			const struct gm_undo_entry *entry = &domain->undo[count];

			if (may_undo(image, d, entry->offset))
				*(uint64_t *)(void *)(image->base + entry->offset) = entry->old;
			else
				image->damage++;
		}
		image->undone++;
	}
}

/* Kinds whose "address" is a place in the one address space of the process; the others are
 * handles, of which only an equal one can be in the way. */
static bool has_range(const struct gm_segment *segment)
{
	switch (segment->kind) {
	case GM_KIND_ARRAY:
	case GM_KIND_GRAPH:
	case GM_KIND_EXTERNAL:
		return false;
	case GM_KIND_VMM:
		return !(segment->flags & GM_SEGMENT_UNMAPPED);
	default:
		return true;
	}
}

static bool overlap(const struct gm_segment *a, const struct gm_segment *b)
{
	if (has_range(a) != has_range(b))
		return false;
	if (!has_range(a))
		return a->kind == b->kind && a->domain == b->domain && a->address == b->address;
	return a->address < b->address + b->size && b->address < a->address + a->size;
}

/* The one block of a segment whose free was under way; NULL for any other segment. */
static struct gm_block *freeing_block(const struct gm_image *image, uint32_t id)
{
	const struct gm_segment *segment = gm_image_segment(image, id);
	struct gm_block *block = gm_image_block(image, segment->first_block);

	if (!block || block->segment != id || block->state != GM_BLOCK_FREEING ||
	    block->address != segment->address || block->size != segment->size)
		return NULL;
	return block;
}

static void lower(struct gm_stat stats[GM_POOL_CLASSES], bool small, uint64_t amount)
{
	const unsigned int classes[] = { GM_POOL_ALL, small ? GM_POOL_SMALL : GM_POOL_LARGE };

	for (unsigned int i = 0; i < 2; i++) {
		struct gm_stat *stat = &stats[classes[i]];

		stat->current = (int64_t)((uint64_t)stat->current - amount);
		stat->freed = (int64_t)((uint64_t)stat->freed + amount);
	}
}

static void lower_rows(struct gm_image *image, const struct gm_segment *segment)
{
	for (size_t i = 1; i < gm_image_items(image, GM_REGION_USAGE); i++) {
		struct gm_usage *row = (struct gm_usage *)gm_image_usage(image, i);
		bool of_kind = row->kind == segment->kind;
		bool of_all = row->kind == 0xff && segment->kind != GM_KIND_IPC;

		if (row->used != 1 || row->domain != segment->domain || !(of_kind || of_all) ||
		    (row->module != segment->module && row->module != 0xffff))
			continue;
		row->current_bytes = (int64_t)((uint64_t)row->current_bytes - segment->size);
		row->freed_bytes = (int64_t)((uint64_t)row->freed_bytes + segment->size);
		row->frees = (int64_t)((uint64_t)row->frees + 1);
	}
}

/* Take a segment and its one block out of the counters, as the record of its free would have:
 * allocator/table.h says what counts where. */
static void discount(struct gm_image *image, const struct gm_segment *segment,
		     const struct gm_block *block)
{
	struct gm_domain *domain = gm_image_domain(image, segment->domain);
	bool small = segment->flags & GM_SEGMENT_SMALL;
	struct gm_stats *stats;

	if (!domain || (segment->flags & GM_SEGMENT_REGISTERED))
		return;
	domain->live_bytes[segment->kind] -= segment->size;
	lower_rows(image, segment);
	if (segment->kind == GM_KIND_IPC)
		return;
	stats = &domain->stats;
	lower(stats->stat[GM_STAT_ALLOCATION], small, 1);
	lower(stats->stat[GM_STAT_ACTIVE], small, 1);
	lower(stats->stat[GM_STAT_SEGMENT], small, 1);
	lower(stats->stat[GM_STAT_ALLOCATED_BYTES], small, block->size);
	lower(stats->stat[GM_STAT_ACTIVE_BYTES], small, block->size);
	lower(stats->stat[GM_STAT_REQUESTED_BYTES], small, block->requested);
	lower(stats->stat[GM_STAT_RESERVED_BYTES], small, segment->size);
	stats->num_device_free = (int64_t)((uint64_t)stats->num_device_free + 1);
}

/* Take a segment out of its domain's list, as far as the list is sound. */
static void unlink_segment(struct gm_image *image, uint32_t id, const struct gm_segment *segment)
{
	struct gm_domain *domain = gm_image_domain(image, segment->domain);
	struct gm_segment *prev = gm_image_segment(image, segment->prev);
	struct gm_segment *next = gm_image_segment(image, segment->next);

	if (!domain)
		return;
	if (prev && prev->next == id)
		prev->next = segment->next;
	else if (domain->first_segment == id)
		domain->first_segment = segment->next;
	if (next && next->prev == id)
		next->prev = segment->prev;
	else if (domain->last_segment == id)
		domain->last_segment = segment->prev;
}

/* The events that the free would have left, in a chunk of their own. */
static void make_events(struct gm_chunk *chunk, const struct gm_segment *segment,
			const struct gm_block *block, const struct gm_flight *flight, uint64_t tsc)
{
	static const uint8_t actions[] = {
		GM_ACTION_FREE_REQUESTED, GM_ACTION_FREE_COMPLETED, GM_ACTION_SEGMENT_FREE
	};
	struct gm_event *events = (struct gm_event *)chunk;

	chunk->generation = 1;
	chunk->state = GM_CHUNK_CLOSED;
	chunk->tid = flight ? flight->tid : 0;
	for (unsigned int i = 0; i < 3; i++) {
		struct gm_event *event = &events[i + 1];
		bool whole = actions[i] == GM_ACTION_SEGMENT_FREE;

		event->commit = 1 << 8 | (i + 1);
		event->tsc = tsc;
		event->op = flight ? flight->op : 0;
		event->address = whole ? segment->address : block->address;
		event->size = whole ? segment->size : block->requested;
		event->stream = segment->stream;
		event->context = segment->context;
		event->module = segment->module;
		event->domain = segment->domain;
		event->kind = segment->kind;
		event->action = actions[i];
	}
}

/* @id's free took effect before @next was handed out: the tables lose it, the trace gets it. */
static void complete_free(struct gm_image *image, uint32_t id, const struct gm_segment *next,
			  struct gm_chunk *chunk)
{
	struct gm_segment *segment = gm_image_segment(image, id);
	struct gm_block *block = freeing_block(image, id);
	struct gm_flight *flight = NULL;
	uint64_t tsc = next->tsc ? next->tsc - 1 : 0;

	for (size_t i = 0; i < image->flight_count && !flight; i++)
		if (image->flights[i].action == GM_ACTION_FREE_REQUESTED &&
		    image->flights[i].domain == segment->domain &&
		    image->flights[i].address == segment->address && !image->flights[i].done)
			flight = &image->flights[i];
	if (flight) {
		flight->done = true;
		tsc = gm_min_u64(tsc, flight->tsc);
	}
	if (tsc < block->tsc)
		tsc = block->tsc;
	make_events(chunk, segment, block, flight, tsc);
	discount(image, segment, block);
	unlink_segment(image, id, segment);
	segment->used = 0;
	block->state = GM_BLOCK_UNUSED;
}

/* In address order, neighbours that overlap cannot both be live: the older one was being freed.
 * Ranges are neighbours of ranges, handles of handles of their kind. */
static size_t resolve_frees(struct gm_image *image, const struct gm_pair *order, size_t count,
			    struct gm_chunk *made, size_t room)
{
	uint32_t before[1 + GM_KIND_COUNT] = { GM_NONE };
	size_t resolved = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t id = (uint32_t)order[i].value;
		const struct gm_segment *segment = gm_image_segment(image, id);
		uint32_t *last = &before[has_range(segment) ? 0 : 1 + segment->kind];
		const struct gm_segment *other = gm_image_segment(image, *last);

		if (other && overlap(other, segment) && resolved < room) {
			struct gm_chunk *chunk = (void *)((uint8_t *)made +
							  resolved * GM_CHUNK_BYTES);

			if (other->tsc <= segment->tsc && freeing_block(image, *last)) {
				complete_free(image, *last, segment, chunk);
				resolved++;
				other = NULL;
			} else if (segment->tsc <= other->tsc && freeing_block(image, id)) {
				complete_free(image, id, other, chunk);
				resolved++;
				continue;
			}
		}
		if (!other || segment->address + segment->size >= other->address + other->size)
			*last = id;
	}
	return resolved;
}

int gm_settle_segments(struct gm_image *image, struct gm_chunk **ret_made, size_t *ret_count)
{
	size_t items = gm_image_items(image, GM_REGION_SEGMENTS), count = 0, freeing = 0, kept = 0;
	struct gm_pair *pairs = gm_image_part(image, (items + 1) * sizeof(*pairs));
	struct gm_pair *scratch = gm_image_part(image, (items + 1) * sizeof(*scratch));
	struct gm_pair *order;

	image->segments = gm_image_part(image, (items + 1) * sizeof(*image->segments));
	if (!pairs || !scratch || !image->segments)
		return -ENOMEM;
	for (uint32_t id = 1; id < items; id++) {
		const struct gm_segment *segment = gm_image_segment(image, id);

		if (!segment)
			continue;
		pairs[count++] = (struct gm_pair){ segment->address, id };
		freeing += freeing_block(image, id) != NULL;
	}
	order = gm_pairs_sort(pairs, scratch, count);
	*ret_count = 0;
	*ret_made = NULL;
	if (freeing) {
		*ret_made = gm_image_part(image, freeing * GM_CHUNK_BYTES);
		if (!*ret_made)
			return -ENOMEM;
		*ret_count = resolve_frees(image, order, count, *ret_made, freeing);
	}
	for (size_t i = 0; i < count; i++) {
		const struct gm_segment *segment = gm_image_segment(image, (uint32_t)order[i].value);

		if (segment)
			order[kept++] = (struct gm_pair){ segment->domain, order[i].value };
	}
	order = gm_pairs_sort(order, order == pairs ? scratch : pairs, kept);
	for (size_t i = 0; i < kept; i++)
		image->segments[i] = (uint32_t)order[i].value;
	image->segment_count = kept;
	gm_image_part_free(image, pairs);
	gm_image_part_free(image, scratch);
	return 0;
}
