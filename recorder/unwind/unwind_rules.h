/*
 * unwind_rules.h - the rule that undoes a frame, in one word, and a cache of rules by address.
 *
 * A rule for the frames that compilers make (all others are GM_RULE_FULL and go through unwind_step.h):
 *
 *	63            32 31        20 19     4 3    0
 *	| offset (bytes) | save/8     |   0     | kind |
 *
 *	GM_RULE_SP    CFA = sp + offset                   fp saved at CFA - 8 * save; 0: unchanged
 *	GM_RULE_FP    CFA = fp + offset                   the same
 *	GM_RULE_DRAP  CFA = *(fp + offset), fp saved at fp + 8 * save (a realigned frame; x86-64)
 *	GM_RULE_END   the outermost frame
 *	The caller's sp is CFA; fp is rbp or x29. The return address is at CFA - 8 on x86-64. On aarch64 it
 *	lies behind fp, at CFA - 8 * save + 8; if save is 0 it is still in x30.
 *
 * The cache has 4096 sets of 8 entries, one cache line each. An entry is one word, which is read and
 * written whole, so readers and writers need no lock and no sequence word:
 *
 *	63       51 50   45 44   43 42        35 34          0
 *	| offset/8 | save/8 | form | generation | tag          |
 *
 *	form 0, 1   GM_RULE_SP, GM_RULE_FP with offset and save: nearly all frames
 *	form 2      a rule that does not fit: offset and save are its index in @odd, where each
 *	            distinct rule is kept once
 *
 * The hash is a bijection on 47 bits of address: set and tag together determine the address, so an entry
 * is never mistaken for that of another address. Every dlclose changes the generation, and entries of
 * another generation are ignored. Addresses from 2^47 on (57-bit address spaces, on request of mmap hints)
 * are never cached.
 *
 * Any thread, any signal context.
 */
#ifndef GM_RECORDER_UNWIND_RULES_H
#define GM_RECORDER_UNWIND_RULES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gm_rule_kind {
	GM_RULE_NONE,			/* not known */
	GM_RULE_SP, GM_RULE_FP, GM_RULE_DRAP, GM_RULE_END, GM_RULE_FULL,
};

static inline uint64_t gm_rule_make(enum gm_rule_kind kind, int32_t offset, int32_t save)
{
	return (uint64_t)(uint32_t)offset << 32 | ((uint64_t)(uint32_t)save & 0xfff) << 20 |
	       (uint64_t)kind;
}

static inline enum gm_rule_kind gm_rule_kind(uint64_t rule)
{
	return (enum gm_rule_kind)(rule & 15);
}

static inline int64_t gm_rule_offset(uint64_t rule)
{
	return (int64_t)rule >> 32;
}

static inline int32_t gm_rule_save(uint64_t rule)	/* in words; signed for GM_RULE_DRAP */
{
	return (int32_t)(uint32_t)rule >> 20;
}

#define GM_RULE_ADDRESS_BITS 47
#define GM_RULE_SETS_LOG2 12
#define GM_RULE_WAYS_LOG2 3
#define GM_RULE_TAG_BITS (GM_RULE_ADDRESS_BITS - GM_RULE_SETS_LOG2)
#define GM_RULE_GENERATIONS 256u
#define GM_RULE_ODD 4096u

struct gm_rule_cache {
	_Alignas(64) _Atomic(uint64_t) entries[1u << (GM_RULE_SETS_LOG2 + GM_RULE_WAYS_LOG2)];
	_Atomic(uint64_t) odd[GM_RULE_ODD];
};

extern struct gm_rule_cache gm_rule_cache;
extern _Atomic(uint32_t) gm_rule_now;	/* counts the flushes */

/* Return the generation for looking up and adding rules. Read it once, before the walk. */
static inline uint32_t gm_rule_generation(void)
{
	return atomic_load_explicit(&gm_rule_now, memory_order_acquire);
}

/* Return the hash in the upper 47 bits. The first 12 are the set, the next 3 the way that is tried first. */
static inline uint64_t gm_rule_hash(uintptr_t address)
{
	return (uint64_t)address * (UINT64_C(0x9e3779b97f4a7c15) << (64 - GM_RULE_ADDRESS_BITS));
}

static inline uint64_t gm_rule_wanted(uint64_t hash, uint32_t generation)
{
	return (hash << GM_RULE_SETS_LOG2 >> (64 - GM_RULE_TAG_BITS)) |
	       (uint64_t)(generation % (GM_RULE_GENERATIONS - 1) + 1) << GM_RULE_TAG_BITS;
}

#define GM_RULE_WANTED_MASK ((UINT64_C(1) << (GM_RULE_TAG_BITS + 8)) - 1)

/* Search the other ways of a set; out of line, to keep the walk small. */
uint64_t gm_rule_find_beyond(uintptr_t address, uint64_t hash, uint64_t wanted);

/* Return the entry for the instruction at @address; 0: not cached. @generation_bits:
 * gm_rule_wanted(0, generation). */
static inline uint64_t gm_rule_find(uintptr_t address, uint64_t generation_bits)
{
	uint64_t hash = gm_rule_hash(address);
	uint64_t wanted = (hash << GM_RULE_SETS_LOG2 >> (64 - GM_RULE_TAG_BITS)) | generation_bits;
	uint64_t entry = atomic_load_explicit(
		&gm_rule_cache.entries[hash >> (64 - GM_RULE_SETS_LOG2 - GM_RULE_WAYS_LOG2)],
		memory_order_acquire);

	if (__builtin_expect((entry & GM_RULE_WANTED_MASK) != wanted, 0))
		return gm_rule_find_beyond(address, hash, wanted);
	if (__builtin_expect(address >> GM_RULE_ADDRESS_BITS != 0, 0))
		return 0;
	return entry;
}

/* Has the entry form 0 or 1? Only then do the next three functions return the fields of its rule. */
static inline bool gm_entry_is_plain(uint64_t entry)
{
	return entry && !(entry >> 44 & 1);
}

static inline bool gm_entry_is_fp(uint64_t entry)
{
	return entry >> 43 & 1;
}

static inline uintptr_t gm_entry_offset(uint64_t entry)	/* bytes */
{
	return entry >> 51 << 3;
}

static inline uintptr_t gm_entry_save(uint64_t entry)		/* bytes */
{
	return entry >> 42 & 0x1f8;
}

/* Return the rule of an entry; 0 for entry 0. */
uint64_t gm_entry_rule(uint64_t entry);

/* Add @rule for @address. It was computed in @generation. */
void gm_rule_add(uintptr_t address, uint32_t generation, uint64_t rule);

/* Forget all rules: begin the next generation. */
void gm_rule_flush(void);

#endif
