/*
 * arguments.h - the command line of every verb: the tables of verbs and options (verbs.def), reading
 * by them, and a line on standard error for what is wrong. Single-threaded.
 */
#ifndef GM_TOOLS_ARGUMENTS_H
#define GM_TOOLS_ARGUMENTS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gm_verb {
	const char *name, *group, *brief, *synopsis, *text, *examples;
	int (*run)(int argc, char **argv);
};

struct gm_opt { const char *verb, *name; char letter; const char *argument, *help; };

/* The verbs in the order of the table, and the options of all; both end with a NULL name. */
extern const struct gm_verb gm_verbs[];
extern const struct gm_opt gm_opts[];

const struct gm_verb *gm_verb_find(const char *name);

/* The words that an option takes, with blanks between them; NULL: it takes something else. */
const char *gm_opt_words(const struct gm_opt *opt);

/* ---- reading ---------------------------------------------------------------------------------- */

enum gm_argument_kind {
	GM_ARG_FLAG,			/* bool */
	GM_ARG_TEXT,			/* const char * */
	GM_ARG_TEXTS,			/* struct gm_texts: the option may stand several times */
	GM_ARG_COUNT,			/* size_t */
	GM_ARG_SIZE,			/* uint64_t: bytes, as 4096 or 10GiB */
	GM_ARG_LIMIT,			/* uint64_t: the same, or UINT64_MAX for "unlimited" */
	GM_ARG_DEVICE,			/* const char *: a number */
	GM_ARG_DEVICE_OR_HOST,		/* const char *: a number, or "host" */
	GM_ARG_WORD,			/* int: the word's place among gm_opt_words */
	GM_ARG_WORDS			/* const char *: several of gm_opt_words, with commas between them */
};

struct gm_texts { const char *list[32]; size_t count; };

/* Where the value of option --@name goes. */
struct gm_argument { const char *name; enum gm_argument_kind kind; void *to; };

/* Read the options of verb argv[0]; @arguments ends with a NULL name and has all of them but --help and
 * --no-limit. Then @least to @most inputs must be left, argv[optind] and on. Returns -1, or the status to
 * exit with after --help or a line that says what is wrong. */
int gm_arguments(int argc, char **argv, const struct gm_argument *arguments, int least, int most);

/* ---- complaints: each returns the exit status ------------------------------------------------- */

/* "gpumem VERB: --OPTION VALUE: WHY". */
int gm_argument_wrong(const char *verb, const char *option, const char *value, const char *why);

/* The number of inputs, @count, is wrong: that and the usage. */
int gm_inputs_wrong(const char *verb, int count);

/* The usage of @verb. */
int gm_usage_wrong(const char *verb);

/* "gpumem VERB: WORD: WHY", harmless to a terminal, of an input that cannot be read. */
int gm_input_bad(const char *verb, const char *word, const char *why);

/* Does the name @path (NULL, "-": none) end as a file of another format would, packed or a picture? @own are
 * the endings that are right, with blanks between them, the usual one first. 0, or a complaint. */
int gm_output_check(const char *verb, const char *path, const char *own);

/* ---- help ------------------------------------------------------------------------------------- */

/* The whole help of @verb. */
void gm_verb_print_help(FILE *out, const struct gm_verb *verb);

/* manual.c: the source of a manual page: of a verb, of "gpumem" or of "libgpumem". Returns 0 or -ENOENT. */
int gm_manual_page(FILE *out, const char *name);

/* completion.c: what a shell sources: bash or, with @zsh, zsh. */
void gm_completion(FILE *out, bool zsh);

#endif
