/*
 * budget.h - how much of the host's memory the journal may take.
 *
 * Thread context: the one thread in gm_recorder_start; gm_budget_cgroup_left by any one thread. Signal
 * and fork context: none.
 */
#ifndef GM_RECORDER_BUDGET_H
#define GM_RECORDER_BUDGET_H

#include <stdint.h>

/* Less than this is not worth a journal: the next place is tried. */
#define GM_BUDGET_LEAST (UINT64_C(2) << 20)

/* Bytes that the tightest memory cgroup above this process has left (v1 or v2, reclaimable page
 * cache counted as left); UINT64_MAX when nothing limits it or it cannot be told. */
uint64_t gm_budget_cgroup_left(void);

/* Bytes that may be backed by memory at a place whose file system has @free_bytes left: an eighth
 * of those, a thirty-second of what the cgroup has left and of what the machine has available. */
uint64_t gm_budget(uint64_t free_bytes);

/* Bytes that the file may be long and the mapping wide (sparse): RLIMIT_FSIZE, beyond which
 * ftruncate would kill the host by SIGXFSZ, and a sixteenth of RLIMIT_AS. */
uint64_t gm_budget_span(void);

#endif
