/*
 * stacks.h - the stacks and frames of a snapshot, ready to be shown. Single-threaded.
 */
#ifndef GM_TOOLS_STACKS_H
#define GM_TOOLS_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/read/snapshot.h"

/* What may be a site: the program's own Python, else any Python, else a step of PyTorch's backward, else native frames
 * that are no plumbing. Python that only runs the program (gm_stack_runner) is plumbing. */
enum gm_frame_sort {
	GM_FRAME_PLUMBING, GM_FRAME_NATIVE, GM_FRAME_BACKWARD, GM_FRAME_PYTHON_OTHER, GM_FRAME_PYTHON_OWN
};

struct gm_frame {
	const char *name;		/* never "": "libfoo.so+0x1234" without a name, else "??" */
	const char *symbol;		/* as it was recorded: C++ and Rust names are mangled */
	const char *file;		/* the source; without one the module's name, "" unknown */
	int64_t line;
	const char *module;		/* its file's name, "" unknown */
	bool python;
	bool inlined;			/* into the next frame of the stack */
	uint8_t sort;			/* enum gm_frame_sort */
};

/* The innermost frames that all stacks of some kind of memory begin with. */
struct gm_shared {
	size_t count;			/* of them, 0: none */
	int64_t by;			/* a stack that has them */
	enum gm_frame_sort sort;	/* theirs: in stacks whose best frames are of this sort */
};

/* What a stack allocated. */
enum { GM_STACK_OF_DEVICE = 1 << 0, GM_STACK_OF_HOST = 1 << 1 };

struct gm_stacks {
	struct gm_frame *frames;
	size_t frame_count;
	const struct gm_snapshot *snapshot;	/* which has what frames each stack has */
	size_t count;
	struct gm_values *texts;	/* where made-up names lie */
	uint8_t *used;			/* of each stack, what it allocated; NULL: nobody said so */
	struct gm_shared shared[3];	/* see gm_stacks_share */
};

/* The stacks of @snapshot, which must outlive them. Returns 0 or -ENOMEM. */
int gm_stacks_open(struct gm_stacks *stacks, const struct gm_snapshot *snapshot);
void gm_stacks_close(struct gm_stacks *stacks);

/* The frames of stack @id, innermost first; none for a number that is no stack's. */
const uint32_t *gm_stack(const struct gm_stacks *stacks, int64_t id, size_t *ret_count);

/* One line for a stack, who asked: its innermost line of the program's own Python; else of any Python; else the step
 * of PyTorch's backward; else its innermost native frame that is no plumbing. */
const struct gm_frame *gm_stack_site(const struct gm_stacks *stacks, int64_t id);

/* @used has, by number, what each stack allocated (GM_STACK_OF_DEVICE | GM_STACK_OF_HOST), 0 nothing; it is @stacks'
 * from now on. The innermost frames that all stacks of device memory share, such as an allocation function of the
 * program's, tell no caller from another: from now on the site of such a stack is the first frame behind them. The same
 * goes for stacks of pinned host memory, and for what all stacks of both share. The site of a stack that allocated
 * nothing is behind the frames of any of these that it begins with. Where some of the stacks have frames of a better
 * sort, only these stacks are compared: what a library's own threads allocate has no line of the program's. */
void gm_stacks_share(struct gm_stacks *stacks, uint8_t *used);

/* The file of a line of Python, below the directory that the process ran in if it lies there. */
const char *gm_stack_file(const struct gm_stacks *stacks, const char *file);

/* ---- fold.c: user code first ------------------------------------------------------------------ */

/* What a frame belongs to that is not the user's code. Runs of such frames are shown as one, or not at all. Of the
 * interpreter's are libffi and what runs a program: pytest, unittest, runpy. */
enum gm_fold { GM_FOLD_NOT, GM_FOLD_INTERPRETER, GM_FOLD_ALLOCATOR, GM_FOLD_DISPATCHER };
enum gm_fold gm_frame_fold(const struct gm_frame *frame);
const char *gm_fold_name(enum gm_fold fold);	/* "interpreter" ..., "" */

/* A name of C++ without the arguments of its templates and without its parameters. */
void gm_frame_shorten(const char *name, char *ret, size_t room);

/* @site (gm_site_text, gm_groups_frame_text) in @columns at most: without the arguments of templates, parameters,
 * directories, what the function returns and the scopes that it lies in, one after the other, as far as needed. The
 * function and its file and line stay; only where there is no room even for these are they cut. What a terminal must
 * not see becomes '?'. Returns @to. */
#define GM_SITE_FIT 2300
const char *gm_site_fit(const char *site, size_t columns, char to[GM_SITE_FIT]);

/* Cut @text to @columns, with an ellipsis in place of the rest; it has room for three more bytes. Returns @text. */
char *gm_text_fit(char *text, size_t columns);

/* From now on every frame is shown, by its whole name (--all-frames); was that asked for? */
void gm_stacks_unfold(void);
bool gm_stacks_folded(void);

#define GM_NO_STACK "(no stack)"

/* A frame as text, "train (train.py:7)", "main (app.cu:88)" or "forward (libmodel.so)", cut to @room. Files of Python
 * are named from the directory in which the process ran. Returns @to. */
const char *gm_frame_text(const struct gm_stacks *stacks, const struct gm_frame *frame, char *to, size_t room);

/* The site of stack @id as text. */
const char *gm_site_text(const struct gm_stacks *stacks, int64_t id, char *to, size_t room);

#endif
