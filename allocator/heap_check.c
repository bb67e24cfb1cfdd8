/*
 * heap_check.c - every structural rule of the segments heap, counted, and two that all heaps have.
 */
#include "allocator/segments_heap.h"

#define CHECK(condition) (bad += !(condition))

/* Of a heap among others the page map may have been told that the driver gave the memory away. */
int gm_heap_check_page_map(const struct gm_heap *heap, uint32_t id)
{
	const struct gm_block *b = &heap->blocks[id];
	int bad = 0;

	if (!heap->map || heap->number)
		return 0;
	CHECK(gm_page_map_find(heap->map, b->address) == id);
	CHECK(gm_page_map_find(heap->map, b->address + b->size / 2) == id);
	CHECK(gm_page_map_find(heap->map, b->address + b->size - 1) == id);
	return bad;
}

static int check_blocks(const struct gm_heap *heap, uint32_t segment, struct gm_stats *sum,
			uint32_t *free_count, uint64_t *idle)
{
	const struct gm_segment *s = &heap->segments[segment];
	unsigned int pool = !(s->flags & GM_SEGMENT_SMALL);
	enum gm_pool_class class = pool ? GM_POOL_LARGE : GM_POOL_SMALL;
	uint64_t at = s->address;
	uint32_t before = GM_NONE;
	int bad = 0;

	for (uint32_t id = s->first_block; id; id = heap->blocks[id].next) {
		const struct gm_block *b = &heap->blocks[id];
		const struct gm_block *last = &heap->blocks[before];
		bool active = b->state == GM_BLOCK_ACTIVE || b->state == GM_BLOCK_FREEING;
		bool cached = heap->number && b->state == GM_BLOCK_CACHED;
		bool pending = b->state == GM_BLOCK_PENDING;

		CHECK(b->address == at);
		CHECK(b->segment == segment);
		CHECK(b->prev == before);
		CHECK(b->stream == s->stream);
		CHECK(b->size > 0 && b->size % GM_GRANULE == 0);
		CHECK(active || pending || cached || b->state == GM_BLOCK_INACTIVE);
		if (b->state == GM_BLOCK_INACTIVE) {
			++free_count[pool];
			*idle += gm_heap_is_split(b) ? 0 : b->size;
			CHECK(!before || last->state != GM_BLOCK_INACTIVE);	/* must have merged */
			if (gm_heap_is_split(b)) {
				sum->stat[GM_STAT_INACTIVE_SPLIT][class].current++;
				sum->stat[GM_STAT_INACTIVE_SPLIT_BYTES][class].current +=
					(int64_t)b->size;
			}
		}
		if (active || pending) {
			sum->stat[GM_STAT_ACTIVE][class].current++;
			sum->stat[GM_STAT_ACTIVE_BYTES][class].current += (int64_t)b->size;
			sum->stat[GM_STAT_REQUESTED_BYTES][class].current += (int64_t)b->requested;
		}
		if (active) {
			sum->stat[GM_STAT_ALLOCATION][class].current++;
			sum->stat[GM_STAT_ALLOCATED_BYTES][class].current += (int64_t)b->size;
		}
		bad += gm_heap_check_page_map(heap, id);
		at += b->size;
		before = id;
	}
	CHECK(at == s->address + s->size);
	sum->stat[GM_STAT_SEGMENT][class].current++;
	sum->stat[GM_STAT_RESERVED_BYTES][class].current += (int64_t)s->size;
	return bad;
}

int gm_heap_check_stats(const struct gm_stats *stats, const struct gm_stats *sum)
{
	int bad = 0;

	for (int name = 0; name < GM_STAT_COUNT; name++) {
		const struct gm_stat *is = stats->stat[name];
		int64_t small = sum->stat[name][GM_POOL_SMALL].current;
		int64_t large = sum->stat[name][GM_POOL_LARGE].current;

		CHECK(is[GM_POOL_SMALL].current == small);
		CHECK(is[GM_POOL_LARGE].current == large);
		CHECK(is[GM_POOL_ALL].current == small + large);
		for (int class = 0; class < GM_POOL_CLASSES; class++)
			CHECK(is[class].peak >= is[class].current);
	}
	return bad;
}

int gm_segments_check(struct gm_heap *heap, uint32_t first_segment)
{
	struct gm_segments_heap *own = gm_segments(heap);
	struct gm_stats sum = { 0 };
	uint32_t free_count[2] = { 0, 0 };
	uint64_t idle = 0;
	int64_t reserved;
	int bad = 0;

	for (uint32_t id = first_segment; id; id = heap->segments[id].next)
		if (heap->segments[id].heap == heap->number)
			bad += check_blocks(heap, id, &sum, free_count, &idle);
	reserved = sum.stat[GM_STAT_RESERVED_BYTES][GM_POOL_SMALL].current +
		   sum.stat[GM_STAT_RESERVED_BYTES][GM_POOL_LARGE].current;
	CHECK((int64_t)heap->reserved == reserved);
	CHECK(heap->idle == idle);
	if (!heap->number)
		bad += gm_heap_check_stats(heap->stats, &sum);
	for (int p = 0; p < 2; p++) {
		CHECK(free_count[p] == own->pool[p].count);
		bad += gm_free_set_check(&own->pool[p]);
	}
	return bad;
}
