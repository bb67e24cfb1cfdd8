/*
 * own_files.h - a function run with a table of file descriptors of its own.
 *
 * The program may close every descriptor at any moment, and then open files of its own under the same
 * numbers: whoever writes through a descriptor of ours would write into those.
 */
#ifndef GM_PRELOAD_OWN_FILES_H
#define GM_PRELOAD_OWN_FILES_H

/* Call @fn(@arg) and return when it has: in a thread that shares all with the caller, its memory and
 * thread-local storage too, but not its descriptors. Of those it begins with 0 to 2; what it opens is
 * closed at its end. Where such a thread cannot be made, in the caller itself. Takes no lock, calls
 * no malloc. */
void gm_with_own_files(void (*fn)(void *arg), void *arg);

#endif
