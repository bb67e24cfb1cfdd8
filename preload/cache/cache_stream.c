/*
 * cache_stream.c - the streams that stream-ordered memory was served to, by key. How far they have
 * come is cache_stream_frees.c's.
 *
 * A stream is known from its first segment on. One that has ended (it was destroyed, or its context or its
 * thread ended) stays known until its last segment went back to the driver: no request can be served from
 * them any more. A stream that is served from pages has no segments: it is known from the first time that it
 * needed more of them, or that a free of its own had an event, until the GPU is past its end.
 *
 * A context takes its events and streams with it, and the driver does not say which: from before its call on
 * they are not touched. Events of other streams that have ended are used again.
 *
 * Thread context: any, inside a hook. Lock: a leaf, never held over a driver call. Signal context:
 * none.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/cache/cache_internal.h"
#include "preload/order/order.h"
#include "preload/cache/cache_pages.h"
#include "preload/cache/cache_stream.h"

#define STREAMS 4096u			/* more are not known */
#define BUCKETS 1024u			/* a power of two */
#define NONE 0u				/* no place */
#define USERS_TURNS 10000u
#define USERS_NS 20000
#define THREADS_FROM 8u			/* so many more of threads, and those that ended are looked for */

static struct gm_cache_stream streams[STREAMS];
static uint16_t buckets[BUCKETS];
static _Atomic(uint32_t) used = 1;	/* places that ever were somebody's */
static uint32_t unused;			/* those that are nobody's again */
static struct { CUevent event; CUcontext handle; uint32_t context; } spare[STREAMS];
static uint32_t spares;
static struct gm_lock lock;
_Atomic(bool) gm_cache_frees_marked;

static _Atomic(uint32_t) pending;	/* ended, and not complete as far as is known */
static _Atomic(uint32_t) releases;	/* times that segments of an ended one became releasable */
static _Atomic(uint64_t) arrived;	/* times that one was found complete and was not before */
static _Atomic(uint32_t) of_threads, survivors;	/* default streams of threads; at the last check */

static uint16_t *bucket_of(uint64_t key)
{
	return &buckets[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 54 & (BUCKETS - 1)];
}

static struct gm_cache_stream *find_locked(uint64_t key)
{
	uint32_t at = *bucket_of(key);

	while (at && streams[at].key != key)
		at = streams[at].next;
	return at ? &streams[at] : NULL;
}

static bool has_segments(const struct gm_cache_stream *stream)
{
	return stream->in_pool || stream->in_context || stream->of_pages;
}

/* The stream of @key, with the lock; NULL: it is not known, or the lock could not be had, which is not held. */
static struct gm_cache_stream *lock_stream(uint64_t key)
{
	struct gm_cache_stream *place;

	if (!key || !gm_lock(&lock))
		return NULL;
	place = find_locked(key);
	if (!place)
		gm_unlock(&lock);
	return place;
}

bool gm_cache_stream_copy(uint64_t key, struct gm_cache_stream *ret_copy)
{
	const struct gm_cache_stream *place = lock_stream(key);

	if (!place)
		return false;
	*ret_copy = *place;
	gm_unlock(&lock);
	return true;
}

bool gm_cache_stream_use(uint64_t key, struct gm_cache_stream *ret_copy)
{
	struct gm_cache_stream *place = lock_stream(key);

	if (!place)
		return false;
	place->users++;
	*ret_copy = *place;
	gm_unlock(&lock);
	return true;
}

bool gm_cache_stream_use_next(uint32_t *at, struct gm_cache_stream *ret_copy)
{
	bool found = false;

	if (!gm_lock(&lock))
		return false;
	while (!found && ++*at < used)
		found = has_segments(&streams[*at]);
	if (found) {
		streams[*at].users++;
		*ret_copy = streams[*at];
	}
	gm_unlock(&lock);
	return found;
}

/* ---- which there are ---- */

/* @event, of a stream like @like, is nobody's now. */
static void add_spare_locked(CUevent event, const struct gm_cache_stream *like)
{
	if (spares == STREAMS)
		return;
	spare[spares].event = event;
	spare[spares].handle = like->handle;
	spare[spares++].context = like->context;
}

static void drop_locked(struct gm_cache_stream *place)
{
	uint32_t at = (uint32_t)(place - streams);
	uint16_t *link = bucket_of(place->key);

	if (*link == at) {
		*link = (uint16_t)place->next;
	} else {
		uint32_t before = *link;

		while (streams[before].next != at)
			before = streams[before].next;
		streams[before].next = place->next;
	}
	if (place->freed && place->ended && !place->ending)
		add_spare_locked(place->freed, place);
	pending -= place->ended && !place->complete;
	of_threads -= place->thread != 0;
	*place = (struct gm_cache_stream){ .next = unused };
	unused = at;
}

static void drop_if_done_locked(struct gm_cache_stream *place)
{
	if (place->ended && !has_segments(place) && !place->users)
		drop_locked(place);
}

void gm_cache_stream_done(const struct gm_cache_stream *copy)
{
	struct gm_cache_stream *place = lock_stream(copy->key);

	if (!place)
		return;
	place->users--;
	drop_if_done_locked(place);
	gm_unlock(&lock);
}

/* All places are taken: who has nothing just now has to be met again, and of pages no more is known than that the
 * GPU is past all work. */
static void drop_idle_locked(void)
{
	for (uint32_t at = 1; at < used; at++) {
		if (streams[at].key && streams[at].complete)
			streams[at].of_pages = false;
		if (streams[at].key && !has_segments(&streams[at]) && !streams[at].users)
			drop_locked(&streams[at]);
	}
}

static struct gm_cache_stream *add_locked(uint64_t key)
{
	uint16_t *link = bucket_of(key);
	uint32_t at;

	if (!unused && used == STREAMS)
		drop_idle_locked();
	at = unused ? unused : used < STREAMS ? used++ : NONE;
	if (!at)
		return NULL;
	if (at == unused)
		unused = streams[at].next;
	streams[at] = (struct gm_cache_stream){ .key = key, .next = *link, .marked = gm_cache_frees_marked,
				      .answer = GM_FREED_PENDING };
	*link = (uint16_t)at;
	return &streams[at];
}

/* A thread's default stream has no name that another thread could use. */
static void add(uint64_t key, CUstream stream, bool of_pages)
{
	bool pseudo = stream <= CU_STREAM_PER_THREAD;
	struct gm_cache_stream new = { .stream = pseudo ? CU_STREAM_LEGACY : stream }, *place;

	if (pseudo ? GM_REAL(cuCtxGetCurrent)(&new.handle)
		   : GM_REAL(cuStreamGetCtx)(stream, &new.handle))
		return;
	new.context = gm_context_find(new.handle);
	if (new.context)
		new.handle = gm_context_owner(new.context);
	if (stream == CU_STREAM_PER_THREAD) {
		new.stream = NULL;
		new.thread = (pid_t)syscall(SYS_gettid);
	}
	if (!gm_lock(&lock))
		return;
	place = find_locked(key) ? NULL : add_locked(key);
	if (place) {
		place->stream = new.stream;
		place->handle = new.handle;
		place->context = new.context;
		place->thread = new.thread;
		of_threads += new.thread != 0;
		place->of_pages = of_pages;
		place->marked &= !of_pages;	/* it may have freed before */
	}
	gm_unlock(&lock);
}

void gm_cache_stream_meet(uint64_t key, CUstream stream)
{
	struct gm_cache_stream *place = lock_stream(key);

	if (!place) {
		add(key, stream, true);
		return;
	}
	place->of_pages = true;
	gm_unlock(&lock);
}

/* False: it is not known. */
static bool count_segment(uint64_t key, bool of_pool, int by)
{
	struct gm_cache_stream *place;
	uint32_t *count;

	if (!gm_lock(&lock))
		return true;
	place = find_locked(key);
	if (place) {
		count = of_pool ? &place->in_pool : &place->in_context;
		if (!has_segments(place)) {	/* nothing is left that was freed on it */
			place->marked = gm_cache_frees_marked;
			place->stale = false;
		}
		if (by > 0 || *count)
			*count += (uint32_t)by;
		drop_if_done_locked(place);
	}
	gm_unlock(&lock);
	return place;
}

void gm_cache_stream_add_segment(uint64_t key, CUstream stream, bool of_pool)
{
	if (count_segment(key, of_pool, 1))
		return;
	add(key, stream, false);
	count_segment(key, of_pool, 1);
}

void gm_cache_stream_drop_segment(uint64_t key, bool of_pool)
{
	count_segment(key, of_pool, -1);
}

/* ---- ends ---- */

static void set_ended_locked(struct gm_cache_stream *place)
{
	if (place->ended)
		return;
	place->ended = true;
	place->stream = NULL;
	pending++;
	drop_if_done_locked(place);
}

static void end_stream(uint64_t key)
{
	struct gm_cache_stream *place = lock_stream(key);

	if (!place)
		return;
	set_ended_locked(place);
	gm_unlock(&lock);
}

/* All that was freed on it had a moment up to @moment. */
static void set_complete_locked(struct gm_cache_stream *place, uint64_t moment)
{
	if (place->complete)
		return;
	pending -= place->ended;
	place->ended = place->complete = true;
	place->passed = moment;
	place->stream = NULL;
	place->answer = GM_FREED_COMPLETE;
	releases++;
	drop_if_done_locked(place);
}

/* Does another thread's call of the driver name that stream, or one of @context? */
static bool is_used(uint64_t key, uint32_t context)
{
	const struct gm_cache_stream *place;
	bool found;

	if (!gm_lock(&lock))
		return false;
	place = key ? find_locked(key) : NULL;
	found = place && place->users;
	for (uint32_t at = 1; !key && at < used && !found; at++)
		found = streams[at].users && streams[at].context == context;
	gm_unlock(&lock);
	return found;
}

/* Their calls query and do not wait. */
static void wait_for_users(uint64_t key, uint32_t context)
{
	for (unsigned int i = 0; i < USERS_TURNS && is_used(key, context); i++)
		gm_nap(USERS_NS);
}

void gm_cache_streams_ending(uint32_t context, bool ending)
{
	if (!gm_lock(&lock))
		return;
	for (uint32_t at = 1; at < used; at++)
		if (streams[at].key && streams[at].context == context)
			streams[at].ending = ending;
	gm_unlock(&lock);
	if (ending)
		wait_for_users(0, context);
}

/* The stream at a place that @context's end took with it; NULL: there was none. */
static CUstream ended_at(uint32_t at, uint32_t context)
{
	CUstream stream = NULL;

	if (!gm_lock(&lock))
		return NULL;
	if (streams[at].key && streams[at].context == context &&
	    streams[at].stream > CU_STREAM_PER_THREAD)
		stream = streams[at].stream;
	gm_unlock(&lock);
	return stream;
}

void gm_cache_streams_context_ended(uint32_t context)
{
	uint32_t kept = 0;
	CUstream stream;

	/* Another stream may get the handle. */
	for (uint32_t at = 1; at < used; at++) {
		stream = ended_at(at, context);
		if (stream)
			gm_order_stream_destroyed(stream);
	}
	if (!gm_lock(&lock))
		return;
	for (uint32_t at = 1; at < used; at++)
		if (streams[at].key && streams[at].context == context) {
			streams[at].freed = NULL;
			streams[at].in_context = 0;
			set_complete_locked(&streams[at], gm_reuse_now(gm_order_reuse()));
		}
	for (uint32_t i = 0; i < spares; i++)
		if (spare[i].context != context)
			spare[kept++] = spare[i];
	spares = kept;
	gm_unlock(&lock);
}

static bool has_ended(pid_t thread)
{
	return syscall(SYS_tgkill, getpid(), thread, 0) && errno == ESRCH;
}

/* A thread's end is seen in no hook. */
static void find_ended_threads(void)
{
	int saved_errno = errno;
	struct gm_cache_stream copy;
	uint32_t alive = 0;

	if (of_threads < 2 * survivors || of_threads < survivors + THREADS_FROM)
		return;
	for (uint32_t at = 0; gm_cache_stream_use_next(&at, &copy);) {
		if (copy.thread && !copy.ended && has_ended(copy.thread))
			end_stream(copy.key);
		else if (copy.thread && !copy.ended)
			alive++;
		gm_cache_stream_done(&copy);
	}
	survivors = alive;
	errno = saved_errno;
}

/* ---- for who asks how far they have come ---- */

CUevent gm_cache_stream_spare_event(const struct gm_cache_stream *stream)
{
	CUevent event = NULL;

	if (!gm_lock(&lock))
		return NULL;
	for (uint32_t i = spares; i-- > 0 && !event;)
		if (spare[i].context == stream->context && spare[i].handle == stream->handle) {
			event = spare[i].event;
			spare[i] = spare[--spares];
		}
	gm_unlock(&lock);
	return event;
}

/* Who queried its event before does not know of this free. */
static void note_free_locked(struct gm_cache_stream *place)
{
	place->frees++;
	if (!place->ended)
		place->answer = GM_FREED_PENDING;
}

void gm_cache_stream_event_stale(uint64_t key)
{
	struct gm_cache_stream *place = lock_stream(key);

	if (!place)
		return;
	place->stale = true;
	place->stales++;
	note_free_locked(place);
	gm_unlock(&lock);
}

void gm_cache_stream_event_recorded(const struct gm_cache_stream *stream)
{
	struct gm_cache_stream *place = lock_stream(stream->key);

	if (!place)
		return;
	if (place->stales == stream->stales)
		place->stale = false;
	note_free_locked(place);
	gm_unlock(&lock);
}

void gm_cache_stream_is_idle(uint64_t key)
{
	struct gm_cache_stream *place = lock_stream(key);

	if (!place)
		return;
	place->marked = true;
	gm_unlock(&lock);
}

CUevent gm_cache_stream_set_event(const struct gm_cache_stream *stream, CUevent event)
{
	struct gm_cache_stream *place = lock_stream(stream->key);
	CUevent stands;

	if (!place)
		return event;
	if (!place->freed)
		place->freed = event;
	stands = place->freed;
	if (stands != event && !place->ending)
		add_spare_locked(event, stream);
	gm_unlock(&lock);
	return stands;
}

void gm_cache_stream_answered(const struct gm_cache_stream *copy, enum gm_cache_freed answer, uint64_t moment)
{
	struct gm_cache_stream *place = lock_stream(copy->key);

	if (!place)
		return;
	if (answer == GM_FREED_COMPLETE && place->passed < moment)
		place->passed = moment;
	if (copy->ended && answer == GM_FREED_COMPLETE) {
		set_complete_locked(place, moment);
	} else if (place->answer != answer && place->frees == copy->frees) {
		releases += copy->ended && answer == GM_FREED_UNKNOWN;
		place->of_pages &= !copy->ended;	/* no more will be known */
		arrived += answer == GM_FREED_COMPLETE;
		place->answer = (uint8_t)answer;
	}
	gm_unlock(&lock);
}

uint64_t gm_cache_stream_passed(uint64_t key)
{
	const struct gm_cache_stream *place = lock_stream(key);
	uint64_t moment;

	if (!place)
		return 0;
	moment = place->complete ? UINT64_MAX : place->passed;
	gm_unlock(&lock);
	return moment;
}

uint32_t gm_cache_stream_context(uint64_t key)
{
	const struct gm_cache_stream *place = lock_stream(key);
	uint32_t context;

	if (!place)
		return 0;
	context = place->context;
	gm_unlock(&lock);
	return context;
}

void gm_cache_stream_forget_pages(const struct gm_cache_stream *copy, uint64_t passed)
{
	struct gm_cache_stream *place = copy->complete && copy->passed <= passed ? lock_stream(copy->key) : NULL;

	if (!place)
		return;
	place->of_pages = false;
	gm_unlock(&lock);		/* gm_cache_stream_done drops it */
}

void gm_cache_stream_ended(uint64_t key)
{
	end_stream(key);
	wait_for_users(key, 0);
}

bool gm_cache_streams_any_ended(void)
{
	find_ended_threads();
	return pending;
}

uint32_t gm_cache_streams_releases(void)
{
	return releases;
}

uint64_t gm_cache_streams_arrived(void)
{
	return arrived;
}

bool gm_cache_streams_pending(void)
{
	bool found = false;

	if (!gm_lock(&lock))
		return false;
	for (uint32_t at = 1; at < used && !found; at++)
		found = streams[at].key && has_segments(&streams[at]) &&
			streams[at].answer == GM_FREED_PENDING;
	gm_unlock(&lock);
	return found;
}

enum gm_cache_freed gm_cache_stream_answer(uint64_t key, bool *ret_ended)
{
	enum gm_cache_freed seen = GM_FREED_UNKNOWN;
	const struct gm_cache_stream *place;

	*ret_ended = false;
	if (!gm_lock(&lock))
		return GM_FREED_PENDING;
	place = find_locked(key);
	if (place) {
		seen = (enum gm_cache_freed)place->answer;
		*ret_ended = place->ended;
	}
	gm_unlock(&lock);
	return seen;
}
