/*
 * events.c - the chunk pool: see events.h.
 *
 * Lock: journal for the pool, shared for the shared chunk. Who wants a chunk holds the lock of a
 * domain, or its own thread cache, so that everything here is brief: memory for GM_RUN_MOST chunks at most.
 */
#include "recorder/record/events.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>

#include "recorder/journal/sys.h"

#define SHARED_WAIT_NS UINT64_C(100000000)
#define TICK_WAIT_NS UINT64_C(10000000)	/* the next tick will do */
#define KEPT_PART 64u			/* of the pool: some of these parts are what all threads keep */
#define READY_PART 4u			/* of the chunks in use, that many more are kept ready */
#define READY_MOST 512u
#define ASK_FROM 256u			/* chunks in use: until then there is little to get ready */
#define READY_STEP 64u			/* got at once */
#define REFUSALS 64u			/* until memory that was refused is asked for again */

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

static struct gm_chunk *chunk_at(uint32_t index)
{
	return (void *)(gm_rec.events + (uint64_t)index * GM_CHUNK_BYTES);
}

/* ---- a slot's own chunks: its writer's business, under no lock of the pool's ---- */

/* Its chunk is full, or nobody writes there any more. */
static void close_chunk(struct gm_slot *slot)
{
	if (!slot->chunk)
		return;
	gm_set(&slot->chunk->state, GM_CHUNK_CLOSED);
	gm_set_release(&gm_rec.threads[slot->index].chunk, 0);
	slot->chunk = NULL;
	slot->place = GM_CHUNK_FULL;
}

static void open_chunk(struct gm_slot *slot, uint32_t index)
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
	slot->chunk = chunk;
	slot->commit = generation << 8;
	slot->place = 1;
}

static bool open_next(struct gm_slot *slot)
{
	close_chunk(slot);
	if (slot->run.at >= slot->run.count)
		return false;
	open_chunk(slot, slot->run.chunks[slot->run.at++]);
	return true;
}

/* ---- from the pool and back ---- */

static void queue_first_locked(struct gm_chunk_pool *pool, uint32_t index)
{
	pool->closed_first = (pool->closed_first + pool->chunks - 1) % pool->chunks;
	pool->closed[pool->closed_first] = index;
	pool->closed_count++;
}

/* What was filled goes to the end of the queue; what was never opened comes next. */
static void give_back_locked(struct gm_slot *slot)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	struct gm_run *run = &slot->run;

	for (uint32_t i = 0; i < run->at; i++)
		pool->closed[(pool->closed_first + pool->closed_count++) % pool->chunks] =
			run->chunks[i];
	for (uint32_t i = run->at; i < run->count; i++)
		queue_first_locked(pool, run->chunks[i]);
	pool->owned -= slot == &gm_rec.shared_slot ? 0 : run->count;
	run->count = run->at = 0;
}

void gm_chunk_close_locked(struct gm_slot *slot)
{
	close_chunk(slot);
	give_back_locked(slot);
}

static uint32_t chunks_in(const struct gm_chunk_range *list, uint32_t count)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += list[i].count;
	return sum;
}

/* Until memory is granted again. */
static void set_limit_locked(struct gm_chunk_pool *pool)
{
	pool->limit = pool->fresh - chunks_in(pool->unbacked, pool->unbacked_count);
}

/* How many chunks @slot may take at once, which had @before: more each time, as long as all of them
 * together keep a small part of the pool from being used again. */
static uint32_t at_once(const struct gm_slot *slot, uint32_t before)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;
	uint32_t share = least(pool->limit, pool->wanted) / KEPT_PART / gm_rec.slots_used;
	uint32_t half = least(pool->limit, pool->wanted) / 2;

	if (slot == &gm_rec.shared_slot)
		return 1;
	share = least(least(share, GM_RUN_MOST), 2 * before);
	if (pool->owned + share > half)
		share = 1;
	return pool->owned + 1 > half ? 0 : share ? share : 1;
}

/* @count of the last range of a list, at most. */
static struct gm_chunk_range cut(struct gm_chunk_range *list, uint32_t *length, uint32_t count)
{
	struct gm_chunk_range *last = &list[*length - 1];
	struct gm_chunk_range part = { last->first, least(count, last->count) };

	last->first += part.count;
	last->count -= part.count;
	*length -= !last->count;
	return part;
}

/* Chunks that nobody ever wrote to, @count at most: *@ret is the caller's, but if the result is 0 it
 * has no memory behind it yet. -errno: there are none. */
static int claim_locked(struct gm_header *header, uint32_t count, struct gm_chunk_range *ret)
{
	struct gm_region *region = &header->regions[GM_REGION_EVENTS];
	struct gm_chunk_pool *pool = &gm_rec.pool;
	uint64_t first = (uint64_t)pool->fresh * GM_CHUNK_BYTES, end;
	int r;

	if (pool->unbacked_count && !gm_rec.patience[GM_REGION_EVENTS]) {
		*ret = cut(pool->unbacked, &pool->unbacked_count, count);
		gm_count(&pool->growing, 1);
		return 0;
	}
	if (pool->unbacked_count + gm_get(&pool->growing) >= GM_GROWING_MOST ||
	    pool->fresh >= pool->wanted)
		return -EAGAIN;
	end = first + (uint64_t)least(count, pool->wanted - pool->fresh) * GM_CHUNK_BYTES;
	r = gm_region_claim_locked(header, GM_REGION_EVENTS, first + GM_CHUNK_BYTES, &end);
	if (r < 0)
		return r;
	gm_set_release(&region->used, end);
	*ret = (struct gm_chunk_range){ pool->fresh, (uint32_t)((end - first) / GM_CHUNK_BYTES) };
	pool->fresh += ret->count;
	pool->limit = pool->chunks;
	if (!r)
		gm_count(&pool->growing, 1);
	return r;
}

/* The oldest closed ones, whose events end here. */
static void take_closed_locked(struct gm_header *header, uint32_t count, struct gm_run *run)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	uint64_t horizon = gm_get(&header->horizon), before = horizon;

	run->count = least(count, pool->closed_count);
	for (uint32_t i = 0; i < run->count; i++) {
		uint32_t index = pool->closed[pool->closed_first];
		uint64_t last = gm_get(&chunk_at(index)->last_tsc);

		pool->closed_first = (pool->closed_first + 1) % pool->chunks;
		run->chunks[i] = index;
		horizon = last > horizon ? last : horizon;
	}
	pool->closed_count -= run->count;
	if (horizon > before)
		gm_set_release(&header->horizon, horizon);
}

/* What was claimed got no memory. */
static void refused_locked(struct gm_header *header, struct gm_chunk_range range)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;

	atomic_fetch_sub_explicit(&pool->growing, 1, memory_order_relaxed);
	pool->unbacked[pool->unbacked_count++] = range;
	gm_count(&header->regions[GM_REGION_EVENTS].refused, 1);
}

static int back(const struct gm_header *header, struct gm_chunk_range range)
{
	int r = gm_region_back(header, GM_REGION_EVENTS, (uint64_t)range.first * GM_CHUNK_BYTES,
			       (uint64_t)range.count * GM_CHUNK_BYTES);

	if (r == 0)
		atomic_fetch_sub_explicit(&gm_rec.pool.growing, 1, memory_order_release);
	return r;
}

/* Chunks for @slot, which has none. 1: they are there; 0: they need memory first, *@ret_range;
 * -errno: there are none. */
static int take_locked(struct gm_header *header, struct gm_slot *slot, uint32_t before,
		       struct gm_chunk_range *ret_range)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	uint32_t count = at_once(slot, before);
	struct gm_run *run = &slot->run;
	int r = -EAGAIN;

	if (!count)
		return -EAGAIN;
	if (!pool->closed_count)		/* nothing else to be had: ask again at once */
		gm_rec.patience[GM_REGION_EVENTS] = 0;
	if (pool->fresh < pool->wanted || pool->ready_count) {
		r = 1;
		if (pool->ready_count)
			*ret_range = cut(pool->ready, &pool->ready_count, count);
		else
			r = claim_locked(header, count, ret_range);
		if (r < 0)
			set_limit_locked(pool);
	}
	for (run->count = 0; r >= 0 && run->count < ret_range->count; run->count++)
		run->chunks[run->count] = ret_range->first + run->count;
	if (r < 0)
		take_closed_locked(header, count, run);
	pool->owned += slot == &gm_rec.shared_slot ? 0 : run->count;
	return r >= 0 ? r : run->count ? 1 : -EAGAIN;
}

/* Should the helper thread get memory ready, and does nobody know yet? */
static bool ask_locked(struct gm_chunk_pool *pool)
{
	if (pool->fresh < ASK_FROM || pool->fresh >= pool->wanted || gm_get(&pool->asked) ||
	    chunks_in(pool->ready, pool->ready_count) > least(pool->fresh / READY_PART, READY_MOST) / 2)
		return false;
	gm_set(&pool->asked, 1);
	return true;
}

void gm_helper_wake(struct gm_header *header)
{
	if (gm_get(&header->has_helper))
		gm_syscall(SYS_futex, (long)(uintptr_t)&header->request, FUTEX_WAKE, 1, 0, 0, 0);
}

/* @slot was promised chunks that got no memory: closed ones, then. */
static bool take_back_locked(struct gm_header *header, struct gm_slot *slot,
			     struct gm_chunk_range range)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	struct gm_run *run = &slot->run;
	uint32_t count = run->count;

	pool->owned -= slot == &gm_rec.shared_slot ? 0 : count;
	refused_locked(header, range);
	gm_rec.patience[GM_REGION_EVENTS] = REFUSALS;
	set_limit_locked(pool);
	take_closed_locked(header, count, run);
	pool->owned += slot == &gm_rec.shared_slot ? 0 : run->count;
	return run->count > 0;
}

/* A chunk for the full one of @slot. Memory is got without the lock, so that threads need not wait for
 * each other's; who may not wait (@nested) cannot take the lock again, and keeps it. */
static bool refill(struct gm_slot *slot, bool nested)
{
	struct gm_header *header = gm_header_get();
	struct gm_chunk_range range;
	uint32_t before = slot->run.count;
	bool ask;
	int r;

	if (open_next(slot))
		return true;
	if (!gm_lock_within(&gm_rec.journal, gm_patience(nested)))
		return false;
	give_back_locked(slot);
	r = take_locked(header, slot, before, &range);
	/* The threads that have ended may hold what is wanted. */
	if (r < 0 && slot != &gm_rec.shared_slot && gm_threads_sweep_locked())
		r = take_locked(header, slot, before, &range);
	if (r == 0 && slot == &gm_rec.shared_slot)
		r = back(header, range) == 0 || take_back_locked(header, slot, range) ? 1 : -EAGAIN;
	ask = ask_locked(&gm_rec.pool);
	gm_unlock(&gm_rec.journal);
	if (ask)
		gm_helper_wake(header);
	if (r == 0 && back(header, range) < 0) {
		if (!gm_lock(&gm_rec.journal)) {
			slot->run.count = 0;	/* and what it was promised is lost */
			return false;
		}
		r = take_back_locked(header, slot, range) ? 1 : -EAGAIN;
		gm_unlock(&gm_rec.journal);
	}
	return r >= 0 && open_next(slot);
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

/* How much is kept ready: a part of what there is, so that who writes little has little. */
static uint32_t ready_wanted(const struct gm_chunk_pool *pool)
{
	uint32_t more = pool->wanted > pool->fresh ? pool->wanted - pool->fresh : 0;
	uint32_t target = least(pool->fresh / READY_PART, READY_MOST);
	uint32_t ready = chunks_in(pool->ready, pool->ready_count);

	return pool->ready_count < GM_GROWING_MOST && ready < target ? least(target - ready, more) : 0;
}

/* Returns whether there may be more to do. */
static bool get_ready(struct gm_header *header)
{
	struct gm_chunk_pool *pool = &gm_rec.pool;
	struct gm_chunk_range range;
	int r = -EAGAIN;

	if (!gm_lock_within(&gm_rec.journal, TICK_WAIT_NS))
		return false;
	if (ready_wanted(pool))
		r = claim_locked(header, least(ready_wanted(pool), READY_STEP), &range);
	gm_unlock(&gm_rec.journal);
	if (r < 0)
		return false;
	r = r ? 0 : back(header, range);
	/* The helper thread may be wanted for the snapshot of a crash, of a thread that holds it. */
	if (!gm_lock_within(&gm_rec.journal, SHARED_WAIT_NS))
		return false;			/* and they are lost */
	if (r < 0)
		refused_locked(header, range);
	else if (pool->ready_count < GM_GROWING_MOST)
		pool->ready[pool->ready_count++] = range;
	else
		for (uint32_t i = 0; i < range.count; i++)
			queue_first_locked(pool, range.first + i);
	gm_unlock(&gm_rec.journal);
	return r == 0;
}

bool gm_events_ahead(void)
{
	struct gm_header *header = gm_header_get();
	struct gm_chunk_pool *pool = &gm_rec.pool;

	if (!header || !gm_get(&pool->asked))
		return false;
	for (uint32_t steps = 0; steps < READY_MOST / READY_STEP; steps++)
		if (!get_ready(header)) {
			gm_set(&pool->asked, 0);
			break;
		}
	return true;
}

bool gm_events_unbacked(void)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;

	return __atomic_load_n(&pool->unbacked_count, __ATOMIC_RELAXED) ||
	       atomic_load_explicit(&pool->growing, memory_order_acquire);
}

void gm_events_tick(void)
{
	struct gm_header *header = gm_header_get();
	struct gm_chunk_pool *pool = &gm_rec.pool;

	if (!gm_lock_within(&gm_rec.journal, TICK_WAIT_NS))
		return;
	pool->limit = pool->chunks;
	gm_rec.patience[GM_REGION_EVENTS] = 0;
	gm_unlock(&gm_rec.journal);
	while (get_ready(header))
		;
}
