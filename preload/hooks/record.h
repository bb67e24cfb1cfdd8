/*
 * record.h - one call of the host, recorded: the flow that every hook body shares.
 *
 *	GM_ENTER(...)
 *	gm_alloc_begin(&call, "cuMemAlloc_v2", kind, bytes, GM_CALLER)
 *	result = GM_REAL(...)(...)
 *	return gm_alloc_end(&call, result, space, address, bytes)
 *
 * A free is stamped, and its pointer leads nowhere, before the driver is called: another thread
 * may be given the address the moment the driver returns. It is recorded once it succeeded, and
 * undone if it did not. An allocation is stamped and recorded after the driver returned.
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
	uint64_t tsc;			/* of a free */
	enum gm_map_space space;	/* what is being freed: its key, */
	uint64_t key;
	uint32_t block;			/* its record, 0 none, */
	struct gm_backing_step step;	/* or what it takes from a backing */
};

/* An allocation of @requested bytes begins in the current context. The caller may change
 * @call->alloc before the end: domain, context, stream, handle, flags. */
void gm_alloc_begin(struct gm_call *call, const char *entry, enum gm_kind kind,
		    uint64_t requested, const void *caller);

/* The same in two steps: who asks and for what; then, unless it was served from what is free, the
 * operation is shown as under way. What never leaves our code is done or not done for every reader
 * (preload/cache/cache_heap.h), and needs no second step. */
void gm_alloc_prepare(struct gm_call *call, const char *entry, enum gm_kind kind,
		      uint64_t requested, const void *caller);
void gm_alloc_flight(struct gm_call *call);

/* Who asks, and from where, into @alloc: before any lock of ours is taken. @caller may be NULL: then
 * the module is not known where no stack is. Called from a hook's body. */
void gm_alloc_caller(struct gm_alloc *alloc, const void *caller);

/* What gm_record_change is given when that is who changes something: as option context says. */
uint32_t gm_stack_of_change(const struct gm_alloc *alloc);

/* @size bytes are there, at @address: into the record, and found again by (@space, @address). */
void gm_alloc_record(struct gm_call *call, enum gm_map_space space, uint64_t address,
		     uint64_t size);

/* It ended. On success @size bytes are recorded at @address, found again by (@space, @address); in
 * the spaces HANDLE and EXTERNAL as a backing with one reference. Running out of memory is recorded
 * and reported. */
CUresult gm_alloc_end(struct gm_call *call, CUresult result, enum gm_map_space space,
		      uint64_t address, uint64_t size);

/* It ended, and what came of it is not memory of its own: only a failure is recorded. */
CUresult gm_alloc_pass(struct gm_call *call, CUresult result);

/* The stack of a free: its own, the allocation's, or none, as the option context says. @ret_module:
 * who frees, as gm_modules_caller says it; 0: that did not come out. Called from a hook's body. */
uint32_t gm_stack_of_free(uint16_t *ret_module);

/* A free of (@space, @key) on @stream; a mapping of external memory is freed in the same way.
 * What is not known passes through. */
void gm_free_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, CUstream stream);
CUresult gm_free_end(struct gm_call *call, CUresult result);

/* Something of a backing is taken away: one reference of (@space, @key), or, with @space
 * GM_MAP_MAPPING, the mappings in [@key, +@size). Ends with gm_free_end. */
void gm_take_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, uint64_t size);

/* ---- free bytes of the device, as the driver tells them, into the journal ----
 *
 * cuMemGetInfo is allowed during any capture. It is asked after something succeeded or ran out of
 * memory, so never inside a host function; errors are ignored.
 */

/* @where's device holds more than before: ask, at most every 100 ms a device. */
void gm_sample_growth(struct gm_where where);

/* Ask now; bytes of the current device. Both 0 when the driver did not say. */
void gm_sample_now(struct gm_where where, uint64_t *ret_free, uint64_t *ret_total);

/* ---- arrays (array_size.c) ---- */

/* Bytes of the texels of @levels mipmap levels (1 for a plain array), without padding between
 * rows. 0 for a NULL descriptor, and for arrays whose memory is mapped into them later (sparse,
 * deferred): that memory is a VMM handle's. The driver's own answer is better where it gives one (it
 * knows the tiling). Pure. */
uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels);

/* ---- what graphs with memory nodes hold: one record a device (hook_graph.c) ----
 *
 * The driver keeps that memory for the graphs until it is trimmed; how much it is, only the driver
 * knows (RESERVED_MEM_CURRENT). It is asked after each call that may change it, once the process
 * has made a memory node.
 */

/* A memory node of this device was made; 0xff: of one that we do not know. */
void gm_graph_node_made(uint8_t domain);

/* Has the process ever made a memory node? */
bool gm_graph_nodes(void);

/* Ask the driver what graphs hold now and record what changed; @caller as of gm_modules_caller, or
 * NULL. No operation of this thread may be under way. */
void gm_graph_refresh(const void *caller);

/* ---- what others do as calls are recorded; set once each, at the start ---- */

/* The cache: the driver gave [@address, +@bytes) to the program itself, in @where; what it holds, into
 * the report of a failure. */
struct gm_record_watcher {
	void (*driver_allocated)(struct gm_where where, uint64_t address, uint64_t bytes);
	void (*describe)(uint8_t domain, struct gm_failure *failure);
};
void gm_record_watch(const struct gm_record_watcher *watcher);

/* After a pointer was freed that has no record: perhaps it was a graph's. */
void gm_record_watch_unknown_frees(void (*fn)(void));

/* Pools of the program's: [@address, +@size) is about to be given back, to the driver or to the cache; @size
 * 0: what begins at @address, however long it is. Called before that takes effect, under no lock. */
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
