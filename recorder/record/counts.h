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
	bool given, held;		/* in a pool's domain: a block that it handed out; a piece that it holds */
};

static inline uint32_t gm_usage_key(uint8_t domain, uint16_t module, uint8_t kind)
{
	return UINT32_C(1) << 31 | (uint32_t)domain << 20 | (uint32_t)(kind & 15) << 16 | module;
}

/* Find or make the rows of (domain, module, kind) and remember them in @state. False: the journal
 * lock could not be had. */
bool gm_delta_find_rows(struct gm_domain_state *state, uint8_t domain, uint16_t module,
			uint8_t kind, bool nested);

/* Set up @delta with what a segment counts in; the caller sets count and sizes. Finds or makes the
 * usage rows. Returns false when the journal lock could not be had. */
static inline __attribute__((always_inline)) bool
gm_delta_init(struct gm_delta *delta, uint8_t domain, uint16_t module, uint8_t kind, uint8_t flags,
	      bool nested)
{
	struct gm_domain_state *state = &gm_rec.domain[domain];
	bool pool = domain >= GM_DOMAIN_POOLS, held = flags & GM_SEGMENT_HELD;
	bool registered = flags & (GM_SEGMENT_REGISTERED | GM_SEGMENT_HELD);

	if (!registered && gm_unlikely(state->last_key != gm_usage_key(domain, module, kind)) &&
	    !gm_delta_find_rows(state, domain, module, kind, nested))
		return false;
	delta->domain = &gm_rec.domains[domain];
	delta->count = delta->bytes = delta->requested = 0;
	for (unsigned int i = 0; i < 3; i++)
		delta->rows[i] = registered ? NULL : state->last_rows[i];
	delta->kind = kind;
	delta->pool = flags & GM_SEGMENT_SMALL ? GM_POOL_SMALL : GM_POOL_LARGE;
	delta->in_stats = !registered && kind != GM_KIND_IPC && !pool;
	delta->in_live = !registered;
	delta->given = pool && !held;
	if (pool)
		delta->rows[0] = NULL;	/* (module, kind), which nobody asks of a pool */
	delta->held = held;
	return true;
}

_Static_assert(offsetof(struct gm_usage, frees) + sizeof(int64_t) -
	       offsetof(struct gm_usage, current_bytes) == GM_USAGE_WORDS * sizeof(uint64_t),
	       "what changes of a row lies together");
_Static_assert(offsetof(struct gm_stats, num_device_free) ==
	       offsetof(struct gm_stats, num_device_alloc) + sizeof(int64_t), "as do these");

static inline __attribute__((always_inline)) void
gm_delta_stat(const struct gm_delta *delta, struct gm_txn *txn, enum gm_stat_name name, int64_t by)
{
	struct gm_stats *stats = &delta->domain->stats;

	gm_txn_save_range(txn, stats->stat[name], GM_STAT_WORDS);
	gm_txn_arm(txn);
	gm_stats_move(stats, delta->pool, name, gm_more(by), gm_less(by));
}

static inline __attribute__((always_inline)) void gm_delta_stats(const struct gm_delta *delta,
								 struct gm_txn *txn)
{
	struct gm_stats *stats = &delta->domain->stats;

	gm_delta_stat(delta, txn, GM_STAT_ALLOCATION, delta->count);
	gm_delta_stat(delta, txn, GM_STAT_SEGMENT, delta->count);
	gm_delta_stat(delta, txn, GM_STAT_ACTIVE, delta->count);
	gm_delta_stat(delta, txn, GM_STAT_ALLOCATED_BYTES, delta->bytes);
	gm_delta_stat(delta, txn, GM_STAT_RESERVED_BYTES, delta->bytes);
	gm_delta_stat(delta, txn, GM_STAT_ACTIVE_BYTES, delta->bytes);
	gm_delta_stat(delta, txn, GM_STAT_REQUESTED_BYTES, delta->requested);
	gm_txn_save_range(txn, &stats->num_device_alloc, 2);	/* and num_device_free */
	gm_txn_arm(txn);
	stats->num_device_alloc += delta->count > 0;
	stats->num_device_free += delta->count < 0;
}

/* The statistics of a pool's domain. */
static inline void gm_delta_pool(const struct gm_delta *delta, struct gm_txn *txn)
{
	gm_delta_stat(delta, txn, delta->held ? GM_STAT_SEGMENT : GM_STAT_ALLOCATION, delta->count);
	gm_delta_stat(delta, txn, delta->held ? GM_STAT_RESERVED_BYTES : GM_STAT_ALLOCATED_BYTES,
		      delta->bytes);
}

/* Save and change the counters, inside @txn; at most 64 entries. */
static inline void gm_delta_apply(const struct gm_delta *delta, struct gm_txn *txn)
{
	const struct gm_flow flow = { gm_more(delta->count), gm_more(delta->bytes),
				      gm_less(delta->count), gm_less(delta->bytes) };
	uint64_t *live = &delta->domain->live_bytes[delta->kind];

	if (delta->in_stats)
		gm_delta_stats(delta, txn);
	else if (delta->given || delta->held)
		gm_delta_pool(delta, txn);
	if (delta->in_live) {
		gm_txn_save(txn, live);
		gm_txn_arm(txn);
		*live += (uint64_t)delta->bytes;
	}
	for (unsigned int i = 0; i < 3; i++)
		if (delta->rows[i]) {
			gm_txn_save_range(txn, &delta->rows[i]->current_bytes, GM_USAGE_WORDS);
			gm_txn_arm(txn);
			gm_usage_move(delta->rows[i], &flow);
		}
}

#endif
