/*
 * manual.c - manual pages of the verbs: see manual.h.
 */
#include "tools/verbs/manual.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "tools/verbs/cli.h"

static const char *const library_options[] = {
#define GM_OPTION(name, ...) #name,
#include "preload/options/options.def"
};
#define LIBRARY_OPTIONS (sizeof(library_options) / sizeof(library_options[0]))

/* ---- troff ----------------------------------------------------------------------------------- */

void gm_manual_words(FILE *out, const char *text, size_t length)
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

/* A line of a paragraph: what stands between backquotes is bold. */
static void put_line(FILE *out, const char *text, size_t length)
{
	const char *end = text + length;

	while (text < end) {
		size_t plain = strcspn(text, "`"), quoted;

		if (plain >= (size_t)(end - text)) {
			gm_manual_words(out, text, (size_t)(end - text));
			break;
		}
		gm_manual_words(out, text, plain);
		text += plain + 1;
		quoted = strcspn(text, "`");
		fputs("\\fB", out);
		gm_manual_words(out, text, quoted);
		fputs("\\fR", out);
		text += quoted + 1;
	}
	putc('\n', out);
}

void gm_manual_text(FILE *out, const char *text)
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

void gm_manual_head(FILE *out, const char *name, const char *section, const char *title)
{
	fputs(".\\\" made by gpumem help --man from tools/verbs/verbs.def and preload/options/options.def\n.TH ",
	      out);
	for (const char *c = name; *c; c++)
		fputs(*c == '-' ? "\\-" : (char[]){ (char)toupper((unsigned char)*c), '\0' }, out);
	fprintf(out, " %s \"\" \"gpumem " GPUMEM_VERSION "\" \"gpumem\"\n.nh\n.ad l\n.SH NAME\n",
		section);
	gm_manual_words(out, name, SIZE_MAX);
	fputs(" \\- ", out);
	gm_manual_words(out, title, SIZE_MAX);
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
			gm_manual_words(out, at + word + 1, length - word - 1);
			putc('\n', out);
		}
		at += length + (at[length] == '\n');
	}
}

static void put_option(FILE *out, const struct gm_opt *opt)
{
	fputs(".TP\n", out);
	if (!(opt->code & GM_OPT_ONLY))
		fprintf(out, "\\fB\\-%c\\fR, ", opt->code);
	fputs("\\fB\\-\\-", out);
	gm_manual_words(out, opt->name, SIZE_MAX);
	fputs("\\fR", out);
	if (opt->argument[0]) {
		fputs(" \\fI", out);
		gm_manual_words(out, opt->argument, SIZE_MAX);
		fputs("\\fR", out);
	}
	putc('\n', out);
	gm_manual_words(out, opt->help, SIZE_MAX);
	putc('\n', out);
}

static void put_options(FILE *out, const struct gm_verb *verb)
{
	static const struct gm_opt help = { "", "help", "", "print a summary of all this", 'h' };

	fputs(".SH OPTIONS\n", out);
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++)
		if (!strcmp(opt->verb, verb->name))
			put_option(out, opt);
	put_option(out, &help);
	if (strcmp(verb->name, "run"))
		return;
	fputs(".PP\nand every option of the library, which\n.BR libgpumem (7)\ndescribes:\n", out);
	for (size_t i = 0; i < LIBRARY_OPTIONS; i++) {
		fputs("\\fB\\-\\-", out);
		gm_manual_words(out, library_options[i], SIZE_MAX);
		fputs(i + 1 < LIBRARY_OPTIONS ? "\\fR,\n" : "\\fR.\n", out);
	}
}

static void put_examples(FILE *out, const char *at)
{
	while (*at) {
		size_t length = strcspn(at, "\n"), what = strcspn(at, ":");

		fputs(".TP\n", out);
		gm_manual_words(out, at, what);
		fputs("\n.B ", out);
		gm_manual_words(out, at + what + 2, length - what - 2);
		putc('\n', out);
		at += length + (at[length] == '\n');
	}
}

static void put_common(FILE *out, const struct gm_verb *verb)
{
	fputs(".SH EXIT STATUS\n", out);
	if (!strcmp(verb->name, "run"))
		gm_manual_text(
			out,
			"That of the command; 126, 127 when it cannot be run; 2 for wrong use.");
	else
		gm_manual_text(out,
			       "0 done; 1 the check failed, or the output could not be written; "
			       "2 wrong use; 3 unreadable input.");
	fputs(".SH ENVIRONMENT\n", out);
	gm_manual_text(out,
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
	gm_manual_head(out, name, "1", verb->brief);
	put_synopsis(out, verb->synopsis);
	fputs(".SH DESCRIPTION\n", out);
	gm_manual_text(out, verb->text);
	put_options(out, verb);
	put_common(out, verb);
}

/* gpumem(1): the verbs, and each one's examples. */
static void put_command(FILE *out)
{
	const char *group = "";

	gm_manual_head(out, "gpumem", "1",
		       "see and explain the GPU memory of CUDA programs that nobody changed");
	fputs(".SH SYNOPSIS\n.B gpumem\nVERB [ARGUMENT...]\n.SH DESCRIPTION\n", out);
	gm_manual_text(out,
		"`gpumem run` starts a program under libgpumem.so, which records every allocation "
		"of GPU memory by every library in it, and writes snapshots: at exit, on SIGUSR1, "
		"when memory runs out, when the program crashes. The other verbs ask living "
		"processes, and read what was written. Where a verb takes FILE, it takes a snapshot, "
		"a journal (*.journal), a snapshot of PyTorch (pickle or JSON), the number of a "
		"living process, or - for standard input.");
	fputs(".SH VERBS\n", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		if (strcmp(group, verb->group))
			fprintf(out, ".SS %s\n", verb->group);
		group = verb->group;
		fprintf(out, ".TP\n.BR gpumem\\-%s (1)\n", verb->name);
		gm_manual_words(out, verb->brief, SIZE_MAX);
		putc('\n', out);
	}
	fputs(".SH EXIT STATUS\n", out);
	gm_manual_text(
		out,
		"0 done; 1 the check failed; 2 wrong use; 3 unreadable input. `gpumem run` exits "
		"as its command did.");
	fputs(".SH EXAMPLES\n", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		put_examples(out, verb->examples);
	fputs(".SH SEE ALSO\n.BR libgpumem (7)\n", out);
}

int gm_manual_page(FILE *out, const char *name)
{
	const struct gm_verb *verb = gm_verb_find(name);

	if (!strcmp(name, "gpumem"))
		put_command(out);
	else if (!strcmp(name, "libgpumem"))
		gm_manual_library(out);
	else if (verb)
		put_verb(out, verb);
	else
		return -ENOENT;
	return 0;
}
