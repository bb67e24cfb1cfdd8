/*
 * python.h - the Python frames of the calling thread, read where CPython keeps them.
 *
 * No GIL is taken, no reference counted, and no Python API called except functions that read one
 * word (which thread state is this thread's, whether the interpreter is ending). The thread is
 * within a call that Python made, so its own frames and their code objects do not change, with or
 * without the GIL; frames of other threads are never read. Each code object's type is checked; an
 * interpreter's first walks read through the kernel (gm_probe_copy) and check everything, until
 * GM_PYTHON_PROOF of them have shown that the layout is the expected one.
 *
 * An interpreter is found by its code on a native stack, never through the loader: so it does not
 * matter how or when it was loaded, and while we call into it, it cannot be unloaded.
 *
 * Thread context: any, no lock of ours held. Signal context: none. No malloc; errno is
 * kept.
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

/* Walk the frames of the thread state @state. False: something is not as it should be. */
typedef bool gm_python_walk_fn(const struct gm_python *python, uintptr_t state, int max, struct gm_python_walk *walk);

/* An interpreter: one CPython in the process, with all its sub-interpreters. */
struct gm_python {
	_Atomic(uint32_t) state;	/* enum gm_python_state; stored last: what follows @bad is constant then */
	_Atomic(uint32_t) generation;	/* of the modules, when it was last found loaded */
	_Atomic(uint32_t) good, bad;	/* walks that fitted the layout, and that did not, before it was proved */
	const struct gm_python_layout *layout;
	uintptr_t start, end;		/* the object it is in */
	uint64_t identity;		/* of that object */
	uintptr_t eval, eval_end;	/* _PyEval_EvalFrameDefault, but for its cold part */
	uintptr_t code_type, text_type, bytes_type;
	void *(*this_state)(void);	/* PyGILState_GetThisThreadState */
	void *(*holder)(void);		/* _PyThreadState_UncheckedGet */
	void *(*newest)(void);		/* PyInterpreterState_Head */
	int (*is_finalizing)(void);
	_Atomic(gm_python_walk_fn *) hash;	/* gm_python_hash_of(@layout); NULL: not asked for yet */
};

enum gm_python_state { GM_PYTHON_NONE, GM_PYTHON_READY, GM_PYTHON_OFF };

/* Once, at the start: @note (may be NULL) gets a line for each interpreter whose frames cannot be
 * read, from whatever thread met it. */
void gm_python_init(void (*note)(const char *line));

/* The interpreter that the native stack @pcs runs through; NULL when none is known there. With
 * @cut, the stack could not be followed to its end: then any that is known. */
struct gm_python *gm_python_on(const uintptr_t *pcs, int count, bool cut);

/* A number that changes whenever gm_python_on may answer differently for the same stack. */
extern _Atomic(uint32_t) gm_python_changes __attribute__((visibility("hidden")));
static inline uint32_t gm_python_epoch(void)
{
	return atomic_load_explicit(&gm_python_changes, memory_order_acquire);
}

/* A small number for an interpreter, 0 for NULL; and the interpreter of such a number, which is not
 * 0. */
uint8_t gm_python_number(const struct gm_python *python);
struct gm_python *gm_python_of(uint8_t number);

/* Look for interpreters that are not known yet among the objects of @pcs; with @cut, among those
 * that the process began with, too. Slow. Returns whether one was found (again). */
bool gm_python_discover(const uintptr_t *pcs, int count, bool cut);

struct gm_python_walk {
	uint64_t hash;			/* of (code, instruction) and content of all frames */
	int frames;
	unsigned int flags;		/* GM_UNWIND_TRUNCATED, GM_UNWIND_MORE */
	/* Where to store what was walked (NULL: nowhere): addresses of frames, innermost first, and
	 * after the entry frame of each call of the loop its anchor, an address |
	 * GM_PYTHON_ANCHOR. */
	uintptr_t *items;
	int max_items, items_count;
	struct gm_python_kept *kept;	/* without @items: of the thread's walk before; NULL: nothing is kept */
};

#define GM_PYTHON_ANCHOR 1u

/*
 * The frames of a thread's last walk, the outermost first, with the hash up to each. A hash depends on nothing but what
 * is here: where the next walk meets a frame from which on all of it is as it was, down to the outermost frame,
 * that hash is right, whether or not these are still the same calls. So no sign is needed that a call has ended.
 * Zero: nothing is kept.
 */
#define GM_PYTHON_KEPT 128u

struct gm_python_kept {
	const struct gm_python *python;
	uint32_t count, codes;
	uint32_t rest;			/* walks that are not kept: the last one was too deep */
	struct gm_python_item {
		uintptr_t frame, code, instr;	/* as they stand there; shims are items, too */
	} items[GM_PYTHON_KEPT + 1];	/* from 1 on; [0].frame is no frame's address */
	uint8_t owners[GM_PYTHON_KEPT];	/* of each item, where there are shims */
	uint16_t frames[GM_PYTHON_KEPT];	/* up to each item, */
	uint64_t hashes[GM_PYTHON_KEPT];	/* and their hash */
	struct gm_python_code {		/* each once, in the order of the first item that has it */
		uintptr_t at, file, name, lines;
		uint32_t first_line, version;	/* @version 0: it has none, and the words tell more */
		uintptr_t file_word, name_word, lines_word;
		uint64_t content;
		int item;
	} code[GM_PYTHON_KEPT];
	uintptr_t fresh[GM_PYTHON_KEPT];	/* while walking: what is new, innermost first */
};

/* Walk the calling thread's frames, @max at most. @walk: set @items and @max_items before. */
void gm_python_walk(struct gm_python *python, int max, struct gm_python_walk *walk);

/* The id of the frame at @frame (an item of a walk just made); its name, file and line are read
 * when it was not seen before. GM_NONE when there is no room; *ret_skip: Python itself would not
 * show it. */
uint32_t gm_python_intern(struct gm_python *python, uintptr_t frame, bool *ret_skip);

/* ---- internal to recorder/python*.c ---- */

/* Whether frames may be read directly. */
static inline bool gm_python_is_proved(const struct gm_python *python)
{
	return atomic_load_explicit(&python->good, memory_order_acquire) >= GM_PYTHON_PROOF;
}

/* What walks for the hash alone, in place. */
gm_python_walk_fn *gm_python_hash_of(const struct gm_python_layout *layout);

/* The line of the instruction @at bytes into the code; @table has @bytes bytes, @first is the
 * line with which the code begins (and the line of a frame that has not begun, @at < 0). Read with
 * gm_probe_copy, as far as needed. 0: it has none, or the table cannot be read. */
uint32_t gm_python_line(unsigned int minor, uintptr_t table, size_t bytes, uint32_t first,
			int64_t at);

/* The instruction at which @frame is in the code at @code_at: as gm_py_instr, but never in a
 * thread's copy of the code. 0: it runs a copy that cannot be found. Slow where there are
 * copies. */
uintptr_t gm_python_instr(const struct gm_python_layout *layout, const uint8_t *frame,
			  uintptr_t code_at);

/* The layout does not fit: read no frames of this interpreter any more, and report that once. */
void gm_python_off(struct gm_python *python);

#endif
