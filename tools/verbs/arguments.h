/*
 * arguments.h - the command line of every verb: the tables of verbs and options (verbs.def), reading
 * by them, and a line on standard error for what is wrong. Single-threaded.
 */
#ifndef GM_TOOLS_ARGUMENTS_H
#define GM_TOOLS_ARGUMENTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct gm_verb {
	const char *name, *group, *brief, *synopsis, *text, *examples;
	int (*run)(int argc, char **argv);
};

/* @words: those that it takes, with blanks between them; NULL: it takes something else. */
struct gm_opt { const char *verb, *name; char letter; const char *argument, *words, *help; };

/* The verbs in the order of the table, and the options of all; both end with a NULL name. */
extern const struct gm_verb gm_verbs[];
extern const struct gm_opt gm_opts[];

/* A verb gets its own argv (argv[0] is its name) and returns the exit status, an enum gm_exit; `run` returns what
 * the child did. */
#define GM_OPT(...)
#define GM_VERB(name, ...) int gm_verb_##name(int argc, char **argv);
#include "tools/verbs/verbs.def"

const struct gm_verb *gm_verb_find(const char *name);

/* ---- reading ---------------------------------------------------------------------------------- */

enum gm_argument_kind {
	GM_ARG_FLAG,			/* bool */
	GM_ARG_TEXT,			/* const char * */
	GM_ARG_TEXTS,			/* struct gm_texts: the option may stand several times */
	GM_ARG_COUNT,			/* size_t */
	GM_ARG_STREAM,			/* struct gm_asked: a number, as 7 or 0x55d1c0de */
	GM_ARG_ADDRESS,			/* struct gm_asked: a hexadecimal number */
	GM_ARG_SIZE,			/* uint64_t: bytes, as 4096 or 10GiB */
	GM_ARG_TIME,			/* double: seconds, as gm_units_time reads them */
	GM_ARG_LIMIT,			/* uint64_t: bytes, or UINT64_MAX for "unlimited" */
	GM_ARG_DEVICE,			/* const char *: a number */
	GM_ARG_DEVICE_OR_HOST,		/* const char *: a number, or "host" */
	GM_ARG_WORD,			/* int: the word's place among those of the option */
	GM_ARG_WORDS			/* const char *: several of its words, commas between them */
};

struct gm_texts { const char *list[32]; size_t count; };
struct gm_asked { bool is; uint64_t number; };

/* Where the value of option --@name goes. */
struct gm_argument { const char *name; enum gm_argument_kind kind; void *to; };

/* Read the options of verb argv[0]; @arguments ends with a NULL name and has all of them but --help, --no-limit,
 * --no-lines and, beside --top or --rows, --all, which lifts these. Then @least to @most inputs must be left,
 * argv[optind] and on. Returns -1, or the status to exit with after --help or a line that says what is wrong. */
int gm_arguments(int argc, char **argv, const struct gm_argument *arguments, int least, int most);

/* Write @word as a shell reads it: quoted where it has to be. Bytes that a terminal must not see are written as bash,
 * zsh and POSIX.1-2024 read them: $'\033'. Every command that people are to copy has its words from here. */
void gm_put_word(FILE *out, const char *word);

/* The same of an input as a verb's argument: a path that begins with - is no option. */
void gm_put_input(FILE *out, const char *word);

/* "... and 12 more stacks: gpumem leaks --all FILE": @count of @one are not shown, and the command that shows them. */
void gm_more_rows(FILE *out, size_t count, const char *one);

/* ---- complaints: each returns the exit status ------------------------------------------------- */

/* "gpumem VERB: --OPTION VALUE: WHY". */
int gm_argument_wrong(const char *verb, const char *option, const char *value, const char *why);

/* "; did you mean WORD?" with the one of @words (blanks between them) that @word differs from by one letter, or "".
 * Static memory. */
const char *gm_did_you_mean(const char *word, const char *words);

/* The number of inputs, @count, is wrong: that and the usage. */
int gm_inputs_wrong(const char *verb, int count);

/* The usage of @verb. */
int gm_usage_wrong(const char *verb);

/* "gpumem VERB: WORD: WHY", harmless to a terminal, of an input that cannot be read. */
int gm_input_bad(const char *verb, const char *word, const char *why);

/* Does the name @path (NULL or "-": no file) end like one of another format, such as a picture or a compressed
 * file? @own has the endings that are right, with blanks between them, the usual one first. Returns 0, or the exit
 * status after a complaint. */
int gm_output_check(const char *verb, const char *path, const char *own);

/* Does @template have only such % as names of snapshots know? Returns 0, or the exit status after a complaint:
 * "gpumem VERB: --output TEMPLATE: ...". */
int gm_template_check(const char *verb, const char *template);

/* ---- help ------------------------------------------------------------------------------------- */

/* What @verb exits with, in a sentence. */
const char *gm_verb_exits(const struct gm_verb *verb);

/* The whole help of @verb. */
void gm_verb_print_help(FILE *out, const struct gm_verb *verb);

/* manual.c: the source of a manual page: of a verb, of "gpumem" or of "libgpumem". Returns 0 or -ENOENT. */
int gm_manual_page(FILE *out, const char *name);

/* completion.c: what a shell sources; or, a line each, the living processes under the library, which it offers. */
enum gm_shell { GM_SHELL_BASH, GM_SHELL_ZSH, GM_SHELL_FISH, GM_SHELL_PIDS };
void gm_completion(FILE *out, enum gm_shell shell);

/* ---- library_options.c: the options of the library, from their own table ----------------------- */

/*
 * They are listed, and are flags of a command line, where --stacks=none is GPUMEM_STACKS=none.
 */

/* @values: the unit, or the words that it takes, with | between them. */
struct gm_library_option { const char *name, *type, *initial, *values, *help; };
bool gm_library_option_has_words(const struct gm_library_option *one);

/* All of them, in the order of the table; the last has a NULL name. */
extern const struct gm_library_option gm_library_options[];

/* The option called @word (of @length), '-' standing for '_'; NULL: there is none. */
const struct gm_library_option *gm_library_option(const char *word, size_t length);

/* Take argv[*@index] (and the word after it, when the value stands there) as an option of the
 * library, put it into the environment, and leave *@index at the last word taken. Returns 0, or
 * -EINVAL after one line on stderr that says what is wrong. */
int gm_library_option_take(int argc, char **argv, int *index);

/* Judge the options as the library will (preload/options/options.c), those of flags and those of the environment.
 * Returns 0, or -EINVAL after a line on stderr for each that the library would not accept. */
int gm_library_options_check(void);

/* Why programs that allocate leave no snapshot under the options of the environment, as a line of run's; NULL: they
 * leave one. Does follow=no hold? */
const char *gm_library_options_unwanted(void);
bool gm_library_options_alone(void);

#endif
