/*
 * python_view.h - where CPython keeps what a stack needs; reading it, in place or a copy through
 * the kernel; the key of a frame. Internal to recorder/python/; contexts as python.h.
 *
 * The offsets are those of each version's headers up to 3.12 (x86-64; aarch64 lays these structs
 * out the same), and the interpreter's own since 3.13 (python_layout.c). Neither a bug-fix release
 * nor a debug build changes them; what does not match at run time is found by the first walks.
 *
 *	PyThreadState ── frame ──> frame ── previous ──> frame ...	3.8 to 3.10: heap objects
 *	PyThreadState ── cframe ─> _PyCFrame ── current_frame ──> frame ── previous ──> ...
 *	                               └ previous ─> the one of the calling _PyEval_EvalFrameDefault
 *
 * The interpreter's loop calls itself for a Python function up to 3.10; since 3.11 one call of it
 * runs a chain of frames, of which the outermost is its entry frame. Something of each call lies
 * on the C stack, within the frame of _PyEval_EvalFrameDefault: the _PyCFrame of 3.10 and 3.11, and
 * since 3.12 a shim, a frame of owner 3 or more that stands next to the entry frame. That is the
 * anchor by which Python frames find their place among native ones. 3.8 and 3.9 have none.
 *
 * Since 3.14 the low bits of a frame's reference to its code are tags. Its free-threaded builds
 * give each thread a copy of the instructions: a frame has the number of the copy that it runs, and
 * the code object has a table of copies, which other threads may replace at any time. So the table
 * is read through the kernel only, and the result is checked.
 */
#ifndef GM_RECORDER_PYTHON_VIEW_H
#define GM_RECORDER_PYTHON_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/probe.h"
#include "recorder/python/python.h"

/* Offsets in bytes, by minor version. */
enum gm_python_chain {
	GM_CHAIN_PLAIN,			/* 3.8, 3.9: frames alone, one a call */
	GM_CHAIN_PAIRS,			/* 3.10: beside each frame a _PyCFrame */
	GM_CHAIN_ENTRIES,		/* 3.11: a _PyCFrame for each frame marked as entry */
	GM_CHAIN_SHIMS,			/* 3.12 and later */
};

enum {
	GM_PY_STATE_INTERP = 16,	/* of PyThreadState, up to 3.11 */
	GM_PY_OWNER_GENERATOR = 1, GM_PY_OWNER_SHIM = 3,	/* shims: this one and all above */
	GM_PY_FRAME_BYTES = 112, GM_PY_CODE_BYTES = 256,	/* no more of either is read */
	GM_PY_OBJECT_BYTES = 64,	/* nor of a str or bytes object before its contents */
};

struct gm_py_objects {
	uint16_t type;			/* of every object */
	uint16_t bytes_size, bytes_data;	/* the size is also code's since 3.11: in code units */
	uint16_t text_length, text_hash, text_state;
	uint16_t text_kind;		/* the bit of the state at which kind:3, compact and ascii begin */
};

/* In all but the free-threaded builds: only eight bytes, the reference count, are before the
 * type. */
static const struct gm_py_objects gm_py_gil_objects = {
	.type = 8, .bytes_size = 16, .bytes_data = 32,
	.text_length = 16, .text_hash = 24, .text_state = 32, .text_kind = 2,
};

struct gm_python_layout {
	uint8_t minor, chain;
	uint8_t free_threaded;
	uint8_t frame_tags;		/* the bits of a reference that are not part of the address */
	uint16_t state_frame;		/* of PyThreadState; 0: the frame is found by @state_cframe */
	uint16_t state_cframe, state_thread;
	uint16_t cframe_frame, cframe_previous;
	uint16_t frame_previous, frame_code, frame_owner, frame_entry;
	uint16_t frame_instr;		/* a pointer into the code; up to 3.10 an int, f_lasti */
	uint16_t frame_copy;		/* int: which copy of the instructions; 0: there are none */
	uint16_t code_filename, code_name;	/* the qualified name where there is one */
	uint16_t code_first_line, code_lines;
	uint16_t code_units;		/* the instructions; up to 3.10 a bytes object */
	uint16_t code_traceable;	/* int: a frame before this instruction is not complete yet */
	uint16_t code_version;		/* a number that no other code object gets; 0: there are no such numbers */
	uint16_t code_copies;		/* a pointer to the number of copies and the pointers to them */
	uint16_t text_ascii, text_wide;	/* the characters of a str */
	struct gm_py_objects objects;
	bool has_gil_objects;		/* @objects are gm_py_gil_objects: constants cost less */
	uint16_t frame_bytes, code_bytes;	/* how much of either is read */
};

/* Of one minor version after the other, up to 3.12. */
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

/* The layout of CPython 3.@minor; since 3.13 from what is at @runtime (_PyRuntime; 0: not known), if
 * it is that of an interpreter whose PyCode_Type is at @code_type. Returns false when it is not
 * known: of @ret_layout only the version counts then. */
bool gm_python_find_layout(struct gm_python_layout *ret_layout, unsigned int minor,
			   uintptr_t runtime, uintptr_t code_type);

/* For code that reads the program's memory, which sanitizers must not check. */
#define GM_PYTHON_RAW __attribute__((no_sanitize_address, no_sanitize_thread))
#define GM_PYTHON_INLINE __attribute__((always_inline)) GM_PYTHON_RAW static inline

/* No address of an object: it is not a multiple of 8, is below 4096, or is above 2^56. The low three bits
 * are rotated beside the high ones, so that one shift tests both: this stands at every read. */
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

/* The object at @at: in place, or with @probed a copy of it in @buffer. NULL: it cannot be read. In
 * place only objects are read to which an object of the right type refers. */
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

/* The same of an object to which a code object refers: in place it is where that says, as the type of the code
 * object was looked at. */
GM_PYTHON_INLINE uintptr_t gm_py_part_at(bool probed, uintptr_t at, size_t offset)
{
	return probed ? gm_py_word_at(true, at, offset) : gm_py_word((const uint8_t *)at, offset);
}

/* Where @frame stands: an address within the code, or up to 3.10 the int f_lasti. */
GM_PYTHON_INLINE uintptr_t gm_py_instr(const struct gm_python_layout *layout, const uint8_t *frame)
{
	if (layout->chain <= GM_CHAIN_PAIRS)
		return (uintptr_t)(intptr_t)gm_py_int(frame, layout->frame_instr);
	return gm_py_word(frame, layout->frame_instr);
}

/* The code object of @frame. */
GM_PYTHON_INLINE uintptr_t gm_py_code(const struct gm_python_layout *layout, const uint8_t *frame)
{
	return gm_py_word(frame, layout->frame_code) & ~(uintptr_t)layout->frame_tags;
}

GM_PYTHON_INLINE uintptr_t gm_py_swap(uintptr_t word)
{
	return word << 32 | word >> 32;
}

/* Of two words one, which tells every pair of them from all others. Neither product nor sum of theirs
 * does: their product has 128 bits, and its halves are put together. */
GM_PYTHON_INLINE uint64_t gm_py_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15)) *
				    (b ^ UINT64_C(0xc4ceb9fe1a85ec53));

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* A word that distinguishes the str at @at from another that may have been there before: its hash;
 * if that has not been computed yet (of a file's name it mostly has not), its length and the end of its
 * characters. */
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
	/* the word with the last character: of an object's memory, which ends at such a boundary */
	end = gm_py_part_at(probed, at, 0);
	if (bytes > 8)
		end += gm_py_part_at(probed, at - 8, 0) * 31;
	return end ^ length << 56;
}

struct gm_python_words { uint64_t first, second; };

/* What distinguishes a code object from others that may have been at its address: the addresses of
 * what it refers to, and a word of the content of each. @file_word: that of the file's name. */
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

/* The same with the number that the object has, if it has one: of a line table only the beginning is looked at,
 * and of a file's name the end. */
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

/* What distinguishes a frame at an instruction from all others, and with @hash, that of the frames
 * before it, their chain. The address of code may be used again, by code of another file or with other
 * lines, so that @content of its code is in it. */
GM_PYTHON_INLINE uint64_t gm_py_key(uint64_t hash, uintptr_t code_at, uint64_t content, uintptr_t instr)
{
	return gm_py_mix(hash ^ code_at ^ gm_py_swap(instr), content);
}

#endif
