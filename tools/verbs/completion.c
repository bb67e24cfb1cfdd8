/*
 * completion.c - completion of gpumem's command line, for bash and zsh: see manual.h. One thread.
 */
#include "tools/verbs/manual.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tools/verbs/cli.h"

#define EVERY_BY "site stack module kind size stream"

/* What an option takes, where it is one of a few words. */
static const struct { const char *verb, *option, *words; } values[] = {
	{ "diff", "by", EVERY_BY },
	{ "merge", "by", EVERY_BY },
	{ "merge", "weigh", "peak live" },
	{ "flame", "weigh", "live peak count bytes churn" },
	{ "flame", "format", "svg folded speedscope" },
	{ "convert", "to", "pickle pytorch-json chrome csv rmm speedscope folded prometheus gpumem" },
	{ "events", "kind", "device managed array host vmm pool ipc graph external" },
	{ "events", "action", "alloc free free_requested free_completed segment_alloc segment_free "
			      "segment_map segment_unmap oom snapshot annotate" },
	{ "help", "completion", "bash zsh" },
};

/* The library's options; @words: with | between them, where it is one of a few. */
static const struct { const char *name, *type, *words, *help; } library[] = {
#define GM_OPTION(name, type, value, min, max, unit, help) { #name, #type, unit, help },
#include "preload/options/options.def"
};
#define COUNT(list) (sizeof(list) / sizeof(list[0]))

static bool has_words(size_t i)
{
	return !strcmp(library[i].type, "CHOICE") || !strcmp(library[i].type, "BOOL");
}

static const char *words_of(const struct gm_opt *opt)
{
	for (size_t i = 0; i < COUNT(values); i++)
		if (!strcmp(values[i].verb, opt->verb) && !strcmp(values[i].option, opt->name))
			return values[i].words;
	return NULL;
}

/* @words with blanks between them. */
static void put_words(FILE *out, const char *words)
{
	for (; *words; words++)
		putc(*words == '|' ? ' ' : *words, out);
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_options(FILE *out, const struct gm_verb *verb)
{
	fprintf(out, "\t%s) words='--help", verb->name);
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++)
		if (!strcmp(opt->verb, verb->name))
			fprintf(out, " --%s", opt->name);
	if (!strcmp(verb->name, "run"))
		for (size_t i = 0; i < COUNT(library); i++)
			fprintf(out, " --%s=", library[i].name);
	fputs("' ;;\n", out);
}

static void bash_values(FILE *out)
{
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++) {
		if (!words_of(opt))
			continue;
		fprintf(out, "\t'%s --%s'", opt->verb, opt->name);
		if (!(opt->code & GM_OPT_ONLY))
			fprintf(out, "|'%s -%c'", opt->verb, opt->code);
		fprintf(out, ") words='%s' ;;\n", words_of(opt));
	}
	for (size_t i = 0; i < COUNT(library); i++)
		if (has_words(i)) {
			fprintf(out, "\t'run --%s') words='", library[i].name);
			put_words(out, library[i].words);
			fputs("' ;;\n", out);
		}
}

static void bash(FILE *out)
{
	fputs("# bash completion of gpumem, made by gpumem help --completion bash\n"
	      "_gpumem()\n{\n"
	      "\tlocal word=\"${COMP_WORDS[COMP_CWORD]}\" words='' i\n"
	      "\tlocal before=\"${COMP_WORDS[COMP_CWORD - 1]}\"\n"
	      "\tCOMPREPLY=()\n"
	      "\tif [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [ "
	      "\"${COMP_WORDS[1]}\" = help ] &&\n"
	      "\t\t[ \"${word#-}\" = \"$word\" ]; }; then\n\t\twords='", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		fprintf(out, "%s%s", verb == gm_verbs ? "" : " ", verb->name);
	fputs("'\n\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n\t\treturn\n\tfi\n"
	      /* The command of run: behind --, or the first word that is no option nor its value. */
	      "\tif [ \"${COMP_WORDS[1]}\" = run ]; then\n"
	      "\t\tfor ((i = 2; i <= COMP_CWORD; i++)); do\n"
	      "\t\t\tcase \"${COMP_WORDS[i - 1]}/${COMP_WORDS[i]}\" in\n"
	      "\t\t\t--/*) break ;;\n"
	      "\t\t\t*/-*|*/=|=/*) ;;\n"
	      "\t\t\t-q/*|--quiet/*) break ;;\n"
	      "\t\t\t--*/*) ;;\n"
	      "\t\t\t*) break ;;\n"
	      "\t\t\tesac\n\t\tdone\n"
	      "\t\tif [ \"$i\" -lt \"$COMP_CWORD\" ] && declare -F _command_offset >/dev/null; then\n"
	      "\t\t\t_command_offset \"$i\"\n\t\t\treturn\n"
	      "\t\telif [ \"$i\" -eq \"$COMP_CWORD\" ]; then\n"
	      "\t\t\tmapfile -t COMPREPLY < <(compgen -c -- \"$word\"; compgen -f -- \"$word\")\n"
	      "\t\t\tcompopt -o filenames\n\t\t\treturn\n"
	      "\t\tfi\n\tfi\n"
	      "\t[ \"$word\" != = ] || word=''\n"	/* --option=VALUE is three words */
	      "\t[ \"$before\" != = ] || before=\"${COMP_WORDS[COMP_CWORD - 2]}\"\n"
	      "\tcase \"${COMP_WORDS[1]} $before\" in\n", out);
	bash_values(out);
	fputs("\tesac\n"
	      "\tif [ -n \"$words\" ]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n\t\treturn\n\tfi\n"
	      "\tcase \"${COMP_WORDS[1]}\" in\n", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		bash_options(out, verb);
	fputs("\tesac\n"
	      "\tif [ \"${word#-}\" != \"$word\" ]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
	      "\t\t[ \"${COMPREPLY[0]: -1}\" != = ] || compopt -o nospace\n"
	      "\telse\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
	      "\t\tcompopt -o filenames\n"
	      "\tfi\n}\n"
	      "complete -F _gpumem gpumem\n", out);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* @length of @text within single quotes of a shell; : [ and ] mean something to _arguments. */
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

/* What comes behind an option's name: its help, and what it takes. */
static void zsh_option(FILE *out, const struct gm_opt *opt)
{
	putc('[', out);
	zsh_text(out, opt->help, SIZE_MAX);
	putc(']', out);
	if (opt->argument[0]) {
		putc(':', out);
		zsh_text(out, opt->argument, SIZE_MAX);
		if (words_of(opt))
			fprintf(out, ":(%s)", words_of(opt));
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
		if (opt->code & GM_OPT_ONLY)
			continue;
		fprintf(out, "\t\t'-%c", opt->code);
		zsh_option(out, opt);
	}
}

/* Of the help what fits beside a name: its first clause. */
static void zsh_library(FILE *out)
{
	for (size_t i = 0; i < COUNT(library); i++) {
		fprintf(out, "\t\t'--%s=[", library[i].name);
		zsh_text(out, library[i].help, strcspn(library[i].help, ";"));
		fputs("]:value:", out);
		if (has_words(i)) {
			putc('(', out);
			put_words(out, library[i].words);
			putc(')', out);
		} else if (strstr(library[i].words, "path")) {
			fputs("_files", out);
		}
		fputs("' \\\n", out);
	}
}

static void zsh(FILE *out)
{
	fputs("#compdef gpumem\n# zsh completion of gpumem, made by gpumem help --completion zsh\n"
	      "_gpumem() {\n\tlocal -a verbs\n\tverbs=(\n", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		fprintf(out, "\t\t'%s:", verb->name);
		zsh_text(out, verb->brief, SIZE_MAX);
		fputs("'\n", out);
	}
	fputs("\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe -t verbs verb "
	      "verbs\n\t\treturn\n\tfi\n"
	      "\tshift words\n\t(( CURRENT-- ))\n\tcase $words[1] in\n", out);
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
		bool run = !strcmp(verb->name, "run");

		fprintf(out, "\t%s) _arguments %s\\\n", verb->name, run ? "-S " : "");
		zsh_options(out, verb);
		if (run)
			zsh_library(out);
		fprintf(out, "\t\t%s ;;\n", run ? "'(-):command:_command_names -e' '*::argument:_normal'" :
			!strcmp(verb->name, "help") ? "'*:verb:(${verbs%%\\:*})'" : "'*:file:_files'");
	}
	fputs("\tesac\n}\nif [ \"$funcstack[1]\" = _gpumem ]; then\n\t_gpumem "
	      "\"$@\"\nelse\n\tcompdef _gpumem gpumem\nfi\n", out);
}

int gm_manual_completion(FILE *out, const char *shell)
{
	if (!strcmp(shell, "bash"))
		bash(out);
	else if (!strcmp(shell, "zsh"))
		zsh(out);
	else
		return -ENOENT;
	return 0;
}
