/*
 * record.h - one call of the host, recorded: the flow that every hook body shares.
 *
 *	GM_ENTER(...)
 *	gm_alloc_begin(&call, "cuMemAlloc_v2", kind, bytes, GM_CALLER)
 *	result = GM_REAL(...)(...)
 *	return gm_alloc_end(&call, result, space, address, bytes)
 *
 * A free is stamped, and its pointer taken out of the map, before the driver is called: another
 * thread may be given the address the moment the driver returns. It is recorded once it succeeded,
 * and undone if it did not. An allocation is stamped and recorded after the driver returned.
 *
 * The _end functions leave the hook (hook.h) and return @result, whatever it is: nothing of ours
 * changes what the program gets.
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

/* The caller of the hook, for gm_modules_caller. In the hook's own frame. */
#define GM_CALLER __builtin_return_address(0)

struct gm_call {
	const char *entry;		/* link name of the hook */
	struct gm_where where;		/* what was current */
	struct gm_alloc alloc;		/* what is being allocated */
	uint64_t op;			/* 0: nothing is recorded of this call */
	bool exhausted;			/* the cache has waited, and given back all it could, and there is too little */
	uint64_t tsc;			/* of a free */
	enum gm_map_space space;	/* of what is being freed: its key in the map, */
	uint64_t key;
	uint32_t block;			/* its record (0 none), */
	struct gm_backing_step step;	/* or what ends of a backing */
};

/* An allocation of @requested bytes begins in the current context. The caller may change
 * @call->alloc before the end: domain, context, stream, handle, flags. */
void gm_alloc_begin(struct gm_call *call, const char *entry, enum gm_kind kind,
		    uint64_t requested, const void *caller);

/* The same in two steps. gm_alloc_prepare notes who asks and for what; gm_alloc_flight records the
 * operation as in flight. A request that is served from a free block needs no second step: every
 * reader sees it wholly or not at all (preload/cache/cache_heap.h). */
void gm_alloc_prepare(struct gm_call *call, const char *entry, enum gm_kind kind,
		      uint64_t requested, const void *caller);
void gm_alloc_flight(struct gm_call *call);

/* Store module and stack of the caller into @alloc, before any lock of ours is taken. @caller may
 * be NULL: then the module is not known where no stack is recorded. Called from a hook's body. */
void gm_alloc_caller(struct gm_alloc *alloc, const void *caller);

/* The same without an allocation of the driver's: returns the stack. */
uint32_t gm_caller_stack(const void *caller, uint16_t *ret_module);

/* The stack for gm_record_change where the caller in @alloc changes something; as option context
 * says. */
uint32_t gm_stack_of_change(const struct gm_alloc *alloc);

/* @size bytes were allocated at @address: record them, to be found again by (@space, @address). */
void gm_alloc_record(struct gm_call *call, enum gm_map_space space, uint64_t address,
		     uint64_t size);

/* The driver's call ended. On success @size bytes are recorded at @address, to be found again by
 * (@space, @address); in the spaces HANDLE and EXTERNAL as a backing with one reference. A failure
 * for want of memory is recorded and reported. */
CUresult gm_alloc_end(struct gm_call *call, CUresult result, enum gm_map_space space,
		      uint64_t address, uint64_t size);

/* The call ended, and no memory is to be recorded for it: only a failure is. */
CUresult gm_alloc_pass(struct gm_call *call, CUresult result);

/* The stack of a free: its own, the allocation's, or none, as the option context says. @ret_module:
 * the module that frees, as gm_modules_caller returns it; 0: not known. Called from a hook's
 * body. */
uint32_t gm_stack_of_free(uint16_t *ret_module);

/* A free of (@space, @key) on @stream; a mapping of external memory is freed in the same way.
 * Where it is not known here, the call is not recorded. */
void gm_free_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, CUstream stream);
CUresult gm_free_end(struct gm_call *call, CUresult result);

/* A part of a backing ends: one reference of (@space, @key), or, with @space
 * GM_MAP_MAPPING, the mappings in [@key, +@size). Ends with gm_free_end. */
void gm_take_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, uint64_t size);

/* ---- free bytes of the device, as the driver reports them, for the journal ----
 *
 * cuMemGetInfo is allowed during any capture. It is asked after something succeeded or ran out of
 * memory, so never inside a host function; errors are ignored.
 */

/* @where's device holds more than before: ask, at most every 100 ms a device. */
void gm_sample_growth(struct gm_where where);

/* Ask now; bytes of the current device. Both 0 when the driver gave no answer. */
void gm_sample_now(struct gm_where where, uint64_t *ret_free, uint64_t *ret_total);

/* ---- arrays (array_size.c) ---- */

/* Bytes of the texels of @levels mipmap levels (1 for a plain array), without padding between rows.
 * 0 for a NULL descriptor, and for arrays whose memory is mapped into them later (sparse,
 * deferred): that memory belongs to a VMM handle. Where the driver reports a size, that is better,
 * because it knows the tiling. Pure. */
uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels);

/* ---- what graphs with memory nodes hold: one record a device (hook_graph.c) ----
 *
 * The driver keeps that memory for the graphs until it is trimmed, and only the driver knows how
 * much it is (RESERVED_MEM_CURRENT). Once the process has made a memory node, it is asked after
 * each call that may change it.
 * */

/* A memory node of this device was made; 0xff: of one that we do not know. */
void gm_graph_node_made(uint8_t domain);

/* Has the process ever made a memory node? */
bool gm_graph_nodes(void);

/* Ask the driver what graphs hold now and record what changed; @caller as of gm_modules_caller, or
 * NULL. No operation of this thread may be under way. */
void gm_graph_refresh(const void *caller);

/* ---- callbacks as calls are recorded; each is set once, at the start ---- */

/* Of the cache. driver_allocated: the driver itself gave [@address, +@bytes) to the program, in
 * @where. describe: add what the cache holds to the report of a failure. */
struct gm_record_watcher {
	void (*driver_allocated)(struct gm_where where, uint64_t address, uint64_t bytes);
	void (*describe)(uint8_t domain, struct gm_failure *failure);
};
void gm_record_watch(const struct gm_record_watcher *watcher);

/* @fn is called after a pointer was freed that has no record: it may have been a graph's. */
void gm_record_watch_unknown_frees(void (*fn)(void));

/* For pools of the program's: @fn is called when [@address, +@size) is about to be freed, to the
 * driver or the cache; @size 0: what begins at @address, whatever its size. It is called before
 * that takes effect, under no lock. */
typedef void gm_going_fn(uint64_t address, uint64_t size);
extern _Atomic(gm_going_fn *) gm_record_going_fn GM_HIDDEN;
void gm_record_watch_going(gm_going_fn *fn);
static inline void gm_record_going(uint64_t address, uint64_t size)
{
	gm_going_fn *fn = gm_get(&gm_record_going_fn);

	if (gm_unlikely(fn))
		fn(address, size);
}

/* What ends in the record with a context. */
extern const struct gm_context_watcher gm_record_of_contexts GM_HIDDEN;

#endif
