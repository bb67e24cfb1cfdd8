/*
 * convert.c - gpumem convert --to FORMAT FILE|JOURNAL|PID: a snapshot in others' formats, and theirs
 * in ours. The formats themselves are in convert_*.c.
 *
 * One thread, no signal context.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli.h"
#include "tools/convert.h"
#include "tools/output.h"
#include "tools/verbs.h"

struct format {
	const char *name, *suffix;
	int (*write)(FILE *out, const struct gm_loaded *loaded, char note[256]);
};

static const struct format formats[] = {
	{ "pickle", ".pickle", gm_convert_pickle },
	{ "pytorch-json", NULL, gm_convert_torch_json },
	{ "chrome", NULL, gm_convert_chrome },
	{ "csv", ".csv", gm_convert_csv },
	{ "rmm", NULL, gm_convert_rmm },
	{ "speedscope", NULL, gm_convert_speedscope },
	{ "folded", ".folded", gm_convert_folded },
	{ "prometheus", ".prom", gm_convert_prometheus },
	{ "gpumem", NULL, gm_convert_snapshot },
};

struct job { const struct format *format; const char *input, *output, *textfile; double watch; };

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
	(void)signal_number;
	stopped = 1;
}

static const struct format *format_of(const char *name, const char *path)
{
	size_t length = path ? strlen(path) : 0;

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		size_t end = formats[i].suffix ? strlen(formats[i].suffix) : SIZE_MAX;

		if (name ? !strcmp(name, formats[i].name) :
		    end < length && !strcmp(path + length - end, formats[i].suffix))
			return &formats[i];
	}
	return NULL;
}

static int write_out(const struct job *job, const struct gm_loaded *loaded, const char *path)
{
	struct gm_output output;
	char note[256] = "";
	int r = gm_output_open(&output, path), end;

	if (r) {
		fprintf(stderr, "gpumem convert: %s: %s\n", path, strerror(-r));
		return GM_EXIT_FAILED;
	}
	r = job->format->write(output.file, loaded, note);
	end = gm_output_close(&output, !r);
	if (note[0])
		fprintf(stderr, "gpumem convert: %s: %s\n", job->input, note);
	r = r ? r : end;
	if (r == -EFBIG)
		fprintf(stderr, "gpumem convert: %s: more than 8 GiB as JSON, which no viewer reads: use "
			"--to pickle\n", job->input);
	else if (r)
		fprintf(stderr, "gpumem convert: the output could not be written: %s\n", strerror(-r));
	return r ? GM_EXIT_FAILED : GM_EXIT_OK;
}

/* Where the metrics of this process go. Returns 0 or -ENAMETOOLONG. */
static int textfile_path(const struct job *job, const struct gm_loaded *loaded, char *ret,
			 size_t room)
{
	int n = snprintf(ret, room, "%s/gpumem.%lld.prom", job->textfile,
			 (long long)gm_json_number(gm_json_object(loaded->root, "process"), "pid"));

	return n > 0 && (size_t)n < room ? 0 : -ENAMETOOLONG;
}

static int convert_once(const struct job *job, char *textfile, size_t room, bool quiet)
{
	/* From PyTorch to PyTorch nothing of ours is needed. */
	bool as_said = job->format->write == gm_convert_pickle || job->format->write == gm_convert_torch_json;
	struct gm_loaded loaded;
	const char *path = job->output;
	int status;

	if (as_said ? gm_load_as_said(job->input, &loaded) : gm_load(job->input, &loaded)) {
		if (!quiet)
			fprintf(stderr, "gpumem convert: %s: %s\n", job->input, loaded.error);
		return GM_EXIT_INPUT;
	}
	if (job->textfile) {
		if (textfile_path(job, &loaded, textfile, room)) {
			fprintf(stderr, "gpumem convert: %s: %s\n", job->textfile,
				strerror(ENAMETOOLONG));
			gm_load_free(&loaded);
			return GM_EXIT_FAILED;
		}
		path = textfile;
	}
	status = write_out(job, &loaded, path);
	gm_load_free(&loaded);
	return status;
}

/* Again and again. What a process that is gone last said must not stay: it would look alive. */
static int watch(const struct job *job)
{
	struct sigaction action = { .sa_handler = stop };
	double whole = (double)(time_t)job->watch;
	struct timespec pause = { (time_t)job->watch, (long)((job->watch - whole) * 1e9) };
	char textfile[4096] = "";
	int status = convert_once(job, textfile, sizeof(textfile), false);

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (status)
		return status;
	while (!stopped && !status) {
		nanosleep(&pause, NULL);
		if (!stopped)
			status = convert_once(job, textfile, sizeof(textfile), true);
	}
	if (textfile[0])
		unlink(textfile);
	return status == GM_EXIT_INPUT ? GM_EXIT_OK : status;
}

static int convert(const struct job *job)
{
	char textfile[4096] = "";

	if (!strcmp(job->format->name, "pickle") && isatty(STDOUT_FILENO) &&
	    (!job->output || !strcmp(job->output, "-"))) {
		fputs("gpumem convert: a pickle is not for a terminal: name a file with -o\n", stderr);
		return GM_EXIT_USAGE;
	}
	return job->watch > 0 ? watch(job) : convert_once(job, textfile, sizeof(textfile), false);
}

static bool read_watch(const char *text, struct job *job)
{
	char *end;

	job->watch = strtod(text, &end);
	return end != text && !*end && job->watch >= 0.1 && job->watch <= 86400;
}

/* What does not go together. NULL: it does. */
static const char *complain(const struct job *job, const char *to)
{
	if (!job->format && to)
		return "there is no such format";
	if (!job->format)
		return "--to says as what";
	if ((job->textfile || job->watch > 0) && strcmp(job->format->name, "prometheus"))
		return "--textfile and --watch are for --to prometheus";
	if (job->textfile && job->output)
		return "--textfile and --output are two places";
	if (job->watch > 0 && !job->textfile)
		return "--watch needs --textfile";
	return NULL;
}

int gm_verb_convert(int argc, char **argv)
{
	const char *to = NULL, *complaint;
	struct job job = { .watch = 0 };
	int c;

	while ((c = gm_cli_next(argc, argv)) >= 0) {
		switch (c) {
		case 't': to = optarg; break;
		case 'o': job.output = optarg; break;
		case 'T': job.textfile = optarg; break;
		case 'w':
			if (read_watch(optarg, &job))
				break;
			fprintf(stderr, "gpumem convert: --watch %s: not seconds, 0.1 to 86400\n", optarg);
			return GM_EXIT_USAGE;
		default:
			return gm_cli_end(c);
		}
	}
	if (argc - optind != 1) {
		return gm_cli_wrong("convert");
	}
	job.input = argv[optind];
	job.format = format_of(to, job.textfile ? ".prom" : job.output);
	complaint = complain(&job, to);
	if (complaint) {
		fprintf(stderr, "gpumem convert: %s%s%s (gpumem help convert)\n", to ? to : "",
			to ? ": " : "", complaint);
		return GM_EXIT_USAGE;
	}
	return convert(&job);
}
