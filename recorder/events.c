/*
 * events.c - the chunk pool: see events.h.
 *
 * Lock: journal for the pool, shared for the shared chunk. Who wants a chunk holds the lock of a
 * domain, so that everything here is brief: growth is a step of 16 chunks at most.
 */
#include "recorder/events.h"

#include <errno.h>
#include <sys/mman.h>

#include "recorder/sys.h"

#define SHARED_WAIT_NS UINT64_C(100000000)
#define TICK_WAIT_NS UINT64_C(10000000)	/* the next tick will do */

int gm_events_begin(uint32_t chunks)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;

	gm_rec.history = chunks != 0;
	*pool = (struct gm_chunk_pool){ .chunks = chunks, .limit = chunks, .wanted = chunks };
	gm_rec.shared_slot = (struct gm_slot){ .place = GM_CHUNK_FULL };
	if (!chunks)
		return 0;
	pool->closed = gm_sys.map(NULL, chunks * sizeof(uint32_t), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pool->closed == MAP_FAILED) {
		pool->closed = NULL;
		return -errno;
	}
	gm_sys.advise(pool->closed, chunks * sizeof(uint32_t), MADV_DONTFORK);
	return 0;
}

void gm_events_end(void)
{
	if (gm_rec.pool.closed)
		gm_sys.unmap(gm_rec.pool.closed, gm_rec.pool.chunks * sizeof(uint32_t));
	gm_rec.pool.closed = NULL;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t index_of(const struct gm_chunk *chunk)
{
	return (uint32_t)(((const uint8_t *)chunk - gm_rec.events) / GM_CHUNK_BYTES);
}

void gm_chunk_close_locked(struct gm_slot *slot)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;

	if (!slot->chunk)
		return;
	gm_set(&slot->chunk->state, GM_CHUNK_CLOSED);
	gm_set_release(&gm_rec.threads[slot->index].chunk, 0);
	pool->closed[(pool->closed_first + pool->closed_count++) % pool->chunks] =
		index_of(slot->chunk);
	pool->owned -= slot != &gm_rec.shared_slot;
	slot->chunk = NULL;
	slot->place = GM_CHUNK_FULL;
}

/* A chunk that nobody has: a fresh one, else the oldest closed one, whose events end here. */
static struct gm_chunk *take_locked(struct gm_header *header)
{
	struct gm_region *region = &header->regions[GM_REGION_EVENTS];
	struct gm_chunk_pool *pool = &gm_rec.pool;
	struct gm_chunk *chunk;
	uint64_t last;

	if (pool->fresh < pool->wanted) {
		uint64_t end = (pool->fresh + UINT64_C(1)) * GM_CHUNK_BYTES;

		if (!pool->closed_count)	/* nothing else to be had: ask again at once */
			gm_rec.patience[GM_REGION_EVENTS] = 0;
		if (gm_region_reserve_locked(header, GM_REGION_EVENTS, end) == 0) {
			gm_set_release(&region->used, end);
			pool->limit = pool->chunks;
			return (void *)(gm_rec.events + (uint64_t)pool->fresh++ * GM_CHUNK_BYTES);
		}
		pool->limit = pool->fresh;	/* until memory is granted again */
	}
	if (!pool->closed_count)
		return NULL;
	chunk = (void *)(gm_rec.events +
			 (uint64_t)pool->closed[pool->closed_first] * GM_CHUNK_BYTES);
	pool->closed_first = (pool->closed_first + 1) % pool->chunks;
	pool->closed_count--;
	last = gm_get(&chunk->last_tsc);
	if (last > gm_get(&header->horizon))
		gm_set_release(&header->horizon, last);
	return chunk;
}

/* Give @slot an empty chunk for its full one. */
static bool refill_locked(struct gm_header *header, struct gm_slot *slot)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	bool shared = slot == &gm_rec.shared_slot;
	struct gm_thread *thread = &gm_rec.threads[slot->index];
	struct gm_chunk *chunk;
	uint64_t generation;

	gm_chunk_close_locked(slot);
	if (!shared && pool->owned + 1 > least(pool->limit, pool->wanted) / 2)
		return false;
	chunk = take_locked(header);
	if (!chunk)
		return false;
	/* The generation first: from here on no event of the chunk's last life is valid. */
	generation = gm_get(&chunk->generation) + 1;
	gm_set_release(&chunk->generation, generation);
	__atomic_store_n(&chunk->first_tsc, gm_stamp(), __ATOMIC_RELAXED);
	gm_set(&chunk->last_tsc, 0);
	chunk->slot = slot->index;
	chunk->tid = gm_get(&thread->tid);
	chunk->count = 0;
	gm_set_release(&chunk->state, shared ? GM_CHUNK_SHARED : GM_CHUNK_OPEN);
	gm_set_release(&thread->chunk, index_of(chunk) + 1);
	slot->chunk = chunk;
	slot->commit = generation << 8;
	slot->place = 1;
	pool->owned += !shared;
	return true;
}

static bool refill(struct gm_slot *slot, bool nested)
{
	struct gm_header *header = gm_header_get();
	bool done;

	if (!gm_lock_within(&gm_rec.journal, gm_patience(nested)))
		return false;
	done = refill_locked(header, slot);
	/* The threads that have ended may hold what is wanted. */
	if (!done && slot != &gm_rec.shared_slot && gm_threads_sweep_locked())
		done = refill_locked(header, slot);
	gm_unlock(&gm_rec.journal);
	return done;
}

struct gm_slot *gm_event_slot_slow(const struct gm_writer *writer)
{
	struct gm_slot *slot = writer->slot;

	if (!gm_rec.pool.chunks)
		return NULL;			/* no history */
	if (slot && slot->chunk_wait) {
		slot->chunk_wait--;
	} else if (slot) {
		if (refill(slot, false))
			return slot;
		slot->chunk_wait = GM_CHUNK_EVENTS;
	}
	if (!gm_lock_within(&gm_rec.shared, writer->nested ? 0 : SHARED_WAIT_NS))
		goto lost;
	if (gm_rec.shared_slot.place < GM_CHUNK_FULL || refill(&gm_rec.shared_slot, writer->nested))
		return &gm_rec.shared_slot;
	gm_unlock(&gm_rec.shared);
lost:
	gm_count(&gm_header_get()->events_lost, 1);
	return NULL;
}

void gm_events_tick(void)
{
	struct gm_header *header = gm_header_get();
	struct gm_chunk_pool *pool = &gm_rec.pool;

	if (!gm_lock_within(&gm_rec.journal, TICK_WAIT_NS))
		return;
	pool->limit = pool->chunks;
	gm_rec.patience[GM_REGION_EVENTS] = 0;
	/* Have the next chunk's memory there before a hook waits for it. */
	if (pool->fresh && pool->fresh < pool->wanted &&
	    gm_region_reserve_locked(header, GM_REGION_EVENTS,
				     (pool->fresh + UINT64_C(1)) * GM_CHUNK_BYTES) < 0)
		pool->limit = pool->fresh;
	gm_unlock(&gm_rec.journal);
}
