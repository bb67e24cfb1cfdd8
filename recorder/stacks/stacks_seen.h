/*
 * stacks_seen.h - the stacks seen by any thread: a value by a hash of 64 bits, lossy. Internal to
 * recorder/stacks/stacks.c.
 *
 * Thread context: any, no lock. Signal context: none. An entry never becomes invalid: whoever makes the
 * hashes puts what becomes stale into them.
 */
#ifndef GM_RECORDER_STACKS_SEEN_H
#define GM_RECORDER_STACKS_SEEN_H

#include <stdint.h>

/* What was kept for @hash; 0 nothing. */
uint64_t gm_seen_find(uint64_t hash);

/* Keep @value, not 0. */
void gm_seen_keep(uint64_t hash, uint64_t value);

#endif
