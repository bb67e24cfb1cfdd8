/*
 * gpumem.h - the C interface of libgpumem, the flight recorder of this process.
 *
 * Link no library. The functions are weak symbols, which the loader binds when the program runs under
 * LD_PRELOAD=libgpumem.so (or `gpumem run`). The same program runs without the library:
 *
 *	#include <gpumem.h>
 *
 *	gpumem_annotate("epoch 3");
 *	if (gpumem_snapshot(NULL) == -ENOSYS)
 *		puts("not under gpumem");
 *
 * Without the library every function does nothing. Functions that return a pointer then return NULL;
 * gpumem_pool_create() and gpumem_pool_find() return 0; all others return GPUMEM_ABSENT (-ENOSYS).
 * Build with -fPIE or -fPIC, which compilers do by default: with -fno-pic the linker binds a weak
 * symbol to "absent" for good.
 *
 * Results: 0 or a value; a negative errno on failure. Every function may return -EINVAL (there is no
 * such device, or a required pointer is NULL) and -ENODATA (nothing is recorded, because the process
 * has made no CUDA call yet, or because recording could not start, which a line on stderr explained).
 *
 * Devices are CUDA ordinals. Sizes are bytes. "Allocated" bytes are what the program holds;
 * "reserved" bytes are what the library holds from the driver to serve the program. The two are equal
 * with allocator:native. Pinned host memory and imported memory appear in snapshots only.
 *
 * Thread safety: call from any thread, at any time, also from an OOM observer.
 * Signal safety: none.
 * Fork: in the child of a process that has used CUDA nothing is recorded, because the driver refuses
 * every call there.
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

/* The version of this header. gpumem_version() returns the version of the loaded library. */
#define GPUMEM_VERSION_MAJOR 0
#define GPUMEM_VERSION_MINOR 1
#define GPUMEM_VERSION_PATCH 0
#define GPUMEM_VERSION_STRING "0.1.0"

#define GPUMEM_ABSENT (-ENOSYS)

#ifndef GPUMEM_API
#define GPUMEM_API __attribute__((weak))
#endif

/* Return the version of the library, such as "0.1.0"; NULL without the library. */
GPUMEM_API const char *gpumem_version(void);

/* Write a snapshot of the present state, as JSON, to @path; NULL: to the path of option `output`.
 * A relative path starts at the current directory. %c %p %h %k %r %t are replaced as in `output`. An
 * existing file is kept: the new file gets -2, -3 ... before its suffix.
 * Waits until the file is complete: milliseconds for a small program, half a second for a million
 * events. Returns 0; -ENAMETOOLONG; -ETIMEDOUT after two minutes; or the error of open, write or
 * rename. */
GPUMEM_API int gpumem_snapshot(const char *path);

/* One statistic. The names are the keys of torch.cuda.memory_stats(). */
struct gpumem_stat {
	char name[56];			/* "allocated_bytes.all.current" */
	int64_t value;
};

/* Copy the statistics of a device, sorted by name, to @stats: the first @max of them. Returns how
 * many statistics there are, which may be more than @max. To ask only for that number, pass NULL. */
GPUMEM_API int gpumem_memory_stats(int device, struct gpumem_stat *stats, int max);

/* Print the table of torch.cuda.memory_summary() to @stream. Returns 0; -EIO when a write failed. */
GPUMEM_API int gpumem_memory_summary(int device, FILE *stream);

/* Return the bytes that are allocated or reserved now; max: their peak since the start of the process
 * or since the last reset. A device that the program has not used has 0. */
GPUMEM_API int64_t gpumem_memory_allocated(int device);
GPUMEM_API int64_t gpumem_memory_reserved(int device);
GPUMEM_API int64_t gpumem_max_memory_allocated(int device);
GPUMEM_API int64_t gpumem_max_memory_reserved(int device);

/* The first function sets every peak to its current value. The second sets the totals of allocated and
 * freed memory, and the counters of calls, to 0. Both do the same as PyTorch's functions of these names,
 * and return 0. */
GPUMEM_API int gpumem_reset_peak_memory_stats(int device);
GPUMEM_API int gpumem_reset_accumulated_memory_stats(int device);

/* Give cached memory that is not in use back to the driver, on all devices. Returns the number of
 * bytes given back. With allocator:native there is no cache, and the result is 0. */
GPUMEM_API int64_t gpumem_empty_cache(void);

/* Limit the cache to @fraction (0 to 1) of the memory of @device.
 * Returns 0; -EINVAL when @fraction is out of range; -ENOTSUP with allocator:native, because every
 * call then goes to the driver unchanged and none can be refused. */
GPUMEM_API int gpumem_set_per_process_memory_fraction(double fraction, int device);

/* Return the fraction in force: the fraction that was set last, or else the lesser of the options
 * per_process_memory_fraction and memory_limit (divided by the device's memory). 1: no limit.
 * Returns -ENOTSUP with allocator:native. */
GPUMEM_API double gpumem_get_per_process_memory_fraction(int device);

/* An allocator for torch.cuda.memory.CUDAPluggableAllocator. It hands out memory of @device in the
 * order of @stream (a cudaStream_t), from the cache that serves cudaMalloc; so IPC and peer access
 * work for its pointers. With allocator:native the pair calls cuMemAlloc and cuMemFree of the driver.
 * Call from any thread in which the context of @device is current.
 * malloc returns NULL when there is no memory or no CUDA context. free takes a pointer of malloc.
 * During a stream capture malloc succeeds if cudaMalloc would. free always succeeds; the memory is
 * handed out again after the capture. */
GPUMEM_API void *gpumem_torch_malloc(ssize_t size, int device, void *stream);
GPUMEM_API void gpumem_torch_free(void *ptr, ssize_t size, int device, void *stream);

/* Choose what is recorded, as torch.cuda.memory._record_memory_history() does. The choice holds for
 * every call that begins after this function has returned. Live memory and the statistics are always
 * recorded.
 * @enabled: "all": events, and the stacks of live memory; "state": those stacks, but no events; NULL
 * or "none": neither. Switching events on or off drops the events so far (and counts them), as in
 * PyTorch, because a trace with a gap does not add up.
 * @context: which records get a stack. NULL or "none": no record; "state": live memory; "alloc": live
 * memory and events, where a free shows the stack of its allocation; "all": live memory and events,
 * where a free shows its own stack.
 * @stacks: "python", "native", "all" (both, merged), or NULL or "none".
 * @max_entries: how many of the newest events are kept and shown, at least 1. SIZE_MAX: as many as
 * option `history` made room for.
 * Returns 0. Errors that change nothing: -EINVAL for an unknown word, -ETIMEDOUT when a lock was not
 * free in time. Errors after which everything else has been switched: -ENOSPC when there is no room
 * for @max_entries events, -ENOTSUP for "all" when option `history` is 0. */
GPUMEM_API int gpumem_record_memory_history(const char *enabled, const char *context,
					    const char *stacks, size_t max_entries);

/* Add @text to the history, with the present time, this thread, and the device that the thread used
 * last. The first 16,384 bytes are kept. Returns 0; -ENOMEM when there is no room for another text;
 * -EAGAIN when annotations have used up their share of the history, which is an eighth of it at once
 * and then a 64th per second (refused ones are counted); -ETIMEDOUT. */
GPUMEM_API int gpumem_annotate(const char *text);

/* Begin a range of the history named @text ("forward") in this thread. Any thread ends the range by
 * gpumem_range_end() with the value that is returned here. Memory that this thread allocates until then
 * counts for the range. Ranges may overlap.
 * Ranges may begin before the first CUDA call: up to 16 of them wait and begin with the recording,
 * under the first 255 bytes of their names.
 * Returns a value above 0; -ENODATA when nothing is recorded yet and 16 ranges wait already; -ENOMEM,
 * -EAGAIN and -ETIMEDOUT as gpumem_annotate(). */
GPUMEM_API int64_t gpumem_range_start(const char *text);

/* End a range. Returns 0; -EINVAL for a value that gpumem_range_start() cannot have returned. */
GPUMEM_API int gpumem_range_end(int64_t range);

/* Register an observer: call @fn whenever an allocation fails because memory has run out, in the thread
 * of the failing call and before that call returns. @fn may make CUDA calls. Its arguments are @arg, the
 * device (-1: host memory), the bytes that were requested, and the total and free bytes of the
 * device (0: the driver did not say).
 * May be called before the first CUDA call. Registering the same pair of @fn and @arg again changes
 * nothing. Returns 0; -ENOSPC when there are 8 observers already; -EINVAL when @fn is NULL;
 * -ETIMEDOUT. */
GPUMEM_API int gpumem_register_oom_observer(void (*fn)(void *arg, int device,
						       uint64_t requested_bytes,
						       uint64_t total_bytes, uint64_t free_bytes),
					    void *arg);

/* Remove an observer. If another thread is inside @fn, that call goes on after this function has
 * returned. Returns 0; -ENOENT when the pair is not registered; -ETIMEDOUT. */
GPUMEM_API int gpumem_unregister_oom_observer(void (*fn)(void *arg, int device,
							 uint64_t requested_bytes,
							 uint64_t total_bytes, uint64_t free_bytes),
					      void *arg);

/* ---- pools: memory that is handed out a second time ----
 *
 * A pool gets memory from the driver in large pieces and hands it out in small blocks, which the
 * driver does not see. PyTorch's pool, and the heaps of programs that use NVTX's memory extension
 * (nvtx3/nvToolsExtMem.h), are recorded without any call. These calls are for every other pool.
 *
 *	int pool = gpumem_pool_create("frames", device);
 *
 *	ptr = take_from_my_pool(size);
 *	gpumem_pool_allocated(pool, (uintptr_t)ptr, size, stream);
 *	...
 *	gpumem_pool_freed(pool, (uintptr_t)ptr);
 *	give_to_my_pool(ptr);
 *
 * A snapshot lists each pool: the blocks that it has handed out, by call site, and the memory that it
 * keeps idle, inside the pieces that it got from the driver. These functions never call CUDA, never
 * wait without a limit and never touch the memory at @address, so a pool may call them with its own
 * locks held.
 */

/* Return the number of the pool @name of @device, and create the pool if there is none. The same name
 * and device always give the same number. The first 256 bytes of @name are kept.
 * Returns a number above 0. Returns 0 when nothing is recorded (so before the first CUDA call), when
 * there are 63 pools already, when @name is NULL or empty, or when @device is not within 0 to 63. */
GPUMEM_API int gpumem_pool_create(const char *name, int device);

/* Report that @pool hands out the block of @size bytes at @address, in the order of @stream (a
 * cudaStream_t; NULL: not known). Call it once the pool has chosen the memory, and before another
 * thread can free the block. If the pool has not reported an earlier block at @address as freed, that
 * block ends here, and a counter says so.
 * Returns 0; -EINVAL when @pool is not the number of a pool, when @address or @size is 0, when the
 * block ends beyond address 2^57, or when a block above 1 TiB would bring the pool's total beyond 2^57
 * bytes; -ENOMEM when there is no room for the record; -ETIMEDOUT (counted). */
GPUMEM_API int gpumem_pool_allocated(int pool, uint64_t address, uint64_t size, void *stream);

/* Report that @pool takes back the block at @address. Call it before the pool can give the memory to
 * another thread. Returns 0; -ENOENT when no block is handed out at @address (counted); -EINVAL when
 * @pool is not the number of a pool; -ETIMEDOUT. */
GPUMEM_API int gpumem_pool_freed(int pool, uint64_t address);

/* Return the number of the pool @name of @device, in whichever way the pool is recorded. PyTorch's pool
 * has the name "pytorch". Returns 0 when there is no such pool yet. */
GPUMEM_API int gpumem_pool_find(const char *name, int device);

/* Copy the statistics of a pool, as gpumem_memory_stats() does for a device. Of PyTorch's keys these
 * are the ones that a pool's reports determine: allocation, allocated_bytes, segment, reserved_bytes
 * and num_ooms. Returns -EINVAL when @pool is not the number of a pool. */
GPUMEM_API int gpumem_pool_memory_stats(int pool, struct gpumem_stat *stats, int max);

/* Label the blocks that @pool has handed out at the @count addresses in @addresses. @label: a text like
 * "gradient", whose first 256 bytes are kept; NULL removes labels. A block keeps its label until it is
 * taken back, and snapshots have the label as its "name". Addresses at which no block begins are
 * skipped. A block that is taken back during the call may leave its label to the next block at its
 * address. Returns how many blocks were labelled; -EINVAL when @pool is not the number of a pool,
 * @count is below 0, or @addresses is NULL and @count is not 0; -ENOMEM when there is no room for
 * another text. */
GPUMEM_API int gpumem_pool_label(int pool, const uint64_t *addresses, int count, const char *label);

/* Set every peak of a pool to its current value. Returns 0; -EINVAL when @pool is not the number of a
 * pool. */
GPUMEM_API int gpumem_pool_reset_peak_memory_stats(int pool);

/* These macros return the documented results when the library is absent. */
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
#define gpumem_pool_label(pool, addresses, count, label) \
	GPUMEM_CALL(gpumem_pool_label, pool, addresses, count, label)
#define gpumem_pool_reset_peak_memory_stats(pool) \
	GPUMEM_CALL(gpumem_pool_reset_peak_memory_stats, pool)
#endif

#ifdef __cplusplus
}
#endif

#endif
