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
 * Events and streams end with their context, unsaid: from before the driver's call on they are not
 * touched.
 *
 * Thread context: any, inside a hook. Lock: a leaf, never held over a driver call. Signal context:
 * none. Fork: forgotten.
 */
#include <errno.h>
#include <string.h>

#include "preload/cache_heap.h"
#include "preload/order.h"

#define STREAMS 4096u			/* a power of two; more are not known */

enum life { LIVES, DESTROYED, ENDING, ENDED };	/* of the stream; of its context */

struct named {
	uint64_t key;
	CUstream stream;		/* CU_STREAM_LEGACY: that of @handle; NULL: it cannot be asked */
	CUcontext handle;
	CUevent freed;			/* after the last free on it, or its end; NULL: none yet */
	uint32_t context;
	uint8_t life;
	bool told;			/* of all frees on it: without an event there was none */
	bool lost;			/* @freed could not be recorded once: it stands for nothing */
	_Atomic(bool) seen;		/* at the last look what was freed on it was complete */
};

static struct named streams[STREAMS];
static uint32_t used;
static struct gm_lock lock;
__thread uint64_t gm_cache_stream_last;
_Atomic(bool) gm_cache_frees_told;

/* Without the lock too: a key is stored last, and stays. */
static struct named *place_of(uint64_t key)
{
	uint32_t i = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 52) % STREAMS;
	uint64_t here;

	while ((here = __atomic_load_n(&streams[i].key, __ATOMIC_ACQUIRE)) != 0 && here != key)
		i = (i + 1) % STREAMS;
	return &streams[i];
}

static bool is_known(uint64_t key)
{
	return __atomic_load_n(&place_of(key)->key, __ATOMIC_RELAXED) != 0;
}

static bool copy_of(uint64_t key, struct named *ret_copy)
{
	struct named *place = place_of(key);
	bool known;

	if (!gm_lock(&lock))
		return false;
	known = place->key != 0;
	if (known)
		*ret_copy = *place;
	gm_unlock(&lock);
	return known;
}

/* ---- which there are ---- */

static void add(uint64_t key, CUstream stream, CUcontext handle)
{
	uint32_t context = gm_context_find(handle);
	struct named *place;

	if (!gm_lock(&lock))
		return;
	place = place_of(key);
	if (!place->key && used < STREAMS / 2) {
		used++;
		place->stream = stream;
		place->handle = handle;
		place->context = context;
		place->told = gm_cache_frees_told;
		__atomic_store_n(&place->key, key, __ATOMIC_RELEASE);
	}
	gm_unlock(&lock);
}

/* A thread's default stream has no name that another thread could use. */
static void meet(uint64_t key, CUstream stream)
{
	bool pseudo = stream <= CU_STREAM_PER_THREAD;
	CUcontext handle = NULL;

	if (pseudo ? GM_REAL(cuCtxGetCurrent)(&handle) : GM_REAL(cuStreamGetCtx)(stream, &handle))
		return;
	add(key, stream == CU_STREAM_PER_THREAD ? NULL : pseudo ? CU_STREAM_LEGACY : stream, handle);
}

/* Of threads' default streams there may be as many as threads ever were: they are asked for their
 * event, where there is one. */
void gm_cache_stream_met(uint64_t key, CUstream stream)
{
	if (stream != CU_STREAM_PER_THREAD && !is_known(key))
		meet(key, stream);
	gm_cache_stream_last = key;
}

void gm_cache_streams_ending(uint32_t context, bool ending)
{
	if (!gm_lock(&lock))
		return;
	for (uint32_t i = 0; i < STREAMS; i++)
		if (streams[i].context == context && streams[i].life != ENDED)
			streams[i].life = ending ? ENDING : streams[i].stream ? LIVES : DESTROYED;
	gm_unlock(&lock);
}

void gm_cache_streams_context_ended(uint32_t context)
{
	if (!gm_lock(&lock))
		return;
	for (uint32_t i = 0; i < STREAMS; i++)
		if (streams[i].key && streams[i].context == context) {
			streams[i].stream = NULL;
			streams[i].freed = NULL;
			streams[i].life = ENDED;
		}
	gm_unlock(&lock);
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

/* The event of @key, made when there is none; NULL: there can be none. */
static CUevent event_of(uint64_t key)
{
	CUevent event, made = NULL;
	struct named copy;
	bool entered;

	if (!copy_of(key, &copy) || copy.lost || copy.life >= ENDING)
		return NULL;
	if (copy.freed)
		return copy.freed;
	entered = enter(copy.handle);
	if (GM_REAL(cuEventCreate)(&made, CU_EVENT_DISABLE_TIMING))
		made = NULL;
	leave(entered);
	if (!made || !gm_lock(&lock))
		return NULL;
	if (!place_of(key)->freed)	/* else another thread was first: one is never used */
		place_of(key)->freed = made;
	event = place_of(key)->freed;
	gm_unlock(&lock);
	return event;
}

static void lose(uint64_t key)
{
	if (!gm_lock(&lock))
		return;
	if (place_of(key)->key)
		place_of(key)->lost = true;
	gm_unlock(&lock);
}

/* A default stream's event could end a capture of another stream: then there is none. */
void gm_cache_stream_freed_slow(uint64_t key, CUstream stream)
{
	bool pseudo = stream <= CU_STREAM_PER_THREAD;
	struct gm_relaxed relaxed;
	CUevent event;

	relaxed = gm_relax();
	if (!is_known(key))
		meet(key, stream);
	event = event_of(key);
	if (!event || (pseudo && gm_capturing()) || GM_REAL(cuEventRecord)(event, stream))
		lose(key);
	gm_unrelax(&relaxed);
}

struct recording { CUevent event; CUstream stream; };

static int record(void *arg)
{
	const struct recording *recording = arg;

	return GM_REAL(cuEventRecord)(recording->event, recording->stream) ? -EIO : 0;
}

/* What was freed before the device was short: complete at the latest when its stream is here. */
static void mark(uint64_t key)
{
	struct recording recording;
	struct named copy;
	bool entered;

	if (!copy_of(key, &copy) || copy.life != LIVES || copy.freed || !copy.stream)
		return;
	recording.stream = copy.stream;
	recording.event = event_of(key);
	entered = copy.stream == CU_STREAM_LEGACY && enter(copy.handle);
	if (!recording.event || gm_reuse_in_order(gm_order_reuse(), record, &recording))
		lose(key);
	leave(entered);
}

void gm_cache_tell_frees(void)
{
	struct gm_relaxed relaxed;

	if (gm_cache_frees_told || __atomic_exchange_n((bool *)&gm_cache_frees_told, true, __ATOMIC_ACQ_REL))
		return;
	relaxed = gm_relax();
	for (uint32_t i = 0; used && i < STREAMS; i++) {
		uint64_t key = __atomic_load_n(&streams[i].key, __ATOMIC_ACQUIRE);

		if (key)
			mark(key);
	}
	gm_unrelax(&relaxed);
}

/* Whatever it was given so far is what it leaves to be waited for, unless its frees had an event.
 * (Where it captures, an event would be the graph's.) */
void gm_cache_stream_ends(uint64_t key, CUstream stream)
{
	struct gm_relaxed relaxed;
	struct named copy;
	CUevent event;

	if (!gm_cache_on() || !copy_of(key, &copy))
		return;
	if (!copy.freed && !gm_stream_captures(stream, false)) {
		relaxed = gm_relax();
		event = event_of(key);
		if (!event || GM_REAL(cuEventRecord)(event, stream))
			lose(key);
		gm_unrelax(&relaxed);
	}
	if (!gm_lock(&lock))
		return;
	place_of(key)->stream = NULL;	/* the key stays: runs have no holes, and it is never met again */
	if (place_of(key)->life == LIVES)
		place_of(key)->life = DESTROYED;
	gm_unlock(&lock);
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

	if (stream->life == ENDED)
		return GM_FREED_COMPLETE;
	if (stream->life == ENDING)
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
	struct named copy;

	return copy_of(key, &copy) ? ask(&copy) : GM_FREED_UNKNOWN;
}

/* What cannot be told counts as seen: cache_back.c finds another way for it. */
void gm_cache_streams_look(void)
{
	struct gm_relaxed relaxed = gm_relax();

	for (uint32_t i = 0; used && i < STREAMS; i++) {
		uint64_t key = __atomic_load_n(&streams[i].key, __ATOMIC_ACQUIRE);
		struct named copy;

		if (key && copy_of(key, &copy))
			streams[i].seen = ask(&copy) != GM_FREED_PENDING;
	}
	gm_unrelax(&relaxed);
}

bool gm_cache_stream_may_go(uint64_t key)
{
	const struct named *place = place_of(key);

	return !__atomic_load_n(&place->key, __ATOMIC_ACQUIRE) || place->seen;
}

bool gm_cache_stream_behind(uint64_t key, uint64_t address, CUstream own)
{
	struct named copy;

	if (!copy_of(key, &copy) || copy.life >= ENDING)
		return false;
	if (copy.freed && !copy.lost)
		return !GM_REAL(cuStreamWaitEvent)(own, copy.freed, 0) &&
		       !GM_REAL(cuMemFreeAsync)(address, own);
	return copy.stream > CU_STREAM_PER_THREAD && !GM_REAL(cuMemFreeAsync)(address, copy.stream);
}

void gm_cache_streams_forget(void)
{
	memset(streams, 0, sizeof(streams));
	used = 0;
	lock = (struct gm_lock){ 0 };
	gm_cache_frees_told = false;
}
