/*
 * undo.h - log stores into the tables, so that a reader of a dead process's journal can take them back.
 *
 * Before a word of a table changes, its offset and old value go into the undo area that the caller's transaction
 * has opened (recorder/journal/format.h describes the protocol). The allocator knows only this struct. If the
 * tables are in no journal, the struct is empty and each store costs one test.
 *
 * Context: the caller holds the lock of the domain to which the words belong.
 */
#ifndef GM_ALLOCATOR_UNDO_H
#define GM_ALLOCATOR_UNDO_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/lock.h"

struct gm_undo_pair { uint64_t offset, old; };

struct gm_undo {
	uint8_t *base;			/* of the journal; NULL: nothing is logged */
	struct gm_undo_pair *pairs;
	_Atomic(uint32_t) *count;	/* pairs in use, for readers of the journal */
	uint32_t used;			/* pairs in use; 0 when a transaction begins */
	uint32_t room;			/* how many pairs fit */
	uint32_t refused;		/* stores without room: the transaction was too large */
};

/* Log several words before storing to them, each aligned to 8 bytes:
 *
 *	if (gm_undo_open(undo, 2, &log)) {
 *		gm_undo_save(&log, &a);
 *		gm_undo_save(&log, &b);
 *		gm_undo_close(undo, &log);
 *	}
 *	a = ...; b = ...;
 */
struct gm_undo_log { struct gm_undo_pair *at; const uint8_t *base; };

/* Return the aligned word that contains @where. */
static inline const void *gm_undo_word(const void *where)
{
	return (const void *)((uintptr_t)where & ~(uintptr_t)7);
}

/* Is there room for @words words? False also when nothing is logged. */
static inline __attribute__((always_inline)) bool gm_undo_open(struct gm_undo *undo,
							       uint32_t words,
							       struct gm_undo_log *log)
{
	if (!undo->base)
		return false;
	if (__builtin_expect(undo->used + words > undo->room, 0)) {
		undo->refused++;
		return false;
	}
	log->at = undo->pairs + undo->used;
	log->base = undo->base;
	return true;
}

static inline __attribute__((always_inline)) void gm_undo_save(struct gm_undo_log *log,
							       const void *word)
{
	log->at->offset = (uint64_t)((const uint8_t *)word - log->base);
	/* Atomic, because the word may hold a block's state, which changes without the lock. */
	log->at->old = __atomic_load_n((const uint64_t *)word, __ATOMIC_RELAXED);
	log->at++;
}

/* Save several adjacent words. They take (@words + 3) / 2 pairs. */
#define GM_UNDO_WORDS (UINT64_C(1) << 63)	/* in @offset: the next pairs hold @old words */
static inline __attribute__((always_inline)) void
gm_undo_save_words(struct gm_undo_log *log, const void *first, unsigned int words)
{
	log->at->offset = (uint64_t)((const uint8_t *)first - log->base) | GM_UNDO_WORDS;
	log->at->old = words;
	__builtin_memcpy(log->at + 1, first, words * sizeof(uint64_t));
	log->at += 1 + (words + 1) / 2;
}

static inline __attribute__((always_inline)) void gm_undo_close(struct gm_undo *undo,
								 const struct gm_undo_log *log)
{
	undo->used = (uint32_t)(log->at - undo->pairs);
	/* Memory gets the entries first, then their count, then the stores. */
	__atomic_store_n((uint32_t *)undo->count, undo->used, __ATOMIC_RELEASE);
	gm_order();
}

/* Log the aligned 8-byte word that contains @where, before a store to @where. */
static inline void gm_undo_note(struct gm_undo *undo, const void *where)
{
	struct gm_undo_log log;

	if (!gm_undo_open(undo, 1, &log))
		return;
	gm_undo_save(&log, gm_undo_word(where));
	gm_undo_close(undo, &log);
}

/* Log @words adjacent words before stores to them. */
static inline __attribute__((always_inline)) void
gm_undo_note_words(struct gm_undo *undo, const void *first, unsigned int words)
{
	struct gm_undo_log log;

	if (!gm_undo_open(undo, 1 + (words + 1) / 2, &log))
		return;
	gm_undo_save_words(&log, first, words);
	gm_undo_close(undo, &log);
}

/* Store @value into @field of a record in the tables. */
#define GM_PUT(undo, field, value) \
	do { gm_undo_note((undo), &(field)); (field) = (value); } while (0)

#endif
