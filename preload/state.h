/*
 * state.h - the state of the library in this process, on pages that a child finds wiped.
 *
 * One word says where the library stands. It lies, with all state that a child must not inherit,
 * on pages marked MADV_WIPEONFORK: a child made by fork or clone (whoever made it, however) finds
 * zeroes, which is GM_STATE_NEW, and starts afresh at its first hook. A vfork or CLONE_VM child
 * shares its parent's. Where the kernel cannot wipe (before 4.14) the word is
 * GM_STATE_RUNNING_CHECKED, and every hook compares getpid() with @pid.
 *
 *   NEW ── first hook ──> STARTING ──> RUNNING, or RUNNING_CHECKED
 *                             └──────> OFF (could not start: one line was said; all passes through)
 *
 * Thread context: any; whoever finds NEW first starts, the others wait a bounded time.
 * Signal context: gm_state_word and gm_state_is_mine may be read in a handler.
 */
#ifndef GM_PRELOAD_STATE_H
#define GM_PRELOAD_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/lock.h"
#include "preload/options.h"

/* For data that hooks touch: reached without a detour through the GOT. */
#define GM_HIDDEN __attribute__((visibility("hidden")))

enum gm_state_value {
	GM_STATE_NEW, GM_STATE_STARTING, GM_STATE_RUNNING, GM_STATE_RUNNING_CHECKED, GM_STATE_OFF
};

#define GM_OOM_OBSERVERS 8u

struct gm_oom_observer { void (*fn)(void *arg, int device, uint64_t requested_bytes,
				    uint64_t total_bytes, uint64_t free_bytes); void *arg; };

struct gm_state {
	_Atomic(uint32_t) word;		/* enum gm_state_value */
	pid_t pid;			/* of the process that started it */
	struct gm_options options;	/* read once, at the start */

	/* trigger.c */
	_Atomic(uint32_t) helper;	/* 0 none, 1 runs, 2 could not be created */
	_Atomic(uint32_t) helper_tid;
	_Atomic(uint32_t) reasons;	/* enum gm_reason bits asked for and not yet taken up */
	struct gm_lock snapshot_lock;	/* one snapshot at a time, whoever writes it */
	_Atomic(uint32_t) files[8];	/* snapshots written, by reason: the number in the name */

	/* exit.c */
	_Atomic(uint32_t) exiting;	/* exit() has begun */
	_Atomic(uint32_t) exit_done;	/* the exit snapshot was taken, or is not wanted */

	/* oom.c */
	struct gm_lock oom_lock;
	_Atomic(uint64_t) oom_seen;
	struct gm_oom_observer observers[GM_OOM_OBSERVERS];	/* lock: oom_lock */
};

extern struct gm_state gm_state GM_HIDDEN;

static inline uint32_t gm_state_word(void)
{
	return __atomic_load_n((const uint32_t *)&gm_state.word, __ATOMIC_ACQUIRE);
}

/* The library runs, and in this very process: false in a forked child that has not started, and
 * in a vfork child, which shares the word but is another process. Async-signal-safe. */
bool gm_state_is_mine(void);

/* Start if this process has not. Returns true when hooks record. Any thread, no lock held. */
bool gm_state_start(void);

#endif
