/*
 * budget.h - how much of the host's memory the journal may take.
 *
 * Thread context: one thread at a time. Signal context: none.
 */
#ifndef GM_RECORDER_BUDGET_H
#define GM_RECORDER_BUDGET_H

#include <stdint.h>

/* A place with less than this, in bytes, is passed over for the next one. */
#define GM_BUDGET_LEAST (UINT64_C(2) << 20)

/* Bytes that may still be used in the tightest memory cgroup above this process (v1 or v2; page
 * cache that can be reclaimed counts as unused). UINT64_MAX when nothing limits it, or it is not
 * known. */
uint64_t gm_budget_cgroup_left(void);

/* How many bytes of the journal may be backed by memory, on a file system with @free_bytes free:
 * the least of an eighth of those, a thirty-second of what the cgroup still allows, and a
 * thirty-second of the memory that the machine has available. */
uint64_t gm_budget(uint64_t free_bytes);

/* How long the (sparse) file may be: the lesser of RLIMIT_FSIZE, because a longer ftruncate would
 * kill the host by SIGXFSZ, and a sixteenth of RLIMIT_AS, because all of the file is mapped. */
uint64_t gm_budget_span(void);

#endif
