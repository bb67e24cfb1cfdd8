/*
 * counts.c - what a change of the tables does to the counters: see counts.h.
 *
 * The usage rows of a (domain, module, kind) are found by a table that only ever gets entries:
 * looked up without a lock, filled under the journal lock.
 */
#include "recorder/counts.h"

/* Add @by to a statistic, saving what changes. */
static inline __attribute__((always_inline)) void stat_add(struct gm_stat *stat, int64_t by,
							   struct gm_txn *txn)
{
	int64_t current = stat->current + by;

	if (by > 0) {
		gm_txn_save(txn, &stat->current);
		gm_txn_save(txn, &stat->allocated);
		if (gm_unlikely(current > stat->peak)) {
			gm_txn_save(txn, &stat->peak);
			gm_txn_arm(txn);
			stat->peak = current;
		}
		gm_txn_arm(txn);
		stat->allocated += by;
		stat->current = current;
	} else if (by < 0) {
		gm_txn_save(txn, &stat->current);
		gm_txn_save(txn, &stat->freed);
		gm_txn_arm(txn);
		stat->freed -= by;
		stat->current = current;
	}
}

/* What a segment with one block moves, in all of a domain or in one of its pools. */
static inline __attribute__((always_inline)) void pool_add(struct gm_stats *stats,
							   unsigned int pool,
							   const struct gm_delta *delta,
							   struct gm_txn *txn)
{
	int64_t count = delta->count, bytes = delta->bytes;

	stat_add(&stats->stat[GM_STAT_ALLOCATION][pool], count, txn);
	stat_add(&stats->stat[GM_STAT_SEGMENT][pool], count, txn);
	stat_add(&stats->stat[GM_STAT_ACTIVE][pool], count, txn);
	stat_add(&stats->stat[GM_STAT_ALLOCATED_BYTES][pool], bytes, txn);
	stat_add(&stats->stat[GM_STAT_RESERVED_BYTES][pool], bytes, txn);
	stat_add(&stats->stat[GM_STAT_ACTIVE_BYTES][pool], bytes, txn);
	stat_add(&stats->stat[GM_STAT_REQUESTED_BYTES][pool], delta->requested, txn);
}

static inline __attribute__((always_inline)) void row_add(struct gm_usage *row,
							  const struct gm_delta *delta,
							  struct gm_txn *txn)
{
	int64_t current = row->current_bytes + delta->bytes;
	int64_t *moved = delta->bytes < 0 ? &row->freed_bytes : &row->allocated_bytes;

	gm_txn_save(txn, &row->current_bytes);
	gm_txn_save(txn, moved);
	if (gm_unlikely(current > row->peak_bytes)) {
		gm_txn_save(txn, &row->peak_bytes);
		gm_txn_arm(txn);
		row->peak_bytes = current;
	}
	if (delta->count)
		gm_txn_save(txn, delta->count > 0 ? &row->allocations : &row->frees);
	gm_txn_arm(txn);
	*moved += delta->bytes < 0 ? -delta->bytes : delta->bytes;
	row->current_bytes = current;
	if (delta->count > 0)
		row->allocations++;
	else if (delta->count < 0)
		row->frees++;
}

void gm_delta_apply(const struct gm_delta *with, struct gm_txn *ret_txn)
{
	/* Copies, so that the compiler knows them apart from what they change. */
	const struct gm_delta delta = *with;
	struct gm_txn txn = *ret_txn;
	struct gm_stats *stats = &delta.domain->stats;

	if (delta.in_stats) {
		pool_add(stats, GM_POOL_ALL, &delta, &txn);
		pool_add(stats, delta.pool, &delta, &txn);
		gm_txn_save(&txn, &stats->num_device_alloc);
		gm_txn_save(&txn, &stats->num_device_free);
		gm_txn_arm(&txn);
		stats->num_device_alloc += delta.count > 0;
		stats->num_device_free += delta.count < 0;
	}
	if (delta.in_live) {
		gm_txn_save(&txn, &delta.domain->live_bytes[delta.kind]);
		gm_txn_arm(&txn);
		delta.domain->live_bytes[delta.kind] += (uint64_t)delta.bytes;
	}
	for (unsigned int i = 0; i < 3; i++)
		if (delta.rows[i])
			row_add(delta.rows[i], &delta, &txn);
	*ret_txn = txn;
}

static uint32_t key_of(uint8_t domain, uint16_t module, uint8_t kind)
{
	return UINT32_C(1) << 31 | (uint32_t)domain << 20 | (uint32_t)(kind & 15) << 16 | module;
}

/* The entry of @key, or the free one where it would go; NULL when the table is full. */
static struct gm_usage_entry *find(uint32_t key)
{
	uint32_t at = key * UINT32_C(0x9e3779b1) >> 18;

	for (unsigned int i = 0; i < 64; i++, at++) {
		struct gm_usage_entry *entry = &gm_rec.lookup[at % GM_USAGE_LOOKUP];
		uint32_t there = gm_get_acquire(&entry->key);

		if (there == key || !there)
			return entry;
	}
	return NULL;
}

/* The row of (domain, module, kind), made when it is new; 0 when there is no room. */
static uint32_t row_locked(struct gm_header *header, uint8_t domain, uint16_t module, uint8_t kind)
{
	struct gm_region *region = &header->regions[GM_REGION_USAGE];
	struct gm_usage_entry *entry = find(key_of(domain, module, kind));
	uint64_t used = gm_get(&region->used);
	struct gm_usage *row;

	if (!entry)
		return 0;
	if (gm_get(&entry->key))
		return entry->rows.both;
	if (gm_region_reserve_locked(header, GM_REGION_USAGE, used + sizeof(*row)) < 0)
		return 0;
	entry->rows.both = (uint32_t)(used / sizeof(*row));
	row = &gm_rec.usage[entry->rows.both];
	row->module = module;
	row->domain = domain;
	row->kind = kind;
	row->used = 1;
	gm_set_release(&region->used, used + sizeof(*row));
	gm_set_release(&entry->key, key_of(domain, module, kind));
	return entry->rows.both;
}

/* Find the rows of (module, kind), (all modules, kind), (module, all kinds). What is found the
 * first time is found ever after, even if it is nothing: an allocation and its free must count in
 * the same rows. Returns false when it cannot be told now. */
static bool rows_of(uint8_t domain, uint16_t module, uint8_t kind, bool nested,
		    struct gm_usage_rows *ret_rows)
{
	uint32_t key = key_of(domain, module, kind) | UINT32_C(1) << 30;
	struct gm_usage_entry *entry = find(key);
	struct gm_header *header = gm_header_get();

	*ret_rows = (struct gm_usage_rows){ 0 };
	if (!entry)
		return true;
	if (gm_likely(gm_get(&entry->key) == key)) {
		*ret_rows = entry->rows;
		return true;
	}
	if (!gm_lock_within(&gm_rec.journal, gm_patience(nested)))
		return false;
	ret_rows->both = row_locked(header, domain, module, kind);
	ret_rows->kind = row_locked(header, domain, GM_USAGE_ALL_MODULES, kind);
	if (kind != GM_KIND_IPC)	/* another process holds those bytes, not this module */
		ret_rows->module = row_locked(header, domain, module, GM_USAGE_ALL_KINDS);
	entry = find(key);
	if (!entry) {
		*ret_rows = (struct gm_usage_rows){ 0 };
	} else if (gm_get(&entry->key)) {
		*ret_rows = entry->rows;	/* another thread was faster */
	} else {
		entry->rows = *ret_rows;
		gm_set_release(&entry->key, key);
	}
	gm_unlock(&gm_rec.journal);
	return true;
}

bool gm_delta_init(struct gm_delta *delta, uint8_t domain, uint16_t module, uint8_t kind,
		   uint8_t flags, bool nested)
{
	bool registered = flags & GM_SEGMENT_REGISTERED;
	struct gm_usage_rows rows = { 0 };

	if (!registered && !rows_of(domain, module, kind, nested, &rows))
		return false;
	*delta = (struct gm_delta){
		.domain = &gm_rec.domains[domain],
		.rows = { rows.both ? &gm_rec.usage[rows.both] : NULL,
			  rows.module ? &gm_rec.usage[rows.module] : NULL,
			  rows.kind ? &gm_rec.usage[rows.kind] : NULL },
		.kind = kind,
		.pool = flags & GM_SEGMENT_SMALL ? GM_POOL_SMALL : GM_POOL_LARGE,
		.in_stats = !registered && kind != GM_KIND_IPC,
		.in_live = !registered,
	};
	return true;
}
