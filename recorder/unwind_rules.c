/*
 * unwind_rules.c - the cache of unwind rules (see unwind_rules.h).
 *
 * Owns gm_rule_cache. Any thread, any signal context.
 */
#include "recorder/unwind_rules.h"

#define INTERN_PROBES 64u		/* a table this crowded is full: rules then go uncached */

struct gm_rule_cache gm_rule_cache;	/* 384 KiB of .bss, touched as used */
_Atomic(uint32_t) gm_rule_now = 1;

/* The index of @rule in the table of distinct rules, where the rule is its own key: a word is
 * written once, from 0. Returns GM_RULE_DISTINCT when there is no room. */
static uint32_t intern(uint64_t rule)
{
	uint64_t hash = rule * UINT64_C(0xbf58476d1ce4e5b9);
	uint32_t at = (uint32_t)(hash >> 40);

	for (uint32_t i = 0; i < INTERN_PROBES; i++, at++) {
		_Atomic(uint64_t) *slot = &gm_rule_cache.rules[at % GM_RULE_DISTINCT];
		uint64_t there = atomic_load_explicit(slot, memory_order_relaxed);

		if (there == 0 &&
		    atomic_compare_exchange_strong_explicit(slot, &there, rule,
							    memory_order_relaxed,
							    memory_order_relaxed))
			return at % GM_RULE_DISTINCT;
		if (there == rule)
			return at % GM_RULE_DISTINCT;
	}
	return GM_RULE_DISTINCT;
}

uint64_t gm_rule_find_beyond(uintptr_t address, uint64_t hash, uint64_t want)
{
	if (address >> GM_RULE_ADDRESS_BITS)
		return 0;
	for (unsigned int i = 1; i < GM_RULE_WAYS; i++) {
		uint64_t word = atomic_load_explicit(
			&gm_rule_cache.sets[hash >> GM_RULE_TAG_BITS][(hash + i) % GM_RULE_WAYS],
			memory_order_acquire);

		if ((word ^ want) < 1u << 16)
			return atomic_load_explicit(&gm_rule_cache.rules[word % GM_RULE_DISTINCT],
						    memory_order_relaxed);
	}
	return 0;
}

void gm_rule_add(uintptr_t address, uint32_t generation, uint64_t rule)
{
	uint64_t hash = gm_rule_hash(address);
	_Atomic(uint64_t) *set = gm_rule_cache.sets[hash >> GM_RULE_TAG_BITS];
	uint32_t id = intern(rule);
	uint32_t way = (uint32_t)hash % GM_RULE_WAYS;
	uint64_t word;

	if (id == GM_RULE_DISTINCT || address >> GM_RULE_ADDRESS_BITS)
		return;
	for (unsigned int i = 0; i < GM_RULE_WAYS; i++) {
		uint32_t candidate = (uint32_t)(hash + i) % GM_RULE_WAYS;

		word = atomic_load_explicit(&set[candidate], memory_order_relaxed);
		if (((word >> 16) & (GM_RULE_GENERATIONS - 1)) != generation) {
			way = candidate;	/* empty, or of before a dlclose */
			break;
		}
	}
	word = hash << (64 - GM_RULE_TAG_BITS) | (uint64_t)generation << 16 | id;
	/* release: whoever sees the word sees the rule it names */
	atomic_store_explicit(&set[way], word, memory_order_release);
}

void gm_rule_flush(void)
{
	uint32_t now = atomic_load_explicit(&gm_rule_now, memory_order_relaxed);
	uint32_t next;

	do {
		next = (now + 1) % GM_RULE_GENERATIONS;
		if (next == 0)
			next = 1;
	} while (!atomic_compare_exchange_weak_explicit(&gm_rule_now, &now, next,
							memory_order_acq_rel,
							memory_order_relaxed));
	if (next != 1)
		return;
	/* the numbers begin again: what is left of the last round must not come alive */
	for (unsigned int set = 0; set < 1u << GM_RULE_SETS_LOG2; set++)
		for (unsigned int way = 0; way < GM_RULE_WAYS; way++)
			atomic_store_explicit(&gm_rule_cache.sets[set][way], 0, memory_order_relaxed);
}
