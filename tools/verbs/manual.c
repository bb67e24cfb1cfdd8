/*
 * manual.c - manual pages of the command, of its verbs and of the library.
 */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "tools/verbs/arguments.h"

/* ---- troff ----------------------------------------------------------------------------------- */

/* @text, where what troff would obey is made harmless. */
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

/* A line of a paragraph: what stands between backquotes is bold. */
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

/* Paragraphs; lines that begin with a blank stay as they are. */
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
	static const struct gm_opt help = { "", "help", 'h', "", "print a summary of all this" };

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
	if (!strcmp(verb->name, "run"))
		put_text(
			out,
			"That of the command; 126, 127 when it cannot be run; 2 for wrong use.");
	else
		put_text(out,
			       "0 done; 1 the check failed, or the output could not be written; "
			       "2 wrong use; 3 unreadable input.");
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

/* gpumem(1): the verbs, and each one's examples. */
static void put_command(FILE *out)
{
	const char *group = "";

	put_head(out, "gpumem", "1",
		       "see and explain the GPU memory of CUDA programs that nobody changed");
	fputs(".SH SYNOPSIS\n.B gpumem\nVERB [ARGUMENT...]\n.SH DESCRIPTION\n", out);
	put_text(out,
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
		put_words(out, verb->brief, SIZE_MAX);
		putc('\n', out);
	}
	fputs(".SH EXIT STATUS\n", out);
	put_text(
		out,
		"0 done; 1 the check failed; 2 wrong use; 3 unreadable input. `gpumem run` exits "
		"as its command did.");
	fputs(".SH EXAMPLES\n", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		put_examples(out, verb->examples);
	fputs(".SH SEE ALSO\n.BR libgpumem (7)\n", out);
}

/* ---- libgpumem(7) ------------------------------------------------------------------------------ */

static const struct call { const char *call, *what; } calls[] = {
	{ "gpumem_version()", "the version of the library, as text" },
	{ "gpumem_snapshot(path)", "write a snapshot of now" },
	{ "gpumem_memory_stats(device, stats, max)",
	  "every statistic of torch.cuda.memory_stats()" },
	{ "gpumem_memory_summary(device, stream)", "the table of torch.cuda.memory_summary()" },
	{ "gpumem_memory_allocated(device)", "bytes that the program holds" },
	{ "gpumem_memory_reserved(device)", "bytes taken from the driver for it" },
	{ "gpumem_max_memory_allocated(device)",
	  "the same at most, since the start or the last reset" },
	{ "gpumem_max_memory_reserved(device)", "likewise" },
	{ "gpumem_reset_peak_memory_stats(device)", "peaks begin anew" },
	{ "gpumem_reset_accumulated_memory_stats(device)", "sums and counters begin anew" },
	{ "gpumem_empty_cache()", "give back what is cached and not in use" },
	{ "gpumem_set_per_process_memory_fraction(fraction, device)",
	  "the most that this process may take" },
	{ "gpumem_get_per_process_memory_fraction(device)", "what was set, or the options say" },
	{ "gpumem_record_memory_history(enabled, context, stacks, max_entries)",
	  "what is recorded from now on, as torch.cuda.memory._record_memory_history()" },
	{ "gpumem_annotate(text)", "put a text into the history" },
	{ "gpumem_range_start(text)", "a range of that name begins in the history, as \"forward\"" },
	{ "gpumem_range_end(range)", "it ends" },
	{ "gpumem_torch_malloc(size, device, stream)",
	  "for torch.cuda.memory.CUDAPluggableAllocator" },
	{ "gpumem_torch_free(ptr, size, device, stream)", "likewise" },
	{ "gpumem_register_oom_observer(fn, arg)",
	  "be called when an allocation fails for want of memory" },
	{ "gpumem_unregister_oom_observer(fn, arg)", "no more" },
	{ "gpumem_pool_create(name, device)", "a pool of the program's own: its number" },
	{ "gpumem_pool_allocated(pool, address, size, stream)", "it has handed something out" },
	{ "gpumem_pool_freed(pool, address)", "it is about to take that back" },
	{ "gpumem_pool_find(name, device)", "the number of a pool; PyTorch's is \"pytorch\"" },
	{ "gpumem_pool_memory_stats(pool, stats, max)", "what is known of a pool, by PyTorch's names" },
	{ "gpumem_pool_reset_peak_memory_stats(pool)", "its peaks begin anew" },
};

static void put_entry(FILE *out, const char *head)
{
	fputs(".TP\n\\fB", out);
	put_words(out, head, SIZE_MAX);
	fputs("\\fR\n", out);
}

static void put_library_options(FILE *out)
{
	fputs(".SH OPTIONS\n", out);
	put_text(out,
		"GPUMEM_<NAME>=value in the environment, name:value,name:value in GPUMEM_CONF, or "
		"--name=value of `gpumem run`. A bad value costs one line on standard error, and the "
		"default is used.");
	for (const struct gm_library_option *one = gm_library_options; one->name; one++) {
		put_entry(out, one->name);
		put_words(out, one->help, SIZE_MAX);
		fputs(".\nValues: ", out);
		put_words(out, one->values, SIZE_MAX);
		fputs("; default: ", out);
		put_words(out, one->initial[0] ? one->initial : "empty", SIZE_MAX);
		fputs(".\n", out);
	}
}

static void put_library(FILE *out)
{
	put_head(out, "libgpumem", "7",
		       "a flight recorder of the GPU memory of CUDA programs");
	fputs(".SH SYNOPSIS\n.B LD_PRELOAD=libgpumem.so\n.I command\n.br\n.B gpumem run \\-\\-\n.I "
	      "command\n"
	      ".PP\n.B #include <gpumem.h>\n.SH DESCRIPTION\n",
	      out);
	put_text(out,
		       "The library stands between a program and the CUDA driver. It records every "
		       "allocation and free of every library in the process, with its size, kind, "
		       "stream, thread, module and stack, in a journal that outlives the process, and "
		       "writes snapshots as JSON:\n"
		       "\n"
		       "  at exit, if the program ever allocated\n"
		       "  on SIGUSR1, if the program does not handle that signal itself (option signal)\n"
		       "  when memory runs out: the first and the last ones (oom_snapshots)\n"
		       "  when a signal ends the program\n"
		       "  when `gpumem snapshot` asks, or the program itself\n"
		       "\n"
		       "A process that is killed leaves its journal; `gpumem recover` makes the "
		       "snapshot of it, and `gpumem run` does so by itself.");
	put_library_options(out);
	fputs(".SH API\n", out);
	put_text(out,
		       "Weak symbols: they may be called with the library absent, and then return "
		       "GPUMEM_ABSENT. The header describes results and errors.");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		put_entry(out, calls[i].call);
		put_words(out, calls[i].what, SIZE_MAX);
		putc('\n', out);
	}
	fputs(".SH FILES\n", out);
	put_entry(out, "gpumem.COMMAND.PID.REASON.json");
	put_text(out, "A snapshot, where option output says; mode 0600, never overwritten.");
	put_entry(out, "/dev/shm/gpumem-UID*/*.journal");
	put_text(
		out,
		"Journals, removed at a clean exit; also below $XDG_RUNTIME_DIR and $TMPDIR, or "
		"where option journal says.");
	fputs(".SH SEE ALSO\n.BR gpumem (1),\n.BR gpumem\\-run (1),\n.BR gpumem\\-recover (1)\n",
	      out);
}

int gm_manual_page(FILE *out, const char *name)
{
	const struct gm_verb *verb = gm_verb_find(name);

	if (!strcmp(name, "gpumem"))
		put_command(out);
	else if (!strcmp(name, "libgpumem"))
		put_library(out);
	else if (verb)
		put_verb(out, verb);
	else
		return -ENOENT;
	return 0;
}
