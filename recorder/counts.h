/*
 * counts.h - what a change of the tables does to the counters: statistics, usage rows, live bytes.
 *
 * Thread context: the holder of the domain's lock, inside a transaction. What counts where is said
 * in allocator/table.h.
 */
#ifndef GM_RECORDER_COUNTS_H
#define GM_RECORDER_COUNTS_H

#include "recorder/txn.h"

/* @count +1: a segment with one block comes; -1: it goes; 0: its bytes change. */
struct gm_delta {
	struct gm_domain *domain;
	int64_t count, bytes, requested;
	struct gm_usage *rows[3];	/* that it counts in; NULL: none */
	uint8_t kind, pool;		/* enum gm_pool_class: small or large */
	bool in_stats, in_live;
};

/* What a segment counts in, its sign and sizes yet to be set. Finds or makes the usage rows.
 * Returns false when the journal lock could not be had. */
bool gm_delta_init(struct gm_delta *delta, uint8_t domain, uint16_t module, uint8_t kind,
		   uint8_t flags, bool nested);

/* Save and change the counters, inside @txn. At most 70 words. */
void gm_delta_apply(const struct gm_delta *delta, struct gm_txn *txn);

#endif
