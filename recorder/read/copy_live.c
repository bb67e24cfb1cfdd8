/*
 * copy_live.c - copy this process's own journal as of one moment.
 *
 * Tables, threads and the fill level of each open chunk of events are copied under the locks of all
 * domains, with every thread kept out of its thread caches (except for locks and thread caches that a
 * crashed thread holds for ever). The rest is copied after the locks are released:
 *   - a chunk that was closed is complete;
 *   - a chunk that was open is cut where its writer was;
 *   - a chunk that was opened later has a first stamp behind the cut;
 *   - a chunk that was reused meanwhile has another generation, and the horizon, which is read last,
 *     covers its old events.
 * The append-only areas come last, so that they hold all records to which the rest refers.
 *
 * Thread context: the helper thread, a thread whose allocation failed, or a test; no domain's lock held.
 * Other threads write to the mapping meanwhile.
 */
#define _GNU_SOURCE
#include "recorder/read/copy_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "recorder/journal/recorder.h"
#include "recorder/journal/state.h"

#define LOCK_LIMIT_NS UINT64_C(100000000)
#define LEFT_LEAST (UINT64_C(1) << 20)	/* bytes to leave in a control group beside the copy and its JSON */

static const enum gm_region_id locked_regions[] = {
	GM_REGION_SEGMENTS, GM_REGION_BLOCKS, GM_REGION_USAGE, GM_REGION_TCACHES, GM_REGION_LIVES,
	GM_REGION_SITES
};

/* Copy words to which other threads may be storing. Each word is read whole and once, and an event's commit
 * word before its body. Not instrumented, because commit words, generations and locks say which words are
 * valid. */
__attribute__((no_sanitize("thread")))
static void copy_words(void *to, const void *from, uint64_t bytes)
{
	const uint64_t *source = from;
	uint64_t *target = to;

	for (uint64_t i = 0; i < bytes / 8; i++) {
		target[i] = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
#if !defined(__x86_64__)
		if (i % 8 == 0)
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
	}
}

/* Return how far a region is in use now. Takes the layout that was validated, because a program with wild
 * pointers may have overwritten the live header. */
static uint64_t readable_now(const struct gm_copy *copy, const uint8_t *live,
			     enum gm_region_id r)
{
	const struct gm_region *now = &((const struct gm_header *)live)->regions[r];
	struct gm_region region = copy->header->regions[r];

	region.used = now->used;
	region.populated = now->populated;
	return gm_copy_readable(&region);
}

/* Copy the header, but keep the layout that was validated. */
static void copy_header(struct gm_copy *copy, const uint8_t *live)
{
	copy_words(copy->base, live, GM_HEADER_BYTES);
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		copy->header->regions[r].offset = copy->layout[r].offset;
		copy->header->regions[r].capacity = copy->layout[r].capacity;
		copy->header->regions[r].item_bytes = copy->layout[r].item_bytes;
	}
}

static void copy_region(struct gm_copy *copy, const uint8_t *live, enum gm_region_id r)
{
	uint64_t offset = copy->header->regions[r].offset;

	copy->copied[r] = readable_now(copy, live, r);
	copy_words(copy->base + offset, live + offset, copy->copied[r]);
}

/* Copy the domains. An undo area is copied only if a change is under way, which is rare. */
static void copy_domains(struct gm_copy *copy, const uint8_t *live)
{
	const struct gm_region *region = &copy->header->regions[GM_REGION_DOMAINS];

	copy->copied[GM_REGION_DOMAINS] = gm_copy_readable(region);
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		struct gm_domain *domain = gm_copy_domain(copy, d);
		uint64_t at = region->offset + (uint64_t)d * region->item_bytes;

		if (!domain)
			break;
		copy_words(domain, live + at, offsetof(struct gm_domain, undo));
		if (domain->undo_op)
			copy_words(domain->undo, live + at + offsetof(struct gm_domain, undo),
				   sizeof(domain->undo));
	}
}

/* Copy the threads, which may begin and end operations meanwhile. A flight is kept if its operation is the same
 * before and after the copying; otherwise it began after the cut. */
static void copy_threads(struct gm_copy *copy, const uint8_t *live)
{
	const struct gm_region *region = &copy->header->regions[GM_REGION_THREADS];
	uint64_t length = gm_copy_readable(region);

	copy->copied[GM_REGION_THREADS] = length;
	for (uint64_t at = 0; at < length; at += sizeof(struct gm_thread)) {
		const struct gm_thread *from = (const void *)(live + region->offset + at);
		struct gm_thread *to = (void *)(copy->base + region->offset + at);

		for (unsigned int try = 0; try < 3; try++) {
			copy_words(to, from, sizeof(*to));
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (to->flight_op == __atomic_load_n((const uint64_t *)&from->flight_op,
							     __ATOMIC_RELAXED))
				break;
			to->flight_op = 0;
		}
	}
}

static const struct gm_chunk *chunk_at(const uint8_t *base, const struct gm_region *events,
				       uint64_t index)
{
	return (const void *)(base + events->offset + index * GM_CHUNK_BYTES);
}

/* Store the fill level of each open chunk in its head in the copy, which is otherwise still zero. */
static void mark_open_chunks(struct gm_copy *copy, const uint8_t *live)
{
	const struct gm_region *events = &copy->header->regions[GM_REGION_EVENTS];
	uint64_t chunks = gm_copy_readable(events) / GM_CHUNK_BYTES;
	const struct gm_thread *threads = (const void *)
		(copy->base + copy->header->regions[GM_REGION_THREADS].offset);

	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_THREADS); i++) {
		uint32_t number = threads[i].chunk;
		const struct gm_event *written;
		const struct gm_chunk *chunk;
		struct gm_chunk *copied;
		uint64_t generation;
		uint32_t count;

		if (!number || number > chunks)
			continue;
		chunk = chunk_at(live, events, number - 1);
		copied = (struct gm_chunk *)chunk_at(copy->base, events, number - 1);
		generation = __atomic_load_n((const uint64_t *)&chunk->generation, __ATOMIC_ACQUIRE);
		written = (const struct gm_event *)chunk;
		for (count = 0; count < GM_CHUNK_EVENTS; count++)
			if (__atomic_load_n((const uint64_t *)&written[count + 1].commit,
					    __ATOMIC_ACQUIRE) != (generation << 8 | (count + 1)))
				break;
		copied->generation = generation;
		copied->count = count;
	}
}

static void copy_tables(struct gm_copy *copy, const uint8_t *live)
{
	copy_header(copy, live);
	copy_domains(copy, live);
	copy_threads(copy, live);
	for (unsigned int i = 0; i < sizeof(locked_regions) / sizeof(locked_regions[0]); i++)
		copy_region(copy, live, locked_regions[i]);
	mark_open_chunks(copy, live);
}

static void copy_chunk(struct gm_copy *copy, const struct gm_chunk *from, struct gm_chunk *to)
{
	bool open = to->generation != 0;
	uint64_t open_generation = to->generation;
	uint32_t limit = open ? to->count : GM_CHUNK_EVENTS;
	uint64_t generation = __atomic_load_n((const uint64_t *)&from->generation,
					      __ATOMIC_ACQUIRE);
	struct gm_event *events = (struct gm_event *)to;

	if (!generation) {
		to->generation = 0;
		return;
	}
	copy_words(to, from, GM_CHUNK_BYTES);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n((const uint64_t *)&from->generation, __ATOMIC_RELAXED) != generation ||
	    __atomic_load_n(&from->first_tsc, __ATOMIC_RELAXED) > copy->cut_tsc ||
	    (open && generation != open_generation))
		to->generation = 0;
	for (uint32_t place = limit + 1; place <= GM_CHUNK_EVENTS; place++)
		events[place].commit = 0;
}

/* Copy the chunks. Chunks that were opened after the locks were released hold no event of this copy. */
static void copy_events(struct gm_copy *copy, const uint8_t *live)
{
	const struct gm_region *events = &copy->header->regions[GM_REGION_EVENTS];
	uint64_t chunks = gm_copy_readable(events) / GM_CHUNK_BYTES;

	copy->copied[GM_REGION_EVENTS] = chunks * GM_CHUNK_BYTES;
	gm_copy_touch(copy, events->offset, chunks * GM_CHUNK_BYTES);
	for (uint64_t c = 0; c < chunks; c++)
		copy_chunk(copy, chunk_at(live, events, c),
			   (struct gm_chunk *)chunk_at(copy->base, events, c));
	copy->header->horizon = ((const struct gm_header *)live)->horizon;
}

static void copy_clock(struct gm_copy *copy, const struct gm_header *live)
{
	const uint32_t *sequence = (const uint32_t *)&live->clock.sequence;

	for (unsigned int try = 0; try < 1000; try++) {
		uint32_t before = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);

		copy_words(&copy->header->clock, &live->clock, sizeof(live->clock) & ~(size_t)7);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && before == __atomic_load_n(sequence, __ATOMIC_RELAXED))
			return;
	}
}

/* As stood_still, for the thread caches that were not held. */
static bool thread_caches_stood_still(const struct gm_copy *copy, const uint8_t *live,
				      const struct gm_held *held)
{
	uint64_t at = copy->header->regions[GM_REGION_TCACHES].offset;
	struct gm_tcache_record now;

	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_TCACHES); i++) {
		const struct gm_tcache_record *copied = gm_copy_tcache(copy, i);

		if (copied->slot < GM_MAX_THREADS && held->slots[copied->slot / 64] >> copied->slot % 64 & 1)
			continue;
		copy_words(&now, live + at + i * sizeof(now), offsetof(struct gm_tcache_record, undo));
		if (memcmp(&now, copied, offsetof(struct gm_tcache_record, undo)))
			return false;
	}
	return true;
}

/* Have the domains whose lock was not free stood still since they were copied? If so, the thread that holds
 * the lock has crashed, and the undo area has the words that it was changing. A thread that was only off the
 * processor changes the domain with the first event that it writes. */
static __attribute__((noinline)) bool stood_still(const struct gm_copy *copy, const uint8_t *live,
			const struct gm_held *held)
{
	const struct gm_region *region = &copy->header->regions[GM_REGION_DOMAINS];
	struct gm_domain now;

	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *copied = gm_copy_domain(copy, d);

		if (held->domain[d] || !copied)
			continue;
		copy_words(&now, live + region->offset + (uint64_t)d * region->item_bytes,
			   offsetof(struct gm_domain, undo));
		now.free_bytes = copied->free_bytes;	/* sampled, under no lock */
		now.unattributed_bytes = copied->unattributed_bytes;
		now.free_stamp = copied->free_stamp;
		if (memcmp(&now, copied, offsetof(struct gm_domain, undo)))
			return false;
	}
	return thread_caches_stood_still(copy, live, held);
}

static void touch_tables(struct gm_copy *copy)
{
	const struct gm_region *regions = copy->header->regions;

	gm_copy_touch(copy, regions[GM_REGION_DOMAINS].offset,
		       (uint64_t)GM_DOMAINS * regions[GM_REGION_DOMAINS].item_bytes);
	gm_copy_touch(copy, regions[GM_REGION_THREADS].offset,
		       gm_copy_readable(&regions[GM_REGION_THREADS]));
	for (unsigned int i = 0; i < sizeof(locked_regions) / sizeof(locked_regions[0]); i++)
		gm_copy_touch(copy, regions[locked_regions[i]].offset,
			       gm_copy_readable(&regions[locked_regions[i]]));
}

static void copy_names(struct gm_copy *copy, const uint8_t *live)
{
	static const enum gm_region_id last[] = {
		GM_REGION_STACKS, GM_REGION_FRAMES, GM_REGION_MODULES, GM_REGION_SETTINGS,
		GM_REGION_STRINGS
	};

	for (unsigned int i = 0; i < sizeof(last) / sizeof(last[0]); i++)
		copy_region(copy, live, last[i]);
}

void gm_copy_renew_names(struct gm_copy *copy)
{
	if (gm_header_get() && gm_rec.bytes == copy->bytes)
		copy_names(copy, gm_rec.base);
}

/* Does the control group leave enough memory for a copy and for writing a snapshot of it? */
static bool affordable(const struct gm_copy *copy)
{
	uint64_t left = gm_get(&gm_rec.left), bytes = 0;

	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)
		bytes += copy->header->regions[r].populated;
	return left == UINT64_MAX || left / 2 > bytes + LEFT_LEAST / 2;
}

int gm_copy_from_process(struct gm_copy *copy)
{
	const uint8_t *live = gm_rec.base;
	uint64_t bytes = gm_rec.bytes, began;
	struct gm_held held;
	bool all, poor;
	int r;

	memset(copy, 0, sizeof(*copy));
	if (!gm_header_get())
		return -ENODEV;
	r = gm_copy_map(copy, bytes);
	if (r)
		return r;
	madvise(copy->base, bytes, MADV_DONTFORK);
	copy_words(copy->base, live, GM_HEADER_BYTES);
	memcpy(copy->layout, copy->header->regions, sizeof(copy->layout));
	r = gm_copy_validate(copy, bytes);
	poor = !r && !affordable(copy);
	if (r || poor) {
		gm_copy_free(copy);
		if (poor)
			snprintf(copy->error, sizeof(copy->error),
				 "its control group has too little memory left for a copy");
		return poor ? -ENOMEM : r;
	}
	/* Back the pages before taking the locks, so that the pause is the copying alone. */
	touch_tables(copy);
	for (uint8_t d = 0; d < GM_DOMAINS; d++)
		gm_record_late_frees(d, LOCK_LIMIT_NS);
	all = gm_recorder_lock_all(LOCK_LIMIT_NS, &held);
	began = gm_now_ns();
#if defined(__x86_64__)
	__builtin_ia32_lfence();	/* so that the stamp is not read before the locks are held */
#endif
	copy->cut_tsc = gm_stamp();
	copy_tables(copy, live);
	gm_recorder_unlock_all(&held);
	copy->locked_ns = gm_now_ns() - began;
	copy_events(copy, live);
	copy_clock(copy, (const struct gm_header *)live);
	copy_region(copy, live, GM_REGION_FAILURES);
	copy_names(copy, live);
	/* Checked last, so that it covers the time of copying the events, too. */
	copy->consistent = all || stood_still(copy, live, &held);
	return 0;
}
