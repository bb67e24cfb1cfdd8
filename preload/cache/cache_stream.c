/*
 * cache_stream.c - the streams that stream-ordered memory was served to, by key. How far they have
 * come is cache_freed.c's.
 *
 * A stream is known from its first segment on. One that is gone (destroyed, its context or its
 * thread ended) is so until the last one went back, which nobody else could be served from.
 *
 * Events and streams end with their context, unsaid: from before the driver's call on they are not
 * touched. Others of streams that are gone are used again.
 *
 * Thread context: any, inside a hook. Lock: a leaf, never held over a driver call. Signal context:
 * none.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/cache/cache_heap.h"
#include "preload/order/order.h"
#include "preload/cache/cache_stream.h"

#define STREAMS 4096u			/* more are not known */
#define BUCKETS 1024u			/* a power of two */
#define NONE 0u				/* no place */
#define USERS_TURNS 10000u
#define USERS_NS 20000
#define THREADS_FROM 8u			/* so many more of threads, and those that ended are looked for */

static struct gm_named streams[STREAMS];
static uint16_t buckets[BUCKETS];
static _Atomic(uint32_t) used = 1;	/* places that ever were somebody's */
static uint32_t unused;			/* those that are nobody's again */
static struct { CUevent event; CUcontext handle; uint32_t context; } spare[STREAMS];
static uint32_t spares;
static struct gm_lock lock;
_Atomic(bool) gm_cache_frees_told;

static _Atomic(uint32_t) pending;	/* gone, and not over as far as is known */
static _Atomic(uint32_t) left;		/* times that something may go back of one that is gone */
static _Atomic(uint64_t) arrived;	/* times that one was found complete and was not before */
static _Atomic(uint32_t) of_threads, survivors;	/* default streams; not gone at the last look */

static uint16_t *bucket_of(uint64_t key)
{
	return &buckets[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 54 & (BUCKETS - 1)];
}

static struct gm_named *find_locked(uint64_t key)
{
	uint32_t at = *bucket_of(key);

	while (at && streams[at].key != key)
		at = streams[at].next;
	return at ? &streams[at] : NULL;
}

static bool has_segments(const struct gm_named *stream)
{
	return stream->in_pool || stream->in_context;
}

bool gm_named_copy(uint64_t key, struct gm_named *ret_copy)
{
	const struct gm_named *place;

	if (!gm_lock(&lock))
		return false;
	place = find_locked(key);
	if (place)
		*ret_copy = *place;
	gm_unlock(&lock);
	return place;
}

uint64_t gm_named_key(uint32_t at)
{
	uint64_t key;

	if (!gm_lock(&lock))
		return 0;
	key = has_segments(&streams[at]) ? streams[at].key : 0;
	gm_unlock(&lock);
	return key;
}

bool gm_named_use(uint64_t key, struct gm_named *ret_copy)
{
	struct gm_named *place;

	if (!key || !gm_lock(&lock))
		return false;
	place = find_locked(key);
	if (place) {
		place->users++;
		*ret_copy = *place;
	}
	gm_unlock(&lock);
	return place;
}

/* ---- which there are ---- */

static void drop_locked(struct gm_named *place)
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
	if (place->freed && place->gone && !place->ending && spares < STREAMS) {
		spare[spares].event = place->freed;
		spare[spares].handle = place->handle;
		spare[spares++].context = place->context;
	}
	pending -= place->gone && !place->over;
	of_threads -= place->thread != 0;
	*place = (struct gm_named){ .next = unused };
	unused = at;
}

static void drop_if_done_locked(struct gm_named *place)
{
	if (place->gone && !has_segments(place) && !place->users)
		drop_locked(place);
}

void gm_named_done(const struct gm_named *copy)
{
	struct gm_named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(copy->key);
	if (place) {
		place->users--;
		drop_if_done_locked(place);
	}
	gm_unlock(&lock);
}

/* All places are taken: who has nothing just now has to be met again. */
static void drop_idle_locked(void)
{
	for (uint32_t at = 1; at < used; at++)
		if (streams[at].key && !has_segments(&streams[at]) && !streams[at].users)
			drop_locked(&streams[at]);
}

static struct gm_named *add_locked(uint64_t key)
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
	streams[at] = (struct gm_named){ .key = key, .next = *link, .told = gm_cache_frees_told,
				      .seen = GM_FREED_PENDING };
	*link = (uint16_t)at;
	return &streams[at];
}

/* A thread's default stream has no name that another thread could use. */
static void add(uint64_t key, CUstream stream)
{
	bool pseudo = stream <= CU_STREAM_PER_THREAD;
	struct gm_named new = { .stream = pseudo ? CU_STREAM_LEGACY : stream }, *place;

	if (pseudo ? GM_REAL(cuCtxGetCurrent)(&new.handle)
		   : GM_REAL(cuStreamGetCtx)(stream, &new.handle))
		return;
	new.context = gm_context_find(new.handle);
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
	}
	gm_unlock(&lock);
}

/* False: it is not known. */
static bool count_segment(uint64_t key, bool of_pool, int by)
{
	struct gm_named *place;
	uint32_t *count;

	if (!gm_lock(&lock))
		return true;
	place = find_locked(key);
	if (place) {
		count = of_pool ? &place->in_pool : &place->in_context;
		if (!has_segments(place)) {	/* nothing that it was freed is left */
			place->told = gm_cache_frees_told;
			place->lost = false;
		}
		if (by > 0 || *count)
			*count += (uint32_t)by;
		drop_if_done_locked(place);
	}
	gm_unlock(&lock);
	return place;
}

void gm_cache_stream_got(uint64_t key, CUstream stream, bool of_pool)
{
	if (count_segment(key, of_pool, 1))
		return;
	add(key, stream);
	count_segment(key, of_pool, 1);
}

void gm_cache_stream_gave(uint64_t key, bool of_pool)
{
	count_segment(key, of_pool, -1);
}

/* ---- ends ---- */

static void set_gone_locked(struct gm_named *place)
{
	if (place->gone)
		return;
	place->gone = true;
	place->stream = NULL;
	pending++;
	drop_if_done_locked(place);
}

static void set_over_locked(struct gm_named *place)
{
	if (place->over)
		return;
	pending -= place->gone;
	place->gone = place->over = true;
	place->stream = NULL;
	place->seen = GM_FREED_COMPLETE;
	left++;
	drop_if_done_locked(place);
}

/* Does another thread's call of the driver name that stream, or one of @context? */
static bool is_used(uint64_t key, uint32_t context)
{
	const struct gm_named *place;
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

/* They look, and do not wait for what they see. */
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

	/* What is kept of it is not another one's that gets its handle. */
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
			set_over_locked(&streams[at]);
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

/* Nobody tells of a thread's end. */
static void look_for_ended_threads(void)
{
	int saved_errno = errno;
	struct gm_named copy, *place;
	uint32_t alive = 0;

	if (of_threads < 2 * survivors || of_threads < survivors + THREADS_FROM)
		return;
	for (uint32_t at = 1; at < used; at++) {
		if (!gm_named_copy(gm_named_key(at), &copy) || !copy.thread || copy.gone)
			continue;
		if (!has_ended(copy.thread) || !gm_lock(&lock)) {
			alive++;
			continue;
		}
		place = find_locked(copy.key);
		if (place)
			set_gone_locked(place);
		gm_unlock(&lock);
	}
	survivors = alive;
	errno = saved_errno;
}

/* ---- for who asks how far they have come ---- */

uint32_t gm_named_count(void)
{
	return used;
}

CUevent gm_named_spare(const struct gm_named *stream)
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

void gm_named_lose(uint64_t key)
{
	struct gm_named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(key);
	if (place)
		place->lost = true;
	if (place)
		place->losses++;
	gm_unlock(&lock);
}

void gm_named_recorded(const struct gm_named *stream)
{
	struct gm_named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(stream->key);
	if (place && place->losses == stream->losses)
		place->lost = false;
	gm_unlock(&lock);
}

void gm_named_tell(uint64_t key)
{
	struct gm_named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(key);
	if (place)
		place->told = true;
	gm_unlock(&lock);
}

CUevent gm_named_publish(const struct gm_named *stream, CUevent event)
{
	struct gm_named *place;
	CUevent stands = event;

	if (!gm_lock(&lock))
		return event;
	place = find_locked(stream->key);
	if (place && !place->freed)
		place->freed = event;
	stands = place ? place->freed : event;
	if (stands != event && spares < STREAMS && !place->ending) {
		spare[spares].event = event;
		spare[spares].handle = stream->handle;
		spare[spares++].context = stream->context;
	}
	gm_unlock(&lock);
	return stands;
}

void gm_named_seen(const struct gm_named *copy, enum gm_cache_freed seen)
{
	struct gm_named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(copy->key);
	if (place && copy->gone && seen == GM_FREED_COMPLETE)
		set_over_locked(place);
	else if (place && copy->gone && seen == GM_FREED_UNKNOWN && place->seen != seen)
		left++;
	if (place) {
		arrived += seen == GM_FREED_COMPLETE && place->seen != seen;
		place->seen = (uint8_t)seen;
	}
	gm_unlock(&lock);
}

void gm_named_gone(uint64_t key)
{
	struct gm_named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(key);
	if (place)
		set_gone_locked(place);
	gm_unlock(&lock);
	wait_for_users(key, 0);
}

bool gm_named_any_gone(void)
{
	look_for_ended_threads();
	return pending;
}

uint32_t gm_named_left(void)
{
	return left;
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
			streams[at].seen == GM_FREED_PENDING;
	gm_unlock(&lock);
	return found;
}

enum gm_cache_freed gm_cache_stream_seen(uint64_t key, bool *ret_gone)
{
	enum gm_cache_freed seen = GM_FREED_UNKNOWN;
	const struct gm_named *place;

	*ret_gone = false;
	if (!gm_lock(&lock))
		return GM_FREED_PENDING;
	place = find_locked(key);
	if (place) {
		seen = (enum gm_cache_freed)place->seen;
		*ret_gone = place->gone;
	}
	gm_unlock(&lock);
	return seen;
}
