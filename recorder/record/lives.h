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
#define GM_LIVES_PROBE 64u

struct gm_lives {
	struct gm_lock lock;		/* of growth; rank GM_RANK_POOL */
	_Atomic(uint32_t) levels;	/* how many there are */
	_Atomic(uint32_t) crowded;	/* 1: the newest level should get a successor */
	uint32_t patience;		/* blocks until memory for a level is asked for again; lock: @lock */
	struct { struct gm_live *lines; uint32_t bits; } level[GM_LIVES_LEVELS];
	uint8_t domain;
};

/* A block that is handed out. */
struct gm_handed {
	uint64_t address, size, stream;
	uint32_t stack;
	uint16_t module;
	uint8_t kind;
	bool stack_of_block_only;	/* its events have no stack */
};

/* Make the first level of the table of @domain. False: there is no memory for it. */
bool gm_lives_begin(struct gm_lives *lives, uint8_t domain);

/* Record that [@of->address, +@of->size) was handed out. A block that is live at that address ends first; *@ret_twice
 * says so. Returns 0; -ENOMEM, there is no room; -ETIMEDOUT, the thread is changing a table already, or no
 * lock could be had. */
int gm_lives_add(struct gm_lives *lives, const struct gm_handed *of, bool *ret_twice);

/* Record that the block at @address was taken back. @stack: as in gm_record_free_stack. Returns 0; -ENOENT, there
 * is none; -ETIMEDOUT as above. */
int gm_lives_end(struct gm_lives *lives, uint64_t address, uint32_t stack);

/* End the blocks that begin in [@address, +@size), one at a call, in the order in which their lines lie. *@at: 0 before
 * the first call, then what the last one left there. Returns the address of a block that ended; 0: there is no more. */
uint64_t gm_lives_end_next(struct gm_lives *lives, uint64_t address, uint64_t size, uint64_t *at);

/* The size of the block at @address; 0: there is none. Takes no lock. */
uint64_t gm_lives_size(const struct gm_lives *lives, uint64_t address);

/* The block at @address has the name @name, a string id, from now on. The caller ensures that the block does not end
 * meanwhile. */
void gm_lives_name(struct gm_lives *lives, uint64_t address, uint32_t name);

#endif
