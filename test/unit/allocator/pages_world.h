/*
 * pages_world.h - a driver and tables for the pages heap, with memory that remembers: every 512 bytes of each page know
 * who used them last and when that was freed. take and complete check that no two live blocks share any, and that nobody
 * gets what another stream may still use; so does unmap.
 */
#ifndef GM_TEST_PAGES_WORLD_H
#define GM_TEST_PAGES_WORLD_H

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/pages_heap.h"

#define SEGMENTS 64u
#define BLOCKS 4096u
#define VA_PAGES 4096u			/* 8 GiB of addresses */
#define PAGES 512u			/* 1 GiB of memory */
#define UNITS (GM_HEAP_PAGE / GM_GRANULE)
#define BASE UINT64_C(0x7f0000000000)
#define NOBODY UINT32_MAX

struct unit { uint32_t live, stream; uint64_t freed; };	/* @live: block, 0 none */
struct page { struct unit units[UNITS]; };

struct world {
	struct gm_heap *heap;
	struct gm_undo undo;
	struct gm_stats stats;
	struct gm_segment segments[SEGMENTS];
	struct gm_block blocks[BLOCKS];
	struct gm_free_link links[BLOCKS];
	uint32_t segment_fresh, block_fresh, segment_unused, block_unused, first_segment;
	uint32_t behind[VA_PAGES];	/* page + 1 */
	uint32_t spare[PAGES], spares, pages_made, capacity;	/* pages */
	struct page *pages[PAGES];
	unsigned int fail_driver, fail_records, fail_memory;	/* the n-th from now fails; 0 none */
	uint64_t now, lag, va_bytes;
	uint32_t stream;		/* of the request under way; NOBODY: none */
	void *memory[1024];
	unsigned int given, maps;
	uint64_t told;			/* bytes that came and did not go, by page events */
	bool locked;
	bool seen;			/* the host has seen the GPU past what is freed now */
};

/* An assertion of libcheck's writes to a file, also when it holds: too slow for each 512 bytes. */
#define EXPECT(condition) do { if (!(condition)) ck_abort_msg("%s", #condition); } while (0)

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
	if (id)
		memset(&w->segments[id], 0, sizeof(w->segments[id]));
	return id;
}

static void segment_drop(void *arg, uint32_t id)
{
	struct world *w = arg;

	w->segments[id].next = w->segment_unused;
	w->segment_unused = id;
}

static uint32_t block_new(void *arg)
{
	struct world *w = arg;
	uint32_t id = w->block_unused;

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

	if (fails(&w->fail_memory))
		return NULL;
	ck_assert_uint_lt(w->given, 1024);
	return w->memory[w->given++] = calloc(1, bytes);
}

/* ---- the driver ---- */

static int reserve(void *arg, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes)
{
	struct world *w = arg;

	ck_assert(!w->locked);
	if (fails(&w->fail_driver))
		return -ENOMEM;
	*ret_address = BASE;
	*ret_bytes = bytes < w->va_bytes ? bytes : w->va_bytes;
	return 0;
}

static uint32_t *behind(struct world *w, uint64_t address)
{
	EXPECT((address - BASE) / GM_HEAP_PAGE < VA_PAGES);
	return &w->behind[(address - BASE) / GM_HEAP_PAGE];
}

static uint64_t passed(void *arg)
{
	struct world *w = arg;

	return w->now > w->lag ? w->now - w->lag : 0;
}

/* May the stream of the request under way have the page, or anybody? */
static bool is_past(struct world *w, const struct unit *unit)
{
	return unit->stream == w->stream || unit->freed <= passed(w);
}

static struct gm_heap_ops ops;

static int map(void *arg, uint64_t address, uint64_t bytes)
{
	struct world *w = arg;
	uint32_t pages = (uint32_t)(bytes / GM_HEAP_PAGE);

	ck_assert(!w->locked && bytes && !(address % GM_HEAP_PAGE) && !(bytes % GM_HEAP_PAGE));
	w->maps++;
	if (fails(&w->fail_driver) || pages > w->spares + w->capacity - w->pages_made)
		return -ENOMEM;
	for (uint32_t i = 0; i < pages; i++) {
		uint32_t *at = behind(w, address + i * GM_HEAP_PAGE);

		EXPECT(!*at);
		if (w->spares) {
			*at = w->spare[--w->spares];
			continue;
		}
		if (!w->pages[w->pages_made])
			w->pages[w->pages_made] = calloc(1, sizeof(struct page));
		*at = ++w->pages_made;
	}
	return 0;
}

/* Nothing in the pages is live, and what was is over for whoever asks. */
static void unmap(void *arg, uint64_t address, uint64_t bytes)
{
	struct world *w = arg;

	ck_assert(!w->locked && bytes && !(address % GM_HEAP_PAGE) && !(bytes % GM_HEAP_PAGE));
	for (uint64_t end = address + bytes; address < end; address += GM_HEAP_PAGE) {
		uint32_t page = *behind(w, address);

		ck_assert_uint_ne(page, 0);
		for (uint32_t u = 0; u < UNITS; u++) {
			EXPECT(!w->pages[page - 1]->units[u].live);
			EXPECT(ops.moves_passed ? w->pages[page - 1]->units[u].freed <= passed(w) :
						  is_past(w, &w->pages[page - 1]->units[u]));
		}
		*behind(w, address) = 0;
		w->spare[w->spares++] = page;
	}
}

/* The spare pages are made anew when they are asked for again: the highest numbers go. */
static void trim(void *arg)
{
	struct world *w = arg;

	ck_assert(!w->locked);
	while (w->spares) {
		uint32_t page = w->spare[--w->spares], last = w->pages_made--;
		struct page *swapped = w->pages[page - 1];

		w->pages[page - 1] = w->pages[last - 1];
		w->pages[last - 1] = swapped;
		memset(swapped, 0, sizeof(*swapped));
		for (uint32_t i = 0; i < VA_PAGES; i++)
			if (w->behind[i] == last)
				w->behind[i] = page;
		for (uint32_t i = 0; i < w->spares; i++)
			if (w->spare[i] == last)
				w->spare[i] = page;
	}
}

static void page_event(void *arg, bool mapped, uint32_t segment, uint64_t address, uint64_t bytes)
{
	struct world *w = arg;

	ck_assert(w->locked && bytes);
	ck_assert(w->segments[segment].address <= address);
	w->told += mapped ? bytes : 0 - bytes;
}

static uint64_t moment(void *arg)
{
	const struct world *w = arg;

	return w->seen ? 0 : w->now;
}

static void synchronize(void *arg)
{
	struct world *w = arg;

	ck_assert(!w->locked);
	w->now += w->lag;
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

static struct world *begin(uint64_t limit, uint32_t capacity, uint64_t lag)
{
	struct world *w = calloc(1, sizeof(*w));
	struct gm_heap_config config;
	struct gm_heap_setup setup;

	gm_heap_config_default(&config);
	config.class = &gm_pages_heap;
	config.limit = limit;
	w->segment_fresh = w->block_fresh = 1;
	w->capacity = capacity;
	w->lag = lag;
	w->now = 1;
	w->va_bytes = VA_PAGES * GM_HEAP_PAGE;
	w->stream = NOBODY;
	ops = (struct gm_heap_ops){ .segment_new = segment_new, .segment_drop = segment_drop,
		.block_new = block_new, .block_drop = block_drop, .reserve = reserve, .map = map,
		.unmap = unmap, .trim = trim, .moment = moment, .passed = passed, .page_event = page_event,
		.synchronize = synchronize, .lock = lock, .unlock = unlock, .arg = w };
	setup = (struct gm_heap_setup){ .config = &config, .ops = &ops, .undo = &w->undo,
		.stats = &w->stats, .segments = w->segments, .blocks = w->blocks,
		.links = w->links, .memory = memory, .memory_arg = w,
		.map = gm_page_map_new(memory, w) };
	ck_assert(setup.map != NULL);
	w->heap = gm_heap_new(&setup);
	ck_assert_ptr_nonnull(w->heap);
	w->locked = true;
	return w;
}

static void end(struct world *w)
{
	for (unsigned int i = 0; i < w->given; i++)
		free(w->memory[i]);
	for (unsigned int i = 0; i < PAGES; i++)
		free(w->pages[i]);
	free(w);
}

/* ---- what the program does ---- */

/* Each 512 bytes of the block, where they lie in memory. */
static struct unit *unit_at(struct world *w, uint64_t address)
{
	uint32_t page = *behind(w, address);

	EXPECT(page);			/* there is memory behind the address */
	return &w->pages[page - 1]->units[address % GM_HEAP_PAGE / GM_GRANULE];
}

static int take(struct world *w, uint64_t bytes, uint32_t stream, uint32_t *ret_id)
{
	struct gm_heap_request request = { bytes, stream };
	bool failing = w->fail_records;
	int r;

	w->now++;
	w->stream = stream;
	r = gm_heap_alloc(w->heap, &request, ret_id);
	ck_assert(w->locked);
	for (uint64_t at = 0; !r && at < w->blocks[*ret_id].size; at += GM_GRANULE) {
		struct unit *unit = unit_at(w, w->blocks[*ret_id].address + at);

		EXPECT(!unit->live);
		EXPECT(is_past(w, unit));
		*unit = (struct unit){ *ret_id, stream, 0 };
	}
	w->stream = NOBODY;
	if (!r) {
		/* Without a record for a cut the block goes out whole. */
		ck_assert_uint_ge(w->blocks[*ret_id].size, bytes);
		ck_assert(failing || w->blocks[*ret_id].size == (bytes + 511) / 512 * 512);
		ck_assert_uint_eq(w->blocks[*ret_id].stream, stream);
		ck_assert_int_eq(w->blocks[*ret_id].state, GM_BLOCK_ACTIVE);
	}
	return r;
}

static void complete(struct world *w, uint32_t id)
{
	w->now++;
	for (uint64_t at = 0; at < w->blocks[id].size; at += GM_GRANULE) {
		struct unit *unit = unit_at(w, w->blocks[id].address + at);

		EXPECT(unit->live == id);
		unit->live = 0;
		unit->freed = w->seen ? 0 : w->now;
	}
	gm_heap_free_completed(w->heap, id);
}

static void give_back(struct world *w, uint32_t id)
{
	gm_heap_free_requested(w->heap, id);
	complete(w, id);
}

static void check_all(struct world *w, int step)
{
	ck_assert_msg(!gm_heap_check(w->heap, w->first_segment), "step %d", step);
	ck_assert_uint_eq(w->heap->reserved, w->pages_made * GM_HEAP_PAGE);
	ck_assert_uint_eq(w->spares, 0);
	ck_assert_uint_eq(w->told, w->heap->reserved);
}

#endif
