/*
 * convert.c - gpumem convert --to FORMAT FILE|JOURNAL|PID: a snapshot in another format, and PyTorch's snapshots in
 * ours. Each format is in a file of tools/write/.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/verbs/arguments.h"
#include "tools/verbs/opened.h"
#include "tools/write/convert.h"
#include "tools/read/attach.h"
#include "tools/read/input.h"
#include "tools/read/table.h"
#include "tools/torch/torch.h"
#include "tools/write/output.h"
#include "tools/show/show.h"
#include "tools/symbols/symbols.h"

struct format {
	const char *name, *suffix;		/* a path with this suffix needs no --to; NULL: none */
	const char *endings;			/* of files in this format, with blanks between */
	gm_convert *write;
};

static const struct format formats[] = {	/* in the order of the words that --to takes */
	{ "pickle", ".pickle", ".pickle .pkl", gm_convert_pickle },
	{ "pytorch-json", NULL, ".json", gm_convert_torch_json },
	{ "chrome", NULL, ".json", gm_convert_chrome },
	{ "csv", ".csv", ".csv", gm_convert_csv },
	{ "rmm", NULL, ".csv .log", gm_convert_rmm },
	{ "speedscope", NULL, ".json", gm_convert_speedscope },
	{ "folded", ".folded", ".folded .txt", gm_convert_folded },
	{ "prometheus", ".prom", ".prom .txt", gm_convert_prometheus },
	{ "gpumem", NULL, ".json", gm_convert_snapshot },
};

struct job {
	const struct format *format;
	const char *input, *output, *textfile;
	double watch;
	struct gm_cut cut;
	int level;				/* enum gm_pool_level */
};

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
	(void)signal_number;
	stopped = 1;
}

/* Return the format whose suffix ends @path; NULL: none. */
static const struct format *format_of(const char *path)
{
	size_t length = path ? strlen(path) : 0;

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		size_t end = formats[i].suffix ? strlen(formats[i].suffix) : SIZE_MAX;

		if (end < length && !strcmp(path + length - end, formats[i].suffix))
			return &formats[i];
	}
	return NULL;
}

static int write_out(const struct job *job, struct gm_loaded *loaded, const char *path)
{
	struct gm_output output;
	char note[256] = "";
	/* Metrics contain no stacks, and a collector that runs as another user must read them. */
	int r = gm_output_open(&output, path, job->format->write == gm_convert_prometheus);

	if (r) {
		fprintf(stderr, "gpumem convert: %s: %s\n", gm_show_clean(path), strerror(-r));
		return GM_EXIT_FAILED;
	}
	r = gm_output_close(&output, job->format->write(output.file, loaded, note));
	if (note[0])
		gm_input_bad("convert", job->input, note);
	if (r == -EMSGSIZE)
		fprintf(stderr, "gpumem convert: %s: more than 8 GiB as JSON, which no viewer reads: use "
			"--to pickle\n", job->input);
	else if (r)
		fprintf(stderr, "gpumem convert: the output could not be written: %s\n", gm_limit_why(r));
	return r ? GM_EXIT_FAILED : GM_EXIT_OK;
}

/* Has the format one level, the one that --level names? Metrics and our own format have both levels, and PyTorch's
 * formats have pools in another way (place_pools). */
static bool has_one_level(const struct job *job)
{
	gm_convert *write = job->format->write;

	return write != gm_convert_prometheus && write != gm_convert_snapshot && write != gm_convert_pickle &&
	       write != gm_convert_torch_json;
}

/* Does the format show stacks, so that names are looked up? Our own format is a copy; metrics and RMM's log have no
 * stacks. */
static bool has_frames(const struct job *job)
{
	gm_convert *write = job->format->write;

	return write != gm_convert_prometheus && write != gm_convert_snapshot && write != gm_convert_rmm;
}

/* At the level of pools, put pools where PyTorch's snapshots have PyTorch's pool. Returns 0, or the exit status after a
 * message. */
static int place_pools(const struct job *job, struct gm_snapshot *snapshot)
{
	gm_convert *write = job->format->write;
	char note[256] = "";

	if (job->level != GM_LEVEL_POOL || (write != gm_convert_pickle && write != gm_convert_torch_json))
		return 0;
	if (gm_torch_pools(snapshot, note, sizeof(note)))
		return gm_input_bad("convert", job->input, gm_limit_why(-ENOMEM));
	if (note[0])
		gm_input_bad("convert", job->input, note);
	return 0;
}

static int convert(const struct job *job)
{
	gm_convert *write = job->format->write;
	/* From PyTorch to PyTorch, the document stays as it is; metrics need no events. */
	bool torch = write == gm_convert_pickle || write == gm_convert_torch_json;
	enum gm_load what = torch && !gm_cut_wanted(&job->cut) ? GM_LOAD_AS_SAID :
			    write == gm_convert_prometheus ? GM_LOAD_TABLES : GM_LOAD_WHOLE;
	struct gm_loaded loaded;
	int status, r = 0;

	if (write == gm_convert_pickle && isatty(STDOUT_FILENO) &&
	    (!job->output || !strcmp(job->output, "-"))) {
		fputs("gpumem convert: a pickle is not for a terminal: name a file with -o\n", stderr);
		return GM_EXIT_USAGE;
	}
	if (gm_load(job->input, what, &loaded))
		return gm_input_bad("convert", job->input, loaded.error);
	status = job->cut.device ? gm_device_check("convert", job->cut.device, job->input, loaded.snapshot.root) : 0;
	/* Apply the level before the cut, because it needs the whole history to know the pieces of pools. */
	if (!status && has_one_level(job))
		r = gm_level_apply(&loaded.snapshot, (enum gm_pool_level)job->level);
	if (!status && !r && has_frames(job) && !loaded.torch)
		r = gm_names_show("convert", &loaded.snapshot);
	if (!status && !r && gm_cut_wanted(&job->cut))
		r = gm_convert_cut(&loaded.snapshot, &job->cut);
	if (r)
		status = gm_input_bad("convert", job->input, gm_limit_why(r));
	if (!status)
		status = place_pools(job, &loaded.snapshot);
	if (!status)
		status = write_out(job, &loaded, job->output);
	gm_load_free(&loaded);
	return status;
}

/* ---- textfiles, once or repeatedly ------------------------------------------------------------ */

struct watched {
	char *input;
	pid_t pid;			/* if the input is a living process; else 0 */
	char path[4096];		/* the file of metrics; "": not written */
	bool over;			/* the process has ended */
};

struct watching {
	struct watched *list;
	size_t count;
	bool all;			/* also watch processes that start later */
	size_t missed;			/* processes that could not be looked into, in the last message */
	bool failed;			/* out of memory */
};

/* Name the file of metrics by the pid as seen from here: in another pid namespace the process has another number.
 * Returns an exit status. */
static int name_textfile(const struct job *job, struct watched *of, const struct gm_loaded *loaded)
{
	int64_t pid = of->pid ? of->pid :
		      gm_json_number(gm_json_object(loaded->snapshot.root, "process"), "pid");
	int n = snprintf(of->path, sizeof(of->path), "%s/gpumem.%lld.prom", job->textfile, (long long)pid);

	if (n > 0 && (size_t)n < sizeof(of->path))
		return GM_EXIT_OK;
	fprintf(stderr, "gpumem convert: %s: %s\n", gm_show_clean(job->textfile), strerror(ENAMETOOLONG));
	of->path[0] = '\0';
	return GM_EXIT_FAILED;
}

static void withdraw(struct watched *of)
{
	if (of->path[0])
		unlink(of->path);
	of->path[0] = '\0';
}

static int write_textfile(const struct job *job, struct watched *of, bool quiet)
{
	struct gm_loaded loaded;
	struct job one = *job;
	int status, r;

	gm_limit_forget();		/* the input of the last look */
	r = of->pid ? gm_load_process(of->pid, NULL, GM_LOAD_TABLES, &loaded) :
		      gm_load(of->input, GM_LOAD_TABLES, &loaded);
	if (r)
		return quiet ? GM_EXIT_INPUT : gm_input_bad("convert", of->input, loaded.error);
	of->pid = loaded.pid ? (pid_t)loaded.pid : of->pid;
	status = name_textfile(job, of, &loaded);
	one.input = of->input;
	if (!status)
		status = write_out(&one, &loaded, of->path);
	gm_load_free(&loaded);
	return status;
}

/* Write the metrics anew. If the process is gone or cannot be read, remove its file, because old metrics would show it
 * as living. A process that lives may be readable again later. Returns an exit status. */
static int look_again(const struct job *job, struct watched *of)
{
	int status = write_textfile(job, of, true);

	if (status != GM_EXIT_INPUT)
		return status;
	withdraw(of);
	of->over = !of->pid || (kill(of->pid, 0) && errno == ESRCH);
	return GM_EXIT_OK;
}

static void add_watched(struct watching *watching, const char *input)
{
	struct watched *one = gm_list_add(&watching->list, &watching->count, sizeof(*one));

	if (one)
		*one = (struct watched){ .input = strdup(input) };
	watching->failed |= !one || !one->input;
}

/* Add a process that gm_discover found. Its end before it is read is no error: look_again says nothing then. */
static void add_found(void *arg, int64_t pid, const struct gm_attached *attached)
{
	struct watching *watching = arg;
	char input[24];

	(void)attached;

	snprintf(input, sizeof(input), "%lld", (long long)pid);
	for (size_t i = 0; i < watching->count; i++)
		if (!watching->list[i].over && !strcmp(watching->list[i].input, input))
			return;
	add_watched(watching, input);
	if (!watching->failed)
		watching->list[watching->count - 1].pid = (pid_t)pid;
}

static void find_all(struct watching *watching)
{
	size_t missed = gm_discover(add_found, watching);

	if (missed > watching->missed)
		fprintf(stderr, "gpumem convert: %zu processes could not be looked into\n", missed);
	watching->missed = missed;
}

/* Remove the processes that have ended from the list. */
static void drop_over(struct watching *watching)
{
	size_t kept = 0;

	for (size_t i = 0; i < watching->count; i++)
		if (watching->list[i].over)
			free(watching->list[i].input);
		else
			watching->list[kept++] = watching->list[i];
	watching->count = kept;
}

static int watch(const struct job *job, struct watching *watching)
{
	double whole = (double)(time_t)job->watch;
	struct timespec pause = { (time_t)job->watch, (long)((job->watch - whole) * 1e9) };
	int status = GM_EXIT_OK;

	drop_over(watching);
	while (!stopped && !status && !watching->failed && (watching->count || watching->all)) {
		nanosleep(&pause, NULL);
		if (watching->all && !stopped)
			find_all(watching);
		for (size_t i = 0; i < watching->count && !stopped && !status; i++)
			status = look_again(job, &watching->list[i]);
		drop_over(watching);
	}
	for (size_t i = 0; i < watching->count; i++)
		withdraw(&watching->list[i]);
	return status;
}

static int textfiles(const struct job *job, char **inputs, int count)
{
	struct watching watching = { .count = 0 };
	struct sigaction action = { .sa_handler = stop };
	int status = GM_EXIT_OK;
	size_t named;

	if (job->watch > 0) {		/* before the first file: a signal must remove the files */
		sigaction(SIGINT, &action, NULL);
		sigaction(SIGTERM, &action, NULL);
		sigaction(SIGHUP, &action, NULL);
	}
	for (int i = 0; i < count; i++)
		if (!strcmp(inputs[i], "all"))
			watching.all = true;
		else
			add_watched(&watching, inputs[i]);
	named = watching.count;
	if (watching.all)
		find_all(&watching);
	for (size_t i = 0; i < watching.count && !watching.failed; i++) {
		int one = i < named ? write_textfile(job, &watching.list[i], false) :
				      look_again(job, &watching.list[i]);

		watching.list[i].over |= one != GM_EXIT_OK;
		status = one > status ? one : status;
	}
	if (job->watch > 0 && !watching.failed && (!status || status == GM_EXIT_INPUT)) {
		int end = watch(job, &watching);

		status = end > status ? end : status;
	}
	for (size_t i = 0; i < watching.count; i++)
		free(watching.list[i].input);
	free(watching.list);
	return watching.failed ? GM_EXIT_FAILED : status;
}

/* Return which options do not go together; NULL: all do. */
static const char *complain(const struct job *job)
{
	if (!job->format)
		return "--to FORMAT says which format is wanted";
	if ((job->textfile || job->watch > 0) && strcmp(job->format->name, "prometheus"))
		return "--textfile and --watch are for --to prometheus";
	if (job->textfile && job->output)
		return "--textfile and --output are two places";
	if (job->watch > 0 && !job->textfile)
		return "--watch needs --textfile";
	if (gm_cut_wanted(&job->cut) && !strcmp(job->format->name, "prometheus"))
		return "--last, --since, --min-size and --device are of events, and metrics have none";
	if (job->cut.last < 0)
		return "--last is how many seconds: not below 0";
	return NULL;
}

int gm_verb_convert(int argc, char **argv)
{
	const char *watch = NULL, *complaint;
	struct job job = { .cut = { .last = NAN, .since = NAN } };
	int to = -1, status;
	const struct gm_argument arguments[] = {
		{ "to", GM_ARG_WORD, &to }, { "output", GM_ARG_TEXT, &job.output },
		{ "textfile", GM_ARG_TEXT, &job.textfile }, { "watch", GM_ARG_TEXT, &watch },
		{ "last", GM_ARG_TIME, &job.cut.last }, { "since", GM_ARG_TIME, &job.cut.since },
		{ "min-size", GM_ARG_SIZE, &job.cut.min_size }, { "device", GM_ARG_DEVICE_OR_HOST, &job.cut.device },
		{ "level", GM_ARG_WORD, &job.level }, { NULL, 0, NULL }
	};

	status = gm_arguments(argc, argv, arguments, 1, INT_MAX);
	if (status >= 0)
		return status;
	if (watch && gm_units_seconds(watch, 0.1, 86400, &job.watch))
		return gm_argument_wrong("convert", "watch", watch, "not seconds, 0.1 to 86400");
	if (argc - optind > 1 && !job.textfile)
		return gm_inputs_wrong("convert", argc - optind);
	job.input = argv[optind];
	job.format = to >= 0 ? &formats[to] : format_of(job.textfile ? ".prom" : job.output);
	complaint = complain(&job);
	if (complaint) {
		fprintf(stderr, "gpumem convert: %s (gpumem help convert)\n", complaint);
		return GM_EXIT_USAGE;
	}
	if (gm_output_check("convert", job.output, job.format->endings))
		return GM_EXIT_USAGE;
	return job.textfile ? textfiles(&job, argv + optind, argc - optind) : convert(&job);
}
