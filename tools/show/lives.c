/*
 * lives.c - the allocations of a snapshot, each from its birth to its end: see lives.h. One thread.
 *
 * The tables have the blocks that are live; the events have the allocations and frees that the history kept.
 */
#include "tools/show/lives.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/table.h"

struct building {
	const struct gm_snapshot *snapshot;
	struct gm_lives *lives;
	struct gm_table live;		/* (space_of, address) -> index + 1 */
};

/* A pool may hand out memory of another pool, so a block of each may begin at the same address. */
static uint64_t space_of(int64_t device, uint16_t pool)
{
	return (uint64_t)pool << 32 | (uint32_t)device;
}

static int add_row(struct building *b, uint32_t index)
{
	const struct gm_row *row = &b->snapshot->rows[index];
	bool alloc = !strcmp(row->action, "alloc");
	uint16_t pool = row->of_pool ? (uint16_t)row->place : 0;
	uint64_t at;
	struct gm_life *life;

	if (!alloc && strcmp(row->action, "free_completed"))
		return 0;
	at = gm_table_take(&b->live, space_of(row->device, pool), row->address);
	if (at)				/* between two allocations in a row, the free was lost */
		b->lives->list[at - 1].died = index;
	if (at && !alloc)
		return 0;
	life = gm_list_add(&b->lives->list, &b->lives->count, sizeof(*life));
	if (!life)
		return -ENOMEM;
	*life = (struct gm_life){
		.address = row->address, .size = row->size < 0 ? 0 : row->size, .stream = row->stream,
		.module = row->module, .kind = row->kind, .device = row->device,
		.born = alloc ? index : GM_LIFE_BEFORE, .died = alloc ? GM_LIFE_LIVE : index,
		.stack = alloc || row->of_pool ? row->stack : 0, .thread = alloc ? row->thread : 0,
		.time_us = alloc ? row->time_us : 0, .pool = pool,
	};
	return alloc ? gm_table_put(&b->live, space_of(row->device, pool), row->address, b->lives->count) : 0;
}

/* Add a block of the tables: to the life that its events began, else to a new life from before the history. */
static int add_block(struct building *b, const struct gm_snapshot_segment *segment,
		     const struct gm_snapshot_block *block)
{
	uint16_t pool = (uint16_t)segment->of_pool;
	struct gm_life *life;
	uint64_t at;

	if (!strcmp(block->state, "inactive") || segment->device < GM_ROW_HOST ||
	    segment->device > INT32_MAX ||
	    !block->size)		/* a graph that holds nothing now, an import that is not mapped yet */
		return 0;
	at = gm_table_take(&b->live, space_of(segment->device, pool), block->address);
	if (segment->registered) {
		if (at)
			b->lives->list[at - 1].size = 0;
		return 0;
	}
	life = at ? &b->lives->list[at - 1] :
	       gm_list_add(&b->lives->list, &b->lives->count, sizeof(*life));
	if (!life)
		return -ENOMEM;
	if (!at)
		*life = (struct gm_life){
			.address = block->address, .born = GM_LIFE_BEFORE, .died = GM_LIFE_LIVE,
			.device = (int)segment->device, .stream = segment->stream, .kind = block->kind,
			.module = block->module, .size = block->requested_size, .stack = block->stack,
			.thread = block->thread, .time_us = block->time_us, .pool = pool,
		};
	if (life->size < 0)
		life->size = 0;
	life->freed = strcmp(block->state, "active_allocated") != 0;
	life->name = block->name[0] ? block->name : NULL;
	/* The event may have no stack while the block has one (context:state). */
	if (!life->stack)
		life->stack = block->stack;
	return 0;
}

static int add_blocks(struct building *b)
{
	for (size_t i = 0; i < b->snapshot->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &b->snapshot->segments[i];

		for (size_t k = 0; k < segment->block_count; k++)
			if (add_block(b, segment, &segment->blocks[k]))
				return -ENOMEM;
	}
	return 0;
}

/* Add the rows of one domain's "at_peak". @of_pools: leave out the memory that pools got, because their blocks
 * count. */
static int add_at_peak(struct gm_lives *lives, const json_t *of, int device, uint16_t pool, bool of_pools)
{
	const json_t *peak = json_object_get(of, "at_peak"), *row;
	size_t i;

	lives->at_peak_known |= json_is_object(peak);
	json_array_foreach(gm_json_list(peak, "sites"), i, row) {
		struct gm_life *life;

		if (of_pools && !pool && json_is_true(json_object_get(row, "of_pool")))
			continue;
		life = gm_list_add(&lives->at_peak, &lives->at_peak_count, sizeof(*life));
		if (!life)
			return -ENOMEM;
		*life = (struct gm_life){
			.size = gm_json_number(row, "bytes"), .stack = gm_json_number(row, "stack"),
			.module = gm_json_number(row, "module"), .kind = gm_json_text(row, "kind"), .device = device,
			.pool = pool, .born = GM_LIFE_BEFORE, .died = GM_LIFE_BEFORE,
		};
		if (life->size < 0)
			life->size = 0;
	}
	return 0;
}

static int add_all_at_peak(struct gm_lives *lives, const struct gm_snapshot *snapshot)
{
	const json_t *device;
	int r = add_at_peak(lives, gm_json_object(snapshot->root, "host"), GM_ROW_HOST, 0, false);
	size_t i;

	json_array_foreach(gm_json_list(snapshot->root, "devices"), i, device)
		if (!r)
			r = add_at_peak(lives, device, (int)gm_json_number(device, "device"), 0, snapshot->of_pools);
	for (i = 0; snapshot->of_pools && i < snapshot->pool_count; i++)
		if (!r)
			r = add_at_peak(lives, snapshot->pools[i].root, (int)snapshot->pools[i].device,
					(uint16_t)(i + 1), true);
	return r;
}

static int64_t highest(const struct gm_lives *lives, const char *device, int pool, int64_t *ret_row);

/* Has the history every event: was none dropped, filtered or paused? */
static bool has_all(const struct gm_snapshot *snapshot)
{
	static const char *const missing[] = { "dropped", "filtered_small", "filtered_actions", "paused" };
	const json_t *history = gm_json_object(snapshot->root, "history");

	for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++)
		if (gm_json_number(history, missing[i]))
			return false;
	return true;
}

/* Does the history show the counted peak of each pool of @device? It does not if events were dropped or left out, or if
 * a peak was reset. */
static bool is_whole(const struct gm_lives *lives, const struct gm_snapshot *snapshot, int64_t device, const char *name)
{
	int64_t row;

	if (!has_all(snapshot))
		return false;
	for (size_t p = 0; p < snapshot->pool_count; p++) {
		int64_t sum = 0;

		if (snapshot->pools[p].device != device)
			continue;
		for (size_t i = 0; i < lives->at_peak_count; i++)
			if (lives->at_peak[i].pool == p + 1)
				sum = gm_wrap_add(sum, lives->at_peak[i].size);
		if (highest(lives, name, (int)p + 1, &row) != sum)
			return false;
	}
	return true;
}

/* Replace the sums of @device and its pools in @at_peak by the lives at the highest moment of the history, if the
 * history is whole. The sums are of different moments, so their total was never live at once. */
static int sums_at_once(struct gm_lives *lives, const struct gm_snapshot *snapshot, int64_t device)
{
	size_t kept = 0;
	char name[24];
	int64_t row;

	snprintf(name, sizeof(name), "%lld", (long long)device);
	if (!is_whole(lives, snapshot, device, name))
		return 0;
	if (highest(lives, name, -1, &row) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < lives->at_peak_count; i++)
		if (lives->at_peak[i].device != device)
			lives->at_peak[kept++] = lives->at_peak[i];
	lives->at_peak_count = kept;
	for (size_t i = 0; i < lives->count; i++) {
		struct gm_life *life;

		if (!gm_life_counts(&lives->list[i], name) || !gm_life_at(&lives->list[i], row))
			continue;
		life = gm_list_add(&lives->at_peak, &lives->at_peak_count, sizeof(*life));
		if (!life)
			return -ENOMEM;
		*life = lives->list[i];
	}
	return 0;
}

static int all_sums_at_once(struct gm_lives *lives, const struct gm_snapshot *snapshot)
{
	const struct gm_snapshot_pool *pools = snapshot->pools;
	int r = 0;

	for (size_t p = 0; !r && lives->at_peak_known && snapshot->of_pools && p < snapshot->pool_count; p++) {
		size_t first = 0;

		while (pools[first].device != pools[p].device)
			first++;
		if (first == p)
			r = sums_at_once(lives, snapshot, pools[p].device);
	}
	return r;
}

int gm_lives_open(struct gm_lives *lives, const struct gm_snapshot *snapshot)
{
	struct building b = { .snapshot = snapshot, .lives = lives };
	int r = snapshot->row_count >= GM_LIFE_LIVE ? -E2BIG : 0;

	*lives = (struct gm_lives){ .rows = snapshot->rows, .row_count = snapshot->row_count };
	for (size_t i = 0; !r && i < lives->row_count; i++)
		r = add_row(&b, (uint32_t)i);
	if (!r)
		r = add_blocks(&b);
	/* The frees of blocks that are live in the events and not in the tables were lost: end these with the
	 * history. */
	for (size_t i = 0; !r && i < lives->count; i++)
		if (gm_table_get(&b.live, space_of(lives->list[i].device, lives->list[i].pool),
				 lives->list[i].address) == i + 1)
			lives->list[i].died = (uint32_t)lives->row_count;
	gm_table_free(&b.live);
	if (!r)
		r = add_all_at_peak(lives, snapshot);
	if (!r)
		r = all_sums_at_once(lives, snapshot);
	if (r)
		gm_lives_close(lives);
	return r;
}

void gm_lives_close(struct gm_lives *lives)
{
	free(lives->list);
	free(lives->at_peak);
	memset(lives, 0, sizeof(*lives));
}

bool gm_life_counts(const struct gm_life *life, const char *device)
{
	if (!strcmp(life->kind, "ipc"))
		return false;
	if (!device)
		return life->device != GM_ROW_HOST;
	if (!strcmp(device, "host"))
		return life->device == GM_ROW_HOST;
	return life->device != GM_ROW_HOST && life->device == strtol(device, NULL, 10);
}

int64_t gm_lives_peak(const struct gm_lives *lives, const char *device, int64_t *ret_row)
{
	int64_t sum = 0;

	if (!lives->at_peak_known)
		return gm_lives_shown_peak(lives, device, ret_row);
	*ret_row = GM_LIVES_PEAK;
	for (size_t i = 0; i < lives->at_peak_count; i++)
		if (gm_life_counts(&lives->at_peak[i], device))
			sum = gm_wrap_add(sum, lives->at_peak[i].size);
	return sum;
}

/* As gm_lives_shown_peak, for @pool alone (as in struct gm_life); -1: for all. */
static int64_t highest(const struct gm_lives *lives, const char *device, int pool, int64_t *ret_row)
{
	int64_t *change = calloc(lives->row_count + 1, sizeof(*change));
	int64_t live = 0, peak;

	*ret_row = -1;
	if (!change)
		return -1;
	for (size_t i = 0; i < lives->count; i++) {
		const struct gm_life *life = &lives->list[i];

		if (!gm_life_counts(life, device) || (pool >= 0 && life->pool != pool))
			continue;
		if (life->born == GM_LIFE_BEFORE)
			live = gm_wrap_add(live, life->size);
		else
			change[life->born] = gm_wrap_add(change[life->born], life->size);
		if (life->died < lives->row_count)
			change[life->died] = gm_wrap_subtract(change[life->died], life->size);
	}
	peak = live;
	for (size_t i = 0; i < lives->row_count; i++) {
		live = gm_wrap_add(live, change[i]);
		if (live > peak) {
			peak = live;
			*ret_row = (int64_t)i;
		}
	}
	free(change);
	return peak;
}

int64_t gm_lives_shown_peak(const struct gm_lives *lives, const char *device, int64_t *ret_row)
{
	return highest(lives, device, -1, ret_row);
}

bool gm_life_at(const struct gm_life *life, int64_t row)
{
	if (row == GM_LIVES_END)
		return life->died == GM_LIFE_LIVE && !life->freed;
	return (life->born == GM_LIFE_BEFORE || (int64_t)life->born <= row) &&
	       (life->died == GM_LIFE_LIVE || (int64_t)life->died > row);
}

int64_t gm_lives_held_peak(const struct gm_lives *lives, const struct gm_snapshot *snapshot, int64_t device)
{
	struct gm_table held = { NULL, 0, 0 };		/* address -> bytes + 1 */
	int64_t now = 0, peak = 0;
	/* PyTorch's snapshots do not say whether the history is whole. */
	bool said = json_is_integer(json_object_get(gm_json_object(snapshot->root, "history"), "dropped"));
	int r = said && has_all(snapshot) ? 0 : -1;

	for (size_t i = 0; !r && i < lives->row_count; i++) {
		const struct gm_row *row = &lives->rows[i];
		uint64_t before;

		if (row->device != device || row->size < 0 || !strcmp(row->kind, "ipc") ||
		    (strcmp(row->action, "alloc") && strncmp(row->action, "free_", 5)))
			continue;
		before = gm_table_take(&held, row->address, 1);
		now = gm_wrap_subtract(now, before ? (int64_t)(before - 1) : 0);
		if (strcmp(row->action, "alloc"))
			continue;
		now = gm_wrap_add(now, row->size);
		peak = now > peak ? now : peak;
		r = gm_table_put(&held, row->address, 1, (uint64_t)row->size + 1);
	}
	gm_table_free(&held);
	return r ? r : peak;
}
