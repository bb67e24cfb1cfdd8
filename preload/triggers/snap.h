/*
 * snap.h - one snapshot: copy the journal, then write a file for each that asked.
 */
#ifndef GM_PRELOAD_SNAP_H
#define GM_PRELOAD_SNAP_H

#include <stdbool.h>
#include <stdint.h>

/* Copy, call @copied, write one file per bit (1 << enum gm_request) of @reasons. Failures are
 * said; returns 0, or -errno when a file could not be written. Any one thread (gm_state.writing
 * is taken, waiting at most @limit_ns: -ETIMEDOUT). */
int gm_snap_take(uint32_t reasons, uint64_t limit_ns, void (*copied)(void *arg), void *arg);

/* Did this process ever allocate, or fail to? */
bool gm_snap_worth_it(void);

#endif
