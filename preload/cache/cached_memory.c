/*
 * cached_memory.c - the heaps by number, and their private memory: see cached_internal.h.
 *
 * Free links and free sets are no part of the journal: a reader can tell the free blocks by their
 * state. One array of links serves all heaps, since a block belongs to one at a time. A heap's
 * struct stays when the heap is dropped: who still has a pointer finds it dead. Only when DROPPED more
 * were dropped is it used again: longer than a call that had it can have lasted.
 *
 * Thread context: any. Lock: heaps, a leaf, for the numbers; an arena's is its owner's.
 */
#include "preload/cache/thread_cache.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "recorder/journal/sys.h"

#define CHUNK_BYTES (size_t)65536
#define DROPPED 1024u
#define NUMBERS_MOST (1u << 20)		/* heaps ever: contexts come and go */

struct gm_arena_chunk { struct gm_arena_chunk *next; size_t bytes; };

static struct {
	struct gm_lock lock;
	struct gm_arena arena;
	struct gm_free_link *links;	/* one for each block of the journal */
	_Atomic(struct gm_cached *) *by_number;
	_Atomic(uint32_t) count;	/* numbers given out */
	struct gm_cached *oldest, *newest;	/* dropped ones */
	uint32_t dropped;
} heaps;

/* Within the host's calls: its errno is kept. */
static void *map(size_t bytes)
{
	int saved_errno = errno;
	void *at = gm_sys.map(NULL, bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		at = NULL;
	else
		gm_sys.advise(at, bytes, MADV_DONTFORK);
	errno = saved_errno;
	return at;
}

void *gm_arena_take(struct gm_arena *arena, size_t bytes)
{
	void *at;

	bytes = (bytes + 63) & ~(size_t)63;
	if (bytes > arena->left) {
		size_t whole = bytes + 64 > CHUNK_BYTES ? bytes + 64 : CHUNK_BYTES;
		struct gm_arena_chunk *chunk = map(whole);

		if (!chunk)
			return NULL;
		*chunk = (struct gm_arena_chunk){ arena->chunks, whole };
		arena->chunks = chunk;
		arena->at = (uint8_t *)chunk + 64;
		arena->left = whole - 64;
	}
	at = arena->at;
	arena->at += bytes;
	arena->left -= bytes;
	return at;
}

void gm_arena_free(struct gm_arena *arena)
{
	while (arena->chunks) {
		struct gm_arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		gm_sys.unmap(chunk, chunk->bytes);
	}
	*arena = (struct gm_arena){ .chunks = NULL };
}

void gm_cached_begin(void)
{
	gm_tcache_begin();
	heaps.lock = (struct gm_lock){ .rank = GM_RANK_LEAF };
	heaps.arena = (struct gm_arena){ .chunks = NULL };
	heaps.links = NULL;
	heaps.by_number = NULL;
	gm_set(&heaps.count, 0);
	heaps.oldest = heaps.newest = NULL;
	heaps.dropped = 0;
}

/* A zeroed one. */
static struct gm_cached *take_locked(void)
{
	struct gm_cached *heap = heaps.oldest;

	if (heaps.dropped <= DROPPED)
		return gm_arena_take(&heaps.arena, sizeof(*heap));
	heaps.oldest = heap->next;
	heaps.dropped--;
	memset(heap, 0, sizeof(*heap));
	return heap;
}

void gm_cached_again(struct gm_cached *heap)
{
	if (!gm_lock(&heaps.lock))
		return;
	if (heaps.newest)
		heaps.newest->next = heap;
	else
		heaps.oldest = heap;
	heaps.newest = heap;
	heaps.dropped++;
	gm_unlock(&heaps.lock);
}

static struct gm_cached *make_locked(void)
{
	uint64_t blocks = gm_region(GM_REGION_BLOCKS)->capacity / sizeof(struct gm_block);
	uint32_t number = gm_get(&heaps.count) + 1;
	struct gm_cached *heap;

	if (!heaps.links)
		heaps.links = map(blocks * sizeof(*heaps.links));
	if (!heaps.by_number)
		heaps.by_number = map(NUMBERS_MOST * sizeof(heaps.by_number[0]));
	if (!heaps.links || !heaps.by_number || number >= NUMBERS_MOST)
		return NULL;
	heap = take_locked();
	if (!heap)
		return NULL;
	heap->number = number;
	gm_set_release(&heaps.count, number);
	return heap;
}

void *gm_cached_memory(size_t bytes)
{
	void *at;

	if (!gm_lock(&heaps.lock))
		return NULL;
	at = gm_arena_take(&heaps.arena, bytes);
	gm_unlock(&heaps.lock);
	return at;
}

struct gm_cached *gm_cached_make(struct gm_free_link **ret_links)
{
	struct gm_cached *heap;

	if (!gm_lock(&heaps.lock))
		return NULL;
	heap = make_locked();
	*ret_links = heaps.links;
	gm_unlock(&heaps.lock);
	return heap;
}

void gm_cached_publish(struct gm_cached *heap)
{
	gm_set_release(&heaps.by_number[heap->number], heap);
}

void gm_cached_retire(struct gm_cached *heap)
{
	gm_set_release(&heaps.by_number[heap->number], NULL);
}

struct gm_cached *gm_cached_by_number(uint32_t number)
{
	if (!gm_header_get() || !number || number > gm_get_acquire(&heaps.count))
		return NULL;
	return gm_get_acquire(&heaps.by_number[number]);
}

uint32_t gm_cached_count(void)
{
	return gm_header_get() ? gm_get_acquire(&heaps.count) : 0;
}
