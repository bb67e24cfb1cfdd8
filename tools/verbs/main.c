/*
 * main.c - gpumem: find and run the verb, and list the verbs. The table of verbs is verbs.def.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload/options/text.h"
#include "tools/verbs/arguments.h"
#include "tools/show/show.h"

static int list(FILE *out, int status)
{
	const char *group = "";

	fputs("usage: gpumem VERB [ARGUMENT...]\n\n"
	      "Record and explain the GPU memory of unchanged CUDA programs.\n", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		if (strcmp(group, verb->group))
			fprintf(out, "\n%s\n", verb->group);
		group = verb->group;
		fprintf(out, "  %-9s %s\n", verb->name, verb->brief);
	}
	fputs("\n`gpumem help VERB` explains a verb; `gpumem --version` prints the version.\n", out);
	return status;
}

static int no_verb(const char *name)
{
	const struct gm_verb *near = gm_verbs;

	while (near->name && !gm_slice_is_near(gm_slice_of(name), near->name))
		near++;
	fprintf(stderr, "gpumem: there is no verb '%s' (gpumem help lists them)%s%s%s\n", gm_show_clean(name),
		near->name ? "; did you mean " : "", near->name ? near->name : "", near->name ? "?" : "");
	return GM_EXIT_USAGE;
}

int gm_verb_help(int argc, char **argv)
{
	bool man = false;
	int shell = -1;
	const struct gm_argument arguments[] = {
		{ "man", GM_ARG_FLAG, &man }, { "completion", GM_ARG_WORD, &shell }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 0, 1);
	const char *name = optind < argc ? argv[optind] : NULL;

	if (status >= 0)
		return status;
	if (shell >= 0 && (man || name))
		return gm_usage_wrong("help");
	if (shell >= 0)
		gm_completion(stdout, (enum gm_shell)shell);
	else if (!name && !man)
		list(stdout, 0);
	else if (man && gm_manual_page(stdout, name ? name : "gpumem"))
		return no_verb(name);
	else if (!man && !gm_verb_find(name))
		return no_verb(name);
	else if (!man)
		gm_verb_print_help(stdout, gm_verb_find(name));
	return gm_show_finish("help", GM_EXIT_OK);
}

/* Occupy descriptors 0, 1 and 2 if they are closed. Otherwise the next file that is opened would get such a number, and
 * output would be written to it, for example to the journal of a living process. The replacement refuses reads and
 * writes as a closed descriptor does, and a program that is run finds it closed. */
static void take_places(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH | O_CLOEXEC) < 0)
			_exit(GM_EXIT_FAILED);
}

int main(int argc, char **argv)
{
	const struct gm_verb *verb;

	take_places();

	if (argc < 2)
		return list(stderr, GM_EXIT_USAGE);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") || !strcmp(argv[1], "version")) {
		puts("gpumem " GPUMEM_VERSION);
		return gm_show_finish("--version", GM_EXIT_OK);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return gm_show_finish("--help", list(stdout, GM_EXIT_OK));
	verb = gm_verb_find(argv[1]);
	return verb ? verb->run(argc - 1, argv + 1) : no_verb(argv[1]);
}
