/*
 * stacks.h - the stacks and frames of a snapshot, ready to be shown. Single-threaded.
 */
#ifndef GM_TOOLS_STACKS_H
#define GM_TOOLS_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/read/snapshot.h"

/* How good a frame is as the site of its stack, the best sort last. Python that only runs the program
 * (gm_frame_is_runner) is plumbing; gm_frame_is_plumbing says which native frames are. */
enum gm_frame_sort {
	GM_FRAME_PLUMBING, GM_FRAME_NATIVE, GM_FRAME_BACKWARD, GM_FRAME_PYTHON_OTHER, GM_FRAME_PYTHON_OWN
};

struct gm_frame {
	const char *name;		/* never "": a frame without a name is "libfoo.so+0x1234" or "??" */
	const char *symbol;		/* the recorded name: C++ and Rust names are mangled */
	const char *file;		/* of the source; if that is unknown, the module's file name or "" */
	int64_t line;
	const char *module;		/* the module's file name; "": unknown */
	bool python;
	bool inlined;			/* into the next frame of the stack */
	uint8_t sort;			/* enum gm_frame_sort */
};

/* The innermost frames that all stacks of one kind of memory have in common. */
struct gm_shared {
	size_t count;			/* of these frames; 0: none */
	int64_t by;			/* a stack that begins with them */
	enum gm_frame_sort sort;	/* of these frames, and the best sort of the stacks that were compared */
};

/* What a stack allocated. */
enum { GM_STACK_OF_DEVICE = 1 << 0, GM_STACK_OF_HOST = 1 << 1 };

struct gm_stacks {
	struct gm_frame *frames;
	size_t frame_count;
	const struct gm_snapshot *snapshot;	/* has the frames of each stack */
	size_t count;
	struct gm_values *texts;	/* holds the names that were made here */
	uint8_t *used;			/* what each stack allocated; NULL: gm_stacks_share was not called */
	struct gm_shared shared[3];	/* see gm_stacks_share */
};

/* Open the stacks of @snapshot, which must outlive @stacks. Returns 0, or -ENOMEM and nothing to close. */
int gm_stacks_open(struct gm_stacks *stacks, const struct gm_snapshot *snapshot);
void gm_stacks_close(struct gm_stacks *stacks);

/* Return the frames of stack @id, innermost first, as places in @frames; no frames if there is no such stack. */
const uint32_t *gm_stack(const struct gm_stacks *stacks, int64_t id, size_t *ret_count);

/* Return the site of a stack, the frame that asked for memory: the innermost frame of the program's own Python; else of
 * any Python; else the step of PyTorch's backward; else the innermost native frame that is no plumbing; else the
 * innermost frame. A stack without frames has a site called GM_NO_STACK. */
const struct gm_frame *gm_stack_site(const struct gm_stacks *stacks, int64_t id);

/* Find the innermost frames that all stacks of device memory share, such as an allocation function of the program.
 * Shared frames do not separate callers, so from now on the site of such a stack is the first frame behind them. Do the
 * same for the stacks of pinned host memory, and for both kinds together. The site of a stack that allocated nothing is
 * behind the longest of these sequences that the stack begins with. Only stacks with frames of the best sort are
 * compared, because stacks of a library's own threads have no line of the program.
 * @used: what each stack allocated (GM_STACK_OF_DEVICE | GM_STACK_OF_HOST; 0: nothing). @stacks owns it from now on. */
void gm_stacks_share(struct gm_stacks *stacks, uint8_t *used);

/* Return the Python file @file relative to the working directory of the process, or as it is if it lies elsewhere. */
const char *gm_stack_file(const struct gm_stacks *stacks, const char *file);

/* ---- fold.c: user code first ------------------------------------------------------------------ */

/* The frames that are not user code; a run of such frames is shown as one line, or not at all. The interpreter includes
 * libffi and the Python that runs a program: pytest, unittest, runpy. */
enum gm_fold { GM_FOLD_NOT, GM_FOLD_INTERPRETER, GM_FOLD_ALLOCATOR, GM_FOLD_DISPATCHER };
enum gm_fold gm_frame_fold(const struct gm_frame *frame);
const char *gm_fold_name(enum gm_fold fold);	/* "interpreter" ..., "" */

/* Copy the C++ name @name to @ret without template arguments and parameters, cut to @room bytes. */
void gm_frame_shorten(const char *name, char *ret, size_t room);

/* Shorten @site (of gm_site_text or gm_groups_frame_text) to @columns. Drop in this order, as far as needed: template
 * arguments and parameters, directories, the result type, scopes. Cut the function, its file and its line only if there
 * is no room for them. Clean it as gm_show_clean does. Returns @to. */
#define GM_SITE_FIT 2300
const char *gm_site_fit(const char *site, size_t columns, char to[GM_SITE_FIT]);

/* Cut @text to @columns, the last one an ellipsis. @text must have room for three more bytes. Returns @text. */
char *gm_text_fit(char *text, size_t columns);

/* Show every frame with its whole name from now on (--all-frames). Are frames folded, because nobody asked for all? */
void gm_stacks_unfold(void);
bool gm_stacks_folded(void);

#define GM_NO_STACK "(no stack)"

/* Write a frame as "train (train.py:7)", "main (app.cu:88)" or "forward (libmodel.so)", cut to @room bytes. Python
 * files are named by gm_stack_file. Returns @to. */
const char *gm_frame_text(const struct gm_stacks *stacks, const struct gm_frame *frame, char *to, size_t room);

/* Write the site of stack @id as gm_frame_text does. Returns @to. */
const char *gm_site_text(const struct gm_stacks *stacks, int64_t id, char *to, size_t room);

#endif
