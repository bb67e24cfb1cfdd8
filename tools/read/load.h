/*
 * load.h - load the input of a verb as a snapshot (snapshot.h): a snapshot's JSON, a journal, the PID of a living
 * process, or a snapshot of PyTorch (pickle or JSON).
 *
 * No content of the input is trusted. Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_LOAD_H
#define GM_TOOLS_LOAD_H

#include "tools/read/snapshot.h"

/* GM_LOAD_AS_SAID leaves a snapshot of PyTorch as it was read, in @torch; then @snapshot is empty. Two others load a
 * part of a living process, for callers that look often: GM_LOAD_TABLES leaves out events, stacks, frames and who held
 * the peak; GM_LOAD_STACKS has all stacks and frames, but no memory. A stack has the same number in each of these
 * loads. */
enum gm_load { GM_LOAD_WHOLE, GM_LOAD_AS_SAID, GM_LOAD_TABLES, GM_LOAD_STACKS };

struct gm_loaded {
	struct gm_snapshot snapshot;	/* gm_load_free */
	enum { GM_LOADED_SNAPSHOT, GM_LOADED_JOURNAL, GM_LOADED_PROCESS, GM_LOADED_TORCH } from;
	int64_t pid;			/* of the process, in our PID namespace; 0: @word was no process */
	const struct gm_value *torch;	/* GM_LOAD_AS_SAID: PyTorch's document, as it was read */
	char error[512];		/* why the input could not be read, one sentence */
	/* its own */
	struct gm_values *values;	/* the arena of @torch */
	enum gm_load what;
};

/* Load @word: a path, "-" (a snapshot on standard input), or the digits of a PID if no file has that name. Returns 0,
 * or -errno with the reason in @ret->error. */
int gm_load(const char *word, enum gm_load what, struct gm_loaded *ret);

/* Load the living process @pid, as gm_load. @attached: its journal; NULL: search for the journal. A caller that found a
 * process itself uses this function, because gm_load might take the PID for a file's name. */
struct gm_attached;
int gm_load_process(int64_t pid, const struct gm_attached *attached, enum gm_load what, struct gm_loaded *ret);
void gm_load_free(struct gm_loaded *loaded);

#endif
