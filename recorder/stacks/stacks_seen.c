/*
 * stacks_seen.c - the stacks seen (see stacks_seen.h).
 *
 * Sets of eight entries, two cache lines each. An entry is two words that are only believed together,
 * hash ^ value and value, so that those of two different writes give neither's hash: no lock. In a full
 * set one entry after the other is replaced. There is room for 131,072; of 50,000 about a hundred
 * have no place, and are interned anew when they come again.
 */
#include "recorder/stacks/stacks_seen.h"

#include <stdatomic.h>

#include "recorder/journal/sys.h"

#define SETS_LOG2 14u
#define WAYS 8u

struct set {
	_Alignas(128) struct {
		_Atomic(uint64_t) key;		/* hash ^ value */
		_Atomic(uint64_t) value;	/* 0 empty */
	} entries[WAYS];
};

static _Atomic(void *) memory;		/* 2 MiB, touched as used */
static _Atomic(uint32_t) replaced;

static struct set *set_of(void *table, uint64_t hash)
{
	return &((struct set *)table)[hash >> (64 - SETS_LOG2)];
}

uint64_t gm_seen_find(uint64_t hash)
{
	void *table = atomic_load_explicit(&memory, memory_order_acquire);

	for (uint32_t i = 0; table && i < WAYS; i++) {
		struct set *set = set_of(table, hash);
		uint64_t key = atomic_load_explicit(&set->entries[i].key, memory_order_acquire);
		uint64_t value = atomic_load_explicit(&set->entries[i].value, memory_order_relaxed);

		if (value && (key ^ value) == hash)
			return value;
	}
	return 0;
}

void gm_seen_keep(uint64_t hash, uint64_t value)
{
	void *table = gm_table_once(&memory, sizeof(struct set) << SETS_LOG2);
	uint32_t way = 0;
	struct set *set;

	if (!table)
		return;
	set = set_of(table, hash);
	while (way < WAYS && atomic_load_explicit(&set->entries[way].value, memory_order_relaxed))
		way++;
	if (way == WAYS)
		way = atomic_fetch_add_explicit(&replaced, 1, memory_order_relaxed) % WAYS;
	atomic_store_explicit(&set->entries[way].value, value, memory_order_relaxed);
	atomic_store_explicit(&set->entries[way].key, hash ^ value, memory_order_release);
}
