/*
 * top_sample.c - a living process's journal, read from outside, into numbers: see top.h.
 *
 * The tables are copied as every snapshot from outside copies them (recorder/read/copy.h), without the
 * events, which may be a hundred times as much.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "tools/read/attach.h"
#include "tools/show/show.h"
#include "tools/read/table.h"
#include "tools/read/value.h"
#include "tools/top/top.h"

/* A journal is anybody's: its numbers may be too large to be added. */
static void add(int64_t *to, int64_t value)
{
	*to = gm_wrap_add(*to, value);
}

/* A journal may be filled with stacks to fill our memory. So those of a process are limited, and those of all. */
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

	return rate < 9e18 ? rate : 9e18;	/* it is shown as an integer */
}

static void read_device(struct gm_top_process *process, const struct gm_copy *copy, unsigned int d,
			const struct gm_domain *domain, double seconds)
{
	bool pool = d >= GM_DOMAIN_POOLS;
	struct gm_top_device *device = &process->devices[d], before = *device;
	const struct gm_stats *stats = &domain->stats;
	int64_t active = stats->stat[GM_STAT_ACTIVE_BYTES][GM_POOL_ALL].current;
	int of = pool ? GM_STAT_ALLOCATED_BYTES : GM_STAT_REQUESTED_BYTES;	/* a pool tells one size */

	device->ordinal = pool ? domain->pool.device : d;
	snprintf(device->name, sizeof(device->name), "%.*s", (int)sizeof(domain->name),
		 pool ? gm_copy_string(copy, domain->pool.name, NULL) : domain->name);
	memcpy(device->uuid, domain->uuid, sizeof(device->uuid));
	device->total = (int64_t)domain->total_bytes;
	device->sampled = domain->free_stamp;
	device->free = device->sampled ? (int64_t)domain->free_bytes : -1;
	device->live = stats->stat[of][GM_POOL_ALL].current;
	device->peak = stats->stat[of][GM_POOL_ALL].peak;
	device->reserved = stats->stat[GM_STAT_RESERVED_BYTES][GM_POOL_ALL].current;
	device->pending = pool ? -1 :
			  gm_wrap_subtract(active, stats->stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].current);
	device->cached = gm_wrap_subtract(device->reserved, pool ? device->live : active);
	if (pool && device->cached < 0)		/* it handed out what lies in no piece of its */
		device->cached = 0;
	device->blocks = stats->stat[GM_STAT_ALLOCATION][GM_POOL_ALL].current;
	device->allocations = stats->stat[GM_STAT_ALLOCATION][GM_POOL_ALL].allocated;
	device->allocated = stats->stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].allocated;
	device->present = pool ? domain->pool.source != GM_POOL_NONE :
			  d == GM_DOMAIN_HOST ? device->allocations > 0 : domain->present != 0;
	if (before.present) {
		device->calls_rate = rate(device->allocations, before.allocations, seconds);
		device->bytes_rate = rate(device->allocated, before.allocated, seconds);
	}
}

/* ---- modules --------------------------------------------------------------------------------- */

static const char *module_name(const struct gm_copy *copy, uint32_t id)
{
	const struct gm_module *module = gm_copy_module(copy, id);
	const char *path = module ? gm_copy_string(copy, module->path, NULL) : "";

	static char name[256];			/* no file has a longer one */

	if (!path[0])
		return "(unknown)";
	snprintf(name, sizeof(name), "%s", gm_show_clean(basename(path)));
	return name;
}

/* The rows (module, all kinds) of the devices; a module's name may stand for several numbers. */
static int read_modules(struct gm_top_process *process, const struct gm_copy *copy,
			double seconds)
{
	struct gm_top_rows now = { .count = 0 };

	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_USAGE); i++) {
		const struct gm_usage *usage = gm_copy_usage(copy, i);
		struct gm_top_row *row;

		if (usage->used != 1 || usage->kind != 0xff || usage->module == 0xffff ||
		    usage->domain >= GM_MAX_DEVICES)
			continue;
		row = gm_top_row(&now, module_name(copy, usage->module));
		if (!row)
			goto out_free;
		if (row->peak < 0)
			row->peak = row->allocations = row->allocated = 0;
		add(&row->live, usage->current_bytes);
		add(&row->peak, usage->peak_bytes);
		add(&row->blocks, gm_wrap_subtract(usage->allocations, usage->frees));
		add(&row->allocations, usage->allocations);
		add(&row->allocated, usage->allocated_bytes);
	}
	for (size_t i = 0; i < now.count; i++) {
		struct gm_top_row *row = &now.list[i],
				  *before = gm_top_row(&process->modules, row->name);

		if (!before)
			goto out_free;
		row->growth = !process->samples ? 0 :
			      gm_wrap_add(before->growth, gm_wrap_subtract(row->live, before->live));
		if (process->samples && before->allocations >= 0) {
			row->calls_rate = rate(row->allocations, before->allocations, seconds);
			row->bytes_rate = rate(row->allocated, before->allocated, seconds);
		}
	}
	gm_top_rows_free(&process->modules);
	process->modules = now;
	return 0;

out_free:
	gm_top_rows_free(&now);
	return -ENOMEM;
}

/* ---- call sites ------------------------------------------------------------------------------ */

/* What @process had of that stack at the samples before, made if need be; NULL: out of memory. */
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

/* Does @block count, as what is live at that level? */
static bool counts(const struct gm_block *block, bool driver, const struct gm_top_pieces *pieces)
{
	if (!block || (block->state != GM_BLOCK_ACTIVE && block->state != GM_BLOCK_FREEING) ||
	    block->kind == GM_KIND_IPC)
		return false;
	if (driver)
		return block->domain < GM_MAX_DEVICES;
	return block->domain >= GM_DOMAIN_POOLS ||
	       (block->domain < GM_MAX_DEVICES && !gm_top_pieces_have(pieces, block));
}

/* What is live, summed by stack: one pass over the blocks. */
static int sum_stacks(struct gm_top_process *process, const struct gm_copy *copy, const struct gm_top_pieces *pieces)
{
	for (size_t i = 0; i < process->stack_count; i++)
		process->stacks[i]->live = process->stacks[i]->blocks = 0;
	for (uint32_t id = 1; id < gm_copy_items(copy, GM_REGION_BLOCKS); id++) {
		const struct gm_block *block = gm_copy_block(copy, id);
		struct gm_top_stack *stack;

		if (!counts(block, process->driver, pieces))
			continue;
		stack = stack_of(process, block->stack);
		if (!stack)
			return -ENOMEM;
		add(&stack->live, (int64_t)block->requested);
		stack->blocks++;
	}
	for (size_t i = 0; !process->samples && i < process->stack_count; i++)
		process->stacks[i]->first = process->stacks[i]->live;
	return 0;
}

/* Growth is counted by stack: a site may get its name, and become another row, between two samples. One
 * that holds nothing any more stays, with what it held at first as growth below zero. */
static int read_sites(struct gm_top_process *process, const struct gm_copy *copy)
{
	struct gm_top_rows now = { .count = 0 };
	struct gm_top_pieces pieces;
	int r = gm_top_pieces_open(&pieces, copy);

	if (!r)
		r = sum_stacks(process, copy, &pieces);
	gm_top_pieces_close(&pieces);
	if (!r)
		r = gm_top_stacks(process, copy);
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
	gm_top_rows_free(r ? &now : &process->sites);
	if (!r)
		process->sites = now;
	return r;
}

/* ---- one sample ------------------------------------------------------------------------------ */

static int read_copy(struct gm_top_process *process, const struct gm_copy *copy, double seconds)
{
	const struct gm_header *header = copy->header;
	int r;

	memcpy(process->command, header->command, sizeof(process->command));
	process->command[sizeof(process->command) - 1] = '\0';
	process->rank = header->rank;
	process->consistent = copy->consistent;
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *domain = gm_copy_domain(copy, d);

		if (domain)
			read_device(process, copy, d, domain, seconds);
	}
	for (uint32_t id = 1; id < gm_copy_items(copy, GM_REGION_BLOCKS); id++) {
		const struct gm_block *block = gm_copy_block(copy, id);

		/* The requested bytes count it still (PyTorch's rule), but the program freed it. */
		if (block && block->state == GM_BLOCK_PENDING && block->domain < GM_DOMAIN_POOLS)
			process->devices[block->domain].live =
				gm_wrap_subtract(process->devices[block->domain].live, (int64_t)block->requested);
	}
	r = read_modules(process, copy, seconds);
	return r || process->phases ? r : read_sites(process, copy);
}

static int sample(struct gm_top_process *process, int fd, double now)
{
	struct gm_copy copy;
	int r = gm_copy_tables(&copy, fd);

	if (!r)
		r = gm_copy_resolve(&copy, 0);
	if (!r)
		r = read_copy(process, &copy, process->samples ? now - process->when : 0);
	process->error[0] = '\0';
	if (r)
		snprintf(process->error, sizeof(process->error), "%s", copy.error[0] ? copy.error : strerror(-r));
	else if (process->phases)
		r = gm_top_phases(process, fd);
	gm_copy_free(&copy);
	return r;
}

/* Is the process at an end? Another one may have its number by now. */
static bool is_over(const struct gm_top_process *process, int fd)
{
	struct stat st;

	return fstat(fd, &st) || st.st_dev != process->device || st.st_ino != process->inode || gm_copy_alive(fd) == 0;
}

int gm_top_sample(struct gm_top_process *process)
{
	struct gm_attached attached = { .fd = process->fd };
	double now = gm_show_now();
	int r = process->fd < 0 ? gm_attach(process->pid, &attached) : 0;

	if (r == -ESRCH || r == -ENOENT || (!r && is_over(process, attached.fd))) {
		process->state = GM_TOP_ENDED;
		r = -ESRCH;
	} else {
		if (r)
			snprintf(process->error, sizeof(process->error), "%s", gm_attach_explain(process->pid, r));
		else
			r = sample(process, attached.fd, now);
		process->state = r ? GM_TOP_UNREADABLE : GM_TOP_RUNNING;
		process->samples += !r;
		process->when = r ? process->when : now;
	}
	if (process->fd < 0 && attached.fd >= 0)
		close(attached.fd);
	return r;
}
