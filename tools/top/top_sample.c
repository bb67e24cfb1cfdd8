/*
 * top_sample.c - take a snapshot of a living process, and keep its numbers: see top.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/read/input.h"
#include "tools/read/level.h"
#include "tools/show/show.h"
#include "tools/read/value.h"
#include "tools/show/phases.h"
#include "tools/top/top.h"

/* Add without overflow, because a damaged journal may have any number. */
static void add(int64_t *to, int64_t value)
{
	*to = gm_wrap_add(*to, value);
}

/* The limits of the stacks of a process and of all processes, because somebody may fill a journal with stacks to use up
 * our memory. */
#define STACKS_MOST (1u << 14)
#define ALL_STACKS_MOST (1u << 18)

static size_t all_stacks;

struct gm_top_process *gm_top_open(int64_t pid, int fd, bool hold)
{
	struct gm_top_process *process = calloc(1, sizeof(*process));
	struct stat st;

	if (!process || fstat(fd, &st)) {
		free(process);
		return NULL;
	}
	process->pid = pid;
	process->fd = hold ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	process->device = st.st_dev;
	process->inode = st.st_ino;
	process->ours = st.st_uid == geteuid();
	process->rank = -1;
	return process;
}

void gm_top_rows_free(struct gm_top_rows *rows)
{
	free(rows->list);
	gm_table_free(&rows->found);
	gm_values_close(rows->texts);
	memset(rows, 0, sizeof(*rows));
}

struct gm_top_row *gm_top_row(struct gm_top_rows *rows, const char *name)
{
	struct gm_top_row *row;
	const char *own;
	uint64_t at;

	rows->texts = rows->texts ? rows->texts : gm_values_open();
	own = rows->texts ? gm_values_string(rows->texts, name, strlen(name)) : NULL;
	at = own ? gm_table_get(&rows->found, (uint64_t)(uintptr_t)own, 0) : 0;
	if (at || !own)
		return at ? &rows->list[at - 1] : NULL;
	row = gm_list_add(&rows->list, &rows->count, sizeof(*row));
	if (!row)
		return NULL;
	*row = (struct gm_top_row){ .name = own, .peak = -1, .allocations = -1, .allocated = -1 };
	return gm_table_put(&rows->found, (uint64_t)(uintptr_t)own, 0, rows->count) ? NULL : row;
}

void gm_top_close(struct gm_top_process *process)
{
	if (!process)
		return;
	gm_top_rows_free(&process->modules);
	gm_top_rows_free(&process->sites);
	for (size_t i = 0; i < process->stack_count; i++) {
		gm_top_forget_names(process->stacks[i]);
		free(process->stacks[i]);
	}
	free(process->stacks);
	all_stacks -= process->stack_count;
	gm_table_free(&process->known);
	if (process->fd >= 0)
		close(process->fd);
	free(process);
}

/* ---- devices --------------------------------------------------------------------------------- */

static double rate(int64_t now, int64_t before, double seconds)
{
	double rate = seconds > 0 && now > before ? ((double)now - (double)before) / seconds : 0;

	return rate < 9e18 ? rate : 9e18;	/* the rate is shown as an integer */
}

/* Read the numbers of domain @d from @of, the snapshot's device, host or pool. */
static void read_device(struct gm_top_process *process, unsigned int d, const json_t *of, double seconds)
{
	bool pool = d >= GM_DOMAIN_POOLS;
	struct gm_top_device *device = &process->devices[d], before = *device;
	const json_t *stats = gm_json_object(of, "memory_stats");
	int64_t active = gm_json_number(stats, "active_bytes.all.current");

	*device = (struct gm_top_device){
		.ordinal = (unsigned int)gm_json_number(of, "device"), .total = gm_json_number(of, "total_bytes"),
		.sampled = gm_json_number(of, "sampled_us"), .free = gm_json_number(of, "free_bytes"),
		/* a pool reports one size */
		.live = gm_json_number(stats, pool ? "allocated_bytes.all.current" : "requested_bytes.all.current"),
		.peak = gm_json_number(stats, pool ? "allocated_bytes.all.peak" : "requested_bytes.all.peak"),
		.reserved = gm_json_number(stats, "reserved_bytes.all.current"),
		.blocks = gm_json_number(stats, "allocation.all.current"),
		.allocations = gm_json_number(stats, "allocation.all.allocated"),
		.allocated = gm_json_number(stats, "allocated_bytes.all.allocated"),
	};
	snprintf(device->name, sizeof(device->name), "%s", gm_json_text(of, "name"));
	snprintf(device->uuid, sizeof(device->uuid), "%s", gm_json_text(of, "uuid"));
	device->pending = pool ? -1 :
			  gm_wrap_subtract(active, gm_json_number(stats, "allocated_bytes.all.current"));
	device->cached = gm_wrap_subtract(device->reserved, pool ? device->live : active);
	if (pool && device->cached < 0)		/* a pool may hand out blocks that lie in none of its pieces */
		device->cached = 0;
	device->present = pool || (d == GM_DOMAIN_HOST ? device->allocations > 0 :
				   json_is_true(json_object_get(of, "present")));
	if (before.present) {
		device->calls_rate = rate(device->allocations, before.allocations, seconds);
		device->bytes_rate = rate(device->allocated, before.allocated, seconds);
	}
}

static void read_devices(struct gm_top_process *process, const struct gm_snapshot *snapshot, double seconds)
{
	const json_t *devices = gm_json_list(snapshot->root, "devices");

	for (unsigned int d = 0; d < GM_MAX_DEVICES; d++)
		read_device(process, d, json_array_get(devices, d), seconds);
	read_device(process, GM_DOMAIN_HOST, gm_json_object(snapshot->root, "host"), seconds);
	for (size_t i = 0; i < snapshot->pool_count; i++) {
		const struct gm_snapshot_pool *pool = &snapshot->pools[i];

		if (pool->number > 0 && pool->number <= GM_DOMAINS - GM_DOMAIN_POOLS)
			read_device(process, GM_DOMAIN_POOLS - 1 + (unsigned int)pool->number, pool->root, seconds);
	}
	/* Subtract pending blocks, which the program has freed: requested bytes include them, as in PyTorch. */
	for (size_t i = 0; i < snapshot->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &snapshot->segments[i];
		int64_t d = segment->device == GM_ROW_HOST ? GM_DOMAIN_HOST : segment->device;

		for (size_t b = 0; d >= 0 && d < GM_DOMAIN_POOLS && b < segment->block_count; b++)
			if (!strcmp(segment->blocks[b].state, "active_pending_free"))
				add(&process->devices[d].live, gm_wrap_subtract(0, segment->blocks[b].requested_size));
	}
}

/* ---- modules --------------------------------------------------------------------------------- */

/* Replace the rows @kept by @now. If @r is an error, free @now, which is not complete. Returns @r. */
static int keep(struct gm_top_rows *kept, struct gm_top_rows *now, int r)
{
	gm_top_rows_free(r ? now : kept);
	if (!r)
		*kept = *now;
	return r;
}

/* Return the growth of the new row @now since the first sample. @before: the rows of the previous sample. */
static int64_t growth(const struct gm_top_process *process, struct gm_top_rows *before, const struct gm_top_row *now)
{
	const struct gm_top_row *row = process->samples ? gm_top_row(before, now->name) : NULL;

	return row ? gm_wrap_add(row->growth, gm_wrap_subtract(now->live, row->live)) : 0;
}

/* Add the modules of @device to @now, which may have rows of other devices. Several modules may have one name. */
static int add_modules(struct gm_top_rows *now, const json_t *device)
{
	const json_t *from;
	size_t i;

	json_array_foreach(gm_json_list(device, "by_module"), i, from) {
		const char *path = gm_json_text(from, "path");
		struct gm_top_row *row = gm_top_row(now, path[0] ? gm_show_clean(basename(path)) : "(unknown)");

		if (!row)
			return -ENOMEM;
		if (row->peak < 0)
			row->peak = row->allocations = row->allocated = 0;
		add(&row->live, gm_json_number(from, "allocated_bytes"));
		add(&row->peak, gm_json_number(from, "peak_bytes"));
		add(&row->blocks, gm_wrap_subtract(gm_json_number(from, "allocations"), gm_json_number(from, "frees")));
		add(&row->allocations, gm_json_number(from, "allocations"));
		add(&row->allocated, gm_json_number(from, "total_allocated_bytes"));
	}
	return 0;
}

static int read_modules(struct gm_top_process *process, const json_t *devices, double seconds)
{
	struct gm_top_rows now = { .count = 0 };
	const json_t *device;
	size_t i;
	int r = 0;

	json_array_foreach(devices, i, device)
		r = r ? r : add_modules(&now, device);
	for (i = 0; !r && i < now.count; i++) {
		struct gm_top_row *row = &now.list[i];
		const struct gm_top_row *before = gm_top_row(&process->modules, row->name);

		row->growth = growth(process, &process->modules, row);
		if (before && before->allocations >= 0) {
			row->calls_rate = rate(row->allocations, before->allocations, seconds);
			row->bytes_rate = rate(row->allocated, before->allocated, seconds);
		}
	}
	return keep(&process->modules, &now, r);
}

/* ---- call sites ------------------------------------------------------------------------------ */

/* Return the stack @id of @process, and make it if there is none. NULL: out of memory. */
static struct gm_top_stack *stack_of(struct gm_top_process *process, uint32_t id)
{
	uint64_t at = gm_table_get(&process->known, id, 1);
	struct gm_top_stack *stack, **place;

	if (!at && id != GM_TOP_OTHER_STACKS &&
	    (process->stack_count >= STACKS_MOST || all_stacks >= ALL_STACKS_MOST))
		return stack_of(process, GM_TOP_OTHER_STACKS);
	if (at)
		return process->stacks[at - 1];
	stack = calloc(1, sizeof(*stack));
	place = stack ? gm_list_add(&process->stacks, &process->stack_count, sizeof(*place)) : NULL;
	if (!place) {
		free(stack);
		return NULL;
	}
	*place = stack;
	stack->id = id;
	all_stacks++;
	return gm_table_put(&process->known, id, 1, process->stack_count) ? NULL : stack;
}

/* Sum the live bytes by stack, in one pass over the blocks. */
static int sum_stacks(struct gm_top_process *process, const struct gm_snapshot *snapshot)
{
	for (size_t i = 0; i < process->stack_count; i++)
		process->stacks[i]->live = process->stacks[i]->blocks = 0;
	for (size_t i = 0; i < snapshot->segment_count; i++) {
		const struct gm_snapshot_segment *segment = &snapshot->segments[i];

		for (size_t b = 0; segment->device != GM_ROW_HOST && b < segment->block_count; b++) {
			const struct gm_snapshot_block *block = &segment->blocks[b];
			struct gm_top_stack *stack;

			if (strcmp(block->state, "active_allocated") || !strcmp(block->kind, "ipc"))
				continue;
			stack = stack_of(process, (uint32_t)block->stack);
			if (!stack)
				return -ENOMEM;
			add(&stack->live, block->requested_size);
			stack->blocks++;
		}
	}
	for (size_t i = 0; !process->samples && i < process->stack_count; i++)
		process->stacks[i]->first = process->stacks[i]->live;
	return 0;
}

/* Make the rows of call sites. Growth is counted by stack, because a site may get its name between two samples and
 * become another row. A site that holds nothing any more keeps its row, with a growth below zero. */
static int make_sites(struct gm_top_process *process)
{
	struct gm_top_rows now = { .count = 0 };
	int r = 0;

	for (size_t i = 0; !r && i < process->stack_count; i++) {
		struct gm_top_stack *stack = process->stacks[i];
		struct gm_top_row *row = gm_top_row(&now, stack->site);

		if (!row) {
			r = -ENOMEM;
			break;
		}
		if (stack->blocks && (!row->stacks++ || stack->live > row->stack_live)) {
			row->stack_live = stack->live;
			row->stack = stack;
		}
		add(&row->live, stack->live);
		row->blocks += stack->blocks;
		add(&row->growth, gm_wrap_subtract(stack->live, stack->first));
	}
	return keep(&process->sites, &now, r);
}

/* ---- named ranges instead of call sites ---------------------------------------------------------- */

static int read_phases(struct gm_top_process *process, struct gm_snapshot *snapshot)
{
	struct gm_top_rows now = { .count = 0 };
	struct gm_phases phases = { .count = 0 };
	struct gm_lives lives = { .count = 0 };
	const struct gm_phase **list;
	size_t count = 0;
	int r = gm_snapshot_annotate(snapshot);

	if (!r)
		r = gm_lives_open(&lives, snapshot);
	if (!r)
		r = gm_phases_open(&phases, snapshot, &lives, NULL);
	list = r ? NULL : gm_phases_sorted(&phases, &count);
	r = list || r ? r : -ENOMEM;
	for (size_t i = 0; !r && i < count; i++) {
		struct gm_top_row *row = gm_top_row(&now, list[i]->name);

		if (!row) {
			r = -ENOMEM;
			break;
		}
		row->live = list[i]->live;
		row->blocks = list[i]->blocks;
		row->peak = list[i]->ranges ? list[i]->peak : -1;
		row->growth = growth(process, &process->sites, row);
	}
	free(list);
	gm_phases_close(&phases);
	gm_lives_close(&lives);
	return keep(&process->sites, &now, r);
}

/* ---- one sample ------------------------------------------------------------------------------ */

static int read_snapshot(struct gm_top_process *process, struct gm_snapshot *snapshot, double seconds)
{
	const json_t *who = gm_json_object(snapshot->root, "process"), *rank = json_object_get(who, "rank");
	int r;

	snprintf(process->command, sizeof(process->command), "%s", gm_json_text(who, "command"));
	process->rank = json_is_integer(rank) ? (int)json_integer_value(rank) : -1;
	process->consistent = json_is_true(json_object_get(snapshot->root, "consistent"));
	read_devices(process, snapshot, seconds);
	r = read_modules(process, gm_json_list(snapshot->root, "devices"), seconds);
	if (!r)
		r = gm_level_apply(snapshot, process->driver ? GM_LEVEL_DRIVER : GM_LEVEL_POOL);
	if (!r)
		r = process->phases ? read_phases(process, snapshot) : sum_stacks(process, snapshot);
	return r;
}

int gm_top_load(struct gm_top_process *process, const struct gm_attached *attached, enum gm_load what,
		struct gm_loaded *ret)
{
	int r;

	gm_limit_forget();		/* the limits count neither the previous load nor other processes */
	r = gm_load_process(process->pid, attached, what, ret);
	if (r)
		snprintf(process->error, sizeof(process->error), "%.250s", ret->error);
	return r;
}

static int sample(struct gm_top_process *process, const struct gm_attached *attached, double now)
{
	struct gm_loaded loaded;
	int r;

	process->error[0] = '\0';
	r = gm_top_load(process, attached, process->phases ? GM_LOAD_WHOLE : GM_LOAD_TABLES, &loaded);
	if (!r) {
		r = read_snapshot(process, &loaded.snapshot, process->samples ? now - process->when : 0);
		gm_load_free(&loaded);
	}
	if (!r && !process->phases)
		r = gm_top_names(process, attached);
	if (!r && !process->phases)
		r = make_sites(process);
	if (r && !process->error[0])
		snprintf(process->error, sizeof(process->error), "%s", gm_limit_why(r));
	return r;
}

/* Has the process ended? Another process may have its number by now. */
static bool is_over(const struct gm_top_process *process, const struct gm_attached *attached)
{
	struct stat st;

	return fstat(attached->fd, &st) || st.st_dev != process->device || st.st_ino != process->inode ||
	       gm_attach_ended(attached);
}

int gm_top_sample(struct gm_top_process *process)
{
	struct gm_attached attached = { .fd = process->fd };
	double now = gm_show_now();
	int r = process->fd < 0 ? gm_attach(process->pid, &attached) : 0;

	if (r == -ESRCH || r == -ENOENT || (!r && is_over(process, &attached))) {
		process->state = GM_TOP_ENDED;
		r = -ESRCH;
	} else {
		if (r)
			snprintf(process->error, sizeof(process->error), "%s", gm_attach_explain(process->pid, r));
		else
			r = sample(process, &attached, now);
		process->state = r ? GM_TOP_UNREADABLE : GM_TOP_RUNNING;
		process->samples += !r;
		process->when = r ? process->when : now;
	}
	if (process->fd < 0 && attached.fd >= 0)
		close(attached.fd);
	return r;
}
