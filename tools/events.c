/*
 * events.c - gpumem events FILE|JOURNAL|PID: the trace, filtered, as a table, CSV or JSON lines.
 *
 * One thread, no signal context.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"
#include "tools/csv.h"
#include "tools/given.h"
#include "tools/lives.h"
#include "tools/load.h"
#include "tools/show.h"
#include "tools/stacks.h"
#include "tools/trace_rows.h"
#include "tools/units.h"
#include "tools/verbs.h"

struct filter {
	const char *actions, *kinds, *module, *device, *stack;
	uint64_t min_size, max_size, address;
	int64_t stream;
	bool has_address, has_stream, has_since, has_until;
	double since, until;
	int64_t since_us, until_us;
	size_t last;
	bool *stacks;			/* of @stack: by its number, does a stack have that text? */
	size_t stack_count;
};

/* Is @word one of the words of @list, parted by commas? */
static bool among(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, word, length) && (at[length] == ',' || !at[length]))
			return true;
	return false;
}

static bool passes(const struct filter *filter, const json_t *root, const struct gm_row *row)
{
	if (filter->actions && !among(filter->actions, row->action) &&
	    !(!strncmp(row->action, "free_", 5) && among(filter->actions, "free")))
		return false;
	if (filter->kinds && !among(filter->kinds, row->kind))
		return false;
	if (filter->device && (row->device == GM_ROW_HOST ? strcmp(filter->device, "host") != 0 :
			       strtol(filter->device, NULL, 10) != row->device ||
			       !strcmp(filter->device, "host")))
		return false;
	if (row->size < 0 || (uint64_t)row->size < filter->min_size || (uint64_t)row->size > filter->max_size)
		return false;
	if ((filter->has_stream && row->stream != filter->stream) ||
	    (filter->stack && (row->stack < 0 || (uint64_t)row->stack >= filter->stack_count ||
			       !filter->stacks[row->stack])))
		return false;
	/* An oom has the device's free bytes in place of an address. */
	if (filter->has_address && (!strcmp(row->action, "oom") || filter->address < row->address ||
				    (filter->address - row->address >= (uint64_t)row->size &&
				     filter->address != row->address)))
		return false;
	if ((filter->has_since && row->time_us < filter->since_us) ||
	    (filter->has_until && row->time_us > filter->until_us))
		return false;
	return !filter->module || strstr(gm_show_module_path(root, row->module), filter->module);
}

/* Which stacks have a frame whose function or source file has the text. Returns 0 or -ENOMEM. */
static int find_stacks(struct filter *filter, const json_t *root)
{
	struct gm_stacks stacks;
	bool *frames;
	size_t count;

	if (gm_stacks_open(&stacks, root))
		return -ENOMEM;
	frames = calloc(stacks.frame_count, sizeof(*frames));
	filter->stacks = calloc(stacks.count + 1, sizeof(*filter->stacks));
	filter->stack_count = filter->stacks ? stacks.count : 0;
	for (size_t i = 0; frames && i < stacks.frame_count; i++)
		frames[i] = strstr(stacks.frames[i].name, filter->stack) ||
			    strstr(stacks.frames[i].file, filter->stack);
	for (size_t i = 0; frames && i < filter->stack_count; i++) {
		const uint32_t *ids = gm_stack(&stacks, (int64_t)i, &count);

		while (count--)
			filter->stacks[i] |= frames[ids[count]];
	}
	count = frames && filter->stacks;
	free(frames);
	gm_stacks_close(&stacks);
	return count ? 0 : -ENOMEM;
}

static void put_csv(struct gm_sink *sink, const json_t *root, const struct gm_row *row)
{
	gm_csv_begin_row(sink, row);
	gm_sink_number(sink, row->stack);
	gm_sink_put(sink, ",", 1);
	gm_csv_quoted(sink, gm_show_module_path(root, row->module));
	gm_sink_put(sink, "\n", 1);
}

/* ,"name":"text" */
static int put_json_text(struct gm_sink *sink, const char *name, const char *text)
{
	char *quoted = NULL;
	json_t *string;
	size_t bytes;
	FILE *to;

	gm_sink_text(sink, name);
	/* Letters that begin with the last three may be such as a terminal obeys: see gm_show_control. */
	if (!text[strcspn(text, "\"\\\1\2\3\4\5\6\a\b\t\n\v\f\r\16\17\20\21\22\23\24\25\26\27\30\31\32"
			     "\33\34\35\36\37\177\302\330\342")]) {
		gm_sink_put(sink, "\"", 1);
		gm_sink_text(sink, text);
		gm_sink_put(sink, "\"", 1);
		return 0;
	}
	string = json_string(text);
	to = open_memstream(&quoted, &bytes);
	if (to && string)
		gm_show_json(to, string, JSON_ENCODE_ANY);
	if (to)
		fclose(to);
	if (quoted)
		gm_sink_text(sink, quoted);
	free(quoted);
	json_decref(string);
	return to && string ? 0 : -ENOMEM;
}

static void put_json_number(struct gm_sink *sink, const char *name, int64_t number)
{
	gm_sink_text(sink, name);
	gm_sink_number(sink, number);
}

static int put_jsonl(struct gm_sink *sink, const json_t *root, const struct gm_row *row)
{
	int r;

	put_json_number(sink, "{\"time_us\":", row->time_us);
	r = put_json_text(sink, ",\"action\":", row->action);
	put_json_number(sink, ",\"addr\":", (int64_t)row->address);
	put_json_number(sink, ",\"size\":", row->size);
	put_json_number(sink, ",\"stream\":", row->stream);
	r = put_json_text(sink, ",\"kind\":", row->kind) ? -ENOMEM : r;
	put_json_number(sink, ",\"thread\":", row->thread);
	put_json_number(sink, ",\"stack\":", row->stack);
	r = put_json_text(sink, ",\"module\":", gm_show_module_path(root, row->module)) ? -ENOMEM : r;
	if (row->device == GM_ROW_HOST)
		gm_sink_text(sink, ",\"device\":null");
	else
		put_json_number(sink, ",\"device\":", row->device);
	gm_sink_text(sink, "}\n");
	return r;
}

static int print_lines(const json_t *root, const struct gm_row *rows, size_t count, bool csv)
{
	struct gm_sink sink;
	int r = gm_sink_open(&sink, stdout), end;

	if (r)
		return r;
	if (csv)
		gm_sink_text(&sink, "time_us,device,action,addr,size,stream,kind,thread,stack,module\n");
	for (size_t i = 0; i < count && !sink.error && !r; i++)
		if (csv)
			put_csv(&sink, root, &rows[i]);
		else
			r = put_jsonl(&sink, root, &rows[i]);
	end = gm_sink_close(&sink);
	return r ? r : end;
}

/* ---- the table -------------------------------------------------------------------------------- */

/* Words as they are shown, by where they lie in the snapshot: a million events have few. */
#define WORDS 64u			/* a power of two */

struct word { const void *of; size_t length; char text[1024]; };
struct table { struct gm_sink sink; struct word words[WORDS]; };

/* @text is static memory of whoever cleaned it. */
static const struct word *keep_word(struct word *word, const void *of, const char *text)
{
	word->of = of;
	word->length = strlen(text);
	memcpy(word->text, text, word->length + 1);
	return word;
}

static struct word *place_of(struct table *table, const void *of)
{
	return &table->words[((uintptr_t)of >> 3) * UINT32_C(0x9e3779b1) >> 7 & (WORDS - 1)];
}

static const struct word *word_of(struct table *table, const char *text)
{
	struct word *word = place_of(table, text);

	return word->of == text ? word : keep_word(word, text, gm_show_clean(text));
}

static const struct word *module_of(struct table *table, const json_t *root, int64_t module)
{
	const char *path = gm_show_module_path(root, module);
	struct word *word = place_of(table, path);

	return word->of == path ? word : keep_word(word, path, gm_show_module(root, module));
}

static void put_blanks(struct gm_sink *sink, size_t length, size_t width)
{
	static const char blanks[] = "                                ";

	if (length < width)
		gm_sink_put(sink, blanks, width - length);
}

/* At the right of @width letters, and a blank. */
static void put_right(struct gm_sink *sink, const char *text, size_t length, size_t width)
{
	put_blanks(sink, length, width);
	gm_sink_put(sink, text, length);
	gm_sink_put(sink, " ", 1);
}

static void put_left(struct gm_sink *sink, const struct word *word, size_t width)
{
	gm_sink_put(sink, word->text, word->length);
	put_blanks(sink, word->length, width);
	gm_sink_put(sink, " ", 1);
}

/* Seconds, with six digits behind the point. */
static void put_seconds(struct gm_sink *sink, int64_t time_us)
{
	uint64_t us = time_us < 0 ? 0 - (uint64_t)time_us : (uint64_t)time_us;
	char room[24], point[7] = ".", *digits = gm_sink_digits(room, us % 1000000 + 1000000, false);
	char whole[32];
	size_t length;

	memcpy(point + 1, digits + 1, 6);
	digits = gm_sink_digits(room, us / 1000000, time_us < 0);
	length = (size_t)(room + sizeof(room) - digits);
	memcpy(whole, digits, length);
	memcpy(whole + length, point, sizeof(point));
	put_right(sink, whole, length + sizeof(point), 14);
}

static void put_signed(struct gm_sink *sink, int64_t number, size_t width)
{
	char room[24], *at = gm_sink_digits(room, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, number < 0);

	put_right(sink, at, (size_t)(room + sizeof(room) - at), width);
}

static void put_table_row(struct table *table, const json_t *root, const struct gm_row *row, int64_t origin_us)
{
	struct gm_sink *sink = &table->sink;
	const struct word *module;
	char address[64];
	const char *size;
	int length;

	put_seconds(sink, gm_wrap_subtract(row->time_us, origin_us));
	if (row->device == GM_ROW_HOST)
		put_right(sink, "host", 4, 6);
	else
		put_signed(sink, row->device, 6);
	put_left(sink, word_of(table, row->action), 14);
	if (!strcmp(row->action, "oom"))
		length = snprintf(address, sizeof(address), "%s free", gm_show_bytes((int64_t)row->address));
	else
		length = snprintf(address, sizeof(address), "%#llx", (unsigned long long)row->address);
	put_right(sink, address, (size_t)length, 18);
	size = gm_show_bytes(row->size);
	put_right(sink, size, strlen(size), 12);
	put_left(sink, word_of(table, row->kind), 8);
	put_signed(sink, row->thread, 8);
	module = module_of(table, root, row->module);
	gm_sink_put(sink, " ", 1);
	gm_sink_put(sink, module->text, module->length);
	gm_sink_put(sink, "\n", 1);
}

static int print_table(const json_t *root, const struct gm_row *rows, size_t count, int64_t origin_us)
{
	struct table *table = calloc(1, sizeof(*table));
	int r = table ? gm_sink_open(&table->sink, stdout) : -ENOMEM;

	for (size_t i = 0; !r && i < count && !table->sink.error; i++)
		put_table_row(table, root, &rows[i], origin_us);
	if (!r)
		r = gm_sink_close(&table->sink);
	free(table);
	return r;
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* The moment that a table's times count from. */
static int64_t origin_of(const json_t *root, const struct gm_row *rows, size_t count)
{
	int64_t start = gm_json_number(gm_json_object(root, "process"), "start_time_us");

	return start > 0 || !count ? start : rows[0].time_us;
}

static int64_t moment(double time, int64_t origin_us, int64_t end_us)
{
	if (time >= 1e12)
		return (int64_t)time;
	return gm_wrap_add((int64_t)(time * 1e6 + (time < 0 ? -0.5 : 0.5)), time < 0 ? end_us : origin_us);
}

enum format { TABLE, CSV, JSONL };

static int print_rows(const json_t *root, struct gm_row *rows, size_t count,
		      struct filter *filter, enum format format)
{
	int64_t origin_us = origin_of(root, rows, count);
	int64_t end_us = count ? rows[count - 1].time_us : origin_us;
	size_t kept = 0, first;

	filter->since_us = moment(filter->since, origin_us, end_us);
	filter->until_us = moment(filter->until, origin_us, end_us);
	for (size_t i = 0; i < count; i++)
		if (passes(filter, root, &rows[i]))
			rows[kept++] = rows[i];
	first = kept > filter->last ? kept - filter->last : 0;
	if (format != TABLE)
		return print_lines(root, rows + first, kept - first, format == CSV);
	gm_show_heading(stdout, "%14s %6s %-14s %18s %12s %-8s %8s  %s", "seconds", "device", "action",
			"address", "size", "kind", "thread", "module");
	return print_table(root, rows + first, kept - first, origin_us);
}

static int print_events(const char *word, struct filter *filter, enum format format)
{
	struct gm_row *rows = NULL;
	struct gm_loaded loaded;
	size_t count = 0;
	int status, r;

	if (gm_load(word, &loaded))
		return gm_given_bad("events", word, loaded.error);
	status = gm_given_device("events", filter->device, word, &loaded, 1);
	if (status) {
		gm_load_free(&loaded);
		return status;
	}
	r = (filter->stack && find_stacks(filter, loaded.root)) || gm_rows_of(loaded.root, &rows, &count) ? -ENOMEM :
	    print_rows(loaded.root, rows, count, filter, format);
	free(rows);
	free(filter->stacks);
	gm_load_free(&loaded);
	if (r == -ENOMEM) {
		fprintf(stderr, "gpumem events: %s: not enough memory\n", word);
		return GM_EXIT_INPUT;
	}
	if (r) {
		fprintf(stderr, "gpumem events: the output could not be written: %s\n", strerror(-r));
		return GM_EXIT_FAILED;
	}
	return gm_show_end("events", GM_EXIT_OK);
}

/* One argument that is not as it should be: a line, and the status. */
static int wrong(const char *option, const char *value, const char *allowed)
{
	fprintf(stderr, "gpumem events: %s %s: not %s\n", option, gm_show_clean(value), allowed);
	return GM_EXIT_USAGE;
}

static bool read_seconds(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end != text && !*end && isfinite(*ret) && *ret > -1e12 && *ret < 1e18;
}

/* Words that are none of ours would silently let nothing through. */
static bool all_known(const char *list, const char *known)
{
	char word[32];

	for (const char *at = list;; at++) {
		size_t length = strcspn(at, ",");

		snprintf(word, sizeof(word), "%.*s", (int)(length < 31 ? length : 31), at);
		if (!length || !among(known, word))
			return false;
		at += length;
		if (!*at)
			return true;
	}
}

static int take_option(int c, struct filter *filter)
{
	static const char actions[] = "alloc,free,free_requested,free_completed,segment_alloc,"
		"segment_free,segment_map,segment_unmap,oom,snapshot,annotate";
	static const char kinds[] = "device,managed,array,host,vmm,pool,ipc,graph,external";
	char *end;

	errno = 0;
	switch (c) {
	case 'a':
		filter->actions = optarg;
		return all_known(optarg, actions) ? 0 : wrong("--action", optarg, actions);
	case 'k':
		filter->kinds = optarg;
		return all_known(optarg, kinds) ? 0 : wrong("--kind", optarg, kinds);
	case 'd':
		filter->device = optarg;
		strtol(optarg, &end, 10);
		return !strcmp(optarg, "host") || (end != optarg && !*end) ? 0 :
			wrong("--device", optarg, "a number or 'host'");
	case 'm':
		filter->module = optarg;
		return 0;
	case 'S':
		filter->stack = optarg;
		return 0;
	case 'x':
		return gm_units_parse(optarg, &filter->max_size) ?
			wrong("--max-size", optarg, "a size, as 4096 or 10MiB") : 0;
	case 'r':
		filter->has_stream = true;
		filter->stream = (int64_t)strtoull(optarg, &end, 0);
		return end != optarg && !*end && !errno ? 0 : wrong("--stream", optarg, "a number, as 0 or 0x55d1c0de");
	case 'n':
		return gm_given_count(optarg, &filter->last) ? wrong("--last", optarg, "a number") : 0;
	case 's':
		return gm_units_parse(optarg, &filter->min_size) ?
			wrong("--min-size", optarg, "a size, as 4096 or 10MiB") : 0;
	case 'A':
		filter->has_address = true;
		filter->address = strtoull(optarg, &end, 16);
		return end != optarg && !*end && !errno ? 0 : wrong("--address", optarg, "a hexadecimal number");
	case 'f':
		filter->has_since = true;
		return read_seconds(optarg, &filter->since) ? 0 : wrong("--since", optarg, "a time");
	default:
		filter->has_until = true;
		return read_seconds(optarg, &filter->until) ? 0 : wrong("--until", optarg, "a time");
	}
}

int gm_verb_events(int argc, char **argv)
{
	struct filter filter = { .last = SIZE_MAX, .max_size = UINT64_MAX };
	enum format format = TABLE;
	int c, status;

	while ((c = gm_cli_next(argc, argv)) >= 0) {
		if (c == 'h' || c == '?') {
			return gm_cli_end(c);
		}
		if (c == 'c' || c == 'j') {
			format = c == 'c' ? CSV : JSONL;
			continue;
		}
		status = take_option(c, &filter);
		if (status)
			return status;
	}
	if (argc - optind != 1) {
		return gm_cli_inputs("events", argc - optind);
	}
	return print_events(argv[optind], &filter, format);
}
