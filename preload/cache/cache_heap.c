/*
 * cache_heap.c - make the cache's heaps, find them by number and by place, and keep their private memory and the usage
 * rows that they count in. See cache_heap.h.
 *
 * Free links and free sets are not part of the journal, because a reader can tell free blocks by their state. One
 * array of links serves all heaps, because a block belongs to one heap at a time. The struct of a dropped heap stays,
 * so that a caller that still has its pointer finds it dead. The struct is reused only after DROPPED more heaps were
 * dropped, which takes longer than any call that had the pointer can last. (Without reuse a program that makes
 * contexts for ever would grow.)
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: heaps, a leaf, for numbers and places; the domain's
 * for rows; an arena's memory is its owner's.
 */
#include "preload/cache/cache_heap_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "recorder/journal/sys.h"

#define CHUNK_BYTES (size_t)65536
#define DROPPED 1024u
#define NUMBERS_MOST (1u << 20)		/* most heaps ever made; contexts come and go */
#define PLACES 160u			/* most heaps at a time */

struct gm_arena_chunk { struct gm_arena_chunk *next; size_t bytes; };

static struct {
	struct gm_lock lock;
	struct gm_arena arena;
	struct gm_free_link *links;	/* one for each block of the journal */
	_Atomic(struct gm_cache_heap *) *by_number;
	_Atomic(struct gm_cache_heap *) places[PLACES];	/* the living heaps */
	_Atomic(uint32_t) count;	/* numbers used so far */
	struct gm_cache_heap *oldest, *newest;	/* dropped heaps */
	struct gm_cache_heap *unused;	/* heaps that were made but never published */
	uint32_t dropped;
} heaps;

/* Map zeroed memory. Keeps errno, because this runs within the host's calls. */
static void *map(size_t bytes)
{
	int saved_errno = errno;
	void *at = gm_sys.map(NULL, bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		at = NULL;
	else
		gm_sys.advise(at, bytes, MADV_DONTFORK);
	errno = saved_errno;
	return at;
}

static void *arena_take(struct gm_arena *arena, size_t bytes)
{
	void *at;

	bytes = (bytes + 63) & ~(size_t)63;
	if (bytes > arena->left) {
		size_t whole = bytes + 64 > CHUNK_BYTES ? bytes + 64 : CHUNK_BYTES;
		struct gm_arena_chunk *chunk = map(whole);

		if (!chunk)
			return NULL;
		*chunk = (struct gm_arena_chunk){ arena->chunks, whole };
		arena->chunks = chunk;
		arena->at = (uint8_t *)chunk + 64;
		arena->left = whole - 64;
	}
	at = arena->at;
	arena->at += bytes;
	arena->left -= bytes;
	return at;
}

void gm_arena_free(struct gm_arena *arena)
{
	while (arena->chunks) {
		struct gm_arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		gm_sys.unmap(chunk, chunk->bytes);
	}
	*arena = (struct gm_arena){ .chunks = NULL };
}

void gm_cache_heap_begin(void)
{
	heaps.lock = (struct gm_lock){ .rank = GM_RANK_LEAF };
	heaps.arena = (struct gm_arena){ .chunks = NULL };
	heaps.links = NULL;
	heaps.by_number = NULL;
	for (uint32_t i = 0; i < PLACES; i++)
		gm_set(&heaps.places[i], NULL);
	gm_set(&heaps.count, 0);
	heaps.oldest = heaps.newest = heaps.unused = NULL;
	heaps.dropped = 0;
}

/* Take the first heap of *@list if its class is @class. */
static struct gm_cache_heap *pop_locked(struct gm_cache_heap **list, const struct gm_heap_class *class)
{
	struct gm_cache_heap *heap = *list;

	if (!heap || heap->core->class != class)
		return NULL;
	*list = heap->next;
	return heap;
}

/* Return a zeroed struct with room for a heap of @class. */
static struct gm_cache_heap *take_locked(const struct gm_heap_class *class)
{
	struct gm_cache_heap *heap = pop_locked(&heaps.unused, class);
	struct gm_heap *inner;

	if (!heap && heaps.dropped > DROPPED) {
		heap = pop_locked(&heaps.oldest, class);
		heaps.dropped -= heap != NULL;
	}
	if (heap) {
		inner = heap->core;
		memset((void *)heap, 0, sizeof(*heap));
	} else {
		heap = arena_take(&heaps.arena, sizeof(*heap) + class->bytes);
		inner = (struct gm_heap *)(void *)(heap + 1);
	}
	if (!heap)
		return NULL;
	inner->class = class;
	heap->core = inner;
	return heap;
}

void gm_cache_heap_recycle(struct gm_cache_heap *heap)
{
	if (!gm_lock(&heaps.lock))
		return;
	if (heaps.newest)
		heaps.newest->next = heap;
	else
		heaps.oldest = heap;
	heaps.newest = heap;
	heaps.dropped++;
	gm_unlock(&heaps.lock);
}

static struct gm_cache_heap *make_locked(const struct gm_heap_class *class)
{
	uint64_t blocks = gm_region(GM_REGION_BLOCKS)->capacity / sizeof(struct gm_block);
	uint32_t number = gm_get(&heaps.count) + 1, place = 0;
	struct gm_cache_heap *heap;

	if (!heaps.links)
		heaps.links = map(blocks * sizeof(*heaps.links));
	if (!heaps.by_number)
		heaps.by_number = map(NUMBERS_MOST * sizeof(heaps.by_number[0]));
	while (place < PLACES && gm_get(&heaps.places[place]))
		place++;
	if (!heaps.links || !heaps.by_number || number >= NUMBERS_MOST || place == PLACES)
		return NULL;
	heap = take_locked(class);
	if (!heap)
		return NULL;
	heap->number = number;
	heap->place = place;
	gm_set_release(&heaps.count, number);
	return heap;
}

void *gm_cache_heap_memory(size_t bytes)
{
	void *at;

	if (!gm_lock(&heaps.lock))
		return NULL;
	at = arena_take(&heaps.arena, bytes);
	gm_unlock(&heaps.lock);
	return at;
}

static void *memory_of_heap(void *arg, size_t bytes)
{
	return arena_take(arg, bytes);
}

/* Make the heap save changed words in the domain's undo area. */
static void set_undo(struct gm_undo *undo, struct gm_domain *domain)
{
	_Static_assert(sizeof(struct gm_undo_pair) == sizeof(struct gm_undo_entry) &&
		       offsetof(struct gm_undo_pair, old) == offsetof(struct gm_undo_entry, old) &&
		       GM_UNDO_WORDS == GM_UNDO_RANGE, "one layout");
	*undo = (struct gm_undo){
		.base = gm_rec.base, .pairs = (struct gm_undo_pair *)(void *)domain->undo,
		.count = &domain->undo_count, .room = GM_UNDO_ENTRIES,
	};
}

/* Publish the heap by its number first. A thread that finds it by its place may serve from it at once, and the free
 * of that block finds the heap by its number. Another heap may have taken the place meanwhile; then use the next free
 * one. */
static bool publish(struct gm_cache_heap *heap)
{
	struct gm_cache_heap *none = NULL;

	gm_set_release(&heaps.by_number[heap->number], heap);
	while (heap->place < PLACES &&
	       !atomic_compare_exchange_strong(&heaps.places[heap->place], &none, heap)) {
		none = NULL;
		heap->place++;
	}
	if (heap->place < PLACES)
		return true;
	gm_set_release(&heaps.by_number[heap->number], NULL);
	return false;
}

static int init(struct gm_cache_heap *heap, const struct gm_cache_heap_setup *setup)
{
	struct gm_heap_setup inner = {
		.config = setup->config, .ops = &heap->ops, .undo = &heap->undo,
		.stats = &gm_rec.domains[setup->domain].stats, .segments = gm_rec.segments,
		.blocks = gm_rec.blocks, .links = heaps.links, .memory = memory_of_heap,
		.memory_arg = &heap->arena, .map = setup->map, .number = heap->number,
		.place = heap->core, .domain = setup->domain,
	};
	struct gm_change change;
	int r;

	set_undo(&heap->undo, &gm_rec.domains[setup->domain]);
	heap->ops = *setup->ops;
	heap->ops.arg = heap;
	r = gm_change_enter(&change, setup->domain, 0);
	if (r < 0)
		return r;
	r = gm_heap_new(&inner) ? 0 : -ENOMEM;
	gm_change_leave(&change);
	return r;
}

/* Undo make_locked for a heap that no other thread has found: the next heap gets its number and its struct. */
static void unmake(struct gm_cache_heap *heap)
{
	gm_arena_free(&heap->arena);
	if (!gm_lock(&heaps.lock))
		return;
	if (gm_get(&heaps.count) == heap->number)
		gm_set_release(&heaps.count, heap->number - 1);
	heap->next = heaps.unused;
	heaps.unused = heap;
	gm_unlock(&heaps.lock);
}

int gm_cache_heap_new(const struct gm_cache_heap_setup *setup, struct gm_cache_heap **ret)
{
	struct gm_cache_heap *heap;
	int r;

	if (!gm_header_get())
		return -ENODEV;
	if (setup->domain >= GM_DOMAINS || setup->kind >= GM_KIND_COUNT ||
	    setup->kind == GM_KIND_IPC)
		return -EINVAL;
	if (!gm_lock(&heaps.lock))
		return -ENOMEM;
	heap = make_locked(setup->config->class);
	gm_unlock(&heaps.lock);
	if (!heap)
		return -ENOMEM;
	heap->domain = setup->domain;
	heap->kind = setup->kind;
	heap->context = setup->context;
	heap->at.home = setup->home;
	heap->at.handle = setup->handle;
	heap->pages = setup->pages;
	heap->plain = setup->config->class == &gm_pages_class || gm_heap_rounds_plainly(setup->config);
	heap->thread_cache_wanted = setup->thread_cache;
	r = init(heap, setup);
	gm_set(&heap->thread_cache, heap->thread_cache_wanted && !gm_heap_collects(heap->core));
	if (r == 0 && !publish(heap))
		r = -ENOMEM;
	if (r < 0) {
		unmake(heap);
		return r;
	}
	*ret = heap;
	return 0;
}

void gm_cache_heap_retire(struct gm_cache_heap *heap)
{
	gm_set_release(&heaps.by_number[heap->number], NULL);
	gm_set_release(&heaps.places[heap->place], NULL);
}

struct gm_cache_heap *gm_cache_heap_by_number(uint32_t number)
{
	if (!gm_header_get() || !number || number > gm_get_acquire(&heaps.count))
		return NULL;
	return gm_get_acquire(&heaps.by_number[number]);
}

struct gm_cache_heap *gm_cache_heap_next(const struct gm_cache_heap *after, uint8_t domain)
{
	for (uint32_t i = after ? after->place + 1 : 0; i < PLACES; i++) {
		struct gm_cache_heap *heap = gm_get_acquire(&heaps.places[i]);

		if (heap && (domain == GM_CACHE_ALL || heap->domain == domain))
			return heap;
	}
	return NULL;
}

/* ---- counters ---- */

void gm_cache_heap_site_move(struct gm_cache_heap *heap, struct gm_block *block, bool nested)
{
	uint32_t site = gm_site_find(heap->domain, block->stack, block->module, heap->kind, nested);

	gm_cache_heap_site_out(heap, block);
	gm_undo_note(&heap->undo, &gm_rec.sites[site].live);
	gm_site_in(&gm_rec.domains[heap->domain], block, site, block->stack, block->requested);
}

bool gm_cache_heap_find_rows(struct gm_cache_heap *heap, uint16_t module, bool nested)
{
	struct gm_delta delta;

	if (!gm_delta_init(&delta, heap->domain, module, heap->kind, 0, nested))
		return false;
	for (unsigned int i = 0; i < 3; i++)
		heap->rows[i] = delta.rows[i];
	heap->module = module;
	heap->rows_known = true;
	return true;
}

static void set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

void gm_cache_heap_move(struct gm_cache_heap *heap, const struct gm_flow *flow, uint64_t used)
{
	uint64_t *live = &gm_rec.domains[heap->domain].live_bytes[heap->kind];
	uint64_t by = flow->in_bytes - flow->out_bytes;
	struct gm_undo *undo = &heap->undo;

	gm_undo_note(undo, live);
	*live += by;
	for (unsigned int i = 0; i < 3; i++) {
		struct gm_usage *row = heap->rows[i];

		if (!row)
			continue;
		gm_undo_note_words(undo, &row->current_bytes, GM_USAGE_WORDS);
		gm_usage_move(row, flow);
	}
	set(&heap->live, heap->live + by);
	set(&heap->used, heap->used + used);
	if (gm_unlikely(heap->used > heap->used_high))
		set(&heap->used_high, heap->used);
}
