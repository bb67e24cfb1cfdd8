/*
 * stack_cache.h - the native stacks that a thread has had, each kept as the places of the words that a walk
 * of it reads, and two sums of these words: where both are unchanged, the frames are the same, and no walk is needed.
 *
 * The result of a walk depends only on (pc, sp, fp) where it begins and on the words it reads:
 * return addresses, and saved values by which a frame further out is found. An entry has the place of each of
 * these words, innermost first, as its distance from the sp; and the sums, of 64 bits each, as stacks.c tells the
 * stacks of all threads apart, too.
 *
 * Saved frame pointers that no frame uses are not among them. All lie on the thread's own stack
 * (recorder/unwind/window.h), above the sp with which the entry begins, so that they can be read
 * whatever else has changed. Which entry to compare is guessed: first the one that came next the
 * last time, then the newest one with the same beginning. There is a fixed number of caches, each
 * of which a thread keeps until another thread has wanted it long enough. They exist on x86-64; on
 * aarch64 following the chain of frame records is as fast.
 *
 * Thread context: any, takes no lock. Signal context: any; a handler that interrupts a thread in
 * its cache gets none, and walks.
 */
#ifndef GM_RECORDER_STACK_CACHE_H
#define GM_RECORDER_STACK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind/unwind.h"

struct gm_python_kept;
struct gm_stack_cache;

#define GM_STACK_WORDS_AT_ONCE 4	/* a group is filled up with its last word */

struct gm_cached_stack {
	uintptr_t pc, sp, fp;		/* where the walk begins; @fp: if @by_fp */
	uint64_t generation, what;	/* when it is valid: of the caller's key; @what with the stamp */
	uint64_t inside;		/* the caller's: what else identifies the stack (Python's frames), ... */
	uint64_t value;			/* ... and the result for it */
	uint32_t next;			/* the entry that came after it the last time: a guess */
	uint16_t count;			/* words, a multiple of GM_STACK_WORDS_AT_ONCE */
	uint8_t kind;			/* the caller's */
	uint8_t by_fp;			/* 1 or 0; no bool, since a slot within another entry is looked at, too */
	uint64_t hash;			/* the caller's: of the frames */
	uint64_t sums[2];		/* of the words at @at */
	int32_t at[];			/* distances in bytes from @sp, less 2^31 */
};

/* For what an entry must be valid. */
struct gm_stack_key {
	const struct gm_regs *from;
	uint64_t generation;
	uint64_t what;			/* under 1 << 48 */
};

/* What is kept of a stack: its frames, and the caller's result. */
struct gm_walked_stack {
	const uintptr_t *pcs;
	int count;
	bool more;			/* there are frames beyond these */
	uint64_t hash, inside, value;
	uint8_t kind;
};

/* Enter the cache of this thread, for a stack that begins at @from, until gm_stack_cache_leave.
 * NULL: it has none, or is in it already; then there is nothing to leave. */
struct gm_stack_cache *gm_stack_cache_enter(const struct gm_regs *from);
void gm_stack_cache_leave(struct gm_stack_cache *cache);

/* In a cache that was entered: the Python frames of its thread's last walk. */
struct gm_python_kept *gm_stack_cache_python(struct gm_stack_cache *cache);

/* In a cache that was entered: the entry of the stack at @key, all of whose words are unchanged;
 * NULL: there is none. Call gm_stack_cache_met when the entry has been used. */
struct gm_cached_stack *gm_stack_cache_find(struct gm_stack_cache *cache,
					    const struct gm_stack_key *key);

/* The entry with the same frames as @entry, which was just found, but with this @inside; it is made
 * with @value if there is none. */
struct gm_cached_stack *gm_stack_cache_like(struct gm_stack_cache *cache,
					    const struct gm_cached_stack *entry, uint64_t inside,
					    uint64_t value);

/* @entry is the present stack: remember it as the last one. */
void gm_stack_cache_met(struct gm_stack_cache *cache, struct gm_cached_stack *entry);

/* Make an entry for @stack, which was just walked from @key->from, and mark it as met. None can be
 * made where a frame needs other registers than pc, sp and fp, or lies on another stack. */
void gm_stack_cache_keep(struct gm_stack_cache *cache, const struct gm_stack_key *key,
			 const struct gm_walked_stack *stack);

#endif
