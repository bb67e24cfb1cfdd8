/*
 * cache_heap_check.c - every structural rule of a cached heap, counted. What concerns a whole domain,
 * its statistics and rows, is gm_recorder_check's.
 *
 * Thread context: any thread that holds no lock. Lock: the domain's, for O(blocks).
 */
#include "preload/cache/thread_cache.h"
#include "preload/cache/cache_heap_internal.h"
#include "test/rules/check.h"

#define HOLD_NS UINT64_C(1000000000)	/* for a thread that is in its thread cache */
#define INSIST(cond) do { if (!(cond)) bad++; } while (0)

struct sums { uint64_t live, used; };

/* Its structure the heap itself checks. */
static int check_segment(const struct gm_cache_heap *heap, const struct gm_segment *segment,
			 struct sums *sums)
{
	int bad = 0;

	INSIST(segment->kind == heap->kind && segment->context == heap->context);
	for (uint32_t b = segment->first_block; b; b = gm_rec.blocks[b].next) {
		const struct gm_block *block = &gm_rec.blocks[b];
		uint8_t state = gm_get(&block->state);

		INSIST(block->domain == heap->domain && block->kind == heap->kind);
		if (state == GM_BLOCK_INACTIVE || state == GM_BLOCK_CACHED || state == GM_BLOCK_UNMAPPED)
			continue;
		INSIST(block->requested && block->requested <= block->size);
		if (state != GM_BLOCK_PENDING) {
			sums->live += block->size;
			sums->used += block->requested;
		}
	}
	return bad;
}

/* Blocks in thread caches count as live until they are flushed. */
static void count_cached(const struct gm_cache_heap *heap, struct sums *sums)
{
	for (const struct gm_tcache *tcache = gm_tcache_first(heap->domain); tcache; tcache = tcache->next)
		for (unsigned int i = 0; i < GM_TALLIES; i++) {
			const struct gm_tally *tally = &tcache->record->tallies[i];

			if (tcache->bins[i].heap != heap)
				continue;
			sums->live += (tally->puts - tally->takes) * tally->size;
			sums->used += tally->put_bytes - tally->taken_bytes;
		}
}

static void release(struct gm_tcache *from, const struct gm_tcache *end)
{
	for (; from != end; from = from->next)
		gm_set_release(&from->slot->tcache_owner, GM_TCACHE_NOBODY);
}

/* Keep the threads out of their thread caches of @domain, whose lock is held. False: one of them could not be kept
 * out, and none is. */
static bool hold(uint8_t domain)
{
	struct gm_tcache *tcache = gm_tcache_first(domain);

	while (tcache && gm_slot_hold(tcache->slot, HOLD_NS))
		tcache = tcache->next;
	if (tcache)
		release(gm_tcache_first(domain), tcache);
	return !tcache;
}

int gm_cache_heap_check(struct gm_cache_heap *heap)
{
	struct gm_section section = { .drops = true };
	struct sums sums = { 0, 0 };
	int bad = 0;

	if (gm_section_begin(heap, &section, 0) < 0)
		return 1;
	if (!hold(heap->domain)) {
		gm_section_cancel(heap, &section);
		return 1;
	}
	count_cached(heap, &sums);
	for (uint32_t id = section.change.domain->first_segment; id; id = gm_rec.segments[id].next)
		if (gm_get(&gm_rec.segments[id].heap) == heap->number)
			bad += check_segment(heap, &gm_rec.segments[id], &sums);
	INSIST(sums.live == heap->live);
	INSIST(sums.used == heap->used && heap->used <= heap->used_high);
	INSIST(!heap->undo.refused);
	if (!gm_get(&heap->dead))
		bad += gm_heap_check(heap->core, section.change.domain->first_segment);
	release(gm_tcache_first(heap->domain), NULL);
	gm_section_cancel(heap, &section);
	return bad;
}
