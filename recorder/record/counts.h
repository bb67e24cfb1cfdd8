/*
 * counts.h - what a change of the tables does to the counters: statistics, usage rows, live bytes.
 *
 * Thread context: the holder of the domain's lock, inside a transaction. What counts where is said
 * in allocator/table.h.
 */
#ifndef GM_RECORDER_COUNTS_H
#define GM_RECORDER_COUNTS_H

#include "recorder/record/txn.h"

/* @count +1: a segment with one block comes; -1: it goes; 0: its bytes change. */
struct gm_delta {
	struct gm_domain *domain;
	int64_t count, bytes, requested;	/* of one sign where @count is not 0 */
	struct gm_usage *rows[3];	/* that it counts in; NULL: none */
	uint8_t kind, pool;		/* enum gm_pool_class: small or large */
	bool in_stats, in_live;
};

static inline uint32_t gm_usage_key(uint8_t domain, uint16_t module, uint8_t kind)
{
	return UINT32_C(1) << 31 | (uint32_t)domain << 20 | (uint32_t)(kind & 15) << 16 | module;
}

/* Find or make the rows of (domain, module, kind), as the domain's last ones. */
bool gm_delta_find_rows(struct gm_domain_state *state, uint8_t domain, uint16_t module,
			uint8_t kind, bool nested);

/* What a segment counts in, its sign and sizes yet to be set. Finds or makes the usage rows.
 * Returns false when the journal lock could not be had. */
static inline __attribute__((always_inline)) bool
gm_delta_init(struct gm_delta *delta, uint8_t domain, uint16_t module, uint8_t kind, uint8_t flags,
	      bool nested)
{
	struct gm_domain_state *state = &gm_rec.domain[domain];
	bool registered = flags & GM_SEGMENT_REGISTERED;

	if (!registered && gm_unlikely(state->last_key != gm_usage_key(domain, module, kind)) &&
	    !gm_delta_find_rows(state, domain, module, kind, nested))
		return false;
	delta->domain = &gm_rec.domains[domain];
	delta->count = delta->bytes = delta->requested = 0;
	for (unsigned int i = 0; i < 3; i++)
		delta->rows[i] = registered ? NULL : state->last_rows[i];
	delta->kind = kind;
	delta->pool = flags & GM_SEGMENT_SMALL ? GM_POOL_SMALL : GM_POOL_LARGE;
	delta->in_stats = !registered && kind != GM_KIND_IPC;
	delta->in_live = !registered;
	return true;
}

/* What is added to a statistic: to its current value, and to what was allocated or freed in all. */
struct gm_step { int64_t by, up, down; };

static inline __attribute__((always_inline)) struct gm_step gm_step_of(int64_t by, int sign)
{
	if (sign > 0)
		return (struct gm_step){ by, by, 0 };
	if (sign < 0)
		return (struct gm_step){ by, 0, -by };
	return (struct gm_step){ by, by > 0 ? by : 0, by < 0 ? -by : 0 };
}

/* A step of 0 changes nothing, and a peak is never below what is current. */
static inline __attribute__((always_inline)) void gm_stat_add(struct gm_stat *stat,
							      struct gm_step step, int sign)
{
	int64_t current = stat->current + step.by;

	if (sign >= 0) {
		stat->peak = current > stat->peak ? current : stat->peak;
		stat->allocated += step.up;
	}
	if (sign <= 0)
		stat->freed += step.down;
	stat->current = current;
}

#define GM_STAT_WORDS (sizeof(struct gm_stat) / sizeof(uint64_t))

/* The statistics that a segment with one block moves. Written out: this is the most of what a
 * record costs, and compilers keep a loop. */
static inline __attribute__((always_inline)) void gm_stats_save(const struct gm_stats *stats,
								unsigned int pool,
								struct gm_txn *txn)
{
	gm_txn_save_range(txn, &stats->stat[GM_STAT_ALLOCATION][pool], GM_STAT_WORDS);
	gm_txn_save_range(txn, &stats->stat[GM_STAT_SEGMENT][pool], GM_STAT_WORDS);
	gm_txn_save_range(txn, &stats->stat[GM_STAT_ACTIVE][pool], GM_STAT_WORDS);
	gm_txn_save_range(txn, &stats->stat[GM_STAT_ALLOCATED_BYTES][pool], GM_STAT_WORDS);
	gm_txn_save_range(txn, &stats->stat[GM_STAT_RESERVED_BYTES][pool], GM_STAT_WORDS);
	gm_txn_save_range(txn, &stats->stat[GM_STAT_ACTIVE_BYTES][pool], GM_STAT_WORDS);
	gm_txn_save_range(txn, &stats->stat[GM_STAT_REQUESTED_BYTES][pool], GM_STAT_WORDS);
}

static inline __attribute__((always_inline)) void
gm_stats_add(struct gm_stats *stats, unsigned int pool, struct gm_step count, struct gm_step bytes,
	     struct gm_step requested, int sign)
{
	gm_stat_add(&stats->stat[GM_STAT_ALLOCATION][pool], count, sign);
	gm_stat_add(&stats->stat[GM_STAT_SEGMENT][pool], count, sign);
	gm_stat_add(&stats->stat[GM_STAT_ACTIVE][pool], count, sign);
	gm_stat_add(&stats->stat[GM_STAT_ALLOCATED_BYTES][pool], bytes, sign);
	gm_stat_add(&stats->stat[GM_STAT_RESERVED_BYTES][pool], bytes, sign);
	gm_stat_add(&stats->stat[GM_STAT_ACTIVE_BYTES][pool], bytes, sign);
	gm_stat_add(&stats->stat[GM_STAT_REQUESTED_BYTES][pool], requested, sign);
}

#define GM_ROW_WORDS 6
_Static_assert(offsetof(struct gm_usage, frees) + sizeof(int64_t) -
	       offsetof(struct gm_usage, current_bytes) == GM_ROW_WORDS * sizeof(uint64_t),
	       "what changes of a row lies together");
_Static_assert(offsetof(struct gm_stats, num_device_free) ==
	       offsetof(struct gm_stats, num_device_alloc) + sizeof(int64_t), "as do these");

static inline __attribute__((always_inline)) void gm_row_add(struct gm_usage *row, int64_t count,
							     struct gm_step bytes, int sign)
{
	int64_t current = row->current_bytes + bytes.by;

	if (sign >= 0) {
		row->peak_bytes = current > row->peak_bytes ? current : row->peak_bytes;
		row->allocated_bytes += bytes.up;
		row->allocations += count > 0;
	}
	if (sign <= 0) {
		row->freed_bytes += bytes.down;
		row->frees += count < 0;
	}
	row->current_bytes = current;
}

/* Save and change the counters, inside @txn; at most 62 entries. @sign, a constant: that of the
 * count, for which neither bytes nor requested bytes have the other one. */
static inline __attribute__((always_inline)) void gm_delta_apply(const struct gm_delta *delta,
								 struct gm_txn *txn, int sign)
{
	struct gm_stats *stats = &delta->domain->stats;
	const struct gm_step count = gm_step_of(sign ? sign : delta->count, sign);
	const struct gm_step bytes = gm_step_of(delta->bytes, sign);
	const struct gm_step requested = gm_step_of(delta->requested, sign);

	if (delta->in_stats) {
		gm_stats_save(stats, GM_POOL_ALL, txn);
		gm_stats_save(stats, delta->pool, txn);
		gm_txn_save_range(txn, &stats->num_device_alloc, 2);	/* and num_device_free */
	}
	if (delta->in_live)
		gm_txn_save(txn, &delta->domain->live_bytes[delta->kind]);
	for (unsigned int i = 0; i < 3; i++)
		if (delta->rows[i])
			gm_txn_save_range(txn, &delta->rows[i]->current_bytes, GM_ROW_WORDS);
	gm_txn_arm(txn);
	if (delta->in_stats) {
		gm_stats_add(stats, GM_POOL_ALL, count, bytes, requested, sign);
		gm_stats_add(stats, delta->pool, count, bytes, requested, sign);
		stats->num_device_alloc += count.by > 0;
		stats->num_device_free += count.by < 0;
	}
	if (delta->in_live)
		delta->domain->live_bytes[delta->kind] += (uint64_t)delta->bytes;
	for (unsigned int i = 0; i < 3; i++)
		if (delta->rows[i])
			gm_row_add(delta->rows[i], count.by, bytes, sign);
}

#endif
