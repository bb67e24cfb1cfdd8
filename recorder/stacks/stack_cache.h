/*
 * stack_cache.h - the native stacks that a thread has had, each kept as the words that a walk of it
 * reads: who finds every one of them as it was has the same frames, and need not walk.
 *
 * A walk is a function of (pc, sp, fp) where it begins and of the words it reads: return addresses,
 * and what a frame further out takes for its place. An entry has these, innermost first:
 *
 *	63         48 47           0
 *	| distance    | the word    |	in words from the one before, of the first from below the sp
 *
 * Saved frame pointers that no frame uses are not among them. All lie on the thread's own stack
 * (recorder/unwind/window.h), above the sp that the entry begins with: they can be read, whatever else has
 * changed. Which entry it may be is a guess: the one that came after the last one, then the last one
 * that began so. There is a fixed number of caches, each a thread's until another one has wanted it
 * long enough. x86-64; aarch64 has none, the chain of frame records is as fast.
 *
 * Thread context: any, takes no lock. Signal context: any; a handler that interrupts a thread in its
 * cache gets none, and walks.
 */
#ifndef GM_RECORDER_STACK_CACHE_H
#define GM_RECORDER_STACK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind/unwind.h"

struct gm_stack_cache;

struct gm_cached_stack {
	uintptr_t pc, sp, fp;		/* where the walk begins; @fp: if @by_fp */
	uint64_t generation, what;	/* what it is good for: the caller's; @what with the stamp */
	uint64_t inside;		/* the caller's: what else tells the stack, ... */
	uint64_t value;			/* ... and what it is */
	uint32_t next;			/* the entry that came after it, or anything */
	uint16_t count;			/* words */
	uint8_t kind;			/* the caller's */
	bool by_fp;
	uint64_t hash;			/* the caller's: of the frames */
	uint64_t words[];
};

/* What an entry must be good for. */
struct gm_stack_key {
	const struct gm_regs *from;
	uint64_t generation;
	uint64_t what;			/* under 1 << 48 */
};

/* What is kept of a stack: its frames, and what it is. */
struct gm_walked_stack {
	const uintptr_t *pcs;
	int count;
	bool more;			/* there are frames beyond these */
	uint64_t hash, inside, value;
	uint8_t kind;
};

/* The cache of this thread, for a stack that begins at @from, until it is left. NULL: it has none, or
 * is in it already; then there is nothing to leave. */
struct gm_stack_cache *gm_stack_cache_enter(const struct gm_regs *from);
void gm_stack_cache_leave(struct gm_stack_cache *cache);

/* Of who has entered: the entry of the stack at @key, every word of which is as it was; NULL: none is
 * known. When it has been used, gm_stack_cache_met. */
struct gm_cached_stack *gm_stack_cache_find(struct gm_stack_cache *cache,
					    const struct gm_stack_key *key);

/* The same frames as @entry's, which was just found, with other things inside: the entry that has
 * these, which is made if there is none. */
struct gm_cached_stack *gm_stack_cache_like(struct gm_stack_cache *cache,
					    const struct gm_cached_stack *entry, uint64_t inside,
					    uint64_t value);

/* @entry was the stack of now: the one that came after it the last time is fetched. */
void gm_stack_cache_met(struct gm_stack_cache *cache, struct gm_cached_stack *entry);

/* Have an entry of @stack, just walked from @key->from, and it was met. There can be none where a frame
 * needs more than the pc, sp and fp, or lies elsewhere. */
void gm_stack_cache_keep(struct gm_stack_cache *cache, const struct gm_stack_key *key,
			 const struct gm_walked_stack *stack);

#endif
