/*
 * arguments.h - the command line of every verb: the tables of verbs and options (verbs.def), the reading of a command
 * line by these tables, and the messages on standard error for wrong ones. Single-threaded.
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

/* @words: the words that the option takes, with blanks between them; NULL: it takes another kind of value. */
struct gm_opt { const char *verb, *name; char letter; const char *argument, *words, *help; };

/* The verbs in the order of verbs.def, and the options of all verbs. Both lists end with a NULL name. */
extern const struct gm_verb gm_verbs[];
extern const struct gm_opt gm_opts[];

/* The function of each verb. argv[0] is the verb's name. Returns the exit status, an enum gm_exit; `run` returns the
 * command's exit status. */
#define GM_OPT(...)
#define GM_VERB(name, ...) int gm_verb_##name(int argc, char **argv);
#include "tools/verbs/verbs.def"

/* NULL: there is no such verb. */
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
	GM_ARG_WORD,			/* int: the word's place among the option's words */
	GM_ARG_WORDS			/* const char *: several of the option's words, with commas between them */
};

struct gm_texts { const char *list[32]; size_t count; };
struct gm_asked { bool is; uint64_t number; };

/* The value of option --@name goes to @to. */
struct gm_argument { const char *name; enum gm_argument_kind kind; void *to; };

/* Read the options of verb argv[0]. @arguments ends with a NULL name and has every option of the verb except those that
 * are handled here: --help, --no-limit, --no-lines, --all-frames and, if the verb has --top or --rows, --all. @least to
 * @most inputs must remain; they begin at argv[optind]. Returns -1, or the exit status after --help or a message. */
int gm_arguments(int argc, char **argv, const struct gm_argument *arguments, int least, int most);

/* Write @word as a shell reads it, quoted if necessary. A word that gm_show_path would change becomes $'...\033...',
 * which bash, zsh and POSIX.1-2024 read. Write every word of a command that people may copy with this function. */
void gm_put_word(FILE *out, const char *word);

/* Write an input of a verb as gm_put_word does, with ./ before a path that begins with -, so that it is no option. */
void gm_put_input(FILE *out, const char *word);

/* Write "... and 12 more stacks: gpumem leaks --all FILE": @count rows are not shown, and this command shows them. A
 * command that is too long becomes "the same with --all". @one: "more stack". */
void gm_more_rows(FILE *out, size_t count, const char *one);

/* ---- messages on standard error; each function returns the exit status ------------------------- */

/* Write "gpumem VERB: --OPTION VALUE: WHY". */
int gm_argument_wrong(const char *verb, const char *option, const char *value, const char *why);

/* Return "; did you mean WORD?" with the first of @words (blanks between them) that is near @word (gm_slice_is_near);
 * "": none is near. Static memory. */
const char *gm_did_you_mean(const char *word, const char *words);

/* Write that @count inputs were given, and the usage. */
int gm_inputs_wrong(const char *verb, int count);

/* Write the usage of @verb. */
int gm_usage_wrong(const char *verb);

/* Write "gpumem VERB: WORD: WHY", cleaned, for an input that cannot be read. */
int gm_input_bad(const char *verb, const char *word, const char *why);

/* Refuse the file name @path (NULL or "-": no file) if it ends like a file of another format, such as a picture or a
 * compressed file. @own: the right endings, with blanks between them, the usual one first. Returns 0, or the exit
 * status after a message. */
int gm_output_check(const char *verb, const char *path, const char *own);

/* Refuse a @template for the names of snapshots (NULL: none) that has an unknown %. Returns 0, or the exit status after
 * "gpumem VERB: --output TEMPLATE: ...". */
int gm_template_check(const char *verb, const char *template);

/* ---- help ------------------------------------------------------------------------------------- */

/* Return a sentence on the exit statuses of @verb. */
const char *gm_verb_exits(const struct gm_verb *verb);

/* Print the whole help of @verb. */
void gm_verb_print_help(FILE *out, const struct gm_verb *verb);

/* manual.c: print the source of the manual page of a verb, of "gpumem" or of "libgpumem". Returns 0; -ENOENT: there is
 * no such page. */
int gm_manual_page(FILE *out, const char *name);

/* completion.c: print what @shell sources; for GM_SHELL_PIDS, the living processes under the library, a line each,
 * which the shells offer. */
enum gm_shell { GM_SHELL_BASH, GM_SHELL_ZSH, GM_SHELL_FISH, GM_SHELL_PIDS };
void gm_completion(FILE *out, enum gm_shell shell);

/* ---- library_options.c: the options of the library, from their own table ----------------------- */

/*
 * gpumem options lists them. gpumem run takes them as flags: --stacks=none sets GPUMEM_STACKS=none.
 */

/* @values: the unit, or the words that the option takes, with | between them. */
struct gm_library_option { const char *name, *type, *initial, *values, *help; };
/* Does the option take words? */
bool gm_library_option_has_words(const struct gm_library_option *one);

/* All options of the library, in the order of options.def; the last has a NULL name. */
extern const struct gm_library_option gm_library_options[];

/* Return the option called @word (@length bytes), in which '-' also stands for '_'; NULL: there is none. */
const struct gm_library_option *gm_library_option(const char *word, size_t length);

/* Read argv[*@index], and the next word if that is the value, as an option of the library. Put the option into the
 * environment, and set *@index to the last word that was read. Returns 0; -EINVAL after a message on stderr;
 * -ENOMEM. */
int gm_library_option_take(int argc, char **argv, int *index);

/* Check the options of flags and of the environment as the library will (preload/options/options.c). Returns 0, or
 * -EINVAL after a line on stderr for each option that the library would not accept. */
int gm_library_options_check(void);

/* Return the line of gpumem run that says why a program that allocates leaves no snapshot under the options of the
 * environment; NULL: it leaves one. */
const char *gm_library_options_no_snapshot(void);

/* Is the option follow "no" in the environment? */
bool gm_library_options_follow_off(void);

#endif
