/*
 * stack_cache.h - the native stacks that a thread has had. Each is kept as the positions of the words that a
 * walk of it reads, and two sums of these words. If both sums are unchanged, the frames are the same and no
 * walk is needed.
 *
 * The result of a walk depends only on (pc, sp, fp) where it begins and on the words that it reads: return
 * addresses, and saved values by which a frame further out is found. An entry has the distance of each of these
 * words from the sp, innermost first, and the two sums of 64 bits. A hash of 64 bits is also what tells the
 * stacks of all threads apart in stacks.c.
 *
 * Saved frame pointers that no frame uses are left out. All words lie on the thread's own stack
 * (recorder/unwind/window.h), above the sp with which the entry begins, so they can be read whatever else has
 * changed. Which entry to compare is guessed: first the entry that came next the last time, then the newest
 * entry with the same beginning. The number of caches is fixed. A thread keeps its cache until other threads
 * have asked for it often enough in a row. Caches exist on x86-64 only, because on aarch64 following the chain
 * of frame records is as fast.
 *
 * Thread context: any, takes no lock. Signal context: any; a handler that interrupts a thread in its cache gets
 * no cache, and walks.
 */
#ifndef GM_RECORDER_STACK_CACHE_H
#define GM_RECORDER_STACK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/unwind/unwind.h"

struct gm_python_kept;
struct gm_stack_cache;

#define GM_STACK_WORDS_AT_ONCE 4	/* words are read in groups; the last word fills up a group */

struct gm_cached_stack {
	uintptr_t pc, sp, fp;		/* where the walk begins; @fp counts only with @by_fp */
	uint64_t generation, what;	/* the caller's key for which the entry is valid; @what with the stamp */
	uint64_t inside;		/* from the caller: what else identifies the stack (Python's frames), ... */
	uint64_t value;			/* ... and the result for both */
	uint32_t next;			/* the entry that came after it the last time: a guess */
	uint16_t count;			/* words, a multiple of GM_STACK_WORDS_AT_ONCE */
	uint8_t kind;			/* from the caller */
	uint8_t by_fp;			/* 1 or 0; not a bool, because it may be read from a slot in the middle
					 * of another entry */
	uint64_t hash;			/* from the caller: hash of the frames */
	uint64_t sums[2];		/* of the words at @at */
	int32_t at[];			/* distances in bytes from @sp, less 2^31 */
};

/* Where a stack begins, and the state for which its entry must be valid. */
struct gm_stack_key {
	const struct gm_regs *from;
	uint64_t generation;
	uint64_t what;			/* below 1 << 48 */
};

/* A stack to be kept: its frames, and the caller's result for it. */
struct gm_walked_stack {
	const uintptr_t *pcs;
	int count;
	bool more;			/* there are frames beyond these */
	uint64_t hash, inside, value;
	uint8_t kind;
};

/* Enter the cache of this thread, for a stack that begins at @from, until gm_stack_cache_leave. NULL: the
 * thread has no cache for such a stack, or is in its cache already; then there is nothing to leave. */
struct gm_stack_cache *gm_stack_cache_enter(const struct gm_regs *from);
void gm_stack_cache_leave(struct gm_stack_cache *cache);

/* Return the Python frames of the thread's last walk. @cache was entered. */
struct gm_python_kept *gm_stack_cache_python(struct gm_stack_cache *cache);

/* Find the entry of the stack at @key with all words unchanged; NULL: there is none. @cache was entered. After
 * using the entry, call gm_stack_cache_met. */
struct gm_cached_stack *gm_stack_cache_find(struct gm_stack_cache *cache,
					    const struct gm_stack_key *key);

/* Return the entry with the frames of @entry, which was just found, but with @inside and @value. Make it if
 * there is none. */
struct gm_cached_stack *gm_stack_cache_like(struct gm_stack_cache *cache,
					    const struct gm_cached_stack *entry, uint64_t inside,
					    uint64_t value);

/* Note that the present stack is @entry, so that the next search begins with the entry that came after it. */
void gm_stack_cache_met(struct gm_stack_cache *cache, struct gm_cached_stack *entry);

/* Make an entry for @stack, which was just walked from @key->from, and note it as met. No entry is made if a
 * frame needs other registers than pc, sp and fp, or lies on another stack. */
void gm_stack_cache_keep(struct gm_stack_cache *cache, const struct gm_stack_key *key,
			 const struct gm_walked_stack *stack);

#endif
