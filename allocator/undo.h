/*
 * undo.h - stores into the tables that a reader of a dead process's journal can take back.
 *
 * Before a word of a table changes, its offset and old value go into the undo area that the
 * caller's transaction opened (recorder/format.h describes the protocol). The allocator knows only
 * this struct; a heap whose tables are no journal's has an empty one and pays one test a store.
 *
 * Context: the caller holds the lock of the domain that the words belong to.
 */
#ifndef GM_ALLOCATOR_UNDO_H
#define GM_ALLOCATOR_UNDO_H

#include <stdint.h>
#include <string.h>

struct gm_undo_pair { uint64_t offset, old; };

struct gm_undo {
	uint8_t *base;			/* of the journal; NULL: nothing is logged */
	struct gm_undo_pair *pairs;
	_Atomic(uint32_t) *count;
	uint32_t room;			/* pairs that fit */
	uint32_t refused;		/* stores that found no room: the transaction was too large */
};

/* Log the aligned 8-byte word that @where lies in; @where is about to be stored to. */
static inline void gm_undo_note(struct gm_undo *undo, const void *where)
{
	uint32_t n;
	uint64_t offset;

	if (!undo->base)
		return;
	offset = (uint64_t)((const uint8_t *)where - undo->base) & ~UINT64_C(7);
	n = __atomic_load_n((uint32_t *)undo->count, __ATOMIC_RELAXED);
	if (n >= undo->room) {
		undo->refused++;
		return;
	}
	undo->pairs[n].offset = offset;
	/* Atomic: the word may hold a block's state, which changes without the lock. */
	undo->pairs[n].old = __atomic_load_n((const uint64_t *)(const void *)(undo->base + offset),
					     __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)undo->count, n + 1, __ATOMIC_RELEASE);
	/* Against SIGKILL the compiler's order is enough: the store comes after its entry counts. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Store @value into @field of a record in the tables. */
#define GM_PUT(undo, field, value) \
	do { gm_undo_note((undo), &(field)); (field) = (value); } while (0)

#endif
