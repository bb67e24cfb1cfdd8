/*
 * phases.c - the named ranges of the history, and the memory of each: see phases.h.
 */
#include "tools/show/phases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/value.h"
#include "tools/show/show.h"

struct range {
	uint32_t phase;
	int64_t number;			/* 0: the range nests in its thread */
	const char *domain;
};

struct thread {
	int64_t id;
	struct range *open;		/* oldest first */
	size_t count;
	uint32_t node, above;		/* node: its ranges within @above, the leading thread's; void if @stale */
	bool stale;
};

/* An END whose START was dropped: the range was open when the history began. */
struct early { int64_t thread; struct range range; };

struct reading {
	struct gm_phases *phases;
	const struct gm_snapshot *snapshot;
	const struct gm_lives *lives;
	const char *device;
	struct thread *threads;
	size_t count;
	struct gm_table places;		/* (thread, 0) -> place + 1; (range, 1) -> place of its thread + 1 */
	struct early *early;
	size_t early_count;
	bool looking;			/* in look_back: ranges begin and end, and nothing is counted */
	bool led;
	size_t leader;			/* place of the leading thread, if @led */
	int64_t pid, live;
	uint32_t *open;			/* phases that are open */
	size_t open_count;
};

/* ---- names and chains -------------------------------------------------------------------------- */

/* torch.autograd.profiler.emit_nvtx names a range "aten::mm, seq = 7, op_id = 9, sizes = [[2, 3]]". */
static size_t name_length(const char *name)
{
	static const char *const added[] = { ", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = " };
	size_t length = strlen(name);

	for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++) {
		const char *at = strstr(name, added[i]);
		char next = at ? at[strlen(added[i])] : 'x';

		if ((next == '[' || next == '-' || (next >= '0' && next <= '9')) && (size_t)(at - name) < length)
			length = (size_t)(at - name);
	}
	return length;
}

/* Return the place of the phase @name in @domain, a new one for a new name; UINT32_MAX: out of memory. */
static uint32_t phase_of(struct gm_phases *phases, const char *name, const char *domain)
{
	char text[400];
	const char *kept;
	struct gm_phase *phase;
	uint64_t at;

	snprintf(text, sizeof(text), "%.*s%s%.100s%s", (int)(name_length(name) < 256 ? name_length(name) : 256),
		 name[0] ? name : "(no name)", domain[0] ? " (" : "", domain, domain[0] ? ")" : "");
	if (!name[0])
		snprintf(text, sizeof(text), "(no name)");
	kept = gm_values_string(phases->texts, gm_show_repair(text), strlen(text));
	at = kept ? gm_table_get(&phases->names, (uint64_t)(uintptr_t)kept, 0) : 0;
	if (at)
		return (uint32_t)at - 1;
	phase = kept ? gm_list_add(&phases->list, &phases->count, sizeof(*phase)) : NULL;
	if (!phase || gm_table_put(&phases->names, (uint64_t)(uintptr_t)kept, 0, phases->count))
		return UINT32_MAX;
	*phase = (struct gm_phase){ .name = kept };
	return (uint32_t)phases->count - 1;
}

/* Return the node of @phase within @parent; UINT32_MAX: out of memory. */
static uint32_t node_of(struct gm_phases *phases, uint32_t parent, uint32_t phase)
{
	uint64_t at = gm_table_get(&phases->chains, parent, phase);
	struct gm_phase_node *node;
	bool again = false;

	if (at)
		return (uint32_t)at;
	for (uint32_t up = parent; up && !again; up = phases->nodes[up].parent)
		again = phases->nodes[up].phase == phase;
	node = gm_list_add(&phases->nodes, &phases->node_count, sizeof(*node));
	if (!node || gm_table_put(&phases->chains, parent, phase, phases->node_count - 1))
		return UINT32_MAX;
	*node = (struct gm_phase_node){ parent, phase, again };
	return (uint32_t)phases->node_count - 1;
}

/* ---- threads and their ranges ------------------------------------------------------------------ */

/* Return the place of thread @id, a new one for a new thread; SIZE_MAX: out of memory. */
static size_t thread_of(struct reading *r, int64_t id)
{
	uint64_t at = gm_table_get(&r->places, (uint64_t)id, 0);
	struct thread *thread;

	if (at)
		return at - 1;
	thread = gm_list_add(&r->threads, &r->count, sizeof(*thread));
	if (!thread)
		return SIZE_MAX;
	*thread = (struct thread){ .id = id, .stale = true };
	return gm_table_put(&r->places, (uint64_t)id, 0, r->count) ? SIZE_MAX : r->count - 1;
}

/* Count one more open range of @phase. Returns 0 or -ENOMEM. */
static int count_open(struct reading *r, uint32_t phase)
{
	struct gm_phase *one = &r->phases->list[phase];
	uint32_t *open;

	if (r->looking)
		return 0;
	one->ranges++;
	if (r->live > one->peak)
		one->peak = r->live;
	if (one->open++)
		return 0;
	open = gm_list_add(&r->open, &r->open_count, sizeof(*open));
	if (open)
		*open = phase;
	return open ? 0 : -ENOMEM;
}

static void count_closed(struct reading *r, uint32_t phase)
{
	if (r->looking || --r->phases->list[phase].open)
		return;
	for (size_t i = 0; i < r->open_count; i++)
		if (r->open[i] == phase)
			r->open[i--] = r->open[--r->open_count];
}

static int begin(struct reading *r, int64_t id, const struct range *range)
{
	size_t place = thread_of(r, id);
	struct thread *thread = place == SIZE_MAX ? NULL : &r->threads[place];
	struct range *one = !thread ? NULL :
			    gm_list_add(&thread->open, &thread->count, sizeof(*one));

	if (!one || (range->number &&
		     gm_table_put(&r->places, (uint64_t)range->number, 1, place + 1)))
		return -ENOMEM;
	*one = *range;
	thread->stale = true;
	if (!r->led || (id == r->pid && r->threads[r->leader].id != id))
		r->leader = place;
	r->led = true;
	return count_open(r, range->phase);
}

/* End a range. Returns 1 if no such range is open. */
static int end(struct reading *r, int64_t id, const struct range *range)
{
	uint64_t at = range->number ? gm_table_take(&r->places, (uint64_t)range->number, 1) :
		      gm_table_get(&r->places, (uint64_t)id, 0);
	struct thread *thread = at ? &r->threads[at - 1] : NULL;
	size_t i = thread ? thread->count : 0;

	while (i && (thread->open[i - 1].number != range->number ||
		     (!range->number && strcmp(thread->open[i - 1].domain, range->domain))))
		i--;
	if (!i)
		return 1;
	count_closed(r, thread->open[i - 1].phase);
	memmove(&thread->open[i - 1], &thread->open[i], (thread->count - i) * sizeof(*thread->open));
	thread->count--;
	thread->stale = true;
	return 0;
}

static int note_early(struct reading *r, int64_t id, const struct range *range)
{
	struct early *one = gm_list_add(&r->early, &r->early_count, sizeof(*one));

	if (one)
		*one = (struct early){ id, *range };
	return one ? 0 : -ENOMEM;
}

static int annotate(struct reading *r, const struct gm_row *row)
{
	const json_t *one = gm_row_annotation(r->snapshot->root, row);
	const char *stage = gm_json_text(one, "stage");
	bool starts = !strcmp(stage, "START");
	struct range range = { .number = gm_json_number(one, "range"), .domain = gm_json_text(one, "domain") };
	int64_t id = gm_json_number(one, "thread");
	int result;

	if (!starts && strcmp(stage, "END"))
		return 0;
	range.phase = phase_of(r->phases, gm_json_text(one, "name"), range.domain);
	if (range.phase == UINT32_MAX)
		return -ENOMEM;
	if (starts)
		return begin(r, id, &range);
	result = end(r, id, &range);
	return result == 1 && r->looking ? note_early(r, id, &range) : 0;
}

/* Return the node of the ranges in which an allocation of thread @id counts now; UINT32_MAX: out of memory. */
static uint32_t node_now(struct reading *r, int64_t id)
{
	uint64_t at = gm_table_get(&r->places, (uint64_t)id, 0);
	struct thread *thread = at ? &r->threads[at - 1] : NULL;
	uint32_t above = 0;

	if (r->led && thread != &r->threads[r->leader])
		above = node_now(r, r->threads[r->leader].id);
	if (!thread || above == UINT32_MAX || (!thread->stale && thread->above == above))
		return thread && above != UINT32_MAX ? thread->node : above;
	thread->above = above;
	thread->node = above;
	for (size_t i = 0; i < thread->count && thread->node != UINT32_MAX; i++)
		thread->node = node_of(r->phases, thread->node, thread->open[i].phase);
	thread->stale = thread->node == UINT32_MAX;
	return thread->node;
}

/* ---- bytes ------------------------------------------------------------------------------------- */

struct gm_phase *gm_phases_next(const struct gm_phases *phases, size_t life, uint32_t *at)
{
	uint32_t node = phases->of[life], i = *at == 0 ? node : *at;

	if (*at == UINT32_MAX)
		return NULL;
	while (i && (i == UINT32_MAX ? 0 : phases->nodes[i].again))
		i = phases->nodes[i].parent;
	/* No range: GM_PHASE_BEFORE or GM_PHASE_NONE, once. */
	if (!i || i == UINT32_MAX) {
		bool first = *at == 0;

		*at = UINT32_MAX;
		return first ? &phases->list[node == UINT32_MAX ? GM_PHASE_BEFORE : GM_PHASE_NONE] : NULL;
	}
	*at = phases->nodes[i].parent ? phases->nodes[i].parent : UINT32_MAX;
	return &phases->list[phases->nodes[i].phase];
}

static void change(struct reading *r, size_t index, bool born)
{
	const struct gm_life *life = &r->lives->list[index];
	struct gm_phase *phase;
	uint32_t at = 0;

	if (!gm_life_counts(life, r->device))
		return;
	r->live = born ? gm_wrap_add(r->live, life->size) : gm_wrap_subtract(r->live, life->size);
	while ((phase = gm_phases_next(r->phases, index, &at))) {
		phase->held = born ? gm_wrap_add(phase->held, life->size) :
			      gm_wrap_subtract(phase->held, life->size);
		if (phase->held > phase->own_peak)
			phase->own_peak = phase->held;
		if (born && life->born != GM_LIFE_BEFORE) {
			phase->allocated = gm_wrap_add(phase->allocated, life->size);
			phase->allocations++;
		}
		if (born && gm_life_at(life, GM_LIVES_END)) {
			phase->live = gm_wrap_add(phase->live, life->size);
			phase->blocks++;
		}
	}
	for (size_t i = 0; born && i < r->open_count; i++)
		if (r->live > r->phases->list[r->open[i]].peak)
			r->phases->list[r->open[i]].peak = r->live;
}

/* Go through all rows in order. @born and @died: for each row, the life + 1 that begins or ends there. */
static int sweep(struct reading *r, const uint32_t *born, const uint32_t *died)
{
	int result = 0;

	for (size_t i = 0; !result && i < r->lives->row_count; i++) {
		const struct gm_row *row = &r->lives->rows[i];

		if (row->place && !row->of_pool)
			result = annotate(r, row);
		if (!result && died[i])
			change(r, died[i] - 1, false);
		if (result || !born[i])
			continue;
		r->phases->of[born[i] - 1] = node_now(r, row->thread);
		if (r->phases->of[born[i] - 1] == UINT32_MAX)
			result = -ENOMEM;
		else
			change(r, born[i] - 1, true);
	}
	return result;
}

/* Find and begin the ranges that were open when the history began. The innermost ended first. */
static int look_back(struct reading *r)
{
	int result = 0;

	r->looking = true;
	for (size_t i = 0; !result && i < r->snapshot->row_count; i++)
		if (r->snapshot->rows[i].place && !r->snapshot->rows[i].of_pool)
			result = annotate(r, &r->snapshot->rows[i]);
	r->looking = false;
	for (size_t i = 0; i < r->count; i++) {
		r->threads[i].count = 0;
		r->threads[i].stale = true;
	}
	for (size_t i = r->early_count; !result && i--;)
		result = begin(r, r->early[i].thread, &r->early[i].range);
	return result;
}

static int read_all(struct reading *r)
{
	size_t rows = r->lives->row_count;
	uint32_t *born = calloc(rows + 1, sizeof(*born)), *died = calloc(rows + 1, sizeof(*died));
	int result = born && died ? 0 : -ENOMEM;

	for (size_t i = 0; !result && i < r->lives->count; i++) {
		const struct gm_life *life = &r->lives->list[i];

		r->phases->of[i] = UINT32_MAX;
		if (life->born < rows)
			born[life->born] = (uint32_t)i + 1;
		else
			change(r, i, true);
		if (life->died < rows)
			died[life->died] = (uint32_t)i + 1;
	}
	if (!result)
		result = look_back(r);
	if (!result)
		result = sweep(r, born, died);
	free(born);
	free(died);
	return result;
}

int gm_phases_open(struct gm_phases *phases, const struct gm_snapshot *snapshot,
		   const struct gm_lives *lives, const char *device)
{
	struct reading r = {
		.phases = phases, .snapshot = snapshot, .lives = lives, .device = device,
		.pid = gm_json_number(gm_json_object(snapshot->root, "process"), "pid"),
	};
	struct gm_phase_node *none;
	int result = -ENOMEM;

	memset(phases, 0, sizeof(*phases));
	phases->texts = gm_values_open();
	phases->of = calloc(lives->count + 1, sizeof(*phases->of));
	none = gm_list_add(&phases->nodes, &phases->node_count, sizeof(*none));
	if (none)
		*none = (struct gm_phase_node){ 0, 0, false };
	if (phases->texts && phases->of && none &&
	    phase_of(phases, "(no annotation)", "") == GM_PHASE_NONE &&
	    phase_of(phases, "(before the history)", "") == GM_PHASE_BEFORE)
		result = read_all(&r);
	for (size_t i = 0; i < r.count; i++)
		free(r.threads[i].open);
	free(r.threads);
	free(r.early);
	free(r.open);
	gm_table_free(&r.places);
	if (result)
		gm_phases_close(phases);
	return result;
}

void gm_phases_close(struct gm_phases *phases)
{
	free(phases->list);
	free(phases->nodes);
	free(phases->of);
	gm_table_free(&phases->names);
	gm_table_free(&phases->chains);
	if (phases->texts)
		gm_values_close(phases->texts);
	memset(phases, 0, sizeof(*phases));
}

/* ---- for people -------------------------------------------------------------------------------- */

static int by_peak(const void *a, const void *b)
{
	const struct gm_phase *p = *(const struct gm_phase *const *)a, *q = *(const struct gm_phase *const *)b;

	if (p->peak != q->peak)
		return p->peak < q->peak ? 1 : -1;
	if (p->own_peak != q->own_peak)
		return p->own_peak < q->own_peak ? 1 : -1;
	return p < q ? -1 : 1;
}

const struct gm_phase **gm_phases_sorted(const struct gm_phases *phases, size_t *ret_count)
{
	const struct gm_phase **ret = calloc(phases->count, sizeof(*ret));
	size_t count = 0;

	for (size_t i = 0; ret && i < phases->count; i++)
		if (phases->list[i].ranges || phases->list[i].own_peak)
			ret[count++] = &phases->list[i];
	if (count)
		qsort(ret, count, sizeof(*ret), by_peak);
	*ret_count = count;
	return ret;
}

const char *gm_phases_missing(const struct gm_snapshot *snapshot)
{
	static char text[256];
	const json_t *history = gm_json_object(snapshot->root, "history");
	int64_t dropped = snapshot->host_dropped;
	int64_t lost = gm_json_number(history, "annotations_lost");
	int used = 0;

	for (size_t i = 0; i < snapshot->trace_count; i++)
		dropped = gm_wrap_add(dropped, snapshot->dropped[i]);
	for (size_t i = 0; i < snapshot->pool_count; i++)
		dropped = gm_wrap_add(dropped, snapshot->pools[i].dropped);
	text[0] = '\0';
	if (dropped > 0)
		used = snprintf(text, sizeof(text), "the history has dropped %lld older events: ranges from before "
				"them are missing, and what was allocated then is in none", (long long)dropped);
	if (lost > 0)
		snprintf(text + used, sizeof(text) - (size_t)used, "%s%lld annotations were not recorded: they had "
			 "had their share of the history", used ? "; " : "", (long long)lost);
	return text[0] ? text : NULL;
}

json_t *gm_phase_json(const struct gm_phase *phase)
{
	return json_pack("{ss so sI sI sI sI sI sI}", "annotation", gm_show_clean(phase->name), "peak_bytes",
			 gm_show_number(phase->ranges, phase->peak), "own_peak_bytes", (json_int_t)phase->own_peak,
			 "allocated_bytes", (json_int_t)phase->live, "blocks", (json_int_t)phase->blocks,
			 "total_allocated_bytes", (json_int_t)phase->allocated, "allocations",
			 (json_int_t)phase->allocations, "ranges", (json_int_t)phase->ranges);
}
