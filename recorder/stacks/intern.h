/*
 * intern.h - the append-only areas of the journal, in which equal content has one id.
 *
 * Thread context: any; lock intern, rank below journal. Signal context: a handler that interrupts an insertion
 * gives up at once.
 */
#ifndef GM_RECORDER_INTERN_H
#define GM_RECORDER_INTERN_H

/* Create the hash tables for a new journal (returns 0 or -ENOMEM), and unmap them. */
int gm_intern_begin(void);
void gm_intern_end(void);

#endif
