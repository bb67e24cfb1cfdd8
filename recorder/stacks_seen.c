/*
 * stacks_seen.c - the stacks seen (see stacks_seen.h).
 *
 * A program that trains comes through the same thousands of places in the same order, and between
 * two captures does so much else that what was kept of one has left the caches, and its page the TLB.
 * So entries stand in the order in which they were met, and with each which one came after it: that
 * is fetched when a capture ends, stays in the second level of the caches while the program does
 * something else, and is nearly always what the next capture looks for.
 *
 *	entries  | hash ^ value | value |   ring; two words that are only believed together, so that
 *	                                    those of two different writes give neither's hash
 *	ways     | number | hint |          of each: the entry that came next, and what its walk
 *	                                    will want to have; a thread's own, as its way and what its
 *	                                    walks want are. Entries PLACES apart share one
 *	index    | tag:15 number:17 |       buckets of a cache line, by hash; only its beginning is used
 *	                                    until that is too small
 *
 * Where two places shared an entry, both would be interned anew in every step, which takes many times
 * as long as to find them: there is room for 131,072.
 */
#include "recorder/stacks_seen.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "recorder/sys.h"

#define ENTRIES_LOG2 17u
#define ENTRIES (1u << ENTRIES_LOG2)
#define WAYS 16u
#define FIRST_BITS 9u			/* of buckets: 32 KiB for 8192 entries; */
#define GROWTH_BITS 2u
#define LAST_BITS 15u			/* 2 MiB */
#define PLACES 16384u			/* ways of a thread */
#define TABLES 32u			/* more threads than that have some of them together */
#define REPLACED_MOST 4u		/* numbers, until the index is too small */

struct seen {
	_Atomic(uint64_t) key;		/* hash ^ value */
	_Atomic(uint64_t) value;	/* 0 empty */
};

struct bucket { _Alignas(64) _Atomic(uint32_t) numbers[WAYS]; };

struct way { _Atomic(uint32_t) next, hint; };

/* Both there before a thread has a table of ways, which everything begins with: see way_from. */
struct memory {				/* 4 MiB, touched as used */
	struct seen entries[ENTRIES];
	struct bucket buckets[1u << LAST_BITS];
};
static _Atomic(void *) memory;
static _Atomic(void *) ways[TABLES];	/* 128 KiB each */

static struct {
	_Alignas(64) _Atomic(uint32_t) grown;	/* bits beyond FIRST_BITS */
	_Atomic(uint32_t) replaced;		/* since then */
	_Atomic(uint32_t) used;			/* entries, ever */
} size;

static _Atomic(uint32_t) threads;	/* that ever looked for one */
static __thread uint32_t last;		/* this thread's last entry */
static __thread struct way *own;	/* its table; NULL: it has none yet */

static inline struct memory *table(void)
{
	return atomic_load_explicit(&memory, memory_order_relaxed);
}

/* False: there is no memory for it. Nothing is kept then. */
static __attribute__((noinline)) bool take_ways(void)
{
	uint32_t number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % TABLES;

	if (gm_table_once(&memory, sizeof(struct memory)))
		own = gm_table_once(&ways[number], PLACES * sizeof(struct way));
	return own;
}

static inline bool has_ways(void)
{
	return __builtin_expect(own != NULL, 1) || take_ways();
}

static inline struct way *way_from(uint32_t number)
{
	return &own[number % PLACES];
}

static inline void go(uint32_t number)
{
	atomic_store_explicit(&way_from(last)->next, number, memory_order_relaxed);
	last = number;
}

uint32_t gm_seen_leave(uint32_t hint)
{
	struct way *way;
	uint32_t next;

	if (!has_ways())
		return 0;
	way = way_from(last);
	next = atomic_load_explicit(&way->next, memory_order_relaxed);
	if (hint && hint != atomic_load_explicit(&way->hint, memory_order_relaxed))
		atomic_store_explicit(&way->hint, hint, memory_order_relaxed);
	__builtin_prefetch(&table()->entries[next]);
	return atomic_load_explicit(&way_from(next)->hint, memory_order_relaxed);
}

static inline uint64_t value_at(uint32_t number, uint64_t hash)
{
	const struct seen *entry = &table()->entries[number];
	uint64_t value = atomic_load_explicit(&entry->value, memory_order_acquire);

	if (value && (atomic_load_explicit(&entry->key, memory_order_acquire) ^ value) == hash)
		return value;
	return 0;
}

static uint32_t index_word(uint64_t hash, uint32_t number)
{
	return (uint32_t)(hash >> 49) << ENTRIES_LOG2 | number;
}

static struct bucket *bucket_of(uint64_t hash, uint32_t beyond)
{
	return &table()->buckets[(hash >> 20) & ((1u << (FIRST_BITS + beyond)) - 1)];
}

static uint32_t grown(void)
{
	return atomic_load_explicit(&size.grown, memory_order_relaxed);
}

static void count_replaced(uint32_t beyond)
{
	if (atomic_fetch_add_explicit(&size.replaced, 1, memory_order_relaxed) + 1 < REPLACED_MOST ||
	    FIRST_BITS + beyond >= LAST_BITS)
		return;
	/* of two threads that come here for one size, the second does nothing */
	if (atomic_compare_exchange_strong_explicit(&size.grown, &beyond, beyond + GROWTH_BITS,
						    memory_order_relaxed, memory_order_relaxed))
		atomic_store_explicit(&size.replaced, 0, memory_order_relaxed);
}

/* How long before @number @word's entry was met, around the ring; of an empty place, longest. */
static uint32_t age_of(uint32_t word, uint32_t number)
{
	return word ? (number - word) % ENTRIES : ENTRIES;
}

/* Into an empty place, else in that of the oldest. (Of two threads that take one place, one's entry
 * will not be found.) */
static void enter_index(uint64_t hash, uint32_t number)
{
	uint32_t beyond = grown(), way = 0, oldest = 0;
	struct bucket *bucket = bucket_of(hash, beyond);

	for (uint32_t i = 0; i < WAYS; i++) {
		uint32_t word = atomic_load_explicit(&bucket->numbers[i], memory_order_relaxed);

		if (age_of(word, number) > oldest) {
			way = i;
			oldest = age_of(word, number);
		}
	}
	if (oldest < ENTRIES)
		count_replaced(beyond);
	atomic_store_explicit(&bucket->numbers[way], index_word(hash, number), memory_order_relaxed);
}

static uint64_t find_in(const struct bucket *bucket, uint64_t hash, uint32_t *ret_number)
{
	for (uint32_t i = 0; i < WAYS; i++) {
		uint32_t word = atomic_load_explicit(&bucket->numbers[i], memory_order_relaxed);
		uint32_t number = word % ENTRIES;
		uint64_t value = word == index_word(hash, number) ? value_at(number, hash) : 0;

		if (value) {
			*ret_number = number;
			return value;
		}
	}
	return 0;
}

/* By the index, or by its part that was used when it was smaller: then it comes to where it belongs
 * now. */
static __attribute__((noinline)) uint64_t find_far(uint64_t hash)
{
	uint32_t beyond = grown(), number;
	uint64_t value = find_in(bucket_of(hash, beyond), hash, &number);

	while (!value && beyond) {
		beyond -= GROWTH_BITS;
		value = find_in(bucket_of(hash, beyond), hash, &number);
		if (value)
			enter_index(hash, number);
	}
	if (value)
		go(number);
	return value;
}

uint64_t gm_seen_find(uint64_t hash)
{
	uint32_t expected;
	uint64_t value;

	if (!has_ways())
		return 0;
	expected = atomic_load_explicit(&way_from(last)->next, memory_order_relaxed);
	value = value_at(expected, hash);
	if (__builtin_expect(!value, 0))
		return find_far(hash);
	last = expected;
	return value;
}

void gm_seen_keep(uint64_t hash, uint64_t value)
{
	uint32_t number;

	if (!has_ways())
		return;
	/* word 0 of the index is none, so is entry 0 */
	number = atomic_fetch_add_explicit(&size.used, 1, memory_order_relaxed) % (ENTRIES - 1) + 1;
	atomic_store_explicit(&table()->entries[number].value, value, memory_order_release);
	atomic_store_explicit(&table()->entries[number].key, hash ^ value, memory_order_release);
	enter_index(hash, number);
	go(number);
}
