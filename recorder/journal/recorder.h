/*
 * recorder.h - the functions that hooks call to record something. They are in these files:
 *
 *   journal/start.c    gm_recorder_*: start, end, the helper thread's tick, all locks
 *   journal/journal.c  gm_recorder_lose: the file was cut short
 *   journal/clock.c    gm_stamp*
 *   record/threads.c   gm_op_*: operations in flight
 *   record/tables.c    gm_record_alloc, _freeing, _free, _block
 *   record/change.c    gm_record_change, _context_end
 *   record/failures.c  gm_record_failure, _note, the driver's reports about devices
 *   record/stats.c     gm_record_stats, _reset_stats
 *   record/events.c    gm_record_history
 *   stacks/intern.c    gm_intern_*, gm_frame_name, gm_publish_module, gm_module_*
 *
 * Thread context: any thread of the process, after gm_recorder_start. Signal context: none, unless a
 * function says otherwise. A forked child does not have the mapping (MADV_DONTFORK) and calls nothing
 * here. No function waits without a limit, calls malloc, or (but for gm_recorder_start,
 * gm_recorder_unlink and gm_recorder_review) opens a file. None fails the caller: events and records
 * that cannot be written are counted.
 *
 * One operation of the host, as a hook does it:
 *
 *	module = gm_modules_caller(...);                      no lock held
 *	op = gm_op_begin(GM_ACTION_ALLOC, kind, domain, 0, size);
 *	r = real(...);                                        the driver
 *	if (ok) gm_record_alloc(op, &alloc, &block);          table and event, one transaction
 *	gm_op_end(op);
 *
 *	tsc = gm_stamp_before(); block = gm_map_take(...);    before the driver can reuse the address
 *	op = gm_op_begin_at(GM_ACTION_FREE_REQUESTED, ..., tsc); gm_record_freeing(block);
 *	r = real(...);
 *	ok ? gm_record_free(op, block, tsc) : gm_record_not_freed(block) and put it back in the map
 *	gm_op_end(op);
 */
#ifndef GM_RECORDER_RECORDER_H
#define GM_RECORDER_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder/journal/atomic.h"
#include "recorder/journal/format.h"

/* The configuration. Its strings are copied. */
struct gm_recorder_config {
	const char *place;		/* option journal: a directory or file, "" automatic */
	uint64_t history_events;	/* 0: no history */
	uint64_t history_min_size;	/* blocks smaller than this leave no events */
	uint32_t history_left_out;	/* bits (1 << enum gm_action) of events that are not written */
	const char *output;		/* absolute output template */
	const char *version;
	int32_t rank;
	const struct gm_recorder_setting {	/* effective options, in their order */
		const char *name, *value, *source;
	} *settings;
	unsigned int settings_count;
};

/* The place of the journal, and a note that the caller should print. */
struct gm_recorder_report {
	char path[1024];		/* "" for a memfd */
	uint64_t budget_bytes;		/* memory that the journal may take */
	/* "" when everything is as the options ask. Otherwise what differs: the option's place cannot
	 * be used, the journal is in memory only, the history is shorter. After a failed start: why
	 * each place cannot be used. */
	char note[256];
};

/* Create and map the journal and begin to record. Called once, at the first CUDA call; not reentrant.
 * Returns 0; -errno, @ret_report->note says what failed, and every other function here does nothing. */
int gm_recorder_start(const struct gm_recorder_config *config,
		      struct gm_recorder_report *ret_report);

/* Remove the journal's file, at a clean exit after the snapshot is written. Recording goes on into the
 * mapping. */
void gm_recorder_unlink(void);

/* Must the journal's file be removed, because the process is no longer dumpable (prctl PR_SET_DUMPABLE)
 * and the user's other programs could still read the file? At most three system calls. Called by the
 * helper thread. */
bool gm_recorder_exposed(void);

/* Return the header of this process's journal; NULL: there is none. Async-signal-safe. */
struct gm_header *gm_recorder_header(void);

/* Hold the header's robust mutex until the thread or the process ends. Called by the helper thread. */
void gm_recorder_hold_alive(void);

/* Refresh the clock pair and close the chunks of dead threads. Called by the helper thread now and
 * then. */
void gm_recorder_tick(void);

/* If a control group limits memory, read how much it still allows, and keep the journal's growth and
 * its copies within that. Part of the tick; also called before a snapshot. Opens files. One thread at
 * a time. */
void gm_recorder_review(void);

/* Get memory for coming events if threads write many, and call gm_recorder_review if the journal has
 * grown much. Called by the helper thread whenever it wakes; other threads wake it for this by
 * gm_helper_wake. */
void gm_recorder_keep_up(void);

/* Return an ordered stamp: TSC ticks where the kernel's clock source is the TSC, ns elsewhere.
 * gm_stamp reads the clock after everything that precedes it in the program. gm_stamp_before is a third
 * cheaper and only reads the clock before everything that follows; it is for frees, which are stamped
 * before the driver's call. Async-signal-safe. */
extern _Atomic(bool) gm_clock_is_tsc __attribute__((visibility("hidden")));
uint64_t gm_clock_monotonic(void);

#if defined(__x86_64__)
/*
 * The fence makes rdtsc wait for all earlier loads. An allocation that reuses an address has loaded a
 * store of the freeing thread (the driver's lock); without the fence the counter could be read before
 * that load, and the allocation could be stamped before the free. The freeing thread needs no fence:
 * its store becomes visible only after all earlier instructions, rdtsc included, have retired.
 */
static inline uint64_t gm_stamp(void)
{
	if (gm_unlikely(!gm_get(&gm_clock_is_tsc)))
		return gm_clock_monotonic();
	__builtin_ia32_lfence();
	return __builtin_ia32_rdtsc();
}

static inline uint64_t gm_stamp_before(void)
{
	return gm_likely(gm_get(&gm_clock_is_tsc)) ? __builtin_ia32_rdtsc() : gm_clock_monotonic();
}
#else
#define gm_stamp gm_clock_monotonic
#define gm_stamp_before gm_clock_monotonic
#endif

struct gm_alloc {
	uint64_t address;
	uint64_t size;			/* bytes that the block takes */
	uint64_t requested;		/* bytes that the program asked for */
	uint64_t stream;
	uint64_t handle;		/* pool, VMM handle, graph; 0: none */
	uint64_t tsc;			/* stamp taken after the driver returned; 0: now */
	uint32_t context;		/* id of the context that ends it; 0: outlives contexts */
	uint32_t stack;
	uint16_t module;
	uint8_t domain, kind;
	uint8_t flags;			/* enum gm_segment_flags */
	bool stack_of_block_only;	/* the events get no stack (context=state) */
	bool whole;			/* a block of the cache with a segment of its own (heap.h) */
};

/* Begin an operation. Readers show it as "in flight" if the process dies before gm_op_end. @address and
 * @size are 0 when not known. Returns the number of the operation; 0 when nothing is recorded. */
uint64_t gm_op_begin(enum gm_action action, enum gm_kind kind, uint8_t domain,
		     uint64_t address, uint64_t size);
/* As gm_op_begin, with a stamp that the caller has already taken. */
uint64_t gm_op_begin_at(enum gm_action action, enum gm_kind kind, uint8_t domain,
			uint64_t address, uint64_t size, uint64_t tsc);
void gm_op_end(uint64_t op);

/* Record a segment with one block in one transaction: both records, the statistics, the usage rows and
 * the events segment_alloc and alloc. A segment of size 0 (an import whose size is known only when it
 * is mapped) has no events, neither now nor at its end. Returns 0; -ENOMEM when the tables are full,
 * -ETIMEDOUT when a lock was not free in time (both counted); -ENODEV when nothing is recorded; -EINVAL.
 * *ret_block is 0 after an error. */
int gm_record_alloc(uint64_t op, const struct gm_alloc *alloc, uint32_t *ret_block);

/* Mark a block as being freed. Takes no lock. gm_record_not_freed removes the mark. */
void gm_record_freeing(uint32_t block);
void gm_record_not_freed(uint32_t block);

/* End the records of a block and its segment, and write the events free_requested, free_completed and
 * segment_free. @tsc: their stamp, taken before the driver's free; 0: now. @stream: as the program passed
 * it to the free. Returns 0, also when a lock was not free in time: the records then end later
 * (record/tables.h). Returns -ENOENT when there is no such block (its context ended meanwhile); -ENODEV. */
int gm_record_free(uint64_t op, uint32_t block, uint64_t tsc, uint64_t stream);

/* Do the frees that were queued in @domain because a lock was not free in time. Waits up to @limit_ns for the
 * domain's lock. The caller holds no lock. */
void gm_record_late_frees(uint8_t domain, uint64_t limit_ns);

/* As gm_record_free, with a stack for the events; GM_STACK_OF_BLOCK: the stack of the allocation. */
#define GM_STACK_OF_BLOCK UINT32_MAX
int gm_record_free_stack(uint64_t op, uint32_t block, uint64_t tsc, uint64_t stream,
			 uint32_t stack);

/* Change the size (memory that graphs hold) or the address (a VMM handle is mapped or unmapped) of a
 * segment with one block. Pass the old value for the one that does not change. @size may be 0. @flags
 * replaces the flags GM_SEGMENT_UNMAPPED and GM_SEGMENT_EXPANDABLE.
 * So that traces add up, the events free the old block (free_requested, free_completed, segment_unmap)
 * and allocate the new one (segment_map, alloc). An old or new block of size 0 has no events.
 * @stack: the stack of the changing code, as in gm_record_free_stack; GM_NONE: the events have no stack.
 * A block whose size was 0 keeps @stack as its own. Returns as gm_record_free. */
int gm_record_change(uint64_t op, uint32_t block, uint64_t address, uint64_t size, uint8_t flags,
		     uint32_t stack);

/* End the records of all memory that ends with @context. Calls @freed for each block, with no lock held.
 * @stack: as in gm_record_free_stack. Returns the number of blocks. */
unsigned int gm_record_context_end(uint64_t op, uint32_t context, uint64_t tsc, uint32_t stack,
				   void (*freed)(void *arg, uint32_t block,
						const struct gm_block *copy), void *arg);

/* Copy the record of a block. Returns false when @block is the id of no block. */
bool gm_record_block(uint32_t block, struct gm_block *ret_copy);

/* Record the driver's description of a device. Called once for each device. */
void gm_record_device(uint8_t domain, int ordinal, const char *name, const uint8_t uuid[16],
		      uint64_t total_bytes);

/* Return how many bytes of a device are recorded now: reserved memory (with the cache) plus imported
 * memory. Returns 0; -ENODEV when nothing is recorded; -ETIMEDOUT when the domain's lock was not free in
 * time. */
int gm_record_held_bytes(uint8_t domain, uint64_t *ret_bytes);

/* Record the free bytes of a device, which the driver reported while @held_bytes were recorded. */
void gm_record_free_bytes(uint8_t domain, uint64_t free_bytes, uint64_t total_bytes,
			  uint64_t held_bytes);
void gm_record_driver_version(int version);

/* Record a failed allocation as an oom event and a struct gm_failure. Fills in the number, tsc (unless the caller has
 * set it), tid and live_bytes of @failure. Returns the number; 0 when nothing is recorded. */
uint64_t gm_record_failure(struct gm_failure *failure);

/* Copy the statistics of a domain, as of one point in time. Returns 0; -ENODEV when nothing is recorded; -ETIMEDOUT;
 * -EINVAL. */
struct gm_stats;
int gm_record_stats(uint8_t domain, struct gm_stats *ret_stats);

/* Find the device of @domain, the domain of a device or a pool. Returns 0 and the ordinal; -ENODEV when the program
 * has not used the device; or an error of gm_record_stats. */
int gm_record_used(uint8_t domain, uint32_t *ret_device);

/* GM_RESET_PEAK: set the peaks in PyTorch's statistics to the current values; peaks by module stay.
 * GM_RESET_ACCUMULATED: set the totals of allocated and freed memory, and the counters of calls, to 0.
 * Returns as gm_record_stats. */
enum gm_reset { GM_RESET_PEAK, GM_RESET_ACCUMULATED };
int gm_record_reset_stats(uint8_t domain, enum gm_reset which);

/* Choose what is recorded of operations that begin from now on. Switching events on or off drops the
 * events so far, because they would not add up with later events or with the tables. Returns 0; -ENODEV
 * when nothing is recorded; -EINVAL; -ETIMEDOUT. After an error nothing has changed. */
struct gm_history {
	uint64_t newest;		/* how many events are kept and shown; 0: as many as fit */
	uint32_t enabled;		/* enum gm_history_enabled; at the start GM_HISTORY_ALL */
	uint32_t context, stacks;	/* for the snapshot: words of the options' lists, from 0 */
};
int gm_record_history(const struct gm_history *history);

/* Write an event that changes no table: snapshot, or annotate (annotations.h). */
void gm_record_note(enum gm_action action, uint8_t domain, uint64_t size, uint32_t string);

/* Append-only areas. Equal content gets the same id (interning). Return 0 when the area is full
 * (counted). Strings are cut at GM_STRING_MAX bytes, stacks at GM_STACK_MAX frames. */
#define GM_STRING_MAX 16384u
#define GM_STACK_MAX 1024u
uint32_t gm_intern_string(const char *text, uint32_t length);
/* A native frame is looked up by module, offset and flags; gm_frame_name may fill in its names later. A
 * Python frame is looked up by its names and line as well, so they must be set. */
uint32_t gm_intern_frame(const struct gm_frame *frame);
void gm_frame_name(uint32_t frame, uint32_t name, uint32_t filename, uint32_t line);
uint32_t gm_intern_stack(const uint32_t *frames, uint32_t count, bool truncated);
uint16_t gm_publish_module(uint64_t base, uint64_t start, uint64_t end, const char *path,
			   const uint8_t *build_id, unsigned int build_id_bytes);
void gm_module_unloaded(uint16_t module);
/* Take gm_module_unloaded back: the same file is loaded at the same place again. */
void gm_module_loaded_again(uint16_t module);

/* Take every domain lock, in order, each within @limit_ns. Then keep every thread out of its thread
 * caches (thread_cache.c) in the same way. A lock that is not free in time is left out, because a
 * crashed thread may hold it for ever; after the first such lock the waits are short. @ret_held says
 * which locks are held. Returns true when all are. For the copy of a live process's tables: hold the
 * locks only while copying. */
struct gm_held;
bool gm_recorder_lock_all(uint64_t limit_ns, struct gm_held *ret_held);
void gm_recorder_unlock_all(const struct gm_held *held);

/* Is the record of live memory incomplete, because a segment, a block or a line of a pool found no room? Called by the
 * helper thread, which the first such refusal wakes. */
bool gm_recorder_is_short(void);

/* Are the locks of the append-only areas free within @limit_ns each? For the helper thread after a crash,
 * because the crashed thread may hold them for ever. Returns with none of them held. */
bool gm_recorder_can_intern(uint64_t limit_ns);

/* Handle a SIGBUS at @address. If @address lies in the journal, somebody has truncated the file: replace
 * the mapping by empty memory, so that the access can be retried, and record nothing any more. The
 * cache has to stop, because the tables that it works on are lost. Returns false when @address is not
 * in the journal, or when there is no memory. Async-signal-safe; any thread. */
bool gm_recorder_lose(const void *address);
bool gm_recorder_is_lost(void);

#endif
