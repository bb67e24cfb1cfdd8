/*
 * pools.c - the domains of application pools, and the search for the driver's memory below them: see pools.h.
 */
#include "recorder/record/pools.h"

#include "recorder/journal/journal.h"
#include "recorder/record/tables.h"

uint8_t gm_record_pool(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key)
{
	struct gm_domain *domain;
	uint32_t number;

	if (!gm_header_get())
		return 0;
	number = gm_region_take(GM_REGION_DOMAINS, false);
	if (!number)
		return 0;
	domain = &gm_rec.domains[number];
	domain->stats.max_split_size = -1;
	domain->pool.device = device;
	domain->pool.name = name;
	domain->pool.key = key;
	gm_order();
	domain->pool.source = source;
	gm_set_release(&gm_rec.domain_count, number + 1);
	return (uint8_t)number;
}

static bool covers(const struct gm_segment *segment, uint64_t address)
{
	return address >= segment->address && address - segment->address < segment->size &&
	       !(segment->flags & GM_SEGMENT_UNMAPPED);
}

/* Is the address of this segment an address in memory, rather than a handle? */
static bool has_place(const struct gm_segment *segment)
{
	return segment->kind != GM_KIND_ARRAY && segment->kind != GM_KIND_GRAPH &&
	       segment->kind != GM_KIND_EXTERNAL && !(segment->flags & GM_SEGMENT_UNMAPPED);
}

static bool find_locked(const struct gm_domain *domain, uint64_t address, struct gm_piece *ret_piece,
			uint64_t *ret_low, uint64_t *ret_high)
{
	for (uint32_t id = domain->last_segment; id; id = gm_rec.segments[id].prev) {
		const struct gm_segment *segment = &gm_rec.segments[id];
		uint64_t end = segment->address + segment->size;

		if (!has_place(segment))
			continue;
		if (!covers(segment, address)) {
			if (end <= address && end > *ret_low)
				*ret_low = end;
			if (segment->address > address && segment->address < *ret_high)
				*ret_high = segment->address;
			continue;
		}
		if (gm_get(&segment->heap)) {	/* the caller has searched the blocks of heaps before */
			*ret_low = address;
			*ret_high = address + 1;
			return false;
		}
		*ret_piece = (struct gm_piece){
			.address = segment->address, .size = segment->size, .tsc = segment->tsc,
			.context = segment->context, .stack = segment->stack,
			.module = segment->module, .kind = segment->kind,
			.flags = segment->flags & GM_SEGMENT_EXPANDABLE,
		};
		return true;
	}
	return false;
}

bool gm_record_find(uint8_t number, uint64_t address, struct gm_piece *ret_piece, uint64_t *ret_low,
		    uint64_t *ret_high)
{
	struct gm_change change;
	bool found;

	*ret_low = 0;
	*ret_high = UINT64_MAX;
	if (gm_change_enter(&change, number, UINT64_MAX) < 0) {
		*ret_low = *ret_high = address;
		return false;
	}
	found = find_locked(change.domain, address, ret_piece, ret_low, ret_high);
	gm_change_leave(&change);
	return found;
}

uint32_t gm_record_outside_generation(uint8_t number)
{
	return gm_get(&gm_rec.domain[number].outside_generation);
}

uint32_t gm_record_context_of(uint32_t id)
{
	const struct gm_block *block = gm_block_at(gm_header_get(), id);

	return block ? gm_rec.segments[__atomic_load_n(&block->segment, __ATOMIC_RELAXED)].context : 0;
}

void gm_record_memory_of(uint8_t device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes)
{
	const struct gm_domain *domain = &gm_rec.domains[device];

	*ret_free_bytes = gm_get(&domain->free_bytes);
	*ret_total_bytes = __atomic_load_n(&domain->total_bytes, __ATOMIC_RELAXED);
}
