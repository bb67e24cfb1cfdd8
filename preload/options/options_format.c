/*
 * options_format.c - write an option's value, and the allowed values, as text; see options_value.h.
 */
#include <signal.h>
#include <stddef.h>

#include "preload/options/options_value.h"

#define MIB (UINT64_C(1) << 20)

const struct gm_signal_name gm_signal_names[] = {
	{ "USR1", SIGUSR1 }, { "USR2", SIGUSR2 }, { "HUP", SIGHUP }, { "INT", SIGINT },
	{ "QUIT", SIGQUIT }, { "ALRM", SIGALRM }, { "TERM", SIGTERM }, { "VTALRM", SIGVTALRM },
	{ "PROF", SIGPROF }, { "IO", SIGIO }, { "PWR", SIGPWR }, { "WINCH", SIGWINCH },
	{ "URG", SIGURG }, { "XCPU", SIGXCPU }, { "XFSZ", SIGXFSZ }, { NULL, 0 },
};

/* Return the word with index @place in "a|b|c". */
static struct gm_slice word_at(const char *list, unsigned int place)
{
	struct gm_slice rest = gm_slice_of(list), word = { "", 0 };

	for (unsigned int i = 0; i <= place && rest.length; i++)
		word = gm_slice_cut(&rest, '|');
	return word;
}

static void format_size(struct gm_line *line, uint64_t value, bool in_mib)
{
	static const char *const names[] = { "", "KiB", "MiB", "GiB", "TiB" };
	unsigned int unit = 0;

	if (value == GM_UNLIMITED) {
		gm_line_add(line, "unlimited");
		return;
	}
	if (in_mib) {
		gm_line_add_number(line, value / MIB);
		return;
	}
	while (value && value % 1024 == 0 && unit < 4) {
		value /= 1024;
		unit++;
	}
	gm_line_add_number(line, value);
	gm_line_add(line, names[unit]);
}

static void format_fraction(struct gm_line *line, double value)
{
	uint64_t billionths = (uint64_t)(value * 1e9 + 0.5), part = billionths % 1000000000;
	char digits[9];
	size_t n = sizeof(digits);

	gm_line_add_number(line, billionths / 1000000000);
	if (!part)
		return;
	for (size_t i = sizeof(digits); i-- > 0; part /= 10)
		digits[i] = (char)('0' + part % 10);
	while (digits[n - 1] == '0')
		n--;
	gm_line_add(line, ".");
	gm_line_add_slice(line, (struct gm_slice){ digits, n });
}

static void format_set(struct gm_line *line, uint32_t set, const char *words)
{
	const char *separator = "";

	for (unsigned int i = 0; i < 32; i++) {
		if (!(set >> i & 1))
			continue;
		gm_line_add(line, separator);
		gm_line_add_slice(line, word_at(words, i));
		separator = ",";
	}
}

static void format_signal(struct gm_line *line, uint32_t number)
{
	if (!number) {
		gm_line_add(line, "none");
		return;
	}
	for (size_t i = 0; gm_signal_names[i].name; i++)
		if (gm_signal_names[i].number == number) {
			gm_line_add(line, gm_signal_names[i].name);
			return;
		}
	gm_line_add_number(line, number);
}

static void format_divisions(struct gm_line *line, const struct gm_divisions *divisions)
{
	bool same = true;

	for (unsigned int i = 1; i < GM_DIVISION_BINS; i++)
		same &= divisions->bins[i] == divisions->bins[0];
	if (same) {
		gm_line_add_number(line, divisions->bins[0]);
		return;
	}
	for (unsigned int i = 0; i < GM_DIVISION_BINS; i++) {
		gm_line_add(line, i ? "," : "[");
		gm_line_add_number(line, UINT64_C(1) << i);
		gm_line_add(line, ":");
		gm_line_add_number(line, divisions->bins[i]);
	}
	gm_line_add(line, "]");
}

void gm_value_format(const struct gm_option_row *row, const struct gm_options *options,
		     struct gm_line *line)
{
	const void *value = (const char *)options + row->offset;

	switch (row->type) {
	case GM_TYPE_SIZE:
		format_size(line, *(const uint64_t *)value, false);
		break;
	case GM_TYPE_SIZE_MB:
		format_size(line, *(const uint64_t *)value, true);
		break;
	case GM_TYPE_COUNT:
		gm_line_add_number(line, *(const uint64_t *)value);
		break;
	case GM_TYPE_BOOL:	/* unit: "True|False" or "yes|no" */
		gm_line_add_slice(line, word_at(row->unit, !*(const bool *)value));
		break;
	case GM_TYPE_FRACTION:
		format_fraction(line, *(const double *)value);
		break;
	case GM_TYPE_CHOICE:
		gm_line_add_slice(line, word_at(row->unit, *(const uint32_t *)value));
		break;
	case GM_TYPE_SET:
		format_set(line, *(const uint32_t *)value, row->unit);
		break;
	case GM_TYPE_SIGNAL:
		format_signal(line, *(const uint32_t *)value);
		break;
	case GM_TYPE_TEXT:
		gm_line_add(line, value);
		break;
	case GM_TYPE_DIVISIONS:
		format_divisions(line, value);
		break;
	}
}

static void add_range(const struct gm_option_row *row, bool in_mib, struct gm_line *line)
{
	uint64_t scale = in_mib ? MIB : 1;

	gm_line_add(line, " from ");
	gm_line_add_number(line, row->min / scale);
	if (row->max == GM_UNLIMITED) {
		gm_line_add(line, " up, or unlimited");
		return;
	}
	gm_line_add(line, " to ");
	gm_line_add_number(line, row->max / scale);
}

static void add_words(const char *words, struct gm_line *line)
{
	struct gm_slice rest = gm_slice_of(words);

	while (rest.length) {
		gm_line_add_slice(line, gm_slice_cut(&rest, '|'));
		gm_line_add(line, rest.length ? ", " : "");
	}
}

void gm_value_allowed(const struct gm_option_row *row, struct gm_line *line)
{
	switch (row->type) {
	case GM_TYPE_SIZE:
		gm_line_add(line, "a size in bytes, or as 512MB or 40GiB,");
		add_range(row, false, line);
		break;
	case GM_TYPE_SIZE_MB:
		gm_line_add(line, "a number of MiB");
		add_range(row, true, line);
		break;
	case GM_TYPE_COUNT:
	case GM_TYPE_FRACTION:
		gm_line_add(line, row->type == GM_TYPE_COUNT ? "a number" : "a fraction");
		add_range(row, false, line);
		gm_line_add(line, " (");
		gm_line_add(line, row->unit);
		gm_line_add(line, ")");
		break;
	case GM_TYPE_BOOL:
	case GM_TYPE_CHOICE:
		gm_line_add(line, "one of ");
		add_words(row->unit, line);
		break;
	case GM_TYPE_SET:
		gm_line_add(line, "a list of ");
		add_words(row->unit, line);
		break;
	case GM_TYPE_SIGNAL:
		gm_line_add(line, "a signal that programs may take (USR1, USR2, 34 to 64, ...), or none");
		break;
	case GM_TYPE_TEXT:
		gm_line_add(line, "text of at most 1023 bytes (");
		gm_line_add(line, row->unit);
		gm_line_add(line, ")");
		break;
	case GM_TYPE_DIVISIONS:
		gm_line_add(line, row->unit);
		break;
	}
}
