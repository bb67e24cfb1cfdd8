/*
 * python_hash.c - hash a thread's Python frames; a stack that was seen before needs no more.
 *
 * Reads in place, so the layout must be proved. If nothing has changed since the thread's last walk, hash_FORM
 * only compares; otherwise hash_FORM_anew walks the part that has changed. Owns the table of known contents.
 * Contexts as python.h.
 */
#include "recorder/python/python.h"

#include "recorder/journal/atomic.h"
#include "recorder/python/python_view.h"
#include "recorder/unwind/unwind.h"

/* A lossy table of the contents of known code objects. Since 3.12 a code object has a number, so its own fields
 * tell it from others. The two words of an entry are valid only together, as in stacks.c. */
#define KNOWN 2048u			/* a power of two */

static struct {
	_Atomic(uint64_t) check;	/* hash ^ content */
	_Atomic(uint64_t) content;
} known[KNOWN];

/* Add a code object that is not known yet. Not inlined, because it would take registers from every frame. */
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

/* The name of the file that this walk read last, and its gm_py_text_word. No object of the stack goes away
 * during a walk. */
struct file { uintptr_t at, word; };

/* Return what distinguishes a code object from others that may have been at its address: its number and its own
 * fields, if it has a number; otherwise gm_py_words, which reads the objects to which it refers. */
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

/* Return gm_py_content of code with these words, from the table if it is known. */
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

/* ---- all frames ---------------------------------------------------------------------------------- */

/* Return the innermost frame of @state; 0: there is none; 1: something does not fit the layout. */
GM_PYTHON_INLINE uintptr_t innermost(const struct gm_python_layout *layout, uintptr_t state)
{
	uintptr_t cframe;

	if (layout->state_frame)
		return gm_py_word((const uint8_t *)state, layout->state_frame);
	cframe = gm_py_word((const uint8_t *)state, layout->state_cframe);
	return gm_unlikely(gm_py_is_odd(cframe)) ? 1 : gm_py_word((const uint8_t *)cframe, layout->cframe_frame);
}

GM_PYTHON_INLINE bool is_shim(const struct gm_python_layout *layout, const uint8_t *view)
{
	return layout->chain == GM_CHAIN_SHIMS && view[layout->frame_owner] >= GM_PY_OWNER_SHIM;
}

/* Hash all frames from @frame outwards. Returns false when something does not fit the layout. */
GM_PYTHON_INLINE bool hash_chain(const struct gm_python *python, const struct gm_python_layout *layout,
				 const struct gm_py_objects *objects, uintptr_t frame, int max,
				 struct gm_python_walk *walk)
{
	struct gm_python_words words;
	struct file file = { 0 };
	int shims = 0;

	for (; !gm_py_is_odd(frame); frame = gm_py_word((const uint8_t *)frame, layout->frame_previous)) {
		const uint8_t *view = (const uint8_t *)frame, *code;
		uintptr_t code_at;

		if (is_shim(layout, view)) {
			if (shims++ > 2 * max)
				return false;
			continue;
		}
		if (walk->frames >= max) {
			walk->flags |= GM_UNWIND_MORE;
			return true;
		}
		code_at = gm_py_code(layout, view);
		code = (const uint8_t *)code_at;
		if (gm_py_is_odd(code_at) || gm_py_word(code, objects->type) != python->code_type)
			return false;
		words = words_of(layout, objects, code_at, code, &file);
		/* An address in a thread's copy of the code is not converted here. The copy exists as long as
		 * this thread, and a later copy in its place has the same size. */
		walk->hash = gm_py_key(walk->hash, code_at, content_of(layout, objects, code, &words),
				       gm_py_instr(layout, view));
		walk->frames++;
	}
	return !frame;
}

/* ---- comparison with the walk before ------------------------------------------------------------ */

#define NEAR 16				/* how many kept items, or code objects, are searched */
#define REST 64u			/* walks that keep nothing, after one that was too deep */

/* Return @word, and hide from the compiler that another variable has the same value. */
GM_PYTHON_INLINE uintptr_t opaque(uintptr_t word)
{
	__asm__("" : "+r"(word));
	return word;
}

/* Count the items from @at outwards that are unchanged. *frame is the frame of item @at; move it past them. */
GM_PYTHON_INLINE int same_items(const struct gm_python_layout *layout, const struct gm_python_kept *kept, int at,
				uintptr_t *frame)
{
	const struct gm_python_item *first = &kept->items[at + 1], *item = first;

	for (; *frame == item->frame; item--) {		/* ends at the sentinel */
		/* Read by the kept address, so that the read of a frame does not wait for the read before. */
		const uint8_t *view = (const uint8_t *)opaque(item->frame);

		if (gm_py_word(view, layout->frame_code) != item->code || gm_py_instr(layout, view) != item->instr ||
		    (layout->chain == GM_CHAIN_SHIMS &&
		     view[layout->frame_owner] != kept->owners[item - kept->items - 1]))
			break;
		*frame = gm_py_word(view, layout->frame_previous);
	}
	return (int)(first - item);
}

/* Return the item of @frame among the NEAR items from @from outwards; -1: it is none of them. */
GM_PYTHON_INLINE int find_item(const struct gm_python_kept *kept, int from, uintptr_t frame)
{
	for (int i = from; i >= 0 && i > from - NEAR; i--)
		if (kept->items[i + 1].frame == frame)
			return i;
	return -1;
}

/* Are the code objects up to item @last unchanged? Their addresses were compared already. */
GM_PYTHON_INLINE bool same_code(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, const struct gm_python_kept *kept, int last)
{
	const struct gm_python_code *of = kept->code, *end = of + kept->codes;
	uintptr_t type = python->code_type;
	struct file file = { 0 };

	for (; of < end && of->item <= last; of++) {
		const uint8_t *code = (const uint8_t *)of->at;

		if (gm_py_word(code, objects->type) != type ||
		    gm_py_word(code, layout->code_filename) != of->file ||
		    gm_py_word(code, layout->code_name) != of->name ||
		    gm_py_word(code, layout->code_lines) != of->lines ||
		    (uint32_t)gm_py_int(code, layout->code_first_line) != of->first_line)
			return false;
		if (layout->code_version && (uint32_t)gm_py_int(code, layout->code_version) != of->version)
			return false;
		if (layout->code_version && gm_likely(of->version))
			continue;
		if (file.at != of->file) {
			file.at = of->file;
			file.word = gm_py_text_word(layout, objects, false, of->file);
		}
		if (file.word != of->file_word ||
		    gm_py_text_word(layout, objects, false, of->name) != of->name_word ||
		    gm_py_word((const uint8_t *)of->lines, objects->bytes_data) != of->lines_word)
			return false;
	}
	return true;
}

/* Find the item *ret_at from which everything outwards is kept already (-1: none), and collect the *ret_fresh
 * frames inside it in @kept->fresh. Returns false when something does not fit the layout, or the stack is too
 * deep. */
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
			/* A frame further out is new, so the hashes of these items are no longer right: collect
			 * the frames. */
			for (; same > 0 && fresh < GM_PYTHON_KEPT; same--)
				kept->fresh[fresh++] = kept->items[1 + at--].frame;
			if (from >= 0 && kept->items[from + 1].frame == frame)
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

/* Return the content of the next item's code, and keep the code object unless it is among the NEAR newest. */
GM_PYTHON_INLINE uint64_t keep_code(const struct gm_python_layout *layout, const struct gm_py_objects *objects,
				    struct gm_python_kept *kept, uintptr_t code_at, struct file *file)
{
	struct gm_python_code *of = &kept->code[kept->codes];
	const uint8_t *code = (const uint8_t *)code_at;
	struct gm_python_words words;

	for (uint32_t i = kept->codes; i-- > 0 && i + NEAR >= kept->codes;)
		if (kept->code[i].at == code_at)
			return kept->code[i].content;
	words = words_of(layout, objects, code_at, code, file);
	*of = (struct gm_python_code){
		.at = code_at, .item = (int)kept->count, .content = content_of(layout, objects, code, &words),
		.file = gm_py_word(code, layout->code_filename), .name = gm_py_word(code, layout->code_name),
		.lines = gm_py_word(code, layout->code_lines),
		.first_line = (uint32_t)gm_py_int(code, layout->code_first_line),
		.version = layout->code_version ? (uint32_t)gm_py_int(code, layout->code_version) : 0,
	};
	if (!of->version) {
		of->file_word = gm_py_text_word(layout, objects, false, of->file);
		of->name_word = gm_py_text_word(layout, objects, false, of->name);
		of->lines_word = gm_py_word((const uint8_t *)of->lines, objects->bytes_data);
	}
	kept->codes++;
	return of->content;
}

/* Keep the next frame inwards as an item. Returns false when it is no frame. */
GM_PYTHON_INLINE bool keep_item(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, struct gm_python_kept *kept, uintptr_t frame,
				struct file *file)
{
	const uint8_t *view = (const uint8_t *)frame;
	uint32_t at = kept->count;
	struct gm_python_item *item = &kept->items[at + 1];
	uint64_t hash = at ? kept->hashes[at - 1] : 0;
	uint16_t frames = at ? kept->frames[at - 1] : 0;
	uintptr_t code_at = gm_py_code(layout, view);

	*item = (struct gm_python_item){ frame, gm_py_word(view, layout->frame_code), gm_py_instr(layout, view) };
	kept->owners[at] = view[layout->frame_owner];
	if (!is_shim(layout, view)) {
		if (gm_py_is_odd(code_at) || gm_py_word((const uint8_t *)code_at, objects->type) != python->code_type)
			return false;
		hash = gm_py_key(hash, code_at, keep_code(layout, objects, kept, code_at, file), item->instr);
		frames++;
	}
	kept->hashes[at] = hash;
	kept->frames[at] = frames;
	kept->count++;
	return true;
}

/* Hash the frames from @frame outwards, with the kept items. Returns false when hash_chain must do it. */
GM_PYTHON_INLINE bool hash_kept(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, uintptr_t frame, int max,
				struct gm_python_walk *walk)
{
	struct gm_python_kept *kept = walk->kept;
	struct file file = { 0 };
	uint32_t fresh;
	int at;

	if (gm_unlikely(kept->python != python)) {
		kept->python = python;
		kept->items[0].frame = UINTPTR_MAX;
		kept->count = kept->codes = 0;
	}
	if (!join(layout, kept, frame, &at, &fresh))
		return false;
	if (at >= 0 && !same_code(python, layout, objects, kept, at)) {
		kept->count = 0;
		if (!join(layout, kept, frame, &at, &fresh))
			return false;
	}
	kept->count = (uint32_t)(at + 1);
	while (kept->codes && kept->code[kept->codes - 1].item > at)
		kept->codes--;
	while (fresh-- > 0)
		if (!keep_item(python, layout, objects, kept, kept->fresh[fresh], &file))
			return false;
	walk->hash = kept->count ? kept->hashes[kept->count - 1] : 0;
	walk->frames = kept->count ? kept->frames[kept->count - 1] : 0;
	return walk->frames <= max;
}

/* Hash all frames of @state: with the kept items if possible, otherwise without. */
GM_PYTHON_INLINE bool hash_anew(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, uintptr_t state, int max,
				struct gm_python_walk *walk)
{
	uintptr_t frame = innermost(layout, state);
	struct gm_python_kept *kept = walk->kept;

	if (gm_likely(kept && !kept->rest)) {
		if (gm_likely(hash_kept(python, layout, objects, frame, max, walk)))
			return true;
		kept->count = kept->codes = 0;
		kept->rest = REST;
		walk->hash = 0;
		walk->frames = 0;
	} else if (kept) {
		kept->rest--;
	}
	return hash_chain(python, layout, objects, frame, max, walk);
}

/* If the whole chain is unchanged, use the kept hash. Returns false when anything has changed. */
GM_PYTHON_INLINE bool hash_same(const struct gm_python *python, const struct gm_python_layout *layout,
				const struct gm_py_objects *objects, uintptr_t state, int max,
				struct gm_python_walk *walk)
{
	const struct gm_python_kept *kept = walk->kept;
	uintptr_t frame;
	int last;

	if (gm_unlikely(!kept || kept->python != python || !kept->count))
		return false;
	last = (int)kept->count - 1;
	frame = innermost(layout, state);
	if (same_items(layout, kept, last, &frame) <= last || frame || gm_unlikely(kept->frames[last] > max) ||
	    !same_code(python, layout, objects, kept, last))
		return false;
	walk->hash = kept->hashes[last];
	walk->frames = kept->frames[last];
	return true;
}

/* ---- by the layout ------------------------------------------------------------------------------- */

/* Compile the walk once for each form of layout, so that as many offsets as possible are constants. */
#define HASH_OF(form, layout, objects) \
	GM_PYTHON_RAW __attribute__((noinline)) \
	static bool hash_##form##_anew(const struct gm_python *python, uintptr_t state, int max, \
				       struct gm_python_walk *walk) \
	{ \
		return hash_anew(python, layout, objects, state, max, walk); \
	} \
	GM_PYTHON_RAW __attribute__((noinline)) \
	static bool hash_##form(const struct gm_python *python, uintptr_t state, int max, \
				struct gm_python_walk *walk) \
	{ \
		return gm_likely(hash_same(python, layout, objects, state, max, walk)) || \
		       hash_##form##_anew(python, state, max, walk); \
	}
HASH_OF(3_10, &gm_py_layouts[10 - GM_PY_FIRST_MINOR], &gm_py_gil_objects)
HASH_OF(3_11, &gm_py_layouts[11 - GM_PY_FIRST_MINOR], &gm_py_gil_objects)
HASH_OF(3_12, &gm_py_layouts[12 - GM_PY_FIRST_MINOR], &gm_py_gil_objects)
HASH_OF(gil_objects, python->layout, &gm_py_gil_objects)
HASH_OF(other_objects, python->layout, &python->layout->objects)

gm_python_walk_fn *gm_python_hash_of(const struct gm_python_layout *layout)
{
	static gm_python_walk_fn *const known_minors[] = { [10] = hash_3_10, [11] = hash_3_11, [12] = hash_3_12 };

	if (layout->minor < sizeof(known_minors) / sizeof(known_minors[0]) && known_minors[layout->minor])
		return known_minors[layout->minor];
	return layout->has_gil_objects ? hash_gil_objects : hash_other_objects;
}
