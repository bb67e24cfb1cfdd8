/*
 * lives.h - what a pool of the program's has handed out: a table of lines in the journal, one a block.
 *
 * A line is one cache line (struct gm_live in format.h). The table is an open-addressing hash by address. It
 * has levels, each eight times as large as the one before: new blocks go into the newest level, older
 * levels keep what they have. No line ever moves, so a line belongs to whoever owns its block:
 *
 *   begin   claim an empty line by a compare-and-swap, fill it in, store its address
 *   end     claim the line by a compare-and-swap of its address, write the events, store 0
 *
 * Threads do not wait for each other, and there is nothing to take back: the last store is the change. A
 * thread enters its slot as for its thread caches (gm_slot_enter_own), so that a copy of the journal holds it
 * out; where it cannot, it takes the domain's lock.
 *
 * Probing: a block lies at most GM_LIVES_PROBE lines behind its place. @reach of that place says how far a search has
 * to go, which is mostly not beyond the place itself.
 *
 * Thread context: any, no lock of this floor held. Signal context: none; a handler that interrupts a change
 * is refused, and its call is counted as lost.
 */
#ifndef GM_RECORDER_LIVES_H
#define GM_RECORDER_LIVES_H

#include "recorder/journal/state.h"

#define GM_LIVES_LEVELS 6u
#define GM_LIVES_FIRST_BITS 8u	/* 256 lines: 16 KiB */
#define GM_LIVES_PROBE 64u

struct gm_lives {
	struct gm_pool *pool;		/* its record */
	_Atomic(const struct gm_lives_level *) newest;	/* NULL: there is none */
	_Atomic(uint32_t) crowded;	/* 1: the newest level should get a successor */
	uint32_t patience;		/* blocks until memory for a level is asked for again; lock: @lock */
	uint8_t domain;
	uint8_t first_bits;		/* the first level has so many */
	struct gm_lock lock;		/* of growth; rank GM_RANK_POOL */
	struct gm_lives_level { struct gm_live *lines; uint32_t bits, shift; } level[GM_LIVES_LEVELS];
};

#define GM_LIVES_INLINE static inline __attribute__((always_inline))

/* 0 and a number with one of the marks are none: they would find an empty line, or one that another thread is
 * changing. */
GM_LIVES_INLINE bool gm_lives_is_address(uint64_t address)
{
	return address - 1 < GM_LIVE_BEGINNING - 1;
}

GM_LIVES_INLINE struct gm_live *gm_lives_place(const struct gm_lives_level *level, uint64_t address)
{
	return &level->lines[address * UINT64_C(0x9e3779b97f4a7c15) >> level->shift];
}

/* Begin to fetch the line at @at, which is about to be written. */
GM_LIVES_INLINE void gm_lives_fetch(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));	/* the compiler's own would fetch it to read */
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

/* A block that is handed out. */
struct gm_handed {
	uint64_t address, size, stream;
	uint32_t stack;
	uint16_t module;
	uint8_t kind;
	bool stack_of_block_only;	/* its events have no stack */
};

/* Make the first level of the table of @domain, large enough for @blocks, as far as the budget allows: a block in a
 * table of one level takes fewer instructions, and fewer lines. False: there is no memory for it. */
bool gm_lives_begin(struct gm_lives *lives, uint8_t domain, uint64_t blocks);

/* The line of the block at @address; NULL: there is none. */
struct gm_live *gm_lives_find(const struct gm_lives *lives, uint64_t address);

/* Claim an empty line for @address: its place, or the next one behind; NULL: there is none near it. */
struct gm_live *gm_lives_claim(struct gm_lives *lives, uint64_t address);

/* The newest level is crowded: add one, if there is memory. Outside of any change. */
bool gm_lives_grow(struct gm_lives *lives);

/* The size of the block at @address; 0: there is none. Takes no lock. */
uint64_t gm_lives_size(const struct gm_lives *lives, uint64_t address);

/* The block at @address has the name @name, a string id, from now on. The caller ensures that the block does not end
 * meanwhile. */
void gm_lives_name(struct gm_lives *lives, uint64_t address, uint32_t name);

#endif
