/*
 * python_walk.c - the chain of Python frames of the calling thread (see python.h).
 *
 * Owns the table of known contents, and the walk: through the kernel until the layout is proved, then
 * directly; and where nothing is asked for but the hash, without all else, and without the frames that are as they were
 * in the walk before. Contexts as python.h.
 */
#include "recorder/python/python.h"

#include <pthread.h>

#include "recorder/journal/atomic.h"
#include "recorder/python/python_view.h"
#include "recorder/unwind/unwind.h"

#define BAD_MOST 16u			/* walks that may fail before one has proved right */

struct chain {
	uintptr_t frame, cframe;
	int steps;			/* frames and shims, against a chain without end */
};

GM_PYTHON_INLINE void keep(struct gm_python_walk *walk, uintptr_t item)
{
	if (walk->items_count < walk->max_items)
		walk->items[walk->items_count++] = item;
}

/* Where the chain of a thread state begins. */
GM_PYTHON_INLINE bool begin(const struct gm_python_layout *layout, bool probed, uintptr_t state,
			    struct chain *chain)
{
	*chain = (struct chain){ 0 };
	if (layout->state_cframe) {
		chain->cframe = gm_py_word_at(probed, state, layout->state_cframe);
		if (gm_py_is_odd(chain->cframe))
			return false;
	}
	if (layout->state_frame)
		chain->frame = gm_py_word_at(probed, state, layout->state_frame);
	else
		chain->frame = gm_py_word_at(probed, chain->cframe, layout->cframe_frame);
	return true;
}

/* After @view, the entry frame of a call of the loop: its anchor is the cframe, then comes the
 * caller's. While nothing is proved, that one must go on with the very frame that @view says. */
GM_PYTHON_INLINE bool leave_call(const struct gm_python_layout *layout, bool probed,
				 const uint8_t *view, struct chain *chain,
				 struct gm_python_walk *walk)
{
	keep(walk, chain->cframe | GM_PYTHON_ANCHOR);
	chain->cframe = gm_py_word_at(probed, chain->cframe, layout->cframe_previous);
	if (gm_py_is_odd(chain->cframe))
		return false;
	return !probed || layout->chain != GM_CHAIN_ENTRIES ||
	       gm_py_word_at(true, chain->cframe, layout->cframe_frame) ==
		       gm_py_word(view, layout->frame_previous);
}

/* While nothing is proved: does @frame stand in the code that it is said to run? */
GM_PYTHON_RAW static bool is_within(const struct gm_python_layout *layout, uintptr_t code_at,
				    const uint8_t *code, const uint8_t *frame)
{
	uintptr_t instr = gm_python_instr(layout, frame, code_at);
	intptr_t at = (intptr_t)instr, bytes;

	if (layout->chain <= GM_CHAIN_PAIRS) {
		bytes = (intptr_t)gm_py_word_at(true, gm_py_word(code, layout->code_units),
						layout->objects.bytes_size);
	} else {
		at = (intptr_t)(instr - code_at - layout->code_units);
		bytes = (intptr_t)gm_py_word(code, layout->objects.bytes_size) * 2;
	}
	return at >= -2 && at < bytes;
}

/* The contents of code objects that are known, lossy: since 3.12 an object has a number, so that its
 * own fields tell it from others. Two words that are only believed together, as in stacks.c. */
#define KNOWN 2048u			/* a power of two */

static struct {
	_Atomic(uint64_t) check;	/* hash ^ content */
	_Atomic(uint64_t) content;
} known[KNOWN];

/* A code object that is not known yet. Out of line: inlined, it takes registers from every frame. */
GM_PYTHON_RAW __attribute__((noinline))
static uint64_t learn(const struct gm_python_layout *layout, const struct gm_py_objects *objects,
		      const uint8_t *code, uint64_t hash)
{
	uint64_t content = gm_py_content(layout, objects, false, code);
	unsigned int at = (unsigned int)(hash >> 40) % KNOWN;

	gm_set(&known[at].content, content);
	gm_set(&known[at].check, hash ^ content);
	return content;
}

/* The file that was looked at last in this walk, during which no object of the stack goes away, and
 * gm_py_text_word of its name. */
struct file { uintptr_t at, word; };

/* What tells a code object from others that may have been at its address: by the number that it has, if it has one;
 * otherwise by a look at what it refers to. */
GM_PYTHON_INLINE struct gm_python_words words_of(const struct gm_python_layout *layout,
						 const struct gm_py_objects *objects, uintptr_t code_at,
						 const uint8_t *code, struct file *file)
{
	uint64_t version = (uint32_t)gm_py_int(code, layout->code_version);
	uintptr_t file_at = gm_py_word(code, layout->code_filename);

	if (layout->code_version && gm_likely(version))	/* 0: the numbers have run out */
		return (struct gm_python_words){
			code_at ^ version << 32 ^ (uint32_t)gm_py_int(code, layout->code_first_line),
			file_at ^ gm_py_swap(gm_py_word(code, layout->code_name)) ^
				gm_py_word(code, layout->code_lines) << 16,
		};
	if (file->at != file_at) {
		file->at = file_at;
		file->word = gm_py_text_word(layout, objects, false, file_at);
	}
	return gm_py_words(layout, objects, false, code, file->word);
}

/* gm_py_content, of code with these words. */
GM_PYTHON_INLINE uint64_t content_of(const struct gm_python_layout *layout, const struct gm_py_objects *objects,
				     const uint8_t *code, const struct gm_python_words *words)
{
	uint64_t hash = gm_py_mix(words->first, words->second), content;
	unsigned int at;

	if (!layout->code_version || gm_unlikely(!gm_py_int(code, layout->code_version)))
		return hash;
	at = (unsigned int)(hash >> 40) % KNOWN;
	content = gm_get(&known[at].content);
	if (gm_likely((gm_get(&known[at].check) ^ content) == hash))
		return content;
	return learn(layout, objects, code, hash);
}

/* One frame: into the hash. Returns false when it is none. */
GM_PYTHON_INLINE bool take(const struct gm_python *python, const struct gm_python_layout *layout,
			   const struct gm_py_objects *objects, bool probed, const uint8_t *view,
			   struct gm_python_walk *walk, struct file *file)
{
	uint8_t copy[GM_PY_CODE_BYTES];
	uintptr_t code_at = gm_py_code(layout, view);
	const uint8_t *code = (const uint8_t *)code_at;
	struct gm_python_words words;
	uint64_t content;

	if (gm_py_is_odd(code_at))
		return false;
	if (probed) {
		code = gm_py_view(true, code_at, copy, layout->code_bytes);
		if (!code)
			return false;
	}
	if (gm_py_word(code, objects->type) != python->code_type ||
	    (probed && !is_within(layout, code_at, code, view)))
		return false;
	if (probed) {
		content = gm_py_content(layout, objects, true, code);
	} else {
		words = words_of(layout, objects, code_at, code, file);
		content = content_of(layout, objects, code, &words);
	}
	/* An address in a copy of the code for threads is not looked up here: the copy stays while
	 * this thread does, and one that takes its place after that has its size. */
	walk->hash = gm_py_key(walk->hash, code_at, content, gm_py_instr(layout, view));
	walk->frames++;
	return true;
}

/* Walk one thread state's frames. Returns false when something is not as it should be. */
GM_PYTHON_INLINE bool walk_chain(const struct gm_python *python,
				 const struct gm_python_layout *layout,
				 const struct gm_py_objects *objects, bool probed,
				 uintptr_t state, int max, struct gm_python_walk *walk)
{
	uint8_t copy[GM_PY_FRAME_BYTES];
	struct file file = { 0 };
	struct chain chain;

	if (!begin(layout, probed, state, &chain))
		return false;
	while (chain.frame) {
		const uint8_t *view = gm_py_view(probed, chain.frame, copy,
						 layout->frame_bytes);
		bool is_shim;

		if (!view || chain.steps++ > 2 * max)
			return false;
		is_shim = layout->chain == GM_CHAIN_SHIMS &&
			  view[layout->frame_owner] >= GM_PY_OWNER_SHIM;
		if (is_shim) {
			keep(walk, chain.frame | GM_PYTHON_ANCHOR);
		} else {
			if (walk->frames >= max) {
				walk->flags |= GM_UNWIND_MORE;
				return true;
			}
			if (!take(python, layout, objects, probed, view, walk, &file))
				return false;
			keep(walk, chain.frame);
			if ((layout->chain == GM_CHAIN_PAIRS ||
			     (layout->chain == GM_CHAIN_ENTRIES && view[layout->frame_entry])) &&
			    !leave_call(layout, probed, view, &chain, walk))
				return false;
		}
		chain.frame = gm_py_word(view, layout->frame_previous);
	}
	return true;
}

/* The same for the hash alone, of a layout that is proved: all that is done for a stack that was seen before. */
GM_PYTHON_INLINE bool hash_chain(const struct gm_python *python,
				 const struct gm_python_layout *layout,
				 const struct gm_py_objects *objects, uintptr_t state, int max,
				 struct gm_python_walk *walk)
{
	struct gm_python_walk here = { .hash = walk->hash, .frames = walk->frames };
	struct file file = { 0 };
	struct chain chain;
	bool fits = begin(layout, false, state, &chain);
	int shims = 0;

	while (fits && !gm_py_is_odd(chain.frame)) {	/* as 0 is, which ends it */
		const uint8_t *view = (const uint8_t *)chain.frame;

		if (layout->chain == GM_CHAIN_SHIMS && view[layout->frame_owner] >= GM_PY_OWNER_SHIM) {
			fits = shims++ <= 2 * max;
		} else if (here.frames >= max) {
			walk->flags |= GM_UNWIND_MORE;
			chain.frame = 0;
			break;
		} else {
			fits = take(python, layout, objects, false, view, &here, &file);
		}
		chain.frame = gm_py_word(view, layout->frame_previous);
	}
	fits = fits && !chain.frame;
	walk->hash = here.hash;
	walk->frames = here.frames;
	return fits;
}

/* ---- what is as in the walk before ------------------------------------------------------------- */

#define NEAR 16				/* how far a frame is looked for among those kept */
#define REST 64u			/* walks without a look at what is kept, after one that was too deep */

/* How many of the items from @at outwards are as they were; @*frame, which that one is at, is followed behind them. */
GM_PYTHON_INLINE int same_items(const struct gm_python_layout *layout, const struct gm_python_kept *kept, int at,
				uintptr_t *frame)
{
	const struct gm_python_item *first = &kept->items[at], *item = first;

	for (; item >= kept->items && *frame == item->frame; item--) {
		const uint8_t *view = (const uint8_t *)*frame;

		if (gm_py_word(view, layout->frame_code) != item->code || gm_py_instr(layout, view) != item->instr ||
		    (layout->chain == GM_CHAIN_SHIMS &&
		     view[layout->frame_owner] != kept->owners[item - kept->items]))
			break;
		*frame = gm_py_word(view, layout->frame_previous);
	}
	return (int)(first - item);
}

/* The item of @frame among the next ones from @from on, -1: none of them. */
GM_PYTHON_INLINE int find_item(const struct gm_python_kept *kept, int from, uintptr_t frame)
{
	for (int i = from; i >= 0 && i > from - NEAR; i--)
		if (kept->items[i].frame == frame)
			return i;
	return -1;
}

/* Are the code objects up to item @last what they were? Their addresses were compared. */
GM_PYTHON_INLINE bool same_code(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, const struct gm_python_kept *kept, int last)
{
	struct file file = { 0 };

	for (const struct gm_python_code *of = kept->code; of < &kept->code[kept->codes] && of->item <= last; of++) {
		const uint8_t *code = (const uint8_t *)of->at;
		struct gm_python_words words;

		if (gm_py_word(code, objects->type) != python->code_type)
			return false;
		words = words_of(layout, objects, of->at, code, &file);
		if (words.first != of->words.first || words.second != of->words.second)
			return false;
	}
	return true;
}

/* Find the item from which on everything is kept already, -1 if there is none, with what is before that in
 * @kept->fresh, @*ret_fresh items. False: something is not as it should be, or too deep. */
GM_PYTHON_INLINE bool join(const struct gm_python_layout *layout, struct gm_python_kept *kept, uintptr_t frame,
			   int *ret_at, uint32_t *ret_fresh)
{
	int from = (int)kept->count - 1, at, same;
	uint32_t fresh = 0;

	*ret_at = -1;
	while (frame) {
		at = find_item(kept, from, frame);
		if (at >= 0) {
			same = same_items(layout, kept, at, &frame);
			from = at - same;
			if (gm_likely(from < 0 && !frame)) {
				*ret_at = at;
				break;
			}
			/* Further out something is new: so is what depends on it. */
			for (; same > 0 && fresh < GM_PYTHON_KEPT; same--)
				kept->fresh[fresh++] = kept->items[at--].frame;
			if (from >= 0 && kept->items[from].frame == frame)
				from--;
			if (!frame)
				break;
		}
		if (gm_py_is_odd(frame) || fresh >= GM_PYTHON_KEPT)
			return false;
		kept->fresh[fresh++] = frame;
		frame = gm_py_word((const uint8_t *)frame, layout->frame_previous);
	}
	*ret_fresh = fresh;
	return *ret_at + 1 + (int)fresh <= (int)GM_PYTHON_KEPT;
}

/* The content of the code of the next item; looked at once in a walk. */
GM_PYTHON_INLINE uint64_t keep_code(const struct gm_python_layout *layout, const struct gm_py_objects *objects,
				    struct gm_python_kept *kept, uintptr_t code_at, struct file *file)
{
	struct gm_python_code *of = &kept->code[kept->codes];

	for (uint32_t i = kept->codes; i-- > 0 && i + NEAR >= kept->codes;)
		if (kept->code[i].at == code_at)
			return kept->code[i].content;
	of->at = code_at;
	of->item = (int)kept->count;
	of->words = words_of(layout, objects, code_at, (const uint8_t *)code_at, file);
	of->content = content_of(layout, objects, (const uint8_t *)code_at, &of->words);
	kept->codes++;
	return of->content;
}

/* Keep one item more, which is further in. False: it is no frame. */
GM_PYTHON_INLINE bool keep_item(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, struct gm_python_kept *kept, uintptr_t frame,
				struct file *file)
{
	const uint8_t *view = (const uint8_t *)frame;
	uint32_t at = kept->count;
	uint64_t hash = at ? kept->hashes[at - 1] : 0;
	uint16_t frames = at ? kept->frames[at - 1] : 0;
	uintptr_t code_at = gm_py_code(layout, view);

	kept->items[at].frame = frame;
	kept->items[at].code = gm_py_word(view, layout->frame_code);
	kept->items[at].instr = gm_py_instr(layout, view);
	kept->owners[at] = view[layout->frame_owner];
	if (layout->chain != GM_CHAIN_SHIMS || view[layout->frame_owner] < GM_PY_OWNER_SHIM) {
		if (gm_py_is_odd(code_at) || gm_py_word((const uint8_t *)code_at, objects->type) != python->code_type)
			return false;
		hash = gm_py_key(hash, code_at, keep_code(layout, objects, kept, code_at, file), kept->items[at].instr);
		frames++;
	}
	kept->hashes[at] = hash;
	kept->frames[at] = frames;
	kept->count++;
	return true;
}

/* The hash of the frames of @state, of a layout that is proved, with what is kept. False: it must be made without. */
GM_PYTHON_INLINE bool hash_kept(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, uintptr_t state, int max,
				struct gm_python_walk *walk)
{
	struct gm_python_kept *kept = walk->kept;
	struct file file = { 0 };
	struct chain chain;
	uint32_t fresh;
	int at;

	if (gm_unlikely(kept->python != python)) {
		kept->python = python;
		kept->count = kept->codes = 0;
	}
	if (!begin(layout, false, state, &chain) || !join(layout, kept, chain.frame, &at, &fresh))
		return false;
	if (at >= 0 && !same_code(python, layout, objects, kept, at)) {
		kept->count = 0;
		if (!join(layout, kept, chain.frame, &at, &fresh))
			return false;
	}
	if (gm_unlikely(fresh || at + 1 < (int)kept->count)) {
		kept->count = (uint32_t)(at + 1);
		while (kept->codes && kept->code[kept->codes - 1].item > at)
			kept->codes--;
		while (fresh-- > 0)
			if (!keep_item(python, layout, objects, kept, kept->fresh[fresh], &file))
				return false;
	}
	walk->hash = kept->count ? kept->hashes[kept->count - 1] : 0;
	walk->frames = kept->count ? kept->frames[kept->count - 1] : 0;
	return walk->frames <= max;
}

/* With what is kept, or without. */
GM_PYTHON_INLINE bool hash_frames(const struct gm_python *python, const struct gm_python_layout *layout,
				  const struct gm_py_objects *objects, uintptr_t state, int max,
				  struct gm_python_walk *walk)
{
	struct gm_python_kept *kept = walk->kept;

	if (gm_likely(kept && !kept->rest)) {
		if (gm_likely(hash_kept(python, layout, objects, state, max, walk)))
			return true;
		kept->count = kept->codes = 0;
		kept->rest = REST;
		walk->hash = 0;
		walk->frames = 0;
	} else if (kept) {
		kept->rest--;
	}
	return hash_chain(python, layout, objects, state, max, walk);
}

typedef bool walk_fn(const struct gm_python *python, uintptr_t state, int max,
		     struct gm_python_walk *walk);

/* Compiled several times, for the sake of the direct reads, and of offsets that are constant there. */
GM_PYTHON_RAW __attribute__((noinline))
static bool walk_probed(const struct gm_python *python, uintptr_t state, int max,
			struct gm_python_walk *walk)
{
	const struct gm_python_layout *layout = python->layout;

	return walk_chain(python, layout, &layout->objects, true, state, max, walk);
}

GM_PYTHON_RAW __attribute__((noinline))
static bool walk_direct(const struct gm_python *python, uintptr_t state, int max,
			struct gm_python_walk *walk)
{
	const struct gm_python_layout *layout = python->layout;

	return walk_chain(python, layout, &layout->objects, false, state, max, walk);
}

GM_PYTHON_RAW __attribute__((noinline))
static bool hash_direct(const struct gm_python *python, uintptr_t state, int max,
			struct gm_python_walk *walk)
{
	return hash_frames(python, python->layout, &gm_py_gil_objects, state, max, walk);
}

GM_PYTHON_RAW __attribute__((noinline))
static bool hash_other_objects(const struct gm_python *python, uintptr_t state, int max,
			       struct gm_python_walk *walk)
{
	const struct gm_python_layout *layout = python->layout;

	return hash_frames(python, layout, &layout->objects, state, max, walk);
}

#define HASH_OF(minor_) \
	GM_PYTHON_RAW __attribute__((noinline)) \
	static bool hash_3_##minor_(const struct gm_python *python, uintptr_t state, int max, \
				    struct gm_python_walk *walk) \
	{ \
		return hash_frames(python, &gm_py_layouts[minor_ - GM_PY_FIRST_MINOR], &gm_py_gil_objects, \
				  state, max, walk); \
	}
HASH_OF(10)
HASH_OF(11)
HASH_OF(12)

/* Of an interpreter whose layout is proved. */
static walk_fn *hash_of(const struct gm_python_layout *layout)
{
	static walk_fn *const known_minors[] = { [10] = hash_3_10, [11] = hash_3_11, [12] = hash_3_12 };

	if (layout->minor < sizeof(known_minors) / sizeof(known_minors[0]) && known_minors[layout->minor])
		return known_minors[layout->minor];
	return layout->has_gil_objects ? hash_direct : hash_other_objects;
}

/* The thread state whose frames are this thread's, 0: there is none; and *@ret_other, which has inner ones. Up to 3.11
 * the former is always the main interpreter's; if there are others, who holds the GIL may be this
 * thread in one of them: read through the kernel, since it may be another thread's and be freed. */
static uintptr_t find_states(const struct gm_python *python, bool probed, uintptr_t *ret_other)
{
	uintptr_t own, holder;

	*ret_other = 0;
	/* The end frees what is other threads'. A daemon thread that asks just before it and is kept
	 * from the processor throughout the walk might read what is freed: a walk takes less than a
	 * microsecond, and Python gives no other sign. */
	if (python->is_finalizing())
		return 0;
	own = (uintptr_t)python->this_state();
	if (!own)
		return 0;
	if (python->layout->minor < 12 && python->newest && python->holder &&
	    (uintptr_t)python->newest() != gm_py_word_at(probed, own, GM_PY_STATE_INTERP)) {
		holder = (uintptr_t)python->holder();
		if (holder && holder != own &&
		    gm_py_word_at(true, holder, python->layout->state_thread) ==
			    (uintptr_t)pthread_self())
			*ret_other = holder;
	}
	return own;
}

/* A walk while the layout is not yet proved. */
static void judge(struct gm_python *python, bool fits, const struct gm_python_walk *walk)
{
	if (!fits) {
		if (atomic_fetch_add_explicit(&python->bad, 1, memory_order_relaxed) >= BAD_MOST)
			gm_python_off(python);
	} else if (walk->frames) {
		atomic_fetch_add_explicit(&python->good, 1, memory_order_acq_rel);
	}
}

/* The frames of @state, if it is this thread's. */
static inline bool walk_state(const struct gm_python *python, bool probed, uintptr_t state, int max,
			      struct gm_python_walk *walk)
{
	walk_fn *walk_one = probed ? walk_probed : walk->items ? walk_direct : hash_of(python->layout);

	return gm_py_word_at(probed, state, python->layout->state_thread) == (uintptr_t)pthread_self() &&
	       walk_one(python, state, max, walk);
}

void gm_python_walk(struct gm_python *python, int max, struct gm_python_walk *walk)
{
	bool probed = !gm_python_is_proved(python), fits;
	uintptr_t own, other;

	walk->hash = 0;
	walk->frames = walk->items_count = 0;
	walk->flags = 0;
	own = find_states(python, probed, &other);
	if (!own)
		return;
	if (gm_unlikely(other))
		walk->kept = NULL;		/* the frames of two states have one hash */
	fits = gm_likely(!other) || walk_state(python, probed, other, max, walk);
	if (fits && !(walk->flags & GM_UNWIND_MORE))
		fits = walk_state(python, probed, own, max, walk);
	if (!fits)
		walk->flags |= GM_UNWIND_TRUNCATED;
	if (gm_unlikely(probed))
		judge(python, fits, walk);
}
