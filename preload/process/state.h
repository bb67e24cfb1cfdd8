/*
 * state.h - the state of the library in this process, on pages that a forked child finds wiped.
 *
 * One word is the state. The word, and all other state that a child must not inherit, lie on pages marked
 * MADV_WIPEONFORK, so a child of any fork or clone finds zeroes, which is GM_STATE_NEW. If the parent had
 * started the library, the driver refuses every call of the child, and the library stays off; otherwise it
 * starts at the child's first hook. A vfork or CLONE_VM child shares its parent's state. If the kernel
 * cannot wipe pages (before 4.14), the word is GM_STATE_RUNNING_CHECKED and every hook compares getpid()
 * with @pid.
 *
 *   NEW ── first hook ──> STARTING ──> RUNNING, or RUNNING_CHECKED
 *                             └──────> OFF (the start failed and printed a line; all calls pass through)
 *
 * Thread context: any. The first thread that finds NEW starts the library; the others wait for a limited
 * time. Signal context: gm_state_word and gm_state_is_mine may be called in a handler.
 */
#ifndef GM_PRELOAD_STATE_H
#define GM_PRELOAD_STATE_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/lock.h"
#include "preload/options/options.h"
#include "recorder/journal/atomic.h"
#include "recorder/read/copy.h"

/* For data that hooks touch, so that code reaches it without the GOT. */
#define GM_HIDDEN __attribute__((visibility("hidden")))

enum gm_state_value {
	GM_STATE_NEW, GM_STATE_STARTING, GM_STATE_RUNNING, GM_STATE_RUNNING_CHECKED, GM_STATE_OFF
};

#if defined(__aarch64__)
#define GM_STATE_PAGE 65536		/* the largest page size of the kernel */
#else
#define GM_STATE_PAGE 4096
#endif

#define GM_OOM_OBSERVERS 8u
#define GM_OOM_KEPT 32u			/* the maximum of option oom_snapshots */
#define GM_PATH_BYTES 1024u
#define GM_EXIT_NOT_YET 0

struct gm_oom_observer {
	void (*fn)(void *arg, int device, uint64_t requested_bytes, uint64_t total_bytes,
		   uint64_t free_bytes);
	void *arg;
};

struct gm_state {
	_Atomic(uint32_t) word;		/* enum gm_state_value */
	pid_t pid;			/* of the process that started the library */
	_Atomic(uint32_t) context;	/* GM_CONTEXT_*: which records get a stack (api.c) */
	struct gm_options options;	/* read once, at the start */
	char journal[GM_PATH_BYTES];	/* path of the journal; "": in memory only */

	/* trigger.c, snap.c */
	_Atomic(uint32_t) helper;	/* kernel id of the helper thread; 0: there is none */
	_Atomic(uint32_t) namer;	/* enum in helper.c; 0: there is no names thread */
	_Atomic(uint32_t) names_asked, names_done;	/* numbers of the slices of naming: asked for; done */
	_Atomic(uint64_t) names_ns;	/* how long the next slice may take; 0: as usual */
	_Atomic(uint32_t) reasons;	/* bits (1 << enum gm_request) of snapshots asked for, not begun */
	struct gm_lock writing;		/* held by the thread that writes a snapshot */
	uint32_t written[8];		/* files so far, by enum gm_request; lock: writing */

	/* api.c: one gpumem_snapshot at a time */
	struct gm_lock api_lock;
	char api_path[GM_PATH_BYTES];	/* "": the path of option output */
	_Atomic(int32_t) api_result;

	/* api.c: the settings of the history */
	struct gm_lock history_lock;	/* one change at a time */

	/* exit.c */
	_Atomic(uint32_t) exiting;	/* exit() has begun */
	_Atomic(uint32_t) turning;	/* the helper thread is in gm_cache_turn */
	_Atomic(uint32_t) turns_ended;	/* it must not enter again, because the driver may be shutting down */
	_Atomic(uint32_t) exit_step;	/* enum in exit.c; GM_EXIT_NOT_YET before the last snapshot */
	uint32_t exit_taker;		/* kernel id of the thread that takes the exit snapshot */
	_Atomic(int32_t) exit_result;	/* 0 or -errno of writing it */

	/* crash.c */
	_Atomic(uint32_t) crash_thread;	/* kernel id of the thread that crashed first; 0: none */
	_Atomic(uint32_t) crash_step;	/* enum in crash.c */
	siginfo_t crash_info;		/* of that thread */

	/* oom.c */
	struct gm_lock oom_lock;
	uint64_t oom_begun_ns, oom_next_ns;	/* CLOCK_MONOTONIC; lock: oom_lock */
	_Atomic(uint64_t) oom_failure;	/* number of the newest failure */
	_Atomic(uint64_t) oom_shown;	/* number of the newest failure whose snapshot was tried */
	struct gm_lock oom_copying;	/* lock of the next four */
	struct gm_oom_copy {
		struct gm_copy copy;	/* @base NULL: none */
		uint64_t time_us;	/* wall clock of the failure */
	} oom_copies[2];		/* of the first and of the newest failure, not yet shown */
	bool oom_first_kept;
	int64_t oom_budget_ns;		/* processor time that copies may take, */
	uint64_t oom_budget_at_ns;	/* as of this CLOCK_MONOTONIC time; 0: no copy was made yet */
	char oom_last[GM_OOM_KEPT / 2][GM_PATH_BYTES];	/* paths of the last snapshots; lock: writing */
	struct gm_oom_observer observers[GM_OOM_OBSERVERS];	/* lock: oom_lock */

	struct gm_lock ranges_lock;	/* for ranges that begin before the recording (api/ranges.c) */
} __attribute__((aligned(GM_STATE_PAGE)));	/* so that no other data share its pages */

extern struct gm_state gm_state GM_HIDDEN;

/* Frame address of the hook (hooks/hook.h) in which this thread is; 0: in none. */
extern __thread uintptr_t gm_inside GM_HIDDEN;

static inline uint32_t gm_state_word(void)
{
	return gm_get_acquire(&gm_state.word);
}

/* Does the library run in this very process? False in a forked child, and in a vfork child, which shares
 * the word but is another process. Async-signal-safe. */
bool gm_state_is_mine(void);

/* Start the library unless this process has done so. Returns true when hooks record. Any thread; no lock
 * held. */
bool gm_state_start(void);

/* Start all parts, in order (init.c). Called by gm_state_start, once in a process. Returns 0; -errno when
 * nothing will be recorded, and a line has said why. */
int gm_init(void);

/* The last step of the start: begin the ranges that the program began before it (api/ranges.c). */
void gm_ranges_begin(void);

/* ---- option follow: whether child processes get the preload, too (follow.c) ---- */

/* With follow:no, mark the option with this process's number. Called when the library is loaded. */
void gm_follow_loaded(void);

/* Does follow:no carry the number of another process? If so, nothing is recorded in this one. */
bool gm_follow_ends_here(void);

/* Take this library out of LD_PRELOAD in the environment that children inherit. */
void gm_follow_stop(void);

/* Turn off cancellation around calls that may be cancellation points of the C library, on a thread of the
 * program. A thread that is cancelled there would hold our locks for ever. */
static inline int gm_cancel_off(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void gm_cancel_back(int before)
{
	pthread_setcancelstate(before, &before);
}

#endif
