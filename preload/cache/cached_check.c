/*
 * cached_check.c - every structural rule of a cached heap, counted. What concerns a whole domain,
 * its statistics and rows, is gm_recorder_check's.
 *
 * Thread context: any thread that holds no lock. Lock: the domain's, for O(blocks).
 */
#include "preload/cache/thread_cache.h"
#include "preload/cache/cached_section.h"

#define INSIST(cond) do { if (!(cond)) bad++; } while (0)

struct sums { uint64_t reserved, live, used, idle; uint32_t free_blocks[2]; };

static int check_block(const struct gm_cached *heap, const struct gm_segment *segment,
		       const struct gm_block *block, struct sums *sums)
{
	unsigned int pool = !(segment->flags & GM_SEGMENT_SMALL);
	uint8_t state = gm_get(&block->state);
	const struct gm_block *before = &gm_rec.blocks[block->prev];
	int bad = 0;

	INSIST(block->size && block->size % GM_GRANULE == 0);
	INSIST(block->stream == segment->stream);
	INSIST(block->domain == heap->setup.domain && block->kind == heap->setup.kind);
	if (state == GM_BLOCK_INACTIVE) {
		sums->free_blocks[pool]++;
		if (!gm_heap_is_split(block))
			sums->idle += block->size;
		/* Free neighbours must have merged. */
		INSIST(!block->prev || gm_get(&before->state) != GM_BLOCK_INACTIVE);
		return bad;
	}
	if (state == GM_BLOCK_CACHED)
		return bad;
	INSIST(state == GM_BLOCK_ACTIVE || state == GM_BLOCK_PENDING ||
	       state == GM_BLOCK_FREEING);
	INSIST(block->requested && block->requested <= block->size);
	if (state != GM_BLOCK_PENDING) {
		sums->live += block->size;
		sums->used += block->requested;
	}
	return bad;
}

static int check_segment(const struct gm_cached *heap, uint32_t id, struct sums *sums)
{
	const struct gm_segment *segment = &gm_rec.segments[id];
	uint64_t at = segment->address;
	uint32_t before = GM_NONE;
	int bad = 0;

	for (uint32_t b = segment->first_block; b; b = gm_rec.blocks[b].next) {
		const struct gm_block *block = &gm_rec.blocks[b];

		INSIST(block->address == at);
		INSIST(block->segment == id);
		INSIST(block->prev == before);
		bad += check_block(heap, segment, block, sums);
		at += block->size;
		before = b;
		if (at > segment->address + segment->size || !block->size)
			break;
	}
	INSIST(at == segment->address + segment->size);
	INSIST(segment->kind == heap->setup.kind && segment->context == heap->setup.context);
	sums->reserved += segment->size;
	return bad;
}

/* What is cached, and counted as live until it is flushed. */
static void count_cached_blocks(const struct gm_cached *heap, struct sums *sums)
{
	const struct gm_tcache *tcache = gm_tcache_first(heap->domain);

	for (; tcache; tcache = tcache->next)
		for (unsigned int i = 0; i < GM_TALLIES; i++) {
			const struct gm_tally *tally = &tcache->record->tallies[i];

			if (tcache->bins[i].heap != heap)
				continue;
			sums->live += (tally->puts - tally->takes) * tally->size;
			sums->used += tally->put_bytes - tally->taken_bytes;
		}
}

int gm_cached_check(struct gm_cached *heap)
{
	struct gm_section section = { .drops = true };
	struct sums sums = { .reserved = 0 };
	int bad = 0;

	if (gm_section_begin(heap, &section, 0) < 0)
		return 1;
	if (!gm_tcache_hold(heap->domain)) {
		gm_section_cancel(heap, &section);
		return 1;
	}
	count_cached_blocks(heap, &sums);
	for (uint32_t id = section.change.domain->first_segment; id; id = gm_rec.segments[id].next)
		if (gm_get(&gm_rec.segments[id].heap) == heap->number)
			bad += check_segment(heap, id, &sums);
	INSIST(sums.reserved == heap->heap.reserved);
	INSIST(sums.live == heap->live);
	INSIST(sums.used == heap->used && heap->used <= heap->used_high);
	INSIST(sums.idle == heap->heap.idle);
	INSIST(!heap->undo.refused);
	for (unsigned int p = 0; p < 2 && !heap->dead; p++) {
		INSIST(sums.free_blocks[p] == heap->heap.pool[p].count);
		bad += gm_free_set_check(&heap->heap.pool[p]);
	}
	gm_tcache_release(heap->domain);
	gm_section_cancel(heap, &section);
	return bad;
}

int gm_cached_check_all(void)
{
	int bad = 0;

	for (uint32_t number = 1; number <= gm_cached_count(); number++) {
		struct gm_cached *heap = gm_cached_by_number(number);

		bad += heap ? gm_cached_check(heap) : 0;
	}
	return bad;
}
