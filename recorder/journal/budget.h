/*
 * budget.h - how much of the host's memory the journal may take.
 *
 * Thread context: one thread at a time. Signal context: none.
 */
#ifndef GM_RECORDER_BUDGET_H
#define GM_RECORDER_BUDGET_H

#include <stdint.h>

/* Bytes. A place whose budget is less is skipped, and the next place is tried. */
#define GM_BUDGET_LEAST (UINT64_C(2) << 20)

/* Return how many bytes the tightest memory cgroup above this process (v1 or v2) still allows. Page
 * cache that can be reclaimed counts as unused. UINT64_MAX: there is no limit, or it is not known. */
uint64_t gm_budget_cgroup_left(void);

/* Return how many bytes of the journal may be backed by memory, on a file system with @free_bytes
 * free: the least of an eighth of @free_bytes, a thirty-second of the bytes that the cgroup still
 * allows, and a thirty-second of the machine's available memory. */
uint64_t gm_budget(uint64_t free_bytes);

/* Return how long the (sparse) file may be, in bytes: the lesser of RLIMIT_FSIZE, because a longer
 * ftruncate would kill the host by SIGXFSZ, and a sixteenth of RLIMIT_AS, because the whole file is
 * mapped. */
uint64_t gm_budget_span(void);

#endif
