/*
 * manual.c - manual pages of the command, of its verbs and of the library.
 */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "tools/verbs/arguments.h"
#include "tools/write/embed.h"

/* ---- troff ----------------------------------------------------------------------------------- */

/* Write at most @length bytes of @text, with troff's special characters escaped. */
static void put_words(FILE *out, const char *text, size_t length)
{
	for (size_t i = 0; i < length && text[i]; i++)
		switch (text[i]) {
		case '\\': fputs("\\e", out); break;
		case '-': fputs("\\-", out); break;
		case '\'': fputs("\\(aq", out); break;
		case '^': fputs("\\(ha", out); break;
		case '~': fputs("\\(ti", out); break;
		case '.': fputs(i ? "." : "\\&.", out); break;
		default: putc(text[i], out);
		}
}

/* Write a line of a paragraph; text between backquotes is bold. */
static void put_line(FILE *out, const char *text, size_t length)
{
	const char *end = text + length;

	while (text < end) {
		size_t plain = strcspn(text, "`"), quoted;

		if (plain >= (size_t)(end - text)) {
			put_words(out, text, (size_t)(end - text));
			break;
		}
		put_words(out, text, plain);
		text += plain + 1;
		quoted = strcspn(text, "`");
		fputs("\\fB", out);
		put_words(out, text, quoted);
		fputs("\\fR", out);
		text += quoted + 1;
	}
	putc('\n', out);
}

/* Write paragraphs; lines that begin with a blank stay as they are. */
static void put_text(FILE *out, const char *text)
{
	int as_is = 0, gap = 0;

	while (*text) {
		size_t length = strcspn(text, "\n");
		int blank = *text == ' ';

		if (as_is && !blank)
			fputs(".fi\n", out);
		if (length && (gap || (blank && !as_is)))
			fputs(".PP\n", out);
		if (blank && !as_is)
			fputs(".nf\n", out);
		as_is = blank;
		gap = !length;
		if (length)
			put_line(out, text, length);
		text += length + (text[length] == '\n');
	}
	if (as_is)
		fputs(".fi\n", out);
}

static void put_head(FILE *out, const char *name, const char *section, const char *title)
{
	fputs(".\\\" made by gpumem help --man from tools/verbs/verbs.def and preload/options/options.def\n.TH ",
	      out);
	for (const char *c = name; *c; c++)
		fputs(*c == '-' ? "\\-" : (char[]){ (char)toupper((unsigned char)*c), '\0' }, out);
	fprintf(out, " %s \"\" \"gpumem " GPUMEM_VERSION "\" \"gpumem\"\n.nh\n.ad l\n.SH NAME\n",
		section);
	put_words(out, name, SIZE_MAX);
	fputs(" \\- ", out);
	put_words(out, title, SIZE_MAX);
	putc('\n', out);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void put_synopsis(FILE *out, const char *at)
{
	fputs(".SH SYNOPSIS\n", out);
	for (int line = 0; *at; line++) {
		size_t length = strcspn(at, "\n"), word = strcspn(at, " ");

		if (line)
			fputs(".br\n", out);
		fprintf(out, ".B gpumem %.*s\n", (int)(word < length ? word : length), at);
		if (word < length) {
			put_words(out, at + word + 1, length - word - 1);
			putc('\n', out);
		}
		at += length + (at[length] == '\n');
	}
}

static void put_option(FILE *out, const struct gm_opt *opt)
{
	fputs(".TP\n", out);
	if (opt->letter)
		fprintf(out, "\\fB\\-%c\\fR, ", opt->letter);
	fputs("\\fB\\-\\-", out);
	put_words(out, opt->name, SIZE_MAX);
	fputs("\\fR", out);
	if (opt->argument[0]) {
		fputs(" \\fI", out);
		put_words(out, opt->argument, SIZE_MAX);
		fputs("\\fR", out);
	}
	putc('\n', out);
	put_words(out, opt->help, SIZE_MAX);
	putc('\n', out);
}

static void put_options(FILE *out, const struct gm_verb *verb)
{
	static const struct gm_opt help = {
		"", "help", 'h', "", NULL, "print a summary of all this"
	};

	fputs(".SH OPTIONS\n", out);
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++)
		if (!strcmp(opt->verb, verb->name))
			put_option(out, opt);
	put_option(out, &help);
	if (strcmp(verb->name, "run"))
		return;
	fputs(".PP\nand every option of the library, which\n.BR libgpumem (7)\ndescribes:\n", out);
	for (const struct gm_library_option *one = gm_library_options; one->name; one++) {
		fputs("\\fB\\-\\-", out);
		put_words(out, one->name, SIZE_MAX);
		fputs(one[1].name ? "\\fR,\n" : "\\fR.\n", out);
	}
}

static void put_examples(FILE *out, const char *at)
{
	while (*at) {
		size_t length = strcspn(at, "\n"), what = strcspn(at, ":");

		fputs(".TP\n", out);
		put_words(out, at, what);
		fputs("\n.B ", out);
		put_words(out, at + what + 2, length - what - 2);
		putc('\n', out);
		at += length + (at[length] == '\n');
	}
}

static void put_common(FILE *out, const struct gm_verb *verb)
{
	fputs(".SH EXIT STATUS\n", out);
	put_text(out, gm_verb_exits(verb));
	fputs(".SH ENVIRONMENT\n", out);
	put_text(out,
		       "NO_COLOR, when it is not empty, keeps colours off terminals too; elsewhere "
		       "there are none.");
	fputs(".SH EXAMPLES\n", out);
	put_examples(out, verb->examples);
	fputs(".SH SEE ALSO\n.BR gpumem (1),\n.BR libgpumem (7)\n", out);
}

static void put_verb(FILE *out, const struct gm_verb *verb)
{
	char name[64];

	snprintf(name, sizeof(name), "gpumem-%s", verb->name);
	put_head(out, name, "1", verb->brief);
	put_synopsis(out, verb->synopsis);
	fputs(".SH DESCRIPTION\n", out);
	put_text(out, verb->text);
	put_options(out, verb);
	put_common(out, verb);
}

/* ---- gpumem(1) and libgpumem(7), whose texts are in the files of these names ------------------- */

GM_EMBED(gm_command_page, "tools/verbs/gpumem.1");
GM_EMBED(gm_library_page, "tools/verbs/libgpumem.7");

static void put_verbs(FILE *out)
{
	const char *group = "";

	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		if (strcmp(group, verb->group))
			fprintf(out, ".SS %s\n", verb->group);
		group = verb->group;
		fprintf(out, ".TP\n.BR gpumem\\-%s (1)\n", verb->name);
		put_words(out, verb->brief, SIZE_MAX);
		putc('\n', out);
	}
}

static void put_all_examples(FILE *out)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		put_examples(out, verb->examples);
}

static void put_library_options(FILE *out)
{
	for (const struct gm_library_option *one = gm_library_options; one->name; one++) {
		fputs(".TP\n\\fB", out);
		put_words(out, one->name, SIZE_MAX);
		fputs("\\fR\n", out);
		put_words(out, one->help, SIZE_MAX);
		fputs(".\nValues: ", out);
		put_words(out, one->values, SIZE_MAX);
		fputs("; default: ", out);
		put_words(out, one->initial[0] ? one->initial : "empty", SIZE_MAX);
		fputs(".\n", out);
	}
}

static const struct gm_part command_parts[] = {
	{ "@verbs@", put_verbs }, { "@examples@", put_all_examples }, { NULL, NULL },
};
static const struct gm_part library_parts[] = { { "@options@", put_library_options }, { NULL, NULL } };

int gm_manual_page(FILE *out, const char *name)
{
	const struct gm_verb *verb = gm_verb_find(name);

	if (!strcmp(name, "gpumem")) {
		put_head(out, "gpumem", "1", "record and explain the GPU memory of unchanged CUDA programs");
		gm_put_parts(out, gm_command_page, command_parts);
	} else if (!strcmp(name, "libgpumem")) {
		put_head(out, "libgpumem", "7", "a flight recorder of the GPU memory of CUDA programs");
		gm_put_parts(out, gm_library_page, library_parts);
	} else if (verb) {
		put_verb(out, verb);
	} else {
		return -ENOENT;
	}
	return 0;
}
