/*
 * fakecuda.h - the control interface of the CUDA driver without a GPU.
 *
 * A test finds these functions by dlsym in libcuda.so.1 (or links with it); a program under test
 * knows nothing of them. None of them is counted, fails by injection or needs cuInit. All may be
 * called from any thread, but not from a host function or a kernel callback unless it says so.
 *
 * Environment, read once at the first call into the library:
 *   FAKECUDA_DEVICES         number of devices, default 2
 *   FAKECUDA_CAPACITY        bytes of each device, default 8GiB; suffixes K M G (KiB MiB GiB too)
 *   FAKECUDA_OTHER_BYTES     bytes of each device that "another process" holds, default 0
 *   FAKECUDA_SHARED          a file: processes that name the same one share the devices' memory
 *   FAKECUDA_DRIVER_VERSION  what cuDriverGetVersion says, default 13000; entries newer than this
 *                            are neither found by cuGetProcAddress nor usable (they return 801)
 *   FAKECUDA_KERNEL_NS       duration of a kernel, default 10000 virtual nanoseconds
 *   FAKECUDA_STEP_NS         how far each query moves the clock, default 10000
 *   FAKECUDA_FAIL            "entry:skip:times:error[,...]", see fakecuda_fail
 *   FAKECUDA_LOG             a file (or "-" for stderr): unknown names asked, reports, failures
 *   FAKECUDA_RACE            words with commas: "off" (no race detector), "file=PATH" (append each
 *                            report to PATH as it is made; "-" is stderr), "exit" (at exit, if there
 *                            were reports: print them to stderr and exit with code 66), "threads"
 *                            (see fakecuda_race_threads)
 *   FAKECUDA_HANG            "exit": a hang ends the process with code 67, "report": it is reported
 *                            and the wait goes on, "off": nothing is done about it; else the wait
 *                            that hangs returns 702
 *   FAKECUDA_HANG_MS         see fakecuda_set_hang_ms, default 300
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fakecuda_kind {
	FAKECUDA_DEVICE,	/* requested bytes of cuMemAlloc, pitch * height of
				 * cuMemAllocPitch */
	FAKECUDA_MANAGED,	/* requested bytes of cuMemAllocManaged, by the context's device */
	FAKECUDA_ARRAY,		/* the elements' bytes of arrays and mipmapped arrays, all levels:
				 * what their descriptors say. Only with deferred mapping, and so
				 * without memory, has an array memory requirements */
	FAKECUDA_HOST,		/* requested bytes of cuMemHostAlloc and cuMemAllocHost, of pools
				 * and handles of host memory, by the device of the context;
				 * registered host memory is not counted */
	FAKECUDA_VMM,		/* bytes of cuMemCreate handles alive by reference or by mapping */
	FAKECUDA_POOL,		/* used bytes of all memory pools (requested by cuMemAllocAsync) */
	FAKECUDA_IPC,		/* bytes opened from other processes by cuIpcOpenMemHandle */
	FAKECUDA_GRAPH,		/* bytes reserved by graphs' memory nodes */
	FAKECUDA_EXTERNAL,	/* bytes of imported external memory */
	FAKECUDA_KINDS
};

/* fakecuda_now - the virtual time in nanoseconds. It starts at 0 and never moves by itself. */
uint64_t fakecuda_now(void);

/* fakecuda_advance - let @ns virtual nanoseconds pass: everything that ends by then ends. */
void fakecuda_advance(uint64_t ns);

/* fakecuda_set_kernel_ns - duration of kernels whose name contains @name (NULL: of all that no
 * name matches). Kernels whose name contains "spin" last 5 virtual seconds unless set.
 *
 * What a kernel does to memory when it ends is built in for kernels of exactly that name (in C++,
 * whatever their template arguments) and these parameters: fill (p, value, n), add (p, value, n),
 * copy (dst, src, n) on 32-bit words, n 4 or 8 bytes wide; "fault" poisons its context with
 * error 700. */
void fakecuda_set_kernel_ns(const char *name, uint64_t ns);

/* fakecuda_set_step_ns - how far every query moves the clock; 0: not at all. */
void fakecuda_set_step_ns(uint64_t ns);

/* fakecuda_ptr - where the contents of device address @ptr lie in this process, for @n bytes in a
 * row; NULL if not that many are live there. Any thread. */
void *fakecuda_ptr(uint64_t ptr, size_t n);

/* fakecuda_read/_write - copy contents past the GPU's work: what the device memory holds now.
 * Return 0, or -1 if the range is not live. */
int fakecuda_read(void *dst, uint64_t src, size_t n);
int fakecuda_write(uint64_t dst, const void *src, size_t n);

/* fakecuda_fail - the next calls of @entry (an exported name "cuMemAlloc_v2", or a base name
 * "cuMemAlloc" for all its variants) return @error: after @skip that pass, @times of them (-1: for
 * ever). Rules add up; the first that matches counts. NULL removes all. */
void fakecuda_fail(const char *entry, long skip, long times, int error);

/* fakecuda_calls - how often @entry (exported or base name; NULL: all) was called since the start
 * or the last fakecuda_reset_calls. Refused calls count too. */
uint64_t fakecuda_calls(const char *entry);
void fakecuda_reset_calls(void);

/*
 * fakecuda_watch - from now on @fn is called twice for every call of the calling thread: when it begins,
 * with @result -1, before it does anything; and when it is over, with what it returns. @relaxed: the
 * thread's capture mode is RELAXED. Calls that @fn itself makes are left out. A NULL @fn ends it.
 */
typedef void fakecuda_watch_fn(void *arg, const char *entry, int relaxed, int result);
void fakecuda_watch(fakecuda_watch_fn *fn, void *arg);

/* fakecuda_entry - the n-th exported name, the CUDA version that introduced it, and whether it does
 * anything but return 801; NULL past the end. */
const char *fakecuda_entry(size_t n, int *ret_since, int *ret_implemented);

/* fakecuda_pending - operations submitted and not complete on @device (-1: all). */
size_t fakecuda_pending(int device);

/* fakecuda_set_other_bytes - what "another process" holds of @device. */
void fakecuda_set_other_bytes(int device, size_t bytes);

/* fakecuda_live_bytes - the exact truth a recorder is compared with; see enum fakecuda_kind.
 * @device -1: the sum over the devices. */
uint64_t fakecuda_live_bytes(int device, enum fakecuda_kind kind);

/* fakecuda_live_count - how many allocations of @kind are alive. */
uint64_t fakecuda_live_count(int device, enum fakecuda_kind kind);

/* fakecuda_charged_bytes - what cuMemGetInfo counts as used by this process: 2 MiB granules, pool
 * and graph reserves included, the other process's bytes not. */
uint64_t fakecuda_charged_bytes(int device);

/* fakecuda_reset - back to the state before cuInit: everything pending is dropped, everything
 * allocated is gone, handles are invalid, rules, counters and reports are forgotten. No other
 * thread may be inside a call. */
void fakecuda_reset(void);

/* fakecuda_dump - write the state (devices, allocations, streams, pending operations, waiting
 * threads, reports) as text to file descriptor @fd. */
void fakecuda_dump(int fd);

/* fakecuda_check - verify the driver's own structures; returns the number of violations. */
int fakecuda_check(void);

/* ---- race.c: the race detector (on by default; see race.c for what it reports) ---- */

/* fakecuda_races - reports so far. fakecuda_race_text: the n-th, NULL past the end (or past the
 * thousandth); valid until fakecuda_reset or fakecuda_race_clear. */
size_t fakecuda_races(void);
const char *fakecuda_race_text(size_t n);
void fakecuda_race_clear(void);
void fakecuda_race_enable(int on);

/* fakecuda_race_threads - what one host thread has seen complete is taken as known to the others
 * (0, the default: they have mutexes the driver cannot see), or not (1): then only what the driver
 * can see orders them, and fakecuda_note_release/_acquire. Before the first work. */
void fakecuda_race_threads(int separate);

/* fakecuda_note_alloc/_free - a sub-allocator above the driver hands out, or takes back,
 * [@ptr, @ptr + @size): uses of pointers are bounded by such blocks, and handing a block out again
 * before its last use is ordered before the next one is a race. A block handed out over an older
 * one ends that. */
void fakecuda_note_alloc(uint64_t ptr, size_t size);
void fakecuda_note_free(uint64_t ptr);

/* fakecuda_note_access - the calling host thread reads (or writes) memory itself, now. Also inside
 * a host function: what comes before that in its stream is then known complete. */
void fakecuda_note_access(uint64_t ptr, size_t size, int write);

/* fakecuda_note_release/_acquire - what the caller (a thread, or a host function) knows complete
 * is handed on under @key; who acquires @key later knows it too. */
void fakecuda_note_release(const void *key);
void fakecuda_note_acquire(const void *key);

/* ---- waiting.c: work that waits for a word in memory ---- */

enum fakecuda_wait {
	FAKECUDA_WAIT_EQ,	/* until *ptr == value */
	FAKECUDA_WAIT_NE,	/* until *ptr != value */
	FAKECUDA_WAIT_GEQ	/* until *ptr - value >= 0, as a signed difference */
};

/* fakecuda_wait_kernel - kernels whose name contains @name run until the word that their first
 * parameter points to, in device or host memory, meets their second one: 64 bits where that
 * parameter has 8 bytes, else 32. Built in: "wait_flag", FAKECUDA_WAIT_EQ. */
void fakecuda_wait_kernel(const char *name, enum fakecuda_wait until);

/* ---- hang.c: the hang oracle ---- */

/* fakecuda_hangs - times that a thread waited for what nothing could bring about. */
size_t fakecuda_hangs(void);
const char *fakecuda_hang_text(size_t n);

/* fakecuda_set_hang_ms - a wait that the virtual clock cannot end is reported when for @ms real
 * milliseconds no thread has called the driver, no other thread of the process runs and no host
 * function is under way (these two extend it, thirtyfold at most); the wait then returns @error
 * (0: it goes on waiting). */
void fakecuda_set_hang_ms(unsigned int ms, int error);

#ifdef __cplusplus
}
#endif
#endif
