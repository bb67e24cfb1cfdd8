/*
 * load.h - whatever a verb is given, as one snapshot (snapshot.h): a snapshot's JSON, a journal, the pid
 * of a living process, or a snapshot of PyTorch (pickle or JSON).
 *
 * Nothing in the input is trusted. Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_LOAD_H
#define GM_TOOLS_LOAD_H

#include "tools/read/snapshot.h"

/* GM_LOAD_AS_SAID: a snapshot of PyTorch's is left as it was read, in @torch, and @snapshot is empty.
 * For callers that look often, two load a part of a living process: GM_LOAD_TABLES leaves out events, stacks, frames
 * and who held the peak; GM_LOAD_STACKS has all stacks and frames, but no memory. A stack has the same number in all
 * of these loads. */
enum gm_load { GM_LOAD_WHOLE, GM_LOAD_AS_SAID, GM_LOAD_TABLES, GM_LOAD_STACKS };

struct gm_loaded {
	struct gm_snapshot snapshot;	/* gm_load_free */
	enum { GM_LOADED_SNAPSHOT, GM_LOADED_JOURNAL, GM_LOADED_PROCESS, GM_LOADED_TORCH } from;
	int64_t pid;			/* the number that @word was, as seen from here; 0: it was no process */
	const struct gm_value *torch;	/* of GM_LOAD_AS_SAID: PyTorch's document, as it was read */
	char error[512];		/* why it could not be read, one sentence */
	/* its own */
	struct gm_values *values;	/* where @torch lies */
	enum gm_load what;
};

/* Load @word: a path, "-" (a snapshot on standard input), or digits that are no file: a pid.
 * Returns 0, or -errno and @ret->error. */
int gm_load(const char *word, enum gm_load what, struct gm_loaded *ret);

/* Load the living process @pid, whose journal is @attached, or is searched for (NULL). A process that was found is
 * never looked up by a word, which might be a file's name as well. As gm_load. */
struct gm_attached;
int gm_load_process(int64_t pid, const struct gm_attached *attached, enum gm_load what, struct gm_loaded *ret);
void gm_load_free(struct gm_loaded *loaded);

#endif
