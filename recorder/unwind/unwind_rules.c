/*
 * unwind_rules.c - the cache of unwind rules (see unwind_rules.h).
 *
 * Owns gm_rule_cache. Any thread, any signal context.
 */
#include "recorder/unwind/unwind_rules.h"

#define FORM_SHIFT 43
#define PAYLOAD_SHIFT 45		/* save and offset together: 19 bits */
#define WAYS (1u << GM_RULE_WAYS_LOG2)
#define ODD_PROBES 64u			/* after so many probes @odd is full, and the rule is not cached */

struct gm_rule_cache gm_rule_cache;	/* 288 KiB of .bss; only touched pages take memory */
_Atomic(uint32_t) gm_rule_now;

static _Atomic(uint64_t) *set_of(uint64_t hash)
{
	return &gm_rule_cache.entries[hash >> (64 - GM_RULE_SETS_LOG2) << GM_RULE_WAYS_LOG2];
}

static uint32_t first_way(uint64_t hash)
{
	return (uint32_t)(hash >> (64 - GM_RULE_SETS_LOG2 - GM_RULE_WAYS_LOG2)) % WAYS;
}

uint64_t gm_rule_find_beyond(uintptr_t address, uint64_t hash, uint64_t wanted)
{
	_Atomic(uint64_t) *set = set_of(hash);
	uint32_t first = first_way(hash);

	if (address >> GM_RULE_ADDRESS_BITS)
		return 0;
	for (uint32_t i = 1; i < WAYS; i++) {
		uint64_t entry = atomic_load_explicit(&set[(first + i) % WAYS],
						      memory_order_acquire);

		if ((entry & GM_RULE_WANTED_MASK) == wanted)
			return entry;
	}
	return 0;
}

uint64_t gm_entry_rule(uint64_t entry)
{
	if (!entry)
		return 0;
	if (gm_entry_is_plain(entry))
		return gm_rule_make(gm_entry_is_fp(entry) ? GM_RULE_FP : GM_RULE_SP,
				    (int32_t)gm_entry_offset(entry),
				    (int32_t)(gm_entry_save(entry) / 8));
	return atomic_load_explicit(&gm_rule_cache.odd[entry >> PAYLOAD_SHIFT & (GM_RULE_ODD - 1)],
				    memory_order_relaxed);
}

/* Return the index of @rule in the table of odd rules; GM_RULE_ODD when there is no room. A rule is its own key,
 * and a word of the table is written once. */
static uint32_t intern(uint64_t rule)
{
	uint32_t at = (uint32_t)(rule * UINT64_C(0xbf58476d1ce4e5b9) >> 40);

	for (uint32_t i = 0; i < ODD_PROBES; i++, at++) {
		_Atomic(uint64_t) *slot = &gm_rule_cache.odd[at % GM_RULE_ODD];
		uint64_t there = atomic_load_explicit(slot, memory_order_relaxed);

		if (there == 0 &&
		    atomic_compare_exchange_strong_explicit(slot, &there, rule,
							    memory_order_relaxed,
							    memory_order_relaxed))
			return at % GM_RULE_ODD;
		if (there == rule)
			return at % GM_RULE_ODD;
	}
	return GM_RULE_ODD;
}

/* Make the entry for @rule without tag and generation. Returns false when the rule cannot be kept. */
static bool pack(uint64_t rule, uint64_t *ret_entry)
{
	int64_t offset = gm_rule_offset(rule);
	int32_t save = gm_rule_save(rule);
	uint64_t form = gm_rule_kind(rule) == GM_RULE_FP;
	uint32_t index;

	if ((form || gm_rule_kind(rule) == GM_RULE_SP) && offset > 0 && offset < 65536 &&
	    offset % 8 == 0 && save >= 0 && save < 64) {
		*ret_entry = (uint64_t)offset << 48 | (uint64_t)save << PAYLOAD_SHIFT |
			     form << FORM_SHIFT;
		return true;
	}
	index = intern(rule);
	*ret_entry = (uint64_t)index << PAYLOAD_SHIFT | UINT64_C(2) << FORM_SHIFT;
	return index < GM_RULE_ODD;
}

void gm_rule_add(uintptr_t address, uint32_t generation, uint64_t rule)
{
	uint64_t hash = gm_rule_hash(address);
	uint64_t wanted = gm_rule_wanted(hash, generation);
	_Atomic(uint64_t) *set = set_of(hash);
	uint32_t way = first_way(hash);
	uint64_t entry;

	if (address >> GM_RULE_ADDRESS_BITS || !pack(rule, &entry))
		return;
	for (uint32_t i = 0; i < WAYS; i++) {
		uint32_t candidate = (first_way(hash) + i) % WAYS;
		uint64_t there = atomic_load_explicit(&set[candidate], memory_order_relaxed);

		if (((there ^ wanted) & GM_RULE_WANTED_MASK) >> GM_RULE_TAG_BITS) {
			way = candidate;	/* empty, or older than a dlclose */
			break;
		}
	}
	entry |= wanted;
	/* release: a thread that sees the entry also sees the odd rule that the entry names */
	atomic_store_explicit(&set[way], entry, memory_order_release);
	/* Generation numbers repeat. If the generation has changed meanwhile, remove the entry, so that it is not taken
	 * for valid when its number comes round again. */
	if (gm_rule_generation() != generation)
		atomic_compare_exchange_strong_explicit(&set[way], &entry, 0, memory_order_relaxed,
							memory_order_relaxed);
}

void gm_rule_flush(void)
{
	uint32_t now = atomic_fetch_add_explicit(&gm_rule_now, 1, memory_order_acq_rel) + 1;

	/* Before the numbers repeat, clear the entries of the last round, so that they do not become valid again. */
	if (now % (GM_RULE_GENERATIONS - 1) != 0)
		return;
	for (uint32_t i = 0; i < sizeof(gm_rule_cache.entries) / sizeof(uint64_t); i++)
		if (atomic_load_explicit(&gm_rule_cache.entries[i], memory_order_relaxed))
			atomic_store_explicit(&gm_rule_cache.entries[i], 0, memory_order_relaxed);
}
