/*
 * run_table.c - what became of the processes of one gpumem run: see run_table.h.
 */
#define _GNU_SOURCE
#include "tools/verbs/run_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/modules/names.h"
#include "tools/read/level.h"
#include "tools/read/load.h"
#include "tools/read/places.h"
#include "tools/read/table.h"
#include "tools/verbs/arguments.h"
#include "tools/verbs/recover.h"
#include "tools/show/groups.h"
#include "tools/show/show.h"

#define READ_MOST 512u			/* snapshots that are opened for their numbers */

/* ---- the processes --------------------------------------------------------------------------- */

/* Return the process whose journal is called @name (@length bytes), a new one for a new name; NULL: out of memory. */
static struct gm_run_process *process_of(struct gm_run_table *table, const char *name,
					 size_t length)
{
	struct gm_run_process *process;

	for (size_t i = 0; i < table->count; i++)
		if (strlen(table->list[i].journal) == length &&
		    !memcmp(table->list[i].journal, name, length))
			return &table->list[i];
	process = gm_list_add(&table->list, &table->count, sizeof(*process));
	if (!process)
		return NULL;
	*process = (struct gm_run_process){ .journal = strndup(name, length), .rank = -1 };
	if (process->journal)
		return process;
	table->count--;
	return NULL;
}

/* Take @snapshot as the snapshot of @process if it is worth more than the present one. Count the other one. */
static void consider(struct gm_run_process *process, const char *snapshot, unsigned int worth)
{
	if (process->snapshot && process->worth >= worth) {
		process->others++;
		return;
	}
	process->others += process->snapshot != NULL;
	free(process->snapshot);
	process->snapshot = strdup(snapshot);
	process->worth = worth;
}

static void add_recovered(void *arg, const struct gm_recovered *one)
{
	struct gm_run_table *table = arg;
	const char *name = basename(one->journal);
	struct gm_run_process *process;

	if (one->unused || (one->clean && !one->snapshot[0]))
		return;
	process = process_of(table, name, strlen(name));
	if (!process)
		return;
	if (one->clean) {		/* had become another user at its end, and could leave no link */
		consider(process, one->snapshot, 3);
		return;
	}
	process->pid = one->pid;
	process->rank = one->rank;
	process->alive = one->alive;
	process->dead = !one->alive;
	process->in_flight = one->in_flight;
	snprintf(process->command, sizeof(process->command), "%s", one->command);
	snprintf(process->how, sizeof(process->how), "%s", one->signal ? one->signal : "killed");
	if (one->alive || one->error[0])
		free(process->note);
	if (one->alive &&
	    asprintf(&process->note, "still running: its journal stays at %s", one->journal) < 0)
		process->note = NULL;
	else if (one->error[0] && asprintf(&process->note, "%s: %s", one->journal, one->error) < 0)
		process->note = NULL;
	if (one->snapshot[0])
		consider(process, one->snapshot, 4);
	if (one->snapshot[0] && one->failure) {		/* newer than all failures that have a snapshot */
		process->at_oom = strdup(one->snapshot);
		process->oom_number = UINT64_MAX;
	}
	if (!one->alive && !one->error[0]) {
		process->peak = (int64_t)one->peak_bytes;
		process->live = (int64_t)one->live_bytes;
		process->blocks = (int64_t)one->live_blocks;
		process->known = true;
	}
}

/* Read and remove a link NAME.journal.REASON[-N] to a snapshot that the process wrote. */
static void add_link(struct gm_run_table *table, int directory, const char *name)
{
	const char *reason = strstr(name, ".journal.");
	struct gm_run_process *process;
	char target[PATH_MAX];
	struct stat st;
	uint64_t number;
	ssize_t n;

	if (!reason)
		return;
	n = readlinkat(directory, name, target, sizeof(target) - 1);
	if (n <= 0)
		return;
	target[n] = '\0';
	unlinkat(directory, name, 0);
	if (stat(target, &st) || !S_ISREG(st.st_mode))
		return;			/* the snapshot was replaced or removed */
	process = process_of(table, name, (size_t)(reason + 8 - name));
	reason += 9;
	number = strncmp(reason, "oom-", 4) ? 0 : strtoul(reason + 4, NULL, 10);
	if (process && number > process->oom_number) {
		free(process->at_oom);
		process->at_oom = strdup(target);
		process->oom_number = number;
	}
	if (process)
		consider(process, target,
			 !strncmp(reason, "exit", 4)  ? 3
			 : !strncmp(reason, "oom", 3) ? 2
						      : 1);
}

/* Read the numbers of a process from its snapshot. */
static void read_snapshot(struct gm_run_process *process)
{
	struct gm_loaded loaded;
	struct gm_totals all;
	struct gm_scene scene;
	const json_t *of;

	if (gm_load(process->snapshot, GM_LOAD_WHOLE, &loaded))
		return;
	of = gm_json_object(loaded.snapshot.root, "process");
	process->pid = gm_json_number(of, "pid");
	process->rank = json_is_integer(json_object_get(of, "rank")) ? gm_json_number(of, "rank")
								     : -1;
	snprintf(process->command, sizeof(process->command), "%s", gm_json_text(of, "command"));
	all = gm_show_totals(loaded.snapshot.root, NULL);
	if (!gm_level_apply(&loaded.snapshot, GM_LEVEL_POOL) && !gm_scene_open(&scene, &loaded.snapshot)) {
		all = gm_scene_totals(&scene, NULL, true);
		gm_scene_close(&scene);
	}
	process->ooms = all.ooms;
	process->peak = all.peak;
	process->live = all.live;
	process->blocks = all.blocks;
	process->known = true;
	gm_load_free(&loaded);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
	const struct gm_run_process *p = a, *q = b;
	uint64_t x = (uint64_t)p->rank, y = (uint64_t)q->rank;	/* no rank: last */

	if (x != y)
		return x < y ? -1 : 1;
	return p->pid < q->pid ? -1 : p->pid > q->pid;
}

static void add_links(const struct gm_place_visit *place)
{
	struct dirent **entries = NULL;
	int count = scandirat(place->fd, ".", &entries, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		add_link(place->arg, place->fd, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	/* This fails if the journal of a living child is still there. */
	unlinkat(place->parent, place->name, AT_REMOVEDIR);
}

/* A directory below the room means that a process has begun: the first hooked call makes it with the journal. */
static void see_beginning(const struct gm_place_visit *place)
{
	((struct gm_run_table *)place->arg)->began = true;
}

void gm_run_collect(struct gm_run_table *table, int room, const char *path)
{
	const struct gm_recover_for of = { .each = add_recovered, .arg = table };

	table->looked = true;
	gm_places_below(room, path, true, see_beginning, table);
	gm_recover_in(room, path, &of);
	gm_recover_below(room, path, false, &of);
	gm_places_below(room, path, false, add_links, table);
	rmdir(path);			/* fails unless it is empty */
	for (size_t i = 0; i < table->count && i < READ_MOST; i++) {
		struct gm_run_process *process = &table->list[i];

		gm_progress("gpumem run: snapshots read", i, table->count);
		if (process->snapshot)
			read_snapshot(process);
		if (process->pid == table->child && WIFSIGNALED(table->status) &&
		    WTERMSIG(table->status) <= SIGSYS)
			snprintf(process->how, sizeof(process->how), "%s",
				 gm_signal_name(WTERMSIG(table->status)));
	}
	gm_progress_end();
	if (table->count)
		qsort(table->list, table->count, sizeof(*table->list), by_rank);
}

void gm_run_forget(struct gm_run_table *table)
{
	for (size_t i = 0; i < table->count; i++) {
		free(table->list[i].journal);
		free(table->list[i].snapshot);
		free(table->list[i].note);
		free(table->list[i].at_oom);
	}
	free(table->list);
	*table = (struct gm_run_table){ .count = 0 };
}

/* ---- what is said ---------------------------------------------------------------------------- */

void gm_run_say(const char *line)
{
	gm_show_wrapped(stderr, line, 0, "gpumem:   ", gm_show_columns(stderr));
}

/* Say @what and the command for it. A command without room beside @what gets a line of its own and is not broken,
 * because people copy it. */
static void say_command(const char *what, const char *command)
{
	fprintf(stderr, "gpumem: %s:%s%s\n", what,
		strlen("gpumem: : ") + strlen(what) + strlen(command) > gm_show_columns(stderr) ? "\n" : " ", command);
}

/* Return @path relative to the working directory if stderr is a terminal and @path is below that directory. Else return
 * @path, because a log is read elsewhere. */
static const char *from_here(const char *path)
{
	static char here[PATH_MAX];
	size_t length = isatty(STDERR_FILENO) && getcwd(here, sizeof(here)) ? strlen(here) : 0;

	return length > 1 && !strncmp(path, here, length) && path[length] == '/' && path[length + 1] != '-' ?
	       path + length + 1 : path;
}

/* Return the process to look at next, and the verb for it: one that ran out of memory, else one that died, else the one
 * that leaked most. NULL: no process has a snapshot. */
static const struct gm_run_process *most_interesting(const struct gm_run_table *table,
						     const char **ret_verb)
{
	const struct gm_run_process *best = NULL;
	unsigned int most = 0;

	for (size_t i = 0; i < table->count; i++) {
		const struct gm_run_process *process = &table->list[i];
		unsigned int weight = process->ooms	? 4
				      : process->dead	? 3
				      : process->live	? 2
							: 1;

		if (process->snapshot &&
		    (weight > most || (weight == 2 && most == 2 && process->live > best->live))) {
			most = weight;
			best = process;
		}
	}
	*ret_verb = most == 2 ? "leaks" : "summary";
	return best;
}

static void print_next(const struct gm_run_table *table)
{
	const char *verb;
	const struct gm_run_process *one = most_interesting(table, &verb);
	size_t ranks = 0, length = 0;
	char *command;
	FILE *out;

	if (!one)
		return;
	out = open_memstream(&command, &length);
	if (!out)
		return;
	fprintf(out, "gpumem %s ", verb);
	gm_put_input(out, from_here(one->ooms && one->at_oom ? one->at_oom : one->snapshot));
	if (!fclose(out))
		say_command("look at it with", command);
	free(command);
	length = 0;
	for (size_t i = 0; i < table->count; i++)
		if (table->list[i].snapshot && table->list[i].rank >= 0) {
			ranks++;
			length += strlen(table->list[i].snapshot);
		}
	if (ranks < 2 || length > 2000)
		return;
	out = open_memstream(&command, &length);
	if (!out)
		return;
	fputs("gpumem merge", out);
	for (size_t i = 0; i < table->count; i++)
		if (table->list[i].snapshot && table->list[i].rank >= 0) {
			putc(' ', out);
			gm_put_input(out, from_here(table->list[i].snapshot));
		}
	if (!fclose(out))
		say_command("the ranks side by side", command);
	free(command);
}

static void describe(FILE *out, const struct gm_run_process *process)
{
	if (process->note) {
		fprintf(out, "gpumem: process %lld (%s): %s", (long long)process->pid,
			gm_show_clean(process->command), gm_show_clean(process->note));
		return;
	}
	fprintf(out, "gpumem: process %lld (%s) %s%s%s: peak %s, ",
		(long long)process->pid, gm_show_clean(process->command),
		process->dead && !gm_signal_is_wish(process->how) ? "died" : "ended",
		!process->dead || !strcmp(process->how, "killed") ? "" :
		gm_signal_is_wish(process->how) ? " by " : " of ",
		process->dead && strcmp(process->how, "killed") ? process->how : "",
		gm_show_bytes(process->peak));
	if (process->blocks)
		fprintf(out, "%s in %s %s", gm_show_bytes(process->live), gm_show_count(process->blocks, "block"),
			process->dead ? "live" : "never freed");
	else
		fputs(process->peak ? "every block was freed" : "nothing was allocated", out);
	if (process->dead)
		fprintf(out, ", %u in flight", process->in_flight);
	if (process->ooms)
		fprintf(out, ", out of memory %s", gm_show_count(process->ooms, "time"));
	fprintf(out, ": %s",
		process->snapshot ? gm_show_clean(from_here(process->snapshot)) : "no snapshot");
}

static void print_one(const struct gm_run_process *process)
{
	char *line = NULL;
	size_t length;
	FILE *out = open_memstream(&line, &length);

	if (!out)
		return;
	describe(out, process);
	if (!fclose(out))
		gm_run_say(line);
	free(line);
}

static void print_row(const struct gm_run_process *process)
{
	char rank[24] = "-";

	if (process->rank >= 0)
		snprintf(rank, sizeof(rank), "%lld", (long long)process->rank);
	fprintf(stderr, "gpumem: %4s %7lld %-13.13s %-8s ", rank, (long long)process->pid,
		gm_show_clean(process->command),
		process->alive	? "runs"
		: process->dead ? process->how
				: "exit");
	if (process->known)
		fprintf(stderr, "%11s %11s %6lld %4lld", gm_show_bytes(process->peak),
			gm_show_bytes(process->live), (long long)process->blocks, (long long)process->ooms);
	else
		fprintf(stderr, "%11s %11s %6s %4s", "?", "?", "?", "?");
}

/* Write the last column of @process: its note or its snapshot. Returns @to. */
static const char *where(const struct gm_run_process *process, char *to, size_t room)
{
	char more[48] = "";

	if (process->others)
		snprintf(more, sizeof(more), " (and %u more)", process->others);
	snprintf(to, room, "%s%s",
		 process->note	     ? gm_show_clean(process->note)
		 : process->snapshot ? gm_show_clean(from_here(process->snapshot))
				     : "no snapshot",
		 more);
	return to;
}

/* The numbers of a row have 79 columns. If the file names have no room beside them, each file name gets the next
 * line. */
static void print_table(const struct gm_run_table *table)
{
	size_t room = gm_show_columns(stderr);
	char text[2 * PATH_MAX];
	bool fits = true;

	for (size_t i = 0; i < table->count; i++)
		fits = fits && strlen(where(&table->list[i], text, sizeof(text))) + 81 <= room;
	fprintf(stderr, "gpumem: %4s %7s %-13s %-8s %11s %11s %6s %4s%s\n", "rank", "pid", "command", "end", "peak",
		"not freed", "blocks", "ooms", fits ? "  snapshot" : "");
	for (size_t i = 0; i < table->count; i++) {
		print_row(&table->list[i]);
		fprintf(stderr, "%s%s\n", fits ? "  " : "\ngpumem:        ",
			where(&table->list[i], text, sizeof(text)));
	}
}

void gm_run_print(const struct gm_run_table *table)
{
	if (table->count == 1)
		print_one(&table->list[0]);
	else if (table->count)
		print_table(table);
	print_next(table);
}
