/*
 * pages_world.h - a driver and tables for the pages heap, with memory that remembers: every 512 bytes of each page know
 * who used them last and when that was freed. take and complete check that no two live blocks share any, and that nobody
 * gets what another stream may still use; so does unmap.
 */
#ifndef GM_TEST_PAGES_WORLD_H
#define GM_TEST_PAGES_WORLD_H

#include "allocator/pages_heap.h"

#define VA_PAGES 4096u			/* 8 GiB of addresses */
#define PAGES 512u			/* 1 GiB of memory */
#define UNITS (GM_HEAP_PAGE / GM_GRANULE)
#define NOBODY UINT32_MAX

struct unit { uint32_t live, stream; uint64_t freed; };	/* @live: block, 0 none */
struct page { struct unit units[UNITS]; };

struct driver {
	uint32_t behind[VA_PAGES];	/* page + 1 */
	uint32_t handles[VA_PAGES];	/* as struct gm_heap_ops has it */
	uint32_t handle_most;		/* pages of a handle at most; 0: one */
	uint32_t spare[PAGES], spares, pages_made, capacity;	/* pages */
	struct page *pages[PAGES];
	uint64_t now, lag, va_bytes;
	uint32_t stream;		/* of the request under way; NOBODY: none */
	unsigned int maps;
	uint64_t told;			/* bytes that came and did not go, by page events */
	bool seen;			/* the host has seen the GPU past what is freed now */
	bool waits;			/* for what was freed, rather than grow */
	uint32_t ahead;			/* NOBODY, or a stream whose frees are passed up to the moment @ahead_passed */
	uint64_t ahead_passed;
};

#include "test/rules/check.h"
#include "test/unit/allocator/heap_world.h"

/* An assertion of libcheck's writes to a file, also when it holds: too slow for each 512 bytes. */
#define EXPECT(condition) do { if (!(condition)) ck_abort_msg("%s", #condition); } while (0)

/* ---- the driver ---- */

static int reserve(void *arg, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes, const uint32_t **ret_handles)
{
	struct world *w = arg;

	ck_assert(!w->locked);
	if (fails(&w->fail_driver))
		return -ENOMEM;
	*ret_address = BASE;
	*ret_bytes = bytes < w->driver.va_bytes ? bytes : w->driver.va_bytes;
	*ret_handles = w->driver.handles;
	return 0;
}

static uint32_t *behind(struct world *w, uint64_t address)
{
	EXPECT((address - BASE) / GM_HEAP_PAGE < VA_PAGES);
	return &w->driver.behind[(address - BASE) / GM_HEAP_PAGE];
}

static uint64_t passed(void *arg, uint64_t stream)
{
	struct world *w = arg;
	uint64_t all = w->driver.now > w->driver.lag ? w->driver.now - w->driver.lag : 0;

	return stream == w->driver.ahead && all < w->driver.ahead_passed ? w->driver.ahead_passed : all;
}

/* May the stream of the request under way have the page, or anybody? */
static bool is_past(struct world *w, const struct unit *unit)
{
	return unit->stream == w->driver.stream || unit->freed <= passed(w, unit->stream);
}

static int map(void *arg, uint64_t address, uint64_t bytes)
{
	struct world *w = arg;
	uint32_t pages = (uint32_t)(bytes / GM_HEAP_PAGE), most = w->driver.handle_most ? w->driver.handle_most : 1;
	uint32_t *handle = &w->driver.handles[(address - BASE) / GM_HEAP_PAGE];

	ck_assert(!w->locked && bytes && !(address % GM_HEAP_PAGE) && !(bytes % GM_HEAP_PAGE));
	w->driver.maps++;
	if (fails(&w->fail_driver) || pages > w->driver.spares + w->driver.capacity - w->driver.pages_made)
		return -ENOMEM;
	for (uint32_t i = 0; i < pages; i++) {
		uint32_t *at = behind(w, address + i * GM_HEAP_PAGE);

		EXPECT(!*at);
		handle[i] = i % most ? i % most | GM_HANDLE_REST : pages - i < most ? pages - i : most;
		if (w->driver.spares) {
			*at = w->driver.spare[--w->driver.spares];
			continue;
		}
		if (!w->driver.pages[w->driver.pages_made])
			w->driver.pages[w->driver.pages_made] = calloc(1, sizeof(struct page));
		*at = ++w->driver.pages_made;
	}
	return 0;
}

/* Handles go whole. Nothing in the pages is live, and what was is over for whoever asks. */
static void unmap(void *arg, uint64_t address, uint64_t bytes)
{
	struct world *w = arg;

	ck_assert(!w->locked && bytes && !(address % GM_HEAP_PAGE) && !(bytes % GM_HEAP_PAGE));
	for (uint64_t end = address + bytes, whole = address; address < end; address += GM_HEAP_PAGE) {
		uint32_t page = *behind(w, address), handle = w->driver.handles[(address - BASE) / GM_HEAP_PAGE];

		EXPECT(address < whole ? handle & GM_HANDLE_REST : !(handle & GM_HANDLE_REST));
		whole += address == whole ? handle * GM_HEAP_PAGE : 0;
		EXPECT(whole <= end);

		ck_assert_uint_ne(page, 0);
		for (uint32_t u = 0; u < UNITS; u++) {
			const struct unit *unit = &w->driver.pages[page - 1]->units[u];

			EXPECT(!unit->live);
			EXPECT(ops.moves_passed ? unit->freed <= passed(w, unit->stream) : is_past(w, unit));
		}
		*behind(w, address) = 0;
		w->driver.spare[w->driver.spares++] = page;
	}
}

/* The spare pages are made anew when they are asked for again: the highest numbers go. */
static void trim(void *arg)
{
	struct world *w = arg;

	ck_assert(!w->locked);
	while (w->driver.spares) {
		uint32_t page = w->driver.spare[--w->driver.spares], last = w->driver.pages_made--;
		struct page *swapped = w->driver.pages[page - 1];

		w->driver.pages[page - 1] = w->driver.pages[last - 1];
		w->driver.pages[last - 1] = swapped;
		memset(swapped, 0, sizeof(*swapped));
		for (uint32_t i = 0; i < VA_PAGES; i++)
			if (w->driver.behind[i] == last)
				w->driver.behind[i] = page;
		for (uint32_t i = 0; i < w->driver.spares; i++)
			if (w->driver.spare[i] == last)
				w->driver.spare[i] = page;
	}
}

static void page_event(void *arg, bool mapped, uint32_t segment, uint64_t address, uint64_t bytes)
{
	struct world *w = arg;

	ck_assert(w->locked && bytes);
	ck_assert(w->segments[segment].address <= address);
	w->driver.told += mapped ? bytes : 0 - bytes;
}

static uint64_t point(void *arg)
{
	const struct world *w = arg;

	return w->driver.seen ? 0 : w->driver.now;
}

static void synchronize(void *arg)
{
	struct world *w = arg;

	ck_assert(!w->locked);
	w->driver.now += w->driver.lag;
}

static struct world *begin(uint64_t limit, uint32_t capacity, uint64_t lag)
{
	struct gm_heap_config config;
	struct world *w;

	gm_heap_config_default(&config);
	config.class = &gm_pages_class;
	config.limit = limit;
	w = world_new(&config, (struct gm_heap_ops){ .reserve = reserve, .map = map, .unmap = unmap, .trim = trim,
		.point = point, .passed = passed, .page_event = page_event, .synchronize = synchronize });
	w->driver.capacity = capacity;
	w->driver.lag = lag;
	w->driver.now = 1;
	w->driver.va_bytes = VA_PAGES * GM_HEAP_PAGE;
	w->driver.stream = w->driver.ahead = NOBODY;
	return w;
}

static void end(struct world *w)
{
	for (unsigned int i = 0; i < PAGES; i++)
		free(w->driver.pages[i]);
	world_free(w);
}

/* ---- what the program does ---- */

/* Each 512 bytes of the block, where they lie in memory. */
static struct unit *unit_at(struct world *w, uint64_t address)
{
	uint32_t page = *behind(w, address);

	EXPECT(page);			/* there is memory behind the address */
	return &w->driver.pages[page - 1]->units[address % GM_HEAP_PAGE / GM_GRANULE];
}

static int take(struct world *w, uint64_t bytes, uint32_t stream, uint32_t *ret_id)
{
	struct gm_heap_request request = { bytes, stream, false };
	int r;

	w->driver.now++;
	w->driver.stream = stream;
	r = gm_heap_alloc(w->heap, &request, ret_id);
	ck_assert(w->locked);
	for (uint64_t at = 0; !r && at < w->blocks[*ret_id].size; at += GM_GRANULE) {
		struct unit *unit = unit_at(w, w->blocks[*ret_id].address + at);

		EXPECT(!unit->live);
		EXPECT(is_past(w, unit));
		*unit = (struct unit){ *ret_id, stream, 0 };
	}
	w->driver.stream = NOBODY;
	if (!r) {
		ck_assert_uint_eq(w->blocks[*ret_id].size, (bytes + 511) / 512 * 512);
		ck_assert_uint_eq(w->blocks[*ret_id].stream, stream);
		ck_assert_int_eq(w->blocks[*ret_id].state, GM_BLOCK_ACTIVE);
	}
	return r;
}

static void complete(struct world *w, uint32_t id)
{
	w->driver.now++;
	for (uint64_t at = 0; at < w->blocks[id].size; at += GM_GRANULE) {
		struct unit *unit = unit_at(w, w->blocks[id].address + at);

		EXPECT(unit->live == id);
		unit->live = 0;
		unit->freed = w->driver.seen ? 0 : w->driver.now;
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
	ck_assert_uint_eq(w->heap->reserved, w->driver.pages_made * GM_HEAP_PAGE);
	ck_assert_uint_eq(w->driver.spares, 0);
	ck_assert_uint_eq(w->driver.told, w->heap->reserved);
}

#endif
