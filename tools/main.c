/*
 * main.c - gpumem: one table of verbs, and the help made from it.
 */
#include <stdio.h>
#include <string.h>

#include "tools/verbs.h"

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{ "run", gm_verb_run, "run a program under the library; after any death its snapshot is written" },
	{ "snapshot", gm_verb_snapshot, "a snapshot of a living process, without disturbing it" },
	{ "recover", gm_verb_recover, "make snapshots of what killed processes left behind" },
	{ "summary", gm_verb_summary, "how much memory, whose, of which kind" },
	{ "events", gm_verb_events, "what happened, in order; filters" },
	{ "leaks", gm_verb_leaks, "what was never freed, by stack; what grew between two snapshots" },
	{ "diff", gm_verb_diff, "two snapshots side by side: by site, module, size, stream" },
	{ "flame", gm_verb_flame, "a flame graph: live, peak, allocation count, churn" },
	{ "check", gm_verb_check, "is a run within its limits? for CI" },
	{ "convert", gm_verb_convert, "to PyTorch's snapshot, Chrome, CSV, Prometheus and others; from PyTorch's" },
	{ "symbolize", gm_verb_symbolize, "names, lines and inlined functions for a snapshot's frames" },
	{ "replay", gm_verb_replay, "run a recorded history through the caching allocator" },
	{ "options", gm_verb_options, "the options of the library" },
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static int help(FILE *out, int status)
{
	fputs("usage: gpumem VERB [ARGUMENT...]\n\n"
	      "See and explain the GPU memory of CUDA programs that nobody changed.\n\n", out);
	for (size_t i = 0; i < VERBS; i++)
		fprintf(out, "  %-9s %s\n", verbs[i].name, verbs[i].help);
	fputs("\n`gpumem help VERB` tells more; `gpumem --version` the version.\n", out);
	return status;
}

static const struct verb *find(const char *name)
{
	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static int no_verb(const char *name)
{
	fprintf(stderr, "gpumem: there is no verb '%s' (gpumem help lists them)\n", name);
	return GM_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const struct verb *verb;

	if (argc < 2)
		return help(stderr, GM_EXIT_USAGE);
	if (!strcmp(argv[1], "--version")) {
		puts("gpumem " GPUMEM_VERSION);
		return GM_EXIT_OK;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		char *ask[] = { argc > 2 ? argv[2] : argv[1], (char *)"--help", NULL };

		if (argc == 2)
			return help(stdout, GM_EXIT_OK);
		verb = find(argv[2]);
		return verb ? verb->run(2, ask) : no_verb(argv[2]);
	}
	verb = find(argv[1]);
	return verb ? verb->run(argc - 1, argv + 1) : no_verb(argv[1]);
}
