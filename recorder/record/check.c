/*
 * check.c - every structural rule of the living journal, counted.
 *
 * For tests and debugging; gm_copy_check() does the same for a copy. Takes the domain locks one
 * by one, then the journal lock; each loop is bounded by the size of its table.
 * Thread context: any thread that holds no lock. Signal and fork context: none.
 */
#include "recorder/record/tables.h"

#define INSIST(cond) do { if (!(cond)) bad++; } while (0)

struct sums {				/* what the tables of one domain add up to */
	int64_t stat[GM_STAT_COUNT][GM_POOL_CLASSES];
	uint64_t live[GM_KIND_COUNT];
};

static uint64_t items(const struct gm_header *header, enum gm_region_id id)
{
	return gm_get_acquire(&header->regions[id].used) / header->regions[id].item_bytes;
}

static void add(struct sums *sums, const struct gm_segment *segment, enum gm_stat_name name,
		uint64_t amount)
{
	bool small = segment->flags & GM_SEGMENT_SMALL;

	if (segment->flags & GM_SEGMENT_REGISTERED || segment->kind == GM_KIND_IPC)
		return;
	sums->stat[name][GM_POOL_ALL] += (int64_t)amount;
	sums->stat[name][small ? GM_POOL_SMALL : GM_POOL_LARGE] += (int64_t)amount;
}

static void add_block(struct sums *sums, const struct gm_segment *segment,
		      const struct gm_block *block)
{
	uint8_t state = gm_get(&block->state);

	if (state == GM_BLOCK_CACHED)	/* the tallies say so */
		return;
	if (state == GM_BLOCK_INACTIVE) {
		if (block->prev || block->next) {
			add(sums, segment, GM_STAT_INACTIVE_SPLIT, 1);
			add(sums, segment, GM_STAT_INACTIVE_SPLIT_BYTES, block->size);
		}
		return;
	}
	add(sums, segment, GM_STAT_ACTIVE, 1);
	add(sums, segment, GM_STAT_ACTIVE_BYTES, block->size);
	add(sums, segment, GM_STAT_REQUESTED_BYTES, block->requested);
	if (state == GM_BLOCK_PENDING)
		return;
	add(sums, segment, GM_STAT_ALLOCATION, 1);
	add(sums, segment, GM_STAT_ALLOCATED_BYTES, block->size);
	if (!(segment->flags & GM_SEGMENT_REGISTERED))
		sums->live[segment->kind] += block->size;
}

static int check_block(const struct gm_segment *segment, const struct gm_block *block, uint32_t id,
		       uint32_t domain)
{
	uint8_t state = gm_get(&block->state);
	bool live = state == GM_BLOCK_ACTIVE || state == GM_BLOCK_FREEING;
	int bad = 0;

	INSIST(live || (gm_get(&segment->heap) &&
			(state == GM_BLOCK_PENDING || state == GM_BLOCK_INACTIVE ||
			 state == GM_BLOCK_CACHED)));
	INSIST(block->segment == id);
	INSIST(block->domain == domain);
	INSIST(block->kind == segment->kind);
	return bad;
}

/* The blocks of a segment tile it; what is passed through has one. */
static int check_segment(const struct gm_header *header, uint32_t id, uint32_t domain,
			 struct sums *sums)
{
	const struct gm_segment *segment = &gm_rec.segments[id];
	uint64_t blocks = items(header, GM_REGION_BLOCKS), steps = 0, at = segment->address;
	uint32_t block_id = segment->first_block, before = GM_NONE;
	int bad = 0;

	INSIST(segment->used == 1);
	INSIST(segment->domain == domain);
	INSIST(segment->kind < GM_KIND_COUNT);
	for (; block_id && block_id < blocks && steps <= blocks; steps++) {
		const struct gm_block *block = &gm_rec.blocks[block_id];

		bad += check_block(segment, block, id, domain);
		INSIST(block->address == at && block->prev == before);
		add_block(sums, segment, block);
		at += block->size;
		before = block_id;
		block_id = block->next;
	}
	INSIST(block_id == GM_NONE && steps);
	INSIST(steps == 1 || gm_get(&segment->heap));
	INSIST(at == segment->address + segment->size);
	add(sums, segment, GM_STAT_SEGMENT, 1);
	add(sums, segment, GM_STAT_RESERVED_BYTES, segment->size);
	return bad;
}

static int check_segments(const struct gm_header *header, uint32_t number,
			  const struct gm_domain *domain, struct sums *sums)
{
	uint64_t segments = items(header, GM_REGION_SEGMENTS), steps = 0;
	uint32_t id = domain->first_segment, before = GM_NONE;
	int bad = 0;

	for (; id && id < segments && steps <= segments; steps++) {
		INSIST(gm_rec.segments[id].prev == before);
		bad += check_segment(header, id, number, sums);
		before = id;
		id = gm_rec.segments[id].next;
	}
	INSIST(id == GM_NONE);
	INSIST(before == domain->last_segment);
	return bad;
}

static int check_unused(const struct gm_header *header, uint32_t number,
			const struct gm_domain *domain)
{
	uint64_t segments = items(header, GM_REGION_SEGMENTS), steps = 0;
	uint64_t blocks = items(header, GM_REGION_BLOCKS);
	uint32_t id;
	int bad = 0;

	for (id = domain->unused_segments; id && id < segments && steps++ <= segments;
	     id = gm_rec.segments[id].next) {
		INSIST(!gm_rec.segments[id].used);
		INSIST(gm_rec.segments[id].domain == number);
	}
	INSIST(id == GM_NONE);
	for (id = domain->unused_blocks, steps = 0; id && id < blocks && steps++ <= blocks;
	     id = gm_rec.blocks[id].next) {
		INSIST(gm_get(&gm_rec.blocks[id].state) == GM_BLOCK_UNUSED);
		INSIST(gm_rec.blocks[id].domain == number);
	}
	INSIST(id == GM_NONE);
	return bad;
}

/* @whole: what was allocated and freed in all was never reset. */
static int check_stat(const struct gm_stat stat[GM_POOL_CLASSES], const int64_t *sums, bool whole)
{
	int bad = 0;

	for (unsigned int pool = 0; pool < GM_POOL_CLASSES; pool++) {
		INSIST(stat[pool].current == sums[pool]);
		INSIST(stat[pool].peak >= stat[pool].current);
		INSIST(!whole || stat[pool].allocated - stat[pool].freed == stat[pool].current);
	}
	return bad;
}

static void tally(struct gm_stats *stats, const struct gm_tally *of, enum gm_stat_name name,
		  uint64_t in, uint64_t out)
{
	enum gm_pool_class class = of->size > GM_SMALL_BYTES ? GM_POOL_LARGE : GM_POOL_SMALL;

	for (unsigned int i = 0; i < 2; i++) {
		struct gm_stat *stat = &stats->stat[name][i ? class : GM_POOL_ALL];

		stat->current += (int64_t)(in - out);
		stat->allocated += (int64_t)in;
		stat->freed += (int64_t)out;
	}
}

static uint64_t tallies_of(const struct gm_domain *domain, const struct gm_tally **ret_tallies,
			   uint64_t n)
{
	const struct gm_tcache_record *record = &gm_rec.tcaches[n];

	*ret_tallies = record->tallies;
	return record->domain == domain - gm_rec.domains ? GM_TALLIES : 0;
}

/* The statistics with what is not yet counted in them. */
static struct gm_stats whole_stats(const struct gm_header *header, const struct gm_domain *domain)
{
	uint64_t records = items(header, GM_REGION_TCACHES);
	struct gm_stats stats = domain->stats;
	const struct gm_tally *t;

	for (uint64_t n = 1; n < records; n++)
		for (uint64_t left = tallies_of(domain, &t, n); left; left--, t++) {
			tally(&stats, t, GM_STAT_ALLOCATION, t->takes, t->puts);
			tally(&stats, t, GM_STAT_ACTIVE, t->takes, t->puts);
			tally(&stats, t, GM_STAT_ALLOCATED_BYTES, t->takes * t->size,
			      t->puts * t->size);
			tally(&stats, t, GM_STAT_ACTIVE_BYTES, t->takes * t->size,
			      t->puts * t->size);
			tally(&stats, t, GM_STAT_REQUESTED_BYTES, t->taken_bytes, t->put_bytes);
		}
	return stats;
}

/* Bytes of @kind in thread caches, which the domain's bytes and rows take for live. */
static uint64_t cached_bytes(const struct gm_header *header, const struct gm_domain *domain,
			     unsigned int kind)
{
	uint64_t records = items(header, GM_REGION_TCACHES), bytes = 0;
	const struct gm_tally *t;

	for (uint64_t n = 1; n < records; n++)
		for (uint64_t left = tallies_of(domain, &t, n); left; left--, t++)
			if (t->kind == kind)
				bytes += (t->puts - t->takes) * t->size;
	return bytes;
}

static int check_counts(const struct gm_header *header, const struct gm_domain *domain,
			const struct sums *sums)
{
	const struct gm_stats stats = whole_stats(header, domain), *s = &stats;
	bool whole = !domain->stats_resets;
	int bad = 0;

	for (unsigned int name = 0; name < GM_STAT_COUNT; name++)
		bad += check_stat(s->stat[name], sums->stat[name], whole);
	INSIST(!whole || s->num_device_alloc - s->num_device_free ==
			 sums->stat[GM_STAT_SEGMENT][GM_POOL_ALL]);
	for (unsigned int kind = 0; kind < GM_KIND_COUNT; kind++)
		INSIST(domain->live_bytes[kind] == sums->live[kind] + cached_bytes(header, domain, kind));
	return bad;
}

/* The rows of a domain: those of all modules add up to those of all kinds, and to the bytes. */
static int check_usage(const struct gm_header *header, uint32_t number, const struct sums *sums)
{
	int64_t by_kind[GM_KIND_COUNT] = { 0 }, by_pair[GM_KIND_COUNT] = { 0 }, by_module = 0;
	uint64_t rows = items(header, GM_REGION_USAGE);
	int bad = 0;

	for (uint64_t i = 1; i < rows; i++) {
		const struct gm_usage *row = &gm_rec.usage[i];

		if (row->domain != number)
			continue;
		INSIST(row->used == 1);
		INSIST(row->peak_bytes >= row->current_bytes && row->current_bytes >= 0);
		INSIST(row->allocated_bytes - row->freed_bytes == row->current_bytes);
		INSIST(row->allocations >= row->frees);
		if (row->kind == GM_USAGE_ALL_KINDS)
			by_module += row->current_bytes;
		else if (row->kind >= GM_KIND_COUNT)
			bad++;
		else if (row->module == GM_USAGE_ALL_MODULES)
			by_kind[row->kind] += row->current_bytes;
		else
			by_pair[row->kind] += row->current_bytes;
	}
	if (gm_get(&header->regions[GM_REGION_USAGE].refused))
		return bad;			/* what found no row is counted in none */
	for (unsigned int kind = 0; kind < GM_KIND_COUNT; kind++) {
		int64_t cached = (int64_t)cached_bytes(header, &gm_rec.domains[number], kind);

		by_module -= cached;
		by_kind[kind] -= cached;
		by_pair[kind] -= cached;
		INSIST(by_kind[kind] == (int64_t)sums->live[kind]);
		INSIST(by_pair[kind] == (int64_t)sums->live[kind]);
	}
	INSIST(by_module == sums->stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL]);
	return bad;
}

static int check_domain(const struct gm_header *header, uint32_t number)
{
	const struct gm_domain *domain = &gm_rec.domains[number];
	struct sums sums = { .live = { 0 } };
	int bad = 0;

	INSIST(!gm_get(&domain->undo_op));
	bad += check_segments(header, number, domain, &sums);
	bad += check_unused(header, number, domain);
	bad += check_counts(header, domain, &sums);
	bad += check_usage(header, number, &sums);
	return bad;
}

static uint32_t in_ranges(const struct gm_chunk_range *list, uint32_t count, uint32_t chunks)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += list[i].first < chunks && list[i].count <= chunks - list[i].first ?
		       list[i].count : chunks + 1;
	return sum;
}

/* The states of chunks in a thread's hands change without the lock: only their number is told. */
static int check_pool_locked(const struct gm_header *header)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;
	uint32_t owned = 0, idle;
	int bad = 0;

	for (uint32_t i = 1; i < gm_rec.slots_used; i++) {
		const struct gm_slot *slot = &gm_rec.slots[i];

		owned += slot->run.count;
		for (uint32_t k = 0; k < slot->run.count; k++)
			INSIST(slot->run.chunks[k] < pool->fresh);
	}
	for (uint32_t i = 0; i < pool->closed_count; i++) {
		uint32_t index = pool->closed[(pool->closed_first + i) % pool->chunks];
		const struct gm_chunk *chunk = (const void *)(gm_rec.events +
							      (uint64_t)index * GM_CHUNK_BYTES);

		INSIST(index < pool->fresh);
		INSIST(gm_get(&chunk->state) == GM_CHUNK_CLOSED || !gm_get(&chunk->generation));
	}
	idle = in_ranges(pool->ready, pool->ready_count, pool->fresh) +
	       in_ranges(pool->unbacked, pool->unbacked_count, pool->fresh);
	INSIST(owned == pool->owned);
	INSIST(gm_rec.shared_slot.run.count <= 1);
	if (!gm_get(&pool->growing))	/* else some are in nobody's hands */
		INSIST(owned + gm_rec.shared_slot.run.count + pool->closed_count + idle ==
		       pool->fresh);
	INSIST(pool->fresh <= pool->chunks);
	INSIST((uint64_t)pool->fresh * GM_CHUNK_BYTES ==
	       gm_get(&header->regions[GM_REGION_EVENTS].used));
	return bad;
}

static int check_regions_locked(const struct gm_header *header)
{
	uint64_t populated = GM_HEADER_BYTES;
	int bad = 0;

	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		const struct gm_region *region = &header->regions[r];

		INSIST(gm_get(&region->used) <= gm_get(&region->populated));
		INSIST(gm_get(&region->populated) <= region->capacity);
		INSIST(region->offset + region->capacity <= header->file_bytes);
		populated += gm_get(&region->populated);
	}
	INSIST(populated == gm_rec.populated);
	INSIST(gm_rec.populated <= gm_rec.budget);
	INSIST(!gm_get(&gm_rec.undo_overflows));
	return bad;
}

int gm_recorder_check(void)
{
	const struct gm_header *header = gm_header_get();
	int bad = 0;

	if (!header)
		return 0;
	for (uint32_t d = 0; d < GM_DOMAINS; d++) {
		struct gm_change change;

		if (gm_change_enter(&change, (uint8_t)d, 0))
			return bad + 1;
		gm_ledger_settle(&change);
		if (gm_caches_hold((uint8_t)d)) {
			bad += check_domain(header, d);
			gm_caches_release((uint8_t)d);
		} else {
			bad++;
		}
		gm_change_leave(&change);
	}
	if (!gm_lock(&gm_rec.journal))
		return bad + 1;
	bad += check_pool_locked(header);
	bad += check_regions_locked(header);
	gm_unlock(&gm_rec.journal);
	return bad;
}
