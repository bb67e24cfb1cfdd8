/*
 * stack_cache.c - the native stacks that a thread has had (see stack_cache.h).
 *
 * Owns the caches. A thread enters a cache by one exchange and leaves it by a store. An outdated entry does no
 * harm as long as its words lie on this thread's stack. The stamp ensures that, because it changes with the
 * owner.
 */
#include "recorder/stacks/stack_cache.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "recorder/journal/sys.h"
#include "recorder/python/python.h"
#include "recorder/unwind/unwind_rules.h"
#include "recorder/unwind/unwind_step.h"
#include "recorder/unwind/window.h"

#define CACHES 64u
#define STRANGERS 64u			/* calls of other threads in a row, after which a cache becomes theirs */
#define STAMPS (1u << 16)
#define STAMP_SHIFT 48			/* the stamp's place in an entry's @what */
#define SLOTS 32768u			/* of 64 bytes, a ring: 2 MiB; only touched pages take memory */
#define SLOT_WORDS 8u
#define WORDS_MOST 508			/* of one entry */
#define BIAS (UINT64_C(1) << 31)	/* distances are stored as negative numbers, so that none looks like an
					 * address */
#define BEGINNINGS 1024u		/* this and VALUES are powers of two */
#define VALUES 4096u
#define FRAMES_MOST 264
#define CREDIT_MOST 131072u		/* frames; an entry costs its frames, ... */
#define CREDIT_A_WALK 8u		/* ... and a walk earns these, so that a thread with ever new stacks
					 * makes few entries in vain */

/* A frame of an entry that is being made: the words that undoing the frame reads. */
struct frame {
	uintptr_t at[3];		/* ascending addresses; 0: not read */
	uint8_t saved;			/* index of the word that has the caller's fp */
	bool uses_fp, keeps_fp;		/* its place depends on fp; the caller has the same fp */
};

/* The ring overwrites an entry from its first slot on. No later slot looks like the beginning of an entry: it
 * has two distances in the place of the pc or, in the slot with the sums, in that of the generation, and two
 * distances look like neither. So an entry with the right beginning is whole. */
struct gm_stack_cache {
	_Alignas(64) _Atomic(uint32_t) busy;
	uint32_t owner;			/* number of a thread; 0: none */
	uint32_t strangers;
	uint32_t generation;		/* of the unwind rules */
	uint32_t stamp;			/* changes with the generation and the owner */
	uint32_t used;			/* slots; the next entry begins here; slot 0 has no entry */
	uint32_t most;			/* slots that were ever used */
	uint32_t last;			/* the entry met last; 0: none */
	uint32_t credit;		/* frames that may still be made into entries */
	uint16_t beginnings[BEGINNINGS];	/* slot of the newest entry, by hash of its beginning */
	uint32_t values[VALUES];	/* tag << 16 | slot, by hash of value and sp; slot 0: there can be no entry */
	struct frame frames[FRAMES_MOST];
	int32_t at[WORDS_MOST];		/* distances of the entry that is being made */
	struct gm_python_kept python;
	_Alignas(64) uint64_t slots[SLOTS][SLOT_WORDS];
};

_Static_assert(offsetof(struct gm_cached_stack, hash) == SLOT_WORDS * 8,
	       "what is looked at is one line");
_Static_assert(WORDS_MOST % GM_STACK_WORDS_AT_ONCE == 0, "there is room for whole groups");

static _Atomic(void *) caches[CACHES];
static _Atomic(uint32_t) threads;
static __thread uint32_t own_number;
static __thread struct gm_stack_cache *own;	/* NULL: this thread has none */

/* ---- owners ------------------------------------------------------------------------------- */

/* Give this thread its number and its cache. Memory is asked for once: a thread that gets none has no cache. */
static __attribute__((noinline)) void take_number(void)
{
	own_number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
	own = gm_table_once(&caches[own_number % CACHES], sizeof(struct gm_stack_cache));
}

/* Invalidate everything that the cache keeps. */
static void renew(struct gm_stack_cache *cache)
{
	cache->python = (struct gm_python_kept){ .python = NULL };
	cache->stamp = (cache->stamp + 1) % STAMPS;
	if (!cache->stamp)		/* stamps repeat, so clear the entries that could become valid again */
		memset(cache->slots, 0, cache->most * sizeof(cache->slots[0]));
}

/* Called when a thread that is not the owner has entered. Returns whether it becomes the owner. */
static bool take_over(struct gm_stack_cache *cache)
{
	if (cache->owner && ++cache->strangers < STRANGERS)
		return false;
	cache->owner = own_number;
	cache->credit = CREDIT_MOST;
	if (!cache->used)
		cache->used = cache->most = 1;
	renew(cache);
	return true;
}

struct gm_stack_cache *gm_stack_cache_enter(const struct gm_regs *from)
{
	struct gm_stack_cache *cache;
	uint32_t generation;

	if (GM_REG_COUNT != 17 || from->has_all || !gm_unwind_is_own())
		return NULL;
	if (__builtin_expect(!own_number, 0))
		take_number();
	cache = own;
	if (!cache || atomic_exchange_explicit(&cache->busy, 1, memory_order_acquire))
		return NULL;
	if (__builtin_expect(cache->owner != own_number, 0) && !take_over(cache)) {
		gm_stack_cache_leave(cache);
		return NULL;
	}
	cache->strangers = 0;
	generation = gm_rule_generation();
	if (__builtin_expect(cache->generation != generation, 0)) {
		cache->generation = generation;
		renew(cache);
	}
	return cache;
}

void gm_stack_cache_leave(struct gm_stack_cache *cache)
{
	atomic_store_explicit(&cache->busy, 0, memory_order_release);
}

struct gm_python_kept *gm_stack_cache_python(struct gm_stack_cache *cache)
{
	return &cache->python;
}

/* ---- search ------------------------------------------------------------------------------- */

static inline struct gm_cached_stack *entry_at(struct gm_stack_cache *cache, uint32_t slot)
{
	return (struct gm_cached_stack *)(void *)cache->slots[slot % SLOTS];
}

static inline uint32_t slot_of(const struct gm_stack_cache *cache,
			       const struct gm_cached_stack *entry)
{
	return (uint32_t)(((uintptr_t)entry - (uintptr_t)cache->slots) / sizeof(cache->slots[0]));
}

static inline uint16_t *beginning_of(struct gm_stack_cache *cache, uintptr_t pc, uintptr_t sp)
{
	return &cache->beginnings[(pc ^ sp << 20) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

static inline uint64_t stamped(const struct gm_stack_cache *cache, uint64_t what)
{
	return what | (uint64_t)cache->stamp << STAMP_SHIFT;
}

static inline bool begins(const struct gm_cached_stack *entry, const struct gm_stack_key *key,
			  uint64_t what)
{
	const uintptr_t *r = key->from->r;
	uintptr_t fp = entry->by_fp ? UINTPTR_MAX : 0;

	return entry->pc == r[GM_REG_PC] && entry->sp == r[GM_REG_SP] &&
	       entry->generation == key->generation && entry->what == what &&
	       !((entry->fp ^ r[GM_REG_FP]) & fp);
}

/* Compute the two sums of the words of @entry, each of every other word, so that they do not wait for each other. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static inline void sum_words(const struct gm_cached_stack *entry, uint64_t ret_sums[2])
{
	const uint8_t *base = (const uint8_t *)(entry->sp + BIAS);
	uint64_t sums[2] = { 0, 0 };

	for (const int32_t *at = entry->at, *end = at + entry->count; at < end; at += GM_STACK_WORDS_AT_ONCE) {
#pragma GCC unroll 4
		for (int i = 0; i < GM_STACK_WORDS_AT_ONCE; i++) {
			sums[i & 1] ^= *(const uint64_t *)(const void *)(base + at[i]);
			sums[i & 1] *= UINT64_C(0x9e3779b97f4a7c15);
		}
	}
	ret_sums[0] = sums[0];
	ret_sums[1] = sums[1];
}

/* Are the words of @entry unchanged? All of them are read, even if the first one differs: mostly none does, and
 * all can be read. */
static inline bool is_true(const struct gm_cached_stack *entry)
{
	uint64_t sums[2];

	sum_words(entry, sums);
	return sums[0] == entry->sums[0] && sums[1] == entry->sums[1];
}

struct gm_cached_stack *gm_stack_cache_find(struct gm_stack_cache *cache,
					    const struct gm_stack_key *key)
{
	uint32_t next = entry_at(cache, cache->last)->next % SLOTS, beginning;
	struct gm_cached_stack *entry = entry_at(cache, next);
	uint64_t what = stamped(cache, key->what);

	if (__builtin_expect(!begins(entry, key, what) || !is_true(entry), 0)) {
		beginning = *beginning_of(cache, key->from->r[GM_REG_PC], key->from->r[GM_REG_SP]);
		entry = entry_at(cache, beginning);
		if (beginning == next || !begins(entry, key, what) || !is_true(entry))
			return NULL;
	}
	return entry;
}

void gm_stack_cache_met(struct gm_stack_cache *cache, struct gm_cached_stack *entry)
{
	uint32_t slot = slot_of(cache, entry);
	struct gm_cached_stack *last = entry_at(cache, cache->last);

	if (last->next != slot)
		last->next = slot;
	cache->last = slot;
}

/* ---- by value ---------------------------------------------------------------------------- */

/* Return the word of @value for stacks at @sp. The same stack at another sp has an entry of its own. */
static uint32_t *value_of(struct gm_stack_cache *cache, uint64_t value, uintptr_t sp,
			  uint32_t *ret_tag)
{
	uint64_t hash = (value ^ sp << 32) * UINT64_C(0x9e3779b97f4a7c15);

	*ret_tag = (uint32_t)(hash >> 36 | 1) << 16;	/* a tag is never 0, which means empty */
	return &cache->values[hash >> 52];
}

/* Returns whether @value is known. *ret_entry: its entry, NULL if there can be none. */
static bool find_value(struct gm_stack_cache *cache, const struct gm_stack_key *key, uint64_t value,
		       struct gm_cached_stack **ret_entry)
{
	uint32_t tag, word = *value_of(cache, value, key->from->r[GM_REG_SP], &tag);
	struct gm_cached_stack *entry = entry_at(cache, word & 0xffff);

	*ret_entry = NULL;
	if ((word & 0xffff0000u) != tag)
		return false;
	if (!(word & 0xffff))
		return true;
	if (entry->value != value || !begins(entry, key, stamped(cache, key->what)))
		return false;
	*ret_entry = entry;
	return true;
}

static void keep_value(struct gm_stack_cache *cache, uint64_t value, uintptr_t sp, uint32_t slot)
{
	uint32_t tag, *word = value_of(cache, value, sp, &tag);

	*word = tag | slot;
}

/* ---- new entries -------------------------------------------------------------------------- */

/* Reserve slots for an entry of @count words, which the caller fills in. */
static struct gm_cached_stack *take(struct gm_stack_cache *cache, uint32_t count)
{
	uint32_t bytes = (uint32_t)(offsetof(struct gm_cached_stack, at) + count * sizeof(int32_t));
	uint32_t slots = (bytes + SLOT_WORDS * 8 - 1) / (SLOT_WORDS * 8), at = cache->used;

	if (at + slots > SLOTS)
		at = 1;
	if (cache->last - at < slots)	/* the last entry is overwritten */
		cache->last = 0;
	cache->used = at + slots;
	if (cache->used > cache->most)
		cache->most = cache->used;
	return entry_at(cache, at);
}

static struct gm_cached_stack *keep(struct gm_stack_cache *cache, struct gm_cached_stack *entry)
{
	uint32_t slot = slot_of(cache, entry);

	entry->next = slot;
	keep_value(cache, entry->value, entry->sp, slot);
	*beginning_of(cache, entry->pc, entry->sp) = (uint16_t)slot;
	return entry;
}

struct gm_cached_stack *gm_stack_cache_like(struct gm_stack_cache *cache,
					    const struct gm_cached_stack *entry, uint64_t inside,
					    uint64_t value)
{
	struct gm_regs from = { .r = { [GM_REG_PC] = entry->pc, [GM_REG_SP] = entry->sp,
				       [GM_REG_FP] = entry->fp } };
	struct gm_stack_key key = { &from, entry->generation, entry->what };
	struct gm_cached_stack *other;

	if (!find_value(cache, &key, value, &other) || !other || other->hash != entry->hash) {
		/* memmove, because the new slots may overlap those of @entry */
		other = take(cache, entry->count);
		memmove(other, entry, offsetof(struct gm_cached_stack, at) + entry->count * sizeof(entry->at[0]));
	}
	other->inside = inside;
	other->value = value;
	return keep(cache, other);
}

/* The position of a walk. */
struct place { uintptr_t pc, sp, fp; };

/* Note the words that are read to undo the frame at @p by @rule. Returns false when that takes other registers
 * than pc, sp and fp, or words outside @window. */
static bool note_frame(const struct place *p, const struct gm_window *window, uint64_t rule,
		       struct frame *ret, uintptr_t *ret_cfa)
{
	intptr_t save = gm_rule_save(rule);
	uintptr_t saved, cfa;

	memset(ret, 0, sizeof(*ret));
	switch (gm_rule_kind(rule)) {
	case GM_RULE_SP:
	case GM_RULE_FP:
		ret->uses_fp = gm_rule_kind(rule) == GM_RULE_FP;
		ret->keeps_fp = !save;
		cfa = (ret->uses_fp ? p->fp : p->sp) + (uintptr_t)gm_rule_offset(rule);
		saved = cfa - (uintptr_t)(8 * save);
		if (save)
			ret->at[1] = saved;
		ret->saved = 1;
		break;
	case GM_RULE_DRAP:
		ret->uses_fp = true;
		ret->at[0] = p->fp + (uintptr_t)gm_rule_offset(rule);
		saved = p->fp + (uintptr_t)(8 * save);
		ret->at[1] = saved;
		ret->saved = 1;
		if (ret->at[0] % 8 || !gm_window_holds(window, ret->at[0]))
			return false;
		cfa = *(const uintptr_t *)ret->at[0];
		if (ret->at[0] > saved) {
			ret->at[1] = ret->at[0];
			ret->at[0] = saved;
			ret->saved = 0;
		}
		break;
	default:
		return false;
	}
	if (cfa <= p->sp || cfa % 8 || saved % 8 || !gm_window_holds(window, cfa - 8) ||
	    (ret->at[1] && !gm_window_holds(window, saved)))
		return false;
	ret->at[2] = cfa - 8;
	*ret_cfa = cfa;
	return true;
}

/* Walk the frames of @stack by their rules and note them in @cache->frames. Returns how many of them read
 * words; -1: there can be no entry. */
__attribute__((no_sanitize_address, no_sanitize_thread))
static int note_frames(struct gm_stack_cache *cache, const struct gm_regs *from,
		       const struct gm_walked_stack *stack)
{
	struct place p = { from->r[GM_REG_PC], from->r[GM_REG_SP], from->r[GM_REG_FP] };
	uint64_t bits = gm_rule_wanted(0, cache->generation);
	struct gm_window window;

	gm_window_open(&window, p.sp);
	if (from->has_all || !window.hi || p.sp % 8 || stack->count > FRAMES_MOST)
		return -1;
	for (int i = 0; i < stack->count; i++) {
		uintptr_t address = p.pc - (i > 0), cfa;	/* the first pc is no return address */
		uint64_t entry = gm_rule_find(address, bits);
		uint64_t rule = entry ? gm_entry_rule(entry) :
					gm_step_learn(address, cache->generation);
		struct frame *frame = &cache->frames[i];

		if (p.pc != stack->pcs[i])
			return -1;
		if (gm_rule_kind(rule) == GM_RULE_END)
			return i + 1 == stack->count && !stack->more ? i : -1;
		if (!note_frame(&p, &window, rule, frame, &cfa))
			return -1;
		if (!frame->keeps_fp)
			p.fp = *(const uintptr_t *)frame->at[frame->saved];
		p.pc = *(const uintptr_t *)(cfa - 8);
		p.sp = cfa;
		if (!p.pc)
			return i + 1 == stack->count && !stack->more ? i + 1 : -1;
	}
	return stack->more ? stack->count : -1;
}

/* Leave out the saved frame pointers that no frame further out uses. Returns whether the fp at the beginning is
 * used. */
static bool drop_unused(struct frame *frames, int count)
{
	bool used = false;

	for (int i = count; i-- > 0;) {
		if (!used && !frames[i].keeps_fp)
			frames[i].at[frames[i].saved] = 0;
		used = frames[i].uses_fp || (used && frames[i].keeps_fp);
	}
	return used;
}

/* Write the distances of the words to @ret_at. Returns their number, padded to a multiple of
 * GM_STACK_WORDS_AT_ONCE; -1: a word does not fit. */
static int write_places(const struct frame *frames, int count, uintptr_t sp, int32_t *ret_at)
{
	uintptr_t before = sp - 8;
	int words = 0;

	for (int i = 0; i < count; i++)
		for (int k = 0; k < 3; k++) {
			uintptr_t at = frames[i].at[k];

			if (!at)
				continue;
			if (at <= before || at - sp >= BIAS || words == WORDS_MOST)
				return -1;
			ret_at[words++] = (int32_t)(at - sp - BIAS);
			before = at;
		}
	for (; words > 0 && words % GM_STACK_WORDS_AT_ONCE; words++)
		ret_at[words] = ret_at[words - 1];
	return words;
}

static struct gm_cached_stack *make(struct gm_stack_cache *cache, const struct gm_stack_key *key,
				    const struct gm_walked_stack *stack)
{
	const uintptr_t *r = key->from->r;
	int count = note_frames(cache, key->from, stack), words;
	struct gm_cached_stack *entry;
	bool by_fp;

	if (count <= 0)
		return NULL;
	by_fp = drop_unused(cache->frames, count);
	words = write_places(cache->frames, count, r[GM_REG_SP], cache->at);
	if (words <= 0)
		return NULL;
	entry = take(cache, (uint32_t)words);
	*entry = (struct gm_cached_stack){
		.pc = r[GM_REG_PC], .sp = r[GM_REG_SP], .fp = r[GM_REG_FP], .by_fp = by_fp,
		.generation = key->generation, .what = stamped(cache, key->what),
		.hash = stack->hash, .inside = stack->inside, .value = stack->value,
		.kind = stack->kind, .count = (uint16_t)words,
	};
	memcpy(entry->at, cache->at, (size_t)words * sizeof(entry->at[0]));
	sum_words(entry, entry->sums);
	return keep(cache, entry);
}

void gm_stack_cache_keep(struct gm_stack_cache *cache, const struct gm_stack_key *key,
			 const struct gm_walked_stack *stack)
{
	struct gm_cached_stack *entry;
	const uintptr_t *r = key->from->r;

	if (find_value(cache, key, stack->value, &entry)) {
		if (entry)
			*beginning_of(cache, r[GM_REG_PC], r[GM_REG_SP]) =
				(uint16_t)slot_of(cache, entry);
	} else {
		if (cache->credit < CREDIT_MOST)
			cache->credit += CREDIT_A_WALK;
		if (cache->credit < (uint32_t)stack->count)
			return;
		cache->credit -= (uint32_t)stack->count;
		entry = make(cache, key, stack);
		if (!entry)
			keep_value(cache, stack->value, r[GM_REG_SP], 0);
	}
	if (entry)
		gm_stack_cache_met(cache, entry);
}
