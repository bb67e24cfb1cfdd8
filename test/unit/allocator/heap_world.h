/*
 * heap_world.h - what the tests of both heaps have in common: the tables, their lock and memory, and calls that fail at
 * a chosen time. What gets memory for the heap is a struct driver of the file that includes this. One thread.
 */
#ifndef GM_TEST_HEAP_WORLD_H
#define GM_TEST_HEAP_WORLD_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/heap.h"
#include "test/suite.h"

#define SEGMENTS 4096u
#define BLOCKS 32768u
#define MEMORIES 1024u
#define BASE UINT64_C(0x7f0000000000)	/* where addresses begin */

struct world {
	struct gm_heap *heap;
	struct gm_undo undo;
	struct gm_stats stats;
	struct gm_segment segments[SEGMENTS];
	struct gm_block blocks[BLOCKS];
	struct gm_free_link links[BLOCKS];
	uint32_t segment_fresh, block_fresh, segment_unused, block_unused, first_segment;
	unsigned int fail_driver, fail_records, fail_memory;	/* the n-th from now fails; 0 none */
	bool memory_ends, no_memory;	/* after that there is none at all */
	bool no_records;		/* for blocks, but for @kept ones that go back */
	unsigned int kept;
	void *memory[MEMORIES];
	unsigned int given;
	bool locked;
	struct driver driver;
};

static struct gm_heap_ops ops;

static bool fails(unsigned int *countdown)
{
	return *countdown && !--*countdown;
}

static uint32_t segment_new(void *arg)
{
	struct world *w = arg;
	uint32_t id = w->segment_unused;

	if (fails(&w->fail_records))
		return GM_NONE;
	if (id)
		w->segment_unused = w->segments[id].next;
	else
		id = w->segment_fresh < SEGMENTS ? w->segment_fresh++ : GM_NONE;
	if (!id)
		return GM_NONE;
	memset(&w->segments[id], 0, sizeof(w->segments[id]));
	w->segments[id].next = w->first_segment;
	w->segments[w->first_segment].prev = id;
	w->first_segment = id;
	return id;
}

static void segment_drop(void *arg, uint32_t id)
{
	struct world *w = arg;
	struct gm_segment *s = &w->segments[id];

	if (w->first_segment == id)
		w->first_segment = s->next;
	else
		w->segments[s->prev].next = s->next;
	w->segments[s->next].prev = s->prev;
	s->next = w->segment_unused;
	w->segment_unused = id;
}

static uint32_t block_new(void *arg, bool goes_back)
{
	struct world *w = arg;
	uint32_t id = w->block_unused;

	if (w->no_records && !(goes_back && w->kept))
		return GM_NONE;
	w->kept -= w->no_records;
	if (fails(&w->fail_records))
		return GM_NONE;
	if (id)
		w->block_unused = w->blocks[id].next;
	else
		id = w->block_fresh < BLOCKS ? w->block_fresh++ : GM_NONE;
	if (id)
		memset(&w->blocks[id], 0, sizeof(w->blocks[id]));
	return id;
}

static void block_drop(void *arg, uint32_t id)
{
	struct world *w = arg;

	w->blocks[id].state = GM_BLOCK_UNUSED;
	w->blocks[id].next = w->block_unused;
	w->block_unused = id;
}

static void *memory(void *arg, size_t bytes)
{
	struct world *w = arg;

	if (w->no_memory || fails(&w->fail_memory)) {
		w->no_memory = w->memory_ends;
		return NULL;
	}
	ck_assert_uint_lt(w->given, MEMORIES);
	return w->memory[w->given++] = calloc(1, bytes);
}

static bool lock(void *arg, bool grown)
{
	(void)grown;
	ck_assert(!((struct world *)arg)->locked);
	return ((struct world *)arg)->locked = true;
}

static void unlock(void *arg)
{
	ck_assert(((struct world *)arg)->locked);
	((struct world *)arg)->locked = false;
}

/* A locked heap of @config, whose driver is the functions in @driver and zeroes. */
static struct world *world_new(const struct gm_heap_config *config, struct gm_heap_ops driver)
{
	struct world *w = calloc(1, sizeof(*w));
	struct gm_heap_setup setup;

	w->segment_fresh = w->block_fresh = 1;
	ops = driver;
	ops.segment_new = segment_new;
	ops.segment_drop = segment_drop;
	ops.block_new = block_new;
	ops.block_drop = block_drop;
	ops.lock = lock;
	ops.unlock = unlock;
	ops.arg = w;
	setup = (struct gm_heap_setup){ .config = config, .ops = &ops, .undo = &w->undo,
		.stats = &w->stats, .segments = w->segments, .blocks = w->blocks,
		.links = w->links, .memory = memory, .memory_arg = w,
		.map = gm_page_map_new(memory, w) };
	ck_assert(setup.map != NULL);
	w->heap = gm_heap_new(&setup);
	ck_assert_ptr_nonnull(w->heap);
	w->locked = true;
	return w;
}

static void world_free(struct world *w)
{
	for (unsigned int i = 0; i < w->given; i++)
		free(w->memory[i]);
	free(w);
}

/* ---- random programs ---- */

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Below 2^@bits, as programs have them: many small, few large. */
static uint64_t some_bytes(uint64_t *state, unsigned int bits)
{
	uint64_t shift = rnd(state) % bits;

	return 1 + rnd(state) % ((UINT64_C(1) << shift) + 1);
}

#endif
