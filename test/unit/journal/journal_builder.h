/*
 * journal_builder.h - a journal made by hand, in memory: what the readers are tested with.
 *
 * Written from format.h and table.h alone and knowing nothing of the recorder, so that the two
 * sides check each other. Errors of a test's own (too many items) abort.
 */
#ifndef GM_TEST_JOURNAL_BUILDER_H
#define GM_TEST_JOURNAL_BUILDER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "recorder/journal/format.h"

struct jb {
	uint8_t *mem;
	size_t bytes;
	struct gm_header *h;
	struct gm_domain *domains;	/* stride 8192 */
	struct gm_thread *threads;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_usage *usage;
	struct gm_module *modules;
	struct gm_frame *frames;
	struct gm_setting *settings;
	struct gm_failure *failures;
	uint32_t places[64];		/* next place in each slot's chunk */
};

struct jb_plan { uint32_t segments, blocks, chunks, text_bytes; };

#define JB_MUST(x) do { \
	if (!(x)) { \
		fprintf(stderr, "journal_builder: %s\n", #x); \
		abort(); \
	} \
} while (0)
#define JB_UNUSED __attribute__((unused))

static inline void *jb_region(const struct jb *jb, enum gm_region_id r)
{
	return jb->mem + jb->h->regions[r].offset;
}

static inline struct gm_domain *jb_domain(const struct jb *jb, unsigned int d)
{
	return (struct gm_domain *)((uint8_t *)jb_region(jb, GM_REGION_DOMAINS) + (size_t)d * 8192);
}

JB_UNUSED static void jb_new(struct jb *jb, struct jb_plan plan)
{
	const uint64_t sizes[GM_REGION_COUNT][2] = {	/* capacity, bytes of an item */
		[GM_REGION_DOMAINS] = { GM_DOMAINS * 8192, 8192 },
		[GM_REGION_THREADS] = { 64 * 128, 128 },
		[GM_REGION_SEGMENTS] = { plan.segments * 128ull, 128 },
		[GM_REGION_BLOCKS] = { plan.blocks * 128ull, 128 },
		[GM_REGION_USAGE] = { 256 * 64, 64 },
		[GM_REGION_TCACHES] = { 16 * 1280, 1280 },
		[GM_REGION_MODULES] = { 32 * 128, 128 },
		[GM_REGION_STRINGS] = { plan.text_bytes, 0 },
		[GM_REGION_STACKS] = { plan.text_bytes, 0 },
		[GM_REGION_FRAMES] = { 256 * 48, 48 },
		[GM_REGION_SETTINGS] = { 64 * 16, 16 },
		[GM_REGION_FAILURES] = { 8 * 256, 256 },
		[GM_REGION_EVENTS] = { plan.chunks * 4096ull, 4096 },
		[GM_REGION_LIVES] = { 64 * 64, 64 },
		[GM_REGION_SITES] = { 128 * 32, 32 },
	};
	uint64_t at = GM_HEADER_BYTES;

	memset(jb, 0, sizeof(*jb));
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)
		at += (sizes[r][0] + 4095) / 4096 * 4096;
	jb->bytes = at;
	jb->mem = mmap(NULL, at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	JB_MUST(jb->mem != MAP_FAILED);
	jb->h = (struct gm_header *)jb->mem;
	at = GM_HEADER_BYTES;
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		struct gm_region *region = &jb->h->regions[r];

		region->offset = at;
		region->capacity = (sizes[r][0] + 4095) / 4096 * 4096;
		region->populated = region->capacity;
		region->item_bytes = (uint32_t)sizes[r][1];
		at += region->capacity;
	}
	jb->h->version = GM_FORMAT_VERSION;
	jb->h->byte_order = GM_BYTE_ORDER;
	jb->h->header_bytes = GM_HEADER_BYTES;
	jb->h->region_count = GM_REGION_COUNT;
	jb->h->file_bytes = jb->bytes;
	jb->h->rank = -1;
	jb->h->life = GM_LIFE_RUNNING;
	jb->h->history_events = plan.chunks * 63ull;
	jb->h->clock.source = 1;
	strcpy(jb->h->command, "app");
	strcpy(jb->h->host, "box");
	jb->h->pid = 4711;
	jb->domains = jb_region(jb, GM_REGION_DOMAINS);
	jb->threads = jb_region(jb, GM_REGION_THREADS);
	jb->segments = jb_region(jb, GM_REGION_SEGMENTS);
	jb->blocks = jb_region(jb, GM_REGION_BLOCKS);
	jb->usage = jb_region(jb, GM_REGION_USAGE);
	jb->modules = jb_region(jb, GM_REGION_MODULES);
	jb->frames = jb_region(jb, GM_REGION_FRAMES);
	jb->settings = jb_region(jb, GM_REGION_SETTINGS);
	jb->failures = jb_region(jb, GM_REGION_FAILURES);
	jb->h->regions[GM_REGION_DOMAINS].used = GM_DOMAINS * 8192;
	jb->h->regions[GM_REGION_SEGMENTS].used = 128;
	jb->h->regions[GM_REGION_BLOCKS].used = 128;
	jb->h->regions[GM_REGION_USAGE].used = 64;
	jb->h->regions[GM_REGION_TCACHES].used = 1280;
	jb->h->regions[GM_REGION_LIVES].used = 64;
	jb->h->regions[GM_REGION_SITES].used = 32;
	jb->h->regions[GM_REGION_MODULES].used = 128;
	jb->h->regions[GM_REGION_FRAMES].used = 48;
	jb->h->regions[GM_REGION_STRINGS].used = 8;
	jb->h->regions[GM_REGION_STACKS].used = 8;
	jb->h->regions[GM_REGION_FAILURES].used = 8 * 256;
	for (unsigned int d = 0; d < GM_DOMAINS; d++)
		jb_domain(jb, d)->stats.max_split_size = -1;
	jb->h->magic = GM_MAGIC;
}

JB_UNUSED static void jb_free_all(struct jb *jb)
{
	munmap(jb->mem, jb->bytes);
}

/* @bytes more in a region: where they lie in it. */
JB_UNUSED static uint64_t jb_take(struct jb *jb, enum gm_region_id r, uint64_t bytes)
{
	struct gm_region *region = &jb->h->regions[r];
	uint64_t at = region->used;

	JB_MUST(at + bytes <= region->capacity);
	region->used += bytes;
	return at;
}

JB_UNUSED static uint32_t jb_string_bytes(struct jb *jb, const char *text, size_t length)
{
	uint64_t id = jb_take(jb, GM_REGION_STRINGS, (8 + length + 1 + 7) / 8 * 8);
	struct gm_string *s = (struct gm_string *)((uint8_t *)jb_region(jb, GM_REGION_STRINGS) + id);

	s->length = (uint32_t)length;
	memcpy(s->text, text, length);
	return (uint32_t)id;
}

JB_UNUSED static uint32_t jb_string(struct jb *jb, const char *text)
{
	return jb_string_bytes(jb, text, strlen(text));
}

JB_UNUSED static uint16_t jb_module(struct jb *jb, const char *path, uint64_t base)
{
	uint32_t id = (uint32_t)(jb_take(jb, GM_REGION_MODULES, 128) / 128);

	jb->modules[id] = (struct gm_module){ .base = base, .start = base, .end = base + 4096,
					      .path = jb_string(jb, path), .build_id_bytes = 4,
					      .build_id = { 0xde, 0xad, 0xbe, 0xef } };
	return (uint16_t)id;
}

JB_UNUSED static uint32_t jb_frame(struct jb *jb, uint32_t module, uint64_t offset, uint32_t name)
{
	uint32_t id = (uint32_t)(jb_take(jb, GM_REGION_FRAMES, 48) / 48);

	jb->frames[id] = (struct gm_frame){ .offset = offset, .module = module, .name = name };
	return id;
}

JB_UNUSED static uint32_t jb_stack(struct jb *jb, const uint32_t *frames, uint16_t count)
{
	uint64_t id = jb_take(jb, GM_REGION_STACKS, (sizeof(struct gm_stack) + count * 4ull + 7) / 8 * 8);
	struct gm_stack *s = (struct gm_stack *)((uint8_t *)jb_region(jb, GM_REGION_STACKS) + id);

	s->count = count;
	memcpy(s->frames, frames, count * 4ull);
	return (uint32_t)id;
}

JB_UNUSED static void jb_setting(struct jb *jb, const char *name, const char *value,
				 const char *source)
{
	uint64_t at = jb_take(jb, GM_REGION_SETTINGS, 16) / 16;

	jb->settings[at] = (struct gm_setting){ jb_string(jb, name), jb_string(jb, value),
						jb_string(jb, source), 0 };
}

JB_UNUSED static void jb_device(struct jb *jb, unsigned int d, const char *name, uint64_t total)
{
	struct gm_domain *domain = jb_domain(jb, d);

	domain->present = 1;
	domain->ordinal = (int32_t)d;
	snprintf(domain->name, sizeof(domain->name), "%s", name);
	for (unsigned int i = 0; i < 16; i++)
		domain->uuid[i] = (uint8_t)(16 * d + i);
	domain->total_bytes = total;
}

JB_UNUSED static struct gm_thread *jb_thread(struct jb *jb, uint32_t slot, uint32_t tid)
{
	JB_MUST(slot < 64);
	if (jb->h->regions[GM_REGION_THREADS].used < (slot + 1) * 128ull)
		jb->h->regions[GM_REGION_THREADS].used = (slot + 1) * 128ull;
	jb->threads[slot].tid = tid;
	return &jb->threads[slot];
}

static inline struct gm_chunk *jb_chunk(const struct jb *jb, uint64_t index)
{
	return (struct gm_chunk *)((uint8_t *)jb_region(jb, GM_REGION_EVENTS) + index * 4096);
}

/* A new chunk for a thread's slot. */
JB_UNUSED static struct gm_chunk *jb_new_chunk(struct jb *jb, uint32_t slot, uint64_t first_tsc)
{
	uint64_t index = jb_take(jb, GM_REGION_EVENTS, 4096) / 4096;
	struct gm_chunk *chunk = jb_chunk(jb, index);

	if (jb->threads[slot].chunk)
		jb_chunk(jb, jb->threads[slot].chunk - 1)->state = GM_CHUNK_CLOSED;
	chunk->generation = 1;
	chunk->state = GM_CHUNK_OPEN;
	chunk->slot = slot;
	chunk->tid = jb->threads[slot].tid;
	chunk->first_tsc = first_tsc;
	jb->threads[slot].chunk = (uint32_t)index + 1;
	jb->places[slot] = 1;
	return chunk;
}

JB_UNUSED static struct gm_event *jb_event(struct jb *jb, uint32_t slot, uint64_t op,
					   enum gm_action action, uint8_t domain, uint64_t tsc,
					   uint64_t address, uint64_t size)
{
	struct gm_chunk *chunk;
	struct gm_event *event;

	if (!jb->threads[slot].chunk || jb->places[slot] > GM_CHUNK_EVENTS)
		jb_new_chunk(jb, slot, tsc);
	chunk = jb_chunk(jb, jb->threads[slot].chunk - 1);
	event = (struct gm_event *)chunk + jb->places[slot];
	*event = (struct gm_event){ .tsc = tsc, .op = op, .address = address, .size = size,
				    .domain = domain, .action = (uint8_t)action };
	event->commit = chunk->generation << 8 | jb->places[slot]++;
	chunk->count++;
	if (tsc > chunk->last_tsc)
		chunk->last_tsc = tsc;
	jb->threads[slot].events++;
	jb_domain(jb, domain)->counts.events++;
	return event;
}

static inline void jb_stat(struct gm_domain *domain, enum gm_stat_name name, bool small, int64_t by)
{
	for (int c = 0; c < GM_POOL_CLASSES; c++) {
		struct gm_stat *stat = &domain->stats.stat[name][c];

		if (c && c != (small ? GM_POOL_SMALL : GM_POOL_LARGE))
			continue;
		stat->current += by;
		if (by > 0)
			stat->allocated += by;
		else
			stat->freed -= by;
		if (stat->current > stat->peak)
			stat->peak = stat->current;
	}
}

static inline void jb_row(struct jb *jb, uint8_t domain, uint16_t module, uint8_t kind, int64_t by)
{
	struct gm_usage *row = NULL;

	for (uint64_t i = 1; i < jb->h->regions[GM_REGION_USAGE].used / 64 && !row; i++)
		if (jb->usage[i].domain == domain && jb->usage[i].module == module &&
		    jb->usage[i].kind == kind)
			row = &jb->usage[i];
	if (!row) {
		row = &jb->usage[jb_take(jb, GM_REGION_USAGE, 64) / 64];
		*row = (struct gm_usage){ .used = 1, .module = module, .domain = domain, .kind = kind };
	}
	row->current_bytes += by;
	if (by >= 0) {
		row->allocated_bytes += by;
		row->allocations++;
	} else {
		row->freed_bytes -= by;
		row->frees++;
	}
	if (row->current_bytes > row->peak_bytes)
		row->peak_bytes = row->current_bytes;
}

static inline void jb_count(struct jb *jb, const struct gm_segment *s, const struct gm_block *b,
			    int sign)
{
	struct gm_domain *domain = jb_domain(jb, s->domain);
	bool small = s->flags & GM_SEGMENT_SMALL;
	int64_t size = sign * (int64_t)s->size;

	if (s->flags & GM_SEGMENT_REGISTERED)
		return;
	domain->live_bytes[s->kind] += (uint64_t)size;
	jb_row(jb, s->domain, s->module, s->kind, size);
	jb_row(jb, s->domain, 0xffff, s->kind, size);
	if (s->kind == GM_KIND_IPC)
		return;
	jb_row(jb, s->domain, s->module, 0xff, size);
	jb_stat(domain, GM_STAT_ALLOCATION, small, sign);
	jb_stat(domain, GM_STAT_SEGMENT, small, sign);
	jb_stat(domain, GM_STAT_ACTIVE, small, sign);
	jb_stat(domain, GM_STAT_ALLOCATED_BYTES, small, size);
	jb_stat(domain, GM_STAT_RESERVED_BYTES, small, size);
	jb_stat(domain, GM_STAT_ACTIVE_BYTES, small, size);
	jb_stat(domain, GM_STAT_REQUESTED_BYTES, small, sign * (int64_t)b->requested);
	domain->stats.num_device_alloc += sign > 0;
	domain->stats.num_device_free += sign < 0;
}

struct jb_what {
	uint64_t address, size, requested, stream, op, tsc;
	uint32_t stack, thread;
	uint16_t module;
	uint8_t domain, kind, flags;
};

/* A segment with one block in the tables only. Returns the id of both (here they are equal). */
JB_UNUSED static uint32_t jb_put(struct jb *jb, struct jb_what what)
{
	uint32_t id = (uint32_t)(jb_take(jb, GM_REGION_SEGMENTS, 128) / 128);
	struct gm_domain *domain = jb_domain(jb, what.domain);

	JB_MUST(jb_take(jb, GM_REGION_BLOCKS, 128) / 128 == id);
	if (what.size <= GM_SMALL_BYTES && what.kind != GM_KIND_GRAPH)
		what.flags |= GM_SEGMENT_SMALL;
	jb->segments[id] = (struct gm_segment){
		.address = what.address, .size = what.size, .stream = what.stream, .op = what.op,
		.tsc = what.tsc, .first_block = id, .prev = domain->last_segment,
		.stack = what.stack, .module = what.module, .domain = what.domain,
		.kind = what.kind, .flags = what.flags, .used = 1,
	};
	jb->blocks[id] = (struct gm_block){
		.address = what.address, .size = what.size,
		.requested = what.requested ? what.requested : what.size, .tsc = what.tsc,
		.op = what.op, .stream = what.stream, .segment = id, .stack = what.stack,
		.thread = what.thread, .module = what.module, .domain = what.domain,
		.kind = what.kind, .state = GM_BLOCK_ACTIVE,
	};
	if (domain->last_segment)
		jb->segments[domain->last_segment].next = id;
	else
		domain->first_segment = id;
	domain->last_segment = id;
	jb_count(jb, &jb->segments[id], &jb->blocks[id], 1);
	return id;
}

/* A pool of the program's in domain @d. */
JB_UNUSED static void jb_pool(struct jb *jb, unsigned int d, uint32_t name)
{
	jb_domain(jb, d)->pool.source = GM_POOL_API;
	jb_domain(jb, d)->pool.name = name;
}

/* A line in the table of a pool (lives.h). */
JB_UNUSED static struct gm_live *jb_line(struct jb *jb, struct jb_what what)
{
	struct gm_live *lines = jb_region(jb, GM_REGION_LIVES);
	struct gm_live *line = &lines[jb_take(jb, GM_REGION_LIVES, 64) / 64];
	struct gm_pool *pool = &jb_domain(jb, what.domain)->pool;
	unsigned int large = what.size > GM_SMALL_BYTES;

	pool->classes[large].sums.given_blocks++;
	pool->classes[large].sums.given_bytes += (int64_t)what.size;
	pool->classes[large].peak_blocks++;
	pool->classes[large].peak_bytes += (int64_t)what.size;
	pool->peak_blocks++;
	pool->peak_bytes += (int64_t)what.size;
	*line = (struct gm_live){
		.address = what.address, .size = what.size, .stream = what.stream, .tsc = what.tsc, .op = what.op,
		.stack = what.stack, .thread = what.thread, .module = what.module, .domain = what.domain,
		.kind = what.kind,
	};
	return line;
}

/* Tables and the two events of an allocation. */
JB_UNUSED static uint32_t jb_alloc(struct jb *jb, uint32_t slot, struct jb_what what)
{
	uint32_t id = jb_put(jb, what);
	struct gm_event *segment = jb_event(jb, slot, what.op, GM_ACTION_SEGMENT_ALLOC, what.domain,
					    what.tsc, what.address, what.size);
	struct gm_event *block = jb_event(jb, slot, what.op, GM_ACTION_ALLOC, what.domain, what.tsc,
					  what.address, jb->blocks[id].requested);

	segment->kind = block->kind = what.kind;
	segment->module = block->module = what.module;
	segment->stack = block->stack = what.stack;
	segment->stream = block->stream = what.stream;
	return id;
}

/* Tables and the three events of a free. */
JB_UNUSED static void jb_free(struct jb *jb, uint32_t slot, uint32_t id, uint64_t op, uint64_t tsc)
{
	struct gm_segment *s = &jb->segments[id];
	struct gm_domain *domain = jb_domain(jb, s->domain);

	jb_count(jb, s, &jb->blocks[id], -1);
	for (int i = 0; i < 3; i++) {
		static const enum gm_action actions[] = {
			GM_ACTION_FREE_REQUESTED, GM_ACTION_FREE_COMPLETED, GM_ACTION_SEGMENT_FREE
		};
		struct gm_event *event = jb_event(jb, slot, op, actions[i], s->domain, tsc, s->address,
						  i == 2 ? s->size : jb->blocks[id].requested);

		event->kind = s->kind;
		event->module = s->module;
	}
	if (s->prev)
		jb->segments[s->prev].next = s->next;
	else
		domain->first_segment = s->next;
	if (s->next)
		jb->segments[s->next].prev = s->prev;
	else
		domain->last_segment = s->prev;
	s->used = 0;
	s->op = jb->blocks[id].op = op;
	jb->blocks[id].state = GM_BLOCK_UNUSED;
}

/* One more entry of a domain's undo area: the word that @field lies in, as it is now. */
JB_UNUSED static void jb_undo(struct jb *jb, unsigned int d, const void *field)
{
	struct gm_domain *domain = jb_domain(jb, d);
	uint64_t at = (uint64_t)((const uint8_t *)field - jb->mem) & ~7ull;

	JB_MUST(domain->undo_count < GM_UNDO_ENTRIES);
	domain->undo[domain->undo_count++] =
		(struct gm_undo_entry){ at, *(uint64_t *)(void *)(jb->mem + at) };
}

/* A thread cache of a thread's slot, with nothing in it; and a word of its transaction. */
JB_UNUSED static struct gm_tcache_record *jb_tcache(struct jb *jb, uint32_t slot, uint8_t domain)
{
	uint64_t at = jb_take(jb, GM_REGION_TCACHES, sizeof(struct gm_tcache_record));
	struct gm_tcache_record *tcache = (void *)((uint8_t *)jb_region(jb, GM_REGION_TCACHES) + at);

	tcache->slot = slot;
	tcache->domain = domain;
	return tcache;
}

JB_UNUSED static void jb_tcache_undo(struct jb *jb, struct gm_tcache_record *tcache, const void *field)
{
	uint64_t at = (uint64_t)((const uint8_t *)field - jb->mem) & ~7ull;

	JB_MUST(tcache->undo_count < GM_TCACHE_UNDO);
	tcache->undo[tcache->undo_count++] =
		(struct gm_undo_entry){ at, *(uint64_t *)(void *)(jb->mem + at) };
}

/* The journal as a file, without a name. The caller closes it. */
JB_UNUSED static int jb_file(const struct jb *jb)
{
	int fd = memfd_create("journal", MFD_CLOEXEC);
	size_t done = 0;

	JB_MUST(fd >= 0 && ftruncate(fd, (off_t)jb->bytes) == 0);
	while (done < jb->bytes) {	/* pages of zeros stay holes */
		static const uint8_t zeros[4096];

		if (memcmp(jb->mem + done, zeros, 4096))
			JB_MUST(pwrite(fd, jb->mem + done, 4096, (off_t)done) == 4096);
		done += 4096;
	}
	return fd;
}

#endif
