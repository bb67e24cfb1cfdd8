/*
 * record.c - record one call of the program (see record.h).
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "preload/api/history.h"
#include "preload/hooks/imports.h"
#include "preload/order/host.h"
#include "preload/order/order.h"
#include "preload/hooks/record.h"
#include "preload/triggers/trigger.h"
#include "recorder/modules/modules.h"
#include "recorder/stacks/stacks.h"

static const struct gm_record_watcher *_Atomic watched_by;
static void (*_Atomic unknown_freed)(void);
_Atomic(gm_going_fn *) gm_record_going_fn;

/* This thread is reporting a failure: report no second one. An observer that the report calls may itself run out
 * of memory. */
static __thread bool reporting;

static enum gm_map_space space_of(enum gm_kind kind)
{
	return kind == GM_KIND_ARRAY ? GM_MAP_ARRAY : GM_MAP_ADDRESS;
}

/* Remove every key of a block whose context has ended. */
static void block_ended(void *arg, uint32_t block, const struct gm_block *copy)
{
	(void)arg;
	gm_map_take_if(gm_pointers, space_of(copy->kind), copy->address, block);
	if (copy->kind == GM_KIND_IPC || copy->kind == GM_KIND_EXTERNAL)
		gm_backing_block_ended(block);
	if (copy->kind == GM_KIND_IPC)
		gm_import_ended(copy->address);
}

static void context_ended(uint32_t context, CUcontext handle, const struct gm_ending *ending)
{
	(void)handle;
	gm_record_context_end(ending->op, context, ending->tsc, ending->stack, block_ended, NULL);
}

const struct gm_context_watcher gm_record_of_contexts = { .ended = context_ended };

void gm_record_watch(const struct gm_record_watcher *watcher)
{
	watched_by = watcher;
}

void gm_record_watch_going(gm_going_fn *fn)
{
	gm_set(&gm_record_going_fn, fn);
}

void gm_record_watch_unknown_frees(void (*fn)(void))
{
	unknown_freed = fn;
}

uint32_t gm_caller_stack(const void *caller, uint16_t *ret_module)
{
	struct gm_regs regs;

	if (!gm_stacks_wanted()) {
		*ret_module = caller ? gm_modules_caller(caller, NULL) : 0;
		return GM_NONE;
	}
	*ret_module = 0;		/* stays so if stacks are switched off at this instant */
	gm_regs_capture(&regs);
	return gm_stacks_capture(&regs, ret_module);
}

void gm_alloc_caller(struct gm_alloc *alloc, const void *caller)
{
	alloc->stack = gm_caller_stack(caller, &alloc->module);
	alloc->stack_of_block_only = gm_stacks_wanted() && gm_history_context() == GM_CONTEXT_STATE;
}

uint32_t gm_stack_of_change(const struct gm_alloc *alloc)
{
	return alloc->stack_of_block_only ? GM_NONE :
	       gm_history_context() == GM_CONTEXT_ALLOC ? GM_STACK_OF_BLOCK : alloc->stack;
}

uint32_t gm_stack_of_free(uint16_t *ret_module)
{
	struct gm_regs regs;

	*ret_module = 0;
	if (!gm_stacks_wanted() || gm_history_context() == GM_CONTEXT_STATE)
		return GM_NONE;
	if (gm_history_context() == GM_CONTEXT_ALLOC)
		return GM_STACK_OF_BLOCK;
	gm_regs_capture(&regs);
	return gm_stacks_capture(&regs, ret_module);
}

/* ---- allocations ---- */

void gm_alloc_prepare(struct gm_call *call, const char *entry, enum gm_kind kind,
		      uint64_t requested, const void *caller)
{
	struct gm_where where = gm_where_now();

	call->entry = entry;
	call->where = where;
	call->op = 0;
	call->exhausted = false;
	call->alloc = (struct gm_alloc){
		.requested = requested, .context = where.context,
		.kind = (uint8_t)kind,
		.domain = kind == GM_KIND_HOST ? GM_DOMAIN_HOST : where.domain,
	};
	gm_alloc_caller(&call->alloc, caller);
}

void gm_alloc_flight(struct gm_call *call)
{
	if (!call->op && call->alloc.domain != GM_DOMAIN_UNKNOWN)
		call->op = gm_op_begin(GM_ACTION_ALLOC, (enum gm_kind)call->alloc.kind,
				       call->alloc.domain, 0, call->alloc.requested);
}

void gm_alloc_begin(struct gm_call *call, const char *entry, enum gm_kind kind,
		    uint64_t requested, const void *caller)
{
	gm_alloc_prepare(call, entry, kind, requested, caller);
	gm_alloc_flight(call);
}

void gm_alloc_record(struct gm_call *call, enum gm_map_space space, uint64_t address,
		     uint64_t size)
{
	const struct gm_record_watcher *watcher;
	uint64_t old = 0;
	int rc;

	if (!address || call->alloc.domain == GM_DOMAIN_UNKNOWN)
		return;
	call->alloc.address = address;
	call->alloc.size = size;
	if (call->alloc.requested > size)	/* the request was computed from an array's descriptor */
		call->alloc.requested = size;
	call->alloc.tsc = gm_stamp();
	watcher = watched_by;
	if (space == GM_MAP_ADDRESS && watcher)
		watcher->driver_allocated(call->where, address, size);
	if (gm_record_alloc(call->op, &call->alloc, &call->block))
		return;
	if (space == GM_MAP_HANDLE || space == GM_MAP_EXTERNAL)
		rc = gm_backing_add(space, address, call->block, size);
	else
		rc = gm_map_put(gm_pointers, space, address, call->block, &old);
	if (rc)		/* no free could find the record, and it would be live for ever */
		gm_record_free(call->op, call->block, call->alloc.tsc, call->alloc.stream);
	if (old)	/* no hook saw the old block end, but the driver never hands out a live address */
		gm_record_free(call->op, (uint32_t)old, call->alloc.tsc, 0);
}

static void report_out_of_memory(const struct gm_call *call)
{
	const struct gm_record_watcher *watcher;
	struct gm_failure failure;

	if (reporting)
		return;
	memset(&failure, 0, sizeof(failure));
	gm_sample_now(call->where, &failure.free_bytes, &failure.total_bytes);
	failure.requested_bytes = call->alloc.requested;
	watcher = watched_by;
	if (watcher)
		watcher->describe(call->alloc.domain, &failure);
	failure.stream = call->alloc.stream;
	failure.result = CUDA_ERROR_OUT_OF_MEMORY;
	failure.module = call->alloc.module;
	failure.stack = call->alloc.stack;
	failure.domain = call->alloc.domain;
	failure.kind = call->alloc.kind;
	failure.capturing = gm_capturing();
	strncpy(failure.entry, call->entry, sizeof(failure.entry) - 1);
	reporting = true;
	gm_oom_report(&failure);
	reporting = false;
}

static CUresult finish(struct gm_call *call, CUresult result)
{
	gm_op_end(call->op);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && call->alloc.domain != GM_DOMAIN_UNKNOWN)
		report_out_of_memory(call);
	return gm_leave(result);
}

CUresult gm_alloc_end(struct gm_call *call, CUresult result, enum gm_map_space space,
		      uint64_t address, uint64_t size)
{
	if (!result) {
		if (call->alloc.kind == GM_KIND_MANAGED || call->alloc.domain == GM_DOMAIN_HOST)
			gm_host_memory_made();
		gm_alloc_record(call, space, address, size);
		if (call->alloc.domain == call->where.domain)
			gm_sample_growth(call->where);
	}
	return finish(call, result);
}

CUresult gm_alloc_pass(struct gm_call *call, CUresult result)
{
	return finish(call, result);
}

/* ---- frees ---- */

/* Show the free of @block as in flight. Returns false when the record no longer belongs to @key (0: any). */
static bool begin_free_of(struct gm_call *call, uint32_t block, uint64_t key)
{
	struct gm_block copy;

	if (!gm_record_block(block, &copy) || (key && copy.address != key))
		return false;
	call->op = gm_op_begin_at(GM_ACTION_FREE_REQUESTED, copy.kind, copy.domain, copy.address,
				  copy.size, call->tsc);
	return true;
}

/* Set the fields of a free one by one: every free comes through here, and none reads the fields of an allocation. */
static void start_free(struct gm_call *call, enum gm_map_space space, uint64_t key, CUstream stream)
{
	uint16_t module;

	call->alloc.stack = gm_stack_of_free(&module);
	call->tsc = gm_stamp_before();
	call->alloc.stream = (uint64_t)(uintptr_t)stream;
	call->space = space;
	call->key = key;
	call->op = 0;
	call->block = 0;
	call->step = (struct gm_backing_step){ 0 };
}

void gm_free_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, CUstream stream)
{
	start_free(call, space, key, stream);
	if (space == GM_MAP_ADDRESS)
		gm_record_going(key, 0);
	call->block = key ? (uint32_t)gm_map_take(gm_pointers, space, key) : 0;
	if (call->block && begin_free_of(call, call->block, key)) {
		gm_record_freeing(call->block);
		return;
	}
	call->block = 0;
	if (key)
		gm_backing_unmap(key, 0, &call->step);
	if (call->step.block)
		begin_free_of(call, call->step.block, 0);
}

void gm_take_begin(struct gm_call *call, enum gm_map_space space, uint64_t key, uint64_t size)
{
	start_free(call, space, 0, NULL);
	if (space == GM_MAP_MAPPING) {
		gm_record_going(key, size);
		gm_backing_unmap(key, size, &call->step);
	} else {
		gm_backing_release(space, key, &call->step);
	}
	if (call->step.block)
		begin_free_of(call, call->step.block, 0);
}

static void put_back(struct gm_call *call)
{
	gm_record_not_freed(call->block);
	gm_map_put(gm_pointers, call->space, call->key, call->block, NULL);
}

CUresult gm_free_end(struct gm_call *call, CUresult result)
{
	bool known = call->block || call->step.backing || call->step.mappings;

	if (call->block && !result) {
		gm_record_free_stack(call->op, call->block, call->tsc, call->alloc.stream, call->alloc.stack);
	} else if (call->block) {
		put_back(call);
	} else if (known && !result) {
		gm_backing_done(&call->step, call->op, call->tsc, call->alloc.stream,
				call->alloc.stack);
	} else if (known) {
		gm_backing_undo(&call->step);
	}
	gm_op_end(call->op);
	if (!result && !known && call->key) {
		void (*fn)(void) = unknown_freed;

		if (fn)
			fn();
	}
	return gm_leave(result);
}

/* ---- free bytes of the device ---- */

#define INTERVAL_MS 100u
#define TRIES 3u

static _Atomic(uint64_t) sampled_ms[GM_MAX_DEVICES];

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void gm_sample_now(struct gm_where where, uint64_t *ret_free, uint64_t *ret_total)
{
	size_t free_bytes = 0, total_bytes = 0;

	*ret_free = *ret_total = 0;
	if (where.domain >= GM_MAX_DEVICES)
		return;
	/* Unattributed bytes are the bytes in use by the driver minus the bytes on record. Both must be read at
	 * one instant, so retry if other threads changed the records meanwhile. If the records keep changing, the
	 * earlier sample stays. */
	for (unsigned int i = 0; i < TRIES; i++) {
		uint64_t held = 0, after = 1;
		int r = gm_record_held_bytes(where.domain, &held);

		if (GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes))
			return;
		if (r || gm_record_held_bytes(where.domain, &after))
			break;
		if (after == held) {
			gm_record_free_bytes(where.domain, free_bytes, total_bytes, held);
			break;
		}
	}
	sampled_ms[where.domain] = now_ms();
	*ret_free = free_bytes;
	*ret_total = total_bytes;
}

void gm_sample_growth(struct gm_where where)
{
	uint64_t free_bytes, total_bytes, now = now_ms(), last;

	if (where.domain >= GM_MAX_DEVICES)
		return;
	last = sampled_ms[where.domain];
	if (last && now - last < INTERVAL_MS)
		return;
	/* If several threads find a sample due, one of them takes it. */
	if (__atomic_compare_exchange_n((uint64_t *)&sampled_ms[where.domain], &last, now, false,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		gm_sample_now(where, &free_bytes, &total_bytes);
}
