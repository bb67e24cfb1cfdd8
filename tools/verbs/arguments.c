/*
 * arguments.c - the tables of verbs and options, the reading of a command line by them, and the help: see arguments.h.
 */
#define _GNU_SOURCE
#include "tools/verbs/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "preload/options/text.h"
#include "tools/read/input.h"
#include "tools/show/show.h"
#include "tools/show/stacks.h"
#include "tools/symbols/symbols.h"

#define WIDTH 80
#define OPTIONS_MOST 32
#define LONG 256			/* getopt_long returns LONG + i for row i of gm_opts */

const struct gm_verb gm_verbs[] = {
#define GM_OPT(...)
#define GM_VERB(name, group, brief, synopsis, text, examples) \
	{ #name, group, brief, synopsis, text, examples, gm_verb_##name },
#include "tools/verbs/verbs.def"
	{ NULL, NULL, NULL, NULL, NULL, NULL, NULL }
};

const struct gm_opt gm_opts[] = {
#define GM_VERB(...)
#define GM_CHOICE(verb, name, letter, argument, words, help) \
	{ #verb, name, letter, argument, words, help },
#define GM_OPT(verb, name, letter, argument, help) { #verb, name, letter, argument, NULL, help },
#include "tools/verbs/verbs.def"
	{ NULL, NULL, 0, NULL, NULL, NULL }
};

const struct gm_verb *gm_verb_find(const char *name)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		if (!strcmp(verb->name, name))
			return verb;
	return NULL;
}

/* Print @length bytes of @text behind @column columns of a line, in lines of at most WIDTH; further lines begin behind
 * @indent blanks. Words in brackets, as [-o FILE], stay together. */
static void put_wrapped(FILE *out, const char *text, size_t length, int column, int indent)
{
	bool first = column == indent;

	for (const char *end = text + length; text < end; text += strspn(text, " ")) {
		size_t word = strcspn(text, " \n");

		while (text[0] == '[' && text + word < end && !memchr(text, ']', word))
			word += 1 + strcspn(text + word + 1, " \n");
		if (!first && column + 1 + (int)word > WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
			first = true;
		}
		column += fprintf(out, "%s%.*s", first ? "" : " ", (int)word, text);
		first = false;
		text += word;
	}
	putc('\n', out);
}

/* ---- complaints -------------------------------------------------------------------------------- */

static void put_usage(FILE *out, const struct gm_verb *verb)
{
	const char *at = verb->synopsis;

	for (int line = 0; *at; line++) {
		size_t length = strcspn(at, "\n"), word = strcspn(at, " \n");

		fprintf(out, "%s gpumem %.*s", line ? "      " : "usage:", (int)word, at);
		put_wrapped(out, at + word + (word < length), length - word - (word < length), (int)word + 15,
			    (int)word + 14);
		at += length + (at[length] == '\n');
	}
}

int gm_argument_wrong(const char *verb, const char *option, const char *value, const char *why)
{
	fprintf(stderr, "gpumem %s: --%s %s: %s\n", verb, option, gm_show_clean(value), why);
	return GM_EXIT_USAGE;
}

int gm_usage_wrong(const char *verb)
{
	put_usage(stderr, gm_verb_find(verb));
	fprintf(stderr, "(gpumem help %s explains it)\n", verb);
	return GM_EXIT_USAGE;
}

int gm_inputs_wrong(const char *verb, int count)
{
	if (count)
		fprintf(stderr, "gpumem %s: %d input%s given\n", verb, count, count == 1 ? " was" : "s were");
	else
		fprintf(stderr, "gpumem %s: no input was given\n", verb);
	return gm_usage_wrong(verb);
}

int gm_input_bad(const char *verb, const char *word, const char *why)
{
	fprintf(stderr, "gpumem %s: %s: ", verb, gm_show_clean(word));
	fprintf(stderr, "%s\n", gm_show_clean(why));
	return GM_EXIT_INPUT;
}

/* Is @ending one of @list, which has blanks between its endings? Capitals do not matter. */
static bool is_among(const char *list, const char *ending)
{
	size_t length = strlen(ending);

	for (const char *at = list; (at = strcasestr(at, ending)); at++)
		if (!at[length] || at[length] == ' ')
			return true;
	return false;
}

int gm_output_check(const char *verb, const char *path, const char *own)
{
	static const char known[] = ".svg .html .json .csv .pickle .pkl .folded .prom .png .jpg .jpeg "
				    ".gif .bmp .webp .pdf .ps .eps .gz .zst .xz .bz2 .zip";
	const char *ending = path ? strrchr(basename(path), '.') : NULL;

	if (!ending || !ending[1] || strchr(ending, ' ') || is_among(own, ending) || !is_among(known, ending))
		return 0;
	fprintf(stderr, "gpumem %s: %s: what is written is no %s: name it %.*s\n", verb, gm_show_clean(path),
		gm_show_clean(ending), (int)strcspn(own, " "), own);
	return GM_EXIT_USAGE;
}

int gm_template_check(const char *verb, const char *template)
{
	for (const char *at = template; at && (at = strchr(at, '%')); at += 2)
		if (!at[1] || !strchr("cphkrt%", at[1])) {
			char why[128];

			snprintf(why, sizeof(why), "%%%.1s is not known: %%c %%p %%h %%k %%r %%t are, and %%%% for a "
				 "%% itself", at + 1);
			return gm_argument_wrong(verb, "output", template, why);
		}
	return 0;
}

const char *gm_did_you_mean(const char *word, const char *words)
{
	static char text[96];

	for (; *words; words += strspn(words, " ")) {
		size_t length = strcspn(words, " ");
		char one[64];

		snprintf(one, sizeof(one), "%.*s", (int)length, words);
		words += length;
		if (!gm_slice_is_near(gm_slice_of(word), one))
			continue;
		snprintf(text, sizeof(text), "; did you mean %s?", one);
		return text;
	}
	return "";
}

/* ---- reading ----------------------------------------------------------------------------------- */

static struct option longs[OPTIONS_MOST + 2];
static char shorts[2 * OPTIONS_MOST + 4];

/* Fill @longs and @shorts with the options of @verb, for getopt_long. */
static void prepare(const char *verb)
{
	size_t count = 0;
	char *letter = shorts;

	*letter++ = ':';			/* getopt_long then returns ':' for a missing value */
	for (size_t i = 0; gm_opts[i].name && count < OPTIONS_MOST; i++) {
		const struct gm_opt *opt = &gm_opts[i];

		if (strcmp(opt->verb, verb))
			continue;
		longs[count++] = (struct option){ opt->name, opt->argument[0] ? required_argument : no_argument,
						  NULL, LONG + (int)i };
		if (!opt->letter)
			continue;
		*letter++ = opt->letter;
		if (opt->argument[0])
			*letter++ = ':';
	}
	strcpy(letter, "h");
	longs[count] = (struct option){ "help", no_argument, NULL, 'h' };
	longs[count + 1] = (struct option){ NULL, 0, NULL, 0 };
}

/* Return the row of gm_opts for which getopt_long returned @code. */
static const struct gm_opt *option_of(const char *verb, int code)
{
	const struct gm_opt *opt = gm_opts;

	if (code >= LONG)
		return &gm_opts[code - LONG];
	while (opt->letter != code || strcmp(opt->verb, verb))
		opt++;
	return opt;
}

/* Return the long options that begin with @word ("--max" or "--max=1"), with blanks between them. Static memory. */
static const char *that_begin(const char *word)
{
	static char text[1024];
	size_t length = 0;

	text[0] = '\0';
	for (const struct option *one = longs; one->name; one++)
		if (!strncmp(one->name, word + 2, strcspn(word + 2, "=")))
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s--%s", length ? " " : "",
						   one->name);
	return text;
}

/* Say why getopt_long returned @code, which is '?' or ':'. */
static int complain(char **argv, int code)
{
	const char *verb = argv[0], *word = argv[optind - 1], *many;
	char name[256];

	if (code == ':') {
		const struct gm_opt *opt = option_of(verb, optopt);

		fprintf(stderr, "gpumem %s: --%s needs a value: --%s %s\n", verb, opt->name, opt->name, opt->argument);
	} else if (optopt >= LONG || optopt == 'h') {
		fprintf(stderr, "gpumem %s: --%s takes no value\n", verb,
			optopt == 'h' ? "help" : option_of(verb, optopt)->name);
	} else if (optopt) {
		fprintf(stderr, "gpumem %s: there is no option -%s\n", verb,
			gm_show_clean((char[]){ (char)optopt, '\0' }));
	} else {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), gm_show_clean(word));
		many = that_begin(word);
		if (*many)
			fprintf(stderr, "gpumem %s: %s may be one of %s\n", verb, name, many);
		else
			fprintf(stderr, "gpumem %s: there is no option %s%s\n", verb, name,
				gm_did_you_mean(name, that_begin("--")));
	}
	return gm_usage_wrong(verb);
}

static int wrong(const struct gm_opt *opt, const char *why)
{
	return gm_argument_wrong(opt->verb, opt->name, optarg, why);
}

/* Write a message with @words in a sentence: "not peak or live". */
static int wrong_word(const struct gm_opt *opt, const char *words)
{
	char why[384] = "not ";
	size_t length = strlen(why);

	for (const char *at = words, *last = strrchr(words, ' '); *at; at++)
		length += (size_t)snprintf(why + length, sizeof(why) - length, "%s",
					   *at != ' ' ? (char[]){ *at, '\0' } : at == last ? " or " : ", ");
	snprintf(why + length, sizeof(why) - length, "%s", gm_did_you_mean(optarg, words));
	return wrong(opt, why);
}

/* Return the place of the word @text (@length bytes) in @words, from 0; -1: it is none of them. */
static int place_of(const char *words, const char *text, size_t length)
{
	for (int place = 0; *words; place++) {
		size_t word = strcspn(words, " ");

		if (word == length && !strncmp(words, text, length))
			return place;
		words += word + (words[word] == ' ');
	}
	return -1;
}

static int take_words(const struct gm_opt *opt, const char **to)
{
	const char *words = opt->words;

	*to = optarg;
	/* Refuse an unknown word, because it would silently let nothing pass. */
	for (const char *at = optarg;; at++) {
		size_t length = strcspn(at, ",");

		if (place_of(words, at, length) < 0)
			return wrong_word(opt, words);
		at += length;
		if (!*at)
			return 0;
	}
}

/* Read a number of at most @most. Refuse a sign, because strtoull accepts one and wraps. Returns false: it is none. */
static bool read_number(const char *text, int base, uint64_t most, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = 0;
	if (!isxdigit((unsigned char)text[0]))
		return false;
	*ret = strtoull(text, &end, base);
	return end != text && !*end && !errno && *ret <= most;
}

/* Read a count of at most INT64_MAX: larger numbers mean "not given" to some verbs, and counts are printed as
 * signed. */
static int take_count(const struct gm_opt *opt, size_t *to)
{
	uint64_t number;

	if (!read_number(optarg, 10, INT64_MAX, &number))
		return wrong(opt, errno == ERANGE || number > INT64_MAX ? "too large" : "not a number");
	*to = number;
	return 0;
}

static int take_number(const struct gm_opt *opt, int base, const char *why, struct gm_asked *to)
{
	to->is = true;
	return read_number(optarg, base, UINT64_MAX, &to->number) ? 0 : wrong(opt, why);
}

static int take_size(const struct gm_opt *opt, bool unlimited, uint64_t *to)
{
	if (unlimited && !strcmp(optarg, "unlimited"))
		*to = UINT64_MAX;
	else if (gm_units_parse(optarg, to))
		return wrong(opt, unlimited ? "not a size, as 4096 or 10GiB, or unlimited" :
			     "not a size, as 4096 or 10GiB");
	return 0;
}

static int take_device(const struct gm_opt *opt, bool host, const char **to)
{
	uint64_t number;

	*to = optarg;
	if ((host && !strcmp(optarg, "host")) || read_number(optarg, 10, INT32_MAX, &number))
		return 0;
	return wrong(opt, host ? "not a number or 'host'" : "not a number");
}

/* Store optarg at @argument->to. Returns 0, or the exit status after a message. */
static int take(const struct gm_opt *opt, const struct gm_argument *argument)
{
	struct gm_texts *texts = argument->to;
	int place;

	switch (argument->kind) {
	case GM_ARG_FLAG:
		*(bool *)argument->to = true;
		return 0;
	case GM_ARG_TEXT:
		*(const char **)argument->to = optarg;
		return 0;
	case GM_ARG_TEXTS:
		if (texts->count == sizeof(texts->list) / sizeof(texts->list[0]))
			return wrong(opt, "too many of them");
		texts->list[texts->count++] = optarg;
		return 0;
	case GM_ARG_COUNT:
		return take_count(opt, argument->to);
	case GM_ARG_STREAM:
		return take_number(opt, 0, "not a number, as 0 or 0x55d1c0de", argument->to);
	case GM_ARG_ADDRESS:
		return take_number(opt, 16, "not a hexadecimal number", argument->to);
	case GM_ARG_SIZE:
	case GM_ARG_LIMIT:
		return take_size(opt, argument->kind == GM_ARG_LIMIT, argument->to);
	case GM_ARG_TIME:
		return gm_units_time(optarg, argument->to) ? wrong(opt, "not a time, as 10, 10s or 500ms") : 0;
	case GM_ARG_DEVICE:
	case GM_ARG_DEVICE_OR_HOST:
		return take_device(opt, argument->kind == GM_ARG_DEVICE_OR_HOST, argument->to);
	case GM_ARG_WORD:
		place = place_of(opt->words, optarg, strlen(optarg));
		*(int *)argument->to = place;
		return place < 0 ? wrong_word(opt, opt->words) : 0;
	default:
		return take_words(opt, argument->to);
	}
}

/* The words of the command line, for gm_more_rows. */
static char **asked;
static int asked_count;

void gm_put_word(FILE *out, const char *word)
{
	bool plain = !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,%+@-")];
	bool shown = !strcmp(gm_show_path(word), word);

	if (plain && *word) {
		fputs(word, out);
		return;
	}
	fputs(shown ? "'" : "$'", out);
	for (; *word; word++)
		if (!shown && ((unsigned char)*word < ' ' || (unsigned char)*word > '~' || *word == '\\'))
			fprintf(out, "\\%03o", (unsigned int)(unsigned char)*word);
		else if (*word == '\'')
			fputs(shown ? "'\\''" : "\\'", out);
		else
			putc(*word, out);
	putc('\'', out);
}

void gm_put_input(FILE *out, const char *word)
{
	char path[PATH_MAX + 2];

	if (word[0] == '-' && word[1]) {
		snprintf(path, sizeof(path), "./%s", word);
		word = path;
	}
	gm_put_word(out, word);
}

void gm_more_rows(FILE *out, size_t count, const char *one)
{
	char *command = NULL;
	size_t length;
	FILE *text = open_memstream(&command, &length);
	int used = fprintf(out, "... and %s: ", gm_show_count((int64_t)count, one));

	for (int i = 0; text && i < asked_count; i++) {
		putc(' ', text);
		gm_put_word(text, asked[i]);
		if (!i)
			fputs(" --all", text);
	}
	if (text && !fclose(text) && (size_t)used + 6 + length <= WIDTH)
		fprintf(out, "gpumem%s\n", command);
	else
		fputs("the same with --all\n", out);
	free(command);
}

int gm_arguments(int argc, char **argv, const struct gm_argument *arguments, int least, int most)
{
	const struct gm_argument *rows = arguments, *all = arguments;
	bool every = false;
	int code, status;

	asked = argv;
	asked_count = argc;
	while (rows->name && strcmp(rows->name, "top") && strcmp(rows->name, "rows"))
		rows++;
	while (all->name && strcmp(all->name, "all"))
		all++;
	prepare(argv[0]);
	opterr = 0;
	while ((code = getopt_long(argc, argv, shorts, longs, NULL)) >= 0) {
		const struct gm_argument *argument = arguments;
		const struct gm_opt *opt;

		if (code == 'h') {
			gm_verb_print_help(stdout, gm_verb_find(argv[0]));
			return gm_show_finish("help", GM_EXIT_OK);
		}
		if (code == '?' || code == ':')
			return complain(argv, code);
		opt = option_of(argv[0], code);
		if (!strcmp(opt->name, "no-limit")) {
			gm_limit_lift();
			continue;
		}
		if (!strcmp(opt->name, "no-lines")) {
			gm_names_off();
			continue;
		}
		if (!strcmp(opt->name, "all-frames")) {
			gm_stacks_unfold();
			continue;
		}
		if (!all->name && !strcmp(opt->name, "all")) {
			every = rows->name != NULL;
			continue;
		}
		while (strcmp(argument->name, opt->name))
			argument++;
		status = take(opt, argument);
		if (status)
			return status;
	}
	if (every)
		*(size_t *)rows->to = SIZE_MAX;
	return argc - optind < least || argc - optind > most ? gm_inputs_wrong(argv[0], argc - optind) : -1;
}

/* ---- help -------------------------------------------------------------------------------------- */

/* Print paragraphs, whose lines are joined. A line that begins with a blank stays as it is. */
static void put_text(FILE *out, const char *text)
{
	char joined[4096];
	size_t length = 0;

	for (size_t line; *text; text += line + (text[line] == '\n')) {
		bool as_is = *text == '\n' || *text == ' ';

		line = strcspn(text, "\n");
		if (as_is && length) {
			put_wrapped(out, joined, length, 0, 0);
			length = 0;
		}
		if (as_is)
			fprintf(out, "%.*s\n", (int)line, text);
		else if (length + line + 2 < sizeof(joined))
			length += (size_t)sprintf(joined + length, "%s%.*s", length ? " " : "", (int)line, text);
	}
	if (length)
		put_wrapped(out, joined, length, 0, 0);
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
		if (opt->letter)
			fprintf(out, "  -%c, ", opt->letter);
		else
			fputs("      ", out);
		used = fprintf(out, "--%s%s%s", opt->name, opt->argument[0] ? " " : "",
			       opt->argument);
		fprintf(out, "%*s", width + 4 - used, "");
		put_wrapped(out, opt->help, strlen(opt->help), width + 10, width + 10);
	}
	fprintf(out, "  -h, --help%*s", width - 2, "");
	put_wrapped(out, "print this text", 9, width + 10, width + 10);
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

const char *gm_verb_exits(const struct gm_verb *verb)
{
	if (!strcmp(verb->name, "run"))
		return "that of COMMAND; 127 there is no such command; 126 it cannot be run; 2 wrong use";
	if (!strcmp(verb->name, "check"))
		return "0 within the limits; 1 beyond a limit, or the output could not be written; 2 wrong use; "
		       "3 unreadable input";
	if (!strcmp(verb->name, "ctl"))
		return "0 done; 1 a process answered that it cannot do this; 2 wrong use; 3 there is no such process, "
		       "or it gave no answer in time";
	return "0 done; 1 not all could be done, or the output could not be written; 2 wrong use; 3 unreadable input";
}

void gm_verb_print_help(FILE *out, const struct gm_verb *verb)
{
	const char *exits = gm_verb_exits(verb);

	put_usage(out, verb);
	putc('\n', out);
	put_text(out, verb->text);
	putc('\n', out);
	put_options(out, verb);
	fputs("\nexit status: ", out);
	put_wrapped(out, exits, strlen(exits), 13, 13);
	put_examples(out, verb->examples);
}
