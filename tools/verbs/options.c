/*
 * options.c - gpumem options: every option of the library, from the library's own table.
 *
 * One thread, no signal context.
 */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/verbs/cli.h"
#include "tools/show/show.h"
#include "tools/verbs/verbs.h"

static const struct row { const char *name, *type, *initial, *unit, *help; } rows[] = {
#define GM_OPTION(name, type, dflt, min, max, unit, help) { #name, #type, dflt, unit, help },
#include "preload/options/options.def"
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Text in a table's cell: a bar is the list of words of a choice. */
static void cell(const char *text)
{
	for (; *text; text++)
		fputs(*text == '|' ? "\\|" : (char[]){ *text, '\0' }, stdout);
}

static void print_markdown(const struct row *row)
{
	printf("| `%s` | %s%s%s | ", row->name, row->initial[0] ? "`" : "", row->initial,
	       row->initial[0] ? "`" : "");
	cell(row->unit);
	fputs(" | ", stdout);
	cell(row->help);
	puts(" |");
}

static void print_plain(const struct row *row)
{
	printf("%s  (default: %s; %s)\n    %s\n", row->name, row->initial[0] ? row->initial : "empty",
	       row->unit, row->help);
}

static int print_json(int argc, char **argv)
{
	json_t *list = json_array();
	int r;

	for (size_t i = 0; i < ROWS; i++) {
		int wanted = argc == 0;

		for (int a = 0; a < argc; a++)
			wanted |= !strcmp(argv[a], rows[i].name);
		if (wanted)
			json_array_append_new(list, json_pack("{ss ss ss ss ss}", "name", rows[i].name,
				"type", rows[i].type, "default", rows[i].initial, "unit",
				rows[i].unit, "help", rows[i].help));
	}
	r = gm_show_json(stdout, list, JSON_INDENT(1));
	putchar('\n');
	json_decref(list);
	return gm_show_end("options", r ? GM_EXIT_FAILED : GM_EXIT_OK);
}

static const struct row *find(const char *name)
{
	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(rows[i].name, name))
			return &rows[i];
	return NULL;
}

int gm_verb_options(int argc, char **argv)
{
	void (*print)(const struct row *) = print_plain;
	int c, json = 0;

	while ((c = gm_cli_next(argc, argv)) >= 0) {
		if (c == 'j') {
			json = 1;
		} else if (c == 'm') {
			print = print_markdown;
		} else {
			return gm_cli_end(c);
		}
	}
	for (int i = optind; i < argc; i++)
		if (!find(argv[i])) {
			fprintf(stderr, "gpumem options: there is no option '%s'\n", argv[i]);
			return GM_EXIT_USAGE;
		}
	if (json)
		return print_json(argc - optind, argv + optind);
	if (print == print_markdown)
		puts("| option | default | values | meaning |\n| --- | --- | --- | --- |");
	for (size_t i = 0; i < ROWS && optind == argc; i++)
		print(&rows[i]);
	for (int i = optind; i < argc; i++)
		print(find(argv[i]));
	return gm_show_end("options", GM_EXIT_OK);
}
