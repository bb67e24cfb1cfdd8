/*
 * cli.c - the table of verbs, parsing by it, and the help made from it: see cli.h, verbs.def.
 */
#include "tools/verbs/cli.h"

#include <getopt.h>
#include <string.h>

#include "tools/read/limit.h"
#include "tools/show/show.h"
#include "tools/verbs/verbs.h"

#define WIDTH 100
#define OPTIONS_MOST 32

#define ONLY(letter) (GM_OPT_ONLY | (letter))
#define NO_LIMIT ONLY(GM_OPT_NO_LIMIT)
const struct gm_verb gm_verbs[] = {
#define GM_OPT(...)
#define GM_VERB(name, group, brief, synopsis, text, examples) \
	{ #name, group, brief, synopsis, text, examples, gm_verb_##name },
#include "tools/verbs/verbs.def"
#undef GM_VERB
#undef GM_OPT
	{ NULL, NULL, NULL, NULL, NULL, NULL, NULL }
};

const struct gm_opt gm_opts[] = {
#define GM_VERB(...)
#define GM_OPT(verb, name, code, argument, help) { #verb, name, argument, help, code },
#include "tools/verbs/verbs.def"
#undef GM_VERB
#undef GM_OPT
	{ NULL, NULL, NULL, NULL, 0 }
};

const struct gm_verb *gm_verb_find(const char *name)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		if (!strcmp(verb->name, name))
			return verb;
	return NULL;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static struct option longs[OPTIONS_MOST + 2];
static char shorts[2 * OPTIONS_MOST + 4];

/* The table's rows as getopt_long wants them; made once: but for a test a process runs one verb. */
static void prepare(const char *verb)
{
	static const struct gm_verb *made_for;
	size_t count = 0;
	char *letter = shorts;

	if (made_for == gm_verb_find(verb))
		return;
	made_for = gm_verb_find(verb);
	memset(longs, 0, sizeof(longs));
	memset(shorts, 0, sizeof(shorts));
	if (!strcmp(verb, "run"))
		*letter++ = '+';	/* what comes behind the command is the command's */
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++) {
		if (strcmp(opt->verb, verb) || count == OPTIONS_MOST)
			continue;
		longs[count++] = (struct option){
			opt->name, opt->argument[0] ? required_argument : no_argument, NULL,
			opt->code & 0xff
		};
		if (opt->code & GM_OPT_ONLY)
			continue;
		*letter++ = (char)opt->code;
		if (opt->argument[0])
			*letter++ = ':';
	}
	*letter++ = 'h';
	longs[count] = (struct option){ "help", no_argument, NULL, 'h' };
}

int gm_cli_next(int argc, char **argv)
{
	int c;

	prepare(argv[0]);
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) == GM_OPT_NO_LIMIT)
		gm_limit_lift();
	if (c == 'h')
		gm_cli_help(stdout, gm_verb_find(argv[0]));
	else if (c == '?')
		gm_cli_wrong(argv[0]);
	return c;
}

int gm_cli_end(int c)
{
	return c == 'h' ? gm_show_end("help", GM_EXIT_OK) : GM_EXIT_USAGE;
}

/* ---- help ------------------------------------------------------------------------------------ */

static void put_usage(FILE *out, const struct gm_verb *verb)
{
	const char *at = verb->synopsis;

	for (int line = 0; *at; line++) {
		int length = (int)strcspn(at, "\n");

		fprintf(out, "%s gpumem %.*s\n", line ? "      " : "usage:", length, at);
		at += length + (at[length] == '\n');
	}
}

/* @text from column @indent on, which has been reached; wrapped at words. */
static void put_wrapped(FILE *out, const char *text, int indent)
{
	int column = indent;

	while (*text) {
		int word = (int)strcspn(text, " ");

		if (column > indent && column + 1 + word > WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		}
		column += fprintf(out, "%s%.*s", column > indent ? " " : "", word, text);
		text += word;
		text += strspn(text, " ");
	}
	putc('\n', out);
}

static int head_length(const struct gm_opt *opt)
{
	return (int)(strlen(opt->name) + strlen(opt->argument)) + (opt->argument[0] != '\0');
}

static void put_options(FILE *out, const struct gm_verb *verb)
{
	int width = 4, used;

	for (const struct gm_opt *opt = gm_opts; opt->name; opt++)
		if (!strcmp(opt->verb, verb->name) && head_length(opt) > width)
			width = head_length(opt);
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++) {
		if (strcmp(opt->verb, verb->name))
			continue;
		if (opt->code & GM_OPT_ONLY)
			fputs("      ", out);
		else
			fprintf(out, "  -%c, ", opt->code);
		used = fprintf(out, "--%s%s%s", opt->name, opt->argument[0] ? " " : "",
			       opt->argument);
		fprintf(out, "%*s", width + 4 - used, "");
		put_wrapped(out, opt->help, width + 10);
	}
	fprintf(out, "  -h, --help%*s", width - 2, "");
	put_wrapped(out, "this text", width + 10);
}

static void put_examples(FILE *out, const char *at)
{
	fputs("\nexamples:\n", out);
	while (*at) {
		int length = (int)strcspn(at, "\n");
		int what = (int)strcspn(at, ":");

		fprintf(out, "  %.*s\n      %.*s\n", what, at, length - what - 2, at + what + 2);
		at += length + (at[length] == '\n');
	}
}

int gm_cli_wrong(const char *verb)
{
	put_usage(stderr, gm_verb_find(verb));
	fprintf(stderr, "(gpumem help %s tells more)\n", verb);
	return GM_EXIT_USAGE;
}

int gm_cli_inputs(const char *verb, int count)
{
	if (count)
		fprintf(stderr, "gpumem %s: %d input%s given\n", verb, count, count == 1 ? " was" : "s were");
	else
		fprintf(stderr, "gpumem %s: no input was given\n", verb);
	return gm_cli_wrong(verb);
}

void gm_cli_help(FILE *out, const struct gm_verb *verb)
{
	put_usage(out, verb);
	fprintf(out, "\n%s\n\n", verb->text);
	put_options(out, verb);
	put_examples(out, verb->examples);
}
