/*
 * signal.h - the signal that asks for a snapshot.
 */
#ifndef GM_PRELOAD_SIGNAL_H
#define GM_PRELOAD_SIGNAL_H

/* Take signal @number, if the program left it at its default; 0: none. Once, at the start. */
void gm_signal_start(unsigned int number);

#endif
