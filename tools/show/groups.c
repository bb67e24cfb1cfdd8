/*
 * groups.c - live allocations, summed by call site, stack, module and so on: see groups.h.
 */
#define _GNU_SOURCE
#include "tools/show/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/read/snapshot.h"
#include "tools/show/phases.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/read/value.h"

#define NAME_MOST 160		/* bytes of a function's name in a stack for people */
/* The native frames below the first line of Python that are printed, of perhaps forty of PyTorch's: all up to
 * NATIVE_MOST, else the innermost NATIVE_FIRST and the outermost NATIVE_LAST. */
#define NATIVE_MOST 8u
#define NATIVE_FIRST 2u
#define NATIVE_LAST 3u
#define KEY_LEAST 24u		/* columns that a call site needs at least */
#define FRAME_LEAST 40u		/* columns that a frame needs at least */

static const char *const names[] = { "site", "stack", "module", "kind", "size", "stream", "annotation", "class" };

static void use(struct gm_scene *scene, uint8_t *used, const struct gm_life *lives, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (lives[i].stack > 0 && (uint64_t)lives[i].stack < scene->stacks.count)
			used[lives[i].stack] |= lives[i].device == GM_ROW_HOST ? GM_STACK_OF_HOST :
					GM_STACK_OF_DEVICE;
}

/* Compare the stacks of all allocations, not those of failed requests, which may be of another kind of memory. */
static int share(struct gm_scene *scene)
{
	uint8_t *used = calloc(scene->stacks.count + 1, sizeof(*used));

	if (!used)
		return -ENOMEM;
	use(scene, used, scene->lives.list, scene->lives.count);
	use(scene, used, scene->lives.at_peak, scene->lives.at_peak_count);
	gm_stacks_share(&scene->stacks, used);
	return 0;
}

int gm_scene_open(struct gm_scene *scene, const struct gm_snapshot *snapshot)
{
	int r;

	memset(scene, 0, sizeof(*scene));
	scene->snapshot = snapshot;
	scene->root = snapshot->root;
	r = gm_stacks_open(&scene->stacks, snapshot);
	if (!r)
		r = gm_lives_open(&scene->lives, snapshot);
	if (!r)
		r = share(scene);
	if (r)
		gm_scene_close(scene);
	return r;
}

void gm_scene_close(struct gm_scene *scene)
{
	gm_stacks_close(&scene->stacks);
	gm_lives_close(&scene->lives);
}

int64_t gm_scene_pool_peak(const struct gm_scene *scene, const char *device)
{
	int64_t most = INT64_MIN, row;

	if (scene->snapshot->of_pools && scene->lives.at_peak_known && (device || scene->snapshot->pool_count))
		return gm_lives_peak(&scene->lives, device, &row);
	for (size_t i = 0; i < scene->snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &scene->snapshot->pools[i];
		int64_t peak = gm_json_number(gm_json_object(pool->root, "memory_stats"), "allocated_bytes.all.peak");

		if (gm_show_is_device(device, pool->device) && peak > most)
			most = peak;
	}
	if (most != INT64_MIN) {
		int64_t shown = gm_lives_peak(&scene->lives, device, &row);

		most = shown > most ? shown : most;
	}
	return most;
}

struct gm_totals gm_scene_totals(const struct gm_scene *scene, const char *device, bool pools)
{
	struct gm_totals totals = gm_show_totals(scene->root, device);
	int64_t peak = pools ? gm_scene_pool_peak(scene, device) : INT64_MIN, ooms = 0, row;

	totals.live = totals.blocks = 0;
	for (size_t i = 0; i < scene->lives.count; i++) {
		const struct gm_life *life = &scene->lives.list[i];

		if (!gm_life_at(life, GM_LIVES_END) || !gm_life_counts(life, device))
			continue;
		totals.live = gm_wrap_add(totals.live, life->size);
		totals.blocks++;
	}
	for (size_t i = 0; pools && i < scene->snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &scene->snapshot->pools[i];
		const json_t *stats = gm_json_object(pool->root, "memory_stats");

		if (gm_show_is_device(device, pool->device))
			ooms = gm_wrap_add(ooms, gm_json_number(stats, "num_ooms"));
	}
	totals.ooms = ooms > totals.ooms ? ooms : totals.ooms;
	if (peak != INT64_MIN) {
		totals.peak = peak;
	} else if (totals.peak <= 0) {		/* there are no statistics */
		totals.peak = gm_lives_peak(&scene->lives, device, &row);
	}
	return totals;
}

const char *gm_by_name(enum gm_by by)
{
	return names[by];
}

int gm_groups_open(struct gm_groups *groups, enum gm_by by)
{
	*groups = (struct gm_groups){ .by = by };
	groups->texts = gm_values_open();
	return groups->texts ? 0 : -ENOMEM;
}

void gm_groups_close(struct gm_groups *groups)
{
	gm_table_free(&groups->found);
	gm_table_free(&groups->places);
	gm_table_free(&groups->place_additions);
	free(groups->list);
	gm_values_close(groups->texts);
	memset(groups, 0, sizeof(*groups));
}

/* ---- keys ------------------------------------------------------------------------------------- */

/* Return the build id of native frame @id's module, interned; NULL: not known, or the frame has no offset in the
 * module. */
static const char *build_of(struct gm_groups *groups, const struct gm_scene *scene, size_t id)
{
	const struct gm_snapshot_frame *frame = id < scene->snapshot->frame_count ? &scene->snapshot->frames[id] : NULL;
	const char *build;

	if (!frame || frame->python || frame->module <= 0 || frame->offset <= 0)
		return NULL;
	build = gm_json_text(json_array_get(gm_json_list(scene->root, "modules"), (size_t)frame->module), "build_id");
	return build[0] ? gm_values_string(groups->texts, build, strlen(build)) : NULL;
}

/* Return the key of frame @id: the key of the first snapshot's frame at the same place of the same build, else @key.
 * Only one of two snapshots may have names and lines (by gpumem symbolize on the machine that has the files). */
static const char *of_place(struct gm_groups *groups, int side, const struct gm_scene *scene, size_t id,
			    const char *key)
{
	bool alone = side && !groups->many && !groups->places.count;	/* there is no first snapshot */
	const char *build = key && !alone ? build_of(groups, scene, id) : NULL;
	uint64_t offset, known;

	if (!build)
		return key;
	offset = (uint64_t)scene->snapshot->frames[id].offset;
	known = gm_table_get(&groups->places, (uint64_t)(uintptr_t)build, offset);
	if (known)
		return gm_table_get(&groups->place_additions, (uint64_t)(uintptr_t)build, offset) ==
		       groups->additions ? key : (const char *)(uintptr_t)known;
	if ((!side || groups->many) &&
	    (gm_table_put(&groups->places, (uint64_t)(uintptr_t)build, offset, (uint64_t)(uintptr_t)key) ||
	     gm_table_put(&groups->place_additions, (uint64_t)(uintptr_t)build, offset, groups->additions)))
		return NULL;
	return key;
}

/* Return the key of a frame, the same in every run: the address at which a library was loaded does not count.
 * The page has the same rule: stackText in tools/viewer/src/model/stacks.js. */
static const char *frame_key(struct gm_groups *groups, int side, const struct gm_scene *scene, size_t id)
{
	const struct gm_frame *frame = &scene->stacks.frames[id];
	char text[1536];

	snprintf(text, sizeof(text), "%.600s\n%.300s\n%lld\n%.500s", frame->name, frame->module,
		 frame->python ? (long long)frame->line : 0,
		 frame->python ? gm_stack_file(&scene->stacks, frame->file) : "");
	return of_place(groups, side, scene, id, gm_values_string(groups->texts, gm_show_repair(text), strlen(text)));
}

/* Return the key of a stack: the addresses of its texts (frames, kind, module), which are interned. */
static const char *stack_key(struct gm_groups *groups, int side, const struct gm_scene *scene,
			     const struct gm_life *life)
{
	const char **parts, *key = NULL;
	size_t count, i = 0;
	const uint32_t *ids = gm_stack(&scene->stacks, life->stack, &count);
	const char *module = count ? "" : gm_show_module(scene->root, life->module);
	bool whole = true;

	parts = calloc(count + 2, sizeof(*parts));
	for (size_t n = 0; parts && n < count; n++)
		if (!scene->stacks.frames[ids[n]].inlined)	/* known only with debug information */
			whole &= (parts[i++] = frame_key(groups, side, scene, ids[n])) != NULL;
	if (parts) {
		whole &= (parts[i++] = gm_values_string(groups->texts, life->kind, strlen(life->kind))) != NULL;
		whole &= (parts[i++] = gm_values_string(groups->texts, module, strlen(module))) != NULL;
	}
	if (parts && whole)
		key = gm_values_string(groups->texts, (const char *)parts, i * sizeof(*parts));
	free(parts);
	return key;
}

static const char *key_of(struct gm_groups *groups, int side, const struct gm_scene *scene,
			  const struct gm_life *life)
{
	const struct gm_frame *site;
	int64_t limit = 512;
	char text[700];

	switch (groups->by) {
	case GM_BY_STACK:
		return stack_key(groups, side, scene, life);
	case GM_BY_SITE:
		site = gm_stack_site(&scene->stacks, life->stack);
		gm_site_text(&scene->stacks, life->stack, text, sizeof(text));
		if (site >= scene->stacks.frames && site < scene->stacks.frames + scene->stacks.frame_count)
			return of_place(groups, side, scene, (size_t)(site - scene->stacks.frames),
					gm_values_string(groups->texts, text, strlen(text)));
		break;
	case GM_BY_MODULE:
		snprintf(text, sizeof(text), "%s", gm_show_module(scene->root, life->module));
		break;
	case GM_BY_KIND:
		snprintf(text, sizeof(text), "%.99s", life->kind);
		break;
	case GM_BY_SIZE:
		while (limit < life->size && limit < INT64_MAX / 2)
			limit *= 2;
		snprintf(text, sizeof(text), "up to %s", gm_show_bytes(limit));
		break;
	case GM_BY_STREAM:
		snprintf(text, sizeof(text), "%#llx", (unsigned long long)life->stream);
		break;
	case GM_BY_CLASS:
		snprintf(text, sizeof(text), "%.256s", life->name ? life->name : life->died == GM_LIFE_LIVE ? "other" :
			 "freed since (class not known)");
		break;
	case GM_BY_ANNOTATION:		/* add_to_phases */
		return NULL;
	}
	return gm_values_string(groups->texts, gm_show_repair(text), strlen(text));
}

static const char *copied(struct gm_groups *groups, const char *text)
{
	return gm_values_string(groups->texts, text, strlen(text));
}

/* Set @function and @build of a group by site. Returns 0 or -ENOMEM. */
static int describe_site(struct gm_groups *groups, struct gm_group *group)
{
	const struct gm_stacks *stacks = &group->scene->stacks;
	const struct gm_frame *site = gm_stack_site(stacks, group->stack);
	size_t count, n = 0;
	const uint32_t *ids = gm_stack(stacks, group->stack, &count);
	char text[1024];

	snprintf(text, sizeof(text), "%.600s (%.300s)", site->name, site->module);
	group->function = copied(groups, gm_show_repair(text));
	while (n < count && &stacks->frames[ids[n]] != site)
		n++;
	while (n < count && stacks->frames[ids[n]].inlined)	/* up to the frame that was recorded */
		n++;
	group->build = n < count ? build_of(groups, group->scene, ids[n]) : NULL;
	return group->function ? 0 : -ENOMEM;
}

/* Return the group of @key, a new one for a new key. NULL: out of memory. */
static struct gm_group *group_of(struct gm_groups *groups, const char *key,
				 const struct gm_scene *scene, const struct gm_life *life)
{
	uint64_t at = key ? gm_table_get(&groups->found, (uint64_t)(uintptr_t)key, 0) : 0;
	struct gm_group *group;

	if (at || !key)
		return at ? &groups->list[at - 1] : NULL;
	group = gm_list_add(&groups->list, &groups->count, sizeof(*group));
	if (!group)
		return NULL;
	*group = (struct gm_group){
		.key = groups->by == GM_BY_STACK ? gm_stack_site(&scene->stacks, life->stack)->name : key,
		.scene = scene, .stack = life->stack, .module = life->module, .kind = life->kind,
		.addition = groups->additions,
	};
	if (groups->by == GM_BY_SITE && describe_site(groups, group))
		return NULL;
	return gm_table_put(&groups->found, (uint64_t)(uintptr_t)key, 0, groups->count) ? NULL :
	       group;
}

static void add_life(struct gm_group *group, int side, const struct gm_life *life, bool block)
{
	group->bytes[side] = gm_wrap_add(group->bytes[side], life->size);
	group->count[side] += block;
	if (!side || !life->name)
		return;
	if (!group->name)
		group->name = life->name;
	group->other_names |= strcmp(group->name, life->name) != 0;
}

/* Add one life to every phase in which it counts. */
static int add_to_phases(struct gm_groups *groups, int side, const struct gm_scene *scene,
			 const struct gm_phases *phases, size_t life)
{
	const struct gm_phase *phase;
	uint32_t at = 0;

	while ((phase = gm_phases_next(phases, life, &at))) {
		const char *key = gm_values_string(groups->texts, phase->name, strlen(phase->name));
		struct gm_group *group = group_of(groups, key, scene, &scene->lives.list[life]);

		if (!group)
			return -ENOMEM;
		add_life(group, side, &scene->lives.list[life], true);
	}
	return 0;
}

bool gm_by_has_peak(enum gm_by by)
{
	return by == GM_BY_SITE || by == GM_BY_STACK || by == GM_BY_MODULE || by == GM_BY_KIND;
}

int gm_groups_add(struct gm_groups *groups, int side, const struct gm_scene *scene, const char *device,
		  int64_t row, struct gm_suppressions *known)
{
	struct gm_table by_stack = { NULL, 0, 0 };	/* (stack, kind) -> group + 1, to make each key once */
	struct gm_phases phases = { .count = 0 };
	bool at_peak = row == GM_LIVES_PEAK;
	const struct gm_life *list = at_peak ? scene->lives.at_peak : scene->lives.list;
	size_t count = at_peak ? scene->lives.at_peak_count : scene->lives.count;
	int r = groups->by == GM_BY_ANNOTATION ? gm_phases_open(&phases, scene->snapshot, &scene->lives, device) : 0;

	groups->additions++;
	for (size_t i = 0; !r && i < count; i++) {
		const struct gm_life *life = &list[i];
		bool keyed = groups->by == GM_BY_STACK || groups->by == GM_BY_SITE;
		uint64_t tag = groups->by == GM_BY_SITE ? 0 :
			       (uintptr_t)life->kind ^ (uint64_t)(life->stack ? 0 : life->module) << 48;
		uint64_t at = keyed ? gm_table_get(&by_stack, (uint64_t)life->stack, tag) : 0;
		struct gm_group *group;

		if ((!at_peak && !gm_life_at(life, row)) || !gm_life_counts(life, device) ||
		    (known && gm_suppressed(known, scene, life)))
			continue;
		groups->all_bytes[side] = gm_wrap_add(groups->all_bytes[side], life->size);
		groups->all_count[side] += !at_peak;
		if (phases.count) {
			r = add_to_phases(groups, side, scene, &phases, i);
			continue;
		}
		group = at ? &groups->list[at - 1] :
			group_of(groups, key_of(groups, side, scene, life), scene, life);
		if (!group || (keyed && !at && gm_table_put(&by_stack, (uint64_t)life->stack, tag,
							    (uint64_t)(group - groups->list) + 1)))
			r = -ENOMEM;
		else
			add_life(group, side, life, !at_peak);
	}
	gm_table_free(&by_stack);
	gm_phases_close(&phases);
	return r;
}

/* ---- two builds ------------------------------------------------------------------------------- */

static int by_function(const void *a, const void *b)
{
	const struct gm_group *p = *(const struct gm_group *const *)a, *q = *(const struct gm_group *const *)b;

	return p->function != q->function ? (p->function < q->function ? -1 : 1) : p < q ? -1 : p > q;
}

/* Return the name of the row for all sites of one function, @list[0] to @list[@count - 1]: the site's key if the run
 * that names rows (the second of two, the first of many) has only one site; else the function. */
static const char *joined_name(const struct gm_groups *groups, struct gm_group *const *list, size_t count)
{
	const char *key = NULL;
	size_t sites = 0;

	for (size_t i = 0; i < count; i++)
		if (groups->many ? list[i]->build == list[0]->build : list[i]->bytes[1] || list[i]->count[1]) {
			key = list[i]->key;
			sites++;
		}
	return sites == 1 ? key : list[0]->function;
}

/* Are the sites of one function from two builds? Two files of one name in one process are not two builds of one
 * file. */
static bool are_of_builds(struct gm_group *const *list, size_t count)
{
	for (size_t i = 1; i < count; i++)
		if (list[i]->addition != list[0]->addition && list[i]->build && list[0]->build &&
		    list[i]->build != list[0]->build)
			return true;
	return false;
}

int gm_groups_join_builds(struct gm_groups *groups, size_t **ret_into)
{
	struct gm_group **list;
	size_t *into;

	*ret_into = NULL;
	if (groups->by != GM_BY_SITE)
		return 0;
	list = calloc(groups->count + 1, sizeof(*list));
	into = calloc(groups->count + 1, sizeof(*into));
	if (!list || !into) {
		free(list);
		free(into);
		return -ENOMEM;
	}
	for (size_t i = 0; i < groups->count; i++) {
		list[i] = &groups->list[i];
		into[i] = i;
	}
	qsort(list, groups->count, sizeof(*list), by_function);
	for (size_t i = 0, end; i < groups->count; i = end) {
		for (end = i + 1; end < groups->count && list[end]->function == list[i]->function;)
			end++;
		if (!are_of_builds(&list[i], end - i))
			continue;
		list[i]->key = joined_name(groups, &list[i], end - i);
		for (size_t k = i + 1; k < end; k++)
			into[list[k] - groups->list] = (size_t)(list[i] - groups->list);
	}
	free(list);
	*ret_into = into;
	return 0;
}

int gm_groups_merge_builds(struct gm_groups *groups)
{
	size_t *into, kept = 0;
	int r = gm_groups_join_builds(groups, &into);

	for (size_t i = 0; into && i < groups->count; i++) {
		struct gm_group *from = &groups->list[i], *to = &groups->list[into[i]];

		if (to == from) {
			into[i] = kept;
			groups->list[kept++] = *from;
			continue;
		}
		to = &groups->list[into[into[i]]];
		for (int side = 0; side < 2; side++) {
			to->bytes[side] = gm_wrap_add(to->bytes[side], from->bytes[side]);
			to->count[side] = gm_wrap_add(to->count[side], from->count[side]);
		}
		to->name = to->name ? to->name : from->name;
	}
	groups->count = into ? kept : groups->count;
	free(into);
	return r;
}

static int by_growth(const void *a, const void *b)
{
	const struct gm_group *p = a, *q = b;
	int64_t grown = gm_group_growth(p), other = gm_group_growth(q);

	return grown != other ? (grown < other ? 1 : -1) : strcmp(p->key, q->key);
}

void gm_groups_sort(struct gm_groups *groups)
{
	if (groups->count)
		qsort(groups->list, groups->count, sizeof(*groups->list), by_growth);
}

int gm_groups_of(struct gm_groups *ret, enum gm_by by, const struct gm_scene *scene, const char *device,
		 int64_t row, struct gm_suppressions *known)
{
	int r = gm_groups_open(ret, by);

	if (!r)
		r = gm_groups_add(ret, 1, scene, device, row, known);
	if (r)
		gm_groups_close(ret);
	else
		gm_groups_sort(ret);
	return r;
}

static int by_most(const void *a, const void *b)
{
	const struct gm_group *p = a, *q = b;
	int64_t most = p->bytes[0] > p->bytes[1] ? p->bytes[0] : p->bytes[1];
	int64_t other = q->bytes[0] > q->bytes[1] ? q->bytes[0] : q->bytes[1];

	return most != other ? (most < other ? 1 : -1) : strcmp(p->key, q->key);
}

int gm_groups_and_peak(struct gm_groups *ret, enum gm_by by, const struct gm_scene *scene, const char *device,
		       int64_t *ret_peak)
{
	int64_t row;
	int r = gm_groups_open(ret, by);

	ret->peak_shown = !scene->lives.at_peak_known || !gm_by_has_peak(by);
	ret->peak_known = !ret->peak_shown || scene->lives.row_count;
	*ret_peak = ret->peak_shown ? gm_lives_shown_peak(&scene->lives, device, &row) :
		    gm_lives_peak(&scene->lives, device, &row);
	if (!r)
		r = gm_groups_add(ret, 0, scene, device, row, NULL);
	if (!r)
		r = gm_groups_add(ret, 1, scene, device, GM_LIVES_END, NULL);
	if (r)
		gm_groups_close(ret);
	else if (ret->count)
		qsort(ret->list, ret->count, sizeof(*ret->list), by_most);
	return r;
}

void gm_groups_put_key(FILE *out, enum gm_by by, const char *key, size_t used)
{
	size_t columns = gm_show_columns(out), left = columns > used + 2 ? columns - used - 2 : 0;
	bool here = (by == GM_BY_SITE && left >= KEY_LEAST) || strlen(gm_show_clean(key)) <= left;
	char text[GM_SITE_FIT];

	left = here ? left : columns - 4;
	if (by == GM_BY_SITE)
		gm_site_fit(key, left, text);
	else
		gm_text_fit(strcpy(text, gm_show_clean(key)), left);
	fprintf(out, "%s%s\n", here ? "  " : "\n    ", text);
}

/* ---- stacks ----------------------------------------------------------------------------------- */

const char *gm_groups_frame_text(const struct gm_frame *frame, char text[GM_FRAME_TEXT])
{
	/* PyTorch's names have up to a thousand letters of templates; --json shows them whole. */
	char shorter[NAME_MOST * 4 + 64];
	const char *whole = frame->name;
	bool cut = gm_stacks_folded();
	const char *name;

	if (cut && !frame->python) {
		gm_frame_shorten(whole, shorter, sizeof(shorter));
		whole = shorter;
	}
	cut = cut && strlen(whole) > NAME_MOST;
	name = cut ? gm_show_cut(whole, NAME_MOST - 3) : gm_show_clean(whole);
	const char *dots = cut ? "..." : "";

	if (frame->line > 0)
		snprintf(text, GM_FRAME_TEXT, "%s%s (%s:%lld)", name, dots, gm_show_clean(frame->file),
			 (long long)frame->line);
	else if (frame->module[0] && strncmp(frame->name, frame->module, strlen(frame->module)))
		snprintf(text, GM_FRAME_TEXT, "%s%s (%s)", name, dots, gm_show_clean(frame->module));
	else
		snprintf(text, GM_FRAME_TEXT, "%s%s", name, dots);
	return text;
}

/* Is a frame native code of the interpreter or of libc, which runs between and outside of Python's frames? */
static bool is_of_interpreter(const struct gm_frame *frame)
{
	static const char *const modules[] = { "python3", "libpython3", "libc.so", "ld-linux" };

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (!frame->python && !strncmp(frame->module, modules[i], strlen(modules[i])))
			return true;
	return false;
}

/* A line of a stack for people: @frame, or a run of @folded frames of one kind. */
struct line { const struct gm_frame *frame; size_t folded; };

static void print_line(FILE *out, const struct line *line, int indent)
{
	size_t columns = gm_stacks_folded() ? gm_show_columns(out) : SIZE_MAX;
	char text[GM_FRAME_TEXT], fit[GM_SITE_FIT];

	if (line->folded > 1)
		fprintf(out, "%*s(%s: %zu frames)\n", indent, "", gm_fold_name(gm_frame_fold(line->frame)),
			line->folded);
	else if (columns == SIZE_MAX)
		fprintf(out, "%*s%s\n", indent, "", gm_groups_frame_text(line->frame, text));
	else
		fprintf(out, "%*s%s\n", indent, "", gm_site_fit(gm_groups_frame_text(line->frame, text),
								 columns - (size_t)indent, fit));
}

/* Make the lines of a stack. A run of folded frames of one kind is one line; a stack with Python has no line of the
 * interpreter's. Returns the number of lines. *@ret_inner of them are before the first Python frame; 0: there is no
 * such frame, or every frame is shown. */
static size_t fold(const struct gm_scene *scene, int64_t stack, struct line *lines, size_t *ret_inner)
{
	const struct gm_frame *site = gm_stack_site(&scene->stacks, stack);
	size_t count, found = 0;
	const uint32_t *ids = gm_stack(&scene->stacks, stack, &count);
	bool python = false, all = !gm_stacks_folded();

	for (size_t i = 0; i < count; i++)
		python |= scene->stacks.frames[ids[i]].python;
	*ret_inner = SIZE_MAX;
	for (size_t i = 0; i < count; i++) {
		const struct gm_frame *frame = &scene->stacks.frames[ids[i]];
		enum gm_fold kind = all || frame == site ? GM_FOLD_NOT : gm_frame_fold(frame);
		struct line *before = found ? &lines[found - 1] : NULL;

		if (frame->python && *ret_inner == SIZE_MAX)
			*ret_inner = found;
		if (python && !all && (kind == GM_FOLD_INTERPRETER || is_of_interpreter(frame)))
			continue;
		if (kind && before && before->folded && gm_frame_fold(before->frame) == kind)
			before->folded++;
		else
			lines[found++] = (struct line){ frame, kind != GM_FOLD_NOT };
	}
	*ret_inner = *ret_inner == SIZE_MAX || all ? 0 : *ret_inner;
	return found;
}

void gm_groups_print_stack(FILE *out, const struct gm_scene *scene, int64_t stack, int indent)
{
	size_t count, inner;
	struct line *lines;

	if ((size_t)indent > 4 && (size_t)indent + FRAME_LEAST > gm_show_columns(out))
		indent = 4;
	gm_stack(&scene->stacks, stack, &count);
	lines = count ? calloc(count, sizeof(*lines)) : NULL;
	if (!lines) {
		fprintf(out, "%*s(no stack)\n", indent, "");
		return;
	}
	count = fold(scene, stack, lines, &inner);
	for (size_t i = 0; i < count; i++)
		if (i >= inner || inner <= NATIVE_MOST || i < NATIVE_FIRST || i >= inner - NATIVE_LAST)
			print_line(out, &lines[i], indent);
		else if (i == NATIVE_FIRST)
			fprintf(out, "%*s... (%zu more of native code; --all-frames has all)\n", indent, "",
				inner - NATIVE_FIRST - NATIVE_LAST);
	free(lines);
}

json_t *gm_groups_json_stack(const struct gm_scene *scene, int64_t stack)
{
	size_t count;
	const uint32_t *ids = gm_stack(&scene->stacks, stack, &count);
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++) {
		const struct gm_frame *frame = &scene->stacks.frames[ids[i]];

		json_array_append_new(list, json_pack("{ss ss sI ss}", "name", frame->name, "file", frame->file,
						      "line", (json_int_t)frame->line, "module", frame->module));
	}
	return list;
}
