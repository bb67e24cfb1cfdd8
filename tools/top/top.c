/*
 * top.c - gpumem top PID...|all: show what living processes hold, on a terminal or in reports.
 */
#define _GNU_SOURCE
#include "tools/top/top.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/read/attach.h"
#include "tools/read/level.h"
#include "tools/verbs/arguments.h"
#include "tools/show/show.h"
#include "tools/symbols/symbols.h"

#define FIRST_SECONDS 0.25		/* seconds over which the first rates are measured */

struct ask { double delay; size_t reports, most; bool json, batch; };	/* @reports: SIZE_MAX for reports without end */

static void sleep_for(double seconds)
{
	struct timespec pause = { (time_t)seconds, (long)((seconds - floor(seconds)) * 1e9) };

	while (nanosleep(&pause, &pause) && errno == EINTR)
		;
}

/* ---- reports --------------------------------------------------------------------------------- */

static int report(struct gm_top *top, const struct ask *ask)
{
	int running = gm_top_refresh(top), status = GM_EXIT_OK;

	for (size_t i = 0; i < ask->reports; i++) {
		sleep_for(i ? ask->delay : ask->delay < FIRST_SECONDS ? ask->delay : FIRST_SECONDS);
		running = gm_top_refresh(top);
		if (ask->json)
			gm_top_json(stdout, top);
		else
			gm_top_text(stdout, top, ask->most);
		if (!ask->json && i + 1 < ask->reports)
			putchar('\n');
		if (fflush(stdout) || ferror(stdout) || (!running && !top->all))
			break;
	}
	for (size_t i = 0; i < top->count; i++)
		if (top->list[i]->state == GM_TOP_UNREADABLE) {
			fprintf(stderr, "gpumem top: %lld: %s\n", (long long)top->list[i]->pid,
				gm_show_clean(top->list[i]->error));
			status = top->list[i]->found ? status : GM_EXIT_INPUT;
		}
	return gm_show_finish("top", status);
}

/* ---- on a terminal --------------------------------------------------------------------------- */

struct shot { pid_t child; int fd; char said[4096]; size_t length; };

/* Run `gpumem snapshot PID` in a child process, because it may wait for minutes. */
static void shoot(struct shot *shot, int64_t pid, struct gm_top_view *view)
{
	char word[24];
	int ends[2];

	if (shot->child > 0 || pipe2(ends, O_CLOEXEC))
		return;
	snprintf(word, sizeof(word), "%lld", (long long)pid);
	snprintf(view->message, sizeof(view->message), "asking process %lld for a snapshot ...",
		 (long long)pid);
	fflush(NULL);
	shot->child = fork();
	if (!shot->child) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execl("/proc/self/exe", "gpumem", "snapshot", word, (char *)NULL);
		_exit(GM_EXIT_FAILED);
	}
	close(ends[1]);
	shot->fd = ends[0];
	shot->length = 0;
	fcntl(shot->fd, F_SETFL, O_NONBLOCK);
}

static void hear(struct shot *shot, struct gm_top_view *view)
{
	ssize_t n;
	char *path;

	if (shot->child <= 0)
		return;
	n = read(shot->fd, shot->said + shot->length, sizeof(shot->said) - 1 - shot->length);
	if (n > 0)
		shot->length += (size_t)n;
	if (n < 0 || (n > 0 && shot->length + 1 < sizeof(shot->said)))
		return;
	shot->said[shot->length] = '\0';
	path = shot->said[0] == '/' ? shot->said : strstr(shot->said, "\n/");
	path = path ? path + (*path == '\n') : shot->said;
	path[strcspn(path, "\n")] = '\0';
	snprintf(view->message, sizeof(view->message), "%.250s",
		 path[0] ? path : "no snapshot was made");
	close(shot->fd);
	waitpid(shot->child, NULL, 0);
	shot->child = 0;
}

/* Show all processes again if the only one that is shown has left the list. */
static void check_choice(const struct gm_top *top, struct gm_top_view *view)
{
	for (size_t i = 0; i < top->count; i++)
		if (top->list[i] == view->only)
			return;
	view->only = NULL;
}

static void draw(struct gm_top *top, struct gm_top_view *view)
{
	int rows, columns;

	gm_terminal_size(&rows, &columns);
	gm_top_draw(stdout, top, view, rows, columns);
}

static int live(struct gm_top *top, const struct ask *ask)
{
	struct gm_top_view view = { .delay = ask->delay, .phases = top->phases, .panel = GM_TOP_SITES,
				    .color = gm_show_in_color(stdout) };
	struct shot shot = { .child = 0 };
	double next = 0;
	size_t pictures = 0;
	int r;

	gm_top_refresh(top);			/* notes about lines appear before the first picture, and none later */
	gm_names_hush();
	r = gm_terminal_take();

	if (r) {
		fprintf(stderr, "gpumem top: the terminal: %s\n", strerror(-r));
		return GM_EXIT_FAILED;
	}
	for (;;) {
		double now = gm_show_now();
		const char *key;
		int64_t pid = 0;

		if (now >= next) {
			if (pictures > ask->reports)
				break;
			if (!view.paused) {
				gm_top_refresh(top);
				check_choice(top, &view);
				pictures++;
			}
			next = now +
			       (pictures == 1 && view.delay > FIRST_SECONDS ? FIRST_SECONDS : view.delay);
			draw(top, &view);
		}
		key = gm_terminal_key(next > now ? next - now : 0);
		if (key && !gm_top_press(key, top, &view, &pid))
			break;
		if (pid)
			shoot(&shot, pid, &view);
		hear(&shot, &view);
		if (key)
			draw(top, &view);
	}
	gm_terminal_restore();
	if (shot.child > 0)
		waitpid(shot.child, NULL, 0);
	return GM_EXIT_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int add_words(struct gm_top *top, char **words, int count)
{
	for (int i = 0; i < count; i++) {
		char *end;
		long pid = strtol(words[i], &end, 10);
		int r;

		if (!strcmp(words[i], "all")) {
			top->all = true;
			continue;
		}
		if (*end || pid <= 0) {
			gm_input_bad("top", words[i], "not a process id or 'all'");
			return GM_EXIT_USAGE;
		}
		r = gm_top_add(top, pid);
		if (r) {
			fprintf(stderr, "gpumem top: %ld: %s\n", pid, gm_attach_explain(pid, r));
			return GM_EXIT_INPUT;
		}
	}
	return 0;
}

/* Raise the limit of descriptors to its maximum, because one stays open for each process. */
static void raise_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

int gm_verb_top(int argc, char **argv)
{
	struct ask ask = { .reports = SIZE_MAX, .most = 20 };
	struct gm_top top = { .count = 0 };
	const char *delay = NULL;
	int by = 0, level = GM_LEVEL_POOL;
	bool once = false;
	const struct gm_argument arguments[] = {
		{ "by", GM_ARG_WORD, &by }, { "level", GM_ARG_WORD, &level },
		{ "delay", GM_ARG_TEXT, &delay }, { "count", GM_ARG_COUNT, &ask.reports },
		{ "rows", GM_ARG_COUNT, &ask.most }, { "once", GM_ARG_FLAG, &once },
		{ "batch", GM_ARG_FLAG, &ask.batch }, { "json", GM_ARG_FLAG, &ask.json }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 1, INT_MAX);

	if (status >= 0)
		return status;
	if (delay && gm_units_seconds(delay, 0.05, 86400, &ask.delay))
		return gm_argument_wrong("top", "delay", delay, "not seconds, 0.05 to 86400");
	if (!ask.reports)
		return gm_argument_wrong("top", "count", "0", "not a number of reports");
	ask.reports = once ? 1 : ask.reports;
	ask.batch |= once || ask.json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO);
	if (!delay)
		ask.delay = ask.batch ? 1 : 0.25;
	top.phases = by == 1;
	top.driver = level == GM_LEVEL_DRIVER;
	raise_limit();
	status = add_words(&top, argv + optind, argc - optind);
	if (!status)
		status = ask.batch ? report(&top, &ask) : live(&top, &ask);
	gm_top_free(&top);
	return status;
}
