/*
 * intern.h - the append-only areas: equal content, one id.
 *
 * Thread context: any; lock intern, rank below journal. Signal context: a handler that interrupts
 * an insertion gives up at once.
 */
#ifndef GM_RECORDER_INTERN_H
#define GM_RECORDER_INTERN_H

/* Make the hash tables for a new journal (0 or -ENOMEM), and give them back. */
int gm_intern_begin(void);
void gm_intern_end(void);

#endif
