/*
 * aux_check.c - every structural rule of a journal, counted: see aux_check.h.
 *
 * Tables against themselves (lists, tiling, overlap), ids against their areas, and the counters
 * of each domain against what the tables add up to, by the rule in allocator/table.h. Changes nothing;
 * O(segments + blocks).
 */
#include "test/unit/journal/aux_check.h"

#include <string.h>

#include "recorder/read/copy_internal.h"
#include "recorder/record/tables.h"

struct check {
	const struct gm_copy *copy;
	void (*report)(void *arg, const char *what, uint64_t where);
	void *arg;
	int bad;
	struct sum {			/* what the tables of one domain add up to */
		uint64_t live[GM_KIND_COUNT];
		uint64_t stat[GM_STAT_COUNT][GM_POOL_CLASSES];
		uint64_t segments;
	} sum;
};

#define INSIST(check, cond, where) do { \
	if (!(cond)) { \
		(check)->bad++; \
		if ((check)->report) \
			(check)->report((check)->arg, #cond, (uint64_t)(where)); \
	} \
} while (0)

/* Counters may hold anything: differences wrap, they do not trap. */
static int64_t minus(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

static bool counts_in_stats(const struct gm_segment *segment)
{
	return !(segment->flags & GM_SEGMENT_REGISTERED) && segment->kind != GM_KIND_IPC;
}

static void add(struct check *check, enum gm_stat_name name, bool small, uint64_t amount)
{
	check->sum.stat[name][GM_POOL_ALL] += amount;
	check->sum.stat[name][small ? GM_POOL_SMALL : GM_POOL_LARGE] += amount;
}

static void check_block(struct check *check, uint32_t id, const struct gm_segment *segment)
{
	const struct gm_block *block = gm_copy_block(check->copy, id);
	const struct gm_block *next = gm_copy_block(check->copy, block->next);
	bool small = segment->flags & GM_SEGMENT_SMALL;
	bool live = block->state == GM_BLOCK_ACTIVE || block->state == GM_BLOCK_FREEING;
	uint32_t stack = block->stack, module = block->module;

	INSIST(check, !next || next->prev == id, id);
	/* Of a free block it means nothing. */
	INSIST(check, block->state == GM_BLOCK_INACTIVE || block->state == GM_BLOCK_UNMAPPED ||
	       block->requested <= block->size, id);
	INSIST(check, block->state != GM_BLOCK_UNMAPPED || (segment->heap && segment->flags & GM_SEGMENT_EXPANDABLE), id);
	/* Only a heap has blocks that are not live. Free neighbours are one but where a thread had
	 * cached one of them. */
	INSIST(check, segment->heap || live == !(segment->flags & GM_SEGMENT_HELD), id);
	/* What is done before it is put off stays marked until it is somebody's again. */
	INSIST(check, !(block->flags & ~(GM_BLOCK_UNTRACED | GM_BLOCK_DONE)) &&
	       !(block->flags & GM_BLOCK_DONE && block->state == GM_BLOCK_ACTIVE), id);
	INSIST(check, !stack || gm_copy_stack(check->copy, stack), id);
	INSIST(check, !module || gm_copy_module(check->copy, module), id);
	if (live && !(segment->flags & GM_SEGMENT_REGISTERED))
		check->sum.live[segment->kind] += block->size;
	if (!counts_in_stats(segment))
		return;
	if (live) {
		add(check, GM_STAT_ALLOCATION, small, 1);
		add(check, GM_STAT_ALLOCATED_BYTES, small, block->size);
	}
	if (segment->domain >= GM_DOMAIN_POOLS || block->state == GM_BLOCK_UNMAPPED)
		return;
	if (block->state != GM_BLOCK_INACTIVE) {
		add(check, GM_STAT_ACTIVE, small, 1);
		add(check, GM_STAT_ACTIVE_BYTES, small, block->size);
		add(check, GM_STAT_REQUESTED_BYTES, small, block->requested);
	} else if ((block->prev || block->next) && !(segment->flags & GM_SEGMENT_EXPANDABLE)) {
		add(check, GM_STAT_INACTIVE_SPLIT, small, 1);
		add(check, GM_STAT_INACTIVE_SPLIT_BYTES, small, block->size);
	}
}

static void check_segment(struct check *check, uint32_t id)
{
	const struct gm_segment *segment = gm_copy_segment(check->copy, id);
	bool small = segment->flags & GM_SEGMENT_SMALL;
	struct gm_block_walk walk = { 0 };
	uint32_t stack = segment->stack, module = segment->module;
	uint64_t sum = 0, unmapped = 0;
	uint32_t at = GM_NONE;

	while ((at = gm_copy_next_block(check->copy, id, at, &walk)) != GM_NONE) {
		const struct gm_block *block = gm_copy_block(check->copy, at);

		INSIST(check, block->address == segment->address + sum, at);
		sum += block->size;
		unmapped += block->state == GM_BLOCK_UNMAPPED ? block->size : 0;
		check_block(check, at, segment);
	}
	INSIST(check, !walk.broken, id);
	INSIST(check, sum == segment->size, id);
	INSIST(check, !stack || gm_copy_stack(check->copy, stack), id);
	INSIST(check, !module || gm_copy_module(check->copy, module), id);
	/* What pools hand out is in no list. */
	check->sum.segments += segment->domain < GM_DOMAIN_POOLS || segment->flags & GM_SEGMENT_HELD;
	INSIST(check, !(segment->flags & GM_SEGMENT_HELD) || segment->domain >= GM_DOMAIN_POOLS, id);
	if (counts_in_stats(segment) &&
	    (segment->domain < GM_DOMAIN_POOLS || segment->flags & GM_SEGMENT_HELD)) {
		add(check, GM_STAT_SEGMENT, small, 1);
		add(check, GM_STAT_RESERVED_BYTES, small, segment->size - unmapped);
	}
}

/* The domain's list holds its segments, each once, linked both ways; and those whose free was completed by who
 * reads, one of a thread at most. */
static void check_list(struct check *check, unsigned int d, const struct gm_domain *domain)
{
	const struct gm_copy *copy = check->copy;
	const struct gm_segment *segments =
		(const void *)(copy->base + copy->header->regions[GM_REGION_SEGMENTS].offset);
	uint64_t limit = check->sum.segments + gm_copy_items(copy, GM_REGION_THREADS), count = 0, ended = 0;
	uint32_t id = domain->first_segment, before = GM_NONE;

	while (id != GM_NONE && count + ended <= limit) {
		INSIST(check, id < gm_copy_items(copy, GM_REGION_SEGMENTS), id);
		if (id >= gm_copy_items(copy, GM_REGION_SEGMENTS))
			return;
		INSIST(check, segments[id].domain == d && segments[id].prev == before, id);
		*(segments[id].used ? &count : &ended) += 1;
		before = id;
		id = segments[id].next;
	}
	INSIST(check, count == check->sum.segments, d);
	INSIST(check, ended <= gm_copy_items(copy, GM_REGION_THREADS), d);
	INSIST(check, domain->last_segment == before, d);
}

/* The lists of ids that are for the next ones: unused records, of this domain. */
static void check_unused(struct check *check, unsigned int d, const struct gm_domain *domain)
{
	const struct gm_copy *copy = check->copy;
	const struct gm_region *regions = copy->header->regions;
	const struct gm_segment *segments = (const void *)(copy->base + regions[GM_REGION_SEGMENTS].offset);
	const struct gm_block *blocks = (const void *)(copy->base + regions[GM_REGION_BLOCKS].offset);
	size_t limit = gm_copy_items(copy, GM_REGION_SEGMENTS), steps = 0;
	uint32_t id;

	for (id = domain->unused_segments; id && id < limit && steps++ < limit; id = segments[id].next)
		INSIST(check, !segments[id].used && segments[id].domain == d, id);
	INSIST(check, id == GM_NONE, d);
	limit = gm_copy_items(copy, GM_REGION_BLOCKS);
	steps = 0;
	for (id = domain->unused_blocks; id && id < limit && steps++ < limit; id = blocks[id].next)
		INSIST(check, blocks[id].state == GM_BLOCK_UNUSED && blocks[id].domain == d, id);
	INSIST(check, id == GM_NONE, d);
}

static void check_usage(struct check *check)
{
	const struct gm_copy *copy = check->copy;
	uint64_t by_module[GM_DOMAINS] = { 0 }, by_pair[GM_DOMAINS][GM_KIND_COUNT] = { { 0 } };

	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_USAGE); i++) {
		const struct gm_usage *row = gm_copy_usage(copy, i);
		const struct gm_domain *domain;

		if (row->used != 1)
			continue;
		INSIST(check, row->domain < GM_DOMAINS, i);
		domain = gm_copy_domain(copy, row->domain);
		if (!domain)
			continue;
		INSIST(check, row->current_bytes == minus(row->allocated_bytes, row->freed_bytes), i);
		INSIST(check, row->current_bytes >= 0 && row->peak_bytes >= row->current_bytes, i);
		if (row->module == GM_USAGE_ALL_MODULES && row->kind < GM_KIND_COUNT)
			INSIST(check, row->domain >= GM_DOMAIN_POOLS ||
			       (uint64_t)row->current_bytes == domain->live_bytes[row->kind], i);
		else if (row->kind == GM_USAGE_ALL_KINDS)
			by_module[row->domain] += (uint64_t)row->current_bytes;
		else if (row->kind < GM_KIND_COUNT)
			by_pair[row->domain][row->kind] += (uint64_t)row->current_bytes;
		INSIST(check, row->allocations >= row->frees, i);
	}
	for (unsigned int d = 0; d < GM_DOMAINS && !gm_copy_refused(copy, GM_REGION_USAGE); d++) {
		const struct gm_domain *domain = gm_copy_domain(copy, d);

		if (!domain)
			continue;
		INSIST(check, (int64_t)by_module[d] ==
		       domain->stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].current, d);
		for (unsigned int k = 0; k < GM_KIND_COUNT; k++)
			INSIST(check, d >= GM_DOMAIN_POOLS || by_pair[d][k] == domain->live_bytes[k], d);
	}
}

/* Does memory come and go in pages? Then segments are not what the driver was asked for. */
static bool in_pages(const struct gm_copy *copy)
{
	const struct gm_setting *settings =
		(const void *)(copy->base + copy->header->regions[GM_REGION_SETTINGS].offset);

	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_SETTINGS); i++)
		if (!strcmp(gm_copy_string(copy, settings[i].name, NULL), "expandable_segments"))
			return !strcmp(gm_copy_string(copy, settings[i].value, NULL), "True");
	return false;
}

/* What rows had at the peak adds up to it, at every moment. Of pools, too, but for what is under way. */
static void check_sites(struct check *check, unsigned int d, const struct gm_domain *domain)
{
	size_t items = gm_copy_items(check->copy, GM_REGION_SITES);
	uint64_t sum = 0;

	for (size_t i = 1; i < items; i++) {
		const struct gm_site *site = gm_copy_site(check->copy, i);

		INSIST(check, site, i);
		if (site && gm_site_domain(site) == d)
			sum += (uint64_t)site->live;
	}
	INSIST(check, d >= GM_DOMAIN_POOLS || items < 2 || gm_copy_refused(check->copy, GM_REGION_SITES) ||
	       (int64_t)sum == domain->stats.stat[GM_STAT_REQUESTED_BYTES][GM_POOL_ALL].peak, d);
}

static void check_domain(struct check *check, unsigned int d, const struct gm_domain *domain)
{
	for (unsigned int s = 0; s < GM_STAT_COUNT; s++) {
		for (unsigned int c = 0; c < GM_POOL_CLASSES; c++) {
			const struct gm_stat *stat = &domain->stats.stat[s][c];

			INSIST(check, domain->stats_resets ||
			       stat->current == minus(stat->allocated, stat->freed), d);
			INSIST(check, stat->peak >= stat->current, d);
			INSIST(check, (uint64_t)stat->current == check->sum.stat[s][c], d);
		}
	}
	for (unsigned int k = 0; k < GM_KIND_COUNT; k++)
		INSIST(check, domain->live_bytes[k] == (d < GM_DOMAIN_POOLS ? check->sum.live[k] : 0), d);
	for (size_t i = 1; d >= GM_DOMAIN_POOLS && i < gm_copy_items(check->copy, GM_REGION_USAGE); i++) {
		const struct gm_usage *row = gm_copy_usage(check->copy, i);

		INSIST(check, row->used != 1 || row->domain != d || row->module != GM_USAGE_ALL_MODULES ||
		       (uint64_t)row->current_bytes == check->sum.live[row->kind % GM_KIND_COUNT], i);
	}
	check_sites(check, d, domain);
	INSIST(check, domain->stats_resets || d >= GM_DOMAIN_POOLS || in_pages(check->copy) ||
	       minus(domain->stats.num_device_alloc, domain->stats.num_device_free) ==
	       domain->stats.stat[GM_STAT_SEGMENT][GM_POOL_ALL].current, d);
	/* They are the program's own: where a change was taken back they are as it left them. */
	if (!check->copy->undone) {
		check_list(check, d, domain);
		check_unused(check, d, domain);
	}
}

/* In address order neighbours must not overlap, where addresses are addresses. */
static void check_overlap(struct check *check)
{
	const struct gm_copy *copy = check->copy;
	const struct gm_segment *before = NULL;

	for (size_t i = 0; i < copy->segment_count; i++) {
		const struct gm_segment *segment = gm_copy_segment(copy, copy->segments[i]);

		if (!gm_copy_has_range(segment->kind, segment->flags) || segment->domain >= GM_DOMAIN_POOLS)
			continue;
		if (before && before->domain == segment->domain)
			INSIST(check, before->address + before->size <= segment->address,
			       segment->address);
		before = segment;
	}
}

/* A live block and its allocation's event say the same; one that leaves no events has none. */
static void check_traced(struct check *check, const struct gm_event *event, size_t where)
{
	const struct gm_copy *copy = check->copy;
	size_t low = 0, high = copy->segment_count;
	const struct gm_segment *segment;
	const struct gm_block *block;

	while (low < high) {		/* segments are sorted by (domain, address) */
		size_t middle = low + (high - low) / 2;

		segment = gm_copy_segment(copy, copy->segments[middle]);
		if (segment->domain < event->domain ||
		    (segment->domain == event->domain && segment->address < event->address))
			low = middle + 1;
		else
			high = middle;
	}
	segment = low < copy->segment_count ? gm_copy_segment(copy, copy->segments[low]) : NULL;
	block = segment ? gm_copy_block(copy, segment->first_block) : NULL;
	/* What a free block's record still says is of several owners, perhaps. */
	if (!block || segment->domain != event->domain || block->address != event->address ||
	    block->kind != event->kind || block->tsc != event->tsc ||
	    block->state == GM_BLOCK_INACTIVE)
		return;
	INSIST(check, !(block->flags & GM_BLOCK_UNTRACED), where);
	INSIST(check, block->requested == event->size, where);
}

static void check_events(struct check *check)
{
	const struct gm_copy *copy = check->copy;
	uint64_t last = 0;

	for (size_t i = 0; i < copy->event_count; i++) {
		const struct gm_event *event = copy->events[i];
		uint32_t stack = event->stack, module = event->module;
		bool text = event->action == GM_ACTION_SNAPSHOT || event->action == GM_ACTION_ANNOTATE;

		INSIST(check, event->tsc >= last, i);
		INSIST(check, !module || gm_copy_module(copy, module), i);
		INSIST(check, text || !stack || gm_copy_stack(copy, stack), i);
		if (event->action == GM_ACTION_ALLOC)
			check_traced(check, event, i);
		last = event->tsc;
	}
}

int gm_copy_check(const struct gm_copy *copy,
		   void (*report)(void *arg, const char *what, uint64_t where), void *arg)
{
	struct check check = { .copy = copy, .report = report, .arg = arg };
	size_t next = 0;

	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *domain = gm_copy_domain(copy, d);

		memset(&check.sum, 0, sizeof(check.sum));
		for (; next < copy->segment_count; next++) {
			uint32_t id = copy->segments[next];

			if (gm_copy_segment(copy, id)->domain != d)
				break;
			check_segment(&check, id);
		}
		if (domain)
			check_domain(&check, d, domain);
		else
			INSIST(&check, !check.sum.segments, d);
	}
	check_overlap(&check);
	check_usage(&check);
	check_events(&check);
	INSIST(&check, !copy->damage, copy->damage);
	return check.bad;
}

/* ---- the living journal of this process ---- */

#define TRIES 10u			/* for a copy of one moment, on a busy machine */
#define EXPECT(cond) do { if (!(cond)) bad++; } while (0)

static int check_tables(void)
{
	struct gm_copy copy = { .base = NULL };
	int bad = 1;

	/* Where the holder of a lock was off its processor for as long as a copy waits, its change is undone. */
	for (unsigned int i = 0; i < TRIES && bad; i++) {
		gm_copy_free(&copy);
		if (gm_copy_from_process(&copy) < 0)
			return 1;
		if (!copy.consistent || gm_copy_resolve(&copy, UINT64_MAX))
			continue;
		bad = gm_copy_check(&copy, NULL, NULL);
		if (bad)
			break;
		bad = copy.undone != 0;
	}
	gm_copy_free(&copy);
	return bad;
}

static int check_pool_locked(const struct gm_header *header)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;
	uint32_t owned = 0, shared = gm_rec.shared_slot.chunk != NULL;
	int bad = 0;

	for (uint32_t i = 1; i < gm_rec.slots_used; i++)
		owned += gm_rec.slots[i].chunk != NULL;
	for (uint32_t i = 0; i < pool->closed_count; i++) {
		uint32_t index = pool->closed[(pool->closed_first + i) % pool->chunks];
		const struct gm_chunk *chunk = (const void *)(gm_rec.events +
							      (uint64_t)index * GM_CHUNK_BYTES);

		EXPECT(index < pool->fresh);
		EXPECT(gm_get(&chunk->state) == GM_CHUNK_CLOSED);
	}
	EXPECT(owned == pool->owned);
	EXPECT(owned + shared + pool->closed_count == pool->fresh);
	EXPECT(pool->fresh <= pool->chunks);
	EXPECT((uint64_t)pool->fresh * GM_CHUNK_BYTES ==
	       gm_get(&header->regions[GM_REGION_EVENTS].used));
	return bad;
}

static int check_regions_locked(const struct gm_header *header)
{
	uint64_t populated = GM_HEADER_BYTES;
	int bad = 0;

	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		const struct gm_region *region = &header->regions[r];

		EXPECT(gm_get(&region->used) <= gm_get(&region->populated));
		EXPECT(gm_get(&region->populated) <= region->capacity);
		EXPECT(region->offset + region->capacity <= header->file_bytes);
		populated += gm_get(&region->populated);
	}
	/* What threads and the helper are about to get is counted before it is there. */
	EXPECT(gm_get(&gm_rec.growth.working) || gm_rec.growth.next != gm_rec.growth.upto ?
	       populated <= gm_rec.populated : populated == gm_rec.populated);
	EXPECT(gm_rec.populated <= gm_rec.budget);
	EXPECT(!gm_get(&gm_rec.undo_overflows));
	return bad;
}

int gm_recorder_check(void)
{
	const struct gm_header *header = gm_header_get();
	int bad;

	if (!header)
		return 0;
	bad = check_tables();
	if (!gm_lock(&gm_rec.journal))
		return bad + 1;
	bad += check_pool_locked(header);
	bad += check_regions_locked(header);
	gm_unlock(&gm_rec.journal);
	return bad;
}
