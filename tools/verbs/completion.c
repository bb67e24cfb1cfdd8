/*
 * completion.c - completion of gpumem's command line, for bash and zsh.
 */
#include <stdint.h>
#include <string.h>

#include "tools/verbs/arguments.h"

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
		for (const struct gm_library_option *one = gm_library_options; one->name; one++)
			fprintf(out, " --%s=", one->name);
	fputs("' ;;\n", out);
}

static void bash_values(FILE *out)
{
	for (const struct gm_opt *opt = gm_opts; opt->name; opt++) {
		if (!gm_opt_words(opt))
			continue;
		fprintf(out, "\t'%s --%s'", opt->verb, opt->name);
		if (opt->letter)
			fprintf(out, "|'%s -%c'", opt->verb, opt->letter);
		fprintf(out, ") words='%s' ;;\n", gm_opt_words(opt));
	}
	for (const struct gm_library_option *one = gm_library_options; one->name; one++)
		if (gm_library_option_has_words(one)) {
			fprintf(out, "\t'run --%s') words='", one->name);
			put_words(out, one->values);
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
		if (gm_opt_words(opt))
			fprintf(out, ":(%s)", gm_opt_words(opt));
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

/* Of the help what fits beside a name: its first clause. */
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

void gm_completion(FILE *out, bool for_zsh)
{
	(for_zsh ? zsh : bash)(out);
}
