/*
 * stacks.h - the stacks and frames of a snapshot, ready to be shown. Single-threaded.
 */
#ifndef GM_TOOLS_STACKS_H
#define GM_TOOLS_STACKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_frame {
	const char *name;		/* never "": "libfoo.so+0x1234" without a name, else "??" */
	const char *symbol;		/* as it was recorded: C++ and Rust names are mangled */
	const char *file;		/* the source; without one the module's name, "" unknown */
	int64_t line;
	const char *module;		/* its file's name, "" unknown */
	bool python;
};

struct gm_stacks {
	struct gm_frame *frames;
	size_t frame_count;
	uint32_t *ids;			/* frames of all stacks, one after the other, innermost first */
	size_t *starts;			/* stack s: ids[starts[s]] to ids[starts[s + 1]]; s < count */
	size_t count;
	struct gm_values *texts;	/* where made-up names lie */
};

/* The stacks of @root, which must outlive them. Numbers out of range are frame 0. Returns 0 or
 * -ENOMEM. */
int gm_stacks_open(struct gm_stacks *stacks, const json_t *root);
void gm_stacks_close(struct gm_stacks *stacks);

/* The frames of stack @id, innermost first; none for a number that is no stack's. */
const uint32_t *gm_stack(const struct gm_stacks *stacks, int64_t id, size_t *ret_count);

/* One line for a stack, who asked: its innermost line of the program's own Python; else of any Python;
 * else its innermost native frame that is no plumbing. */
const struct gm_frame *gm_stack_site(const struct gm_stacks *stacks, int64_t id);
#define GM_NO_STACK "(no stack)"

/* That line as text, "train (train.py:7)" or "forward (libmodel.so)", cut to @room. Returns @to. */
const char *gm_site_text(const struct gm_stacks *stacks, int64_t id, char *to, size_t room);

#endif
