/*
 * pages_check.c - every structural rule of the pages heap, counted.
 */
#include "allocator/pages_heap.h"

#define CHECK(condition) (bad += !(condition))

struct sum {
	struct gm_stats stats;
	uint64_t idle, mapped, live;
	uint32_t free_count, unmapped_count;
};

/* A free block: it is merged with what it can be merged with. */
static int check_free(const struct gm_heap *heap, const struct gm_block *b, struct sum *sum)
{
	const struct gm_block *before = &heap->blocks[b->prev];
	bool unmapped = b->state == GM_BLOCK_UNMAPPED;
	int bad = 0;

	CHECK(!b->prev || before->state != b->state || (!unmapped && before->stream != b->stream));
	if (unmapped) {
		CHECK(b->stream == GM_PAGES_ANY);
		CHECK(b->address % GM_HEAP_PAGE == 0 && b->size % GM_HEAP_PAGE == 0);
		sum->unmapped_count++;
		return bad;
	}
	sum->free_count++;
	sum->idle += gm_pages_whole(b->address, b->address + b->size);
	return bad;
}

static void add_live(const struct gm_block *b, enum gm_pool_class class, bool active, struct gm_stats *sum)
{
	sum->stat[GM_STAT_ACTIVE][class].current++;
	sum->stat[GM_STAT_ACTIVE_BYTES][class].current += (int64_t)b->size;
	sum->stat[GM_STAT_REQUESTED_BYTES][class].current += (int64_t)b->requested;
	if (!active)
		return;
	sum->stat[GM_STAT_ALLOCATION][class].current++;
	sum->stat[GM_STAT_ALLOCATED_BYTES][class].current += (int64_t)b->size;
}

/* Blocks tile the region; what is not unmapped has memory. */
static int check_region(const struct gm_heap *heap, unsigned int pool, struct sum *sum)
{
	const struct gm_pages_region *region = &gm_pages((struct gm_heap *)heap)->region[pool];
	const struct gm_segment *s = &heap->segments[region->segment];
	enum gm_pool_class class = pool ? GM_POOL_LARGE : GM_POOL_SMALL;
	uint64_t at = region->base, unmapped = 0;
	uint32_t before = GM_NONE;
	int bad = 0;

	if (!region->segment) {
		CHECK(region->top == region->base && !region->last && !region->unmapped);
		return bad;
	}
	CHECK(s->address == region->base && s->size == region->top - region->base);
	CHECK((s->flags & GM_SEGMENT_EXPANDABLE) && (s->flags & GM_SEGMENT_SMALL ? !pool : pool));
	for (uint32_t id = s->first_block; id; id = heap->blocks[id].next) {
		const struct gm_block *b = &heap->blocks[id];
		bool active = b->state == GM_BLOCK_ACTIVE || b->state == GM_BLOCK_FREEING;
		bool cached = heap->number && b->state == GM_BLOCK_CACHED;
		bool pending = b->state == GM_BLOCK_PENDING;

		CHECK(b->address == at && b->prev == before && b->segment == region->segment);
		CHECK(b->size > 0 && b->size % GM_GRANULE == 0);
		CHECK(active || pending || cached || gm_pages_is_free(b));
		if (gm_pages_is_free(b))
			bad += check_free(heap, b, sum);
		else
			sum->live += b->size;
		if (active || pending)
			add_live(b, class, active, &sum->stats);
		unmapped += b->state == GM_BLOCK_UNMAPPED ? b->size : 0;
		bad += gm_heap_check_page_map(heap, id);
		at += b->size;
		before = id;
	}
	CHECK(at == region->top && before == region->last && region->top <= region->end);
	sum->mapped += region->top - region->base - unmapped;
	sum->stats.stat[GM_STAT_SEGMENT][class].current++;
	sum->stats.stat[GM_STAT_RESERVED_BYTES][class].current +=
		(int64_t)(region->top - region->base - unmapped);
	return bad;
}

/* The list of unmapped blocks has @count, which all are. */
static int check_list(const struct gm_heap *heap, const struct gm_pages_region *region, uint32_t count)
{
	uint32_t before = GM_NONE;
	int bad = 0;

	for (uint32_t id = region->unmapped; id && !bad; id = heap->links[id].left) {
		CHECK(heap->blocks[id].state == GM_BLOCK_UNMAPPED);
		CHECK(heap->blocks[id].segment == region->segment);
		CHECK(heap->links[id].right == before);
		CHECK(count-- > 0);
		before = id;
	}
	CHECK(bad || !count);
	return bad;
}

int gm_pages_check(struct gm_heap *heap, uint32_t first_segment)
{
	struct gm_pages_heap *own = gm_pages(heap);
	struct sum sum = { .idle = 0 };
	int bad = 0;

	(void)first_segment;		/* its segments are those of its regions */
	for (unsigned int p = 0; p < 2; p++) {
		sum.free_count = sum.unmapped_count = 0;
		bad += check_region(heap, p, &sum);
		bad += check_list(heap, &own->region[p], sum.unmapped_count);
		CHECK(sum.free_count == own->pool[p].count);
		bad += gm_free_set_check(&own->pool[p]);
	}
	CHECK(heap->reserved == sum.mapped);
	CHECK(heap->idle == sum.idle);
	CHECK(own->live == sum.live && own->live <= own->live_peak);
	if (!heap->number)
		bad += gm_heap_check_stats(heap->stats, &sum.stats);
	return bad;
}
