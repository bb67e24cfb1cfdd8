/*
 * copy_lives.c - the live blocks of application pools. Each line of a pool's table (struct gm_live) becomes a segment
 * with one block, so that all other readers see one form for pools and for the driver's memory. The pools' statistics
 * and their usage rows by module and by kind are computed here from the lines.
 *
 * Nothing that was read is trusted, and the size of a region bounds every loop. Thread context: one thread for each
 * copy.
 */
#include "recorder/read/copy_internal.h"

#include <errno.h>
#include <string.h>

#define ADDRESSES (UINT64_C(1) << 57)

#define ROWS_MOST 256u		/* usage rows computed here; no program has so many modules that allocate */

static const struct gm_live *line_at(const struct gm_copy *copy, size_t i)
{
	return (const struct gm_live *)(const void *)(copy->base + copy->header->regions[GM_REGION_LIVES].offset) + i;
}

/* Return the address of the block in @line; 0: the line holds none. A block with GM_LIVE_ENDING is live. */
static uint64_t address_of(struct gm_copy *copy, const struct gm_live *line)
{
	uint64_t address = line->address & ~GM_LIVE_ENDING;
	const struct gm_domain *domain;

	if (!address || address & GM_LIVE_BEGINNING)
		return 0;
	domain = gm_copy_domain(copy, line->domain);
	if (!domain || !domain->pool.source || line->kind >= GM_KIND_COUNT || !line->size ||
	    address > ADDRESSES || line->size > ADDRESSES - address) {
		copy->damage++;
		return 0;
	}
	return address;
}

/* ---- changes under way --------------------------------------------------------------------------- */

static struct gm_thread *thread_of(const struct gm_pair *change)
{
	return (struct gm_thread *)(void *)(uintptr_t)change->value;
}

/* List the changes under way as (address, thread), sorted. @list has room for two pairs for each thread. */
static struct gm_pair *changes(struct gm_copy *copy, struct gm_pair *list, size_t *ret_count)
{
	size_t threads = gm_copy_items(copy, GM_REGION_THREADS), count = 0;

	for (size_t i = 0; i < threads; i++) {
		struct gm_thread *thread = gm_copy_thread(copy, i);

		if (thread->pool_op)
			list[count++] = (struct gm_pair){ thread->pool_address & ~GM_LIVE_ENDING, (uintptr_t)thread };
	}
	*ret_count = count;
	return gm_pairs_sort(list, list + threads, count);
}

/* Compare the block at @address in @line with the changes under way. A change that begins this block was made, because
 * the block is here; a change that ends this block was not. @made: by the place of a change in the list. */
static void look(const struct gm_pair *list, size_t count, bool *made, const struct gm_live *line, uint64_t address)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list[middle].key < address)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < count && list[low].key == address; low++) {
		const struct gm_thread *thread = thread_of(&list[low]);

		if (thread->pool_address & GM_LIVE_ENDING)
			made[low] = false;
		else if (line->op == thread->pool_op)
			made[low] = true;
	}
}

/* Find the changes under way that were made, and clear their pool_op. The other changes keep it, which drops their
 * events. */
static int settle(struct gm_copy *copy)
{
	size_t threads = gm_copy_items(copy, GM_REGION_THREADS), lines = gm_copy_items(copy, GM_REGION_LIVES), count;
	struct gm_pair *room = gm_scratch_get(&copy->scratch, threads * (2 * sizeof(*room) + sizeof(bool)));
	bool *made = (bool *)(room + 2 * threads);
	const struct gm_pair *list;

	if (!room)
		return -ENOMEM;
	list = changes(copy, room, &count);
	for (size_t i = 0; i < count; i++)
		made[i] = thread_of(&list[i])->pool_address & GM_LIVE_ENDING;
	for (size_t i = 1; count && i < lines; i++) {
		uint64_t address = line_at(copy, i)->address & ~GM_LIVE_ENDING;

		if (address && !(address & GM_LIVE_BEGINNING))
			look(list, count, made, line_at(copy, i), address);
	}
	for (size_t i = 0; i < count; i++) {
		if (made[i])
			thread_of(&list[i])->pool_op = 0;
		copy->undone += !made[i];
	}
	gm_scratch_drop(&copy->scratch, room);
	return 0;
}

/* ---- sums over the lines --------------------------------------------------------------------------- */

/* The usage rows that are computed here. */
struct rows { struct gm_usage *first; unsigned int count; };

static bool same(const struct gm_usage *a, const struct gm_usage *b)
{
	return a->domain == b->domain && a->module == b->module && a->kind == b->kind;
}

/* Add @flow to the row with the domain, module and kind of @of. Make the row if there is room. */
static void count_row(struct gm_copy *copy, struct rows *rows, const struct gm_usage *of, const struct gm_flow *flow)
{
	unsigned int i = 0;

	while (i < rows->count && !same(&rows->first[i], of))
		i++;
	if (i == rows->count) {
		if (i == ROWS_MOST || copy->copied[GM_REGION_USAGE] + sizeof(*of) >
				      copy->header->regions[GM_REGION_USAGE].capacity)
			return;
		rows->first[rows->count++] = *of;
		copy->copied[GM_REGION_USAGE] += sizeof(*of);
	}
	gm_usage_move(&rows->first[i], flow);
}

static void count_block(struct gm_copy *copy, struct rows *rows, const struct gm_block *block)
{
	struct gm_pool *pool = &gm_copy_domain(copy, block->domain)->pool;
	struct gm_pool_sums *sums = &pool->classes[block->size > GM_SMALL_BYTES].sums;
	const struct gm_flow flow = { .in = 1, .in_bytes = block->size };
	const struct gm_usage by_module = { .used = 1, .module = block->module, .domain = block->domain,
					    .kind = GM_USAGE_ALL_KINDS };
	const struct gm_usage by_kind = { .used = 1, .module = GM_USAGE_ALL_MODULES, .domain = block->domain,
					  .kind = block->kind };

	sums->taken_blocks = gm_pool_live(sums->taken_blocks, 1);
	sums->taken_bytes = gm_pool_live(sums->taken_bytes, (int64_t)block->size);
	count_row(copy, rows, &by_module, &flow);
	count_row(copy, rows, &by_kind, &flow);
}

/* Compute the number of events of each pool's blocks. Then set the @taken counters as if no block were live, because
 * count_block subtracts the block of each line again. */
static void begin_sums(struct gm_copy *copy)
{
	for (unsigned int d = GM_DOMAIN_POOLS; d < GM_DOMAINS; d++) {
		struct gm_domain *domain = gm_copy_domain(copy, d);

		for (unsigned int i = 0; domain && i < 2; i++) {
			struct gm_pool_sums *sums = &domain->pool.classes[i].sums;

			domain->counts.events += (uint64_t)sums->given_blocks + 2 * (uint64_t)sums->taken_blocks;
			sums->taken_blocks = sums->given_blocks;
			sums->taken_bytes = sums->given_bytes;
		}
		if (domain)
			domain->counts.events -= domain->pool.unwritten;
	}
}

static void end_sums(struct gm_copy *copy)
{
	for (unsigned int d = GM_DOMAIN_POOLS; d < GM_DOMAINS; d++) {
		struct gm_domain *domain = gm_copy_domain(copy, d);

		if (domain && domain->pool.source)
			gm_pool_count(&domain->pool, &domain->stats);
	}
}

/* ---- the records ----------------------------------------------------------------------------------- */

static void make_record(struct gm_copy *copy, struct rows *rows, const struct gm_live *line, uint64_t address)
{
	uint32_t segment = (uint32_t)gm_copy_items(copy, GM_REGION_SEGMENTS);
	uint32_t block = (uint32_t)gm_copy_items(copy, GM_REGION_BLOCKS);

	copy->pool_segments[copy->pool_count] = (struct gm_segment){
		.address = address, .size = line->size, .stream = line->stream, .op = line->op, .tsc = line->tsc,
		.first_block = block, .stack = line->stack, .module = line->module, .domain = line->domain,
		.kind = line->kind, .used = 1,
		.flags = line->size <= GM_SMALL_BYTES ? GM_SEGMENT_SMALL : 0,
	};
	copy->pool_blocks[copy->pool_count] = (struct gm_block){
		.address = address, .size = line->size, .requested = line->size, .stream = line->stream,
		.segment = segment, .domain = line->domain, .kind = line->kind, .tsc = line->tsc, .op = line->op,
		.state = GM_BLOCK_ACTIVE, .module = line->module,
		.flags = line->size < copy->header->history_min_size ? GM_BLOCK_UNTRACED : 0,
		.thread = line->thread, .stack = line->stack, .name = line->name,
	};
	count_block(copy, rows, &copy->pool_blocks[copy->pool_count]);
	gm_sites_add_line(copy, line);
	copy->pool_count++;
}

int gm_resolve_lives(struct gm_copy *copy)
{
	size_t lines = gm_copy_items(copy, GM_REGION_LIVES), count = 0, at = 0;
	struct gm_pair *pairs;
	const struct gm_pair *order;
	struct rows rows = {
		.first = (void *)(copy->base + copy->header->regions[GM_REGION_USAGE].offset +
				  copy->copied[GM_REGION_USAGE]),
	};
	int r = settle(copy);

	if (r)
		return r;
	for (size_t i = 1; i < lines; i++)
		count += (line_at(copy, i)->address & ~GM_LIVE_ENDING) != 0;
	copy->pool_segments = gm_scratch_get(&copy->scratch, count * sizeof(*copy->pool_segments));
	copy->pool_blocks = gm_scratch_get(&copy->scratch, count * sizeof(*copy->pool_blocks));
	pairs = gm_scratch_get(&copy->scratch, 2 * count * sizeof(*pairs));
	if (!copy->pool_segments || !copy->pool_blocks || !pairs)
		return -ENOMEM;
	for (size_t i = 1; i < lines && at < count; i++) {
		pairs[at] = (struct gm_pair){ address_of(copy, line_at(copy, i)), i };
		at += pairs[at].key != 0;
	}
	/* Readers walk over the records by address, many times. In another order each record would be a cache miss. */
	order = gm_pairs_sort(pairs, pairs + count, at);
	begin_sums(copy);
	gm_sites_begin_pools(copy);
	for (size_t i = 0; i < at; i++) {
		__builtin_prefetch(line_at(copy, order[i + 8 < at ? i + 8 : i].value));
		make_record(copy, &rows, line_at(copy, order[i].value), order[i].key);
	}
	end_sums(copy);
	gm_scratch_drop(&copy->scratch, pairs);
	gm_resolve_sites(copy, true);
	return 0;
}
