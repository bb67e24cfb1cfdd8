/*
 * intern.h - the append-only areas: equal content, one id.
 *
 * Thread context: any; lock intern, rank below journal. Signal context: a handler that interrupts
 * an insertion gives up at once.
 */
#ifndef GM_RECORDER_INTERN_H
#define GM_RECORDER_INTERN_H

#include <stdint.h>

#include "recorder/journal/format.h"

/* Make the hash tables for a new journal (0 or -ENOMEM), and give them back. */
int gm_intern_begin(void);
void gm_intern_end(void);

/* gm_intern_string with the intern lock held. */
uint32_t gm_intern_string_locked(struct gm_header *header, const char *text);

#endif
