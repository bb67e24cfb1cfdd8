/*
 * top_all.c - find the processes to sample, and add up their numbers: see top.h.
 *
 * With "all", /proc is searched every two seconds for processes that have a journal mapped. This also finds journals in
 * other directories, containers and mount namespaces.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/read/attach.h"
#include "tools/show/show.h"
#include "tools/top/top.h"

#define SEARCH_SECONDS 2.0
#define DESCRIPTORS_LEFT 32u		/* for the search, a sample, the terminal, a child that takes a snapshot */

static struct gm_top_process *find(const struct gm_top *top, int64_t pid)
{
	for (size_t i = 0; i < top->count; i++)
		if (top->list[i]->pid == pid)
			return top->list[i];
	return NULL;
}

/* Is a descriptor left that can stay open for a process? If not, its journal is opened for each sample. */
static bool may_hold(const struct gm_top *top)
{
	struct rlimit files;
	size_t held = 0;

	for (size_t i = 0; i < top->count; i++)
		held += top->list[i]->fd >= 0;
	return !getrlimit(RLIMIT_NOFILE, &files) && held + DESCRIPTORS_LEFT < files.rlim_cur;
}

/* Add the process @pid, whose journal is the caller's @attached. */
static int add(struct gm_top *top, int64_t pid, const struct gm_attached *attached)
{
	struct gm_top_process *process, **place;

	process = gm_top_open(pid, attached->fd, may_hold(top));
	place = process ? gm_list_add(&top->list, &top->count, sizeof(*place)) : NULL;
	if (!place) {
		gm_top_close(process);
		return -ENOMEM;
	}
	process->phases = top->phases;
	process->driver = top->driver;
	*place = process;
	return 0;
}

int gm_top_add(struct gm_top *top, int64_t pid)
{
	struct gm_attached attached;
	int r = gm_attach(pid, &attached);

	if (r)
		return r;
	r = add(top, pid, &attached);
	close(attached.fd);
	return r;
}

static void add_new(void *arg, int64_t pid, const struct gm_attached *attached)
{
	struct gm_top *top = arg;

	if (find(top, pid))
		return;
	if (add(top, pid, attached))
		top->missed++;
	else
		top->list[top->count - 1]->found = true;
}

/* Add new processes, and remove those that have ended. */
static void find_processes(struct gm_top *top)
{
	double now = gm_show_now();

	for (size_t i = top->count; i--;)
		if (top->list[i]->state == GM_TOP_ENDED) {
			gm_top_close(top->list[i]);
			memmove(&top->list[i], &top->list[i + 1],
				(--top->count - i) * sizeof(struct gm_top_process *));
		}
	if (top->searched > 0 && now - top->searched < SEARCH_SECONDS)
		return;
	top->searched = now;
	top->missed = 0;
	top->missed += gm_discover(add_new, top);
}

static void add_up(struct gm_top_rows *sum, const struct gm_top_rows *of)
{
	for (size_t i = 0; i < of->count; i++) {
		const struct gm_top_row *from = &of->list[i];
		struct gm_top_row *to = gm_top_row(sum, from->name);

		if (!to)
			return;
		to->live = gm_wrap_add(to->live, from->live);
		to->blocks = gm_wrap_add(to->blocks, from->blocks);
		to->growth = gm_wrap_add(to->growth, from->growth);
		to->calls_rate += from->calls_rate;
		to->bytes_rate += from->bytes_rate;
		to->stacks += from->stacks;
		if (from->peak >= 0)
			to->peak = gm_wrap_add(to->peak < 0 ? 0 : to->peak, from->peak);
		if (from->allocations >= 0) {
			to->allocations = gm_wrap_add(to->allocations < 0 ? 0 : to->allocations,
						      from->allocations);
			to->allocated = gm_wrap_add(to->allocated < 0 ? 0 : to->allocated, from->allocated);
		}
		if (from->stack_live > to->stack_live) {
			to->stack_live = from->stack_live;
			to->stack = from->stack;
		}
	}
}

static int by_pid(const void *a, const void *b)
{
	const struct gm_top_process *p = *(struct gm_top_process *const *)a;
	const struct gm_top_process *q = *(struct gm_top_process *const *)b;

	return p->pid < q->pid ? -1 : p->pid > q->pid;
}

int gm_top_refresh(struct gm_top *top)
{
	int running = 0;

	if (top->all)
		find_processes(top);
	if (top->count)
		qsort(top->list, top->count, sizeof(*top->list), by_pid);
	gm_top_rows_free(&top->modules);
	gm_top_rows_free(&top->sites);
	for (size_t i = 0; i < top->count; i++) {
		struct gm_top_process *process = top->list[i];

		if (process->state == GM_TOP_ENDED || gm_top_sample(process))
			continue;
		running++;
		add_up(&top->modules, &process->modules);
		add_up(&top->sites, &process->sites);
	}
	return running;
}

void gm_top_free(struct gm_top *top)
{
	for (size_t i = 0; i < top->count; i++)
		gm_top_close(top->list[i]);
	free(top->list);
	gm_top_rows_free(&top->modules);
	gm_top_rows_free(&top->sites);
	memset(top, 0, sizeof(*top));
}

/* ---- order ----------------------------------------------------------------------------------- */

static enum gm_top_key order;

const char *const gm_top_key_names[GM_TOP_KEYS] = { "live", "peak", "rate", "growth", "blocks", "name" };

static double worth(const struct gm_top_row *row)
{
	switch (order) {
	case GM_TOP_BY_PEAK: return row->peak < 0 ? (double)row->live : (double)row->peak;
	case GM_TOP_BY_RATE: return row->bytes_rate;
	case GM_TOP_BY_GROWTH: return (double)row->growth;
	case GM_TOP_BY_BLOCKS: return (double)row->blocks;
	default: return (double)row->live;
	}
}

static int compare(const void *a, const void *b)
{
	const struct gm_top_row *p = *(const struct gm_top_row *const *)a;
	const struct gm_top_row *q = *(const struct gm_top_row *const *)b;
	double x = worth(p), y = worth(q);

	if (order != GM_TOP_BY_NAME && x != y)
		return x < y ? 1 : -1;
	return strcmp(p->name, q->name);
}

const struct gm_top_row **gm_top_sorted(const struct gm_top_rows *rows, enum gm_top_key key)
{
	const struct gm_top_row **list = calloc(rows->count + 1, sizeof(*list));

	order = key;
	for (size_t i = 0; list && i < rows->count; i++)
		list[i] = &rows->list[i];
	if (list && rows->count)
		qsort(list, rows->count, sizeof(*list), compare);
	return list;
}
