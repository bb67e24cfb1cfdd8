/*
 * gpumem.h - the C interface of libgpumem: ask the flight recorder of this process.
 *
 * Link nothing: the functions are weak symbols, found when the program runs under
 * LD_PRELOAD=libgpumem.so (or `gpumem run`), and every call here may be made without it:
 *
 *	#include <gpumem.h>
 *
 *	gpumem_annotate("epoch 3");
 *	if (gpumem_snapshot(NULL) == -ENOSYS)
 *		puts("not under gpumem");
 *
 * Without the library a function returns GPUMEM_ABSENT (-ENOSYS; NULL where it returns a pointer)
 * and does nothing. Build with -fPIE or -fPIC, the default of today's compilers: in code built
 * with -fno-pic the linker binds a weak symbol to "absent" for good.
 *
 * Results: 0 or a value, or a negative errno. Common to all: -ENODATA, nothing is recorded in this
 * process (it has made no CUDA call yet, or recording could not start; a line on stderr said
 * why); -EINVAL, no such device.
 *
 * Devices are CUDA ordinals. Sizes are bytes. "Allocated" is what the program holds, "reserved"
 * what was taken from the driver for it; they are the same while allocator is native. Pinned host
 * memory and imported memory are in snapshots, not in these numbers.
 *
 * Thread safety: any thread, at any time, also in an OOM observer. Signal safety: none. Fork: in a
 * child of a process that has used CUDA nothing is recorded: the driver refuses it every call.
 */
#ifndef GPUMEM_H
#define GPUMEM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; gpumem_version() says the library's. The build takes its own from here. */
#define GPUMEM_VERSION_MAJOR 0
#define GPUMEM_VERSION_MINOR 1
#define GPUMEM_VERSION_PATCH 0
#define GPUMEM_VERSION_STRING "0.1.0"

#define GPUMEM_ABSENT (-ENOSYS)

#ifndef GPUMEM_API
#define GPUMEM_API __attribute__((weak))
#endif

/* The version of the library, as "0.1.0"; NULL without it. */
GPUMEM_API const char *gpumem_version(void);

/* Write a snapshot of now, as JSON, to @path (NULL: where option `output` says). A relative path
 * is taken from the current directory; %c %p %h %k %r %t are replaced as in `output`; an existing
 * file is never replaced: -2, -3 ... are put before its suffix.
 * Waits until the file is written: milliseconds for small programs, half a second for a million
 * events. Returns 0; -ENAMETOOLONG; -ETIMEDOUT after two minutes; or what open, write or rename
 * said. */
GPUMEM_API int gpumem_snapshot(const char *path);

/* One statistic, under the name that torch.cuda.memory_stats() has for it. */
struct gpumem_stat {
	char name[56];			/* "allocated_bytes.all.current" */
	int64_t value;
};

/* The statistics of a device, sorted by name: at most @max of them into @stats (NULL with @max 0).
 * Returns how many there are. */
GPUMEM_API int gpumem_memory_stats(int device, struct gpumem_stat *stats, int max);

/* The table of torch.cuda.memory_summary() to @stream. Returns 0, or -EIO when it could not be
 * written. */
GPUMEM_API int gpumem_memory_summary(int device, FILE *stream);

/* Bytes now, and at most since the start or the last reset. 0 for a device that was not used. */
GPUMEM_API int64_t gpumem_memory_allocated(int device);
GPUMEM_API int64_t gpumem_memory_reserved(int device);
GPUMEM_API int64_t gpumem_max_memory_allocated(int device);
GPUMEM_API int64_t gpumem_max_memory_reserved(int device);

/* Set every peak to its current value; set what was allocated and freed in all, and the counters
 * of calls, to 0. As PyTorch's functions of these names. Returns 0. */
GPUMEM_API int gpumem_reset_peak_memory_stats(int device);
GPUMEM_API int gpumem_reset_accumulated_memory_stats(int device);

/* Return memory that is cached and not in use to the driver, on all devices. Returns how many bytes
 * that was: 0 while allocator is native, which caches nothing. */
GPUMEM_API int64_t gpumem_empty_cache(void);

/* Let the cache take at most @fraction (0 to 1) of the memory of @device.
 * Returns 0; -EINVAL for another fraction; -ENOTSUP while allocator is native: every call goes to
 * the driver unchanged, so nothing could be refused. */
GPUMEM_API int gpumem_set_per_process_memory_fraction(double fraction, int device);

/* The fraction in force: the one that was set last, else that of the options
 * (per_process_memory_fraction, or memory_limit divided by the device's memory, whichever is less);
 * 1: all of it. -EINVAL; -ENOTSUP as above; -ENODATA. */
GPUMEM_API double gpumem_get_per_process_memory_fraction(int device);

/* An allocator for torch.cuda.memory.CUDAPluggableAllocator: memory of @device in the order of
 * @stream, from the cache that serves cudaMalloc, so that its pointers have IPC and peer access.
 * malloc returns NULL when there is no memory (or no CUDA context); free takes what malloc gave.
 * Without a cache (allocator native) they are the driver's cuMemAlloc and cuMemFree. Any thread,
 * @device's context current. @stream is a cudaStream_t. Beside a capture malloc succeeds where
 * cudaMalloc would, and free always: what is freed then is handed out again after the capture. */
GPUMEM_API void *gpumem_torch_malloc(ssize_t size, int device, void *stream);
GPUMEM_API void gpumem_torch_free(void *ptr, ssize_t size, int device, void *stream);

/* Choose what is recorded from now on, as torch.cuda.memory._record_memory_history(): of calls that
 * begin after this one has returned. What is allocated and the statistics are recorded in any case.
 * @enabled: "all": events, and the stacks of what is live; "state": those stacks, no events; NULL
 * or "none": neither. As in PyTorch, the events so far are dropped (and counted) when events are
 * switched off or on: a trace with a gap would add up to nothing.
 * @context: what gets a stack: NULL or "none": nothing; "state": what is live; "alloc":
 * allocations, too, whose stack their frees are shown with; "all": every event its own.
 * @stacks: "none" or NULL, "python", "native", or "all": both, merged.
 * @max_entries: the newest events that are kept and shown, at least 1; SIZE_MAX: as many as
 * option `history` made room for.
 * Returns 0; -EINVAL for another word, and nothing is changed. With everything else switched:
 * -ENOSPC when @max_entries is more than there is room for, -ENOTSUP for events when option
 * `history` is 0. -ETIMEDOUT when a lock could not be had, nothing changed. */
GPUMEM_API int gpumem_record_memory_history(const char *enabled, const char *context,
					    const char *stacks, size_t max_entries);

/* Put @text into the history at this moment, of this thread and the device it worked on last. At
 * most 16,384 bytes are kept. Returns 0; -ENOMEM when there is no room for another text, -EAGAIN
 * when annotations have had their share of the history for now (an eighth, then a 64th of it a
 * second; counted), -ETIMEDOUT. */
GPUMEM_API int gpumem_annotate(const char *text);

/* A range of the history with the name @text, as "forward": it begins now, in this thread, and ends
 * at gpumem_range_end() of the value returned, from any thread. What its thread allocates meanwhile
 * counts to it. Ranges may overlap. It may be called before the first CUDA call, too: up to 16 such
 * ranges begin when recording begins, with the first 255 bytes of their names. Returns a value
 * above 0; -ENODATA when nothing is recorded yet and 16 ranges wait already; -ENOMEM, -EAGAIN and
 * -ETIMEDOUT as above. */
GPUMEM_API int64_t gpumem_range_start(const char *text);

/* End that range. Returns 0; -EINVAL for a value that no gpumem_range_start() returned, as far as
 * that can be found out. */
GPUMEM_API int gpumem_range_end(int64_t range);

/* Have @fn called whenever an allocation fails for want of memory, before the failing call
 * returns, in its thread: @requested_bytes of a device that has @free_bytes of @total_bytes
 * (0: the driver did not say). It may make CUDA calls. At most 8 observers; the same pair of @fn
 * and @arg counts once. Returns 0; -ENOSPC; -EINVAL without @fn. Before the first CUDA call, too. */
GPUMEM_API int gpumem_register_oom_observer(void (*fn)(void *arg, int device,
						       uint64_t requested_bytes,
						       uint64_t total_bytes, uint64_t free_bytes),
					    void *arg);

/* Remove that observer. A call of it that is under way in another thread goes on. Returns 0;
 * -ENOENT when the pair is not registered. */
GPUMEM_API int gpumem_unregister_oom_observer(void (*fn)(void *arg, int device,
							 uint64_t requested_bytes,
							 uint64_t total_bytes, uint64_t free_bytes),
					      void *arg);

/* ---- pools: memory that is handed out a second time ----
 *
 * A pool gets memory from the driver in large pieces and hands it out in small ones, which the driver
 * does not see. PyTorch's is recorded with nothing called, and so are the heaps of programs that
 * use NVTX's memory extension (nvtx3/nvToolsExtMem.h). These calls are for every other pool.
 *
 *	int pool = gpumem_pool_create("frames", device);
 *
 *	ptr = take_from_my_pool(size);
 *	gpumem_pool_allocated(pool, (uintptr_t)ptr, size, stream);
 *	...
 *	gpumem_pool_freed(pool, (uintptr_t)ptr);
 *	give_to_my_pool(ptr);
 *
 * Snapshots list each pool with what it has handed out, by call site, and what it keeps idle, inside
 * the pieces that it has from the driver. Nothing here calls CUDA, waits without end, or touches
 * what @address points to: the calls may be made with locks of the pool held.
 */

/* The pool @name (at most 256 bytes are kept) of @device. The same name and device give the same
 * number: call it as often as is handy. Returns a number above 0; 0 where nothing is recorded
 * (before the first CUDA call nothing is), there are 63 pools already, @name is empty, or @device is
 * below 0 or above 63. */
GPUMEM_API int gpumem_pool_create(const char *name, int device);

/* @pool has handed out [@address, +@size), in the order of @stream (a cudaStream_t; NULL where that
 * is not known). Call it after the pool has taken the memory for itself, before another thread
 * can free it. Of an address that is still handed out the older block ends, and is counted.
 * Returns 0; -EINVAL for a number that is no pool's (0 is none), @address 0, @size 0, what ends
 * beyond 2^57, or more than 1 TiB with which more than 2^57 bytes were handed out; -ENOMEM, there is no
 * room for the record; -ETIMEDOUT (counted). */
GPUMEM_API int gpumem_pool_allocated(int pool, uint64_t address, uint64_t size, void *stream);

/* @pool is about to take back what it handed out at @address: call it before another thread can be
 * given it. Returns 0; -ENOENT, nothing is handed out there (counted); -EINVAL, -ETIMEDOUT. */
GPUMEM_API int gpumem_pool_freed(int pool, uint64_t address);

/* The number of the pool @name of @device, whatever it is recorded by: PyTorch's own is "pytorch".
 * 0: there is no such pool yet. */
GPUMEM_API int gpumem_pool_find(const char *name, int device);

/* The statistics of a pool, as gpumem_memory_stats(): those of PyTorch's keys that follow from what
 * a pool reports (allocation, allocated_bytes, segment, reserved_bytes, num_ooms). -EINVAL for a
 * number that is no pool's. */
GPUMEM_API int gpumem_pool_memory_stats(int pool, struct gpumem_stat *stats, int max);

/* Set every peak of a pool to its current value. Returns 0, or as above. */
GPUMEM_API int gpumem_pool_reset_peak_memory_stats(int pool);

/* Without the library these macros return what the functions are documented to return then. */
#ifndef GPUMEM_IMPLEMENTATION
#define GPUMEM_CALL(name, ...) (name ? (name)(__VA_ARGS__) : GPUMEM_ABSENT)
#define gpumem_version() (gpumem_version ? (gpumem_version)() : NULL)
#define gpumem_snapshot(path) GPUMEM_CALL(gpumem_snapshot, path)
#define gpumem_memory_stats(device, stats, max) \
	GPUMEM_CALL(gpumem_memory_stats, device, stats, max)
#define gpumem_memory_summary(device, stream) GPUMEM_CALL(gpumem_memory_summary, device, stream)
#define gpumem_memory_allocated(device) GPUMEM_CALL(gpumem_memory_allocated, device)
#define gpumem_memory_reserved(device) GPUMEM_CALL(gpumem_memory_reserved, device)
#define gpumem_max_memory_allocated(device) GPUMEM_CALL(gpumem_max_memory_allocated, device)
#define gpumem_max_memory_reserved(device) GPUMEM_CALL(gpumem_max_memory_reserved, device)
#define gpumem_reset_peak_memory_stats(device) \
	GPUMEM_CALL(gpumem_reset_peak_memory_stats, device)
#define gpumem_reset_accumulated_memory_stats(device) \
	GPUMEM_CALL(gpumem_reset_accumulated_memory_stats, device)
#define gpumem_empty_cache() (gpumem_empty_cache ? (gpumem_empty_cache)() : GPUMEM_ABSENT)
#define gpumem_set_per_process_memory_fraction(fraction, device) \
	GPUMEM_CALL(gpumem_set_per_process_memory_fraction, fraction, device)
#define gpumem_get_per_process_memory_fraction(device) \
	GPUMEM_CALL(gpumem_get_per_process_memory_fraction, device)
#define gpumem_torch_malloc(size, device, stream) \
	(gpumem_torch_malloc ? (gpumem_torch_malloc)(size, device, stream) : NULL)
#define gpumem_torch_free(ptr, size, device, stream) \
	(gpumem_torch_free ? (gpumem_torch_free)(ptr, size, device, stream) : (void)0)
#define gpumem_record_memory_history(enabled, context, stacks, max_entries) \
	GPUMEM_CALL(gpumem_record_memory_history, enabled, context, stacks, max_entries)
#define gpumem_annotate(text) GPUMEM_CALL(gpumem_annotate, text)
#define gpumem_range_start(text) GPUMEM_CALL(gpumem_range_start, text)
#define gpumem_range_end(range) GPUMEM_CALL(gpumem_range_end, range)
#define gpumem_register_oom_observer(fn, arg) GPUMEM_CALL(gpumem_register_oom_observer, fn, arg)
#define gpumem_unregister_oom_observer(fn, arg) GPUMEM_CALL(gpumem_unregister_oom_observer, fn, arg)
#define gpumem_pool_create(name, device) \
	(gpumem_pool_create ? (gpumem_pool_create)(name, device) : 0)
#define gpumem_pool_allocated(pool, address, size, stream) \
	GPUMEM_CALL(gpumem_pool_allocated, pool, address, size, stream)
#define gpumem_pool_freed(pool, address) GPUMEM_CALL(gpumem_pool_freed, pool, address)
#define gpumem_pool_find(name, device) (gpumem_pool_find ? (gpumem_pool_find)(name, device) : 0)
#define gpumem_pool_memory_stats(pool, stats, max) \
	GPUMEM_CALL(gpumem_pool_memory_stats, pool, stats, max)
#define gpumem_pool_reset_peak_memory_stats(pool) \
	GPUMEM_CALL(gpumem_pool_reset_peak_memory_stats, pool)
#endif

#ifdef __cplusplus
}
#endif

#endif
