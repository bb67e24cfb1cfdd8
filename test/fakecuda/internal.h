/*
 * internal.h - what the files of the fake driver share: objects, the engine's interface, and the
 * points where the race detector, capture, graphs and waiting work join in.
 *
 * The shape of it:
 *
 *   entry.c     one row per exported name (*.def) -> wrapper: count, injected failure, fork and
 *               host-function checks, fc.lock -> fc_NAME(), the function that does the work
 *   work        what is to be done (struct fc_work): immutable, counted, reusable by graph nodes
 *   op          one scheduled instance of a work (struct fc_op), with its place in virtual time
 *   clock.c     the only code that completes ops: effects happen when virtual time passes them
 *
 * Thread context: every fc_ function is called with fc.lock held unless it says otherwise. The lock
 * is given up in fc_wait_*, fc_clock_step and fc_clock_advance (while a host function or another
 * thread must act first), never elsewhere. Host functions run on one worker thread, without it. No
 * signal context. In a forked child of an initialised process every entry returns 3,
 * CUDA_ERROR_NOT_INITIALIZED.
 */
#ifndef FC_INTERNAL_H
#define FC_INTERNAL_H

/* With this, cuda.h declares every exported name as it is linked, and renames none. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/fakecuda/fakecuda.h"

#define FC_EXPORT __attribute__((visibility("default")))

#define FC_CHUNK ((size_t)2 << 20)	/* what the device's memory is charged in */
#define FC_SMALL ((size_t)512)		/* small allocations lie this far apart in a chunk */
#define FC_MAX_DEVICES 16
#define FC_MAX_ATTRS 32		/* CUlaunchAttributeID values */

struct fc_alloc;
struct fc_array;
struct fc_ctx;
struct fc_device;
struct fc_event;
struct fc_green;
struct fc_kernel;
struct fc_op;
struct fc_phys;
struct fc_pool;
struct fc_stream;
struct fc_word;
struct fc_work;

/* ---------------------------------------------------------------- handles (handle.c) */

/* What a program holds is the address of a slot, never of the object: a slot is recognised by its
 * address, goes back to a stack when dropped, and is handed out again first, as in life. Objects
 * outlive their handles where pending work needs them. */
enum fc_htype {
	FC_H_FREE, FC_H_CTX, FC_H_STREAM, FC_H_EVENT, FC_H_POOL, FC_H_ARRAY, FC_H_MIPMAP,
	FC_H_LIBRARY, FC_H_KERNEL, FC_H_MODULE, FC_H_FUNCTION, FC_H_GREEN, FC_H_EXTMEM, FC_H_EXTSEM,
	FC_H_TEXREF, FC_H_SURFREF, FC_H_GRAPH, FC_H_NODE, FC_H_EXEC,
	FC_H_DESC, FC_H_ASYNC, FC_H_RESOURCE, FC_H_VMM,
	FC_H_TEXTURE, FC_H_TYPES
};

void *fc_handle_new(enum fc_htype type, void *obj);		/* NULL: no memory */
void *fc_handle_get(const void *handle, enum fc_htype type);	/* NULL: not a live one */
void fc_handle_drop(void *handle);

/* ---------------------------------------------------------------- work */

enum fc_work_kind {
	FC_WORK_MARKER,		/* nothing: joins, event records and waits; no duration */
	FC_WORK_KERNEL,
	FC_WORK_COPY,
	FC_WORK_FILL,
	FC_WORK_HOST,		/* host function: on the worker thread, without the lock */
	FC_WORK_ALLOC,		/* stream-ordered allocation begins */
	FC_WORK_FREE,		/* stream-ordered free happens */
	FC_WORK_MEMOP,		/* stream memory operations (waiting.c) */
	FC_WORK_SEMAPHORE,	/* external semaphores */
	FC_WORK_OTHER		/* prefetch, discard, attach, ... */
};

struct fc_range {		/* bytes that a work reads or writes, host memory included */
	uint64_t ptr;
	size_t size;
	bool write;		/* false: reads only */
	bool use;		/* a pointer handed to a kernel that nobody knows: it may touch any
				 * part of the block that @ptr points into; @size is 1 */
};

/* One thing to do. Immutable once submitted or put in a graph. Embedded first in a larger struct
 * by whoever needs parameters; @release then frees those. */
struct fc_work {
	unsigned int refs;
	enum fc_work_kind kind;
	const char *name;		/* for reports: "spin", "cuMemcpyHtoD"; lives as long */
	struct fc_ctx *ctx;		/* counted */
	uint64_t duration_ns;
	struct fc_range *ranges;	/* owned, malloc */
	size_t n_ranges;
	bool overlaps;			/* programmatic serialisation: may start before its
					 * predecessor in the stream ends */
	bool one_shot;			/* makes no sense twice: not for graphs */
	struct fc_word *wait;		/* waiting.c: what a kernel's end waits for; malloc'ed */
	/* May it start / may it end now? NULL: yes. Polled whenever the clock is looked at. */
	bool (*may_start)(struct fc_work *w, struct fc_op *op);
	bool (*may_end)(struct fc_work *w, struct fc_op *op);
	/* What happens at its end. An error poisons the context. */
	CUresult (*effect)(struct fc_work *w, struct fc_op *op);
	void (*host)(struct fc_work *w);	/* FC_WORK_HOST: called without the lock */
	void (*release)(struct fc_work *w);	/* frees @w itself; NULL: free(w) */
};

/* fc_work_new - @size >= sizeof(struct fc_work), zeroed, refs 1. NULL: no memory. */
struct fc_work *fc_work_new(size_t size, enum fc_work_kind kind, const char *name,
			    struct fc_ctx *ctx, uint64_t duration_ns);
struct fc_work *fc_work_get(struct fc_work *w);
void fc_work_put(struct fc_work *w);
/* fc_work_touch - note that @w reads (or writes) [@ptr, @ptr + @size). -ENOMEM possible. */
int fc_work_touch(struct fc_work *w, uint64_t ptr, size_t size, bool write);
/* fc_work_use - the same for a pointer parameter of a kernel whose access is not known (built-in
 * kernels know theirs and touch it exactly). */
int fc_work_use(struct fc_work *w, uint64_t ptr);

/* Makers, used by the entries and by graph nodes alike. Each checks its parameters and returns
 * the error the entry would return. */
CUresult fc_work_kernel(struct fc_ctx *ctx, const CUDA_KERNEL_NODE_PARAMS_v2 *p,
			const CUlaunchAttribute *attrs, unsigned int n_attrs,
			struct fc_work **ret_work);				/* launch.c */
CUresult fc_work_copy(struct fc_ctx *ctx, const char *name, const CUDA_MEMCPY3D_PEER_v1 *p,
		      struct fc_work **ret_work);				/* copy.c */
CUresult fc_work_fill(struct fc_ctx *ctx, const char *name, const CUDA_MEMSET_NODE_PARAMS_v1 *p,
		      struct fc_work **ret_work);				/* fill.c */
CUresult fc_work_host(struct fc_ctx *ctx, CUhostFn fn, void *arg,
		      struct fc_work **ret_work);				/* host.c */
bool fc_work_host_params(const struct fc_work *w, CUDA_HOST_NODE_PARAMS_v1 *ret_p);

/* ---------------------------------------------------------------- operations (op.c, clock.c) */

enum fc_op_state {
	FC_OP_NEW,		/* being set up; not seen by the clock */
	FC_OP_WAITING,		/* for other ops to start or end */
	FC_OP_BLOCKED,		/* dependencies met, may_start() says no */
	FC_OP_RUNNING,		/* ends at end_ns, or later where may_end or unmet_end say so */
	FC_OP_EXECUTING,	/* host function on the worker thread */
	FC_OP_DONE
};

enum fc_dep_kind {
	FC_AFTER_END,		/* start after the other has ended: ordinary stream order */
	FC_AFTER_START,		/* start after the other has started: programmatic launch */
	FC_END_AFTER_END	/* may start at will, but not end before the other */
};

struct fc_dep {
	struct fc_op *on;
	enum fc_dep_kind kind;
};

struct fc_op {
	unsigned int refs;
	enum fc_op_state state;
	uint64_t seq;			/* submission order, from 1 */
	struct fc_work *work;		/* counted */
	struct fc_ctx *ctx;
	struct fc_stream *stream;	/* counted; NULL: none (nodes inside a graph may) */
	uint64_t submit_ns, start_ns, end_ns;
	unsigned int unmet_start, unmet_end;
	struct fc_dep *deps;		/* what it comes after, ended or not; dropped when DONE */
	size_t n_deps;
	struct fc_dep *outs;		/* who waits for it; dropped when DONE */
	size_t n_outs;
	CUresult error;			/* of its effect */
	bool effect_done;		/* before its end: it overlaps what it must end after */
	struct fc_op *next, **prevp;	/* fc.pending, in submission order */
	struct fc_op *run_next, **run_prevp;	/* clock.c: running, late, blocked or host queue */
	uint64_t mark;			/* op.c: the last search that saw it */
	struct fc_op *mark_next;
	void *race;			/* race.c's own */
	void *user;			/* the submitter's own: graph.c, capture.c */
	void (*done)(struct fc_op *op);	/* called once at its end, after the effect */
};

struct fc_op *fc_op_new(struct fc_ctx *ctx, struct fc_stream *s, struct fc_work *w); /* refs 1 */
struct fc_op *fc_op_get(struct fc_op *op);
void fc_op_put(struct fc_op *op);					/* NULL is a no-op */
/* fc_op_after - @op comes after @on. Before fc_op_commit only. NULL @on is a no-op. */
int fc_op_after(struct fc_op *op, struct fc_op *on, enum fc_dep_kind kind);
/* fc_op_commit - hand @op to the clock, which takes a reference until it is DONE; what can be
 * complete at this very instant (no duration, nothing to wait for) is. */
void fc_op_commit(struct fc_op *op);
/* fc_op_precedes - is @a complete or certainly before @b (by dependencies)? */
bool fc_op_precedes(struct fc_op *a, struct fc_op *b);

static inline bool fc_op_done(const struct fc_op *op)
{
	return !op || op->state == FC_OP_DONE;
}

/* fc_clock_poll - look at blocked work again, complete what ends now. No time passes. */
void fc_clock_poll(void);
/* fc_clock_step - a query: poll, then let fc.step_ns pass. */
void fc_clock_step(void);
void fc_clock_advance(uint64_t ns);

/* fc_wait_* - make the clock move until it is so; the lock may be given up meanwhile. @why names
 * the call for the hang oracle. Return 0, or what fc_waiting_stuck decided. Effects' errors are in
 * ctx->sticky afterwards. */
CUresult fc_wait_op(struct fc_op *op, const char *why);			/* keeps @op alive */
CUresult fc_wait_ctx(struct fc_ctx *ctx, const char *why);		/* all submitted so far */
CUresult fc_wait_stream(struct fc_stream *s, const char *why);

struct fc_wait {		/* one waiting thread, linked in fc.waits */
	const char *why;
	struct fc_op *op;	/* what is waited for, or */
	struct fc_ctx *ctx;	/* everything in it up to @seq */
	uint64_t seq;
	pthread_t thread;
	uint64_t stuck_polls;	/* times in a row that the clock could not move */
	struct fc_wait *next, **prevp;
};

/* ---------------------------------------------------------------- streams, events */

struct fc_stream {
	unsigned int refs;
	CUstream handle;		/* NULL for the default streams and once destroyed */
	struct fc_ctx *ctx;
	struct fc_green *green;		/* NULL: none */
	uint64_t id;			/* never reused */
	unsigned int flags;		/* CU_STREAM_NON_BLOCKING */
	int priority;
	bool legacy, per_thread, destroyed;
	uint64_t thread_id;		/* of a per-thread default stream */
	struct fc_op *tail;		/* last op, counted; may be DONE */
	struct fc_op *last_kernel;	/* counted; may be DONE */
	struct fc_stream *next, **prevp;	/* ctx->streams */
	CUlaunchAttributeValue attrs[FC_MAX_ATTRS];
	void *capture;			/* capture.c: non-NULL while it captures */
	void *race;			/* race.c's own */
	void *overlap;			/* waiting.c's own */
};

/* fc_stream_get - the stream that @h means in a call of this thread: NULL, CU_STREAM_LEGACY and
 * CU_STREAM_PER_THREAD by the current context and fc_tls.ptds. 400 for a bad handle, 201 without a
 * context. The context's sticky error is returned too. */
CUresult fc_stream_get(CUstream h, struct fc_stream **ret_s);
struct fc_stream *fc_stream_ref(struct fc_stream *s);
void fc_stream_put(struct fc_stream *s);

/* fc_op_order - make @op come after what its stream and the legacy rule put before it. */
int fc_op_order(struct fc_op *op, struct fc_stream *s);
/* fc_stream_push - @op is now the stream's tail. */
void fc_stream_push(struct fc_stream *s, struct fc_op *op);
/* fc_submit - the one way for work into a stream: capture (a node, and no op), else order, commit,
 * push. @w stays the caller's. @ret_op (may be NULL) gets a reference, NULL if captured. */
CUresult fc_submit(struct fc_stream *s, struct fc_work *w, struct fc_op **ret_op);

struct fc_event {
	unsigned int refs;
	CUevent handle;
	struct fc_ctx *ctx;
	unsigned int flags;
	uint64_t id;
	struct fc_op *op;		/* last record (a marker), counted; NULL: never recorded,
					 * complete. cuCtxRecordEvent's marker has no stream and
					 * comes after the tails of all of them */
	struct fc_ipc_event *ipc;	/* shared with other processes; NULL: not */
	struct fc_event *next, **prevp;	/* event.c: all of them */
	void *capture;			/* capture.c: non-NULL if last recorded in a capture */
};

CUresult fc_event_get(CUevent h, struct fc_event **ret_e);
bool fc_event_done(const struct fc_event *e);
/* fc_event_record/_wait - as the entries do, capture included. Also used by graph nodes' ops. */
CUresult fc_event_record(struct fc_event *e, struct fc_stream *s, unsigned int flags);
CUresult fc_event_wait(struct fc_event *e, struct fc_stream *s, unsigned int flags);
/* fc_event_set_op - what the event now stands for: @op (counted by the event). */
void fc_event_set_op(struct fc_event *e, struct fc_op *op);
struct fc_event *fc_event_ref(struct fc_event *e);
void fc_event_put(struct fc_event *e);

/* ---------------------------------------------------------------- devices, contexts */

struct fc_device {
	int ordinal;
	struct fc_ctx *primary;		/* the object lives for ever once made; see ->active */
	unsigned int primary_refs, primary_flags;
	size_t capacity, charged, other_bytes;
	bool faulted;			/* a kernel poisoned a context: unusable from its end on */
	size_t charged_apart;		/* the part of charged that lies in memfds of its own */
	uint64_t va, va_size;		/* device addresses: PROT_NONE, so host access faults */
	uint8_t *host;			/* the same bytes, readable and writable */
	void *va_map;			/* the mapping around va */
	int fd;				/* the memfd behind both */
	uint64_t inode;
	struct fc_pool *default_pool, *current_pool;
	uint64_t live_bytes[FAKECUDA_KINDS], live_count[FAKECUDA_KINDS];
	uint64_t graph_used, graph_used_high, graph_reserved, graph_reserved_high;
	void *space;			/* phys.c: free ranges, small chunks */
	void *graph;			/* graph.c: its memory pool of this device */
};

struct fc_ctx {
	unsigned int refs;
	CUcontext handle;
	struct fc_device *dev;
	uint64_t id;			/* never reused */
	unsigned int flags, api_version;
	bool primary, active;		/* inactive: released, reset or destroyed */
	struct fc_green *green;
	CUresult sticky;		/* 0, or what every call in it returns from now on */
	struct fc_stream *streams;	/* user streams and the default ones, by creation */
	struct fc_stream *legacy;
	struct fc_op *barrier;		/* cuCtxWaitEvent: all later work comes after it; counted */
	size_t limits[CU_LIMIT_MAX];
	uint64_t peers;			/* bit per device: cuCtxEnablePeerAccess */
	int captures;			/* streams of it that capture (capture.c keeps it) */
	struct fc_ctx *base;		/* of a green context: the primary one, which has its
					 * streams and its memory; else itself */
	struct fc_ctx *next, **prevp;	/* fc.ctxs */
	void *race;
};

/* fc_ctx_current - the calling thread's current context: 201 if none, its sticky error if any,
 * 709 if it was destroyed. */
CUresult fc_ctx_current(struct fc_ctx **ret_ctx);
CUresult fc_ctx_get(CUcontext h, struct fc_ctx **ret_ctx);
CUresult fc_device_get(CUdevice dev, struct fc_device **ret_dev);
/* fc_primary_get - @dev's primary context, made active. */
CUresult fc_primary_get(struct fc_device *dev, struct fc_ctx **ret_ctx);
struct fc_ctx *fc_ctx_ref(struct fc_ctx *ctx);
void fc_ctx_put(struct fc_ctx *ctx);
uint64_t fc_thread_id(void);	/* fc_tls.thread_id, given out at the first call */

/* ---------------------------------------------------------------- memory */

enum fc_alloc_kind {
	FC_MEM_DEVICE,		/* cuMemAlloc, cuMemAllocPitch */
	FC_MEM_MANAGED,
	FC_MEM_HOST,		/* cuMemHostAlloc */
	FC_MEM_REGISTERED,	/* cuMemHostRegister: the program's own memory */
	FC_MEM_POOL,		/* cuMemAllocAsync, from a pool */
	FC_MEM_GRAPH,		/* made by a graph's memory node */
	FC_MEM_VMM,		/* a mapping of a cuMemCreate handle */
	FC_MEM_IPC,		/* another process's cuMemAlloc or pool allocation */
	FC_MEM_EXTERNAL,	/* buffer mapped from external memory */
	FC_MEM_GLOBAL,		/* a module's variable */
	FC_MEM_ARRAY		/* behind an array: has a place, not a program-visible address */
};

/* Physical memory: bytes of one device's memfd, charged while referenced. */
struct fc_phys {
	unsigned int refs;
	struct fc_device *dev;		/* NULL: host memory, or another process's */
	uint64_t offset;		/* in the device's memfd */
	size_t size;			/* charged */
	uint8_t *host;			/* where the contents lie in this process */
	int fd;				/* of memory with a memfd of its own */
	uint64_t inode;
	bool imported;			/* from another process, which it is charged to */
	void (*release)(struct fc_phys *p);	/* NULL: back to its device */
};

/* One live range of addresses. In the tree by base; ranges never overlap. */
struct fc_alloc {
	struct fc_alloc *left, *right;	/* tree.c */
	uint32_t prio;
	enum fc_alloc_kind kind;
	uint64_t base;
	size_t size;			/* as requested */
	size_t reserved;		/* of addresses, >= size */
	uint8_t *host;			/* contents of base */
	struct fc_phys *phys;		/* counted; NULL: shared chunk, host memory */
	struct fc_device *dev;
	struct fc_ctx *ctx;		/* counted; NULL: belongs to none (pools, VMM) */
	struct fc_pool *pool;
	uint64_t id;			/* CU_POINTER_ATTRIBUTE_BUFFER_ID, never reused */
	unsigned int flags;
	bool freed;			/* somebody is freeing it: no longer the program's */
	bool sync_memops;
	bool readable_by_host;		/* the program may dereference base itself */
	void *owner;			/* the maker's own */
	void *race;
};

/* fc_alloc_find - the live allocation that @ptr points into (interior too), or NULL. */
struct fc_alloc *fc_alloc_find(uint64_t ptr);
/* fc_alloc_next - the first with base >= @ptr, or NULL: for walking in order of address. */
struct fc_alloc *fc_alloc_next(uint64_t ptr);
/* fc_alloc_add - enter @a (malloc'ed, base/size/host/kind/dev set), give it an id. */
void fc_alloc_add(struct fc_alloc *a);
/* fc_alloc_remove - out of the tree; the caller frees it. */
void fc_alloc_remove(struct fc_alloc *a);

/* fc_phys_new - @size bytes (rounded up to 2 MiB) of @dev, charged; reads as zero. 2 if full. */
CUresult fc_phys_new(struct fc_device *dev, size_t size, struct fc_phys **ret_phys);
void fc_phys_put(struct fc_phys *p);

/* fc_span - where the contents of @ptr lie, and how many bytes of @n from there are in a row.
 * Memory that the driver does not know is the program's own: itself. NULL: a device address with
 * nothing behind it (the cause of error 700). */
uint8_t *fc_span(uint64_t ptr, size_t n, size_t *ret_run);
/* fc_mem_move/_fill - contents, over any kinds of memory; 700 if something is not there. */
CUresult fc_mem_move(uint64_t dst, uint64_t src, size_t n);
CUresult fc_mem_fill(uint64_t dst, const void *pattern, size_t pattern_size, size_t count);

/* fc_account - the truth for fakecuda_live_bytes. */
void fc_account(struct fc_device *dev, enum fakecuda_kind kind, int64_t bytes, int count);

/* Pool allocation for others than the entries (capture.c gives captured ones to graph.c). */
CUresult fc_pool_get(CUmemoryPool h, struct fc_pool **ret_pool);
struct fc_device *fc_pool_device(const struct fc_pool *pool);
CUmemoryPool fc_pool_handle(const struct fc_pool *pool);

/* ---------------------------------------------------------------- kernels (module.c, launch.c) */

struct fc_kernel {
	char *name;
	unsigned int n_params;
	size_t *sizes, *offsets;	/* of the parameters */
	size_t params_size;
	CUkernel handle;		/* of a library's kernel */
	int max_dynamic_shared;		/* 0: the default */
	void *module;			/* the struct fc_image it belongs to */
};

/* fc_kernel_get - of a CUfunction or a CUkernel cast to one. */
CUresult fc_kernel_get(CUfunction f, struct fc_kernel **ret_k);

/* ---------------------------------------------------------------- the driver as a whole */

struct fc_state {
	pthread_mutex_t lock;
	pthread_cond_t changed;		/* an op ended, a host function returned */
	pid_t pid;			/* that initialised; 0: nobody yet */
	bool configured;		/* environment read */
	int driver_version;
	int n_devices;
	struct fc_device devices[FC_MAX_DEVICES];
	struct fc_ctx *ctxs;
	uint64_t now_ns, step_ns, kernel_ns;
	uint64_t next_seq, next_id;
	struct fc_op *pending, **pending_tail;	/* all not DONE, in submission order */
	size_t n_pending;
	unsigned int executing;		/* host functions now running */
	struct fc_wait *waits;
};

extern struct fc_state fc;

struct fc_tls {
	bool ptds;			/* this call came through a _ptds/_ptsz name */
	bool in_host_function;		/* on the worker thread, inside the program's function */
	const char *entry;		/* exported name of the call under way */
	struct fc_ctx **stack;		/* current contexts, counted, innermost last */
	size_t n_stack;
	CUstreamCaptureMode capture_mode;	/* cuThreadExchangeStreamCaptureMode */
	uint64_t thread_id;		/* from 1; never reused */
	void *capture;			/* capture.c's own */
	void *race;			/* race.c's own */
	struct fc_op *host_op;		/* on the worker thread: the host function under way */
};

extern __thread struct fc_tls fc_tls;

/* fc_log - one line to FAKECUDA_LOG; nothing where that is not set. Any thread, lock or not. */
void fc_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Prototypes of all the fc_NAME that do the work: a wrong signature does not compile. Weak: a name
 * nobody defines returns 801 CUDA_ERROR_NOT_SUPPORTED. */
#define FC_ROW(name, impl, base, since, pt, flags, params, args) CUresult fc_##impl params;
#define FC_ROW_GONE(name, base, since, pt)
#include "test/fakecuda/entries.def"

/* ---------------------------------------------------------------- hook points */

/* capture.c */
enum fc_unsafe {
	FC_UNSAFE_CALL,		/* cuMemAlloc, cuMemFree, cuMemHostAlloc, cuEventQuery, ...: refused
				 * by the mode of the capture and of the thread */
	FC_UNSAFE_STREAM,	/* the same, for a call on @s (synchronise, stream-ordered memory):
				 * refused unless @s itself is the one that captures and may */
	FC_UNSAFE_CTX		/* cuCtxSynchronize, cuCtxRecordEvent: refused in all modes */
};
/* 0, or the error (900, 906), the captures concerned being invalidated. */
CUresult fc_capture_check(enum fc_unsafe what, struct fc_ctx *ctx, struct fc_stream *s);
/* Is @s capturing? Then fc_submit hands the work to fc_capture_add. */
bool fc_capture_on(struct fc_stream *s);
CUresult fc_capture_add(struct fc_stream *s, struct fc_work *w);
/* Work goes to the legacy stream (or a blocking one): 906 if that would join a capture. */
CUresult fc_capture_legacy(struct fc_stream *s);
/* True if capture took the call over (@ret_result then is its result). */
bool fc_capture_record(struct fc_stream *s, struct fc_event *e, unsigned int flags,
		       CUresult *ret_result);
bool fc_capture_wait(struct fc_stream *s, struct fc_event *e, unsigned int flags,
		     CUresult *ret_result);
/* Stream-ordered memory on a capturing stream: becomes graph nodes. */
CUresult fc_capture_alloc(struct fc_stream *s, size_t size, struct fc_pool *pool,
			  CUdeviceptr *ret_ptr);
CUresult fc_capture_free(struct fc_stream *s, CUdeviceptr ptr);
/* Query, synchronise and elapsed time of @e: 907 if it was last recorded in a capture. Comes
 * before the check of FC_UNSAFE_CALL. */
CUresult fc_capture_event_check(struct fc_event *e);
void fc_capture_stream_ended(struct fc_stream *s);	/* destroyed */
void fc_capture_event_ended(struct fc_event *e);		/* destroyed or recorded anew */
void fc_capture_reset(void);

/* graph.c */
CUresult fc_graph_free(struct fc_alloc *a, struct fc_stream *s);	/* cuMemFree(Async) of
					 * memory that a graph allocated; @s NULL: cuMemFree */
void fc_graph_reset(void);
void fc_graph_ctx_ended(struct fc_ctx *ctx);

/* race.c: nothing here may fail, wait or submit */
void fc_race_submit(struct fc_op *op);		/* in fc_op_commit: deps are final */
void fc_race_op_ended(struct fc_op *op);		/* last reference dropped: free op->race */
void fc_race_stream_ended(struct fc_stream *s);
void fc_race_host_saw(struct fc_op *op);	/* this thread knows it complete (sync or query) */
void fc_race_host_saw_ctx(struct fc_ctx *ctx, uint64_t seq);	/* all of it up to @seq */
void fc_race_alloc(struct fc_alloc *a, struct fc_op *op);	/* handed out; @op: in its order */
void fc_race_free(struct fc_alloc *a, struct fc_op *op);	/* @op NULL: by the host, now */
void fc_race_unmap(uint64_t ptr, size_t size);	/* mapping or segment goes away, now */
/* Waiting work: the word at @ptr has let @op go on, @op has written it, @op has no more waits. */
void fc_race_word_seen(struct fc_op *op, uint64_t ptr);
void fc_race_word_written(struct fc_op *op, uint64_t ptr);
void fc_race_wait_over(struct fc_op *op);
/* The same for order by objects of other APIs: @op has signalled @object, or has seen it signalled. */
void fc_race_object_signalled(struct fc_op *op, const void *object);
void fc_race_object_seen(struct fc_op *op, const void *object);
void fc_race_reset(void);

/* waiting.c */
/* At the end of fc_work_kernel: a kernel that waits for a word gets its may_end. */
void fc_waiting_kernel(struct fc_work *w, const struct fc_kernel *k, void *const *args);
/* True if it has put @op in order behind its own stream itself (overlapping launches); the legacy
 * rule is the caller's all the same. */
bool fc_waiting_order(struct fc_op *op, struct fc_stream *s);
/* Nothing can move the clock, or only a host function's return could: called by a waiter each time
 * it has looked in vain, lock held; the waiter then sleeps a real millisecond and looks again. Not
 * 0: the wait ends with that error. */
CUresult fc_waiting_stuck(struct fc_wait *w);
void fc_waiting_reset(void);

/* for fakecuda_dump */
void fc_capture_dump(int fd);
void fc_graph_dump(int fd);
void fc_race_dump(int fd);
void fc_waiting_dump(int fd);

#endif
