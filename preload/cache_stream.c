/*
 * cache_stream.c - the streams that stream-ordered memory was served to, and how far they have come.
 *
 * What was freed in the order of a stream may be that stream's again at once, but the driver's only
 * when the host has seen the work before that free complete: given back in the stream's order it
 * would come after whatever was submitted since, a kernel that waits for a flag say, and the driver
 * may have another stream's allocation wait for it, the one that was to set the flag.
 *
 * So once a device has not much memory left, each free on a block's own stream records an event
 * there, one a stream, recorded anew. Else the stream as a whole is asked, which may answer "not
 * yet" for the sake of later work. A destroyed stream leaves such an event behind.
 *
 * A stream is known from its first segment on. One that is gone (destroyed, its context or its thread
 * ended) is so until the last one went back, which nobody else could be served from.
 *
 * Events and streams end with their context, unsaid: from before the driver's call on they are not
 * touched. Others of streams that are gone are used again.
 *
 * Thread context: any, inside a hook. Lock: a leaf, never held over a driver call. Signal context:
 * none. Fork: forgotten.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/cache_heap.h"
#include "preload/order.h"

#define STREAMS 4096u			/* more are not known */
#define BUCKETS 1024u			/* a power of two */
#define NONE 0u				/* no place */
#define USERS_TURNS 10000u
#define USERS_NS 20000
#define THREADS_FROM 8u			/* so many more of threads, and those that ended are looked for */

struct named {
	uint64_t key;			/* 0: unused */
	CUstream stream;		/* CU_STREAM_LEGACY: that of @handle; NULL: it cannot be asked */
	CUcontext handle;
	CUevent freed;			/* after the last free on it, or its end; NULL: none yet */
	uint32_t context;
	uint32_t next;			/* of its bucket, or unused */
	uint32_t in_pool, in_context;	/* its segments that the driver has not got back */
	uint32_t users;			/* threads whose calls of the driver name it just now */
	pid_t thread;			/* whose default stream it is; 0: anybody's */
	bool told;			/* of all frees on it: without an event there was none */
	bool lost;			/* @freed could not be recorded once: it stands for nothing */
	bool ending;			/* its context is about to end */
	bool gone;			/* it is given nothing any more */
	bool over;			/* and what it was given is complete */
	uint8_t seen;			/* enum gm_cache_freed, at the last look */
};

static struct named streams[STREAMS];
static uint16_t buckets[BUCKETS];
static _Atomic(uint32_t) used = 1;	/* places that ever were somebody's */
static uint32_t unused;			/* those that are nobody's again */
static struct { CUevent event; CUcontext handle; uint32_t context; } spare[STREAMS];
static uint32_t spares;
static struct gm_lock lock;
_Atomic(bool) gm_cache_frees_told;

static _Atomic(uint32_t) pending;	/* gone, and not over as far as is known */
static _Atomic(uint32_t) left;		/* times that something may go back of one that is gone */
static _Atomic(uint32_t) of_threads, survivors;	/* default streams; those that were not gone lately */

static uint16_t *bucket_of(uint64_t key)
{
	return &buckets[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 54 & (BUCKETS - 1)];
}

static struct named *find_locked(uint64_t key)
{
	uint32_t at = *bucket_of(key);

	while (at && streams[at].key != key)
		at = streams[at].next;
	return at ? &streams[at] : NULL;
}

static bool has_segments(const struct named *stream)
{
	return stream->in_pool || stream->in_context;
}

static bool copy_of(uint64_t key, struct named *ret_copy)
{
	const struct named *place;

	if (!gm_lock(&lock))
		return false;
	place = find_locked(key);
	if (place)
		*ret_copy = *place;
	gm_unlock(&lock);
	return place;
}

/* The key at a place that has segments; 0: there is none. */
static uint64_t key_at(uint32_t at)
{
	uint64_t key;

	if (!gm_lock(&lock))
		return 0;
	key = has_segments(&streams[at]) ? streams[at].key : 0;
	gm_unlock(&lock);
	return key;
}

/* From here to done_with neither the stream nor its context ends, where @ret_copy says that it has not;
 * or an end waits. */
static bool use(uint64_t key, struct named *ret_copy)
{
	struct named *place;

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

static void drop_locked(struct named *place)
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
	*place = (struct named){ .next = unused };
	unused = at;
}

static void drop_if_done_locked(struct named *place)
{
	if (place->gone && !has_segments(place) && !place->users)
		drop_locked(place);
}

static void done_with(const struct named *copy)
{
	struct named *place;

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

static struct named *add_locked(uint64_t key)
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
	streams[at] = (struct named){ .key = key, .next = *link, .told = gm_cache_frees_told,
				      .seen = GM_FREED_PENDING };
	*link = (uint16_t)at;
	return &streams[at];
}

/* A thread's default stream has no name that another thread could use. */
static void add(uint64_t key, CUstream stream)
{
	bool pseudo = stream <= CU_STREAM_PER_THREAD;
	struct named new = { .stream = pseudo ? CU_STREAM_LEGACY : stream }, *place;

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
	struct named *place;
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

static void set_gone_locked(struct named *place)
{
	if (place->gone)
		return;
	place->gone = true;
	place->stream = NULL;
	pending++;
	drop_if_done_locked(place);
}

static void set_over_locked(struct named *place)
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
	const struct named *place;
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

void gm_cache_streams_context_ended(uint32_t context)
{
	uint32_t kept = 0;

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
	struct named copy, *place;
	uint32_t alive = 0;

	if (of_threads < 2 * survivors || of_threads < survivors + THREADS_FROM)
		return;
	for (uint32_t at = 1; at < used; at++) {
		if (!copy_of(key_at(at), &copy) || !copy.thread || copy.gone)
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

/* ---- events ---- */

static bool enter(CUcontext handle)
{
	CUcontext current = NULL;

	return handle && !GM_REAL(cuCtxGetCurrent)(&current) && current != handle &&
	       !GM_REAL(cuCtxPushCurrent_v2)(handle);
}

static void leave(bool entered)
{
	CUcontext ignored;

	if (entered)
		GM_REAL(cuCtxPopCurrent_v2)(&ignored);
}

static CUevent take_spare(const struct named *stream)
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

/* One for the frees on @stream; NULL: there can be none. */
static CUevent new_event(const struct named *stream)
{
	CUevent event = take_spare(stream);
	bool entered;

	if (event)
		return event;
	entered = enter(stream->handle);
	if (GM_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING))
		event = NULL;
	leave(entered);
	return event;
}

static void lose(uint64_t key)
{
	struct named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(key);
	if (place)
		place->lost = true;
	gm_unlock(&lock);
}

/* @event was recorded: before that it would say that all is complete. Returns which one stands for
 * the stream's frees: another thread may have been first. */
static CUevent publish(const struct named *stream, CUevent event)
{
	struct named *place;
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

/* After everything that @on was given so far. */
static bool record_freed(const struct named *stream, CUstream on)
{
	CUevent event = stream->freed ? stream->freed : new_event(stream);
	CUevent stands;

	if (!event || GM_REAL(cuEventRecord)(event, on))
		return false;
	stands = stream->freed ? event : publish(stream, event);
	return stands == event || !GM_REAL(cuEventRecord)(stands, on);
}

/* A default stream's event could end a capture of another stream: then there is none. */
void gm_cache_stream_freed_slow(uint64_t key, CUstream stream)
{
	bool pseudo = stream <= CU_STREAM_PER_THREAD;
	struct gm_relaxed relaxed;
	struct named copy;

	if (!copy_of(key, &copy) || copy.lost)
		return;
	relaxed = gm_relax();
	if (copy.ending || (pseudo && gm_capturing()) || !record_freed(&copy, stream))
		lose(key);
	gm_unrelax(&relaxed);
}

static int record(void *arg)
{
	const struct named *stream = arg;

	return record_freed(stream, stream->stream) ? 0 : -EIO;
}

/* What was freed before the device was short: complete at the latest when its stream is here. */
static void mark(struct named *stream)
{
	bool entered;

	if (stream->ending || stream->freed || !stream->stream)
		return;
	entered = stream->stream == CU_STREAM_LEGACY && enter(stream->handle);
	if (gm_reuse_in_order(gm_order_reuse(), record, stream))
		lose(stream->key);
	leave(entered);
}

void gm_cache_tell_frees(void)
{
	struct gm_relaxed relaxed;
	struct named copy;

	if (gm_cache_frees_told || __atomic_exchange_n((bool *)&gm_cache_frees_told, true, __ATOMIC_ACQ_REL))
		return;
	relaxed = gm_relax();
	for (uint32_t at = 1; at < used; at++)
		if (use(key_at(at), &copy)) {
			mark(&copy);
			done_with(&copy);
		}
	gm_unrelax(&relaxed);
}

/* Whatever it was given so far is what it leaves to be waited for, unless its frees had an event, or
 * would have had. (Where it captures, an event would be the graph's.) */
void gm_cache_stream_ends(uint64_t key, CUstream stream)
{
	struct gm_relaxed relaxed;
	struct named copy, *place;

	if (!gm_cache_on() || !copy_of(key, &copy))
		return;
	if (!copy.freed && !copy.told && !copy.ending && !gm_stream_captures(stream, false)) {
		relaxed = gm_relax();
		if (!record_freed(&copy, stream))
			lose(key);
		gm_unrelax(&relaxed);
	}
	if (!gm_lock(&lock))
		return;
	place = find_locked(key);
	if (place)
		set_gone_locked(place);
	gm_unlock(&lock);
	wait_for_users(key, 0);
}

/* ---- how far they have come ---- */

struct asking { const struct named *stream; CUresult result; };

static int ask_stream(void *arg)
{
	struct asking *asking = arg;
	bool entered = asking->stream->stream == CU_STREAM_LEGACY && enter(asking->stream->handle);

	asking->result = GM_REAL(cuStreamQuery)(asking->stream->stream);
	leave(entered);
	return 0;
}

/* A stream must not be asked while it captures. */
static enum gm_cache_freed ask(const struct named *stream)
{
	struct asking asking = { .stream = stream, .result = CUDA_ERROR_NOT_READY };

	if (stream->over)
		return GM_FREED_COMPLETE;
	if (stream->ending)
		return GM_FREED_UNKNOWN;
	if (stream->told && !stream->freed && !stream->lost)
		return GM_FREED_COMPLETE;
	if (stream->freed && !stream->lost)
		asking.result = GM_REAL(cuEventQuery)(stream->freed);
	else if (stream->stream)
		gm_reuse_in_order(gm_order_reuse(), ask_stream, &asking);
	else
		return GM_FREED_UNKNOWN;
	return !asking.result ? GM_FREED_COMPLETE :
	       asking.result == CUDA_ERROR_NOT_READY ? GM_FREED_PENDING : GM_FREED_UNKNOWN;
}

enum gm_cache_freed gm_cache_stream_ask(uint64_t key)
{
	enum gm_cache_freed answer;
	struct named copy;

	if (!use(key, &copy))
		return GM_FREED_UNKNOWN;
	answer = ask(&copy);
	done_with(&copy);
	return answer;
}

static void look_at(const struct named *copy)
{
	enum gm_cache_freed seen = ask(copy);
	struct named *place;

	if (!gm_lock(&lock))
		return;
	place = find_locked(copy->key);
	if (place && copy->gone && seen == GM_FREED_COMPLETE)
		set_over_locked(place);
	else if (place && copy->gone && seen == GM_FREED_UNKNOWN && place->seen != seen)
		left++;
	if (place)
		place->seen = (uint8_t)seen;
	gm_unlock(&lock);
}

static void look(bool gone)
{
	struct gm_relaxed relaxed = gm_relax();
	struct named copy;

	for (uint32_t at = 1; at < used; at++) {
		if (!use(key_at(at), &copy))
			continue;
		if (!gone || (copy.gone && !copy.over))
			look_at(&copy);
		done_with(&copy);
	}
	gm_unrelax(&relaxed);
}

void gm_cache_streams_look(void)
{
	look(false);
}

uint32_t gm_cache_streams_left(void)
{
	look_for_ended_threads();
	if (pending)
		look(true);
	return left;
}

enum gm_cache_freed gm_cache_stream_seen(uint64_t key, bool *ret_gone)
{
	enum gm_cache_freed seen = GM_FREED_UNKNOWN;
	const struct named *place;

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

bool gm_cache_stream_behind(uint64_t key, uint64_t address, CUstream own)
{
	struct named copy;
	bool done = false;

	if (!use(key, &copy))
		return false;
	if (copy.freed && !copy.lost && !copy.ending)
		done = !GM_REAL(cuStreamWaitEvent)(own, copy.freed, 0) &&
		       !GM_REAL(cuMemFreeAsync)(address, own);
	else if (copy.stream > CU_STREAM_PER_THREAD && !copy.ending)
		done = !GM_REAL(cuMemFreeAsync)(address, copy.stream);
	done_with(&copy);
	return done;
}

void gm_cache_streams_forget(void)
{
	memset(streams, 0, sizeof(streams));
	memset(buckets, 0, sizeof(buckets));
	used = 1;
	unused = spares = 0;
	pending = left = of_threads = survivors = 0;
	lock = (struct gm_lock){ 0 };
	gm_cache_frees_told = false;
}
