/*
 * cached_ledger.c - the ledger of a domain into its statistics, usage rows and live bytes: see
 * cached_ledger.h.
 *
 * Thread context: the holder of the domain's lock. Signal context: none. Fork: forgotten. Lock: the
 * domain's.
 */
#include "preload/cache/cached_ledger.h"

static struct gm_room rooms[GM_DOMAINS][GM_POOL_CLASSES];

struct gm_room *gm_ledger_room(uint8_t domain)
{
	return rooms[domain];
}

void gm_ledger_undo(struct gm_undo *undo, uint8_t domain)
{
	struct gm_domain *of = &gm_rec.domains[domain];

	_Static_assert(sizeof(struct gm_undo_pair) == sizeof(struct gm_undo_entry) &&
		       offsetof(struct gm_undo_pair, old) == offsetof(struct gm_undo_entry, old) &&
		       GM_UNDO_WORDS == GM_UNDO_RANGE, "one layout");
	*undo = (struct gm_undo){
		.base = gm_rec.base, .pairs = (struct gm_undo_pair *)(void *)of->undo,
		.count = &of->undo_count, .room = GM_UNDO_ENTRIES,
	};
}

/* ---- folding ---- */

static void add(struct gm_undo *undo, struct gm_stat *stat, uint64_t in, uint64_t out)
{
	const unsigned int words = sizeof(*stat) / sizeof(uint64_t);
	struct gm_undo_log log;

	if (!in && !out)
		return;
	if (gm_undo_open(undo, 1 + (words + 1) / 2, &log)) {
		gm_undo_save_words(&log, stat, words);
		gm_undo_close(undo, &log);
	}
	stat->current += (int64_t)(in - out);
	stat->allocated += (int64_t)in;
	stat->freed += (int64_t)out;
}

static void add_pool(struct gm_undo *undo, struct gm_stats *stats, unsigned int class,
		     const struct gm_ledger_pool *l)
{
	add(undo, &stats->stat[GM_STAT_ALLOCATION][class], l->outs, l->asked);
	add(undo, &stats->stat[GM_STAT_ALLOCATED_BYTES][class], l->out_bytes, l->asked_bytes);
	add(undo, &stats->stat[GM_STAT_ACTIVE][class], l->outs, l->done);
	add(undo, &stats->stat[GM_STAT_ACTIVE_BYTES][class], l->out_bytes, l->done_bytes);
	add(undo, &stats->stat[GM_STAT_REQUESTED_BYTES][class], l->out_requested,
	    l->done_requested);
	add(undo, &stats->stat[GM_STAT_INACTIVE_SPLIT][class], l->splits, l->joins);
	add(undo, &stats->stat[GM_STAT_INACTIVE_SPLIT_BYTES][class], l->split_bytes,
	    l->join_bytes);
}

static void add_row(struct gm_undo *undo, struct gm_usage *row, const struct gm_ledger_pool *l)
{
	struct gm_undo_log log;

	if (gm_undo_open(undo, 1 + (GM_ROW_WORDS + 1) / 2, &log)) {
		gm_undo_save_words(&log, &row->current_bytes, GM_ROW_WORDS);
		gm_undo_close(undo, &log);
	}
	row->current_bytes += (int64_t)(l->out_bytes - l->asked_bytes);
	row->allocated_bytes += (int64_t)l->out_bytes;
	row->freed_bytes += (int64_t)l->asked_bytes;
	row->allocations += (int64_t)l->outs;
	row->frees += (int64_t)l->asked;
}

static uint8_t kind_of(uint32_t key)
{
	return key >> 16 & 15;
}

/* The rows of a key were looked up when it became the ledger's, or its heap's: they are there. */
static struct gm_usage **rows_of(uint8_t domain, uint32_t key)
{
	struct gm_domain_state *state = &gm_rec.domain[domain];

	if (gm_unlikely(state->last_key != key))
		gm_delta_find_rows(state, domain, (uint16_t)key, kind_of(key), true);
	return state->last_rows;
}

static void empty_pool(struct gm_undo *undo, uint8_t number, unsigned int pool)
{
	const unsigned int words = sizeof(struct gm_ledger_pool) / sizeof(uint64_t);
	struct gm_domain *domain = &gm_rec.domains[number];
	struct gm_ledger_pool *l = &domain->ledger.pool[pool];
	uint32_t key = domain->ledger.key;
	struct gm_usage **rows = rows_of(number, key);
	uint64_t *live = &domain->live_bytes[kind_of(key)];
	struct gm_undo_log log;

	add_pool(undo, &domain->stats, GM_POOL_ALL, l);
	add_pool(undo, &domain->stats, pool ? GM_POOL_LARGE : GM_POOL_SMALL, l);
	for (unsigned int i = 0; i < 3; i++)
		if (rows[i] && (l->outs || l->asked))
			add_row(undo, rows[i], l);
	GM_PUT(undo, *live, *live + l->out_bytes - l->asked_bytes);
	if (gm_undo_open(undo, 1 + (words + 1) / 2, &log)) {
		gm_undo_save_words(&log, l, words);
		gm_undo_close(undo, &log);
	}
	*l = (struct gm_ledger_pool){ .outs = 0 };
}

static bool is_empty(const struct gm_ledger_pool *l)
{
	return !(l->outs | l->asked | l->done | l->splits | l->joins | l->split_bytes |
		 l->join_bytes);
}

/* ---- room ---- */

static int64_t below(const struct gm_stat *stat)
{
	return stat->peak - stat->current;
}

static void measure(uint8_t domain, uint32_t key)
{
	const struct gm_stats *stats = &gm_rec.domains[domain].stats;
	struct gm_usage *const *rows = rows_of(domain, key);
	struct gm_room *all = &rooms[domain][GM_POOL_ALL];

	for (unsigned int c = 0; c < GM_POOL_CLASSES; c++)
		rooms[domain][c] = (struct gm_room){
			.blocks = below(&stats->stat[GM_STAT_ALLOCATION][c]),
			.bytes = below(&stats->stat[GM_STAT_ALLOCATED_BYTES][c]),
			.active = below(&stats->stat[GM_STAT_ACTIVE][c]),
			.active_bytes = below(&stats->stat[GM_STAT_ACTIVE_BYTES][c]),
			.requested = below(&stats->stat[GM_STAT_REQUESTED_BYTES][c]),
			.splits = below(&stats->stat[GM_STAT_INACTIVE_SPLIT][c]),
			.split_bytes = below(&stats->stat[GM_STAT_INACTIVE_SPLIT_BYTES][c]),
		};
	for (unsigned int i = 0; i < 3; i++) {
		int64_t room = rows[i] ? rows[i]->peak_bytes - rows[i]->current_bytes : all->bytes;

		all->bytes = room < all->bytes ? room : all->bytes;
	}
}

void gm_ledger_fold(struct gm_undo *undo, uint8_t domain, uint32_t key)
{
	struct gm_ledger *ledger = &gm_rec.domains[domain].ledger;

	for (unsigned int pool = 0; pool < 2; pool++)
		if (!is_empty(&ledger->pool[pool]))
			empty_pool(undo, domain, pool);
	if (ledger->key != key)
		GM_PUT(undo, ledger->key, key);
	if (key)
		measure(domain, key);
}

void gm_ledger_settle(const struct gm_change *change)
{
	struct gm_change own = *change;
	struct gm_undo undo;
	struct gm_txn txn;

	if (!change->domain->ledger.key)
		return;
	own.op = gm_writer_op(&own.writer);
	gm_change_begin(&own, &txn);
	gm_ledger_undo(&undo, own.number);
	gm_ledger_fold(&undo, own.number, 0);
	gm_txn_end(&txn);
}
