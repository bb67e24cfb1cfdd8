/*
 * ahead.h - inputs read one ahead of the verb that asks for them, by a thread of its own: for verbs
 * that take several. Of a snapshot the reading takes longer than anything that is done with it.
 *
 * To be used from one thread. Where no thread can be had, or an input is none to be read ahead (no
 * regular file, a journal, a large one), it is read when it is asked for.
 */
#ifndef GM_TOOLS_AHEAD_H
#define GM_TOOLS_AHEAD_H

#include "tools/read/load.h"

struct gm_ahead { char **words; size_t count; struct gm_ahead_job *job; };

/* Of @words, which must outlive it. gm_ahead_close waits for the thread, and drops what it read. */
struct gm_ahead gm_ahead_of(char **words, size_t count);
void gm_ahead_close(struct gm_ahead *ahead);

/* gm_load of word @i, to be asked for in their order; the next one is being read from then on. */
int gm_ahead_load(struct gm_ahead *ahead, size_t i, struct gm_loaded *ret);

#endif
