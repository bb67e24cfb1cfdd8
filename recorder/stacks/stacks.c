/*
 * stacks.c - capture the stack of an operation (see stacks.h).
 *
 * If a thread has had the same stack before, its cache (stack_cache.h) has the result, and only Python's frames
 * are walked. Any other stack is walked, and searched for among the stacks of all threads. A stack is
 * identified by a hash of 64 bits of its return addresses and of its Python frames. The hash includes the
 * generation of the modules, so that entries become stale. Owns the configuration: which stacks are wanted, and
 * how deep.
 */
#include "recorder/stacks/stacks.h"

#include <stdatomic.h>
#include <stddef.h>

#include "recorder/modules/modules.h"
#include "recorder/python/python.h"
#include "recorder/python/python_view.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/sys.h"
#include "recorder/stacks/stack_cache.h"

#define DEPTH_MAX 256u		/* the most frames of a stack that are recorded */
#define OWN_MOST 8		/* the most frames of our own at the beginning of a stack */

struct parts {
	const struct gm_regs *from;
	const uintptr_t *pcs;		/* native frames, beginning with our own */
	int own, count;			/* how many are our own; how many follow */
	int limit;			/* the most frames in the recorded stack */
	unsigned int flags;		/* of the native walk: GM_UNWIND_TRUNCATED, GM_UNWIND_MORE */
	bool native;			/* native frames are wanted */
	struct gm_python *python;	/* the interpreter whose frames are wanted; NULL: none */
};

enum { WANT_DEPTH = 0xffff, WANT_NATIVE = 0x10000, WANT_PYTHON = 0x20000, WANT_BITS = 18,
       EPOCHS = 0x3fffffff };		/* WANT_BITS and these fit into a key's @what */

_Atomic(uint64_t) gm_stacks_met;
static uintptr_t own_start, own_end;
_Atomic(uint32_t) gm_stacks_what;	/* WANT_... and the most frames; 0: nothing is captured */

void gm_stacks_init(uintptr_t start, uintptr_t end)
{
	own_start = start;
	own_end = end;
}

void gm_stacks_configure(bool native, bool python, unsigned int frames)
{
	if (frames > DEPTH_MAX)
		frames = DEPTH_MAX;
	if (!native && !python)
		frames = 0;
	if (frames)
		frames |= (native ? WANT_NATIVE : 0) | (python ? WANT_PYTHON : 0);
	atomic_store_explicit(&gm_stacks_what, frames, memory_order_relaxed);
}

/*
 * ---- the stacks seen by any thread: a lossy table of values by a hash of 64 bits ----
 *
 * Sets of eight entries, two cache lines each, 131,072 entries in all. An entry is two words, hash ^ value and
 * value, that are valid only together: words of two different writes give the hash of neither, so no lock is
 * needed. In a full set the entries are replaced in turn. A stack that was replaced is interned again when it
 * comes again.
 */
#define SEEN_SET (UINT64_C(1) << 63)	/* in each value, with stack id << 16 | module */
#define SETS_LOG2 14u
#define WAYS 8u

struct set {
	_Alignas(128) struct {
		_Atomic(uint64_t) key;		/* hash ^ value */
		_Atomic(uint64_t) value;	/* 0: empty */
	} entries[WAYS];
};

static _Atomic(void *) memory;		/* 2 MiB; only touched pages take memory */
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

/*
 * ---- a stack never seen: its frames to ids ----
 *
 * Python's frames come in groups. One call of the interpreter's loop runs the frames of a group, and the group
 * takes the place of the native frame of that call, which says nothing more. The group's anchor, an address
 * within the native frame, tells which frame that is. Without an anchor (3.8, 3.9, a walk that was cut) it is
 * the next frame whose address lies in the loop's function.
 */
#define ITEMS (2 * DEPTH_MAX + 2)

struct merge {
	const struct parts *parts;
	const uintptr_t *pcs, *ends;	/* native frames without our own; ends[-1] exists if @own > 0 */
	int next;			/* index of the next native frame */
	int pass;			/* calls of the loop without Python frames that are still to be passed */
	const uintptr_t *items;
	int item, items_count;
	uint32_t ids[DEPTH_MAX];
	int count;
	bool full;			/* there were more frames than room */
};

static void put(struct merge *m, uint32_t id)
{
	if (m->count < m->parts->limit)
		m->ids[m->count++] = id;
	else
		m->full = true;
}

static void put_native(struct merge *m, int until)
{
	for (; m->next < until && !m->full; m->next++) {
		struct gm_frame frame = { 0 };

		frame.module = gm_modules_lookup(m->pcs[m->next], &frame.offset);
		put(m, gm_intern_frame(&frame));
	}
}

static void put_python(struct merge *m, int until)
{
	for (; m->item < until && !m->full; m->item++) {
		uint32_t id;
		bool skip;

		if (m->items[m->item] & GM_PYTHON_ANCHOR)
			continue;
		id = gm_python_intern(m->parts->python, m->items[m->item], &skip);
		if (!skip)
			put(m, id);
	}
}

/* Return the end of the group that begins at m->item: the index after its last item. */
static int group_end(const struct merge *m)
{
	int at = m->item;

	if (m->parts->python->layout->chain == GM_CHAIN_PLAIN)
		return at + 1;
	while (at < m->items_count && !(m->items[at] & GM_PYTHON_ANCHOR))
		at++;
	return at < m->items_count ? at + 1 : at;
}

static bool is_eval(const struct merge *m, int native)
{
	const struct gm_python *python = m->parts->python;

	return m->pcs[native] > python->eval && m->pcs[native] <= python->eval_end;
}

/* Return the native frame that runs the group which ends before @end; -1 when it is not there. */
static int place_of(struct merge *m, int end)
{
	uintptr_t anchor = m->items[end - 1];

	for (int i = m->next; i < m->parts->count; i++) {
		if (anchor & GM_PYTHON_ANCHOR) {
			anchor &= ~(uintptr_t)GM_PYTHON_ANCHOR;
			for (; i < m->parts->count; i++)
				if (anchor < m->ends[i] &&
				    (i + m->parts->own == 0 || anchor >= m->ends[i - 1]))
					return i;
			return -1;
		}
		if (is_eval(m, i) && m->pass-- <= 0)
			return i;
	}
	return -1;
}

/* 3.8, 3.9: return how many calls of the loop have no Python frames, because they belong to a sub-interpreter
 * whose frames are missing. They are the first calls on the stack. 0 unless both ends of the stack are known. */
static int calls_without_frames(const struct merge *m, unsigned int flags, int frames)
{
	int calls = 0;

	if (m->parts->python->layout->chain != GM_CHAIN_PLAIN || flags)
		return 0;
	for (int i = 0; i < m->parts->count; i++)
		calls += is_eval(m, i);
	return calls > frames ? calls - frames : 0;
}

static void merge(struct merge *m)
{
	bool cut = m->parts->flags != 0;

	while (m->item < m->items_count && !m->full) {
		int end = group_end(m), place = place_of(m, end);

		if (place < 0 && cut)
			break;		/* its native frame is beyond those we have */
		if (place >= 0) {
			put_native(m, place);
			m->next = place + 1;
		}
		put_python(m, end);
	}
	put_native(m, m->parts->count);
	put_python(m, m->items_count);
}

/* Not inlined, so that the stacks of threads without Python have no room for its arrays. */
__attribute__((noinline))
static uint32_t intern_mixed(const struct parts *parts)
{
	uintptr_t pcs[DEPTH_MAX + OWN_MOST];
	uintptr_t ends[DEPTH_MAX + OWN_MOST];
	uintptr_t items[ITEMS];
	struct gm_python_walk walk = { .items = items, .max_items = ITEMS };
	struct merge m = { .parts = parts, .pcs = parts->pcs + parts->own };
	unsigned int flags = parts->flags;

	gm_python_walk(parts->python, parts->limit, &walk);
	m.items = items;
	m.items_count = walk.items_count;
	flags |= walk.flags;
	if (!parts->native) {
		put_python(&m, m.items_count);
		return gm_intern_stack(m.ids, (uint32_t)m.count, walk.flags != 0 || m.full);
	}
	if (gm_unwind_ends(parts->from, pcs, ends, parts->own + parts->count, NULL) !=
	    parts->own + parts->count)
		m.items_count = 0;	/* this walk differs from the first, for no known reason: leave Python's
					 * frames out */
	m.ends = ends + parts->own;
	m.pass = calls_without_frames(&m, flags, walk.frames);
	merge(&m);
	return gm_intern_stack(m.ids, (uint32_t)m.count, flags != 0 || m.full);
}

static uint32_t intern_native(const struct parts *parts)
{
	struct merge m = { .parts = parts, .pcs = parts->pcs + parts->own };

	put_native(&m, parts->count);
	return gm_intern_stack(m.ids, (uint32_t)m.count, parts->flags != 0 || m.full);
}

/* Intern a stack never seen. Returns its id; GM_NONE when it has no frames or there is no room. Stack: under 6
 * KiB, with Python frames under 16 KiB. */
static uint32_t intern_stack(const struct parts *parts)
{
	if (parts->python)
		return intern_mixed(parts);
	return parts->native ? intern_native(parts) : GM_NONE;
}

/* ---- capture ---- */

/* Hash native frames. */
static uint64_t hash_of(const uintptr_t *pcs, int count, unsigned int flags)
{
	uint64_t hash = (uint64_t)count << 8 | flags;

	for (int i = 0; i < count; i++) {
		uint64_t frame = (uint64_t)pcs[i] * UINT64_C(0xff51afd7ed558ccd);

		hash = hash * UINT64_C(0x9e3779b97f4a7c15) + (frame ^ frame >> 29);
	}
	hash *= UINT64_C(0xc4ceb9fe1a85ec53);
	hash ^= hash >> 31;
	return hash * UINT64_C(0xff51afd7ed558ccd);
}

/* Walk the native frames of @parts into @pcs, and return their hash. The interpreter may lie deeper than the
 * frames that are recorded, so walk as many as there is room for if the recorded stack has no native frames. */
static uint64_t walk_native(struct parts *parts, uintptr_t *pcs)
{
	int most = parts->native ? parts->limit : (int)DEPTH_MAX;
	int count = gm_unwind(parts->from, pcs, most + OWN_MOST, &parts->flags);

	parts->pcs = pcs;
	parts->own = 0;
	while (parts->own < count && pcs[parts->own] >= own_start && pcs[parts->own] < own_end)
		parts->own++;
	parts->count = count - parts->own;
	if (parts->count > most) {
		parts->count = most;
		parts->flags |= GM_UNWIND_MORE;
	}
	parts->flags &= GM_UNWIND_TRUNCATED | GM_UNWIND_MORE;
	return hash_of(pcs + parts->own, parts->count, parts->flags);
}

/* Hash the Python frames of this thread. *ret_empty: there are none. @cache: entered, or NULL. */
static uint64_t hash_inside(struct gm_python *python, int limit, struct gm_stack_cache *cache, bool *ret_empty)
{
	struct gm_python_walk walk = { .kept = cache ? gm_stack_cache_python(cache) : NULL };

	gm_python_walk(python, limit, &walk);
	*ret_empty = !walk.frames && !walk.flags;
	return (walk.hash + walk.flags) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Find the interpreter that the stack runs through, and hash its frames. A thread that was not made by Python
 * may run its code without a Python frame, for example to drop the last reference to an object. Then
 * @parts->python is NULL, but *ret_known is set. */
static uint64_t hash_python(struct parts *parts, struct gm_stack_cache *cache, struct gm_python **ret_known)
{
	bool cut = parts->flags & GM_UNWIND_TRUNCATED || (parts->flags && !parts->native), empty;
	uint64_t hash;

	parts->python = *ret_known = gm_python_on(parts->pcs + parts->own, parts->count, cut);
	if (!parts->python)
		return 0;
	hash = hash_inside(parts->python, parts->limit, cache, &empty);
	if (empty)
		parts->python = NULL;
	return hash;
}

/* Search the stack for an interpreter that is not known. Returns whether one was found: then the hash that
 * @parts had before lacks its frames. */
static bool discover(struct parts *parts)
{
	bool cut = parts->flags & GM_UNWIND_TRUNCATED || (parts->flags && !parts->native);
	struct gm_python *known;

	if (!gm_python_discover(parts->pcs + parts->own, parts->count, cut))
		return false;
	hash_python(parts, NULL, &known);
	return true;
}

/* Intern a stack that is not among those seen. @look: search for an interpreter that it runs through. */
static uint32_t meet(struct parts *parts, bool look, uint64_t hash, uint16_t *ret_module)
{
	uint32_t stack;
	bool late;

	atomic_fetch_add_explicit(&gm_stacks_met, 1, memory_order_relaxed);
	*ret_module = gm_modules_asker(parts->pcs + parts->own, parts->count);
	late = look && discover(parts);
	stack = intern_stack(parts);
	if (!late && (stack || !parts->native))
		gm_seen_keep(hash, SEEN_SET | (uint64_t)stack << 16 | *ret_module);
	return stack;
}

/* Walk the stack, and find it among those seen or intern it. @cache: entered, or NULL. */
__attribute__((noinline))
static uint64_t capture_anew(struct parts *parts, uint32_t want,
			     const struct gm_stack_key *key, struct gm_stack_cache *cache)
{
	uintptr_t pcs[DEPTH_MAX + OWN_MOST];
	uint64_t frames = walk_native(parts, pcs), inside = 0, hash, value;
	struct gm_python *python = NULL;
	uint16_t module;

	if (want & WANT_PYTHON)
		inside = hash_python(parts, cache, &python);
	hash = (frames + key->generation + want) ^ inside;
	value = gm_seen_find(hash);
	if (!value) {
		uint32_t stack = meet(parts, want & WANT_PYTHON && !python, hash, &module);

		return SEEN_SET | (uint64_t)stack << 16 | module;
	}
	if (cache && !(parts->flags & GM_UNWIND_TRUNCATED)) {
		const struct gm_walked_stack stack = {
			.pcs = pcs, .count = parts->own + parts->count,
			.more = parts->flags & GM_UNWIND_MORE, .hash = frames,
			.inside = inside, .value = value, .kind = gm_python_number(python),
		};

		gm_stack_cache_keep(cache, key, &stack);
	}
	return value;
}

/* Return the value of a stack that this thread has in its cache; 0: it must be walked. */
static inline uint64_t recall(uint32_t want, const struct gm_stack_key *key, struct gm_stack_cache *cache)
{
	struct gm_cached_stack *entry = gm_stack_cache_find(cache, key);
	uint64_t inside = 0, value;
	bool empty;

	if (!entry)
		return 0;
	if (entry->kind)
		inside = hash_inside(gm_python_of(entry->kind), (int)(want & WANT_DEPTH), cache, &empty);
	value = entry->value;
	if (inside != entry->inside) {
		value = gm_seen_find((entry->hash + key->generation + want) ^ inside);
		if (!value)
			return 0;
		entry = gm_stack_cache_like(cache, entry, inside, value);
	}
	gm_stack_cache_met(cache, entry);
	return value;
}

uint32_t gm_stacks_capture(const struct gm_regs *from, uint16_t *ret_module)
{
	uint32_t want = atomic_load_explicit(&gm_stacks_what, memory_order_relaxed);
	struct gm_stack_key key = { .from = from };
	struct gm_stack_cache *cache;
	uint64_t value = 0;

	if (!want)
		return GM_NONE;
	/* Read both before what they describe is used, so that a change meanwhile makes the entry stale. */
	key.what = (uint64_t)(gm_python_epoch() & EPOCHS) << WANT_BITS | want;
	key.generation = gm_modules_generation();
	cache = gm_stack_cache_enter(from);
	if (__builtin_expect(cache != NULL, 1))
		value = recall(want, &key, cache);
	if (__builtin_expect(!value, 0)) {
		struct parts parts = {
			.from = from, .limit = (int)(want & WANT_DEPTH), .native = want & WANT_NATIVE,
		};

		value = capture_anew(&parts, want, &key, cache);
	}
	if (cache)
		gm_stack_cache_leave(cache);
	*ret_module = (uint16_t)value;
	return (uint32_t)(value >> 16);
}
