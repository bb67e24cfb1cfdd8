/*
 * python_view.h - reading the interpreter's objects: in place, or a copy through the kernel; and
 * the key of a frame. Internal to recorder/python*.c; contexts as python.h.
 */
#ifndef GM_RECORDER_PYTHON_VIEW_H
#define GM_RECORDER_PYTHON_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/journal/probe.h"
#include "recorder/python/python_layout.h"

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
