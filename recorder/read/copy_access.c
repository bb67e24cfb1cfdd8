/*
 * copy_access.c - a journal copy's memory, the accessors that check every id, its clock, and the sort for its
 * records.
 *
 * Thread context: one thread for each copy. No malloc: anonymous mappings, which gm_copy_free unmaps.
 */
#define _GNU_SOURCE
#include "recorder/read/copy_internal.h"
#include "recorder/journal/recorder.h"
#include "recorder/journal/sys.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

void *gm_scratch_get(struct gm_scratch *scratch, size_t bytes)
{
	for (unsigned int i = 0; i < GM_SCRATCH_MOST; i++) {
		if (scratch->list[i].at)
			continue;
		scratch->list[i].bytes = bytes ? bytes : 1;
		scratch->list[i].at = gm_map_private(scratch->list[i].bytes);
		return scratch->list[i].at;
	}
	return NULL;
}

void gm_scratch_drop(struct gm_scratch *scratch, void *at)
{
	for (unsigned int i = 0; at && i < GM_SCRATCH_MOST; i++) {
		if (scratch->list[i].at == at) {
			munmap(at, scratch->list[i].bytes);
			scratch->list[i].at = NULL;
			return;
		}
	}
}

void gm_scratch_free(struct gm_scratch *scratch)
{
	for (unsigned int i = 0; i < GM_SCRATCH_MOST; i++)
		gm_scratch_drop(scratch, scratch->list[i].at);
}

int gm_copy_map(struct gm_copy *copy, uint64_t bytes)
{
	if (bytes < GM_HEADER_BYTES)
		bytes = GM_HEADER_BYTES;
	if (bytes > SIZE_MAX / 2)	/* possible in 32-bit readers */
		return -ENOMEM;
	copy->base = gm_map_private(bytes);
	if (!copy->base)
		return -ENOMEM;
	copy->bytes = bytes;
	copy->header = (struct gm_header *)copy->base;
	return 0;
}

void gm_copy_touch(struct gm_copy *copy, uint64_t offset, uint64_t length)
{
	uint64_t page = (uint64_t)gm_sys.page(), first = offset & ~(page - 1);
	uint64_t end = gm_min_u64((offset + length + page - 1) & ~(page - 1), copy->bytes);

	if (end <= first)
		return;
	if (!madvise(copy->base + first, end - first, MADV_POPULATE_WRITE))
		return;
	for (uint64_t at = first; at < end; at += page)		/* before Linux 5.14 */
		*(volatile uint8_t *)(copy->base + at) = copy->base[at];
}

void gm_copy_free(struct gm_copy *copy)
{
	gm_scratch_free(&copy->scratch);
	if (copy->base)
		munmap(copy->base, copy->bytes);
	memset(copy, 0, sizeof(*copy));
}

int gm_header_sign(const struct gm_header *header)
{
	uint32_t word;

	/* glibc's pthread_mutex_t begins with the futex word. It holds the owner's tid and, after the owner's
	 * death, FUTEX_OWNER_DIED. */
	memcpy(&word, &header->alive, sizeof(word));
	if (!header->has_helper)
		return -ENODATA;
	return !(word & FUTEX_OWNER_DIED) && (word & FUTEX_TID_MASK);
}

static size_t region_items(const struct gm_copy *copy, enum gm_region_id region)
{
	uint32_t item = copy->header->regions[region].item_bytes;

	return item ? copy->copied[region] / item : 0;
}

size_t gm_copy_items(const struct gm_copy *copy, enum gm_region_id region)
{
	bool of_pools = region == GM_REGION_SEGMENTS || region == GM_REGION_BLOCKS;

	return region_items(copy, region) + (of_pools ? copy->pool_count : 0);
}

uint64_t gm_copy_refused(const struct gm_copy *copy, enum gm_region_id region)
{
	return copy->header->regions[region].refused;
}

/* Return item @index of a region; NULL past its end. */
static void *item_at(const struct gm_copy *copy, enum gm_region_id region, uint64_t index)
{
	if (index >= region_items(copy, region))
		return NULL;
	return copy->base + copy->header->regions[region].offset +
	       index * copy->header->regions[region].item_bytes;
}

struct gm_domain *gm_copy_domain(const struct gm_copy *copy, unsigned int domain)
{
	return domain < GM_DOMAINS ? item_at(copy, GM_REGION_DOMAINS, domain) : NULL;
}

struct gm_segment *gm_copy_segment(const struct gm_copy *copy, uint32_t id)
{
	struct gm_segment *segment = id ? item_at(copy, GM_REGION_SEGMENTS, id) : NULL;
	size_t of_pools = id - region_items(copy, GM_REGION_SEGMENTS);

	if (id && !segment && of_pools < copy->pool_count)
		segment = &copy->pool_segments[of_pools];
	if (!segment || segment->used != 1 || segment->domain >= GM_DOMAINS ||
	    segment->kind >= GM_KIND_COUNT || segment->size > UINT64_MAX - segment->address)
		return NULL;
	return segment;
}

struct gm_block *gm_copy_block(const struct gm_copy *copy, uint32_t id)
{
	struct gm_block *block = id ? item_at(copy, GM_REGION_BLOCKS, id) : NULL;
	size_t of_pools = id - region_items(copy, GM_REGION_BLOCKS);

	if (id && !block && of_pools < copy->pool_count)
		block = &copy->pool_blocks[of_pools];
	if (!block || block->state == GM_BLOCK_UNUSED || block->state > GM_BLOCK_UNMAPPED ||
	    block->domain >= GM_DOMAINS || block->kind >= GM_KIND_COUNT ||
	    block->size > UINT64_MAX - block->address)
		return NULL;
	return block;
}

const struct gm_module *gm_copy_module(const struct gm_copy *copy, uint32_t id)
{
	return id ? item_at(copy, GM_REGION_MODULES, id) : NULL;
}

struct gm_thread *gm_copy_thread(const struct gm_copy *copy, size_t index)
{
	return item_at(copy, GM_REGION_THREADS, index);
}

const struct gm_frame *gm_copy_frame(const struct gm_copy *copy, uint32_t id)
{
	return id ? item_at(copy, GM_REGION_FRAMES, id) : NULL;
}

const struct gm_failure *gm_copy_failure(const struct gm_copy *copy, size_t index)
{
	return item_at(copy, GM_REGION_FAILURES, index);
}

struct gm_tcache_record *gm_copy_tcache(const struct gm_copy *copy, size_t index)
{
	return index ? item_at(copy, GM_REGION_TCACHES, index) : NULL;
}

struct gm_site *gm_copy_site(const struct gm_copy *copy, size_t index)
{
	struct gm_site *site = index ? item_at(copy, GM_REGION_SITES, index) : NULL;

	return site && site->key & GM_SITE_USED && gm_site_domain(site) < GM_DOMAINS &&
	       gm_site_kind(site) < GM_KIND_COUNT ? site : NULL;
}

const struct gm_usage *gm_copy_usage(const struct gm_copy *copy, size_t index)
{
	return item_at(copy, GM_REGION_USAGE, index);
}

/* Return the record of varying length at @id in @region; NULL unless @head bytes of it are there. */
static const void *record_at(const struct gm_copy *copy, enum gm_region_id region, uint32_t id,
			     size_t head)
{
	if (id < 8 || id % 8 || id > copy->copied[region] || copy->copied[region] - id < head)
		return NULL;
	return copy->base + copy->header->regions[region].offset + id;
}

const struct gm_stack *gm_copy_stack(const struct gm_copy *copy, uint32_t id)
{
	const struct gm_stack *stack = record_at(copy, GM_REGION_STACKS, id, sizeof(*stack));

	if (!stack || (copy->copied[GM_REGION_STACKS] - id - sizeof(*stack)) / 4 < stack->count)
		return NULL;
	return stack;
}

const char *gm_copy_string(const struct gm_copy *copy, uint32_t id, uint32_t *ret_length)
{
	const struct gm_string *string = record_at(copy, GM_REGION_STRINGS, id, sizeof(*string));

	if (ret_length)
		*ret_length = 0;
	if (!string || string->length > GM_STRING_MAX ||
	    copy->copied[GM_REGION_STRINGS] - id - sizeof(*string) <= string->length ||
	    string->text[string->length])
		return "";
	if (ret_length)
		*ret_length = string->length;
	return string->text;
}

uint32_t gm_copy_event_thread(const struct gm_copy *copy, const struct gm_event *event)
{
	/* Chunks are aligned to their size, in the copy and in the memory of copy_frees.c and copy_events.c. */
	const struct gm_chunk *chunk =
		(const struct gm_chunk *)((uintptr_t)event & ~(uintptr_t)(GM_CHUNK_BYTES - 1));
	const struct gm_thread *thread;

	if (chunk->state != GM_CHUNK_SHARED)
		return chunk->tid;
	thread = event->op >> GM_OP_SLOT_SHIFT ?
		 item_at(copy, GM_REGION_THREADS, event->op >> GM_OP_SLOT_SHIFT) : NULL;
	return thread ? thread->tid : 0;
}

uint32_t gm_copy_next_block(const struct gm_copy *copy, uint32_t segment, uint32_t block,
			     struct gm_block_walk *walk)
{
	const struct gm_segment *in = gm_copy_segment(copy, segment);
	const struct gm_block *before = block ? gm_copy_block(copy, block) : NULL, *at;
	uint32_t next;

	if (!in || walk->broken || (block && !before))
		return GM_NONE;
	next = before ? before->next : in->first_block;
	if (next == GM_NONE)
		return GM_NONE;
	at = gm_copy_block(copy, next);
	if (!block)
		walk->end = in->address;
	/* Addresses must rise and each block names its segment, so all walks together see a block once. */
	if (!at || at->segment != segment || at->domain != in->domain || at->address < walk->end ||
	    (before && at->address == before->address) ||
	    at->address + at->size > in->address + in->size) {
		walk->broken = true;
		return GM_NONE;
	}
	walk->end = at->address + at->size;
	return next;
}

struct gm_wall gm_copy_clock(const struct gm_copy *copy)
{
	const struct gm_clock *clock = &copy->header->clock;
	struct gm_wall wall = { clock->stamp[0], clock->wall_ns[0], 0 };
	uint64_t stamps = gm_less_u64(clock->stamp[1], clock->stamp[0]);
	uint64_t ns = gm_less_u64(clock->monotonic_ns[1], clock->monotonic_ns[0]);

	if (clock->source == 1)
		wall.scale = UINT64_C(1) << 32;
	if (stamps && ns) {
		unsigned __int128 scale = ((unsigned __int128)ns << 32) / stamps;

		/* Take the rate from the monotonic clock and the epoch from the latest pair: when somebody
		 * sets the wall clock, the step must not be stretched over the events before it. */
		wall.stamp = clock->stamp[1];
		wall.wall_ns = clock->wall_ns[1];
		wall.scale = scale >> 52 ? 0 : (uint64_t)scale;
	}
	return wall;
}

uint64_t gm_copy_wall_us(const struct gm_copy *copy, uint64_t stamp)
{
	struct gm_wall wall = gm_copy_clock(copy);

	return gm_clock_wall_us(&wall, stamp);
}

/*
 * ---- a stable radix sort of (key, value) pairs: a million events in tens of ms ----
 *
 * Least significant digit first, 11 bits at a time; digits in which all keys agree are skipped.
 * Works in the two arrays it is given, with 8 KiB of stack.
 */
#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)

/* Move the pairs from @from to @to, ordered by the digit at @shift. */
static void scatter(const struct gm_pair *from, struct gm_pair *to, size_t count,
		    unsigned int shift)
{
	uint32_t place[DIGITS];
	uint32_t sum = 0;

	memset(place, 0, sizeof(place));
	for (size_t i = 0; i < count; i++)
		place[(from[i].key >> shift) & (DIGITS - 1)]++;
	for (unsigned int d = 0; d < DIGITS; d++) {
		uint32_t n = place[d];

		place[d] = sum;
		sum += n;
	}
	for (size_t i = 0; i < count; i++)
		to[place[(from[i].key >> shift) & (DIGITS - 1)]++] = from[i];
}

struct gm_pair *gm_pairs_sort(struct gm_pair *pairs, struct gm_pair *scratch, size_t count)
{
	uint64_t all_or = 0, all_and = UINT64_MAX, last = 0;
	bool sorted = true;

	for (size_t i = 0; i < count; i++) {
		all_or |= pairs[i].key;
		all_and &= pairs[i].key;
		sorted &= pairs[i].key >= last;
		last = pairs[i].key;
	}
	if (sorted)
		return pairs;
	for (unsigned int shift = 0; shift < 64; shift += DIGIT_BITS) {
		struct gm_pair *other = scratch;

		if (!(((all_or ^ all_and) >> shift) & (DIGITS - 1)))
			continue;
		scatter(pairs, scratch, count, shift);
		scratch = pairs;
		pairs = other;
	}
	return pairs;
}
