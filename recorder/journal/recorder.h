/*
 * recorder.h - what the hooks call to have something recorded: the interface of these files.
 *
 *   journal/start.c    gm_recorder_*: start, end, the helper thread's tick, all locks
 *   journal/journal.c  gm_recorder_lose: the file was cut short
 *   journal/clock.c    gm_stamp*
 *   record/threads.c   gm_op_*: operations in flight
 *   record/tables.c    gm_record_alloc, _freeing, _free, _block
 *   record/change.c    gm_record_change, _context_end
 *   record/failures.c  gm_record_failure, _note, what the driver says of its devices
 *   record/stats.c     gm_record_stats, _reset_stats
 *   record/events.c    gm_record_history
 *   stacks/intern.c    gm_intern_*, gm_frame_name, gm_publish_module, gm_module_*
 *
 * Thread context: any thread of the process, after gm_recorder_start. Signal context: none but
 * where a function says so. A forked child has none of it (MADV_DONTFORK), and calls nothing here.
 * Nothing here waits without end, calls malloc, opens a file (but gm_recorder_start), or fails
 * the caller: what cannot be recorded is counted.
 *
 * One operation of the host, as a hook does it:
 *
 *	module = gm_modules_caller(...);                      no lock held
 *	op = gm_op_begin(GM_ACTION_ALLOC, kind, domain, 0, size);
 *	r = real(...);                                        the driver
 *	if (ok) gm_record_alloc(op, &alloc, &block);          table and event, one transaction
 *	gm_op_end(op);
 *
 *	tsc = gm_stamp_before(); block = gm_map_take(...);    before the driver may reuse the address
 *	op = gm_op_begin_at(GM_ACTION_FREE_REQUESTED, ..., tsc); gm_record_freeing(block);
 *	r = real(...);
 *	ok ? gm_record_free(op, block, tsc) : gm_record_not_freed(block) and put it back in the map
 *	gm_op_end(op);
 */
#ifndef GM_RECORDER_RECORDER_H
#define GM_RECORDER_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/journal/format.h"

/* The configuration; strings are copied. */
struct gm_recorder_config {
	const char *place;		/* option journal: a directory or file, "" automatic */
	uint64_t history_events;	/* 0: no history */
	uint64_t history_min_size;	/* blocks smaller than this leave no events */
	uint32_t history_left_out;	/* bit (1 << enum gm_action): such events are not written */
	const char *output;		/* absolute output template */
	const char *version;
	int32_t rank;
	const struct gm_recorder_setting {	/* effective options, in their order */
		const char *name, *value, *source;
	} *settings;
	unsigned int settings_count;
};

/* Where the journal lies, and what the caller should print. */
struct gm_recorder_report {
	char path[1024];		/* "" for a memfd */
	uint64_t budget_bytes;		/* memory it may take */
	/* "" when everything is as it was asked for. Otherwise what is not: the option's place
	 * could not be had, there was no place but memory, the history is shorter; where the start
	 * failed, the reason for each place. */
	char note[256];
};

/* Create and map the journal and begin to record. Returns 0, or -errno (and @ret_report->note
 * says what failed): then every other function here is a no-op. Not reentrant; first CUDA call. */
int gm_recorder_start(const struct gm_recorder_config *config,
		      struct gm_recorder_report *ret_report);

/* Remove the journal's file (a clean exit, the snapshot written); recording goes on into memory. */
void gm_recorder_unlink(void);

/* Must the journal's file be removed, because the user's other programs can open it, although they
 * may no longer look into the process (prctl PR_SET_DUMPABLE)? Three system calls at most. Called
 * by the helper thread. */
bool gm_recorder_exposed(void);

/* The header of the journal of this process, NULL when there is none. Async-signal-safe. */
struct gm_header *gm_recorder_header(void);

/* By the helper thread: hold the header's robust mutex until the thread or the process ends. */
void gm_recorder_hold_alive(void);

/* By the helper thread now and then: refresh the clock pair, close chunks of dead threads. */
void gm_recorder_tick(void);

/* Where a control group has a limit: read how much it still allows, and let the journal grow and be
 * copied within that. Part of the tick, and called before a snapshot. Opens files. One thread at a
 * time. */
void gm_recorder_review(void);

/* By the helper thread, whenever it wakes: get memory for coming events, if threads write many, and
 * call gm_recorder_review, if the journal has grown much. Threads wake it for this by
 * gm_helper_wake. */
void gm_recorder_keep_up(void);

/* The clock: ordered stamps (TSC ticks where the kernel's clock source is the TSC).
 * Async-signal-safe. gm_stamp reads the clock after everything before it in the program;
 * gm_stamp_before is a third cheaper and only reads it before everything that follows: for frees,
 * which are stamped before the driver's call. */
uint64_t gm_stamp(void);
uint64_t gm_stamp_before(void);

struct gm_alloc {
	uint64_t address;
	uint64_t size;			/* bytes it takes */
	uint64_t requested;		/* bytes asked for */
	uint64_t stream;
	uint64_t handle;		/* pool, VMM handle, graph; 0 none */
	uint64_t tsc;			/* stamp taken after the driver returned; 0: now */
	uint32_t context;		/* id of the context it dies with; 0: outlives contexts */
	uint32_t stack;
	uint16_t module;
	uint8_t domain, kind;
	uint8_t flags;			/* enum gm_segment_flags */
	bool stack_of_block_only;	/* the events get none (context=state) */
	bool whole;			/* of the cache: a segment of its own (allocator/heap.h) */
};

/* An operation begins: shown as "in flight" if the process dies before gm_op_end. Returns its
 * number, 0 when nothing is recorded. @address or @size may be 0 when not known. */
uint64_t gm_op_begin(enum gm_action action, enum gm_kind kind, uint8_t domain,
		     uint64_t address, uint64_t size);
/* The same with a stamp that the caller has taken already. */
uint64_t gm_op_begin_at(enum gm_action action, enum gm_kind kind, uint8_t domain,
			uint64_t address, uint64_t size, uint64_t tsc);
void gm_op_end(uint64_t op);

/* A segment with one block, its statistics, usage rows, and the events segment_alloc and alloc, in
 * one transaction. A segment of size 0 (an import whose size is known only when it is mapped) has
 * no events, at its end neither. Returns 0; -ENOMEM when the tables are full, -ETIMEDOUT when a
 * lock could not be had (both counted); -ENODEV when nothing is recorded; -EINVAL. *ret_block is 0
 * then. */
int gm_record_alloc(uint64_t op, const struct gm_alloc *alloc, uint32_t *ret_block);

/* Mark a block as being freed, without a lock; undone by gm_record_not_freed. */
void gm_record_freeing(uint32_t block);
void gm_record_not_freed(uint32_t block);

/* The block and its segment go: events free_requested, free_completed and segment_free, stamped
 * @tsc (taken before the driver's free; 0: now); @stream as the program passed it to the free.
 * Returns 0, also when a lock could not be had: then the record ends later (record/tables.h). -ENOENT: there is no
 * such block (its context ended meanwhile); -ENODEV. */
int gm_record_free(uint64_t op, uint32_t block, uint64_t tsc, uint64_t stream);

/* Free what was queued in @domain because a lock could not be had. Waits @limit_ns for its lock. No lock is held. */
void gm_record_late_frees(uint8_t domain, uint64_t limit_ns);

/* The same as gm_record_free with a stack for the events; GM_STACK_OF_BLOCK: the allocation's. */
#define GM_STACK_OF_BLOCK UINT32_MAX
int gm_record_free_stack(uint64_t op, uint32_t block, uint64_t tsc, uint64_t stream,
			 uint32_t stack);

/* The one block of a segment gets another size (what graphs hold) or another address (a VMM handle
 * is mapped or unmapped). The one that does not change is passed as it was. Size 0 is allowed.
 * @flags replaces GM_SEGMENT_UNMAPPED and GM_SEGMENT_EXPANDABLE. In the trace the block is freed as
 * it was (free_requested, free_completed, segment_unmap) and allocated as it is (segment_map,
 * alloc), so that traces add up; of these two, the one of size 0 has no events. @stack: of the code
 * that changes it, as in gm_record_free_stack; GM_NONE: no event has a stack. A block that had size
 * 0 keeps @stack as its own. Returns as gm_record_free. */
int gm_record_change(uint64_t op, uint32_t block, uint64_t address, uint64_t size, uint8_t flags,
		     uint32_t stack);

/* End the records of everything that dies with @context; @freed is called for each block, under no
 * lock. @stack: of the events, as in gm_record_free_stack. Returns how many blocks these were. */
unsigned int gm_record_context_end(uint64_t op, uint32_t context, uint64_t tsc, uint32_t stack,
				   void (*freed)(void *arg, uint32_t block,
						const struct gm_block *copy), void *arg);

/* A copy of a block's record; returns false when the id holds nothing. */
bool gm_record_block(uint32_t block, struct gm_block *ret_copy);

/* A device as the driver describes it, once. */
void gm_record_device(uint8_t domain, int ordinal, const char *name, const uint8_t uuid[16],
		      uint64_t total_bytes);

/* Bytes of a device that are recorded now: what is reserved there, cached memory included, and what
 * was imported. -ENODEV: nothing is recorded; -ETIMEDOUT: the domain's lock could not be had. */
int gm_record_held_bytes(uint8_t domain, uint64_t *ret_bytes);

/* A device's free bytes, as the driver reported them while @held_bytes were recorded. */
void gm_record_free_bytes(uint8_t domain, uint64_t free_bytes, uint64_t total_bytes,
			  uint64_t held_bytes);
void gm_record_driver_version(int version);

/* A call did not get the memory that it asked for: an oom event and a struct gm_failure. Fills in
 * @failure's number, tsc, tid and live_bytes. Returns the number; 0 when nothing is recorded. */
uint64_t gm_record_failure(struct gm_failure *failure);

/* The statistics of a domain, all of one moment. Returns 0, -ENODEV when nothing is recorded,
 * -ETIMEDOUT, -EINVAL. */
struct gm_stats;
int gm_record_stats(uint8_t domain, struct gm_stats *ret_stats);

/* Has the program used the device that is, or that a pool is of, @domain? 0 and its ordinal; -ENODEV:
 * no; or as gm_record_stats. */
int gm_record_used(uint8_t domain, uint32_t *ret_device);

/* GM_RESET_PEAK: set the peaks to the current values (of PyTorch's statistics, not of the rows by
 * module). GM_RESET_ACCUMULATED: set what was allocated and freed in all, and the counters of
 * calls, to 0. Returns as gm_record_stats. */
enum gm_reset { GM_RESET_PEAK, GM_RESET_ACCUMULATED };
int gm_record_reset_stats(uint8_t domain, enum gm_reset which);

/* What is recorded of operations that begin from now on. Where events are switched on or off, the
 * events so far are dropped, because they would not add up with later ones or with the tables.
 * Returns 0; -ENODEV when nothing is recorded, -EINVAL, -ETIMEDOUT (nothing changed). */
struct gm_history {
	uint64_t newest;		/* events that are kept and shown; 0: what there is room for */
	uint32_t enabled;		/* enum gm_history_enabled; the start's is GM_HISTORY_ALL */
	uint32_t context, stacks;	/* for the snapshot: words of the options' lists, from 0 */
};
int gm_record_history(const struct gm_history *history);

/* A plain event (snapshot, annotate: see annotations.h). */
void gm_record_note(enum gm_action action, uint8_t domain, uint64_t size, uint32_t string);

/* Append-only areas; 0 when full (counted). Interned: equal content gives the same id. A string
 * is cut at GM_STRING_MAX bytes, a stack at GM_STACK_MAX frames. */
#define GM_STRING_MAX 16384u
#define GM_STACK_MAX 1024u
uint32_t gm_intern_string(const char *text, uint32_t length);
/* By (module, offset, flags); @frame's names may be filled in later by gm_frame_name. A Python
 * frame also by its names and line, which must be there. */
uint32_t gm_intern_frame(const struct gm_frame *frame);
void gm_frame_name(uint32_t frame, uint32_t name, uint32_t filename, uint32_t line);
uint32_t gm_intern_stack(const uint32_t *frames, uint32_t count, bool truncated);
uint16_t gm_publish_module(uint64_t base, uint64_t start, uint64_t end, const char *path,
			   const uint8_t *build_id, unsigned int build_id_bytes);
void gm_module_unloaded(uint16_t module);
/* The same file at the same place: the life that was thought to be over goes on. */
void gm_module_loaded_again(uint16_t module);

/* Take every domain lock, in order, each within @limit_ns. One that cannot be had is left out (a
 * thread that has crashed may hold it for ever), and those after it are waited for a short time
 * only. Then keep every thread out of its thread caches (thread_cache.c) in the same way. @ret_held
 * says what is held. Returns true when everything is. For the copy of a live snapshot: hold them
 * only while the tables are copied. */
struct gm_held;
bool gm_recorder_lock_all(uint64_t limit_ns, struct gm_held *ret_held);
void gm_recorder_unlock_all(const struct gm_held *held);

/* Has a segment, a block or a block of a pool found no room, so that the record of what is live is short of
 * some? For the helper thread, which is woken at the first one. */
bool gm_recorder_is_short(void);

/* Can the append-only areas grow: can their locks be had within @limit_ns? For the helper thread,
 * when a thread has crashed and may hold them for ever. Holds none when it returns. */
bool gm_recorder_can_intern(uint64_t limit_ns);

/* A SIGBUS at @address: was it an access to the journal, whose file somebody has truncated? Then
 * empty memory replaces the mapping, so that the access can be tried again, and nothing is recorded
 * any more. The tables are lost, so that the cache, which works on them, has to stop. Returns false
 * where it was not the journal, or there is no memory. Async-signal-safe; any thread. */
bool gm_recorder_lose(const void *address);
bool gm_recorder_is_lost(void);

#endif
