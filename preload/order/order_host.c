/*
 * order_host.c - what the host may look at: work that reads or writes its memory, and is not yet
 * known to have ended.
 *
 * Each such submission gets a number, the next of one counter. For each stream: the number of its
 * last one, and up to which number it is known to have ended, because the program waited for the
 * stream, for its context, for everything, or for an event that was recorded after it. What does
 * not fit in the tables counts as pending until everything was waited for.
 *
 *	a stream's last > its covered, and > gm_host_ended: pending
 *	gm_host_ended: everything up to this number has ended, on every stream
 *
 * Locks: of the thread caches, and under them of what is lost: leaves. A number is given out under the
 * lock of the thread cache that it is written in: who reads the counter first, then looks under the
 * locks, misses none. A number stands for later work of its stream, too, until somebody has asked
 * for the counter (gm_host_now): a thread that launches one kernel after the other takes no lock.
 * Thread context: any, inside a hook. Signal context: none.
 */
#include <stdatomic.h>
#include <string.h>

#include "allocator/lock.h"
#include "preload/cache/cache.h"
#include "preload/order/capture.h"
#include "preload/order/order.h"

#define TCACHES 16u
#define STREAMS 16u			/* of a thread cache */
#define EVENTS 64u			/* of a thread cache */

struct stream {
	uint64_t key;			/* 0: unused */
	CUcontext context;
	uint64_t last, covered;
};

struct event {
	CUevent event;			/* NULL: unused */
	struct gm_host_mark mark;
};

static struct tcache {
	struct gm_lock lock;
	struct stream streams[STREAMS];	/* lock: lock */
} tcaches[TCACHES] __attribute__((aligned(64)));

static struct event_tcache {
	struct gm_lock lock;
	struct event events[EVENTS];	/* lock: lock */
} event_tcaches[TCACHES] __attribute__((aligned(64)));

_Atomic(bool) gm_host_shares_memory;
/* Written at every submission that the host sees; not beside what others only read. */
_Atomic(uint64_t) gm_host_last __attribute__((aligned(64)));
_Atomic(uint64_t) gm_host_ended;
static _Atomic(uint64_t) lost;		/* the last number of a stream that did not fit */
static _Atomic(CUcontext) lost_context;	/* whose they all were; written under lost_lock */
static _Atomic(bool) lost_several;	/* of several contexts; as above */
static struct gm_lock lost_lock;
static _Atomic(bool) events_used, events_shared;
static _Atomic(uint64_t) asked;		/* the last number that gm_host_now gave */

/* The number that this thread was given last, for which stream (gm_stream_name). */
static __thread struct { uint64_t name, number; uint32_t generation; } own;

static void raise_to(_Atomic(uint64_t) *word, uint64_t value)
{
	uint64_t old = *word;

	while (old < value && !atomic_compare_exchange_weak(word, &old, value))
		;
}

static unsigned int hash(uint64_t key)
{
	return (unsigned int)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 48);
}

static struct tcache *tcache_of(uint64_t key)
{
	return &tcaches[hash(key) % TCACHES];
}

static bool is_pending(const struct stream *s)
{
	return s->key && s->last > s->covered && s->last > gm_host_ended;
}

static struct stream *find_locked(struct tcache *tcache, uint64_t key)
{
	for (unsigned int i = 0; i < STREAMS; i++)
		if (tcache->streams[i].key == key)
			return &tcache->streams[i];
	return NULL;
}

/* A place for @key: an unused one, or that of a stream on which nothing is pending. */
static struct stream *add_locked(struct tcache *tcache, uint64_t key, CUcontext context)
{
	for (unsigned int i = 0; i < STREAMS; i++)
		if (!is_pending(&tcache->streams[i])) {
			tcache->streams[i] = (struct stream){ .key = key, .context = context };
			return &tcache->streams[i];
		}
	return NULL;
}

/* ---- submissions ---- */

void gm_host_memory_made(void)
{
	gm_host_shares_memory = true;
}

static CUcontext context_of(CUstream stream)
{
	bool pseudo = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
	CUcontext context = NULL;

	if (pseudo || GM_REAL(cuStreamGetCtx)(stream, &context))
		GM_REAL(cuCtxGetCurrent)(&context);
	return context;
}

/* Under the lock of a thread cache: whoever sees the number will see that it is lost. */
static void lose(uint64_t number, CUcontext context)
{
	bool locked = gm_lock(&lost_lock);

	if (!locked)
		number = UINT64_MAX;
	else if (lost <= gm_host_ended)
		lost_several = false;
	else if (lost_context != context)
		lost_several = true;
	lost_context = context;
	raise_to(&lost, number);
	if (locked)
		gm_unlock(&lost_lock);
}

static void find_lost(CUcontext context, uint64_t now)
{
	if (lost <= gm_host_ended || !gm_lock(&lost_lock))
		return;
	if (!lost_several && lost_context == context && lost <= now)
		lost = 0;
	gm_unlock(&lost_lock);
}

/* The context is asked for outside the lock, and only of a stream that is new here. */
static bool mark(uint64_t key, CUcontext context, bool known)
{
	struct tcache *tcache = tcache_of(key);
	struct stream *stream;

	if (!gm_lock(&tcache->lock)) {	/* its holder is gone: from now on something is pending */
		lose(UINT64_MAX, context);
		gm_host_last++;
		return true;
	}
	stream = find_locked(tcache, key);
	if (!stream && !known) {
		gm_unlock(&tcache->lock);
		return false;
	}
	if (!stream)
		stream = add_locked(tcache, key, context);
	if (stream)
		own.number = stream->last = ++gm_host_last;
	else
		lose(++gm_host_last, context);
	gm_unlock(&tcache->lock);
	return true;
}

void gm_host_submitted_slow(CUstream stream, bool per_thread)
{
	uint64_t name = gm_stream_name(stream, per_thread), key;
	uint32_t generation = gm_order_generation;

	if (own.name == name && own.generation == generation && asked < own.number &&
	    !gm_capturing())
		return;
	own.name = 0;
	if (gm_stream_captures(stream, per_thread))
		return;
	own.number = 0;
	key = gm_stream_key(stream, per_thread);
	if (!mark(key, NULL, false))
		mark(key, context_of(stream), true);
	/* What a default stream is depends on the current context. */
	if (own.number && (name > 2 || gm_order_only_context())) {
		own.name = name;
		own.generation = generation;
	}
}

/* ---- what is pending ---- */

static bool tcache_pending(struct tcache *tcache)
{
	bool pending;

	if (!gm_lock(&tcache->lock))
		return true;
	pending = lost > gm_host_ended;
	for (unsigned int i = 0; i < STREAMS && !pending; i++)
		pending = is_pending(&tcache->streams[i]);
	gm_unlock(&tcache->lock);
	return pending;
}

bool gm_host_check_pending(void)
{
	uint64_t now = gm_host_last;

	if (now <= gm_host_ended)
		return false;
	for (unsigned int i = 0; i < TCACHES; i++)
		if (tcache_pending(&tcaches[i]))
			return true;
	raise_to(&gm_host_ended, now);
	return false;
}

uint64_t gm_host_now(void)
{
	uint64_t now = gm_host_last;

	raise_to(&asked, now);		/* before the wait: work from here on gets another number */
	return now;
}

void gm_host_all_done(uint64_t now)
{
	raise_to(&gm_host_ended, now);
}

void gm_host_context_done(CUcontext context, uint64_t now)
{
	find_lost(context, now);
	for (unsigned int i = 0; i < TCACHES && now > gm_host_ended; i++) {
		struct tcache *tcache = &tcaches[i];

		if (!gm_lock(&tcache->lock))
			continue;
		for (unsigned int s = 0; s < STREAMS; s++)
			if (tcache->streams[s].context == context && tcache->streams[s].covered < now)
				tcache->streams[s].covered = now;
		gm_unlock(&tcache->lock);
	}
}

/* Its handle may be another context's, and those of its streams other contexts' streams. What was
 * given to one after @now is of such a stream: of which context is not known. */
void gm_host_context_ended(CUcontext context, uint64_t now)
{
	find_lost(context, now);
	for (unsigned int i = 0; i < TCACHES; i++) {
		struct tcache *tcache = &tcaches[i];

		if (!gm_lock(&tcache->lock))
			continue;
		for (unsigned int s = 0; s < STREAMS; s++) {
			if (tcache->streams[s].context != context)
				continue;
			tcache->streams[s].context = NULL;
			if (tcache->streams[s].last <= now)
				tcache->streams[s].key = 0;
		}
		gm_unlock(&tcache->lock);
	}
}

void gm_host_stream_done(uint64_t key, uint64_t now)
{
	struct tcache *tcache = tcache_of(key);
	struct stream *stream;

	if (now <= gm_host_ended || !gm_lock(&tcache->lock))
		return;
	stream = find_locked(tcache, key);
	if (stream && stream->covered < now)
		stream->covered = now;
	gm_unlock(&tcache->lock);
}

/* ---- events ---- */

static struct event *event_at(struct event_tcache *tcache, CUevent event)
{
	return &tcache->events[hash((uintptr_t)event >> 3) / TCACHES % EVENTS];
}

static struct event_tcache *event_tcache_of(CUevent event)
{
	return &event_tcaches[hash((uintptr_t)event >> 3) % TCACHES];
}

/* Whether it did or not: what @event stood for it does not stand for any more. That must not be
 * missed, so a lock that could not be had ends the use of all of them. */
void gm_host_event_forget(CUevent event)
{
	struct event_tcache *tcache = event_tcache_of(event);

	if (!events_used)
		return;
	if (!gm_lock(&tcache->lock)) {
		events_shared = true;
		return;
	}
	if (event_at(tcache, event)->event == event)
		event_at(tcache, event)->event = NULL;
	gm_unlock(&tcache->lock);
}

void gm_host_events_forget(void)
{
	if (!events_used)
		return;
	events_used = false;
	for (unsigned int i = 0; i < TCACHES; i++) {
		if (!gm_lock(&event_tcaches[i].lock)) {
			events_shared = true;
			return;
		}
		memset(event_tcaches[i].events, 0, sizeof(event_tcaches[i].events));
		gm_unlock(&event_tcaches[i].lock);
	}
}

void gm_host_events_shared(void)
{
	events_shared = true;
}

struct gm_host_mark gm_host_event_recording(CUevent event, uint64_t key, CUcontext context)
{
	gm_host_event_forget(event);
	return (struct gm_host_mark){ .key = key, .now = gm_host_now(), .context = context };
}

void gm_host_event_recorded(CUevent event, const struct gm_host_mark *mark_of)
{
	struct event_tcache *tcache = event_tcache_of(event);

	if (events_shared || mark_of->now <= gm_host_ended)
		return;
	events_used = true;
	if (!gm_lock(&tcache->lock))
		return;
	*event_at(tcache, event) = (struct event){ .event = event, .mark = *mark_of };
	gm_unlock(&tcache->lock);
}

struct gm_host_mark gm_host_event_mark(CUevent event)
{
	struct event_tcache *tcache = event_tcache_of(event);
	struct gm_host_mark found = { 0 };

	if (!events_used || events_shared || !gm_lock(&tcache->lock))
		return found;
	if (event_at(tcache, event)->event == event)
		found = event_at(tcache, event)->mark;
	gm_unlock(&tcache->lock);
	return found;
}

/* Recorded anew during the look, it was looked at for something else. */
void gm_host_event_done(CUevent event, const struct gm_host_mark *mark_of)
{
	struct gm_host_mark now;

	if (!mark_of->key && !mark_of->context)
		return;
	now = gm_host_event_mark(event);
	if (now.key != mark_of->key || now.context != mark_of->context || now.now != mark_of->now)
		return;
	if (mark_of->key)
		gm_host_stream_done(mark_of->key, mark_of->now);
	else
		gm_host_context_done(mark_of->context, mark_of->now);
}

/* ---- host functions ---- */

/* In a function that the driver calls, it refuses every call with CUDA_ERROR_NOT_PERMITTED,
 * cuCtxGetCurrent too (seen on a GPU): so once there is one, that call tells whether this thread is
 * in one. Nothing is wrapped: getters give the program its own function back by themselves. */
static _Atomic(bool) functions_added;

void gm_host_function_added(void)
{
	if (!functions_added)
		functions_added = true;
	if (gm_cache_unusual & GM_CACHE_HOST_FUNCTIONS)
		return;
	gm_cache_unusual |= GM_CACHE_HOST_FUNCTIONS;
	gm_context_handles_changed();
}

void gm_host_function_in(const CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_HOST)
		gm_host_function_added();
}

bool gm_in_host_function(void)
{
	CUcontext context;

	return functions_added && GM_REAL(cuCtxGetCurrent)(&context) == CUDA_ERROR_NOT_PERMITTED;
}
