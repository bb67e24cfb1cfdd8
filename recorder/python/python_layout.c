/*
 * python_layout.c - find where an interpreter keeps its frames (see python_view.h).
 *
 * Up to CPython 3.12 a table of ours has the offsets. Since 3.13 the interpreter has them: its _PyRuntime
 * begins with a table of offsets for debuggers. Nothing in that table is used before it is checked: every
 * offset must lie within its structure, and the type that the interpreter exports for code must have the name
 * "code". Offsets that the table lacks are derived from those of neighbours. Contexts as python.h.
 */
#include <string.h>

#include "recorder/python/python.h"
#include "recorder/python/python_view.h"

/* ---- 3.13 and later: the interpreter's table ---- */

#define WORDS 96u			/* of the table that are read */
#define LARGEST 4096u			/* bytes; no structure of these is as large */
#define COOKIE "xdebugpy"

enum { WORD_COOKIE, WORD_VERSION, WORD_FREE_THREADED };

/* The index of the table's word that has the size of each structure; the offsets of its members follow. The
 * table differs between minor versions. The last row is also tried for later versions. */
static const struct places {
	uint8_t minor;
	uint8_t state, state_thread;	/* PyThreadState, and its thread's id */
	uint8_t frame, code, object, type, bytes, text;
	bool copies;			/* the table has offsets for threads' copies of the code */
} places[] = {
	{ .minor = 13, .state = 19, .state_thread = 24, .frame = 28, .code = 34, .object = 44,
	  .type = 46, .bytes = 64, .text = 67 },
	{ .minor = 14, .state = 22, .state_thread = 27, .frame = 31, .code = 39, .object = 50,
	  .type = 52, .bytes = 74, .text = 77, .copies = true },
	{ .minor = 15, .state = 22, .state_thread = 30, .frame = 39, .code = 47, .object = 58,
	  .type = 60, .bytes = 86, .text = 89, .copies = true },
};

#define PLACES (sizeof(places) / sizeof(places[0]))

struct said {
	uint64_t words[WORDS];
	bool odd;			/* a value was impossible */
};

/* Return the offset in word @word, of a member of @bytes in the structure whose size is in word @size. */
static uint16_t offset(struct said *said, unsigned int size, unsigned int word, unsigned int bytes)
{
	uint64_t at = said->words[word], all = said->words[size];

	if (all > LARGEST || all < bytes || at > all - bytes || at % bytes) {
		said->odd = true;
		return 0;
	}
	return (uint16_t)at;
}

static void read_frame(struct gm_python_layout *layout, struct said *said, const struct places *at)
{
	unsigned int state = at->state, frame = at->frame;

	layout->state_frame = offset(said, state, state + 4, 8);
	layout->state_thread = offset(said, state, at->state_thread, 8);
	layout->frame_previous = offset(said, frame, frame + 1, 8);
	layout->frame_code = offset(said, frame, frame + 2, 8);
	layout->frame_instr = offset(said, frame, frame + 3, 8);
	layout->frame_owner = offset(said, frame, frame + 5, 1);
	if (layout->free_threaded && at->copies)
		layout->frame_copy = offset(said, frame, frame + 7, 4);
	if (!layout->state_frame)
		said->odd = true;
}

static void read_code(struct gm_python_layout *layout, struct said *said, const struct places *at)
{
	unsigned int code = at->code, last;

	layout->code_filename = offset(said, code, code + 1, 8);
	layout->code_name = offset(said, code, code + 3, 8);
	layout->code_lines = offset(said, code, code + 4, 8);
	layout->code_first_line = offset(said, code, code + 5, 4);
	layout->code_units = offset(said, code, code + 9, 2);
	if (layout->free_threaded && at->copies)
		layout->code_copies = offset(said, code, code + 10, 8);
	/* The table lacks two offsets. The first traceable instruction is an int that is followed by padding, a
	 * pointer and the instructions (or the pointer to their copies). The version number comes six ints
	 * after the first line; versions after 3.15 may have no such number. */
	last = layout->code_copies ? layout->code_copies : layout->code_units;
	if (last < 16 || last % 8)
		said->odd = true;
	else
		layout->code_traceable = (uint16_t)(last - 16);
	if (layout->minor <= 15)
		layout->code_version = (uint16_t)(layout->code_first_line + 24);
}

static void read_objects(struct gm_python_layout *layout, struct said *said,
			 const struct places *at)
{
	struct gm_py_objects *objects = &layout->objects;
	unsigned int bytes = at->bytes, text = at->text;
	uint64_t text_bytes = said->words[text + 3];

	objects->type = offset(said, at->object, at->object + 1, 8);
	objects->bytes_size = offset(said, bytes, bytes + 1, 8);
	objects->bytes_data = offset(said, bytes, bytes + 2, 1);
	objects->text_state = offset(said, text, text + 1, 4);
	objects->text_length = offset(said, text, text + 2, 8);
	objects->text_hash = (uint16_t)(objects->text_length + 8);
	objects->text_kind = layout->free_threaded && layout->minor >= 14 ? 8 : 2;
	/* The hash lies between length and state, and every member that is read lies before the object's contents. */
	if (objects->text_hash + 8 != objects->text_state || text_bytes % 8 ||
	    text_bytes <= objects->text_state || text_bytes > GM_PY_OBJECT_BYTES ||
	    objects->bytes_data < objects->bytes_size + 8 ||
	    objects->bytes_data > GM_PY_OBJECT_BYTES || objects->type + 8 > objects->bytes_size ||
	    objects->type + 8 > objects->text_length)
		said->odd = true;
	layout->text_ascii = (uint16_t)text_bytes;
	layout->text_wide = (uint16_t)(text_bytes + 16);	/* a length and a pointer more */
}

/* Does the type that the interpreter exports for code have the name "code", read by these offsets? */
static bool is_code_type(struct said *said, const struct places *at, uintptr_t code_type)
{
	uint16_t name_at = offset(said, at->type, at->type + 1, 8);
	uintptr_t name;
	char text[5];

	return !said->odd && gm_probe_copy(&name, code_type + name_at, sizeof(name)) == sizeof(name) &&
	       gm_probe_copy(text, name, sizeof(text)) == sizeof(text) && !memcmp(text, "code", 5);
}

static bool read_said(struct gm_python_layout *layout, uintptr_t runtime, uintptr_t code_type)
{
	const struct places *at = &places[PLACES - 1];
	struct said said = { .odd = false };

	for (unsigned int i = 0; i < PLACES; i++)
		if (places[i].minor == layout->minor)
			at = &places[i];
	if (gm_probe_copy(said.words, runtime, sizeof(said.words)) != sizeof(said.words) ||
	    memcmp(&said.words[WORD_COOKIE], COOKIE, 8) != 0 ||
	    said.words[WORD_VERSION] >> 16 != (3u << 8 | layout->minor) ||
	    said.words[WORD_FREE_THREADED] > 1)
		return false;
	layout->chain = GM_CHAIN_SHIMS;
	layout->free_threaded = said.words[WORD_FREE_THREADED] != 0;
	if (layout->minor >= 14)
		layout->frame_tags = 7;
	read_frame(layout, &said, at);
	read_code(layout, &said, at);
	read_objects(layout, &said, at);
	return is_code_type(&said, at, code_type);
}

/* ---- all versions ---- */

static unsigned int behind(unsigned int most, uint16_t at, unsigned int bytes)
{
	return at + bytes > most ? at + bytes : most;
}

/* Compute how many bytes of a frame and of a code object are read. No more may be read, because either may end
 * at the end of a page. */
static void measure(struct gm_python_layout *layout)
{
	unsigned int frame = 8, code = 8;

	frame = behind(frame, layout->frame_previous, 8);
	frame = behind(frame, layout->frame_code, 8);
	frame = behind(frame, layout->frame_instr, 8);
	frame = behind(frame, layout->frame_owner, 1);
	frame = behind(frame, layout->frame_copy, layout->frame_copy ? 4 : 0);
	code = behind(code, layout->objects.type, 8);
	code = behind(code, layout->objects.bytes_size, 8);
	code = behind(code, layout->code_filename, 8);
	code = behind(code, layout->code_name, 8);
	code = behind(code, layout->code_lines, 8);
	code = behind(code, layout->code_first_line, 4);
	code = behind(code, layout->code_traceable, 4);
	code = behind(code, layout->code_version, layout->code_version ? 4 : 0);
	code = behind(code, layout->code_copies, layout->code_copies ? 8 : 0);
	if (layout->chain <= GM_CHAIN_PAIRS)
		code = behind(code, layout->code_units, 8);
	layout->frame_bytes = (uint16_t)((frame + 7) & ~7u);
	layout->code_bytes = (uint16_t)((code + 7) & ~7u);
}

bool gm_python_find_layout(struct gm_python_layout *ret_layout, unsigned int minor,
			   uintptr_t runtime, uintptr_t code_type)
{
	*ret_layout = (struct gm_python_layout){ .minor = (uint8_t)minor };
	for (unsigned int i = 0; i < sizeof(gm_py_layouts) / sizeof(gm_py_layouts[0]); i++)
		if (gm_py_layouts[i].minor == minor)
			*ret_layout = gm_py_layouts[i];
	ret_layout->objects = gm_py_gil_objects;
	if (minor >= places[0].minor && !read_said(ret_layout, runtime, code_type))
		return false;
	ret_layout->has_gil_objects = !memcmp(&ret_layout->objects, &gm_py_gil_objects,
					      sizeof(gm_py_gil_objects));
	measure(ret_layout);
	return ret_layout->state_thread && ret_layout->frame_bytes <= GM_PY_FRAME_BYTES &&
	       ret_layout->code_bytes <= GM_PY_CODE_BYTES;
}
