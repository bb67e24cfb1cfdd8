/*
 * record.h - record one call of the program: the flow that all hook bodies share.
 *
 *	GM_ENTER(...)
 *	gm_alloc_begin(&call, "cuMemAlloc_v2", kind, bytes, GM_CALLER)
 *	result = GM_REAL(...)(...)
 *	return gm_alloc_end(&call, result, space, address, bytes)
 *
 * A free is stamped, and its pointer removed from the map, before the driver is called, because another
 * thread may get the address as soon as the driver returns. The free is recorded after it succeeded, and
 * undone if it failed. An allocation is stamped and recorded after the driver returned.
 *
 * The _end functions leave the hook (hook.h) and return @result unchanged, because we never change what
 * the program gets.
 *
 * Thread context: any, between GM_ENTER and the end; no lock of ours held. Signal context: none.
 */
#ifndef GM_PRELOAD_RECORD_H
#define GM_PRELOAD_RECORD_H

#include <stdint.h>

#include "preload/hooks/backing.h"
#include "preload/order/context.h"
#include "preload/hooks/hook.h"
#include "recorder/journal/recorder.h"

/* The caller of the hook, for gm_modules_caller. Use it in the hook's own frame. */
#define GM_CALLER __builtin_return_address(0)

struct gm_call {
	const char *entry;		/* link name of the hook */
	struct gm_where where;		/* the current context and device */
	struct gm_alloc alloc;		/* the allocation under way */
	uint64_t op;			/* 0: this call is not recorded */
	bool exhausted;			/* the cache has already waited and given back all it could: do not retry */
	uint64_t tsc;			/* stamp of a free */
	enum gm_map_space space;	/* of a free: the key of its memory in the map, */
	uint64_t key;
	uint32_t block;			/* the record of that memory (0: none), */
	struct gm_backing_step step;	/* or the part of a backing that ends instead */
};

/* Begin an allocation of @requested bytes in the current context. The caller may change the domain,
 * context, stream, handle and flags in @call->alloc before the end. */
void gm_alloc_begin(struct gm_call *call, const char *entry, enum gm_kind kind,
		    uint64_t requested, const void *caller);

/* gm_alloc_begin in two steps. gm_alloc_prepare notes the request and its caller. gm_alloc_flight records
 * the operation as in flight. A request that a free block serves needs only the first step, because readers
 * see such an allocation wholly or not at all (preload/cache/cache_heap.h). */
void gm_alloc_prepare(struct gm_call *call, const char *entry, enum gm_kind kind,
		      uint64_t requested, const void *caller);
void gm_alloc_flight(struct gm_call *call);

/* Store the module and the stack of the caller into @alloc, before any lock of ours is taken. If @caller
 * is NULL and no stacks are recorded, the module is unknown. Called from a hook's body. */
void gm_alloc_caller(struct gm_alloc *alloc, const void *caller);

/* Return the caller's stack and module, for calls that allocate nothing from the driver. GM_NONE: no
 * stacks are recorded. */
uint32_t gm_caller_stack(const void *caller, uint16_t *ret_module);

/* Return the stack to pass to gm_record_change for a change by @alloc's caller. Option context decides. */
uint32_t gm_stack_of_change(const struct gm_alloc *alloc);

/* Record the @size bytes that were allocated at @address, under the key (@space, @address). */
void gm_alloc_record(struct gm_call *call, enum gm_map_space space, uint64_t address,
		     uint64_t size);

/* End an allocation. On success, record @size bytes at @address under the key (@space, @address); in the
 * spaces HANDLE and EXTERNAL as a backing with one reference. When the driver is out of memory, record
 * and report the failure. */
CUresult gm_alloc_end(struct gm_call *call, CUresult result, enum gm_map_space space,
		      uint64_t address, uint64_t size);

/* End a call whose memory is not recorded. Only an out-of-memory failure is recorded and reported. */
CUresult gm_alloc_pass(struct gm_call *call, CUresult result);

/* Return the stack of a free: its own, the allocation's, or none, as option context says. @ret_module: the
 * module that frees, as gm_modules_caller returns it; 0: not known. Called from a hook's body. */
uint32_t gm_stack_of_free(uint16_t *ret_module);

/* Begin a free of (@space, @key) on @stream; gm_free_end records it, or undoes it if @result is an
 * error. A mapping of external memory is freed in the same way. If the key is not in the map, the call
 * is not recorded. */
void gm_free_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, CUstream stream);
CUresult gm_free_end(struct gm_call *call, CUresult result);

/* Begin to end a part of a backing: one reference of (@space, @key) or, with @space GM_MAP_MAPPING, the
 * mappings that begin in [@key, +@size). gm_free_end ends the call. */
void gm_take_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, uint64_t size);

/* ---- free bytes of the device, as the driver reports them, for the journal ----
 *
 * cuMemGetInfo is allowed during any capture. It is called after another call succeeded or ran out of
 * memory, so never inside a host function. Its errors are ignored.
 */

/* Sample the free bytes, because @where's device holds more than before; at most every 100 ms for each
 * device. */
void gm_sample_growth(struct gm_where where);

/* Sample the free bytes now. Returns the free and the total bytes of the current device; both are 0 when
 * the driver gave no answer. */
void gm_sample_now(struct gm_where where, uint64_t *ret_free, uint64_t *ret_total);

/* ---- arrays (array_size.c) ---- */

/* Return the bytes of the texels of @levels mipmap levels (1 for a plain array), without padding between
 * rows. Returns 0 for a NULL descriptor, and for sparse and deferred arrays, because their memory
 * belongs to VMM handles that are mapped later. Pure. Prefer the size that the driver reports, because
 * only the driver knows the tiling. */
uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels);

/* ---- memory of graphs with memory nodes: one record for each device (hook_graph.c) ----
 *
 * The driver keeps this memory for the graphs until the program trims it, and only the driver knows its size
 * (RESERVED_MEM_CURRENT). Once the process has made a memory node, the driver is asked after each call that
 * may change the size.
 */

/* Note that a memory node was made on device @domain; 0xff: the device is unknown, so it may be any. */
void gm_graph_node_made(uint8_t domain);

/* Has the process ever made a memory node? */
bool gm_graph_nodes(void);

/* Ask the driver how much memory graphs hold now, and record a change. @caller: as for
 * gm_modules_caller, or NULL. This thread must have no operation under way. */
void gm_graph_refresh(const void *caller);

/* ---- callbacks; each is set once, at the start ---- */

/* Callbacks of the cache. driver_allocated: the driver itself gave [@address, +@bytes) to the program, in
 * @where. describe: add what the cache holds to the report of a failure. */
struct gm_record_watcher {
	void (*driver_allocated)(struct gm_where where, uint64_t address, uint64_t bytes);
	void (*describe)(uint8_t domain, struct gm_failure *failure);
};
void gm_record_watch(const struct gm_record_watcher *watcher);

/* Call @fn after a free of a pointer without a record, which may have belonged to a graph. */
void gm_record_watch_unknown_frees(void (*fn)(void));

/* For pools of the program: call @fn when [@address, +@size) is about to be freed to the driver or the
 * cache. With @size 0 the memory begins at @address and its size is not known. @fn is called before the
 * free takes effect, with no lock held. */
typedef void gm_going_fn(uint64_t address, uint64_t size);
extern _Atomic(gm_going_fn *) gm_record_going_fn GM_HIDDEN;
void gm_record_watch_going(gm_going_fn *fn);
static inline void gm_record_going(uint64_t address, uint64_t size)
{
	gm_going_fn *fn = gm_get(&gm_record_going_fn);

	if (gm_unlikely(fn))
		fn(address, size);
}

/* Ends the records of memory that ends with its context. */
extern const struct gm_context_watcher gm_record_of_contexts GM_HIDDEN;

#endif
