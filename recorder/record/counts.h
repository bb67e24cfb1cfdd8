/*
 * counts.h - update the counters with each change of the tables: statistics, usage rows, live bytes.
 * allocator/table.h says which memory counts where.
 *
 * Thread context: the holder of the domain's lock, inside a transaction.
 */
#ifndef GM_RECORDER_COUNTS_H
#define GM_RECORDER_COUNTS_H

#include "recorder/record/txn.h"

/* One change of the counters: segments of one block each that are added or removed, or bytes by which one such
 * segment grows or shrinks. */
struct gm_delta {
	struct gm_domain *domain;
	struct gm_flow flow;
	struct gm_flow requested;	/* bytes that the program asked for; its counts are not used */
	struct gm_usage *rows[3];	/* usage rows to change; NULL: none */
	enum gm_pool_class pool;	/* small or large */
	uint8_t kind;
	bool in_stats, in_live;
	bool held;			/* a piece that an application pool holds */
};

static inline uint32_t gm_usage_key(uint8_t domain, uint16_t module, uint8_t kind)
{
	return UINT32_C(1) << 31 | (uint32_t)domain << 20 | (uint32_t)(kind & 15) << 16 | module;
}

/* Find or make the usage rows of (domain, module, kind) and store them in @state. Returns false when the journal
 * lock was not free in time. */
bool gm_delta_find_rows(struct gm_domain_state *state, uint8_t domain, uint16_t module,
			uint8_t kind, bool nested);

/* Set up @delta with the counters of a segment, finding or making its usage rows. The caller sets the flows. Returns
 * false when the journal lock was not free in time. */
static inline __attribute__((always_inline)) bool
gm_delta_init(struct gm_delta *delta, uint8_t domain, uint16_t module, uint8_t kind, uint8_t flags, bool nested)
{
	struct gm_domain_state *state = &gm_rec.domain[domain];
	bool held = domain >= GM_DOMAIN_POOLS;
	bool registered = held || flags & GM_SEGMENT_REGISTERED;

	if (!registered && gm_unlikely(state->last_key != gm_usage_key(domain, module, kind)) &&
	    !gm_delta_find_rows(state, domain, module, kind, nested))
		return false;
	*delta = (struct gm_delta){
		.domain = &gm_rec.domains[domain],
		.rows = { registered ? NULL : state->last_rows[0], registered ? NULL : state->last_rows[1],
			  registered ? NULL : state->last_rows[2] },
		.pool = flags & GM_SEGMENT_SMALL ? GM_POOL_SMALL : GM_POOL_LARGE, .kind = kind,
		.in_stats = !registered && kind != GM_KIND_IPC, .in_live = !registered, .held = held,
	};
	return true;
}

_Static_assert(offsetof(struct gm_usage, frees) + sizeof(int64_t) -
	       offsetof(struct gm_usage, current_bytes) == GM_USAGE_WORDS * sizeof(uint64_t),
	       "what changes of a row lies together");
_Static_assert(offsetof(struct gm_stats, num_device_free) ==
	       offsetof(struct gm_stats, num_device_alloc) + sizeof(int64_t), "as do these");

_Static_assert(GM_STAT_ALLOCATED_BYTES == GM_STAT_ALLOCATION + 1 &&
	       GM_STAT_ACTIVE_BYTES == GM_STAT_ACTIVE + 1 &&
	       GM_STAT_RESERVED_BYTES == GM_STAT_SEGMENT + 1, "bytes lie behind their count");

/* gm_delta_save_pair, gm_delta_move_pair: @count names a count of blocks or segments; the statistic behind it counts
 * their bytes. */
static inline __attribute__((always_inline)) void gm_delta_save_pair(const struct gm_delta *delta,
								     struct gm_txn *txn,
								     enum gm_stat_name count)
{
	gm_txn_save_range(txn, delta->domain->stats.stat[count], 2 * GM_STAT_WORDS);
}

static inline __attribute__((always_inline)) void gm_delta_move_pair(const struct gm_delta *delta,
								     enum gm_stat_name count)
{
	struct gm_stats *stats = &delta->domain->stats;
	const struct gm_flow *flow = &delta->flow;

	gm_stats_move(stats, delta->pool, count, flow->in, flow->out);
	gm_stats_move(stats, delta->pool, count + 1, flow->in_bytes, flow->out_bytes);
}

static inline __attribute__((always_inline)) void gm_delta_save_row(const struct gm_usage *row,
								    struct gm_txn *txn)
{
	if (row)
		gm_txn_save_range(txn, &row->current_bytes, GM_USAGE_WORDS);
}

static inline __attribute__((always_inline)) void gm_delta_move_row(struct gm_usage *row,
								    const struct gm_flow *flow)
{
	if (row)
		gm_usage_move(row, flow);
}

/* Save the counters in the undo area, before gm_txn_arm: at most 64 entries. */
static inline __attribute__((always_inline)) void gm_delta_save(const struct gm_delta *delta,
								struct gm_txn *txn)
{
	struct gm_stats *stats = &delta->domain->stats;

	if (gm_unlikely(delta->held)) {
		gm_delta_save_pair(delta, txn, GM_STAT_SEGMENT);
	} else if (delta->in_stats) {
		gm_delta_save_pair(delta, txn, GM_STAT_ALLOCATION);
		gm_delta_save_pair(delta, txn, GM_STAT_SEGMENT);
		gm_delta_save_pair(delta, txn, GM_STAT_ACTIVE);
		gm_txn_save_range(txn, stats->stat[GM_STAT_REQUESTED_BYTES], GM_STAT_WORDS);
		gm_txn_save_range(txn, &stats->num_device_alloc, 2);	/* and num_device_free */
	}
	if (delta->in_live)
		gm_txn_save(txn, &delta->domain->live_bytes[delta->kind]);
	gm_delta_save_row(delta->rows[0], txn);
	gm_delta_save_row(delta->rows[1], txn);
	gm_delta_save_row(delta->rows[2], txn);
}

/* Change the counters that gm_delta_save saved. */
static inline __attribute__((always_inline)) void gm_delta_apply(const struct gm_delta *delta)
{
	struct gm_stats *stats = &delta->domain->stats;
	const struct gm_flow *flow = &delta->flow, *requested = &delta->requested;

	if (gm_unlikely(delta->held)) {
		gm_delta_move_pair(delta, GM_STAT_SEGMENT);
	} else if (delta->in_stats) {
		gm_delta_move_pair(delta, GM_STAT_ALLOCATION);
		gm_delta_move_pair(delta, GM_STAT_SEGMENT);
		gm_delta_move_pair(delta, GM_STAT_ACTIVE);
		gm_stats_move(stats, delta->pool, GM_STAT_REQUESTED_BYTES, requested->in_bytes,
			      requested->out_bytes);
		stats->num_device_alloc += (int64_t)flow->in;
		stats->num_device_free += (int64_t)flow->out;
	}
	if (delta->in_live)
		delta->domain->live_bytes[delta->kind] += flow->in_bytes - flow->out_bytes;
	gm_delta_move_row(delta->rows[0], flow);
	gm_delta_move_row(delta->rows[1], flow);
	gm_delta_move_row(delta->rows[2], flow);
}

#endif
