/*
 * python_layout.h - where CPython keeps what a stack needs: offsets in bytes, by minor version.
 *
 * From the headers of each version (x86-64; aarch64 lays these structs out the same). A minor
 * version does not change them; what does not match at run time is found out by the first walks.
 *
 *	PyThreadState ── frame ──> frame ── previous ──> frame ...	3.8 to 3.10: heap objects
 *	PyThreadState ── cframe ─> _PyCFrame ── current_frame ──> frame ── previous ──> ...
 *	                               └ previous ─> the one of the calling _PyEval_EvalFrameDefault
 *
 * The interpreter's loop calls itself for a Python function up to 3.10; since 3.11 one call of it
 * runs a chain of frames, of which the outermost is its entry frame. Something of each call lies
 * on the C stack, within the frame of _PyEval_EvalFrameDefault: the _PyCFrame of 3.10 and 3.11, and
 * since 3.12 a shim, a frame of owner 3 that stands next to the entry frame. That is the anchor by
 * which Python frames find their place among native ones. 3.8 and 3.9 have none.
 */
#ifndef GM_RECORDER_PYTHON_LAYOUT_H
#define GM_RECORDER_PYTHON_LAYOUT_H

#include <stdint.h>

enum gm_python_chain {
	GM_CHAIN_PLAIN,			/* 3.8, 3.9: frames alone, one a call */
	GM_CHAIN_PAIRS,			/* 3.10: beside each frame a _PyCFrame */
	GM_CHAIN_ENTRIES,		/* 3.11: a _PyCFrame for each frame marked as entry */
	GM_CHAIN_SHIMS,			/* 3.12, 3.13 */
};

enum {
	GM_PY_TYPE = 8,			/* of every object */
	GM_PY_SIZE = 16,		/* of bytes, and of code since 3.11: in code units */
	GM_PY_BYTES = 32,		/* the content of bytes */
	GM_PY_TEXT_LENGTH = 16, GM_PY_TEXT_HASH = 24, GM_PY_TEXT_STATE = 32,
	GM_PY_STATE_INTERP = 16,	/* of PyThreadState */
	GM_PY_OWNER_GENERATOR = 1, GM_PY_OWNER_SHIM = 3,
	GM_PY_FRAME_BYTES = 112, GM_PY_CODE_BYTES = 192,	/* no more of either is looked at */
};

struct gm_python_layout {
	uint8_t minor, chain;
	uint16_t state_frame;		/* of PyThreadState; 0: it goes through a cframe */
	uint16_t state_cframe, state_thread;
	uint16_t cframe_frame, cframe_previous;
	uint16_t frame_previous, frame_code, frame_owner, frame_entry;
	uint16_t frame_instr;		/* a pointer into the code; up to 3.10 an int, f_lasti */
	uint16_t code_filename, code_name;	/* the qualified name where there is one */
	uint16_t code_first_line, code_lines;
	uint16_t code_units;		/* the instructions; up to 3.10 a bytes object */
	uint16_t code_traceable;	/* int: before this instruction, frames are in the making */
	uint16_t code_version;		/* a number that no other code object gets; 0: has none */
	uint16_t text_ascii, text_wide;	/* the characters of a str */
};

/* How much of a frame and of a code object is looked at: they may end a page. */
static inline unsigned int gm_py_frame_bytes(const struct gm_python_layout *layout)
{
	return layout->chain <= GM_CHAIN_PAIRS ? GM_PY_FRAME_BYTES : 72;
}

static inline unsigned int gm_py_code_bytes(const struct gm_python_layout *layout)
{
	return layout->chain <= GM_CHAIN_PAIRS ? 128 : GM_PY_CODE_BYTES;
}

#define GM_PYTHON_LAYOUTS 6
extern const struct gm_python_layout gm_python_layouts[GM_PYTHON_LAYOUTS];

#endif
