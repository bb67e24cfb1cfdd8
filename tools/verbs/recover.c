/*
 * recover.c - gpumem recover [PID|FILE|DIR...]: snapshots from the journals of dead processes.
 *
 * Without an argument it lists the journals in every place where the library puts journals by itself; --all recovers
 * them. The journal of a living process is never changed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/modules/names.h"
#include "tools/verbs/arguments.h"
#include "tools/read/attach.h"
#include "tools/read/places.h"
#include "tools/verbs/recover.h"
#include "tools/show/show.h"

struct report {
	json_t *list;			/* NULL: text */
	bool only_listed;		/* no argument and no --all: only list the journals */
	bool by_name;			/* the argument is the journal's own path */
	unsigned int seen, recovered, alive, failed;
};

static const char *device_name(unsigned int domain)
{
	static char text[32];

	snprintf(text, sizeof(text), domain < GM_MAX_DEVICES ? "device %u" : "the host", domain);
	return text;
}

static void print_flights(const struct gm_recovered *one)
{
	for (unsigned int i = 0; i < one->in_flight; i++) {
		const struct gm_flight *flight = &one->flights[i];
		struct gm_show_op op = {
			.thread = flight->tid, .size = (int64_t)flight->size,
			.address = flight->address, .action = gm_action_name(flight->action),
			.kind = gm_kind_name(flight->kind), .device = device_name(flight->domain),
			.took_effect = flight->done,
		};

		gm_show_op(stdout, &op);
	}
}

static void print_failure(const struct gm_failure *failure)
{
	char entry[sizeof(failure->entry) + 1] = "";

	memcpy(entry, failure->entry, sizeof(failure->entry));
	printf("  out of memory: %s of %s asked for %s, which no other snapshot shows\n",
	       gm_show_clean(entry), device_name(failure->domain),
	       gm_show_bytes((int64_t)failure->requested_bytes));
}

static void print_death(const struct gm_recovered *one, const char *command)
{
	printf("%s (pid %lld) %s%s with %s live in %s, peak %s\n", command, (long long)one->pid,
	       !one->signal ? "died" : gm_signal_is_wish(one->signal) ? "ended by " : "died of ",
	       one->signal ? one->signal : "", gm_show_bytes((int64_t)one->live_bytes),
	       gm_show_count((int64_t)one->live_blocks, "block"), gm_show_bytes((int64_t)one->peak_bytes));
	if (one->refused)
		printf("  incomplete: %s found no room in the journal\n",
		       gm_show_count((int64_t)one->refused, "record"));
}

static void print_one(const struct report *report, const struct gm_recovered *one)
{
	const char *command = gm_show_clean(one->command);

	if (one->error[0]) {
		gm_input_bad("recover", one->journal, one->error);
	} else if (one->alive) {
		fprintf(report->by_name ? stderr : stdout,
			"%s (pid %lld) lives: its journal is left "
			"alone; `gpumem snapshot %lld` asks it for a snapshot\n",
			command, (long long)one->pid, (long long)one->pid);
	} else if (one->clean) {
		printf("%s (pid %lld) ended by itself: %s\n", command, (long long)one->pid,
		       one->snapshot[0] ? gm_show_clean(one->snapshot) : "no snapshot");
	} else if (one->unused) {
		printf("%s (pid %lld) never allocated: no snapshot\n", command,
		       (long long)one->pid);
	} else if (report->only_listed) {
		print_death(one, command);
		printf("  %s\n", gm_show_path(one->journal));
	} else {
		print_death(one, command);
		print_flights(one);
		if (one->failure)
			print_failure(one->failure);
		printf("  %s%s\n", gm_show_path(one->snapshot), !one->written ? "" :
		       one->signal && gm_signal_is_wish(one->signal) ? ", written when it ended" :
		       ", written when it crashed");
	}
}

/* Return @text as JSON; null if it is "" or not UTF-8, which paths and names need not be. */
static json_t *text_or_null(const char *text)
{
	json_t *value = text[0] ? json_string(text) : NULL;

	return value ? value : json_null();
}

static json_t *object_of(const struct gm_recovered *one)
{
	json_t *flights = json_array(), *object;

	for (unsigned int i = 0; i < one->in_flight; i++) {
		const struct gm_flight *flight = &one->flights[i];

		json_array_append_new(flights, json_pack("{sI ss ss si sI sI sb}",
			"thread", (json_int_t)flight->tid, "action", gm_action_name(flight->action),
			"kind", gm_kind_name(flight->kind), "device",
			flight->domain < GM_MAX_DEVICES ? flight->domain : -1,
			"addr", (json_int_t)flight->address, "size", (json_int_t)flight->size,
			"took_effect", flight->done));
	}
	object = json_pack("{sb sb sb sb sb sI sI sI sI sI so}", "alive", one->alive, "clean",
			   one->clean, "unused", one->unused, "written", one->written, "removed", one->removed, "pid",
			   (json_int_t)one->pid, "live_bytes", (json_int_t)one->live_bytes,
			   "peak_bytes", (json_int_t)one->peak_bytes, "live_blocks",
			   (json_int_t)one->live_blocks, "refused", (json_int_t)one->refused,
			   "in_flight", flights);
	json_object_set_new(object, "command", text_or_null(one->command));
	json_object_set_new(object, "signal", text_or_null(one->signal ? one->signal : ""));
	json_object_set_new(object, "journal", text_or_null(one->journal));
	json_object_set_new(object, "snapshot", text_or_null(one->snapshot));
	json_object_set_new(object, "error", text_or_null(one->error));
	json_object_set_new(object, "failure", one->failure ?
			    json_integer((json_int_t)one->failure->number) : json_null());
	return object;
}

static void take(void *arg, const struct gm_recovered *one)
{
	struct report *report = arg;

	report->seen++;
	report->recovered += one->snapshot[0] != '\0';
	report->alive += one->alive;
	report->failed += one->error[0] != '\0';
	if (report->list)
		json_array_append_new(report->list, object_of(one));
	else
		print_one(report, one);
}

/* Remove the links to snapshots that gpumem run would have read, except beside a journal that is still there. Remove
 * the directory if it is empty. */
static void clean_links(const struct gm_place_visit *place)
{
	struct dirent **entries = NULL;
	int count = scandirat(place->fd, ".", &entries, NULL, NULL);

	for (int i = 0; i < count; i++) {
		char *name = entries[i]->d_name, *end = strstr(name, ".journal.");
		struct stat st;

		if (end) {
			end[8] = '\0';
			if (fstatat(place->fd, name, &st, AT_SYMLINK_NOFOLLOW) && errno == ENOENT) {
				end[8] = '.';
				unlinkat(place->fd, name, 0);
			}
		}
		free(entries[i]);
	}
	free(entries);
	unlinkat(place->parent, place->name, AT_REMOVEDIR);
}

#define ROOM_SECONDS 2		/* younger rooms stay: an older gpumem run named them before it locked them */

/* Recover the journals in a room that a gpumem run made in @base, if that gpumem run died before it could clear up. */
static void recover_room(int base, const char *path, const char *name,
			 const struct gm_recover_for *of)
{
	int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	char *room;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)) &&
	    time(NULL) - st.st_ctime >= ROOM_SECONDS && !flock(fd, LOCK_EX | LOCK_NB) &&
	    asprintf(&room, "%s/%s", path, name) >= 0) {
		gm_recover_below(fd, room, false, of);
		if (!of->list) {
			gm_places_below(fd, room, false, clean_links, NULL);
			unlinkat(base, name, AT_REMOVEDIR);
		}
		free(room);
	}
	close(fd);
}

static void recover_rooms(int base, const char *path, const struct gm_recover_for *of)
{
	struct dirent **entries = NULL;
	int count = scandirat(base, ".", &entries, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		if (!strncmp(entries[i]->d_name, GM_RUN_ROOM, strlen(GM_RUN_ROOM)))
			recover_room(base, path, entries[i]->d_name, of);
		free(entries[i]);
	}
	free(entries);
}

/* Recover the journals in the places where the library and gpumem run put journals by themselves. */
static void recover_places(const struct gm_recover_for *of)
{
	const char *roots[GM_PLACES];
	size_t count = gm_places_roots(roots);

	for (size_t i = 0; i < count; i++) {
		struct gm_recovered one;
		int fd = gm_places_open(roots[i], O_RDONLY);

		if (fd == -ENOTDIR) {		/* GPUMEM_JOURNAL may name a file */
			gm_recover_file(roots[i], of, &one);
			if (!of->pid || one.pid == of->pid)
				of->each(of->arg, &one);
		}
		if (fd < 0)
			continue;
		gm_recover_below(fd, roots[i], false, of);
		recover_rooms(fd, roots[i], of);
		close(fd);
	}
}

/* Say that no journal of @pid was found. A running process may have one in a place that is not searched. */
static int say_missing(int64_t pid)
{
	struct gm_attached attached;

	if (gm_attach(pid, &attached)) {
		fprintf(stderr, "gpumem recover: no journal of a process %lld was found\n", (long long)pid);
		return GM_EXIT_INPUT;
	}
	close(attached.fd);
	fprintf(stderr, "gpumem recover: process %lld still runs: its journal is left alone; `gpumem snapshot %lld` "
		"asks it for a snapshot\n", (long long)pid, (long long)pid);
	return GM_EXIT_INPUT;
}

static int recover_word(const char *word, struct gm_recover_for *of)
{
	struct report *report = of->arg;
	unsigned int before = report->seen;
	struct gm_recovered one;
	int fd = gm_places_open(word, O_RDONLY), r = fd;
	char *end;

	if (fd >= 0) {
		r = gm_recover_in(fd, word, of);
		if (r >= 0)
			r = gm_recover_below(fd, word, true, of);
		recover_rooms(fd, word, of);
		close(fd);
	}
	if (fd >= 0 || (r != -ENOTDIR && r != -ENOENT && r != -ELOOP)) {
		if (r < 0)
			fprintf(stderr, "gpumem recover: %s: %s\n", gm_show_clean(word), strerror(-r));
		else if (report->seen == before && !report->list)
			printf("no journal in %s\n", gm_show_clean(word));
		return r < 0 ? GM_EXIT_INPUT : GM_EXIT_OK;
	}
	if (r == -ENOENT && strtol(word, &end, 10) > 0 && !*end) {
		of->pid = strtol(word, NULL, 10);
		recover_places(of);
		of->pid = 0;
		if (report->seen != before)
			return GM_EXIT_OK;
		return say_missing(strtol(word, NULL, 10));
	}
	report->by_name = true;
	gm_recover_file(word, of, &one);
	take(report, &one);
	report->by_name = false;
	return one.alive ? GM_EXIT_FAILED : GM_EXIT_OK;
}

/* Without arguments: list the journals in the usual places or, with @all, recover them. */
static void recover_unnamed(struct gm_recover_for *of, bool all)
{
	struct report *report = of->arg;

	of->list = report->only_listed = !all;
	recover_places(of);
	if (report->list)
		return;
	if (!report->seen)
		puts("no journal of a dead process was found");
	else if (!all && report->seen > report->alive)
		gm_show_line(stdout, " ", "(gpumem recover PID, FILE or DIR makes a snapshot of what you name, --all "
			     "of each, in place of the journal)");
}

int gm_verb_recover(int argc, char **argv)
{
	struct report report = { 0 };
	struct gm_recover_for of = { .each = take, .arg = &report };
	bool json = false, all = false;
	const struct gm_argument arguments[] = {
		{ "all", GM_ARG_FLAG, &all }, { "keep", GM_ARG_FLAG, &of.keep }, { "json", GM_ARG_FLAG, &json },
		{ "output", GM_ARG_TEXT, &of.output }, { "force", GM_ARG_FLAG, &of.force },
		{ NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 0, INT_MAX);

	if (status >= 0)
		return status;
	status = gm_template_check("recover", of.output ? of.output : getenv("GPUMEM_OUTPUT"));
	if (status)
		return status;
	if (all && optind < argc) {
		fputs("gpumem recover: --all is for every journal: it takes no names\n", stderr);
		return gm_usage_wrong("recover");
	}
	status = GM_EXIT_OK;
	if (json)
		report.list = json_array();
	for (int i = optind; i < argc; i++) {
		int s = recover_word(argv[i], &of);

		status = s > status ? s : status;
	}
	if (optind == argc)
		recover_unnamed(&of, all);
	if (json)
		gm_show_document(stdout, report.list, 2);
	if (report.failed && !report.only_listed)
		status = GM_EXIT_INPUT;
	return gm_show_finish("recover", status);
}
