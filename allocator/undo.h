/*
 * undo.h - stores into the tables that a reader of a dead process's journal can take back.
 *
 * Before a word of a table changes, its offset and old value go into the undo area that the
 * caller's transaction opened (recorder/journal/format.h describes the protocol). The allocator
 * knows only this struct; where the tables are in no journal it is empty, and each store costs one
 * test.
 *
 * Context: the caller holds the lock of the domain that the words belong to.
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
	_Atomic(uint32_t) *count;	/* pairs in use, as readers of the journal see them */
	uint32_t used;			/* the same here; 0 when a transaction begins */
	uint32_t room;			/* pairs that fit */
	uint32_t refused;		/* stores that found no room: the transaction was too large */
};

/* Several words about to be stored to, each aligned to 8 bytes:
 *
 *	if (gm_undo_open(undo, 2, &log)) {
 *		gm_undo_save(&log, &a);
 *		gm_undo_save(&log, &b);
 *		gm_undo_close(undo, &log);
 *	}
 *	a = ...; b = ...;
 */
struct gm_undo_log { struct gm_undo_pair *at; const uint8_t *base; };

/* The aligned word that @where lies in. */
static inline const void *gm_undo_word(const void *where)
{
	return (const void *)((uintptr_t)where & ~(uintptr_t)7);
}

/* Room for @words words? False: nothing is logged. */
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
	/* Atomic: the word may hold a block's state, which changes without the lock. */
	log->at->old = __atomic_load_n((const uint64_t *)word, __ATOMIC_RELAXED);
	log->at++;
}

/* Several words that lie together: they take (@words + 3) / 2 of the room. */
#define GM_UNDO_WORDS (UINT64_C(1) << 63)	/* in an offset: the next pairs hold so many words */
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
	/* Entries, their count, the stores. */
	__atomic_store_n((uint32_t *)undo->count, undo->used, __ATOMIC_RELEASE);
	gm_order();
}

/* Log the aligned 8-byte word that @where lies in; @where is about to be stored to. */
static inline void gm_undo_note(struct gm_undo *undo, const void *where)
{
	struct gm_undo_log log;

	if (!gm_undo_open(undo, 1, &log))
		return;
	gm_undo_save(&log, gm_undo_word(where));
	gm_undo_close(undo, &log);
}

/* The same for @words of them that lie together. */
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
