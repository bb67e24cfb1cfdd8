/*
 * oom.h - when memory runs out: what the thread does whose allocation failed.
 */
#ifndef GM_PRELOAD_OOM_H
#define GM_PRELOAD_OOM_H

struct gm_failure;

/* By hooks: an allocation could not be had. @failure is filled but for number, tsc, tid and
 * live_bytes. Records it, calls the observers, copies the journal for an OOM snapshot where the policy
 * wants one (oom.c), and asks for its file when that is due. Keeps nothing of @failure. */
void gm_oom_report(struct gm_failure *failure);

/* The same of a pool of the program's, whose locks may be held: no observer is called, who might wait for
 * one of them. */
void gm_oom_report_pool(struct gm_failure *failure);

#endif
