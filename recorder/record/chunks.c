/*
 * chunks.c - the chunk pool: see chunks.h.
 */
#include "recorder/record/chunks.h"

#include <errno.h>

#include "recorder/journal/journal.h"
#include "recorder/journal/sys.h"

#define AHEAD_FROM (UINT64_C(64) << 10)	/* bytes of history from which on more is backed ahead of need */
#define AHEAD_MOST (UINT64_C(2) << 20)	/* bytes that are backed ahead of need at most */
#define JOIN_MOST 64u			/* parts that gm_chunks_join backs, or waits for other threads, at most */
#define JOIN_PAUSES 32u			/* pauses in one such wait: some microseconds */

int gm_chunks_begin(uint32_t chunks)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;

	gm_rec.history = chunks != 0;
	*pool = (struct gm_chunk_pool){ .chunks = chunks, .limit = chunks, .wanted = chunks };
	gm_rec.shared_slot = (struct gm_slot){ .place = GM_CHUNK_FULL };
	if (!chunks)
		return 0;
	pool->closed = gm_map_private(chunks * sizeof(uint32_t));
	return pool->closed ? 0 : -errno;
}

void gm_chunks_end(void)
{
	if (gm_rec.pool.closed)
		gm_sys.unmap(gm_rec.pool.closed, gm_rec.pool.chunks * sizeof(uint32_t));
	gm_rec.pool.closed = NULL;
}

static struct gm_chunk *chunk_at(uint32_t index)
{
	return (void *)(gm_rec.events + (uint64_t)index * GM_CHUNK_BYTES);
}

void gm_chunk_close_locked(struct gm_slot *slot)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;

	if (!slot->chunk)
		return;
	gm_set(&slot->chunk->state, GM_CHUNK_CLOSED);
	gm_set_release(&gm_rec.threads[slot->index].chunk, 0);
	pool->closed[(pool->closed_first + pool->closed_count++) % pool->chunks] =
		(uint32_t)(((uint8_t *)slot->chunk - gm_rec.events) / GM_CHUNK_BYTES);
	pool->owned -= slot != &gm_rec.shared_slot;
	slot->chunk = NULL;
	slot->place = GM_CHUNK_FULL;
}

void gm_chunk_open_locked(struct gm_slot *slot, uint32_t index)
{
	bool shared = slot == &gm_rec.shared_slot;
	struct gm_thread *thread = &gm_rec.threads[slot->index];
	struct gm_chunk *chunk = chunk_at(index);
	/* Raise the generation first, because this invalidates all events that the chunk held before. */
	uint64_t generation = gm_get(&chunk->generation) + 1;

	gm_set_release(&chunk->generation, generation);
	gm_order();
	__atomic_store_n(&chunk->first_tsc, gm_stamp(), __ATOMIC_RELAXED);
	gm_set(&chunk->last_tsc, 0);
	chunk->slot = slot->index;
	chunk->tid = gm_get(&thread->tid);
	gm_set_release(&chunk->state, shared ? GM_CHUNK_SHARED : GM_CHUNK_OPEN);
	gm_set_release(&thread->chunk, index + 1);
	gm_rec.pool.owned += !shared;
	slot->chunk = chunk;
	slot->commit = generation << 8;
	slot->place = 1;
}

/* Return up to which byte the history should be backed when @used bytes are in use: as much again, within limits. */
static uint64_t ahead_of(const struct gm_chunk_pool *pool, uint64_t used)
{
	uint64_t most = (uint64_t)pool->wanted * GM_CHUNK_BYTES;
	uint64_t upto = used < AHEAD_FROM ? 0 : used + (used < AHEAD_MOST ? used : AHEAD_MOST);

	return upto < most ? upto : most;
}

/* Take a chunk that was never opened, and back it by memory. */
static bool take_fresh_locked(struct gm_header *header, uint32_t *ret_index)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	uint64_t end = ((uint64_t)pool->fresh + 1) * GM_CHUNK_BYTES;

	if (pool->fresh >= pool->wanted)
		return false;
	if (!pool->closed_count)		/* no closed chunk to recycle: try to grow at once */
		gm_rec.patience[GM_REGION_EVENTS] = 0;
	if (gm_region_reserve_locked(header, GM_REGION_EVENTS, end) < 0) {
		pool->limit = pool->fresh;
		return false;
	}
	gm_set_release(&header->regions[GM_REGION_EVENTS].used, end);
	pool->limit = pool->chunks;
	gm_set(&pool->ahead, ahead_of(pool, end));
	*ret_index = pool->fresh++;
	return true;
}

/* Take the oldest closed chunk, and drop its events by raising the horizon. */
static bool take_closed_locked(struct gm_header *header, uint32_t *ret_index)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	uint64_t last;

	if (!pool->closed_count)
		return false;
	*ret_index = pool->closed[pool->closed_first];
	pool->closed_first = (pool->closed_first + 1) % pool->chunks;
	pool->closed_count--;
	last = gm_get(&chunk_at(*ret_index)->last_tsc);
	if (last > gm_get(&header->horizon))
		gm_set_release(&header->horizon, last);
	return true;
}

void gm_chunks_ask(struct gm_header *header)
{
	const struct gm_region *region = &header->regions[GM_REGION_EVENTS];
	uint64_t used = gm_get(&region->used), populated = gm_get(&region->populated);
	uint64_t upto = gm_get(&gm_rec.pool.ahead);

	if (upto <= used || populated >= used + (upto - used) / 2 || !gm_get(&header->has_helper))
		return;
	/* Do not ask twice. But ask again if no backed memory is left, because the helper thread may have gone to sleep
	 * just before it was asked. */
	if (gm_get(&gm_rec.pool.asked) && populated > used)
		return;
	gm_set(&gm_rec.pool.asked, 1);
	gm_helper_wake(header);
}

void gm_chunks_join(struct gm_header *header)
{
	const struct gm_region *region = &header->regions[GM_REGION_EVENTS];

	for (unsigned int i = 0; i < JOIN_MOST; i++) {
		uint64_t used = gm_get(&region->used), ahead = gm_get(&gm_rec.pool.ahead);

		if (gm_get(&region->populated) > used || ahead <= used)
			return;
		if (gm_region_reserve_ahead(header, GM_REGION_EVENTS, ahead))
			continue;
		if (!gm_get(&gm_rec.growth.working))	/* no other thread backs a part, so memory was refused */
			return;
		for (unsigned int n = 0; n < JOIN_PAUSES; n++)
			gm_pause();
	}
}

bool gm_chunks_ahead(struct gm_header *header)
{
	if (!gm_get(&gm_rec.pool.asked))
		return false;
	if (gm_region_reserve_ahead(header, GM_REGION_EVENTS, gm_get(&gm_rec.pool.ahead)))
		return true;
	gm_set(&gm_rec.pool.asked, 0);
	return false;
}

bool gm_chunk_take_locked(const struct gm_slot *slot, uint32_t *ret_index)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;
	struct gm_header *header = gm_header_get();
	uint32_t most = (pool->limit < pool->wanted ? pool->limit : pool->wanted) / 2;

	if (slot != &gm_rec.shared_slot && pool->owned >= most)
		return false;
	return take_fresh_locked(header, ret_index) || take_closed_locked(header, ret_index);
}
