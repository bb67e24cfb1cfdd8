/*
 * cli.h - command lines and help of all verbs, from the table verbs.def. Single-threaded.
 */
#ifndef GM_TOOLS_CLI_H
#define GM_TOOLS_CLI_H

#include <stdio.h>

struct gm_verb {
	const char *name, *group, *brief, *synopsis, *text, *examples;
	int (*run)(int argc, char **argv);
};

struct gm_opt { const char *verb, *name, *argument, *help; int code; };
#define GM_OPT_ONLY 0x100		/* in @code: without a short option */
#define GM_OPT_NO_LIMIT 2		/* of --no-limit, which gm_cli_next obeys: limit.h */

/* The verbs in the order of the table, and the options of all; both end with a NULL name. */
extern const struct gm_verb gm_verbs[];
extern const struct gm_opt gm_opts[];

const struct gm_verb *gm_verb_find(const char *name);

/* getopt_long over the options of verb argv[0]: the code of the next one (optarg, optind as usual),
 * -1 at the end. 'h': the help has been printed; '?': a line and the usage have been printed. */
int gm_cli_next(int argc, char **argv);

/* What a verb returns after gm_cli_next said @c, 'h' or '?'. */
int gm_cli_end(int c);

/* The usage of @verb on stderr; returns GM_EXIT_USAGE. */
int gm_cli_wrong(const char *verb);

/* The same when it is the @count of inputs that is wrong. */
int gm_cli_inputs(const char *verb, int count);

/* The whole help of @verb. */
void gm_cli_help(FILE *out, const struct gm_verb *verb);

#endif
