/*
 * order.c - which stream is given work: keys of streams, and the steps before each submission (see order.h).
 *
 * Keys.   a stream's handle            real streams; the driver never makes a handle that is odd
 *         1 << 62 | number             a real stream whose handle belonged to a destroyed one
 *         1 << 63 | context            a context's legacy default stream
 *         3 << 62 | thread << 31 | context     a thread's default stream in a context
 *
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "allocator/lock.h"
#include "allocator/map.h"
#include "allocator/rules.h"
#include "preload/order/order.h"
#include "preload/process/say.h"

#define SEEN 1024u			/* a power of two */

bool gm_order_on;
struct gm_reuse_hot gm_order_hot;
_Atomic(uint32_t) gm_order_generation = 1;
_Atomic(uint32_t) gm_order_met;
__thread struct gm_order_last gm_order_last;

static struct gm_reuse *reuse;

/* Handles of real streams that were given work before, in a known context. */
static _Atomic(uint64_t) seen[SEEN];

/* Handles of destroyed streams, which a new stream may get: handle -> number in the new stream's key. */
static struct gm_map *reborn;
static _Atomic(uint32_t) reborn_any, last_number;

static _Atomic(uint32_t) threads;
static __thread uint32_t thread_number;

/* The one stream of single-stream mode. Written before its key is published. */
static struct { uint64_t name; uint32_t thread; _Atomic(uint32_t) context; } one;

/* The stream that this thread is about to submit to, for first() and stream_wait(). */
static __thread struct { CUstream stream; uint32_t context; bool per_thread; } submitting;

/* ---- keys -------------------------------------------------------------------------------------- */

static bool is_pseudo(uint64_t name)
{
	return name <= 2;
}

static uint64_t key_of_handle(uint64_t handle)
{
	uint64_t number = reborn_any ? gm_map_get(reborn, GM_MAP_HANDLE, handle) : 0;

	return number ? UINT64_C(1) << 62 | number : handle;
}

static uint32_t current_context(void)
{
	uint32_t only = gm_context_only_used();

	return only ? only : gm_where_now().context;
}

static uint64_t key_of_pseudo(uint64_t name, uint32_t context)
{
	if (name == 1)
		return GM_STREAM_OF_CONTEXT | context;
	if (!thread_number)
		thread_number = ++threads;
	return GM_STREAM_OF_THREAD | (uint64_t)thread_number << 31 | (context & INT32_MAX);
}

uint64_t gm_stream_key(CUstream stream, bool per_thread)
{
	uint64_t name = gm_stream_name(stream, per_thread);

	return is_pseudo(name) ? key_of_pseudo(name, current_context()) : key_of_handle(name);
}

uint64_t gm_stream_key_in(uint32_t context, CUstream stream, bool per_thread)
{
	uint64_t name = gm_stream_name(stream, per_thread);

	return is_pseudo(name) ? key_of_pseudo(name, context) : key_of_handle(name);
}

static _Atomic(uint64_t) *seen_of(uint64_t handle)
{
	return &seen[handle * UINT64_C(0x9e3779b97f4a7c15) >> 54 & (SEEN - 1)];
}

static void forget_seen(void)
{
	for (unsigned int i = 0; i < SEEN; i++)
		seen[i] = 0;
	gm_order_generation++;
}

/* Return the context of a real stream; the current one if the stream's is not known; 0: neither is known. */
static uint32_t context_of_stream(CUstream stream)
{
	struct gm_relaxed relaxed = gm_relax();
	CUcontext handle = NULL;
	uint32_t context = 0;

	if (!GM_REAL(cuStreamGetCtx)(stream, &handle))
		context = gm_context_find(handle);
	gm_unrelax(&relaxed);
	return context ? context : gm_where_now().context;
}

uint32_t gm_stream_context(CUstream stream, bool per_thread)
{
	uint32_t only = gm_context_only_used();

	gm_order_meet_unseen();
	if (only)
		return only;
	return is_pseudo(gm_stream_name(stream, per_thread)) ? gm_where_now().context : context_of_stream(stream);
}

/* ---- submissions ------------------------------------------------------------------------------- */

/* Note that the context of @name's stream is given work. Returns the stream's key; 0: it has no context, so the driver
 * will refuse the work. */
static uint64_t meet(uint64_t name)
{
	uint32_t context;

	submitting.context = 0;
	if (!is_pseudo(name) && *seen_of(name) == name)
		return key_of_handle(name);
	context = is_pseudo(name) ? current_context()
				  : context_of_stream((CUstream)(uintptr_t)name);
	if (!context)
		return 0;
	if (!gm_ticket_context(context))
		gm_unseen_work("more contexts than there is room for");
	submitting.context = context;
	if (!is_pseudo(name)) {
		*seen_of(name) = name;
		return key_of_handle(name);
	}
	return key_of_pseudo(name, context);
}

/* Under verbose: print why memory is reused later, or earlier, from here on. */
static void tell_mode(uint64_t name, bool again)
{
	gm_say_always(again ? "single-stream fast path on again: all work for long was on "
			    : "single-stream fast path off: work on a second stream, ",
		      name == 1 ? "the default stream" : name == 2 ? "a thread's default stream" :
		      "one that was created");
}

void gm_work_slow(CUstream stream, bool per_thread)
{
	uint64_t name = gm_stream_name(stream, per_thread), key;
	uint32_t generation = gm_order_generation;

	gm_order_meet_unseen();
	if (gm_capturing()) {
		if (gm_rule(GM_RULE_CAPTURED_WORK) && gm_stream_captures(stream, per_thread))
			return;
		gm_capture_recheck();
	}
	key = meet(name);
	if (!key)
		return;
	gm_reuse_note_other(&gm_order_hot, key);
	if (!gm_reuse_passes(&gm_order_hot, key)) {
		bool many = gm_order_hot.many;

		submitting.stream = stream;
		submitting.per_thread = per_thread;
		gm_reuse_submit(reuse, key);
		if (many != gm_order_hot.many && gm_state.options.verbose)
			tell_mode(name, many);
	}
	/* A default stream depends on the current context: it is remembered only while there is one context. */
	if (is_pseudo(name) && !gm_context_only_used())
		return;
	gm_order_last.stream = name;
	gm_order_last.generation = generation;
}

void gm_work_again(CUstream stream, bool per_thread)
{
	uint64_t key;

	if (gm_capturing() && gm_stream_captures(stream, per_thread))
		return;
	key = meet(gm_stream_name(stream, per_thread));
	if (!key)
		return;
	submitting.stream = stream;
	submitting.per_thread = per_thread;
	gm_reuse_submitted(reuse, key);
}

static void context_waits(uint32_t context)
{
	if (context && !gm_ticket_context(context))
		gm_unseen_work("more contexts than there is room for");
}

void gm_order_waits_slow(CUstream stream, bool per_thread)
{
	context_waits(gm_stream_context(stream, per_thread));
}

/* An unknown handle may be a green context's, of any primary context: then all contexts count as given work. */
void gm_order_context_waits(CUcontext context)
{
	uint32_t id = gm_order_on ? gm_context_find(context) : 0;

	if (id)
		context_waits(id);
	else if (gm_order_on)
		gm_ticket_all_contexts();
}

void gm_order_behind_frees(CUstream back)
{
	if (!gm_order_on)
		return;
	submitting.stream = back;
	submitting.per_thread = false;
	gm_reuse_behind(reuse, (uint64_t)(uintptr_t)back);
}

/* From now on the hooks look default streams up at every call. */
static void several_contexts(void)
{
	gm_order_generation++;
	if (gm_state.options.verbose)
		gm_say_always("single-stream fast path off: a second context");
}

bool gm_order_covers(CUcontext context)
{
	if (!context)
		GM_REAL(cuCtxGetCurrent)(&context);
	return gm_ticket_covered_by(context, 0);
}

/* ---- ends of streams --------------------------------------------------------------------------- */

void gm_order_stream_destroyed(CUstream stream)
{
	uint64_t handle = (uint64_t)(uintptr_t)stream;

	gm_map_put(reborn, GM_MAP_HANDLE, handle, ++last_number, NULL);
	reborn_any = 1;
	*seen_of(handle) = 0;
	gm_order_generation++;
}

void gm_order_stream_ends(CUstream stream)
{
	uint64_t handle = (uint64_t)(uintptr_t)stream;

	if (!gm_order_on || handle <= 2)
		return;
	gm_order_stream_over(key_of_handle(handle), stream);
	if (!gm_rule(GM_RULE_STREAM_DESTROYED))
		return;
	gm_reuse_stream_ends(reuse, key_of_handle(handle));
	/* From here on the handle means another stream. If the real call fails, that was needless but harmless. */
	gm_order_stream_destroyed(stream);
}

void gm_order_stream_ended(CUstream stream, CUresult result)
{
	if (gm_order_on && !result)
		gm_capture_stream_destroyed(stream);
}

static void context_ending(uint32_t context, bool ending)
{
	gm_ticket_context_ending(context, ending);
	if (!ending)
		return;
	/* From the driver's call on, the handles of its streams may belong to streams of other contexts. */
	forget_seen();
	gm_reuse_pass(reuse);
}

static void context_ended(uint32_t context, CUcontext handle, const struct gm_ending *ending)
{
	(void)handle;
	(void)ending;
	gm_order_streams_lost(context);		/* new streams may get their handles */
	gm_ticket_context_ended(context);
	gm_capture_context_ended(context);
	forget_seen();
	gm_reuse_streams_ended(reuse, one.context == context);
}

/* ---- early reuse ------------------------------------------------------------------------------- */

struct gm_order_early gm_order_early;
static _Atomic(uint64_t) early_stream;		/* key of the one stream, on which memory was reused early */

/* One stream is enough: when single-stream mode comes back with another stream, all that the former one was given until
 * then is complete (reuse.c), so nothing is left to overlap. A thread that comes here only after such a change leaves
 * the new stream in place. */
void gm_order_early_reuse(uint64_t stream)
{
	early_stream = stream;
	if (!gm_order_hot.many && gm_order_hot.stream != stream)
		early_stream = gm_order_hot.stream;
	if (!++gm_order_early.reuses)
		gm_order_early.reuses++;	/* 0 means none */
}

bool gm_order_is_early(CUstream stream, bool per_thread)
{
	return gm_stream_key(stream, per_thread) == early_stream &&
	       !gm_stream_captures(stream, per_thread);
}

void gm_order_early_over(CUstream stream, bool per_thread, uint32_t reuses)
{
	if (gm_order_is_early(stream, per_thread))
		gm_order_early.over = reuses;
}

/* ---- backend of reuse.h ------------------------------------------------------------------------ */

/* The stream that became the one decides, not the stream that came first, because both may be on their way. */
static void first(void *arg, uint64_t stream)
{
	uint64_t name = gm_stream_name(submitting.stream, submitting.per_thread);

	(void)arg;
	(void)stream;
	one.name = name;
	one.thread = name == 2 ? thread_number : 0;
	one.context = submitting.context ? submitting.context
		    : is_pseudo(name) ? current_context() : context_of_stream(submitting.stream);
}

static void forget_streams(void *arg)
{
	(void)arg;
	gm_order_generation++;
}

/* Only a thread itself can name its default stream. Another thread records an event of the whole context, in which no
 * other stream was given work. */
static int record_stream(void *arg, uint64_t stream, uint64_t *ticket)
{
	bool mine = !one.thread || one.thread == thread_number, entered;
	int r;

	(void)arg;
	(void)stream;
	entered = is_pseudo(one.name) && gm_context_enter(one.context);
	r = gm_ticket_record_context(one.context, mine ? (CUstream)(uintptr_t)one.name : NULL,
				     true, ticket);
	/* An event on the legacy stream also comes after the work of every thread's default stream. */
	if (r && r != -EAGAIN && !mine)
		r = gm_ticket_record_context(one.context, CU_STREAM_LEGACY, false, ticket);
	gm_context_leave(entered);
	return r;
}

static int stream_wait(void *arg, uint64_t stream, uint64_t ticket)
{
	(void)arg;
	(void)stream;
	return gm_ticket_stream_wait(submitting.stream, submitting.per_thread, ticket);
}

static uint32_t context_of(void *arg, uint32_t owner)
{
	const struct gm_order_blocks *blocks = arg;
	uint32_t context = blocks->context_of(owner);

	gm_order_meet_unseen();
	return context ? context : gm_context_only();
}

static bool is_only(void *arg, uint32_t context, uint64_t stream)
{
	(void)arg;
	(void)stream;
	return context && context == gm_context_only_used() && context == one.context;
}

static size_t complete(void *arg, const struct gm_reuse_item *items, size_t count)
{
	const struct gm_order_blocks *blocks = arg;

	return blocks->complete(items, count);
}

/* ---- start ------------------------------------------------------------------------------------- */

struct gm_reuse *gm_order_reuse(void)
{
	return reuse;
}

bool gm_order_has_context_events(void)
{
	int version = 0;

	return !GM_REAL(cuDriverGetVersion)(&version) && version >= 12050;
}

int gm_order_start(const struct gm_order_blocks *blocks)
{
	static const struct gm_context_watcher watcher = {
		.ending = context_ending, .ended = context_ended, .several = several_contexts,
	};
	struct gm_reuse_ops ops = {
		.time = gm_ticket_ops,
		.first = first,
		.forget_streams = forget_streams,
		.record_stream = record_stream,
		.stream_wait = stream_wait,
		.query = gm_ticket_query,
		.drop = gm_ticket_drop,
		.context_of = context_of,
		.is_only = is_only,
		.complete = complete,
		.arg = (void *)(uintptr_t)blocks,
	};

	reborn = gm_map_new(false);
	if (!reborn)
		return -ENOMEM;
	reuse = gm_reuse_new(&ops, &gm_order_hot);
	if (!reuse)
		return -ENOMEM;
	gm_ticket_start(gm_reuse_time(reuse));
	gm_capture_start(reuse);
	gm_context_watch(&watcher);
	gm_order_on = true;
	gm_unseen_start(reuse);
	return 0;
}

/* ---- for cache segments that go back to the driver --------------------------------------------- */

static bool wait_on(void *arg, uint64_t event)
{
	return !GM_REAL(cuStreamWaitEvent)(arg, (CUevent)(uintptr_t)event, 0);
}

bool gm_order_behind_all(CUstream own)
{
	struct gm_relaxed relaxed;
	bool done;

	if (!gm_order_on)
		return false;
	relaxed = gm_relax();
	done = gm_reuse_behind_all(reuse, wait_on, own);
	gm_unrelax(&relaxed);
	return done;
}
