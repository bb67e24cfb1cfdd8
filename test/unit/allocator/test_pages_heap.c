/*
 * test_pages_heap.c - the pages heap against random programs on memory that remembers: every 512 bytes of each page
 * know who used them last and when that was freed. Checked: no two live blocks share any; nobody gets what another
 * stream may still use; reserved memory stays within the bounds; every failure of the driver and of the tables.
 */
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
	bool locked;
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
			EXPECT(is_past(w, &w->pages[page - 1]->units[u]));
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

static uint64_t moment(void *arg)
{
	return ((struct world *)arg)->now;
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

static struct gm_heap_ops ops;

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
		.unmap = unmap, .trim = trim, .moment = moment, .passed = passed,
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
		unit->freed = w->now;
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
}

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint64_t some_bytes(uint64_t *state)
{
	uint64_t shift = rnd(state) % 24;

	return 1 + rnd(state) % ((UINT64_C(1) << shift) + 1);
}

static void random_program(uint32_t streams, uint64_t lag, uint32_t capacity, uint64_t seed, int steps)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, capacity, lag);
	uint32_t live[200], pending[64];
	unsigned int lives = 0, pendings = 0, moved = 0;
	uint64_t bytes;

	for (int i = 0; i < steps; i++) {
		uint64_t dice = rnd(&seed) % 100;

		if (dice < 52 && lives < 200) {
			int r;

			if (dice < 1)
				w->fail_records = 1 + (unsigned int)(rnd(&seed) % 4);
			else if (dice < 2)
				w->fail_driver = 1 + (unsigned int)(rnd(&seed) % 3);
			else if (dice < 3)
				w->fail_memory = 1;
			r = take(w, some_bytes(&seed), (uint32_t)(rnd(&seed) % streams), &live[lives]);
			w->fail_records = w->fail_driver = w->fail_memory = 0;
			ck_assert_msg(!r || r == -ENOMEM || r == -ENOSPC, "%d", r);
			lives += !r;
		} else if (dice < 70 && lives && pendings < 64) {
			unsigned int n = (unsigned int)(rnd(&seed) % lives);

			gm_heap_free_requested(w->heap, live[n]);
			pending[pendings++] = live[n];
			live[n] = live[--lives];
		} else if (dice < 85 && lives) {
			unsigned int n = (unsigned int)(rnd(&seed) % lives);

			give_back(w, live[n]);
			live[n] = live[--lives];
		} else if (dice < 99 && pendings) {
			unsigned int n = (unsigned int)(rnd(&seed) % pendings);

			complete(w, pending[n]);
			pending[n] = pending[--pendings];
		} else if (dice == 99 && rnd(&seed) % 8 == 0) {
			ck_assert_int_eq(gm_heap_release(w->heap, rnd(&seed) % 2, &bytes), 0);
		}
		check_all(w, i);
	}
	moved = (unsigned int)gm_pages(w->heap)->moved;
	while (lives)
		give_back(w, live[--lives]);
	while (pendings)
		complete(w, pending[--pendings]);
	ck_assert_int_eq(gm_heap_release(w->heap, true, &bytes), 0);
	check_all(w, steps);
	ck_assert_uint_eq(w->pages_made, 0);
	ck_assert_uint_eq(gm_pages(w->heap)->region[0].segment, GM_NONE);
	ck_assert_uint_eq(gm_pages(w->heap)->region[1].segment, GM_NONE);
	ck_assert_uint_gt(moved, 0);	/* the program asks for it */
	end(w);
}

static const struct { uint32_t streams; uint64_t lag; uint32_t capacity; } settings[] = {
	{ 1, 0, PAGES }, { 1, 50, PAGES }, { 4, 0, PAGES }, { 4, 20, PAGES }, { 4, 1000, PAGES },
	{ 2, 100, 150 }, { 1, 10, 80 },
};

#ifdef __SANITIZE_THREAD__
#define PROGRAMS 1
#else
#define PROGRAMS 4
#endif

START_TEST(random_programs)
{
	const char *text = getenv("GM_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : UINT64_C(0x9e3779b97f4a7c15);

	for (int i = 0; i < PROGRAMS; i++)
		random_program(settings[_i].streams, settings[_i].lag, settings[_i].capacity, rnd(&seed), 1000);
}
END_TEST

/* Every other of many blocks goes, and larger ones come: their memory is moved, not got anew. */
START_TEST(moves_what_is_idle)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	const uint64_t small = UINT64_C(11) << 20, large = UINT64_C(21) << 20;
	uint32_t id[80], more[19];

	for (int i = 0; i < 80; i++)
		ck_assert_int_eq(take(w, small, 0, &id[i]), 0);
	ck_assert_uint_eq(w->heap->reserved, 80 * small);
	ck_assert_uint_eq(gm_pages(w->heap)->moved, 0);
	for (int i = 0; i < 80; i += 2)
		give_back(w, id[i]);
	ck_assert_uint_ge(w->heap->idle, 40 * (small - 2 * GM_HEAP_PAGE));
	for (int i = 0; i < 19; i++)
		ck_assert_int_eq(take(w, large, 0, &more[i]), 0);
	check_all(w, 0);
	ck_assert_uint_ge(gm_pages(w->heap)->moved, 19 * large / GM_HEAP_PAGE / 2);
	ck_assert_uint_le(w->heap->reserved, 80 * small + GM_PAGES_SLACK(80 * small) + GM_HEAP_PAGE);
	end(w);
}
END_TEST

/* What fits is handed out where it is, the smallest that does, and no page moves. */
START_TEST(best_fit_moves_nothing)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	static const uint64_t mib[] = { 30, 5, 12, 5, 20, 5 };
	uint32_t id[6], again;
	unsigned int maps;

	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(take(w, mib[i] << 20, 0, &id[i]), 0);
	for (int i = 0; i < 6; i += 2)
		give_back(w, id[i]);
	maps = w->maps;
	ck_assert_int_eq(take(w, UINT64_C(18) << 20, 0, &again), 0);
	ck_assert_uint_eq(w->blocks[again].address, BASE + (UINT64_C(52) << 20));
	ck_assert_int_eq(take(w, UINT64_C(11) << 20, 0, &again), 0);
	ck_assert_uint_eq(w->blocks[again].address, BASE + (UINT64_C(35) << 20));
	ck_assert_uint_eq(w->maps, maps);
	end(w);
}
END_TEST

/* What a stream freed is its own at once, and the other's once all are past it: as a block, and as pages. */
START_TEST(streams_wait_for_each_other)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	const uint64_t bytes = UINT64_C(40) << 20;
	uint32_t first, second, third;
	uint64_t address;

	ck_assert_int_eq(take(w, bytes, 1, &first), 0);
	address = w->blocks[first].address;
	give_back(w, first);
	ck_assert_int_eq(take(w, bytes, 2, &second), 0);
	ck_assert_uint_ne(w->blocks[second].address, address);
	ck_assert_uint_eq(w->heap->reserved, 2 * bytes);
	ck_assert_int_eq(take(w, bytes, 1, &first), 0);
	ck_assert_uint_eq(w->blocks[first].address, address);
	give_back(w, first);
	w->now += 101;
	ck_assert_int_eq(take(w, bytes, 2, &third), 0);
	ck_assert_uint_eq(w->blocks[third].address, address);
	give_back(w, third);
	w->now += 101;
	/* Larger than either: the pages of both streams' memory. */
	ck_assert_int_eq(take(w, bytes + bytes / 4, 1, &third), 0);
	ck_assert_uint_le(w->heap->reserved, 2 * bytes + bytes / 4 + GM_HEAP_PAGE);
	check_all(w, 0);
	end(w);
}
END_TEST

/* What is anybody's and what is one stream's own lie side by side, and serve one request together. What is left of them
 * is that stream's, and no other's. */
START_TEST(own_and_anybodys_together)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 100);
	uint32_t small, first, second, third, other;
	uint64_t address;

	ck_assert_int_eq(take(w, 1000, 2, &small), 0);
	ck_assert_int_eq(take(w, UINT64_C(40) << 20, 1, &first), 0);
	ck_assert_int_eq(take(w, UINT64_C(10) << 20, 1, &second), 0);
	ck_assert_int_eq(take(w, UINT64_C(3) << 20, 1, &third), 0);
	address = w->blocks[first].address;
	give_back(w, first);
	w->now += 101;
	ck_assert_int_eq(take(w, 1000, 1, &small), 0);	/* not found among its own: it looks again */
	ck_assert_uint_eq(w->blocks[w->blocks[second].prev].stream, GM_PAGES_ANY);
	give_back(w, second);
	ck_assert_int_eq(take(w, UINT64_C(45) << 20, 1, &first), 0);
	ck_assert_uint_eq(w->blocks[first].address, address);
	ck_assert_int_eq(take(w, UINT64_C(4) << 20, 2, &other), 0);
	ck_assert_uint_ne(w->blocks[other].address, address + (UINT64_C(45) << 20));
	check_all(w, 0);
	end(w);
}
END_TEST

/* Small requests keep no pages of large ones: with all large ones gone, all of their pages go. */
START_TEST(small_ones_lie_apart)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	uint32_t small[100], large[100];
	uint64_t bytes;

	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(take(w, 1000, 0, &small[i]), 0);
		ck_assert_int_eq(take(w, UINT64_C(3) << 20, 0, &large[i]), 0);
	}
	for (int i = 0; i < 100; i++)
		give_back(w, large[i]);
	ck_assert_int_eq(gm_heap_release(w->heap, true, &bytes), 0);
	ck_assert_uint_eq(bytes, UINT64_C(300) << 20);
	ck_assert_uint_eq(w->heap->reserved, GM_HEAP_PAGE);
	check_all(w, 0);
	end(w);
}
END_TEST

/* The n-th call that can fail fails, for every n until none does: nothing is lost, rules hold. */
START_TEST(every_failure)
{
	for (int which = 0; which < 3; which++)
		for (unsigned int n = 1;; n++) {
			struct world *w = begin(GM_HEAP_UNLIMITED, 40, 10);
			unsigned int *countdown = which == 0 ? &w->fail_driver
						: which == 1 ? &w->fail_records : &w->fail_memory;
			uint32_t live[64];
			unsigned int lives = 0, left;
			uint64_t seed = 7, bytes;

			*countdown = n;
			for (int i = 0; i < 200; i++) {
				if (lives == 64 || (lives && rnd(&seed) % 3 == 0))
					give_back(w, live[--lives]);
				else if (!take(w, some_bytes(&seed), (uint32_t)(rnd(&seed) % 3), &live[lives]))
					lives++;
				if (i % 50 == 49)
					ck_assert_int_eq(gm_heap_release(w->heap, true, &bytes), 0);
				check_all(w, i);
			}
			left = *countdown;
			*countdown = 0;
			while (lives)
				give_back(w, live[--lives]);
			ck_assert_int_eq(gm_heap_release(w->heap, true, &bytes), 0);
			ck_assert_uint_eq(w->pages_made, 0);
			end(w);
			if (left)
				break;	/* it was never reached: all have had their turn */
		}
}
END_TEST

/* What cannot be: more than the limit, the device or the addresses have, and an absurd size. */
START_TEST(limits)
{
	struct world *w = begin(UINT64_C(64) << 20, PAGES, 0);
	uint32_t id, other;

	ck_assert_int_eq(take(w, UINT64_C(1) << 60, 0, &id), -E2BIG);
	ck_assert_int_eq(take(w, UINT64_C(40) << 20, 0, &id), 0);
	ck_assert_int_eq(take(w, UINT64_C(30) << 20, 0, &other), -ENOMEM);
	ck_assert_int_eq(w->stats.num_ooms, 1);
	ck_assert_int_eq(w->stats.num_alloc_retries, 1);
	check_all(w, 0);
	give_back(w, id);
	ck_assert_int_eq(take(w, UINT64_C(60) << 20, 1, &other), 0);
	end(w);

	w = begin(GM_HEAP_UNLIMITED, 20, 0);
	ck_assert_int_eq(take(w, UINT64_C(30) << 20, 0, &id), 0);
	ck_assert_int_eq(take(w, UINT64_C(12) << 20, 0, &other), -ENOMEM);
	check_all(w, 1);
	ck_assert_int_eq(take(w, UINT64_C(10) << 20, 0, &other), 0);
	end(w);

	w = begin(GM_HEAP_UNLIMITED, PAGES, 0);
	w->va_bytes = UINT64_C(64) << 20;
	ck_assert_int_eq(take(w, UINT64_C(60) << 20, 0, &id), -ENOMEM);
	ck_assert_int_eq(take(w, UINT64_C(50) << 20, 0, &id), 0);
	check_all(w, 2);
	end(w);
}
END_TEST

/* A context ends with blocks of all sorts: every record goes, and no call of the driver is made. */
START_TEST(detached)
{
	struct world *w = begin(GM_HEAP_UNLIMITED, PAGES, 50);
	uint32_t live[60], seen = 0, maps;
	uint64_t seed = 11;

	for (int i = 0; i < 60; i++)
		ck_assert_int_eq(take(w, some_bytes(&seed), (uint32_t)i % 3, &live[i]), 0);
	for (int i = 0; i < 60; i += 2)
		give_back(w, live[i]);
	maps = w->maps;
	for (int i = 1; i < 60; i += 2)
		gm_heap_free(w->heap, live[i]);
	for (unsigned int p = 0; p < 2; p++)
		while (gm_pages(w->heap)->region[p].segment) {
			uint32_t id = w->segments[gm_pages(w->heap)->region[p].segment].first_block;

			while (w->blocks[id].state == GM_BLOCK_UNMAPPED && w->blocks[id].next)
				id = w->blocks[id].next;
			gm_heap_detach(w->heap, id);
			seen++;
		}
	ck_assert_uint_gt(seen, 2);
	ck_assert_uint_eq(w->maps, maps);
	ck_assert_uint_eq(w->heap->reserved, 0);
	ck_assert(!gm_heap_check(w->heap, GM_NONE));
	end(w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages_heap");
	TCase *tests = tcase_create("pages_heap");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, random_programs, 0, sizeof(settings) / sizeof(settings[0]));
	tcase_add_test(tests, moves_what_is_idle);
	tcase_add_test(tests, best_fit_moves_nothing);
	tcase_add_test(tests, streams_wait_for_each_other);
	tcase_add_test(tests, own_and_anybodys_together);
	tcase_add_test(tests, small_ones_lie_apart);
	tcase_add_test(tests, every_failure);
	tcase_add_test(tests, limits);
	tcase_add_test(tests, detached);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
