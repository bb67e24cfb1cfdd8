/*
 * python_walk.c - walk the chain of Python frames of the calling thread (see python.h).
 *
 * Owns the walk: through the kernel until the layout is proved, then in place. If only the hash is wanted,
 * python_hash.c walks. Contexts as python.h.
 */
#include "recorder/python/python.h"

#include <pthread.h>

#include "recorder/journal/atomic.h"
#include "recorder/python/python_view.h"
#include "recorder/unwind/unwind.h"

#define BAD_MOST 16u			/* failed walks after which an unproved interpreter is given up */

struct chain {
	uintptr_t frame, cframe;
	int steps;			/* frames and shims so far, to detect an endless chain */
};

GM_PYTHON_INLINE void keep(struct gm_python_walk *walk, uintptr_t item)
{
	if (walk->items_count < walk->max_items)
		walk->items[walk->items_count++] = item;
}

/* Find the beginning of the chain of a thread state. */
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

/* Leave the call of the loop whose entry frame is @view: the cframe is its anchor; go on with the caller's
 * cframe. Until the layout of 3.11 is proved, that cframe must refer to the frame that follows @view. */
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

/* Does @frame stand within the code that it refers to? Asked until the layout is proved. */
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

/* Hash one frame. Returns false when it is no frame. */
GM_PYTHON_INLINE bool take(const struct gm_python *python, const struct gm_python_layout *layout,
			   const struct gm_py_objects *objects, bool probed, const uint8_t *view,
			   struct gm_python_walk *walk)
{
	uint8_t copy[GM_PY_CODE_BYTES];
	uintptr_t code_at = gm_py_code(layout, view);
	const uint8_t *code = (const uint8_t *)code_at;

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
	/* An address in a thread's copy of the code is not converted: see hash_chain in python_hash.c. */
	walk->hash = gm_py_key(walk->hash, code_at, gm_py_content(layout, objects, probed, code),
			       gm_py_instr(layout, view));
	walk->frames++;
	return true;
}

/* Walk the frames of one thread state. Returns false when something does not fit the layout. */
GM_PYTHON_INLINE bool walk_chain(const struct gm_python *python,
				 const struct gm_python_layout *layout,
				 const struct gm_py_objects *objects, bool probed,
				 uintptr_t state, int max, struct gm_python_walk *walk)
{
	uint8_t copy[GM_PY_FRAME_BYTES];
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
			if (!take(python, layout, objects, probed, view, walk))
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

/* Compiled twice, so that direct reads test no @probed. */
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

/* Return the thread state that has this thread's frames; 0: there is none. *ret_other: a state with frames
 * further in, or 0. Up to 3.11 the returned state always belongs to the main interpreter. If there are other
 * interpreters, the holder of the GIL may be this thread in one of them. That state is read through the kernel,
 * because it may belong to another thread and be freed. */
static uintptr_t find_states(const struct gm_python *python, bool probed, uintptr_t *ret_other)
{
	uintptr_t own, holder;

	*ret_other = 0;
	/* Finalization frees the frames of other threads. A daemon thread that asks just before it and is not
	 * scheduled throughout the walk might read freed memory. That is unlikely, because a walk takes less
	 * than a microsecond, and Python gives no other sign. */
	if (python->is_finalizing())
		return 0;
	own = (uintptr_t)python->this_state();
	if (!own)
		return 0;
	if (python->layout->minor < 12 && python->newest && python->holder &&
	    (uintptr_t)python->newest() != gm_py_part_at(probed, own, GM_PY_STATE_INTERP)) {
		holder = (uintptr_t)python->holder();
		if (holder && holder != own &&
		    gm_py_word_at(true, holder, python->layout->state_thread) ==
			    (uintptr_t)pthread_self())
			*ret_other = holder;
	}
	return own;
}

/* Count a walk as evidence for or against the layout, until that is proved. */
static void judge(struct gm_python *python, bool fits, const struct gm_python_walk *walk)
{
	if (!fits) {
		if (atomic_fetch_add_explicit(&python->bad, 1, memory_order_relaxed) >= BAD_MOST)
			gm_python_off(python);
	} else if (walk->frames) {
		atomic_fetch_add_explicit(&python->good, 1, memory_order_acq_rel);
	}
}

/* Walk the frames of @state, if it is this thread's state. */
static inline bool walk_state(struct gm_python *python, bool probed, uintptr_t state, int max,
			      struct gm_python_walk *walk)
{
	gm_python_walk_fn *walk_one = gm_get(&python->hash);

	if (gm_unlikely(!walk_one)) {
		walk_one = gm_python_hash_of(python->layout);
		gm_set(&python->hash, walk_one);
	}
	if (gm_unlikely(probed || walk->items))
		walk_one = probed ? walk_probed : walk_direct;
	return gm_py_part_at(probed, state, python->layout->state_thread) == (uintptr_t)pthread_self() &&
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
		walk->kept = NULL;		/* the hash is that of both states' frames */
	fits = gm_likely(!other) || walk_state(python, probed, other, max, walk);
	if (fits && !(walk->flags & GM_UNWIND_MORE))
		fits = walk_state(python, probed, own, max, walk);
	if (!fits)
		walk->flags |= GM_UNWIND_TRUNCATED;
	if (gm_unlikely(probed))
		judge(python, fits, walk);
}
