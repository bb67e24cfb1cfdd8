/*
 * python_view.h - where CPython keeps what a stack needs; reading it, in place or a copy through the
 * kernel; the key of a frame. Internal to those who read frames; contexts as python.h.
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
#ifndef GM_RECORDER_PYTHON_VIEW_H
#define GM_RECORDER_PYTHON_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/probe.h"

/* Offsets in bytes, by minor version. */
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

/* The host's memory: not for a sanitizer to judge. */
#define GM_PYTHON_RAW __attribute__((no_sanitize_address, no_sanitize_thread))
#define GM_PYTHON_INLINE __attribute__((always_inline)) GM_PYTHON_RAW static inline

/* No address of an object. */
GM_PYTHON_INLINE bool gm_py_is_odd(uintptr_t at)
{
	return (at & 7) != 0 || (at - 4096) >> 56 != 0;
}

GM_PYTHON_INLINE uintptr_t gm_py_word(const uint8_t *object, size_t offset)
{
	return *(const uintptr_t *)(const void *)(object + offset);
}

GM_PYTHON_INLINE int32_t gm_py_int(const uint8_t *object, size_t offset)
{
	return *(const int32_t *)(const void *)(object + offset);
}

/* The object at @at: itself, or with @probed the copy of it in @buffer. NULL: not readable. Other
 * than what is probed, only what an object that proved right refers to is read. */
GM_PYTHON_INLINE const uint8_t *gm_py_view(bool probed, uintptr_t at, void *buffer, size_t bytes)
{
	if (gm_py_is_odd(at))
		return NULL;
	if (!probed)
		return (const uint8_t *)at;
	return gm_probe_copy(buffer, at, bytes) == bytes ? buffer : NULL;
}

/* A word of the object at @at, 0 when it cannot be read. */
GM_PYTHON_INLINE uintptr_t gm_py_word_at(bool probed, uintptr_t at, size_t offset)
{
	uintptr_t word;
	const uint8_t *view = gm_py_view(probed, at + offset, &word, sizeof(word));

	return view ? gm_py_word(view, 0) : 0;
}

/* Where @frame stands: an address within the code, or up to 3.10 the int f_lasti. */
GM_PYTHON_INLINE uintptr_t gm_py_instr(const struct gm_python_layout *layout, const uint8_t *frame)
{
	if (layout->chain <= GM_CHAIN_PAIRS)
		return (uintptr_t)(intptr_t)gm_py_int(frame, layout->frame_instr);
	return gm_py_word(frame, layout->frame_instr);
}

GM_PYTHON_INLINE uintptr_t gm_py_swap(uintptr_t word)
{
	return word << 32 | word >> 32;
}

/* A word that tells the str at @at from another that may have been there before: its hash; if
 * nobody has asked for that yet, its length and the end of its characters. */
GM_PYTHON_INLINE uintptr_t gm_py_text_word(const struct gm_python_layout *layout, bool probed,
					   uintptr_t at)
{
	uintptr_t word = gm_py_word_at(probed, at, GM_PY_TEXT_HASH), length, end;
	unsigned int state;

	if (__builtin_expect(word != (uintptr_t)-1, 1))
		return word;
	length = gm_py_word_at(probed, at, GM_PY_TEXT_LENGTH);
	state = (unsigned int)gm_py_word_at(probed, at, GM_PY_TEXT_STATE);
	if (!(state >> 5 & 1))		/* not compact: its characters are elsewhere */
		return length;
	at += state >> 6 & 1 ? layout->text_ascii : layout->text_wide;
	if (length * (state >> 2 & 7) > 8)
		at += (length * (state >> 2 & 7) - 1) & ~(uintptr_t)7;
	/* the word with the last character: of an object's memory, which ends at such a boundary */
	end = gm_py_word_at(probed, at, 0);
	if (length * (state >> 2 & 7) > 8)
		end += gm_py_word_at(probed, at - 8, 0) * 31;
	return end ^ length << 56;
}

/* What tells a code object from others that may have been at its address: those of what it refers
 * to, and a word of their content. Two multiplications that do not wait for each other. */
GM_PYTHON_INLINE uint64_t gm_py_content(const struct gm_python_layout *layout, bool probed,
					const uint8_t *code)
{
	uintptr_t file = gm_py_word(code, layout->code_filename);
	uintptr_t name = gm_py_word(code, layout->code_name);
	uintptr_t lines = gm_py_word(code, layout->code_lines);
	uint32_t first = (uint32_t)gm_py_int(code, layout->code_first_line);
	uint64_t b, c;

	b = (file ^ gm_py_swap(name) ^ gm_py_text_word(layout, probed, file) ^
	     gm_py_swap(gm_py_text_word(layout, probed, name))) * UINT64_C(0xff51afd7ed558ccd);
	c = (lines ^ gm_py_swap(first) ^ gm_py_word_at(probed, lines, GM_PY_BYTES)) *
	    UINT64_C(0xc4ceb9fe1a85ec53);
	return (b ^ b >> 29) + (c ^ c >> 31);
}

/* What tells a frame at an instruction from all others: an address may be used again, by code of
 * another file or with other lines, so the @content of its code is in it. */
GM_PYTHON_INLINE uint64_t gm_py_key(uintptr_t code_at, uint64_t content, uintptr_t instr)
{
	uint64_t a = (code_at ^ gm_py_swap(instr)) * UINT64_C(0x9e3779b97f4a7c15);

	return (a ^ content >> 30) + content;
}

#endif
