/*
 * host.c - work that reads or writes host memory, and is not known to have ended (see host.h).
 *
 * Each such submission gets the next number of one counter. A stream has the number of its last submission, and the
 * number up to which its work is known to have ended, because the program waited for the stream, for its context, for
 * everything, or for an event that was recorded later. A submission that does not fit in the tables counts as pending
 * until the program has waited for everything, or for all work of its context.
 *
 *	last > covered, and last > gm_host_ended: the stream's work is pending
 *	gm_host_ended: all work up to this number has ended, on every stream
 *
 * Numbers are given out under the lock of the tables. So a thread that first reads the counter, then the tables under
 * the lock, misses no submission. A number also stands for later work of its stream, until some thread reads the
 * counter by gm_host_now. So a thread that launches one kernel after the other takes no lock.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: one leaf.
 */
#include <stdatomic.h>
#include <string.h>

#include "allocator/lock.h"
#include "preload/order/host.h"
#include "preload/order/context.h"

#define BUCKETS 16u
#define STREAMS 16u			/* of a bucket */
#define EVENTS 1024u

struct stream {
	uint64_t key;			/* 0: unused */
	CUcontext context;
	uint64_t last, covered;
};

struct event {
	CUevent event;			/* NULL: unused */
	struct gm_host_mark mark;
};

static struct gm_lock lock;
static struct stream streams[BUCKETS][STREAMS];	/* by a hash of the key; lock: lock */
static struct event events[EVENTS];		/* one for each hash; lock: lock */

_Atomic(bool) gm_host_shares_memory;
/* Written at every submission that the host can see, so it begins a new cache line. */
_Atomic(uint64_t) gm_host_last __attribute__((aligned(64)));
_Atomic(uint64_t) gm_host_ended;
static _Atomic(uint64_t) lost;		/* the last number that did not fit in the table */
static CUcontext lost_context;	/* the context of all such numbers; lock: lock */
static bool lost_several;	/* such numbers are of several contexts; lock: lock */
static _Atomic(bool) events_used, events_shared;
static _Atomic(uint64_t) asked;		/* the last number that gm_host_now returned */

/* The last number that this thread was given, and the stream that it was for (gm_stream_name). */
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

static struct stream *bucket_of(uint64_t key)
{
	return streams[hash(key) % BUCKETS];
}

static bool is_pending(const struct stream *s)
{
	return s->key && s->last > s->covered && s->last > gm_host_ended;
}

static struct stream *find_locked(uint64_t key)
{
	struct stream *bucket = bucket_of(key);

	for (unsigned int i = 0; i < STREAMS; i++)
		if (bucket[i].key == key)
			return &bucket[i];
	return NULL;
}

/* Return a place for @key: an unused one, or that of a stream on which nothing is pending; NULL: none. */
static struct stream *add_locked(uint64_t key, CUcontext context)
{
	struct stream *bucket = bucket_of(key);

	for (unsigned int i = 0; i < STREAMS; i++)
		if (!is_pending(&bucket[i])) {
			bucket[i] = (struct stream){ .key = key, .context = context };
			return &bucket[i];
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

/* A submission has no place: it is pending until the program has waited for everything, or for all of its context. */
static void lose_locked(uint64_t number, CUcontext context)
{
	if (lost <= gm_host_ended)
		lost_several = false;
	else if (lost_context != context)
		lost_several = true;
	lost_context = context;
	raise_to(&lost, number);
}

static void find_lost_locked(CUcontext context, uint64_t now)
{
	if (!lost_several && lost_context == context && lost <= now)
		lost = 0;
}

/* Give the stream @key a number. False: it is not in the table, and @known is false. Then the caller looks up @context,
 * which must be done outside the lock, and calls again. */
static bool mark(uint64_t key, CUcontext context, bool known)
{
	struct stream *stream;

	if (!gm_lock(&lock)) {	/* its holder was cancelled: from now on something always counts as pending */
		raise_to(&lost, UINT64_MAX);
		gm_host_last++;
		return true;
	}
	stream = find_locked(key);
	if (!stream && !known) {
		gm_unlock(&lock);
		return false;
	}
	if (!stream)
		stream = add_locked(key, context);
	if (stream)
		own.number = stream->last = ++gm_host_last;
	else
		lose_locked(++gm_host_last, context);
	gm_unlock(&lock);
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
	/* A default stream depends on the current context. */
	if (own.number && (name > 2 || gm_context_only_used())) {
		own.name = name;
		own.generation = generation;
	}
}

/* ---- what is pending ---- */

bool gm_host_check_pending(void)
{
	uint64_t now = gm_host_last;
	bool pending;

	if (now <= gm_host_ended)
		return false;
	if (!gm_lock(&lock))
		return true;
	pending = lost > gm_host_ended;
	for (unsigned int i = 0; i < BUCKETS * STREAMS && !pending; i++)
		pending = is_pending(&streams[i / STREAMS][i % STREAMS]);
	gm_unlock(&lock);
	if (!pending)
		raise_to(&gm_host_ended, now);
	return pending;
}

uint64_t gm_host_now(void)
{
	uint64_t now = gm_host_last;

	raise_to(&asked, now);		/* before the wait: later work gets another number */
	return now;
}

void gm_host_all_done(uint64_t now)
{
	raise_to(&gm_host_ended, now);
}

void gm_host_context_done(CUcontext context, uint64_t now)
{
	if (now <= gm_host_ended || !gm_lock(&lock))
		return;
	find_lost_locked(context, now);
	for (unsigned int i = 0; i < BUCKETS * STREAMS; i++) {
		struct stream *stream = &streams[i / STREAMS][i % STREAMS];

		if (stream->context == context && stream->covered < now)
			stream->covered = now;
	}
	gm_unlock(&lock);
}

/* A context ended: a new context may get its handle, and new streams the handles of its streams. If a stream has a
 * number after @host_now, this is such a new stream, and its context is not known. */
static void context_ended(uint32_t id, CUcontext context, const struct gm_ending *ending)
{
	(void)id;
	if (!context || !gm_lock(&lock))
		return;
	find_lost_locked(context, ending->host_now);
	for (unsigned int i = 0; i < BUCKETS * STREAMS; i++) {
		struct stream *stream = &streams[i / STREAMS][i % STREAMS];

		if (stream->context != context)
			continue;
		stream->context = NULL;
		if (stream->last <= ending->host_now)
			stream->key = 0;
	}
	gm_unlock(&lock);
}

void gm_host_start(void)
{
	static const struct gm_context_watcher watcher = { .ended = context_ended };

	gm_context_watch(&watcher);
}

void gm_host_stream_done(uint64_t key, uint64_t now)
{
	struct stream *stream;

	if (now <= gm_host_ended || !gm_lock(&lock))
		return;
	stream = find_locked(key);
	if (stream && stream->covered < now)
		stream->covered = now;
	gm_unlock(&lock);
}

/* ---- events ---- */

static struct event *event_at(CUevent event)
{
	return &events[hash((uintptr_t)event >> 3) % EVENTS];
}

/* @event covers its earlier work no longer, even if the new record fails. That must not be missed: if the lock cannot
 * be taken, no event is used any more. */
void gm_host_event_forget(CUevent event)
{
	if (!events_used)
		return;
	if (!gm_lock(&lock)) {
		events_shared = true;
		return;
	}
	if (event_at(event)->event == event)
		event_at(event)->event = NULL;
	gm_unlock(&lock);
}

void gm_host_events_forget(void)
{
	if (!events_used)
		return;
	events_used = false;
	if (!gm_lock(&lock)) {
		events_shared = true;
		return;
	}
	memset(events, 0, sizeof(events));
	gm_unlock(&lock);
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
	if (events_shared || mark_of->now <= gm_host_ended)
		return;
	events_used = true;
	if (!gm_lock(&lock))
		return;
	*event_at(event) = (struct event){ .event = event, .mark = *mark_of };
	gm_unlock(&lock);
}

struct gm_host_mark gm_host_event_mark(CUevent event)
{
	struct gm_host_mark found = { 0 };

	if (!events_used || events_shared || !gm_lock(&lock))
		return found;
	if (event_at(event)->event == event)
		found = event_at(event)->mark;
	gm_unlock(&lock);
	return found;
}

/* If the event was recorded anew during the wait or query, the answer may be about other work: it is ignored. */
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
