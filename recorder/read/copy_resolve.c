/*
 * copy_resolve.c - resolve a journal copy: take half-done changes back, count the tallies of thread caches,
 * sort the live segments.
 *
 * Every offset and id is checked before it is followed, and the size of a table bounds every loop. Thread
 * context: one thread for each copy.
 */
#include "recorder/read/copy_internal.h"

#include <errno.h>
#include <string.h>

/* May an undo entry of @domain name the word at @offset? Undo areas hold only words of the tables. */
static bool may_undo(const struct gm_copy *copy, unsigned int domain, uint64_t offset)
{
	static const enum gm_region_id tables[] = {
		GM_REGION_SEGMENTS, GM_REGION_BLOCKS, GM_REGION_USAGE, GM_REGION_TCACHES,
		GM_REGION_SITES
	};
	uint64_t own = (uint64_t)((const uint8_t *)gm_copy_domain(copy, domain) - copy->base);

	if (offset % 8)
		return false;
	if (offset >= own && offset < own + offsetof(struct gm_domain, undo_op))
		return true;
	for (unsigned int i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		uint64_t first = copy->header->regions[tables[i]].offset;

		if (offset >= first && offset - first < (copy->copied[tables[i]] & ~UINT64_C(7)))
			return true;
	}
	return false;
}

static void put_back(struct gm_copy *copy, unsigned int domain, uint64_t offset, uint64_t old)
{
	if (may_undo(copy, domain, offset))
		*(uint64_t *)(void *)(copy->base + offset) = old;
	else
		copy->damage++;
}

/* Apply the entries, the latest first: if a word was saved twice, its older value must win. */
static void undo_entries(struct gm_copy *copy, unsigned int domain,
			 const struct gm_undo_entry *entries, uint32_t count)
{
	uint8_t starts[GM_UNDO_ENTRIES];
	uint32_t found = 0;

	_Static_assert(GM_UNDO_ENTRIES <= 256, "a place fits in a byte");
	for (uint32_t at = 0; at < count; found++) {
		const struct gm_undo_entry *entry = &entries[at];

		starts[found] = (uint8_t)at++;
		if (!(entry->offset & GM_UNDO_RANGE))
			continue;
		if (entry->old == 0 || entry->old > 2 * (uint64_t)(count - at)) {
			copy->damage++;	/* and the next entry may begin anywhere */
			break;
		}
		at += (uint32_t)(entry->old + 1) / 2;
	}
	while (found--) {
		const struct gm_undo_entry *entry = &entries[starts[found]];
		const uint64_t *words = (const void *)(entry + 1);

		if (!(entry->offset & GM_UNDO_RANGE))
			put_back(copy, domain, entry->offset, entry->old);
		else
			for (uint64_t i = 0; i < entry->old; i++)
				put_back(copy, domain,
					 (entry->offset & ~GM_UNDO_RANGE) + i * sizeof(*words),
					 words[i]);
	}
}

/* Take back the change that a thread was making in its thread cache and one of its blocks. */
static void undo_tcache(struct gm_copy *copy, struct gm_tcache_record *tcache)
{
	struct gm_undo_entry entries[GM_TCACHE_UNDO];
	uint32_t count = tcache->undo_count;

	if (!tcache->undo_op)
		return;
	if (count > GM_TCACHE_UNDO || tcache->domain >= GM_DOMAINS) {
		copy->damage++;
		return;
	}
	memcpy(entries, tcache->undo, sizeof(entries));	/* a damaged entry may name itself */
	undo_entries(copy, tcache->domain, entries, count);
	copy->undone++;
}

static void resolve_undo(struct gm_copy *copy)
{
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		struct gm_domain *domain = gm_copy_domain(copy, d);
		uint32_t count;

		if (!domain || !domain->undo_op)
			continue;
		count = domain->undo_count;
		if (count > GM_UNDO_ENTRIES) {
			count = GM_UNDO_ENTRIES;
			copy->damage++;
		}
		undo_entries(copy, d, domain->undo, count);
		copy->undone++;
	}
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_TCACHES); i++)
		undo_tcache(copy, gm_copy_tcache(copy, i));
}

/* ---- thread caches: their tallies are counted. Their blocks become free blocks, which a copy does not
 * merge with free neighbours ---- */

void gm_copy_count(struct gm_copy *copy, const struct gm_counted *of, const struct gm_flow *flow)
{
	struct gm_domain *domain = gm_copy_domain(copy, of->domain);

	domain->live_bytes[of->kind] += flow->in_bytes - flow->out_bytes;
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_USAGE); i++) {
		struct gm_usage *row = (struct gm_usage *)gm_copy_usage(copy, i);
		bool of_all = row->kind == GM_USAGE_ALL_KINDS && of->kind != GM_KIND_IPC;

		if (row->used == 1 && row->domain == of->domain &&
		    (row->kind == of->kind || of_all) &&
		    (row->module == of->module || row->module == GM_USAGE_ALL_MODULES))
			gm_usage_move(row, flow);
	}
}

static void count_tally(struct gm_copy *copy, uint8_t d, const struct gm_tally *tally)
{
	struct gm_counted of = { tally->module, d, tally->kind };
	struct gm_flow flow = gm_tally_flow(tally);

	if (!flow.in && !flow.out)
		return;
	if (tally->kind >= GM_KIND_COUNT) {
		copy->damage++;
		return;
	}
	gm_tally_count(tally, &gm_copy_domain(copy, d)->stats);
	gm_copy_count(copy, &of, &flow);
}

static void count_thread_cache(struct gm_copy *copy, struct gm_tcache_record *tcache)
{
	struct gm_domain *domain = gm_copy_domain(copy, tcache->domain);

	if (!domain) {
		copy->damage++;
		return;
	}
	domain->counts.events += tcache->counts.events;
	domain->counts.small += tcache->counts.small;
	domain->counts.left_out += tcache->counts.left_out;
	domain->counts.paused += tcache->counts.paused;
	for (unsigned int i = 0; i < GM_TALLIES; i++)
		count_tally(copy, tcache->domain, &tcache->tallies[i]);
	memset(&tcache->counts, 0, sizeof(tcache->counts));
	memset(tcache->tallies, 0, sizeof(tcache->tallies));
}

static void free_block(const struct gm_copy *copy, struct gm_block *block)
{
	const struct gm_segment *segment = gm_copy_segment(copy, block->segment);
	struct gm_domain *domain = gm_copy_domain(copy, block->domain);

	block->state = GM_BLOCK_INACTIVE;
	/* As in PyTorch, free memory of expandable segments is no inactive split, because it can be given back page
	 * by page. */
	if (!domain || !segment || segment->flags & GM_SEGMENT_EXPANDABLE || !(block->prev || block->next))
		return;
	gm_stats_move(&domain->stats, GM_POOL_SMALL, GM_STAT_INACTIVE_SPLIT, 1, 0);
	gm_stats_move(&domain->stats, GM_POOL_SMALL, GM_STAT_INACTIVE_SPLIT_BYTES, block->size, 0);
}

static void resolve_thread_caches(struct gm_copy *copy)
{
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_TCACHES); i++)
		count_thread_cache(copy, gm_copy_tcache(copy, i));
	for (uint32_t id = 1; id < gm_copy_items(copy, GM_REGION_BLOCKS); id++) {
		struct gm_block *block = gm_copy_block(copy, id);

		if (block && block->state == GM_BLOCK_CACHED)
			free_block(copy, block);
	}
}

/* ---- the live segments ---- */

static int resolve_segments(struct gm_copy *copy)
{
	size_t items = gm_copy_items(copy, GM_REGION_SEGMENTS), count = 0;
	struct gm_pair *pairs = gm_scratch_get(&copy->scratch, (items + 1) * sizeof(*pairs));
	struct gm_pair *scratch = gm_scratch_get(&copy->scratch, (items + 1) * sizeof(*scratch));
	struct gm_pair *order;

	copy->segments = gm_scratch_get(&copy->scratch, (items + 1) * sizeof(*copy->segments));
	if (!pairs || !scratch || !copy->segments)
		return -ENOMEM;
	for (uint32_t id = 1; id < items; id++) {
		const struct gm_segment *segment = gm_copy_segment(copy, id);

		if (segment)
			pairs[count++] = (struct gm_pair){ segment->address, id };
	}
	order = gm_pairs_sort(pairs, scratch, count);
	for (size_t i = 0; i < count; i++)
		order[i].key = gm_copy_segment(copy, (uint32_t)order[i].value)->domain;
	order = gm_pairs_sort(order, order == pairs ? scratch : pairs, count);
	for (size_t i = 0; i < count; i++)
		copy->segments[i] = (uint32_t)order[i].value;
	copy->segment_count = count;
	gm_scratch_drop(&copy->scratch, pairs);
	gm_scratch_drop(&copy->scratch, scratch);
	return 0;
}

int gm_copy_resolve(struct gm_copy *copy, uint64_t max_events)
{
	int r;

	resolve_undo(copy);
	gm_resolve_sites(copy, false);
	resolve_thread_caches(copy);
	r = gm_resolve_lives(copy);
	if (!r)
		r = gm_resolve_flights(copy);
	if (!r)
		r = resolve_segments(copy);
	if (!r)
		r = gm_resolve_events(copy, max_events);
	return r;
}
