/*
 * level.c - replace pools' pieces by pools' blocks: see level.h. One thread.
 *
 * A block of the driver's is a pool's piece if a pool recorded an address in it while the block lived. The same memory
 * may be a piece at one time and no piece later. A word is an address that a pool recorded, with its time.
 */
#include "tools/read/level.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"
#include "tools/read/value.h"

struct word { int64_t device; uint64_t address; int64_t time_us; };	/* of a pool */

struct span { int64_t device; uint64_t start, end; };	/* what a pool holds in the end, sorted */

struct words { struct word *list; size_t count; struct span *spans; size_t span_count; };

static int by_place(const void *a, const void *b)
{
	const struct word *p = a, *q = b;

	if (p->device != q->device)
		return p->device < q->device ? -1 : 1;
	if (p->address != q->address)
		return p->address < q->address ? -1 : 1;
	return p->time_us < q->time_us ? -1 : p->time_us > q->time_us;
}

static int by_start(const void *a, const void *b)
{
	const struct span *p = a, *q = b;

	if (p->device != q->device)
		return p->device < q->device ? -1 : 1;
	return p->start < q->start ? -1 : p->start > q->start;
}

/* The blocks of one pool are in order already, and without events there are no other words. */
static bool in_order(const struct words *words)
{
	size_t i = 1;

	while (i < words->count && by_place(&words->list[i - 1], &words->list[i]) <= 0)
		i++;
	return i >= words->count;
}

/* Collect the words of all pools: of their events, and of what they hold in the end. */
static int listen_to(const struct gm_snapshot *snapshot, struct words *ret)
{
	size_t room = 1, spans = 1;

	for (size_t p = 0; p < snapshot->pool_count; p++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[p];

		room += pool->row_count;
		spans += pool->segment_count;
		for (size_t s = 0; s < pool->segment_count; s++)
			room += 1 + pool->segments[s].block_count;
	}
	ret->list = calloc(room, sizeof(*ret->list));
	ret->spans = calloc(spans, sizeof(*ret->spans));
	ret->count = ret->span_count = 0;
	if (!ret->list || !ret->spans) {
		free(ret->list);
		free(ret->spans);
		return -ENOMEM;
	}
	for (size_t p = 0; p < snapshot->pool_count; p++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[p];

		for (size_t i = 0; i < pool->row_count; i++)
			if (strcmp(pool->rows[i].action, "oom"))
				ret->list[ret->count++] = (struct word){ pool->device, pool->rows[i].address,
									 pool->rows[i].time_us };
		for (size_t s = 0; s < pool->segment_count; s++) {
			const struct gm_snapshot_segment *segment = &pool->segments[s];

			ret->list[ret->count++] = (struct word){ pool->device, segment->address, INT64_MAX };
			if (!segment->outside && segment->total_size > 0)
				ret->spans[ret->span_count++] = (struct span){
					pool->device, segment->address, segment->address + (uint64_t)segment->total_size
				};
			for (size_t b = 0; b < segment->block_count; b++)
				ret->list[ret->count++] = (struct word){ pool->device, segment->blocks[b].address,
									 INT64_MAX };
		}
	}
	if (!in_order(ret))
		qsort(ret->list, ret->count, sizeof(*ret->list), by_place);
	qsort(ret->spans, ret->span_count, sizeof(*ret->spans), by_start);
	return 0;
}

/* Return the place of the first word that is not before @key; the count of words if there is none. */
static size_t first_from(const struct words *words, const struct word *key)
{
	size_t low = 0, high = words->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (by_place(&words->list[middle], key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Does a pool hold all of [@address, +@size) in the end? A block may begin in one piece and reach into others. */
static bool is_held(const struct words *words, int64_t device, uint64_t address, int64_t size)
{
	size_t low = 0, high = words->span_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct span *span = &words->spans[middle];

		if (span->device != device ? span->device < device : span->end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < words->span_count && words->spans[low].device == device && words->spans[low].start <= address &&
	       size > 0 && words->spans[low].end - address >= (uint64_t)size;
}

/* Is there a word in [@address, +@size) of @device from the time @from to the time @to? */
static bool is_piece(const struct words *words, int64_t device, uint64_t address, int64_t size, int64_t from,
		     int64_t to)
{
	struct word key = { device, address, from };
	size_t at;

	if (to == INT64_MAX && is_held(words, device, address, size))
		return true;
	for (at = first_from(words, &key); at < words->count; at = first_from(words, &key)) {
		const struct word *word = &words->list[at];

		if (word->device != device || word->address - address >= (uint64_t)(size > 0 ? size : 1))
			return false;
		if (word->time_us >= from && word->time_us <= to)
			return true;
		/* Go on at this address from @from on, or at the next address. */
		key.address = word->time_us < from ? word->address : word->address + 1;
		key.time_us = from;
	}
	return false;
}

/* ---- events ------------------------------------------------------------------------------------ */

static bool is_block_row(const struct gm_row *row)
{
	return !strcmp(row->action, "alloc") || !strcmp(row->action, "free_requested") ||
	       !strcmp(row->action, "free_completed");
}

/* Does memory of the driver's change its place at row @i, as expandable memory does when it is mapped? Its
 * life ends at @i - 2 and begins again at @i + 1. */
static bool is_move(const struct gm_snapshot *snapshot, size_t i)
{
	const struct gm_row *row = &snapshot->rows[i];

	return i >= 2 && i + 1 < snapshot->row_count && !strcmp(row->action, "segment_map") &&
	       !strcmp(row[-2].action, "free_completed") && !strcmp(row[-1].action, "segment_unmap") &&
	       !strcmp(row[1].action, "alloc") && row[1].address == row->address && row[-2].time_us == row->time_us &&
	       row[1].time_us == row->time_us && row[-2].device == row->device && row[1].device == row->device;
}

/* Find the rows of pieces, which are removed: set @gone of each. */
static int find_rows(const struct gm_snapshot *snapshot, const struct words *words, bool *gone)
{
	struct gm_table born = { .count = 0 };	/* (device, address) -> row + 1 */
	/* By row, each + 1: for an alloc the row of its last free, for a free the row of its alloc. */
	uint32_t *ends = calloc(snapshot->row_count + 1, sizeof(*ends));
	uint32_t *begins = calloc(snapshot->row_count + 1, sizeof(*begins));
	int r = ends && begins ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < snapshot->row_count; i++) {
		const struct gm_row *row = &snapshot->rows[i];
		uint64_t at;

		if (!is_block_row(row))
			continue;
		at = gm_table_get(&born, (uint64_t)(int64_t)row->device, row->address);
		if (!strcmp(row->action, "alloc"))
			r = gm_table_put(&born, (uint64_t)(int64_t)row->device, row->address, i + 1);
		else if (at)
			ends[at - 1] = (uint32_t)i + 1;
		else
			gone[i] = is_piece(words, row->device, row->address, row->size, INT64_MIN, row->time_us);
		if (strcmp(row->action, "alloc"))
			begins[i] = (uint32_t)at;
	}
	for (size_t i = 0; !r && i < snapshot->row_count; i++) {
		const struct gm_row *row = &snapshot->rows[i];

		if (!strcmp(row->action, "alloc"))
			gone[i] = is_piece(words, row->device, row->address, row->size, row->time_us,
					   ends[i] ? snapshot->rows[ends[i] - 1].time_us : INT64_MAX);
	}
	/* If a moved block is a pool's piece before the move or after it, it is a piece in both places. */
	for (size_t i = 0; !r && i < snapshot->row_count; i++)
		if (is_move(snapshot, i) && (gone[i + 1] || gone[begins[i - 2] ? begins[i - 2] - 1 : i - 2])) {
			gone[i + 1] = true;
			gone[begins[i - 2] ? begins[i - 2] - 1 : i - 2] = true;
		}
	for (size_t i = 0; !r && i < snapshot->row_count; i++)
		if (begins[i])
			gone[i] = gone[begins[i] - 1];
	gm_table_free(&born);
	free(ends);
	free(begins);
	return r;
}

static int change_rows(struct gm_snapshot *snapshot, const struct words *words)
{
	bool *gone = calloc(snapshot->row_count + 1, sizeof(*gone));
	size_t *starts = calloc(snapshot->pool_count + 2, sizeof(*starts));
	size_t room = snapshot->row_count + 1, count = 0;
	struct gm_row *rows = NULL;
	int r = gone && starts ? find_rows(snapshot, words, gone) : -ENOMEM;

	for (size_t p = 0; p < snapshot->pool_count; p++)
		room += snapshot->pools[p].row_count;
	if (!r)
		rows = calloc(room, sizeof(*rows));
	if (rows) {
		for (size_t i = 0; i < snapshot->row_count; i++)
			if (!gone[i])
				rows[count++] = snapshot->rows[i];
		for (size_t p = 0; p < snapshot->pool_count; p++) {
			const struct gm_snapshot_pool *pool = &snapshot->pools[p];

			starts[p + 1] = count;
			for (size_t i = 0; i < pool->row_count; i++)
				if (is_block_row(&pool->rows[i]) || !strcmp(pool->rows[i].action, "oom")) {
					rows[count] = pool->rows[i];
					rows[count].place = (uint32_t)(p + 1) & GM_ANNOTATIONS_MOST;
					rows[count++].of_pool = true;
				}
		}
		starts[snapshot->pool_count + 1] = count;
		r = gm_rows_merge(rows, starts, snapshot->pool_count + 1);
	} else {
		r = -ENOMEM;
	}
	if (!r) {
		free(snapshot->rows);
		snapshot->rows = rows;
		snapshot->row_count = count;
		rows = NULL;
	}
	free(rows);
	free(gone);
	free(starts);
	return r;
}

/* ---- what is held ------------------------------------------------------------------------------ */

/* Keep the blocks of @segment that count: of a pool those that are handed out, of the driver those that are no
 * pool's piece. */
static void keep_blocks(struct gm_snapshot_segment *segment, const struct words *words)
{
	size_t kept = 0;

	for (size_t i = 0; i < segment->block_count; i++) {
		const struct gm_snapshot_block *block = &segment->blocks[i];
		bool idle = !strcmp(block->state, "inactive");
		bool keep = !words ? !idle : idle || !is_piece(words, segment->device, block->address, block->size,
							       block->time_us, INT64_MAX);

		if (keep)
			segment->blocks[kept++] = *block;
	}
	segment->block_count = kept;
}

static int change_segments(struct gm_snapshot *snapshot, const struct words *words)
{
	size_t room = snapshot->segment_count + 1;
	struct gm_snapshot_segment *larger;

	for (size_t p = 0; p < snapshot->pool_count; p++)
		room += snapshot->pools[p].segment_count;
	larger = realloc(snapshot->segments, room * sizeof(*larger));
	if (!larger)
		return -ENOMEM;
	snapshot->segments = larger;
	for (size_t i = 0; i < snapshot->segment_count; i++)
		keep_blocks(&larger[i], words);
	for (size_t p = 0; p < snapshot->pool_count; p++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[p];

		for (size_t i = 0; i < pool->segment_count; i++) {
			struct gm_snapshot_segment *copy = &larger[snapshot->segment_count];
			const struct gm_snapshot_segment *segment = &pool->segments[i];

			*copy = *segment;
			copy->blocks = gm_values_room(snapshot->texts, segment->block_count * sizeof(*copy->blocks));
			if (!copy->blocks)
				return -ENOMEM;
			memcpy(copy->blocks, segment->blocks, segment->block_count * sizeof(*copy->blocks));
			copy->of_pool = (uint32_t)(p + 1) & GM_ANNOTATIONS_MOST;
			keep_blocks(copy, NULL);
			snapshot->segment_count++;
		}
	}
	return 0;
}

int gm_level_apply(struct gm_snapshot *snapshot, enum gm_pool_level level)
{
	struct words words;
	int r;

	if (level == GM_LEVEL_DRIVER || !snapshot->pool_count)
		return 0;
	r = snapshot->row_count >= UINT32_MAX ? -E2BIG : listen_to(snapshot, &words);
	if (r)
		return r;
	r = change_rows(snapshot, &words);
	if (!r)
		r = change_segments(snapshot, &words);
	snapshot->of_pools = true;
	free(words.list);
	free(words.spans);
	return r;
}
