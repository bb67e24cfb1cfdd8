/*
 * cache_stream.c - the streams that stream-ordered memory was served to, while they can be named.
 *
 * A segment goes back in the order of the stream it was used on. When the stream is destroyed its
 * key means nothing to the driver any more: from then on what was its goes back on a stream of our
 * own, which is made to wait for everything the destroyed one was given, once, at its end. Streams
 * also end with their context, unsaid.
 *
 * Thread context: any, inside a hook. Lock: a leaf. Signal context: none. Fork: forgotten.
 */
#include <string.h>

#include "preload/cache_heap.h"

#define STREAMS 4096u			/* a power of two; more are treated as destroyed ones */

struct named { uint64_t key; CUstream stream; uint32_t context; };

static struct named streams[STREAMS];
static uint32_t used;
static struct gm_lock lock;
__thread uint64_t gm_cache_stream_last;

/* Without the lock too: a key is stored last, and stays. */
static struct named *place_of(uint64_t key)
{
	uint32_t i = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 52) % STREAMS;
	uint64_t here;

	while ((here = __atomic_load_n(&streams[i].key, __ATOMIC_ACQUIRE)) != 0 && here != key)
		i = (i + 1) % STREAMS;
	return &streams[i];
}

void gm_cache_stream_met(uint64_t key, CUstream stream)
{
	CUcontext handle = NULL;
	struct named *place;
	uint32_t context;

	if (__atomic_load_n(&place_of(key)->key, __ATOMIC_RELAXED)) {
		gm_cache_stream_last = key;
		return;
	}
	if (GM_REAL(cuStreamGetCtx)(stream, &handle))
		return;
	context = gm_context_find(handle);
	if (gm_lock(&lock)) {
		place = place_of(key);
		if (!place->key && used < STREAMS / 2) {
			used++;
			place->stream = stream;
			place->context = context;
			__atomic_store_n(&place->key, key, __ATOMIC_RELEASE);
		}
		gm_unlock(&lock);
	}
	gm_cache_stream_last = key;
}

void gm_cache_streams_context_ended(uint32_t context)
{
	if (!gm_lock(&lock))
		return;
	for (uint32_t i = 0; i < STREAMS; i++)
		if (streams[i].context == context)
			streams[i].stream = NULL;
	gm_unlock(&lock);
}

bool gm_cache_stream_find(uint64_t key, CUstream *ret)
{
	struct named *place;

	if (!gm_lock(&lock))
		return false;
	place = place_of(key);
	*ret = place->key ? place->stream : NULL;
	gm_unlock(&lock);
	return *ret != NULL;
}

bool gm_cache_stream_forget(uint64_t key)
{
	struct named *place;
	bool there;

	if (!gm_lock(&lock))
		return false;
	place = place_of(key);
	there = place->key && place->stream;
	place->stream = NULL;		/* the key stays: runs have no holes, and it is never met again */
	gm_unlock(&lock);
	return there;
}

void gm_cache_streams_forget(void)
{
	memset(streams, 0, sizeof(streams));
	used = 0;
	lock = (struct gm_lock){ 0 };
}
