/*
 * view_pack.c - a snapshot packed for the viewer: see view.h, and tools/viewer/README.md for the format. One thread.
 */
#include "tools/write/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/value.h"
#include "tools/show/explain.h"
#include "tools/show/show.h"
#include "tools/write/writer.h"

/* ---- events ------------------------------------------------------------------------------------- */

static bool begins(const struct gm_row *row)
{
	return !strcmp(row->action, "alloc") || !strcmp(row->action, "segment_alloc");
}

static bool waits(const struct gm_row *row)
{
	return !strcmp(row->action, "free_requested");
}

/* Return the place + 1 of the pool whose block @row is about, 0 for the driver. Pools differ, because one pool may hand
 * out a block of another pool, and both blocks begin at one address. */
static uint32_t pool_of(const struct gm_row *row)
{
	return row->of_pool ? row->place : 0;
}

/* Find each row's mate, the earlier row that it ends: for a free its allocation, for a completed free its request, for
 * an allocation an earlier one at the address whose free was lost. @mates gets how many rows back the mate is; 0: none.
 * @open keeps the rows that no later row ended. Return 0 or -ENOMEM. */
static int find_mates(const struct gm_row *const *rows, size_t count, uint32_t *mates, struct gm_table *open)
{
	int r = 0;

	for (size_t i = 0; !r && i < count; i++) {
		const char *action = rows[i]->action;
		uint64_t space = (uint64_t)pool_of(rows[i]) << 1 | !strncmp(action, "segment_", 8), at;

		mates[i] = 0;
		if (!begins(rows[i]) && !waits(rows[i]) && strcmp(action, "free_completed") &&
		    strcmp(action, "segment_free"))
			continue;
		at = gm_table_take(open, rows[i]->address, space);
		mates[i] = at ? (uint32_t)(i + 1 - at) : 0;
		if (begins(rows[i]) || (waits(rows[i]) && at))
			r = gm_table_put(open, rows[i]->address, space, i + 1);
	}
	return r;
}

/* Write the column "action", and sort the events by action in p->order, because events of one action are similar.
 * Return 0 or -ENOMEM. */
static int find_order(struct gm_packing *p, const struct gm_row *const *rows, size_t count)
{
	uint32_t *next;
	int64_t texts = 0;

	for (size_t i = 0; i < count; i++) {
		p->numbers_of[i] = gm_pack_text(p, rows[i]->action);
		texts = p->numbers_of[i] > texts ? p->numbers_of[i] : texts;
	}
	gm_pack_column(p, p->prefix, "action", count, GM_PLAIN, false);
	next = calloc((size_t)texts + 2, sizeof(*next));
	if (!next)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		next[p->numbers_of[i] + 1]++;
	for (int64_t t = 0; t < texts; t++)
		next[t + 1] += next[t];
	for (size_t i = 0; i < count; i++)
		p->order[next[p->numbers_of[i]]++] = (uint32_t)i;
	free(next);
	return p->planes.error;
}

/* Write the column "addresses", the addresses in the order of their first events, and the column "addr", which says
 * where the address of an event without a mate is: 0, the next one of "addresses"; n, that of the n-th last event that
 * left its address behind. n is small, because an allocator reuses the last freed address first. Return 0 or
 * -ENOMEM. */
static int pack_addresses(struct gm_packing *p, const struct gm_row *const *rows, size_t count)
{
	struct gm_table known = { NULL, 0, 0 };
	int64_t *list = calloc(count + 1, sizeof(*list)), *numbers = p->numbers_of;
	size_t listed = 0, left = 0;
	int r = list ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < count; i++) {
		uint64_t at = p->mates[i] ? 0 : gm_table_get(&known, rows[i]->address, 0);

		numbers[i] = at ? (int64_t)(left + 1 - at) : 0;
		if (!at && !p->mates[i])
			list[listed++] = (int64_t)rows[i]->address;
		if (!begins(rows[i]) && !(waits(rows[i]) && p->mates[i]))
			r = gm_table_put(&known, rows[i]->address, 0, ++left);
	}
	if (!r) {
		p->numbers_of = list;
		gm_pack_column(p, p->prefix, "addresses", listed, GM_DELTA, false);
		p->numbers_of = numbers;
		p->base = 0;
		gm_pack_planes(p, p->prefix, "addr", count, "listed", true);
	}
	gm_table_free(&known);
	free(list);
	return r;
}

/* Write a column with the EXPRESSION of each @row; with GM_PAIRED, less that of the mate for a completed free. */
#define EVENT(name, coding, EXPRESSION) do {						\
	for (size_t i_ = 0; i_ < count; i_++) {						\
		const struct gm_row *row = rows[i_];					\
		/* Is it a completed free, whose mate's value is subtracted? */		\
		bool same = (coding) == GM_PAIRED && p->mates[i_] && !strcmp(row->action, "free_completed");	\
		const struct gm_row *mate = same ? rows[i_ - p->mates[i_]] : NULL;	\
		p->numbers_of[i_] = (int64_t)(EXPRESSION);				\
		if (same && (row = mate))						\
			p->numbers_of[i_] = gm_wrap_subtract(p->numbers_of[i_], (int64_t)(EXPRESSION));	\
	}										\
	gm_pack_column(p, p->prefix, name, count, coding, true);				\
} while (0)

static int pack_events(struct gm_packing *p, const struct gm_row *const *rows, size_t count)
{
	int r = find_mates(rows, count, p->mates, &p->open);

	if (!r)
		r = find_order(p, rows, count);
	for (size_t i = 0; !r && i < count; i++)
		p->numbers_of[i] = p->mates[i];
	gm_pack_column(p, p->prefix, "mate", count, GM_PLAIN, true);
	if (!r)
		r = pack_addresses(p, rows, count);
	if (r)
		return r;
	EVENT("time", GM_DELTA, row->time_us);
	EVENT("size", GM_MATED, row->size);
	EVENT("stream", GM_MATED, gm_pack_number(p, row->stream));
	EVENT("kind", GM_MATED, gm_pack_text(p, row->kind));
	EVENT("module", GM_MATED, row->module);
	EVENT("thread", GM_PAIRED, gm_pack_number(p, row->thread));
	EVENT("stack", GM_PAIRED, row->stack);
	EVENT("annotation", GM_PLAIN, row->of_pool ? 0 : row->place);
	if (p->scene->snapshot->of_pools)
		EVENT("pool", GM_PAIRED, pool_of(row));
	return p->planes.error;
}

/* ---- segments ----------------------------------------------------------------------------------- */

#define SEGMENT(name, coding, EXPRESSION) \
	GM_COLUMN(p, p->prefix, name, coding, count, struct gm_snapshot_segment, s, segments[i_], EXPRESSION)
#define BLOCK(name, coding, EXPRESSION) \
	GM_COLUMN(p, p->prefix, name, coding, block_count, struct gm_snapshot_block, b, blocks[i_], EXPRESSION)

/* Write the column "block.event": the last event of each block's allocation, counted from 1; 0: the history has none.
 * An event belongs to one block only. */
static void pack_block_events(struct gm_packing *p, const struct gm_snapshot_segment *const *segments, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < segments[i]->block_count; k++) {
			const struct gm_snapshot_block *block = &segments[i]->blocks[k];
			bool live = block->size && strcmp(block->state, "inactive");
			uint64_t space = (uint64_t)segments[i]->of_pool << 1;

			p->numbers_of[n++] = live ? (int64_t)gm_table_take(&p->open, block->address, space) : 0;
		}
	gm_pack_column(p, p->prefix, "block.event", n, GM_PLAIN, false);
}

static void pack_segments(struct gm_packing *p, const struct gm_snapshot_segment *const *segments, size_t count,
			  const struct gm_snapshot_block *const *blocks, size_t block_count)
{
	SEGMENT("segment.addr", GM_DELTA, s->address);
	SEGMENT("segment.size", GM_PLAIN, s->total_size);
	SEGMENT("segment.stream", GM_PLAIN, gm_pack_number(p, s->stream));
	SEGMENT("segment.type", GM_PLAIN, gm_pack_text(p, s->type));
	SEGMENT("segment.kind", GM_PLAIN, gm_pack_text(p, s->kind));
	SEGMENT("segment.pool0", GM_PLAIN, s->pool[0]);
	SEGMENT("segment.pool1", GM_PLAIN, s->pool[1]);
	SEGMENT("segment.flags", GM_PLAIN, s->expandable | s->registered << 1 | s->unmapped << 2);
	SEGMENT("segment.module", GM_PLAIN, s->module);
	SEGMENT("segment.stack", GM_PLAIN, s->stack);
	SEGMENT("segment.time", GM_DELTA, s->time_us);
	SEGMENT("segment.handle", GM_PLAIN, s->handle);
	SEGMENT("segment.blocks", GM_PLAIN, s->block_count);
	BLOCK("block.addr", GM_DELTA, b->address);
	BLOCK("block.size", GM_PLAIN, b->size);
	BLOCK("block.requested", GM_PLAIN, b->requested_size);
	BLOCK("block.state", GM_PLAIN, gm_pack_text(p, b->state));
	BLOCK("block.kind", GM_PLAIN, gm_pack_text(p, b->kind));
	BLOCK("block.stack", GM_PLAIN, b->stack);
	BLOCK("block.time", GM_DELTA, b->time_us);
	BLOCK("block.thread", GM_PLAIN, gm_pack_number(p, b->thread));
	BLOCK("block.module", GM_PLAIN, b->module);
	BLOCK("block.flags", GM_PLAIN, b->freeing | b->untraced << 1);
	BLOCK("block.name", GM_PLAIN, gm_pack_text(p, b->name ? b->name : ""));
	pack_block_events(p, segments, count);
}

/* ---- sources: a device, the host or a pool ------------------------------------------------------ */

struct lists {
	const struct gm_row **rows;
	const struct gm_snapshot_segment **segments;
	const struct gm_snapshot_block **blocks;
	size_t row_count, segment_count, block_count;
};

/* Where a source's events and segments come from: all of a @pool's, or those of @device among the driver's. */
struct origin {
	const struct gm_row *rows;
	size_t row_count;
	const struct gm_snapshot_segment *segments;
	size_t segment_count;
	int64_t device, dropped, peak;	/* @peak in bytes: above 0, it is a source even without events and segments */
	const struct gm_snapshot_pool *pool;	/* NULL: the driver's level */
};

static void choose(const struct origin *from, struct lists *ret)
{
	ret->row_count = ret->segment_count = ret->block_count = 0;
	for (size_t i = 0; i < from->row_count; i++)
		if (from->pool || from->rows[i].device == from->device)
			ret->rows[ret->row_count++] = &from->rows[i];
	for (size_t i = 0; i < from->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &from->segments[i];

		if (!from->pool && segment->device != from->device)
			continue;
		ret->segments[ret->segment_count++] = segment;
		for (size_t k = 0; k < segment->block_count; k++)
			ret->blocks[ret->block_count++] = &segment->blocks[k];
	}
}

/* Return who held the peak of @device at the level of pools; null if the snapshot does not say so, or if the history
 * shows the peak. */
static json_t *peak_of(const struct gm_lives *lives, int device)
{
	json_t *sites = lives->at_peak_known ? json_array() : NULL;

	for (size_t i = 0; sites && i < lives->at_peak_count; i++) {
		const struct gm_life *held = &lives->at_peak[i];

		if (held->device != device)
			continue;
		if (held->address) {		/* a life of the history, not a sum of the snapshot */
			json_decref(sites);
			return json_null();
		}
		json_array_append_new(sites, json_pack("{sI sI sI ss}", "bytes", (json_int_t)held->size, "stack",
						       (json_int_t)held->stack, "module", (json_int_t)held->module,
						       "kind", held->kind));
	}
	return sites ? json_pack("{so}", "sites", sites) : json_null();
}

static int pack_source(struct gm_packing *p, json_t *sources, const struct origin *from, struct lists *lists)
{
	json_t *source;
	int r;

	choose(from, lists);
	if (!lists->row_count && !lists->segment_count && from->peak <= 0)
		return 0;
	snprintf(p->prefix, sizeof(p->prefix), "%zu.", json_array_size(sources));
	r = pack_events(p, lists->rows, lists->row_count);
	pack_segments(p, lists->segments, lists->segment_count, lists->blocks, lists->block_count);
	gm_table_free(&p->open);
	source = json_pack("{so ss sI}",
			   "device", from->device == GM_ROW_HOST ? json_null() : json_integer(from->device),
			   "level", from->pool ? "pool" : "driver", "dropped", (json_int_t)from->dropped);
	if (source && from->pool)
		json_object_set(source, "pool", from->pool->root);
	else if (source && p->scene->snapshot->of_pools)
		json_object_set_new(source, "at_peak", peak_of(&p->scene->lives, (int)from->device));
	if (!source || json_array_append_new(sources, source))
		r = -ENOMEM;
	return r ? r : p->planes.error;
}

static void make_room(struct gm_packing *p, struct lists *lists, const struct origin *origins, size_t count)
{
	size_t rows = 0, segments = 0, blocks = 0, room;

	for (size_t i = 0; i < count; i++) {
		size_t all = 0;

		for (size_t k = 0; k < origins[i].segment_count; k++)
			all += origins[i].segments[k].block_count;
		rows = origins[i].row_count > rows ? origins[i].row_count : rows;
		segments = origins[i].segment_count > segments ? origins[i].segment_count : segments;
		blocks = all > blocks ? all : blocks;
	}
	room = rows > blocks ? rows : blocks;
	room = room > segments ? room : segments;
	lists->rows = calloc(rows + 1, sizeof(*lists->rows));
	lists->segments = calloc(segments + 1, sizeof(*lists->segments));
	lists->blocks = calloc(blocks + 1, sizeof(*lists->blocks));
	p->numbers_of = calloc(room + 1, sizeof(*p->numbers_of));
	p->mates = calloc(rows + 1, sizeof(*p->mates));
	p->order = calloc(rows + 1, sizeof(*p->order));
}

static int64_t peak_bytes(const json_t *about)
{
	return gm_json_number(gm_json_object(about, "memory_stats"), "allocated_bytes.all.peak");
}

/* Pack the sources in this order: the devices, the host, the pools. Return 0 or -ENOMEM. */
static int pack_sources(struct gm_packing *p, json_t *sources)
{
	const struct gm_snapshot *from = p->scene->snapshot;
	size_t count = from->trace_count + 1 + (p->pools ? from->pool_count : 0);
	struct origin *origins = calloc(count, sizeof(*origins));
	const json_t *devices = gm_json_list(from->root, "devices");
	struct lists lists;
	int r = origins ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < count; i++) {
		bool is_pool = i > from->trace_count, host = i == from->trace_count;
		const struct gm_snapshot_pool *pool = is_pool ? &from->pools[i - from->trace_count - 1] : NULL;

		origins[i] = is_pool ?
			(struct origin){ pool->rows, pool->row_count, pool->segments, pool->segment_count, pool->device,
					 pool->dropped, peak_bytes(pool->root), pool } :
			(struct origin){ from->rows, from->row_count, from->segments, from->segment_count,
					 host ? GM_ROW_HOST : (int64_t)i,
					 host ? from->host_dropped : from->dropped[i],
					 peak_bytes(host ? gm_json_object(from->root, "host") :
						    json_array_get(devices, i)),
					 NULL };
	}
	if (r)
		return r;
	make_room(p, &lists, origins, count);
	if (!lists.rows || !lists.segments || !lists.blocks || !p->numbers_of || !p->mates || !p->order)
		r = -ENOMEM;
	for (size_t i = 0; !r && i < count; i++)
		r = pack_source(p, sources, &origins[i], &lists);
	free(origins);
	free(lists.rows);
	free(lists.segments);
	free(lists.blocks);
	return r;
}

/* ---- the header and the whole pack -------------------------------------------------------------- */

static json_t *explanation_of(const struct gm_scene *scene)
{
	struct gm_explanation explanation;

	gm_explain(scene, &explanation);
	if (explanation.cause == GM_CAUSE_NONE)
		return json_null();
	return json_pack("{ss ss ss so sI}", "cause", gm_cause_name(explanation.cause), "why", explanation.why,
			 "change", explanation.change, "device",
			 explanation.device == GM_ROW_HOST ? json_null() : json_integer(explanation.device), "stack",
			 (json_int_t)explanation.stack);
}

/* Write the header, which is complete only now, and the planes behind it to @ret. Return 0 or -ENOMEM. */
static int finish(struct gm_packing *p, json_t *sources, const char *name, struct gm_pack *ret)
{
	char *clean = strdup(name), *text = NULL;
	unsigned char head[20] = "gpumem-view 1\n";
	json_t *header = NULL;
	size_t length = 0;
	struct gm_writer *writer;
	FILE *file;
	int r = -ENOMEM;

	if (clean) {
		gm_show_repair(clean);
		header = json_pack("{ss so so so so sO}", "name",
				   gm_value_is_text((unsigned char *)clean, strlen(clean)) ? clean : "?",
				   "sources", json_incref(sources),
				   "columns", json_incref(p->columns), "texts", json_incref(p->texts),
				   "numbers", json_incref(p->numbers), "root", p->scene->root);
	}
	if (header)
		json_object_set_new(header, "explanation", explanation_of(p->scene));
	file = header ? open_memstream(&text, &length) : NULL;
	writer = file ? gm_writer_open(file, false) : NULL;
	if (writer) {
		gm_writer_put(writer, header);
		r = gm_writer_close(writer);
	}
	if (file && fclose(file))
		r = -ENOMEM;
	if (!r && length < UINT32_MAX) {
		for (int k = 0; k < 4; k++)
			head[14 + k] = (unsigned char)(length >> (8 * k));
		gm_pack_put(ret, head, 18);
		gm_pack_put(ret, text, length);
		gm_pack_put(ret, p->planes.bytes, p->planes.count);
		r = ret->error;
	}
	free(clean);
	free(text);
	json_decref(header);
	return r;
}

int gm_view_pack(const struct gm_scene *scene, const char *name, bool pools, struct gm_pack *ret)
{
	struct gm_packing p = { .scene = scene, .columns = json_array(), .texts = json_array(),
			     .numbers = json_array(), .values = gm_values_open(), .pools = pools };
	json_t *sources = json_array();
	int r = -ENOMEM;

	*ret = (struct gm_pack){ .bytes = NULL };
	if (p.values && p.columns && p.texts && p.numbers && sources)
		r = pack_sources(&p, sources);
	if (!r)
		r = gm_pack_stacks(&p);
	if (!r)
		r = finish(&p, sources, name, ret);
	json_decref(p.columns);
	json_decref(p.texts);
	json_decref(p.numbers);
	json_decref(sources);
	gm_table_free(&p.text_ids);
	gm_table_free(&p.number_ids);
	gm_values_close(p.values);
	free(p.planes.bytes);
	free(p.numbers_of);
	free(p.mates);
	free(p.order);
	return r;
}
