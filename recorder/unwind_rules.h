/*
 * unwind_rules.h - the rule that undoes a frame, in one word, and the cache of them by address.
 *
 * A rule, for frames as compilers make them (all others are GM_RULE_FULL and take the slow way):
 *
 *	63            32 31        20 19     4 3    0
 *	| offset (bytes) | save/8     |   0     | kind |
 *
 *	GM_RULE_SP    CFA = rsp + offset                  rbp saved at CFA - 8 * save; 0: unchanged
 *	GM_RULE_FP    CFA = rbp + offset                  likewise
 *	GM_RULE_DRAP  CFA = *(rbp + offset), rbp saved at rbp + 8 * save (a realigned frame)
 *	GM_RULE_SIGNAL  registers in the kernel's rt_sigframe above rsp
 *	GM_RULE_END   the outermost frame
 *	the return address is at CFA - 8, the caller's rsp is CFA
 *
 * Distinct rules are few (some hundreds in a large program): each is kept once, in a table that
 * only grows, and known by its index. The cache has 4096 sets of 8 words, one cache line each:
 *
 *	63                      29 28      16 15       0
 *	| tag (35 bits of address) | generation | rule id |
 *
 * One word is one entry: it is read and written whole, so readers and writers need no lock and no
 * sequence. The hash of an address is a bijection on 47 bits: set and tag together are the
 * address, so an entry can never answer for another one. The generation changes with every
 * dlclose; an entry of an older one is not there.
 *
 * Addresses of 2^47 and more (57-bit address spaces, asked for by mmap hints) are never kept.
 *
 * Any thread, any signal context. Inherited by fork children as it is (they have the same code).
 */
#ifndef GM_RECORDER_UNWIND_RULES_H
#define GM_RECORDER_UNWIND_RULES_H

#include <stdatomic.h>
#include <stdint.h>

enum gm_rule_kind {
	GM_RULE_NONE,			/* nothing known */
	GM_RULE_SP, GM_RULE_FP, GM_RULE_DRAP, GM_RULE_SIGNAL, GM_RULE_END, GM_RULE_FULL,
};

#define GM_RULE_SETS_LOG2 12
#define GM_RULE_WAYS 8u
#define GM_RULE_ADDRESS_BITS 47
#define GM_RULE_TAG_BITS (GM_RULE_ADDRESS_BITS - GM_RULE_SETS_LOG2)
#define GM_RULE_GENERATIONS (1u << (64 - GM_RULE_TAG_BITS - 16))
#define GM_RULE_DISTINCT 16384u

struct gm_rule_cache {
	_Alignas(64) _Atomic(uint64_t) sets[1u << GM_RULE_SETS_LOG2][GM_RULE_WAYS];
	_Atomic(uint64_t) rules[GM_RULE_DISTINCT];
};

extern struct gm_rule_cache gm_rule_cache;
extern _Atomic(uint32_t) gm_rule_now;	/* generation; never 0: empty words match nothing */

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

/* The generation to look up and to add with: read once, before the walk. */
static inline uint32_t gm_rule_generation(void)
{
	return atomic_load_explicit(&gm_rule_now, memory_order_acquire);
}

static inline uint64_t gm_rule_hash(uintptr_t address)
{
	return (address * UINT64_C(0x9e3779b97f4a7c15)) & ((UINT64_C(1) << GM_RULE_ADDRESS_BITS) - 1);
}

/* The other ways of a set; not inlined, for the walk's sake. */
uint64_t gm_rule_find_beyond(uintptr_t address, uint64_t hash, uint64_t want);

/* The rule for the instruction at @address, 0 when it is not there. */
static inline uint64_t gm_rule_find(uintptr_t address, uint32_t generation)
{
	uint64_t hash = gm_rule_hash(address);
	uint64_t want = hash << (64 - GM_RULE_TAG_BITS) | (uint64_t)generation << 16;
	uint64_t word = atomic_load_explicit(
		&gm_rule_cache.sets[hash >> GM_RULE_TAG_BITS][hash % GM_RULE_WAYS],
		memory_order_acquire);

	if (__builtin_expect((word ^ want) >= 1u << 16, 0))
		return gm_rule_find_beyond(address, hash, want);
	if (__builtin_expect(address >> GM_RULE_ADDRESS_BITS != 0, 0))
		return 0;
	return atomic_load_explicit(&gm_rule_cache.rules[word % GM_RULE_DISTINCT],
				    memory_order_relaxed);
}

/* Keep @rule for @address, as found in @generation. */
void gm_rule_add(uintptr_t address, uint32_t generation, uint64_t rule);

/* Forget all: the next generation. */
void gm_rule_flush(void);

#endif
