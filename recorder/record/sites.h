/*
 * sites.h - count the live bytes of each stack, now and at the peak: the rows of struct gm_site. journal/format.h says
 * what each word of a row means.
 *
 * The record of a stack has a list of rows: one for each domain, module and kind, made at the first such allocation.
 * Allocations without a stack have rows in a list of their domain. Rows are never removed. Row 0 collects the bytes of
 * allocations for which there was no room; readers skip it.
 *
 * Thread context: devices and the host: the holder of the domain's lock, inside a transaction that has saved @live of
 * the row. Pools: any thread, without a lock. Signal context: a handler that interrupts a record waits for nothing.
 */
#ifndef GM_RECORDER_SITES_H
#define GM_RECORDER_SITES_H

#include "recorder/journal/state.h"

/* Find the row with @key in @list, or add it. Returns its index; 0 when there was no room, or the journal lock was not
 * free in time (both counted). */
uint32_t gm_site_make(_Atomic(uint32_t) *list, uint64_t key, bool nested);

/* Number a new peak: store @total, from which the total of @domain is about to fall, in the domain's word @peak with
 * the next number. @was: that word, as the caller has read it. Returns false when another thread has changed the word
 * since. */
bool gm_site_next_peak(struct gm_domain *domain, uint64_t was, int64_t total);

/* Reset the peak of @domain to @total, the bytes that are live now. */
void gm_site_reset_peak(struct gm_domain *domain, int64_t total);

/* Find or make the row for allocations of @stack (GM_NONE: not known) in @domain. Returns as gm_site_make. */
static inline __attribute__((always_inline)) uint32_t
gm_site_find(uint8_t domain, uint32_t stack, uint16_t module, uint8_t kind, bool nested)
{
	struct gm_stack *of = (struct gm_stack *)(void *)(gm_rec.stack_area + stack);
	_Atomic(uint32_t) *list = gm_likely(stack) ? &of->sites : &gm_rec.domain[domain].sites;
	uint64_t key = gm_site_key(domain, stack, module, kind);
	uint32_t first = gm_get_acquire(list);

	return gm_likely(gm_rec.sites[first].key == key) ? first : gm_site_make(list, key, nested);
}

static inline uint64_t gm_site_pack(int64_t live, uint64_t number)
{
	uint64_t bytes = live > 0 ? gm_min_u64((uint64_t)live, GM_SITE_BYTES_MOST) : 0;

	return bytes << GM_SITE_NUMBER_BITS | (number & GM_SITE_NUMBER);
}

/* ---- devices and the host ---- */

/* Number the peak if the total of @domain is higher than the last numbered peak. Call before the total falls, or before
 * bytes move from one row to another. */
static inline void gm_site_leave_peak(struct gm_domain *domain)
{
	uint64_t peak = gm_get(&domain->peak);
	int64_t total = domain->stats.stat[GM_STAT_REQUESTED_BYTES][GM_POOL_ALL].current;

	if (gm_unlikely(total > (int64_t)(peak >> GM_SITE_NUMBER_BITS)))
		gm_site_next_peak(domain, peak, total);
}

static inline void gm_site_add(const struct gm_domain *domain, struct gm_site *site, uint64_t bytes)
{
	uint64_t peak = gm_get(&domain->peak), live = (uint64_t)gm_get(&site->live);

	if (gm_unlikely((gm_get(&site->saved) ^ peak) & GM_SITE_NUMBER))
		gm_set(&site->saved, gm_site_pack((int64_t)live, peak));
	gm_order();
	gm_set(&site->live, (int64_t)(live + bytes));
}

/* Count @block in row @id from now on. */
static inline void gm_site_in(const struct gm_domain *domain, struct gm_block *block, uint32_t id, uint32_t stack,
			      uint64_t bytes)
{
	gm_site_add(domain, &gm_rec.sites[id], bytes);
	block->site = id;
	__atomic_store_n(&block->site_bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&block->site_stack, stack, __ATOMIC_RELAXED);
}

/* Stop counting @block in its row. Call before the statistics change. */
static inline void gm_site_out(struct gm_domain *domain, struct gm_block *block)
{
	if (gm_likely(block->site_bytes))
		gm_site_leave_peak(domain);
	gm_site_add(domain, &gm_rec.sites[block->site], 0 - block->site_bytes);
	block->site = GM_NONE;
	__atomic_store_n(&block->site_bytes, 0, __ATOMIC_RELAXED);
}

/* Has a thread cache handed out @block to another stack than the one for which it counts, or with fewer bytes? Called
 * without a lock by the thread that owns the block: a flush may make this false at any time, and no other thread makes
 * it true. */
static inline bool gm_site_is_other(const struct gm_block *block, uint32_t stack, uint64_t bytes)
{
	return __atomic_load_n(&block->site_stack, __ATOMIC_RELAXED) != stack ||
	       __atomic_load_n(&block->site_bytes, __ATOMIC_RELAXED) != bytes;
}

/* ---- pools ---- */

/* Add @bytes to row @id. */
static inline void gm_site_pool_add(const struct gm_domain *domain, uint32_t id, int64_t bytes)
{
	struct gm_site *site = &gm_rec.sites[id];
	uint64_t saved = gm_get_acquire(&site->saved), peak = gm_get_acquire(&domain->peak);

	/* If another thread wins the compare-and-swap, the bytes that it saves are from before this change, too. */
	if (gm_unlikely((saved ^ peak) & GM_SITE_NUMBER))
		atomic_compare_exchange_strong_explicit(&site->saved, &saved,
							gm_site_pack(gm_get_acquire(&site->live), peak),
							memory_order_acq_rel, memory_order_relaxed);
	atomic_fetch_add_explicit(&site->live, bytes, memory_order_acq_rel);
}

/* Subtract @bytes from the total of a pool; number the peak first if the total is above it. The compare-and-swap fails
 * when the total has changed since it was compared with the peak. */
static inline void gm_site_pool_leave(struct gm_domain *domain, int64_t bytes)
{
	bool done = false;

	while (!done) {
		uint64_t peak = gm_get_acquire(&domain->peak);
		int64_t total = gm_get_acquire(&domain->pool.live_bytes);

		if (gm_unlikely(total > (int64_t)(peak >> GM_SITE_NUMBER_BITS)) &&
		    !gm_site_next_peak(domain, peak, total))
			continue;
		done = atomic_compare_exchange_strong_explicit(&domain->pool.live_bytes, &total, total - bytes,
							       memory_order_acq_rel, memory_order_relaxed);
	}
}

#endif
