/*
 * image_live.c - the copy of this process's own journal, one moment of it.
 *
 * Under the locks of all domains, and with every thread out of its shards (but those locks and shards
 * that a thread which crashed holds for ever): the tables, the threads, and how far each open chunk
 * of events has come. Everything else is copied when the locks are free again: a chunk closed by then is
 * complete, one that was open is cut where it had come to, one taken into use later says so by
 * its first stamp, one recycled meanwhile by its generation (and the horizon, read last, covers
 * what it held). The append-only areas come last: they hold whatever the rest refers to.
 *
 * Thread context: the helper thread, one whose allocation failed, or a test; no domain's lock held. Reads the mapping that
 * other threads are writing to. Fork: the copy is not the child's.
 */
#define _GNU_SOURCE
#include "recorder/read/image_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "recorder/record/events.h"
#include "recorder/journal/probe.h"

#define LOCK_LIMIT_NS UINT64_C(100000000)
#define LEFT_LEAST (UINT64_C(1) << 20)	/* of a control group's memory, beside the copy and its JSON */

static const enum gm_region_id locked_regions[] = {
	GM_REGION_SEGMENTS, GM_REGION_BLOCKS, GM_REGION_USAGE, GM_REGION_SHARDS
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Words that others may be storing to: each is read whole and once, an event's commit word before
 * its body. Not instrumented: the commit words, generations and locks say what is valid. */
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

/* How far a region is in use now, by the layout that was validated: the live header may have been
 * written to by a host gone wild. */
static uint64_t readable_now(const struct gm_image *image, const uint8_t *live,
			     enum gm_region_id r)
{
	const struct gm_region *now = &((const struct gm_header *)live)->regions[r];
	struct gm_region region = image->header->regions[r];

	region.used = now->used;
	region.populated = now->populated;
	return gm_image_readable(&region);
}

/* The header, but for the layout that was validated. */
static void copy_header(struct gm_image *image, const uint8_t *live)
{
	struct gm_region layout[GM_REGION_COUNT];

	memcpy(layout, image->header->regions, sizeof(layout));
	copy_words(image->base, live, GM_HEADER_BYTES);
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		image->header->regions[r].offset = layout[r].offset;
		image->header->regions[r].capacity = layout[r].capacity;
		image->header->regions[r].item_bytes = layout[r].item_bytes;
	}
}

static void copy_region(struct gm_image *image, const uint8_t *live, enum gm_region_id r)
{
	uint64_t offset = image->header->regions[r].offset;

	image->copied[r] = readable_now(image, live, r);
	copy_words(image->base + offset, live + offset, image->copied[r]);
}

/* A domain without its undo area, which is empty nearly always. */
static void copy_domains(struct gm_image *image, const uint8_t *live)
{
	const struct gm_region *region = &image->header->regions[GM_REGION_DOMAINS];

	image->copied[GM_REGION_DOMAINS] = gm_image_readable(region);
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		struct gm_domain *domain = gm_image_domain(image, d);
		uint64_t at = region->offset + (uint64_t)d * region->item_bytes;

		if (!domain)
			break;
		copy_words(domain, live + at, offsetof(struct gm_domain, undo));
		if (domain->undo_op)
			copy_words(domain->undo, live + at + offsetof(struct gm_domain, undo),
				   sizeof(domain->undo));
	}
}

/* A thread may begin and end operations while we look: a record is taken when its operation is
 * the same before and after; else the operation is one of those that began after the cut. */
static void copy_threads(struct gm_image *image, const uint8_t *live)
{
	const struct gm_region *region = &image->header->regions[GM_REGION_THREADS];
	uint64_t length = gm_image_readable(region);

	image->copied[GM_REGION_THREADS] = length;
	for (uint64_t at = 0; at < length; at += sizeof(struct gm_thread)) {
		const struct gm_thread *from = (const void *)(live + region->offset + at);
		struct gm_thread *to = (void *)(image->base + region->offset + at);

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

/* How far the open chunks have come, into the heads of the copy, still zero elsewhere. */
static void mark_open_chunks(struct gm_image *image, const uint8_t *live)
{
	const struct gm_region *events = &image->header->regions[GM_REGION_EVENTS];
	uint64_t chunks = gm_image_readable(events) / GM_CHUNK_BYTES;
	const struct gm_thread *threads = (const void *)
		(image->base + image->header->regions[GM_REGION_THREADS].offset);

	for (size_t i = 0; i < gm_image_items(image, GM_REGION_THREADS); i++) {
		uint32_t number = threads[i].chunk;
		const struct gm_event *written;
		const struct gm_chunk *chunk;
		struct gm_chunk *copy;
		uint64_t generation;
		uint32_t count;

		if (!number || number > chunks)
			continue;
		chunk = chunk_at(live, events, number - 1);
		copy = (struct gm_chunk *)chunk_at(image->base, events, number - 1);
		generation = __atomic_load_n((const uint64_t *)&chunk->generation, __ATOMIC_ACQUIRE);
		written = (const struct gm_event *)chunk;
		for (count = 0; count < GM_CHUNK_EVENTS; count++)
			if (__atomic_load_n((const uint64_t *)&written[count + 1].commit,
					    __ATOMIC_ACQUIRE) != (generation << 8 | (count + 1)))
				break;
		copy->generation = generation;
		copy->count = count;
	}
}

static void copy_tables(struct gm_image *image, const uint8_t *live)
{
	copy_header(image, live);
	copy_domains(image, live);
	copy_threads(image, live);
	for (unsigned int i = 0; i < sizeof(locked_regions) / sizeof(locked_regions[0]); i++)
		copy_region(image, live, locked_regions[i]);
	mark_open_chunks(image, live);
}

static void copy_chunk(struct gm_image *image, const struct gm_chunk *from, struct gm_chunk *to)
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
	    __atomic_load_n(&from->first_tsc, __ATOMIC_RELAXED) > image->cut_tsc ||
	    (open && generation != open_generation))
		to->generation = 0;
	for (uint32_t place = limit + 1; place <= GM_CHUNK_EVENTS; place++)
		events[place].commit = 0;
}

/* Chunks that were given out since the locks were free hold nothing that counts here. @doubtful: some
 * of the others may have no memory behind them (events.c), and a touch could be the program's end. */
static void copy_events(struct gm_image *image, const uint8_t *live, bool doubtful)
{
	const struct gm_region *events = &image->header->regions[GM_REGION_EVENTS];
	uint64_t chunks = gm_image_readable(events) / GM_CHUNK_BYTES;

	image->copied[GM_REGION_EVENTS] = chunks * GM_CHUNK_BYTES;
	gm_image_touch(image, events->offset, chunks * GM_CHUNK_BYTES);
	for (uint64_t c = 0; c < chunks; c++) {
		const struct gm_chunk *from = chunk_at(live, events, c);

		if (!doubtful || gm_probe_word((uintptr_t)from))
			copy_chunk(image, from,
				   (struct gm_chunk *)chunk_at(image->base, events, c));
	}
	image->header->horizon = ((const struct gm_header *)live)->horizon;
}

static void copy_clock(struct gm_image *image, const struct gm_header *live)
{
	const uint32_t *sequence = (const uint32_t *)&live->clock.sequence;

	for (unsigned int try = 0; try < 1000; try++) {
		uint32_t before = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);

		copy_words(&image->header->clock, &live->clock, sizeof(live->clock) & ~(size_t)7);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && before == __atomic_load_n(sequence, __ATOMIC_RELAXED))
			return;
	}
}

/* The same of the shards. */
static bool shards_stood_still(const struct gm_image *image, const uint8_t *live,
			       const struct gm_held *held)
{
	uint64_t at = image->header->regions[GM_REGION_SHARDS].offset;
	struct gm_shard now;

	for (size_t i = 1; i < gm_image_items(image, GM_REGION_SHARDS); i++) {
		const struct gm_shard *copy = gm_image_shard(image, i);

		if (copy->slot < GM_MAX_THREADS && held->slots[copy->slot / 64] >> copy->slot % 64 & 1)
			continue;
		copy_words(&now, live + at + i * sizeof(now), offsetof(struct gm_shard, undo));
		if (memcmp(&now, copy, offsetof(struct gm_shard, undo)))
			return false;
	}
	return true;
}

/* Of a domain whose lock could not be had: whoever holds it was stopped there, by a crash. What it
 * was changing is in the undo area, if nothing of the domain has changed since it was copied. One
 * that was only off the processor, and goes on, changes it with the first event it writes. */
static __attribute__((noinline)) bool stood_still(const struct gm_image *image, const uint8_t *live,
			const struct gm_held *held)
{
	const struct gm_region *region = &image->header->regions[GM_REGION_DOMAINS];
	struct gm_domain now;

	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *copy = gm_image_domain(image, d);

		if (held->domain[d] || !copy)
			continue;
		copy_words(&now, live + region->offset + (uint64_t)d * region->item_bytes,
			   offsetof(struct gm_domain, undo));
		now.free_bytes = copy->free_bytes;	/* sampled, under no lock */
		now.unattributed_bytes = copy->unattributed_bytes;
		now.free_stamp = copy->free_stamp;
		if (memcmp(&now, copy, offsetof(struct gm_domain, undo)))
			return false;
	}
	return shards_stood_still(image, live, held);
}

static void touch_tables(struct gm_image *image)
{
	const struct gm_region *regions = image->header->regions;

	gm_image_touch(image, regions[GM_REGION_DOMAINS].offset,
		       (uint64_t)GM_DOMAINS * regions[GM_REGION_DOMAINS].item_bytes);
	gm_image_touch(image, regions[GM_REGION_THREADS].offset,
		       gm_image_readable(&regions[GM_REGION_THREADS]));
	for (unsigned int i = 0; i < sizeof(locked_regions) / sizeof(locked_regions[0]); i++)
		gm_image_touch(image, regions[locked_regions[i]].offset,
			       gm_image_readable(&regions[locked_regions[i]]));
}

static void copy_names(struct gm_image *image, const uint8_t *live)
{
	static const enum gm_region_id last[] = {
		GM_REGION_STACKS, GM_REGION_FRAMES, GM_REGION_MODULES, GM_REGION_SETTINGS,
		GM_REGION_STRINGS
	};

	for (unsigned int i = 0; i < sizeof(last) / sizeof(last[0]); i++)
		copy_region(image, live, last[i]);
}

void gm_image_renew_names(struct gm_image *image)
{
	uint64_t bytes = 0;
	const uint8_t *live = gm_recorder_mapping(&bytes);

	if (live && bytes == image->bytes)
		copy_names(image, live);
}

/* Does the control group leave us enough for a copy, and for what is written from it? */
static bool affordable(const struct gm_image *image)
{
	uint64_t left = gm_get(&gm_rec.left), bytes = 0;

	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)
		bytes += image->header->regions[r].populated;
	return left == UINT64_MAX || left / 2 > bytes + LEFT_LEAST / 2;
}

int gm_image_copy_live(struct gm_image *image)
{
	uint64_t bytes = 0, began;
	const uint8_t *live = gm_recorder_mapping(&bytes);
	struct gm_held held;
	bool all, doubtful, poor;
	int r;

	memset(image, 0, sizeof(*image));
	if (!live || bytes < GM_HEADER_BYTES)
		return -ENODEV;
	r = gm_image_map(image, bytes);
	if (r)
		return r;
	madvise(image->base, bytes, MADV_DONTFORK);
	copy_words(image->base, live, GM_HEADER_BYTES);
	r = gm_image_validate(image, bytes);
	poor = !r && !affordable(image);
	if (r || poor) {
		gm_image_free(image);
		if (poor)
			snprintf(image->error, sizeof(image->error),
				 "its control group has too little memory left for a copy");
		return poor ? -ENOMEM : r;
	}
	/* The pages are there before the locks are taken: the pause is the copying alone. */
	touch_tables(image);
	all = gm_recorder_lock_all(LOCK_LIMIT_NS, &held);
	began = now_ns();
#if defined(__x86_64__)
	__builtin_ia32_lfence();	/* the stamp is not read ahead of the locks */
#endif
	image->cut_tsc = gm_stamp();
	copy_tables(image, live);
	doubtful = !all || gm_events_unbacked();
	gm_recorder_unlock_all(&held);
	image->locked_ns = now_ns() - began;
	copy_events(image, live, doubtful);
	copy_clock(image, (const struct gm_header *)live);
	copy_region(image, live, GM_REGION_FAILURES);
	copy_names(image, live);
	/* At the end: its events, too, are only what they were. */
	image->consistent = all || stood_still(image, live, &held);
	return 0;
}
