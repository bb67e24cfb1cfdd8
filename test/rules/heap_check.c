/*
 * heap_check.c - every structural rule of both classes of heaps and of their free sets, counted.
 *
 * Thread context: as allocator/heap.h.
 */
#include "allocator/pages_heap.h"
#include "allocator/segments_heap.h"
#include "test/rules/check.h"

#define CHECK(condition) (bad += !(condition))

/* ---- free sets ---- */

static bool is_before(const struct gm_free_link *a, const struct gm_free_link *b)
{
	return a->size != b->size ? a->size < b->size : a->address < b->address;
}

/* Unmapped blocks (@state) are in their set with the size of a hole in which they lie. */
static int check_tree(struct gm_free_set *set, enum gm_block_state state, const struct gm_free_stream *s,
		      uint32_t root, uint32_t *count)
{
	const struct gm_free_link *link = &set->links[root];
	const struct gm_block *b = &set->blocks[root];
	int bad = 0;

	if (!root)
		return 0;
	bad += b->state != state;
	bad += b->stream != s->stream;
	bad += gm_free_set_at_least(set, s->stream, link->size, link->address) != root;	/* by its class */
	bad += b->address != link->address;
	bad += state == GM_BLOCK_UNMAPPED ? b->size > link->size : b->size != link->size;
	for (int side = 0; side < 2; side++) {
		uint32_t child = side ? set->links[root].right : set->links[root].left;

		if (!child)
			continue;
		bad += is_before(&set->links[child], link) != !side;
		bad += gm_free_priority(child) > gm_free_priority(root);
		bad += check_tree(set, state, s, child, count);
	}
	++*count;
	return bad;
}

/* Of the classes of one word. Nearly all are empty, and who looks at all after each step has time for little else. */
static bool any_root(const uint32_t *root)
{
	uint32_t any = 0;

	for (unsigned int i = 0; i < 64; i++)
		any |= root[i];
	return any;
}

static int check_set(struct gm_free_set *set, enum gm_block_state state)
{
	uint32_t total = 0;
	int bad = 0;

	for (uint32_t i = 0; i <= set->streams_mask; i++) {
		const struct gm_free_stream *s = set->streams[i];
		uint32_t count = 0;

		if (!s)
			continue;
		for (uint32_t w = 0; w < GM_CLASS_WORDS; w++) {
			bad += !s->map[w] != !(s->top >> w & 1);
			if (!s->map[w] && !any_root(&s->root[w * 64]))
				continue;
			for (uint32_t c = w * 64; c < w * 64 + 64; c++) {
				bad += !s->root[c] != !(s->map[w] >> c % 64 & 1);
				bad += check_tree(set, state, s, s->root[c], &count);
			}
		}
		bad += count != s->blocks;
		total += count;
	}
	return bad + (total != set->count);
}

int gm_free_set_check(struct gm_free_set *set)
{
	return check_set(set, GM_BLOCK_INACTIVE);
}

/* ---- what every heap has ---- */

/* Of a heap among others the page map may have been told that the driver gave the memory away. */
static int check_page_map(const struct gm_heap *heap, uint32_t id)
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

static int check_stats(const struct gm_stats *stats, const struct gm_stats *sum)
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

/* ---- the segments heap ---- */

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
		bad += check_page_map(heap, id);
		at += b->size;
		before = id;
	}
	CHECK(at == s->address + s->size);
	sum->stat[GM_STAT_SEGMENT][class].current++;
	sum->stat[GM_STAT_RESERVED_BYTES][class].current += (int64_t)s->size;
	return bad;
}

/* Is a segment above those of small requests cut into several blocks? */
static bool is_shared(const struct gm_heap *heap, const struct gm_segment *s)
{
	return !(s->flags & GM_SEGMENT_SMALL) && gm_heap_is_split(&heap->blocks[s->first_block]);
}

static int check_segments(struct gm_heap *heap, uint32_t first_segment)
{
	struct gm_segments_heap *own = gm_segments(heap);
	struct gm_stats sum = { 0 };
	uint32_t free_count[2] = { 0, 0 };
	uint64_t idle = 0, shared = 0;
	int64_t reserved;
	int bad = 0;

	for (uint32_t id = first_segment; id; id = heap->segments[id].next)
		if (heap->segments[id].heap == heap->number) {
			bad += check_blocks(heap, id, &sum, free_count, &idle);
			shared += is_shared(heap, &heap->segments[id]) ? heap->segments[id].size : 0;
		}
	CHECK(own->shared == shared);
	reserved = sum.stat[GM_STAT_RESERVED_BYTES][GM_POOL_SMALL].current +
		   sum.stat[GM_STAT_RESERVED_BYTES][GM_POOL_LARGE].current;
	CHECK((int64_t)heap->reserved == reserved);
	CHECK(heap->idle == idle);
	if (!heap->number)
		bad += check_stats(heap->stats, &sum);
	for (int p = 0; p < 2; p++) {
		CHECK(free_count[p] == own->pool[p].count);
		bad += gm_free_set_check(&own->pool[p]);
	}
	return bad;
}

/* ---- the pages heap ---- */

struct sum {
	struct gm_stats stats;
	uint64_t idle, mapped, live;
	uint32_t free_count, unmapped_count;
};

/* A free block: it is merged with what it can be merged with. */
static int check_free(const struct gm_heap *heap, const struct gm_pages_region *region, const struct gm_block *b,
		      struct sum *sum)
{
	const struct gm_block *before = &heap->blocks[b->prev];
	bool unmapped = b->state == GM_BLOCK_UNMAPPED;
	uint64_t at;
	int bad = 0;

	CHECK(!b->prev || before->state != b->state || (!unmapped && before->stream != b->stream));
	if (unmapped) {
		CHECK(b->stream == GM_PAGES_ANY);
		CHECK(b->address % GM_HEAP_PAGE == 0 && b->size % GM_HEAP_PAGE == 0);
		sum->unmapped_count++;
		return bad;
	}
	sum->free_count++;
	sum->idle += gm_pages_whole(region, b->address, b->address + b->size, &at);
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
		CHECK(region->top == region->base && !region->last && !region->unmapped.count && !region->changed);
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
			bad += check_free(heap, region, b, sum);
		else
			sum->live += b->size;
		if (active || pending)
			add_live(b, class, active, &sum->stats);
		unmapped += b->state == GM_BLOCK_UNMAPPED ? b->size : 0;
		bad += check_page_map(heap, id);
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

/* The list of unmapped blocks whose hole has changed has @count, which all are. */
static int check_changed(const struct gm_heap *heap, const struct gm_pages_region *region, uint32_t count)
{
	uint32_t before = GM_NONE;
	int bad = 0;

	for (uint32_t id = region->changed; id && !bad; id = heap->links[id].left) {
		CHECK(heap->blocks[id].state == GM_BLOCK_UNMAPPED);
		CHECK(heap->blocks[id].segment == region->segment);
		CHECK(heap->links[id].right == before && !heap->links[id].size);
		CHECK(count-- > 0);
		before = id;
	}
	CHECK(bad || !count);
	return bad;
}

/* The unmapped blocks of a hole are in their set with its size, unless one of them is in the list. Of more blocks
 * than gm_pages_beside and one not all may count, and what lies at the region's end has no size. */
static int check_holes(const struct gm_heap *heap, const struct gm_pages_region *region)
{
	uint64_t from = 0, least = UINT64_MAX, most = 0;
	unsigned int pieces = 0;
	int bad = 0;

	for (uint32_t id = heap->segments[region->segment].first_block; id; id = heap->blocks[id].next) {
		const struct gm_block *b = &heap->blocks[id];

		if (!gm_pages_is_free(b)) {
			CHECK(!most || !least || pieces > gm_pages_beside(heap) + 1 || (least == most && most == b->address - from));
			least = UINT64_MAX;
			most = pieces = 0;
			continue;
		}
		from = pieces++ ? from : b->address;
		if (b->state != GM_BLOCK_UNMAPPED)
			continue;
		least = heap->links[id].size < least ? heap->links[id].size : least;
		most = heap->links[id].size > most ? heap->links[id].size : most;
	}
	return bad;
}

/* Its segments are those of its regions. */
static int check_pages(struct gm_heap *heap)
{
	struct gm_pages_heap *own = gm_pages(heap);
	struct sum sum = { .idle = 0 };
	int bad = 0;

	for (unsigned int p = 0; p < 2; p++) {
		sum.free_count = sum.unmapped_count = 0;
		bad += check_region(heap, p, &sum);
		bad += check_set(&own->region[p].unmapped, GM_BLOCK_UNMAPPED);
		bad += check_holes(heap, &own->region[p]);
		bad += check_changed(heap, &own->region[p], sum.unmapped_count - own->region[p].unmapped.count);
		CHECK(sum.free_count == own->pool[p].count);
		bad += gm_free_set_check(&own->pool[p]);
	}
	CHECK(heap->reserved == sum.mapped);
	CHECK(heap->idle == sum.idle);
	CHECK(own->live == sum.live && own->live <= own->live_peak);
	if (!heap->number)
		bad += check_stats(heap->stats, &sum.stats);
	return bad;
}

int gm_heap_check(struct gm_heap *heap, uint32_t first_segment)
{
	return heap->class == &gm_pages_class ? check_pages(heap) : check_segments(heap, first_segment);
}
