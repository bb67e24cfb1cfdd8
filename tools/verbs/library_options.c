/*
 * library_options.c - the library's options as flags of gpumem run (see arguments.h), and gpumem options, which lists
 * them. The library's own code checks values.
 */
#define _GNU_SOURCE
#include "tools/verbs/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/options/options.h"
#include "tools/show/show.h"

const struct gm_library_option gm_library_options[] = {
#define GM_OPTION(name, type, initial, min, max, values, help) { #name, #type, initial, values, help },
#include "preload/options/options.def"
	{ NULL, NULL, NULL, NULL, NULL }
};

static bool taken[GM_OPTION_COUNT];	/* a flag was given */

bool gm_library_option_has_words(const struct gm_library_option *one)
{
	return !strcmp(one->type, "CHOICE") || !strcmp(one->type, "BOOL");
}

/* ---- flags ------------------------------------------------------------------------------------- */

const struct gm_library_option *gm_library_option(const char *word, size_t length)
{
	for (const struct gm_library_option *one = gm_library_options; one->name; one++) {
		size_t i = 0;

		while (i < length && one->name[i] == (word[i] == '-' ? '_' : word[i]))
			i++;
		if (i == length && !one->name[i])
			return one;
	}
	return NULL;
}

/* Return the option's name in the environment. Static memory. */
static const char *variable_of(const struct gm_library_option *one)
{
	static char variable[96];

	snprintf(variable, sizeof(variable), "GPUMEM_%s", one->name);
	for (char *c = variable; *c; c++)
		*c = (char)toupper((unsigned char)*c);
	return variable;
}

/* Say that gpumem run has no such option. Returns -EINVAL. */
static int no_option(const char *word, size_t length)
{
	char name[128], words[4096] = "--output --quiet --library";
	size_t at = strlen(words);

	snprintf(name, sizeof(name), "--%.*s", (int)length, gm_show_clean(word));
	for (const struct gm_library_option *one = gm_library_options; one->name && at < sizeof(words); one++)
		at += (size_t)snprintf(words + at, sizeof(words) - at, " --%s", one->name);
	fprintf(stderr, "gpumem run: there is no option %s (gpumem options lists them)%s\n", name,
		gm_did_you_mean(name, words));
	return -EINVAL;
}

int gm_library_option_take(int argc, char **argv, int *index)
{
	const char *word = argv[*index], *equals = strchr(word, '=');
	const char *value = equals ? equals + 1 : NULL;
	const struct gm_library_option *one;
	size_t length;

	if (strncmp(word, "--", 2)) {
		fprintf(stderr, "gpumem run: '%s' is not an option\n", word);
		return -EINVAL;
	}
	word += 2;
	length = equals ? (size_t)(equals - word) : strlen(word);
	one = gm_library_option(word, length);
	if (!one) {
		return no_option(word, length);
	}
	if (!value && *index + 1 < argc && strncmp(argv[*index + 1], "--", 2))
		value = argv[++*index];
	if (!value) {
		fprintf(stderr, "gpumem run: --%s needs a value\n", one->name);
		return -EINVAL;
	}
	taken[one - gm_library_options] = true;
	return setenv(variable_of(one), value, 1) ? -errno : 0;
}

/* Return the name of the option whose variable is the first @length bytes of the library's message @line
 * ("GPUMEM_STACKS=..."), if it was given as a flag; NULL: it was set in the environment. */
static const char *flag_of(const char *line, size_t length)
{
	for (size_t i = 0; gm_library_options[i].name; i++) {
		const char *variable = variable_of(&gm_library_options[i]);

		if (taken[i] && !strncmp(line, variable, length) && !variable[length])
			return gm_library_options[i].name;
	}
	return NULL;
}

/* Print a message of the library, "GPUMEM_STACKS=nativ is not allowed: it takes ...; using all", in the words of the
 * command, and count it as an error. An unknown variable is no error, because it may be somebody else's: the library
 * warns of it, and the program starts. */
static void judged(void *arg, const char *line)
{
	const char *end = strstr(line, "; using ");
	int length = end ? (int)(end - line) : (int)strlen(line), name = (int)strcspn(line, "=");
	const char *flag = flag_of(line, (size_t)name);
	int *result = arg;

	if (strncmp(line, "GPUMEM_CONF: ", 13) && strstr(line, " is not an option (`gpumem options`"))
		return;
	if (flag)
		fprintf(stderr, "gpumem: --%s%.*s\n", flag, length - name, gm_show_clean(line + name));
	else
		fprintf(stderr, "gpumem: %.*s\n", length, gm_show_clean(line));
	*result = -EINVAL;
}

int gm_library_options_check(void)
{
	struct gm_options options;
	int result = 0;

	gm_options_read(&options, environ, judged, &result);
	return result ? result : gm_template_check("run", options.output) ? -EINVAL : 0;
}

/* Ignore a message of the library. */
static void unheard(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static struct gm_options options_now(void)
{
	struct gm_options options;

	gm_options_read(&options, environ, unheard, NULL);
	return options;
}

const char *gm_library_options_no_snapshot(void)
{
	struct gm_options options = options_now();

	if (!strcmp(options.output, "/dev/null"))
		return "gpumem: no snapshot: none was wanted (output=/dev/null)";
	if (!(options.snapshot_on & GM_ON_EXIT))
		return "gpumem: no snapshot: none was wanted of a program that ends by itself (snapshot_on)";
	return NULL;
}

bool gm_library_options_follow_off(void)
{
	return !options_now().follow;
}

/* ---- gpumem options ---------------------------------------------------------------------------- */

/* Write a text into a cell of a Markdown table, with | escaped. */
static void put_cell(const char *text)
{
	for (; *text; text++)
		printf(*text == '|' ? "\\%c" : "%c", *text);
}

static void print_markdown(const struct gm_library_option *one)
{
	const char *quote = one->initial[0] ? "`" : "";

	printf("| `%s` | %s%s%s | ", one->name, quote, one->initial, quote);
	put_cell(one->values);
	fputs(" | ", stdout);
	put_cell(one->help);
	puts(" |");
}

static void print_plain(const struct gm_library_option *one)
{
	gm_show_line(stdout, "    ", "%s  (default: %s; %s)", one->name, one->initial[0] ? one->initial : "empty",
		     one->values);
	gm_show_line(stdout, "    ", "    %s", one->help);
}

static json_t *object_of(const struct gm_library_option *one)
{
	return json_pack("{ss ss ss ss ss}", "name", one->name, "type", one->type, "default", one->initial,
			 "unit", one->values, "help", one->help);
}

int gm_verb_options(int argc, char **argv)
{
	bool json = false, markdown = false;
	const struct gm_argument arguments[] = {
		{ "json", GM_ARG_FLAG, &json }, { "markdown", GM_ARG_FLAG, &markdown }, { NULL, 0, NULL }
	};
	int status = gm_arguments(argc, argv, arguments, 0, INT_MAX);
	json_t *list;

	if (status >= 0)
		return status;
	for (int i = optind; i < argc; i++)
		if (!gm_library_option(argv[i], strlen(argv[i]))) {
			fprintf(stderr, "gpumem options: there is no option '%s'\n", argv[i]);
			return GM_EXIT_USAGE;
		}
	list = json ? json_array() : NULL;
	if (!json && markdown)
		puts("| option | default | values | meaning |\n| --- | --- | --- | --- |");
	for (const struct gm_library_option *one = gm_library_options; one->name; one++) {
		bool wanted = optind == argc;

		for (int i = optind; i < argc; i++)
			wanted |= gm_library_option(argv[i], strlen(argv[i])) == one;
		if (wanted && json)
			json_array_append_new(list, object_of(one));
		else if (wanted)
			(markdown ? print_markdown : print_plain)(one);
	}
	if (json)
		gm_show_document(stdout, list, 1);
	return gm_show_finish("options", GM_EXIT_OK);
}
