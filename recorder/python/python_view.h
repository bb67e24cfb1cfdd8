/*
 * python_view.h - the layout of the CPython structures that a stack needs; reads of them, in place or of a copy
 * made by the kernel; the key of a frame. Internal to recorder/python/; contexts as python.h.
 *
 * Up to 3.12 the offsets come from each version's headers (x86-64; aarch64 lays these structs out the same).
 * Since 3.13 the interpreter itself has them (python_layout.c). Neither bug-fix releases nor debug builds
 * change them. The first walks detect a layout that does not match at run time.
 *
 *	PyThreadState ── frame ──> frame ── previous ──> frame ...	3.8 to 3.10: heap objects
 *	PyThreadState ── cframe ─> _PyCFrame ── current_frame ──> frame ── previous ──> ...
 *	                               └ previous ─> the one of the calling _PyEval_EvalFrameDefault
 *
 * Up to 3.10 the interpreter's loop calls itself for a Python function. Since 3.11 one call of the loop runs a
 * chain of frames, and the outermost frame of the chain is the entry frame. Each call has a structure on the C
 * stack, within the native frame of _PyEval_EvalFrameDefault: a _PyCFrame in 3.10 and 3.11; since 3.12 a shim,
 * which is a frame of owner 3 or more next to the entry frame. The address of this structure is the anchor,
 * which gives Python frames their place among native ones. 3.8 and 3.9 have no anchors.
 *
 * Since 3.14 the low bits of a frame's reference to its code are tags. Free-threaded builds then give each
 * thread a copy of the instructions: a frame has the number of its copy, and the code object has a table of
 * copies, which other threads may replace at any time. So the table is read through the kernel only, and the
 * result is checked.
 */
#ifndef GM_RECORDER_PYTHON_VIEW_H
#define GM_RECORDER_PYTHON_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/probe.h"
#include "recorder/python/python.h"

/* How frames are chained, by minor version. */
enum gm_python_chain {
	GM_CHAIN_PLAIN,			/* 3.8, 3.9: frames alone, one for each call */
	GM_CHAIN_PAIRS,			/* 3.10: a _PyCFrame beside each frame */
	GM_CHAIN_ENTRIES,		/* 3.11: a _PyCFrame for each frame marked as entry */
	GM_CHAIN_SHIMS,			/* 3.12 and later */
};

enum {
	GM_PY_STATE_INTERP = 16,	/* offset of the interpreter in PyThreadState, up to 3.11 */
	GM_PY_OWNER_GENERATOR = 1, GM_PY_OWNER_SHIM = 3,	/* a shim has this owner or a higher one */
	GM_PY_FRAME_BYTES = 112, GM_PY_CODE_BYTES = 256,	/* the most that is read of either */
	GM_PY_OBJECT_BYTES = 64,	/* the most that is read of a str or bytes object before its contents */
};

struct gm_py_objects {
	uint16_t type;			/* in every object */
	uint16_t bytes_size, bytes_data;	/* since 3.11 code has its size there, too, in code units */
	uint16_t text_length, text_hash, text_state;
	uint16_t text_kind;		/* the bit of the state at which kind:3, compact:1 and ascii:1 begin */
};

/* Objects of all builds except the free-threaded ones: only the reference count, 8 bytes, precedes the type. */
static const struct gm_py_objects gm_py_gil_objects = {
	.type = 8, .bytes_size = 16, .bytes_data = 32,
	.text_length = 16, .text_hash = 24, .text_state = 32, .text_kind = 2,
};

struct gm_python_layout {
	uint8_t minor, chain;
	uint8_t free_threaded;
	uint8_t frame_tags;		/* the bits of a reference to code that are tags */
	uint16_t state_frame;		/* in PyThreadState; 0: the frame is found by @state_cframe */
	uint16_t state_cframe, state_thread;
	uint16_t cframe_frame, cframe_previous;
	uint16_t frame_previous, frame_code, frame_owner, frame_entry;
	uint16_t frame_instr;		/* a pointer into the code; up to 3.10 the int f_lasti */
	uint16_t frame_copy;		/* int: the number of the frame's copy of the instructions; 0: there are
					 * no copies */
	uint16_t code_filename, code_name;	/* the qualified name if there is one */
	uint16_t code_first_line, code_lines;
	uint16_t code_units;		/* the instructions; up to 3.10 a bytes object */
	uint16_t code_traceable;	/* int: a frame before this instruction is incomplete */
	uint16_t code_version;		/* a number that is unique to the code object; 0: there are no such numbers */
	uint16_t code_copies;		/* pointer to a table: the number of copies, then a pointer to each */
	uint16_t text_ascii, text_wide;	/* where the characters of a str begin */
	struct gm_py_objects objects;
	bool has_gil_objects;		/* @objects equals gm_py_gil_objects, so that its offsets can be constants */
	uint16_t frame_bytes, code_bytes;	/* bytes that are read of either */
};

/* One for each minor version from GM_PY_FIRST_MINOR to 12. */
#define GM_PY_FIRST_MINOR 8
static const struct gm_python_layout gm_py_layouts[] = {
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
	},
};

/* Find the layout of CPython 3.@minor. Since 3.13 read it at @runtime (_PyRuntime; 0: not known), and check it
 * with the interpreter's PyCode_Type at @code_type. Returns false when the layout is not known; then only the
 * version in @ret_layout is valid. */
bool gm_python_find_layout(struct gm_python_layout *ret_layout, unsigned int minor,
			   uintptr_t runtime, uintptr_t code_type);

/* For functions that read the program's memory: sanitizers must not check these reads. */
#define GM_PYTHON_RAW __attribute__((no_sanitize_address, no_sanitize_thread))
#define GM_PYTHON_INLINE __attribute__((always_inline)) GM_PYTHON_RAW static inline

/* Does @at fail the test for an address of an object: a multiple of 8 from 4096 to 2^56? Every read asks this, so
 * the low three bits are rotated next to the high ones, and one shift tests both. */
GM_PYTHON_INLINE bool gm_py_is_odd(uintptr_t at)
{
	at -= 4096;
	return (at >> 3 | at << 61) >> 53 != 0;
}

GM_PYTHON_INLINE uintptr_t gm_py_word(const uint8_t *object, size_t offset)
{
	return *(const uintptr_t *)(const void *)(object + offset);
}

GM_PYTHON_INLINE int32_t gm_py_int(const uint8_t *object, size_t offset)
{
	return *(const int32_t *)(const void *)(object + offset);
}

/* Return the object at @at: in place, or with @probed a copy of it in @buffer. NULL: it cannot be read. An
 * object may be read in place only if an object of the right type refers to it. */
GM_PYTHON_INLINE const uint8_t *gm_py_view(bool probed, uintptr_t at, void *buffer, size_t bytes)
{
	if (gm_py_is_odd(at))
		return NULL;
	if (!probed)
		return (const uint8_t *)at;
	return gm_probe_copy(buffer, at, bytes) == bytes ? buffer : NULL;
}

/* Return a word of the object at @at; 0 when it cannot be read. */
GM_PYTHON_INLINE uintptr_t gm_py_word_at(bool probed, uintptr_t at, size_t offset)
{
	uintptr_t word;
	const uint8_t *view = gm_py_view(probed, at + offset, &word, sizeof(word));

	return view ? gm_py_word(view, 0) : 0;
}

/* As gm_py_word_at, but in place @at is not checked. For the thread's own state, and for objects to which a code
 * object of the right type refers. */
GM_PYTHON_INLINE uintptr_t gm_py_part_at(bool probed, uintptr_t at, size_t offset)
{
	return probed ? gm_py_word_at(true, at, offset) : gm_py_word((const uint8_t *)at, offset);
}

/* Return the instruction of @frame: an address within the code, or up to 3.10 the int f_lasti. */
GM_PYTHON_INLINE uintptr_t gm_py_instr(const struct gm_python_layout *layout, const uint8_t *frame)
{
	if (layout->chain <= GM_CHAIN_PAIRS)
		return (uintptr_t)(intptr_t)gm_py_int(frame, layout->frame_instr);
	return gm_py_word(frame, layout->frame_instr);
}

/* Return the code object of @frame. */
GM_PYTHON_INLINE uintptr_t gm_py_code(const struct gm_python_layout *layout, const uint8_t *frame)
{
	return gm_py_word(frame, layout->frame_code) & ~(uintptr_t)layout->frame_tags;
}

GM_PYTHON_INLINE uintptr_t gm_py_swap(uintptr_t word)
{
	return word << 32 | word >> 32;
}

/* Hash a pair of words into one word. A sum or a 64-bit product does not tell pairs apart well enough, so combine
 * both halves of the 128-bit product. */
GM_PYTHON_INLINE uint64_t gm_py_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15)) *
				    (b ^ UINT64_C(0xc4ceb9fe1a85ec53));

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Return a word that distinguishes the str at @at from another str that may have been there before: its hash;
 * or, if that is not computed yet (as for most file names), its length and last characters. */
GM_PYTHON_INLINE uintptr_t gm_py_text_word(const struct gm_python_layout *layout,
					   const struct gm_py_objects *objects, bool probed,
					   uintptr_t at)
{
	uintptr_t word = gm_py_part_at(probed, at, objects->text_hash), length, bytes, end;
	unsigned int state;

	if (word != (uintptr_t)-1)
		return word;
	length = gm_py_part_at(probed, at, objects->text_length);
	state = (unsigned int)gm_py_part_at(probed, at, objects->text_state) >> objects->text_kind;
	bytes = length * (state & 7);
	if (__builtin_expect(!(state >> 3 & 1), 0))	/* not compact: its characters are elsewhere */
		return length;
	at += state >> 4 & 1 ? layout->text_ascii : layout->text_wide;
	if (bytes > 8)
		at += (bytes - 1) & ~(uintptr_t)7;
	/* This word has the last character. It lies within the object's memory, which ends at a multiple of 8. */
	end = gm_py_part_at(probed, at, 0);
	if (bytes > 8)
		end += gm_py_part_at(probed, at - 8, 0) * 31;
	return end ^ length << 56;
}

struct gm_python_words { uint64_t first, second; };

/* Return what distinguishes a code object from others that may have been at its address: the addresses of the
 * objects to which it refers, and a word of the content of each. @file_word: gm_py_text_word of the file's
 * name. */
GM_PYTHON_INLINE struct gm_python_words gm_py_words(const struct gm_python_layout *layout,
						    const struct gm_py_objects *objects, bool probed,
						    const uint8_t *code, uintptr_t file_word)
{
	uintptr_t file = gm_py_word(code, layout->code_filename);
	uintptr_t name = gm_py_word(code, layout->code_name);
	uintptr_t lines = gm_py_word(code, layout->code_lines);
	uint32_t first = (uint32_t)gm_py_int(code, layout->code_first_line);
	uintptr_t name_word = gm_py_text_word(layout, objects, probed, name);

	return (struct gm_python_words){
		file ^ file_word ^ gm_py_swap(name ^ name_word),
		lines ^ gm_py_swap(first) ^ gm_py_part_at(probed, lines, objects->bytes_data),
	};
}

/* Hash these words with the number of the code object, if it has one. Only the beginning of a line table
 * counts, and only the end of a file's name. */
GM_PYTHON_INLINE uint64_t gm_py_content(const struct gm_python_layout *layout,
					const struct gm_py_objects *objects, bool probed,
					const uint8_t *code)
{
	uintptr_t file = gm_py_word(code, layout->code_filename);
	uint64_t number = layout->code_version ? (uint32_t)gm_py_int(code, layout->code_version) : 0;

	struct gm_python_words words = gm_py_words(layout, objects, probed, code,
						   gm_py_text_word(layout, objects, probed, file));

	return gm_py_mix(words.first, words.second) ^ number * UINT64_C(0x9e3779b97f4a7c15);
}

/* Hash a frame at an instruction, together with @hash of the frames before it. @content is included, because
 * the address of code may be reused by code of another file or with other lines. */
GM_PYTHON_INLINE uint64_t gm_py_key(uint64_t hash, uintptr_t code_at, uint64_t content, uintptr_t instr)
{
	return gm_py_mix(hash ^ code_at ^ gm_py_swap(instr), content);
}

#endif
