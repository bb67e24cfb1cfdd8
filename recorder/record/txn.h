/*
 * txn.h - one change of a domain's tables, which every reader sees wholly or not at all.
 *
 *	gm_txn_begin(&txn, domain, op);
 *	gm_txn_save(&txn, &field); ...        save the words that will change
 *	gm_txn_arm(&txn);                     readers undo the saved words from here on
 *	field = ...;                          plain stores, and the operation's events
 *	                                      (save, arm and store again as often as needed)
 *	gm_txn_end(&txn);                     done: readers undo nothing
 *
 * If the process dies before gm_txn_end, undo_op stays set: readers restore the saved words and drop the
 * events of that operation. The stores reach memory in this order (gm_order). The writer itself never
 * undoes a transaction, because it checks before gm_txn_arm that it can make the whole change.
 *
 * Thread context: the holder of the domain's lock. Each transaction has its own operation number (format.h).
 */
#ifndef GM_RECORDER_TXN_H
#define GM_RECORDER_TXN_H

#include "recorder/journal/state.h"

struct gm_txn {
	struct gm_domain *domain;
	const uint8_t *base;		/* of the mapping */
	struct gm_undo_entry *next;	/* the first free entry */
};

static inline void gm_txn_begin(struct gm_txn *txn, struct gm_domain *domain, uint64_t op)
{
	txn->domain = domain;
	txn->base = gm_rec.base;
	txn->next = domain->undo;
	gm_set(&domain->undo_count, 0);
	gm_order();
	gm_set_release(&domain->undo_op, op);
}

/* Save the aligned 8-byte word that contains @field. The longest transaction takes some 80 of the GM_UNDO_ENTRIES
 * entries; debug and sanitizer builds count words that find no room. */
static inline __attribute__((always_inline)) void gm_txn_save(struct gm_txn *txn,
							      const void *field)
{
	const uint64_t *word = (const uint64_t *)((uintptr_t)field & ~(uintptr_t)7);
	struct gm_undo_entry *entry = txn->next;

#if GM_LOCK_RANKS
	if (entry >= txn->domain->undo + GM_UNDO_ENTRIES) {
		gm_count(&gm_rec.undo_overflows, 1);
		return;
	}
#endif
	entry->offset = (uint64_t)((const uint8_t *)word - txn->base);
	/* Atomic, because the word may hold a block's state, which changes without the lock. */
	entry->old = __atomic_load_n(word, __ATOMIC_RELAXED);
	txn->next = entry + 1;
}

/* Save @words adjacent aligned words from @first on, all of one record. A vector copy, because saving them word by word
 * would be most of the cost of a record. */
static inline __attribute__((always_inline)) void gm_txn_save_range(struct gm_txn *txn,
								    const void *first,
								    unsigned int words)
{
	struct gm_undo_entry *entry = txn->next;

#if GM_LOCK_RANKS
	if (entry + 1 + (words + 1) / 2 > txn->domain->undo + GM_UNDO_ENTRIES) {
		gm_count(&gm_rec.undo_overflows, 1);
		return;
	}
#endif
	entry->offset = (uint64_t)((const uint8_t *)first - txn->base) | GM_UNDO_RANGE;
	entry->old = words;
	__builtin_memcpy(entry + 1, first, words * sizeof(uint64_t));
	txn->next = entry + 1 + (words + 1) / 2;
}

static inline __attribute__((always_inline)) void gm_txn_arm(const struct gm_txn *txn)
{
	gm_order();
	gm_set_release(&txn->domain->undo_count, (uint32_t)(txn->next - txn->domain->undo));
	gm_order();
}

static inline void gm_txn_end(const struct gm_txn *txn)
{
	gm_order();
	gm_set_release(&txn->domain->undo_op, 0);
}

#endif
