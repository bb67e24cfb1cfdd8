/*
 * stacks_seen.h - the stacks seen: a value by a hash of 64 bits, lossy. Internal to recorder/stacks.c.
 *
 * Thread context: any, no lock. Signal context: none. Fork: what is kept stays; who makes hashes has
 * what went out of date in them.
 */
#ifndef GM_RECORDER_STACKS_SEEN_H
#define GM_RECORDER_STACKS_SEEN_H

#include <stdint.h>

/* What was kept for @hash; 0 nothing. */
uint64_t gm_seen_find(uint64_t hash);

/* Keep @value, not 0. */
void gm_seen_keep(uint64_t hash, uint64_t value);

/* After one of these. @hint: what the walk of that stack will want to have at hand when it comes again;
 * 0 leaves what was said before. Returns the hint of the stack that this thread will look for next, if
 * it goes the way it went; 0 none. */
uint32_t gm_seen_leave(uint32_t hint);

#endif
