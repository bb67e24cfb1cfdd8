/*
 * copy_frees.c - frees that the driver has carried out but no thread has recorded yet.
 *
 * A block whose free is under way (GM_BLOCK_FREEING) counts as live, unless its address has been handed
 * out again. In that case the free took effect: the block leaves the tables, and the trace gets the
 * events that the thread would have written, stamped when the free began. The next owner of the address
 * is found in the tables or, if it has been freed, by its events. Only its free may be left, if the
 * history has dropped its allocation while the first thread was still inside a slow driver.
 * Thread context: one thread a copy.
 */
#include "recorder/read/copy_internal.h"

#include <errno.h>
#include <string.h>

#define CHAIN 64		/* frees of one address that may be under way at once */

/* A block whose free is under way. */
struct gm_freeing {
	uint64_t address, end, tsc;
	uint64_t again;			/* when its address was first handed out again; 0: never, as far as we know */
	uint64_t given_back;		/* stamp of the first free by a later owner; 0: none */
	uint32_t segment;
	uint8_t space, kind;
};

bool gm_copy_has_range(unsigned int kind, unsigned int flags)
{
	switch (kind) {
	case GM_KIND_ARRAY:
	case GM_KIND_GRAPH:
	case GM_KIND_EXTERNAL:
		return false;
	case GM_KIND_VMM:
		return !(flags & GM_SEGMENT_UNMAPPED);
	default:
		return true;
	}
}

/* Return the only block of a segment if the block's free was under way; NULL otherwise. */
static struct gm_block *freeing_block(const struct gm_copy *copy, uint32_t id)
{
	const struct gm_segment *segment = gm_copy_segment(copy, id);
	struct gm_block *block = gm_copy_block(copy, segment->first_block);

	if (!block || segment->heap || block->segment != id || block->state != GM_BLOCK_FREEING ||
	    block->address != segment->address || block->size != segment->size)
		return NULL;
	return block;
}

/* Take a segment and its only block out of the counters, as recording the free would have done.
 * allocator/table.h says which memory counts where. */
static void discount(struct gm_copy *copy, const struct gm_segment *segment,
		     const struct gm_block *block)
{
	enum gm_pool_class class = segment->flags & GM_SEGMENT_SMALL ? GM_POOL_SMALL : GM_POOL_LARGE;
	struct gm_counted of = { segment->module, segment->domain, segment->kind };
	struct gm_flow flow = { .out = 1, .out_bytes = segment->size };
	struct gm_stats *stats;

	if (!gm_copy_domain(copy, segment->domain) || segment->flags & GM_SEGMENT_REGISTERED)
		return;
	gm_copy_count(copy, &of, &flow);
	if (segment->kind == GM_KIND_IPC)
		return;
	stats = &gm_copy_domain(copy, segment->domain)->stats;
	gm_stats_move(stats, class, GM_STAT_ALLOCATION, 0, 1);
	gm_stats_move(stats, class, GM_STAT_ACTIVE, 0, 1);
	gm_stats_move(stats, class, GM_STAT_SEGMENT, 0, 1);
	gm_stats_move(stats, class, GM_STAT_ALLOCATED_BYTES, 0, block->size);
	gm_stats_move(stats, class, GM_STAT_ACTIVE_BYTES, 0, block->size);
	gm_stats_move(stats, class, GM_STAT_REQUESTED_BYTES, 0, block->requested);
	gm_stats_move(stats, class, GM_STAT_RESERVED_BYTES, 0, segment->size);
	stats->num_device_free = (int64_t)((uint64_t)stats->num_device_free + 1);
}

/* Make the events that the free would have left, in a chunk of their own. */
static void make_events(const struct gm_copy *copy, struct gm_chunk *chunk,
			const struct gm_segment *segment, const struct gm_block *block,
			const struct gm_flight *flight, uint64_t tsc)
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

		if (copy->header->history_left_out >> actions[i] & 1)
			continue;
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

static void complete_free(struct gm_copy *copy, const struct gm_freeing *freeing,
			  struct gm_chunk *chunk)
{
	struct gm_segment *segment = gm_copy_segment(copy, freeing->segment);
	struct gm_block *block = freeing_block(copy, freeing->segment);
	struct gm_flight *flight = NULL;
	uint64_t tsc = freeing->again - 1;

	for (size_t i = 0; i < copy->flight_count && !flight; i++)
		if (copy->flights[i].action == GM_ACTION_FREE_REQUESTED &&
		    copy->flights[i].domain == segment->domain &&
		    copy->flights[i].address == segment->address && !copy->flights[i].done &&
		    copy->flights[i].tsc >= block->tsc && copy->flights[i].tsc < freeing->again)
			flight = &copy->flights[i];
	if (flight) {
		flight->done = true;
		tsc = gm_min_u64(tsc, flight->tsc);
	}
	/* Make no events that the writer would have left out. */
	if (!(block->flags & GM_BLOCK_UNTRACED) && !copy->header->history_enabled)
		make_events(copy, chunk, segment, block, flight, tsc);
	discount(copy, segment, block);
	segment->used = 0;
	block->state = GM_BLOCK_UNUSED;
}

/* Return 0 for memory with an address in the process; else a number for the handles of the domain. */
static uint8_t space_of(unsigned int kind, unsigned int flags, unsigned int domain)
{
	return gm_copy_has_range(kind, flags) ? 0 : (uint8_t)(1 + domain);
}

int gm_frees_begin(struct gm_copy *copy, struct gm_frees *frees)
{
	struct gm_pair *pairs, *scratch, *order;

	memset(frees, 0, sizeof(*frees));
	for (size_t i = 0; i < copy->segment_count; i++)
		frees->count += freeing_block(copy, copy->segments[i]) != NULL;
	if (!frees->count)
		return 0;
	frees->list = gm_scratch_get(&copy->scratch, frees->count * sizeof(*frees->list));
	pairs = gm_scratch_get(&copy->scratch, 2 * frees->count * sizeof(*pairs));
	if (!frees->list || !pairs)
		return -ENOMEM;
	scratch = pairs + frees->count;
	frees->count = 0;
	for (size_t i = 0; i < copy->segment_count; i++)
		if (freeing_block(copy, copy->segments[i]))
			pairs[frees->count++] = (struct gm_pair){
				gm_copy_segment(copy, copy->segments[i])->address,
				copy->segments[i]
			};
	order = gm_pairs_sort(pairs, scratch, frees->count);
	for (size_t i = 0; i < frees->count; i++) {
		const struct gm_segment *s = gm_copy_segment(copy, (uint32_t)order[i].value);

		frees->list[i] = (struct gm_freeing){
			.address = s->address, .end = s->address + (s->size ? s->size : 1),
			.tsc = freeing_block(copy, (uint32_t)order[i].value)->tsc,
			.segment = (uint32_t)order[i].value, .kind = s->kind,
			.space = space_of(s->kind, s->flags, s->domain),
		};
	}
	gm_scratch_drop(&copy->scratch, pairs);
	for (size_t i = 0; i < copy->segment_count; i++) {
		const struct gm_segment *s = gm_copy_segment(copy, copy->segments[i]);
		const struct gm_owned of = { s->address, s->size, s->kind, s->flags, s->domain };

		if (s->domain < GM_DOMAIN_POOLS)	/* a pool's block lies in memory that a segment still has */
			gm_frees_note(frees, &of, s->tsc, false);
	}
	return 0;
}

static void lower_stamp(uint64_t *stamp, uint64_t tsc)
{
	if (!*stamp || tsc < *stamp)
		*stamp = tsc;
}

void gm_frees_note(struct gm_frees *frees, const struct gm_owned *of, uint64_t tsc, bool back)
{
	uint8_t space = space_of(of->kind, of->flags, of->domain);
	uint64_t end = of->address + (space || !of->size ? 1 : of->size);
	size_t low = 0, high = frees->count;

	while (low < high) {		/* find the first that begins at or after @end */
		size_t middle = low + (high - low) / 2;

		if (frees->list[middle].address < end)
			low = middle + 1;
		else
			high = middle;
	}
	for (unsigned int i = 0; i < CHAIN && low; i++) {
		struct gm_freeing *freeing = &frees->list[--low];

		if (freeing->end <= of->address)
			break;
		if (freeing->space != space || (space && freeing->address != of->address) ||
		    (space && freeing->kind != of->kind) || freeing->tsc >= tsc)
			continue;
		lower_stamp(back ? &freeing->given_back : &freeing->again, tsc);
	}
}

/* Handle a later owner that only its free shows. The history has dropped its allocation, so the allocation is not
 * later than the horizon. */
static void find_unseen_owner(const struct gm_copy *copy, struct gm_freeing *freeing)
{
	uint64_t horizon = copy->header->horizon;

	if (!freeing->given_back || (freeing->again && freeing->again <= freeing->given_back))
		return;
	freeing->again = freeing->given_back;
	if (horizon > freeing->tsc && horizon < freeing->again)
		freeing->again = horizon;
}

int gm_frees_complete(struct gm_copy *copy, struct gm_frees *frees)
{
	size_t kept = 0;

	for (size_t i = 0; i < frees->count; i++) {
		find_unseen_owner(copy, &frees->list[i]);
		frees->made_count += frees->list[i].again != 0;
	}
	if (!frees->made_count)
		return 0;
	frees->made = gm_scratch_get(&copy->scratch, frees->made_count * GM_CHUNK_BYTES);
	if (!frees->made)
		return -ENOMEM;
	frees->made_count = 0;
	for (size_t i = 0; i < frees->count; i++)
		if (frees->list[i].again)
			complete_free(copy, &frees->list[i], (void *)((uint8_t *)frees->made +
				      frees->made_count++ * GM_CHUNK_BYTES));
	for (size_t i = 0; i < copy->segment_count; i++)
		if (gm_copy_segment(copy, copy->segments[i]))
			copy->segments[kept++] = copy->segments[i];
	copy->segment_count = kept;
	return 0;
}
