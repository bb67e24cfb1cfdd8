/*
 * lives.h - the live blocks of an application pool: a table in the journal, one line for each block.
 *
 * A line is one cache line (struct gm_live in format.h). The table is an open-addressing hash table by address. It
 * has levels, each eight times as large as the one before. New blocks go into the newest level; blocks in older
 * levels stay there. No line ever moves, so only the thread that begins or ends a block changes the block's line:
 *
 *   begin   claim an empty line by a compare-and-swap, fill in the line, store its address
 *   end     claim the line by a compare-and-swap of its address, write the events, store 0
 *
 * Threads do not wait for each other. No change needs an undo entry, because the last store of a change is the whole
 * change. A thread enters its slot as for its thread caches (gm_slot_enter_own), so a copy of the journal can keep the
 * thread out. A thread that cannot enter its slot takes the domain's lock instead.
 *
 * Probing: each address hashes to a place, and its block lies less than GM_LIVES_PROBE lines behind that place. @reach
 * of the place says how many more lines a search must look at; for most places it is 0.
 *
 * Thread context: any, no lock of recorder/ held. Signal context: none; a handler that interrupts a change
 * is refused, and its call is counted as lost.
 */
#ifndef GM_RECORDER_LIVES_H
#define GM_RECORDER_LIVES_H

#include "recorder/journal/state.h"

#define GM_LIVES_LEVELS 6u
#define GM_LIVES_FIRST_BITS 8u	/* 256 lines: 16 KiB */
#define GM_LIVES_PROBE 64u

struct gm_lives {
	struct gm_pool *pool;		/* record of the pool in the journal */
	_Atomic(const struct gm_lives_level *) newest;	/* NULL: the table has no level yet */
	_Atomic(uint32_t) crowded;	/* 1: the newest level should get a successor */
	uint32_t patience;		/* calls of gm_lives_grow to refuse before the next attempt; lock: @lock */
	uint8_t domain;
	uint8_t first_bits;		/* the first level has 2^first_bits lines */
	struct gm_lock lock;		/* of growth; rank GM_RANK_POOL */
	struct gm_lives_level { struct gm_live *lines; uint32_t bits, shift; } level[GM_LIVES_LEVELS];
};

#define GM_LIVES_INLINE static inline __attribute__((always_inline))

/* Can @address be the address of a block? 0 and numbers with a mark (GM_LIVE_ENDING, GM_LIVE_BEGINNING) cannot, because
 * they would match an empty line or a line that another thread is changing. */
GM_LIVES_INLINE bool gm_lives_is_address(uint64_t address)
{
	return address - 1 < GM_LIVE_BEGINNING - 1;
}

GM_LIVES_INLINE struct gm_live *gm_lives_place(const struct gm_lives_level *level, uint64_t address)
{
	return &level->lines[address * UINT64_C(0x9e3779b97f4a7c15) >> level->shift];
}

/* Prefetch the cache line at @at for a write. */
GM_LIVES_INLINE void gm_lives_fetch(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));	/* __builtin_prefetch fetches for a read */
#else
	__builtin_prefetch(at, 1);
#endif
}

GM_LIVES_INLINE bool gm_lives_claim_line(struct gm_live *line)
{
	uint64_t empty = 0;

	return atomic_compare_exchange_strong_explicit(&line->address, &empty, GM_LIVE_BEGINNING, memory_order_acquire,
						       memory_order_relaxed);
}

/* A block that the pool hands out. */
struct gm_handed {
	uint64_t address, size, stream;
	uint32_t stack;
	uint16_t module;
	uint8_t kind;
	bool stack_of_block_only;	/* its events have no stack */
};

/* Set up the table of @domain. The first level gets at least four lines for each of @blocks blocks, unless it reaches a
 * sixteenth of the budget before: with one level a block takes fewer instructions and touches fewer cache lines.
 * Returns false when there is no memory even for the smallest level. */
bool gm_lives_begin(struct gm_lives *lives, uint8_t domain, uint64_t blocks);

/* Return the line of the block at @address; NULL: no such block. */
struct gm_live *gm_lives_find(const struct gm_lives *lives, uint64_t address);

/* Claim the first empty line for @address in the newest level, from its place on. Returns NULL when none of
 * GM_LIVES_PROBE lines is empty. */
struct gm_live *gm_lives_claim(struct gm_lives *lives, uint64_t address);

/* Add a level if the newest level is still crowded and there is memory. Returns true when the newest level is no longer
 * crowded; false also when another thread is adding a level. The caller is inside no change. */
bool gm_lives_grow(struct gm_lives *lives);

/* Return the size of the block at @address in bytes; 0: no such block. Takes no lock. */
uint64_t gm_lives_size(const struct gm_lives *lives, uint64_t address);

/* Name the block at @address; @name is a string id. The caller ensures that the block does not end meanwhile. */
void gm_lives_name(struct gm_lives *lives, uint64_t address, uint32_t name);

#endif
