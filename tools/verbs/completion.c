/*
 * completion.c - completion of gpumem's command line for bash, zsh and fish: the files completion.bash, .zsh and .fish
 * with each @word@ replaced from the tables of verbs and options; and the processes that the shells offer.
 */
#include <stdint.h>
#include <string.h>

#include "tools/read/attach.h"
#include "tools/show/show.h"
#include "tools/verbs/arguments.h"
#include "tools/write/embed.h"

GM_EMBED(gm_bash_completion, "tools/verbs/completion.bash");
GM_EMBED(gm_zsh_completion, "tools/verbs/completion.zsh");
GM_EMBED(gm_fish_completion, "tools/verbs/completion.fish");

/* Write @words with blanks in place of | between them. */
static void put_words(FILE *out, const char *words)
{
	for (; *words; words++)
		putc(*words == '|' ? ' ' : *words, out);
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_verbs(FILE *out)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		fprintf(out, "%s%s", verb == gm_verbs ? "" : " ", verb->name);
}

static void bash_options_of(FILE *out, const struct gm_verb *verb)
{
	fprintf(out, "\t%s) words='--help", verb->name);
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++)
		if (!strcmp(opt->verb, verb->name))
			fprintf(out, " --%s", opt->name);
	if (!strcmp(verb->name, "run"))
		for (const struct gm_library_option *one = gm_library_options; one->name; one++)
			fprintf(out, " --%s=", one->name);
	fputs("' ;;\n", out);
}

static void bash_values(FILE *out)
{
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++) {
		if (!opt->words)
			continue;
		fprintf(out, "\t'%s --%s'", opt->verb, opt->name);
		if (opt->letter)
			fprintf(out, "|'%s -%c'", opt->verb, opt->letter);
		fprintf(out, ") words='%s' ;;\n", opt->words);
	}
	for (const struct gm_library_option *one = gm_library_options; one->name; one++)
		if (gm_library_option_has_words(one)) {
			fprintf(out, "\t'run --%s') words='", one->name);
			put_words(out, one->values);
			fputs("' ;;\n", out);
		}
}

static void bash_options(FILE *out)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		bash_options_of(out, verb);
}

static const struct gm_part bash[] = {
	{ "@verbs@", bash_verbs }, { "@values@", bash_values }, { "@options@", bash_options }, { NULL, NULL },
};

/* ---- zsh ------------------------------------------------------------------------------------- */

/* Write at most @length bytes of @text for single quotes of a shell; escape : [ ] and \, which _arguments reads. */
static void zsh_text(FILE *out, const char *text, size_t length)
{
	for (; *text && length; text++, length--)
		if (*text == '\'')
			fputs("'\\''", out);
		else if (strchr(":[]\\", *text))
			fprintf(out, "\\%c", *text);
		else
			putc(*text, out);
}

/* Write what follows an option's name: its help, and the values that it takes. */
static void zsh_option(FILE *out, const struct gm_opt *opt)
{
	putc('[', out);
	zsh_text(out, opt->help, SIZE_MAX);
	putc(']', out);
	if (opt->argument[0]) {
		putc(':', out);
		zsh_text(out, opt->argument, SIZE_MAX);
		if (opt->words)
			fprintf(out, ":(%s)", opt->words);
		else
			fputs(strstr(opt->argument, "FILE") ? ":_files" :
			      strstr(opt->argument, "DIR") ? ":_files -/" : ":", out);
	}
	fputs("' \\\n", out);
}

static void zsh_options(FILE *out, const struct gm_verb *verb)
{
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++) {
		if (strcmp(opt->verb, verb->name))
			continue;
		fprintf(out, "\t\t'--%s", opt->name);
		zsh_option(out, opt);
		if (!opt->letter)
			continue;
		fprintf(out, "\t\t'-%c", opt->letter);
		zsh_option(out, opt);
	}
}

/* Write the library's options with the first clause of their help, which fits beside a name. */
static void zsh_library(FILE *out)
{
	for (const struct gm_library_option *one = gm_library_options; one->name; one++) {
		fprintf(out, "\t\t'--%s=[", one->name);
		zsh_text(out, one->help, strcspn(one->help, ";"));
		fputs("]:value:", out);
		if (gm_library_option_has_words(one)) {
			putc('(', out);
			put_words(out, one->values);
			putc(')', out);
		} else if (strstr(one->values, "path")) {
			fputs("_files", out);
		}
		fputs("' \\\n", out);
	}
}

static void zsh_verbs(FILE *out)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		fprintf(out, "\t\t'%s:", verb->name);
		zsh_text(out, verb->brief, SIZE_MAX);
		fputs("'\n", out);
	}
}

static void zsh_arguments(FILE *out)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		bool run = !strcmp(verb->name, "run");

		fprintf(out, "\t%s) _arguments %s\\\n", verb->name, run ? "-S " : "");
		zsh_options(out, verb);
		if (run)
			zsh_library(out);
		fprintf(out, "\t\t%s ;;\n", run ? "'(-):command:_command_names -e' '*::argument:_normal'" :
			!strcmp(verb->name, "top") || !strcmp(verb->name, "snapshot") ? "'*:pid:_gpumem_pids'" :
			!strcmp(verb->name, "ctl") ?
			"':pid:_gpumem_pids' ':command:(history reset-peaks empty-cache memory-limit)' "
			"'*:value:(on off state none)'" :
			!strcmp(verb->name, "help") ? "'*:verb:(${verbs%%\\:*})'" : "'*:file:_files'");
	}
}

static const struct gm_part zsh[] = { { "@verbs@", zsh_verbs }, { "@arguments@", zsh_arguments }, { NULL, NULL } };

/* ---- fish ------------------------------------------------------------------------------------ */

/* Write at most @length bytes of @text as one word for fish. */
static void fish_text(FILE *out, const char *text, size_t length)
{
	putc('\'', out);
	for (; *text && length; text++, length--)
		fprintf(out, "%s%c", *text == '\'' || *text == '\\' ? "\\" : "", *text);
	putc('\'', out);
}

static void fish_verbs(FILE *out)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		fprintf(out, "complete -c gpumem -n '__fish_use_subcommand; or __fish_seen_subcommand_from help' "
			"-f -a %s -d ", verb->name);
		fish_text(out, verb->brief, SIZE_MAX);
		putc('\n', out);
	}
}

static void fish_options(FILE *out)
{
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++) {
		bool file = strstr(opt->argument, "FILE") || strstr(opt->argument, "DIR");

		fprintf(out, "complete -c gpumem -n '__fish_seen_subcommand_from %s' -l %s", opt->verb, opt->name);
		if (opt->letter)
			fprintf(out, " -s %c", opt->letter);
		if (opt->argument[0])
			fputs(file ? " -r -F" : " -x", out);
		if (opt->words)
			fprintf(out, " -a '%s'", opt->words);
		fputs(" -d ", out);
		fish_text(out, opt->help, SIZE_MAX);
		putc('\n', out);
	}
	for (const struct gm_library_option *one = gm_library_options; one->name; one++) {
		fprintf(out, "complete -c gpumem -n '__fish_seen_subcommand_from run' -l %s -x", one->name);
		if (gm_library_option_has_words(one)) {
			fputs(" -a '", out);
			put_words(out, one->values);
			putc('\'', out);
		}
		fputs(" -d ", out);
		fish_text(out, one->help, strcspn(one->help, ";"));
		putc('\n', out);
	}
}

static const struct gm_part fish[] = { { "@verbs@", fish_verbs }, { "@options@", fish_options }, { NULL, NULL } };

/* ---- processes ------------------------------------------------------------------------------- */

static void put_process(void *out, int64_t pid, const struct gm_attached *attached)
{
	FILE *file = gm_attach_proc((pid_t)pid, "comm");
	char name[64] = "";

	(void)attached;
	if (file && fgets(name, sizeof(name), file))
		name[strcspn(name, "\n")] = '\0';
	if (file)
		fclose(file);
	fprintf(out, "%lld\t%s\n", (long long)pid, gm_show_clean(name));
}

void gm_completion(FILE *out, enum gm_shell shell)
{
	if (shell == GM_SHELL_PIDS)
		gm_discover(put_process, out);
	else
		gm_put_parts(out, shell == GM_SHELL_BASH ? gm_bash_completion : shell == GM_SHELL_ZSH ?
			     gm_zsh_completion : gm_fish_completion,
			     shell == GM_SHELL_BASH ? bash : shell == GM_SHELL_ZSH ? zsh : fish);
}
