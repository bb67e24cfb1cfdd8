/*
 * python_walk.c - the chain of Python frames of the calling thread (see python.h).
 *
 * Owns the table of layouts, that of known contents, and the walk, which is compiled once with direct
 * reads and once with reads through the kernel. Contexts as python.h.
 */
#include "recorder/python/python.h"

#include <pthread.h>

#include "recorder/journal/atomic.h"
#include "recorder/python/python_view.h"
#include "recorder/unwind/unwind.h"

/* In the order of the minor versions. */
const struct gm_python_layout gm_python_layouts[GM_PYTHON_LAYOUTS] = {
	{
		.minor = 8, .chain = GM_CHAIN_PLAIN, .state_frame = 24, .state_thread = 176,
		.frame_previous = 24, .frame_code = 32, .frame_instr = 104,
		.code_filename = 104, .code_name = 112, .code_first_line = 40, .code_lines = 120,
		.code_units = 48, .text_ascii = 48, .text_wide = 72,
	}, {
		.minor = 9, .chain = GM_CHAIN_PLAIN, .state_frame = 24, .state_thread = 176,
		.frame_previous = 24, .frame_code = 32, .frame_instr = 104,
		.code_filename = 104, .code_name = 112, .code_first_line = 40, .code_lines = 120,
		.code_units = 48, .text_ascii = 48, .text_wide = 72,
	}, {
		.minor = 10, .chain = GM_CHAIN_PAIRS, .state_frame = 24, .state_cframe = 48,
		.state_thread = 176, .cframe_previous = 8,
		.frame_previous = 24, .frame_code = 32, .frame_instr = 96,
		.code_filename = 104, .code_name = 112, .code_first_line = 40, .code_lines = 120,
		.code_units = 48, .text_ascii = 48, .text_wide = 72,
	}, {
		.minor = 11, .chain = GM_CHAIN_ENTRIES, .state_cframe = 56, .state_thread = 152,
		.cframe_frame = 8, .cframe_previous = 16,
		.frame_previous = 48, .frame_code = 32, .frame_instr = 56, .frame_owner = 69,
		.frame_entry = 68,
		.code_filename = 112, .code_name = 128, .code_first_line = 72, .code_lines = 136,
		.code_units = 184, .code_traceable = 168, .text_ascii = 48, .text_wide = 72,
	}, {
		.minor = 12, .chain = GM_CHAIN_SHIMS, .state_cframe = 56, .state_thread = 136,
		.cframe_frame = 0, .cframe_previous = 8,
		.frame_previous = 8, .frame_code = 0, .frame_instr = 56, .frame_owner = 70,
		.code_filename = 112, .code_name = 128, .code_first_line = 68, .code_lines = 136,
		.code_units = 192, .code_traceable = 176, .code_version = 92,
		.text_ascii = 40, .text_wide = 56,
	}, {
		.minor = 13, .chain = GM_CHAIN_SHIMS, .state_frame = 72, .state_thread = 152,
		.frame_previous = 8, .frame_code = 0, .frame_instr = 56, .frame_owner = 70,
		.code_filename = 112, .code_name = 128, .code_first_line = 68, .code_lines = 136,
		.code_units = 200, .code_traceable = 184, .code_version = 92,
		.text_ascii = 40, .text_wide = 56,
	},
};

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
	if (!walk->items && !probed)
		return true;
	keep(walk, chain->cframe | GM_PYTHON_ANCHOR);
	chain->cframe = gm_py_word_at(probed, chain->cframe, layout->cframe_previous);
	if (gm_py_is_odd(chain->cframe))
		return false;
	return !probed || layout->chain != GM_CHAIN_ENTRIES ||
	       gm_py_word_at(true, chain->cframe, layout->cframe_frame) ==
		       gm_py_word(view, layout->frame_previous);
}

/* While nothing is proved: does @instr lie in the code that the frame is said to run? */
GM_PYTHON_RAW static bool is_within(const struct gm_python_layout *layout, uintptr_t code_at,
				    const uint8_t *code, uintptr_t instr)
{
	intptr_t at = (intptr_t)instr, bytes;

	if (layout->chain <= GM_CHAIN_PAIRS) {
		bytes = (intptr_t)gm_py_word_at(true, gm_py_word(code, layout->code_units),
						GM_PY_SIZE);
	} else {
		at = (intptr_t)(instr - code_at - layout->code_units);
		bytes = (intptr_t)gm_py_word(code, GM_PY_SIZE) * 2;
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

/* gm_py_content, without a look at what the code refers to where its number tells it. */
GM_PYTHON_INLINE uint64_t content_of(const struct gm_python_layout *layout, uintptr_t code_at,
				     const uint8_t *code)
{
	uint64_t version = (uint32_t)gm_py_int(code, layout->code_version), hash, content;
	unsigned int at;

	if (!layout->code_version || !version)	/* 0: the numbers have run out */
		return gm_py_content(layout, false, code);
	hash = (code_at ^ version << 32 ^ (uint32_t)gm_py_int(code, layout->code_first_line)) *
	       UINT64_C(0x9e3779b97f4a7c15);
	hash ^= (gm_py_word(code, layout->code_filename) ^
		 gm_py_swap(gm_py_word(code, layout->code_name)) ^
		 gm_py_word(code, layout->code_lines) << 16) * UINT64_C(0xff51afd7ed558ccd);
	at = (unsigned int)(hash >> 40) % KNOWN;
	content = gm_get(&known[at].content);
	if (gm_likely((gm_get(&known[at].check) ^ content) == hash))
		return content;
	content = gm_py_content(layout, false, code);
	gm_set(&known[at].content, content);
	gm_set(&known[at].check, hash ^ content);
	return content;
}

/* One frame: into the hash. Returns false when it is none. */
GM_PYTHON_INLINE bool take(const struct gm_python *python, const struct gm_python_layout *layout,
			   bool probed, const uint8_t *view, struct gm_python_walk *walk)
{
	uint8_t copy[GM_PY_CODE_BYTES];
	uintptr_t code_at = gm_py_word(view, layout->frame_code);
	const uint8_t *code = gm_py_view(probed, code_at, copy, gm_py_code_bytes(layout));
	uint64_t content;
	uintptr_t instr;

	if (!code || gm_py_word(code, GM_PY_TYPE) != python->code_type)
		return false;
	instr = gm_py_instr(layout, view);
	if (probed && !is_within(layout, code_at, code, instr))
		return false;
	content = probed ? gm_py_content(layout, true, code) :
			   content_of(layout, code_at, code);
	walk->hash = (walk->hash ^ gm_py_key(code_at, content, instr)) *
		     UINT64_C(0x9e3779b97f4a7c15);
	walk->hash ^= walk->hash >> 32;
	walk->frames++;
	return true;
}

/* Walk one thread state's frames. Returns false when something is not as it should be. */
GM_PYTHON_INLINE bool walk_state(const struct gm_python *python,
				 const struct gm_python_layout *layout, bool probed,
				 uintptr_t state, int max, struct gm_python_walk *walk)
{
	uint8_t copy[GM_PY_FRAME_BYTES];
	struct chain chain;

	if (!begin(layout, probed, state, &chain))
		return false;
	while (chain.frame) {
		const uint8_t *view = gm_py_view(probed, chain.frame, copy,
						 gm_py_frame_bytes(layout));
		bool is_shim;

		if (!view || chain.steps++ > 2 * max)
			return false;
		is_shim = layout->chain == GM_CHAIN_SHIMS &&
			  view[layout->frame_owner] == GM_PY_OWNER_SHIM;
		if (is_shim) {
			keep(walk, chain.frame | GM_PYTHON_ANCHOR);
		} else {
			if (walk->frames >= max) {
				walk->flags |= GM_UNWIND_MORE;
				return true;
			}
			if (!take(python, layout, probed, view, walk))
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

/* Compiled twice, for the sake of the direct reads. */
GM_PYTHON_RAW __attribute__((noinline))
static bool walk_probed(const struct gm_python *python, uintptr_t state, int max,
			struct gm_python_walk *walk)
{
	return walk_state(python, python->layout, true, state, max, walk);
}

GM_PYTHON_RAW __attribute__((noinline))
static bool walk_direct(const struct gm_python *python, uintptr_t state, int max,
			struct gm_python_walk *walk)
{
	return walk_state(python, python->layout, false, state, max, walk);
}

/* The thread states whose frames are this thread's, innermost first. Up to 3.11 the first word
 * for that is always the main interpreter's; if there are others, who holds the GIL may be this
 * thread in one of them: read through the kernel, since it may be another thread's and be freed. */
static int find_states(const struct gm_python *python, bool probed, uintptr_t states[2])
{
	uintptr_t own, holder;
	int count = 0;

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
			states[count++] = holder;
	}
	states[count++] = own;
	return count;
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

void gm_python_walk(struct gm_python *python, int max, struct gm_python_walk *walk)
{
	bool probed = !gm_python_is_proved(python), fits = true;
	uintptr_t states[2];
	int count;

	walk->hash = 0;
	walk->frames = walk->items_count = 0;
	walk->flags = 0;
	count = find_states(python, probed, states);
	for (int i = 0; i < count && fits && !(walk->flags & GM_UNWIND_MORE); i++) {
		fits = gm_py_word_at(probed, states[i], python->layout->state_thread) ==
		       (uintptr_t)pthread_self();
		if (fits)
			fits = probed ? walk_probed(python, states[i], max, walk) :
					walk_direct(python, states[i], max, walk);
	}
	if (!fits)
		walk->flags |= GM_UNWIND_TRUNCATED;
	if (probed && count)
		judge(python, fits, walk);
}
