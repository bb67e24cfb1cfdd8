/*
 * options.c - read the options of options.def.
 *
 * GPUMEM_CONF is read first, then each GPUMEM_<NAME>, which wins. The grammar of GPUMEM_CONF is that of
 * PYTORCH_CUDA_ALLOC_CONF: name:value,name:value. Lists stand in brackets; lists of words, such as those of
 * snapshot_on, need no brackets. A value may contain colons.
 *
 * Thread context: any one thread. Signal context: none. No malloc, no stdio, no locale.
 */
#include <errno.h>
#include <string.h>

#include "allocator/heap.h"
#include "preload/options/options.h"

#define PREFIX "GPUMEM_"
#define MAX_COMPLAINTS 16
#define MIB (UINT64_C(1) << 20)

static const struct gm_option_row rows[GM_OPTION_COUNT] = {
#define GM_OPTION(name, type, dflt, min, max, unit, help) \
	{ #name, dflt, unit, min, max, GM_TYPE_##type, offsetof(struct gm_options, name) },
#include "preload/options/options.def"
};

struct reader {
	struct gm_options *options;
	gm_option_said *said;
	void *arg;
	int complaints;
	bool alone;			/* read only the settings of a heap: a mistake refuses the text */
	bool others;			/* ignore unknown keys */
};

/* ---- complaints -------------------------------------------------------------------------------- */

struct complaint {
	struct gm_line line;
	char text[1536];
};

static struct gm_line *begin(struct complaint *complaint)
{
	complaint->line = (struct gm_line){ complaint->text, sizeof(complaint->text), 0 };
	complaint->text[0] = '\0';
	return &complaint->line;
}

static void say(struct reader *reader, const struct complaint *complaint)
{
	if (!reader->said)
		return;
	if (++reader->complaints <= MAX_COMPLAINTS)
		reader->said(reader->arg, complaint->text);
	else if (reader->complaints == MAX_COMPLAINTS + 1)
		reader->said(reader->arg, "more is wrong with the options than is said here");
}

/* Append a value as the user wrote it, cut if it is very long. */
static void add_value(struct gm_line *line, struct gm_slice value)
{
	struct gm_slice part = value;

	part.length = part.length > 200 ? 200 : part.length;
	gm_line_add_slice(line, part);
	gm_line_add(line, part.length < value.length ? "..." : "");
}

static void add_origin(struct gm_line *line, const struct reader *reader, bool conf)
{
	gm_line_add(line, reader->alone ? "" : conf ? "GPUMEM_CONF: " : PREFIX);
}

static void add_variable(struct gm_line *line, const struct reader *reader,
			 const struct gm_option_row *row, bool conf)
{
	add_origin(line, reader, conf);
	if (conf) {
		gm_line_add(line, row->name);
		return;
	}
	for (const char *c = row->name; *c; c++) {
		bool small = *c >= 'a' && *c <= 'z';
		char letter = small ? (char)(*c - ('a' - 'A')) : *c;

		gm_line_add_slice(line, (struct gm_slice){ &letter, 1 });
	}
}

static void bad_value(struct reader *reader, const struct gm_option_row *row, bool conf,
		      struct gm_slice value, const char *instead)
{
	struct complaint complaint;
	struct gm_line *line = begin(&complaint);
	size_t before;

	add_variable(line, reader, row, conf);
	gm_line_add(line, conf ? ":" : "=");
	add_value(line, value);
	gm_line_add(line, " is not allowed: it takes ");
	if (instead)
		gm_line_add(line, instead);
	else
		gm_value_allowed(row, line);
	if (!reader->alone) {
		gm_line_add(line, "; using ");
		before = line->used;
		gm_value_format(row, reader->options, line);
		if (line->used == before)
			gm_line_add(line, "the default");
	}
	say(reader, &complaint);
}

static void unknown(struct reader *reader, struct gm_slice name, bool conf)
{
	struct complaint complaint;
	struct gm_line *line = begin(&complaint);
	const struct gm_option_row *close = NULL;

	if (reader->others)
		return;
	for (size_t i = 0; i < GM_OPTION_COUNT && !close; i++)
		if (gm_slice_is_near(name, rows[i].name))
			close = &rows[i];
	add_origin(line, reader, conf);
	add_value(line, name);
	gm_line_add(line, " is not an option");
	if (close) {
		gm_line_add(line, ": did you mean ");
		add_variable(line, reader, close, conf);
		gm_line_add(line, "?");
	} else {
		gm_line_add(line, " (`gpumem options` lists them)");
	}
	say(reader, &complaint);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static const struct gm_option_row *find(struct gm_slice name)
{
	for (size_t i = 0; i < GM_OPTION_COUNT; i++)
		if (gm_slice_is(name, rows[i].name))
			return &rows[i];
	return NULL;
}

/* Check a rule that the type cannot express. Returns NULL, or a text that says which values are allowed. */
static const char *refused(const struct gm_option_row *row, const struct gm_options *options)
{
	double threshold = options->garbage_collection_threshold;

	return row - rows == GM_OPTION_garbage_collection_threshold && !(threshold > 0 && threshold < 1) ?
	       "a fraction above 0 and below 1" : NULL;
}

static void set(struct reader *reader, const struct gm_option_row *row, struct gm_slice value,
		bool conf)
{
	struct gm_options *options = reader->options;
	struct gm_options before = *options;
	const char *instead = NULL, *mark;
	bool good;

	/* In "no@4711" the number is the process that was started with the option (follow.c): leave it out. */
	mark = row - rows == GM_OPTION_follow ? memchr(value.text, '@', value.length) : NULL;
	if (mark)
		value.length = (size_t)(mark - value.text);
	good = gm_value_parse(row, value, options);
	if (good) {
		instead = refused(row, options);
		good = !instead;
	}
	if (!good) {
		*options = before;
		bad_value(reader, row, conf, value, instead);
		return;
	}
	options->source[row - rows] = conf ? GM_SOURCE_CONF : GM_SOURCE_VARIABLE;
}

/* Extend @value, a set without brackets, by the words up to the next pair with a colon:
 * snapshot_on:exit,oom,stacks:none. */
static void take_more_words(struct gm_slice *value, struct gm_slice *rest)
{
	while (rest->length) {
		struct gm_slice after = *rest, word = gm_slice_cut(&after, ',');

		if (memchr(word.text, ':', word.length))
			break;
		if (word.length)
			value->length = (size_t)(word.text + word.length - value->text);
		*rest = after;
	}
}

static void read_conf(struct reader *reader, const char *text)
{
	struct gm_slice rest = gm_slice_of(text);

	while (rest.length) {
		struct gm_slice pair = gm_slice_cut(&rest, ','), name = pair;
		const struct gm_option_row *row;
		size_t colon = 0;

		if (!pair.length)
			continue;
		while (colon < pair.length && pair.text[colon] != ':')
			colon++;
		name.length = colon;
		name = gm_slice_trim(name);
		row = find(name);
		if (!row) {
			unknown(reader, name, true);
			continue;
		}
		if (colon < pair.length)
			colon++;
		pair.text += colon;
		pair.length -= colon;
		if (row->type == GM_TYPE_SET)
			take_more_words(&pair, &rest);
		set(reader, row, gm_slice_trim(pair), true);
	}
}

static void read_variables(struct reader *reader, char *const *environment)
{
	for (char *const *at = environment; *at; at++) {
		const struct gm_option_row *row;
		struct gm_slice name;
		const char *equals;

		if (strncmp(*at, PREFIX, sizeof(PREFIX) - 1) != 0)
			continue;
		equals = strchr(*at, '=');
		if (!equals)
			continue;
		name.text = *at + sizeof(PREFIX) - 1;
		name.length = (size_t)(equals - name.text);
		if (gm_slice_is(name, "conf"))
			continue;
		row = find(name);
		if (row)
			set(reader, row, gm_slice_trim(gm_slice_of(equals + 1)), false);
		else
			unknown(reader, name, false);
	}
}

/* Apply limits that depend on another option. */
static void apply_dependent_limits(struct reader *reader)
{
	struct gm_options *options = reader->options;
	static const enum gm_option_id ids[] = { GM_OPTION_max_split_size_mb,
						 GM_OPTION_max_non_split_rounding_mb };
	char text[64];
	struct gm_line line = { text, sizeof(text), 0 };

	if (options->source[GM_OPTION_max_non_split_rounding_mb] == GM_SOURCE_DEFAULT)
		options->max_non_split_rounding_mb = options->large_segment_size_mb;
	gm_line_add(&line, "a number of MiB from ");
	gm_line_add_number(&line, options->large_segment_size_mb / MIB);
	gm_line_add(&line, " (large_segment_size_mb) up");
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		const struct gm_option_row *row = &rows[ids[i]];
		uint64_t *value = (void *)((char *)options + row->offset);
		char value_text[32];
		struct gm_line bad = { value_text, sizeof(value_text), 0 };

		if (*value >= options->large_segment_size_mb)
			continue;
		gm_value_format(row, options, &bad);
		*value = i == 0 ? GM_UNLIMITED : options->large_segment_size_mb;
		bad_value(reader, row, options->source[ids[i]] == GM_SOURCE_CONF,
			  gm_slice_of(value_text), text);
		options->source[ids[i]] = GM_SOURCE_DEFAULT;
	}
}

static void set_defaults(struct gm_options *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < GM_OPTION_COUNT; i++)
		gm_value_parse(&rows[i], gm_slice_of(rows[i].initial), ret);
}

void gm_options_read(struct gm_options *ret, char *const *environment,
		     gm_option_said *said, void *arg)
{
	struct reader reader = { .options = ret, .said = said, .arg = arg };

	set_defaults(ret);
	if (!environment)
		return;
	for (char *const *at = environment; *at; at++)
		if (strncmp(*at, PREFIX "CONF=", sizeof(PREFIX "CONF=") - 1) == 0)
			read_conf(&reader, *at + sizeof(PREFIX "CONF=") - 1);
	read_variables(&reader, environment);
	apply_dependent_limits(&reader);
}

/* ---- the settings of a heap -------------------------------------------------------------------- */

void gm_options_heap(const struct gm_options *options, struct gm_heap_config *ret)
{
	_Static_assert(GM_DIVISION_BINS == GM_HEAP_DIVISION_BINS && GM_UNLIMITED == GM_HEAP_UNLIMITED,
		       "the same values");
	gm_heap_config_default(ret);
	ret->large_segment_size = options->large_segment_size_mb;
	ret->max_split_size = options->max_split_size_mb;
	ret->max_non_split_rounding = options->max_non_split_rounding_mb;
	ret->garbage_collection_threshold = options->garbage_collection_threshold;
	memcpy(ret->roundup_power2_divisions, options->roundup_power2_divisions.bins,
	       sizeof(ret->roundup_power2_divisions));
}

static void keep_first(void *arg, const char *text)
{
	struct gm_line line = { arg, GM_OPTION_ERROR_BYTES, 0 };

	if (!*line.text)
		gm_line_add(&line, text);
}

int gm_options_heap_parse(struct gm_heap_config *ret, const char *text, bool others,
			  char ret_error[GM_OPTION_ERROR_BYTES])
{
	struct gm_options options;
	struct reader reader = { .options = &options, .said = keep_first, .arg = ret_error,
				 .alone = true, .others = others };

	ret_error[0] = '\0';
	set_defaults(&options);
	read_conf(&reader, text);
	apply_dependent_limits(&reader);
	gm_options_heap(&options, ret);
	return ret_error[0] ? -EINVAL : 0;
}

/* ---- values as text ---------------------------------------------------------------------------- */

size_t gm_options_format(const struct gm_options *options, enum gm_option_id id,
			 char *buffer, size_t bytes)
{
	struct gm_line line = { buffer, bytes, 0 };

	if (bytes)
		buffer[0] = '\0';
	gm_value_format(&rows[id], options, &line);
	return line.used;
}

const char *gm_options_name(enum gm_option_id id)
{
	return rows[id].name;
}

const char *gm_options_source(const struct gm_options *options, enum gm_option_id id)
{
	static const char *const names[] = { "default", "GPUMEM_CONF", "environment", "gpumem" };

	return names[options->source[id]];
}
