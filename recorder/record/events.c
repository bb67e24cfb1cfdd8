/*
 * events.c - the chunk pool, and which events are written: see events.h.
 *
 * Lock: journal for the pool, shared for the shared chunk. Who wants a chunk holds the lock of a
 * domain, or its own thread cache, so that everything here is brief: memory for 16 chunks at most.
 */
#include "recorder/record/events.h"

#include <errno.h>
#include <sys/mman.h>

#include "recorder/journal/journal.h"
#include "recorder/journal/sys.h"

#define SHARED_WAIT_NS UINT64_C(100000000)
#define LOCK_NS UINT64_C(1000000000)	/* for each domain, where the history is switched */
#define LEAST_CHUNKS 256u		/* of the pool, however few events are asked for */
#define ALL_ACTIONS ((1u << GM_ACTION_COUNT) - 1)

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

/* ---- the pool ---- */

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

static void open_locked(struct gm_slot *slot, uint32_t index)
{
	bool shared = slot == &gm_rec.shared_slot;
	struct gm_thread *thread = &gm_rec.threads[slot->index];
	struct gm_chunk *chunk = chunk_at(index);
	/* The generation first: from here on no event of the chunk's last life is valid. */
	uint64_t generation = gm_get(&chunk->generation) + 1;

	gm_set_release(&chunk->generation, generation);
	__atomic_store_n(&chunk->first_tsc, gm_stamp(), __ATOMIC_RELAXED);
	gm_set(&chunk->last_tsc, 0);
	chunk->slot = slot->index;
	chunk->tid = gm_get(&thread->tid);
	chunk->count = 0;
	gm_set_release(&chunk->state, shared ? GM_CHUNK_SHARED : GM_CHUNK_OPEN);
	gm_set_release(&thread->chunk, index + 1);
	gm_rec.pool.owned += !shared;
	slot->chunk = chunk;
	slot->commit = generation << 8;
	slot->place = 1;
}

/* One that nobody ever wrote to, with memory behind it. */
static bool take_fresh_locked(struct gm_header *header, uint32_t *ret_index)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	uint64_t end = ((uint64_t)pool->fresh + 1) * GM_CHUNK_BYTES;

	if (pool->fresh >= pool->wanted)
		return false;
	if (!pool->closed_count)		/* nothing else to be had: ask again at once */
		gm_rec.patience[GM_REGION_EVENTS] = 0;
	if (gm_region_reserve_locked(header, GM_REGION_EVENTS, end) < 0) {
		pool->limit = pool->fresh;
		return false;
	}
	gm_set_release(&header->regions[GM_REGION_EVENTS].used, end);
	pool->limit = pool->chunks;
	*ret_index = pool->fresh++;
	return true;
}

/* The oldest closed one, whose events end here. */
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

static bool take_locked(struct gm_header *header, const struct gm_slot *slot, uint32_t *ret_index)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;
	uint32_t most = (pool->limit < pool->wanted ? pool->limit : pool->wanted) / 2;

	if (slot != &gm_rec.shared_slot && pool->owned >= most)
		return false;
	return take_fresh_locked(header, ret_index) || take_closed_locked(header, ret_index);
}

/* A chunk for the full one of @slot. */
static bool refill(struct gm_slot *slot, bool nested)
{
	struct gm_header *header = gm_header_get();
	uint32_t index;
	bool found;

	if (!gm_lock_within(&gm_rec.journal, gm_patience(nested)))
		return false;
	gm_chunk_close_locked(slot);
	found = take_locked(header, slot, &index);
	/* The threads that have ended may hold what is wanted. */
	if (!found && slot != &gm_rec.shared_slot && gm_threads_sweep_locked())
		found = take_locked(header, slot, &index);
	if (found)
		open_locked(slot, index);
	gm_unlock(&gm_rec.journal);
	return found;
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

/* ---- which events are written ---- */

void gm_history_begin(struct gm_header *header, const struct gm_recorder_config *config)
{
	uint32_t left_out = config->history_left_out & ALL_ACTIONS;

	header->history_left_out = left_out;
	header->history_min_size = config->history_min_size;
	gm_rec.min_size = config->history_min_size;
	gm_set(&gm_rec.left_out, left_out);
}

void gm_event_left_out(struct gm_event_counts *counts, enum gm_action action)
{
	bool by_option = gm_header_get()->history_left_out >> action & 1;
	_Atomic(uint64_t) *count = by_option ? &counts->left_out : &counts->paused;

	gm_set(count, gm_get(count) + 1);
}

/* Chunks for @newest events: twice as many, because a chunk goes as a whole, and those of some threads
 * are not full. */
static uint32_t chunks_for(uint64_t newest)
{
	uint64_t chunks = newest / GM_CHUNK_EVENTS * 2 + 2;

	if (chunks < LEAST_CHUNKS)
		chunks = LEAST_CHUNKS;
	return newest && chunks < gm_rec.pool.chunks ? (uint32_t)chunks : gm_rec.pool.chunks;
}

static void set_history_locked(struct gm_header *header, const struct gm_history *history)
{
	bool was_on = gm_get(&header->history_enabled) == GM_HISTORY_ALL;
	bool on = history->enabled == GM_HISTORY_ALL;
	uint64_t now = gm_stamp();

	if (on != was_on && now > gm_get(&header->horizon))
		gm_set_release(&header->horizon, now);
	gm_set(&gm_rec.left_out, on ? header->history_left_out : ALL_ACTIONS);
	gm_rec.pool.wanted = chunks_for(history->newest);
	gm_set(&header->history_newest, history->newest);
	gm_set(&header->history_context, history->context);
	gm_set(&header->history_stacks, history->stacks);
	gm_set(&header->history_enabled, history->enabled);
}

/* With every domain locked, so that no operation leaves half of its events. */
int gm_record_history(const struct gm_history *history)
{
	struct gm_header *header = gm_header_get();
	struct gm_held held;
	int r = -ETIMEDOUT;

	if (!header)
		return -ENODEV;
	if (history->enabled >= GM_HISTORY_COUNT)
		return -EINVAL;
	if (gm_recorder_lock_all(LOCK_NS, &held) && gm_lock(&gm_rec.journal)) {
		set_history_locked(header, history);
		gm_unlock(&gm_rec.journal);
		r = 0;
	}
	gm_recorder_unlock_all(&held);
	return r;
}
