/*
 * python.h - read the Python frames of the calling thread from CPython's own structures.
 *
 * A walk takes no GIL, counts no references, and calls no Python API except functions that read one word (the
 * thread state of this thread, whether the interpreter is finalizing). The thread is within a call that Python
 * made, so its own frames and their code objects do not change, with or without the GIL. Frames of other
 * threads are never read. The type of each code object is checked. Until GM_PYTHON_PROOF walks of an
 * interpreter have shown that its layout is the expected one, walks read through the kernel (gm_probe_copy) and
 * check everything.
 *
 * An interpreter is found by its code on a native stack, never by a call of the loader. So it does not matter
 * how or when the interpreter was loaded, and it cannot be unloaded while we call into it.
 *
 * Thread context: any, no lock of ours held. Signal context: none. No malloc; errno is kept.
 */
#ifndef GM_RECORDER_PYTHON_H
#define GM_RECORDER_PYTHON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_PYTHON_PROOF 16u

struct gm_python;
struct gm_python_walk;

/* Walk the frames of the thread state @state. Returns false when something does not fit the layout. */
typedef bool gm_python_walk_fn(const struct gm_python *python, uintptr_t state, int max, struct gm_python_walk *walk);

/* An interpreter: one CPython in the process, with all its sub-interpreters. */
struct gm_python {
	_Atomic(uint32_t) state;	/* enum gm_python_state; stored last. The members below @bad, except
					 * @hash, are constant then. */
	_Atomic(uint32_t) generation;	/* generation of the modules in which it was last found loaded */
	_Atomic(uint32_t) good, bad;	/* walks before the proof that fitted the layout, and that did not */
	const struct gm_python_layout *layout;
	uintptr_t start, end;		/* range of its object */
	uint64_t identity;		/* identity of its object */
	uintptr_t eval, eval_end;	/* range of _PyEval_EvalFrameDefault without its cold part */
	uintptr_t code_type, text_type, bytes_type;
	void *(*this_state)(void);	/* PyGILState_GetThisThreadState */
	void *(*holder)(void);		/* _PyThreadState_UncheckedGet */
	void *(*newest)(void);		/* PyInterpreterState_Head */
	int (*is_finalizing)(void);
	_Atomic(gm_python_walk_fn *) hash;	/* gm_python_hash_of(@layout); NULL until the first walk */
};

enum gm_python_state { GM_PYTHON_NONE, GM_PYTHON_READY, GM_PYTHON_OFF };

/* Call once, at the start. @note (may be NULL) is called with one line for each interpreter whose frames cannot
 * be read, in the thread that discovers it. */
void gm_python_init(void (*note)(const char *line));

/* Return the known interpreter whose code is on the native stack @pcs; NULL when there is none. @cut: the stack
 * could not be followed to its end; then return any known interpreter rather than NULL. */
struct gm_python *gm_python_on(const uintptr_t *pcs, int count, bool cut);

/* Changes whenever gm_python_on may answer differently for the same stack. */
extern _Atomic(uint32_t) gm_python_changes __attribute__((visibility("hidden")));
static inline uint32_t gm_python_epoch(void)
{
	return atomic_load_explicit(&gm_python_changes, memory_order_acquire);
}

/* Return the number of an interpreter (0 for NULL), and the interpreter of a number other than 0. */
uint8_t gm_python_number(const struct gm_python *python);
struct gm_python *gm_python_of(uint8_t number);

/* Search the objects of @pcs for interpreters that are not known yet. With @cut, also search the objects that
 * the process was started with. Slow. Returns whether one was found, or found again after a change of the
 * modules. */
bool gm_python_discover(const uintptr_t *pcs, int count, bool cut);

struct gm_python_walk {
	uint64_t hash;			/* of address, instruction and content of the code of all frames */
	int frames;
	unsigned int flags;		/* GM_UNWIND_TRUNCATED, GM_UNWIND_MORE */
	/* Where to store the walk (NULL: nowhere): addresses of frames, innermost first. The entry frame of
	 * each call of the interpreter's loop is followed by the anchor of that call, as address |
	 * GM_PYTHON_ANCHOR. */
	uintptr_t *items;
	int max_items, items_count;
	struct gm_python_kept *kept;	/* without @items: the thread's previous walk; NULL: none is kept */
};

#define GM_PYTHON_ANCHOR 1u

/*
 * The frames of a thread's last walk, outermost first, each with the hash of all frames up to it. A hash
 * depends only on values that are stored here. So if the next walk meets a kept frame, and all items from there
 * to the outermost are unchanged, the hash of that frame is right, even if the frames now belong to other
 * calls. That is why no sign is needed that a call has ended. All zero: nothing is kept.
 */
#define GM_PYTHON_KEPT 128u

struct gm_python_kept {
	const struct gm_python *python;
	uint32_t count, codes;
	uint32_t rest;			/* the next walks that keep nothing, because one was too deep */
	struct gm_python_item {
		uintptr_t frame, code, instr;	/* as read from the frame; shims are items, too */
	} items[GM_PYTHON_KEPT + 1];	/* from 1 on; items[0].frame is a sentinel, no frame's address */
	uint8_t owners[GM_PYTHON_KEPT];	/* frame owner of each item; compared in layouts with shims */
	uint16_t frames[GM_PYTHON_KEPT];	/* number of frames up to each item */
	uint64_t hashes[GM_PYTHON_KEPT];	/* hash of these frames */
	struct gm_python_code {		/* code objects, in the order of the first item that runs each */
		uintptr_t at, file, name, lines;
		uint32_t first_line, version;	/* @version 0: the object has none, and the *_word members tell
						 * more */
		uintptr_t file_word, name_word, lines_word;
		uint64_t content;
		int item;
	} code[GM_PYTHON_KEPT];
	uintptr_t fresh[GM_PYTHON_KEPT];	/* during a walk: the new frames, innermost first */
};

/* Walk the calling thread's frames, at most @max. Set @walk->items and @max_items, or @kept, before. */
void gm_python_walk(struct gm_python *python, int max, struct gm_python_walk *walk);

/* Return the id of the frame at @frame, which is an item of a walk just made. Read name, file and line of a
 * frame that was not seen before. Returns GM_NONE when there is no room or the frame cannot be read, and with
 * *ret_skip set when Python itself would not show the frame. */
uint32_t gm_python_intern(struct gm_python *python, uintptr_t frame, bool *ret_skip);

/* ---- internal to recorder/python*.c ---- */

/* May frames be read in place? */
static inline bool gm_python_is_proved(const struct gm_python *python)
{
	return atomic_load_explicit(&python->good, memory_order_acquire) >= GM_PYTHON_PROOF;
}

/* Return the function that computes only the hash of a walk, and reads in place. */
gm_python_walk_fn *gm_python_hash_of(const struct gm_python_layout *layout);

/* Return the line of the instruction at byte @at of the code; 0: it has none, or the table cannot be read. The
 * line table at @table has @bytes bytes. @first is the first line of the code, and the line of a frame that has
 * not begun (@at < 0). Reads by gm_probe_copy, as far as needed. */
uint32_t gm_python_line(unsigned int minor, uintptr_t table, size_t bytes, uint32_t first,
			int64_t at);

/* Return the instruction of @frame, as gm_py_instr does, but always as an address in the code at @code_at,
 * never in a thread's copy of the code. 0: the copy cannot be found. Slow where there are copies. */
uintptr_t gm_python_instr(const struct gm_python_layout *layout, const uint8_t *frame,
			  uintptr_t code_at);

/* Stop reading frames of this interpreter, because the layout does not fit. Report that once. */
void gm_python_off(struct gm_python *python);

#endif
