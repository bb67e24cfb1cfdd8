/*
 * sites.c - make the rows of SITES, and number the peaks: see sites.h.
 */
#include "recorder/record/sites.h"

#include "recorder/journal/journal.h"

#define HALF ((GM_SITE_NUMBER + 1) / 2)

static uint32_t find(_Atomic(uint32_t) *list, uint64_t key)
{
	uint32_t id = gm_get_acquire(list);

	while (id && gm_rec.sites[id].key != key)
		id = gm_rec.sites[id].next;
	return id;
}

/* Add a row at the head of @list, because the newest row of a stack is the one most often needed next. */
static uint32_t add_locked(struct gm_header *header, _Atomic(uint32_t) *list, uint64_t key)
{
	struct gm_region *region = &header->regions[GM_REGION_SITES];
	uint64_t used = gm_get(&region->used);
	struct gm_site *site;
	uint32_t id;

	if (gm_region_reserve_locked(header, GM_REGION_SITES, used + sizeof(*site)) < 0) {
		gm_set(&gm_rec.sites_full, 1);
		return 0;
	}
	id = (uint32_t)(used / sizeof(*site));
	site = &gm_rec.sites[id];
	site->key = key;
	site->next = gm_get(list);
	gm_set_release(&region->used, used + sizeof(*site));
	gm_set_release(list, id);
	return id;
}

uint32_t gm_site_make(_Atomic(uint32_t) *list, uint64_t key, bool nested)
{
	struct gm_header *header = gm_header_get();
	uint32_t id = find(list, key);

	if (gm_likely(id))
		return id;
	/* Once the table is full, do not try to grow it again, because that would take one more lock for each block. */
	if (gm_get(&gm_rec.sites_full) || !gm_lock_unless_nested(&gm_rec.journal, nested)) {
		gm_count(&header->regions[GM_REGION_SITES].refused, 1);
		return 0;
	}
	id = find(list, key);
	if (!id)
		id = add_locked(header, list, key);
	gm_unlock(&gm_rec.journal);
	return id;
}

/* @number begins one half of the numbers. In all rows of @domain clear the saved numbers of the other half, because
 * those come again half a million peaks from now. */
__attribute__((noinline))
static void forget(const struct gm_domain *domain, uint64_t number)
{
	uint64_t count = gm_get_acquire(&gm_region(GM_REGION_SITES)->used) / sizeof(struct gm_site);
	bool upper = (number & GM_SITE_NUMBER) < HALF;

	for (uint64_t id = 1; id < count; id++) {
		struct gm_site *site = &gm_rec.sites[id];
		uint64_t saved = gm_get(&site->saved);

		if (gm_site_domain(site) == (unsigned int)(domain - gm_rec.domains) &&
		    ((saved & GM_SITE_NUMBER) >= HALF) == upper)
			atomic_compare_exchange_strong_explicit(&site->saved, &saved, 0, memory_order_relaxed,
								memory_order_relaxed);
	}
}

static uint64_t after(uint64_t peak, int64_t total)
{
	uint64_t number = (peak + 1) & GM_SITE_NUMBER;

	return gm_site_pack(total, number ? number : 1);
}

bool gm_site_next_peak(struct gm_domain *domain, uint64_t was, int64_t total)
{
	uint64_t next = after(was, total);

	if (!atomic_compare_exchange_strong_explicit(&domain->peak, &was, next, memory_order_acq_rel,
						     memory_order_relaxed))
		return false;
	gm_set(&domain->peak_tsc, gm_stamp());
	if (gm_unlikely((next & GM_SITE_NUMBER) == HALF || (next & GM_SITE_NUMBER) == 1))
		forget(domain, next);
	return true;
}

void gm_site_reset_peak(struct gm_domain *domain, int64_t total)
{
	while (!gm_site_next_peak(domain, gm_get(&domain->peak), total))
		;
}
