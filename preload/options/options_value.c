/*
 * options_value.c - parse an option's value, with one function for each type; see options_value.h.
 *
 * PyTorch's options have PyTorch's limits (CUDAAllocatorConfig).
 */
#include <string.h>

#include "preload/options/options_value.h"

#define MIB (UINT64_C(1) << 20)

/* ---- numbers ----------------------------------------------------------------------------------- */

/* Take a number from the start of @text. Returns false when there is none, or it overflows. */
static bool take_number(struct gm_slice *text, uint64_t *ret)
{
	uint64_t value = 0;
	size_t i = 0;

	for (; i < text->length && text->text[i] >= '0' && text->text[i] <= '9'; i++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(text->text[i] - '0'), &value))
			return false;
	text->text += i;
	text->length -= i;
	*ret = value;
	return i > 0;
}

static bool parse_number(struct gm_slice text, uint64_t *ret)
{
	return take_number(&text, ret) && text.length == 0;
}

/* Parse 0.8, .8 or 1. Digits beyond the ninth after the point do not count. */
static bool parse_fraction(struct gm_slice text, double *ret)
{
	uint64_t whole = 0, part = 0, unit = 1;

	if (!text.length || (text.text[0] != '.' && !take_number(&text, &whole)))
		return false;
	if (text.length == 1 && text.text[0] == '.')
		return false;
	if (text.length) {
		if (text.text[0] != '.')
			return false;
		for (size_t i = 1; i < text.length; i++) {
			if (text.text[i] < '0' || text.text[i] > '9')
				return false;
			if (unit < 1000000000) {
				part = part * 10 + (uint64_t)(text.text[i] - '0');
				unit *= 10;
			}
		}
	}
	*ret = (double)whole + (double)part / (double)unit;
	return true;
}

/* Parse 512MB, 40GiB, 1.5g or 4096. K, M, G and T are powers of 1024, with or without "iB" or "B". @unit: the bytes of
 * one unit in a number without a suffix. */
static bool parse_size(struct gm_slice text, uint64_t unit, uint64_t *ret)
{
	static const char letters[] = "kKmMgGtT";
	struct gm_slice number = text, suffix;
	uint64_t scale = unit;
	double value;

	while (number.length && (number.text[number.length - 1] < '0' ||
				 number.text[number.length - 1] > '9'))
		number.length--;
	suffix = gm_slice_trim((struct gm_slice){ text.text + number.length,
						text.length - number.length });
	if (suffix.length) {
		const char *letter = strchr(letters, suffix.text[0]);

		if (gm_slice_is(suffix, "b")) {
			scale = 1;
		} else if (letter && suffix.text[0]) {
			scale = UINT64_C(1) << (10 * ((letter - letters) / 2 + 1));
			suffix.text++;
			suffix.length--;
			if (suffix.length && !gm_slice_is(suffix, "b") && !gm_slice_is(suffix, "ib"))
				return false;
		} else {
			return false;
		}
	}
	if (parse_number(number, ret))
		return !__builtin_mul_overflow(*ret, scale, ret) && *ret != GM_UNLIMITED;
	if (scale == 1 || !parse_fraction(number, &value) || value > 1e6)
		return false;
	*ret = (uint64_t)(value * (double)scale);
	return true;
}

static bool power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

/* ---- words ------------------------------------------------------------------------------------- */

/* Return the index of @word in "a|b|c"; -1: none. */
static int place_of(struct gm_slice word, const char *list)
{
	struct gm_slice rest = gm_slice_of(list);

	for (int i = 0; word.length && rest.length; i++)
		if (gm_slice_equals(word, gm_slice_cut(&rest, '|')))
			return i;
	return -1;
}

static struct gm_slice without_brackets(struct gm_slice text)
{
	if (text.length >= 2 && text.text[0] == '[' && text.text[text.length - 1] == ']')
		return gm_slice_trim((struct gm_slice){ text.text + 1, text.length - 2 });
	return text;
}

/* Parse a set. Its first word is "none", which must stand alone. */
static bool parse_set(struct gm_slice text, const char *words, uint32_t *ret)
{
	struct gm_slice rest = without_brackets(text);
	uint32_t set = 0;

	if (!rest.length)
		return false;
	while (rest.length) {
		int place = place_of(gm_slice_cut(&rest, ','), words);

		if (place < 0)
			return false;
		set |= 1u << place;
	}
	if (set & 1 && set != 1)
		return false;
	*ret = set;
	return true;
}

static bool parse_bool(struct gm_slice text, bool *ret)
{
	static const char *const words[2][5] = { { "False", "no", "off", "0", "n" },
						 { "True", "yes", "on", "1", "y" } };

	for (int value = 0; value < 2; value++)
		for (size_t i = 0; i < 5; i++)
			if (gm_slice_is(text, words[value][i])) {
				*ret = value;
				return true;
			}
	return false;
}

/* Parse a signal. Signals that the kernel or glibc reserves, and signals of faults, are not allowed. */
static bool parse_signal(struct gm_slice text, uint32_t *ret)
{
	uint64_t number;

	if (gm_slice_is(text, "none")) {
		*ret = 0;
		return true;
	}
	if (text.length > 3 && gm_slice_is((struct gm_slice){ text.text, 3 }, "sig")) {
		text.text += 3;
		text.length -= 3;
	}
	if (!parse_number(text, &number))
		number = 0;
	for (size_t i = 0; gm_signal_names[i].name; i++)
		if (gm_slice_is(text, gm_signal_names[i].name) ||
		    number == gm_signal_names[i].number) {
			*ret = gm_signal_names[i].number;
			return true;
		}
	if (number < 34 || number > 64)
		return false;
	*ret = (uint32_t)number;
	return true;
}

/* ---- roundup_power2_divisions ------------------------------------------------------------------ */

static bool parse_interval(struct gm_slice pair, struct gm_divisions *divisions,
			   unsigned int *last, bool *first)
{
	struct gm_slice bound = gm_slice_cut(&pair, ':');
	uint64_t mib, value;
	unsigned int bin;

	if (!parse_number(gm_slice_trim(pair), &value) || (value && !power_of_two(value)) ||
	    value > UINT32_MAX)
		return false;
	if (gm_slice_is(bound, ">")) {
		for (bin = *last + 1; bin < GM_DIVISION_BINS; bin++)
			divisions->bins[bin] = (uint32_t)value;
		return true;
	}
	if (!parse_number(bound, &mib) || !power_of_two(mib))
		return false;
	bin = (unsigned int)__builtin_ctzll(mib);
	bin = bin < GM_DIVISION_BINS ? bin : GM_DIVISION_BINS - 1;
	for (unsigned int below = 0; *first && below < bin; below++)
		divisions->bins[below] = (uint32_t)value;
	divisions->bins[bin] = (uint32_t)value;
	*last = bin;
	*first = false;
	return true;
}

/* Parse as PyTorch does: one number for all sizes, or intervals. The first value also holds for all smaller sizes, and
 * ">" for all sizes above the last one named. */
static bool parse_divisions(struct gm_slice text, struct gm_divisions *ret)
{
	struct gm_divisions divisions = { { 0 } };
	struct gm_slice rest = without_brackets(text);
	unsigned int last = 0;
	bool first = true;
	uint64_t value;

	if (rest.length == text.length) {
		if (!parse_number(text, &value) || (value && !power_of_two(value)) ||
		    value > UINT32_MAX)
			return false;
		for (unsigned int bin = 0; bin < GM_DIVISION_BINS; bin++)
			divisions.bins[bin] = (uint32_t)value;
	} else {
		if (!rest.length)
			return false;
		while (rest.length)
			if (!parse_interval(gm_slice_cut(&rest, ','), &divisions, &last, &first))
				return false;
	}
	*ret = divisions;
	return true;
}

/* ---- a row ------------------------------------------------------------------------------------- */

static bool in_range(const struct gm_option_row *row, uint64_t value)
{
	return value >= row->min && value <= row->max;
}

static bool parse_sized(const struct gm_option_row *row, struct gm_slice text, uint64_t unit,
			uint64_t *ret)
{
	uint64_t value;

	if (row->max == GM_UNLIMITED && (gm_slice_is(text, "unlimited") || gm_slice_is(text, "none"))) {
		*ret = GM_UNLIMITED;
		return true;
	}
	if (!parse_size(text, unit, &value) || !in_range(row, value) ||
	    (unit == MIB && value % MIB))
		return false;
	*ret = value;
	return true;
}

static bool parse_text(const struct gm_option_row *row, struct gm_slice text, char *ret)
{
	if (text.length >= GM_TEXT_BYTES || text.length < row->min)
		return false;
	for (size_t i = 0; i < text.length; i++)
		if ((unsigned char)text.text[i] < ' ' || text.text[i] == 0x7f)
			return false;
	memcpy(ret, text.text, text.length);
	ret[text.length] = '\0';
	return true;
}

bool gm_value_parse(const struct gm_option_row *row, struct gm_slice text,
		    struct gm_options *options)
{
	void *value = (char *)options + row->offset;
	uint64_t number;
	double fraction;
	int place;

	switch (row->type) {
	case GM_TYPE_SIZE:
		return parse_sized(row, text, 1, value);
	case GM_TYPE_SIZE_MB:
		return parse_sized(row, text, MIB, value);
	case GM_TYPE_COUNT:
		if (!parse_number(text, &number) || !in_range(row, number))
			return false;
		*(uint64_t *)value = number;
		return true;
	case GM_TYPE_BOOL:
		return parse_bool(text, value);
	case GM_TYPE_FRACTION:
		if (!parse_fraction(text, &fraction) || fraction < (double)row->min ||
		    fraction > (double)row->max)
			return false;
		*(double *)value = fraction;
		return true;
	case GM_TYPE_CHOICE:
		place = place_of(text, row->unit);
		if (place >= 0)
			*(uint32_t *)value = (uint32_t)place;
		return place >= 0;
	case GM_TYPE_SET:
		return parse_set(text, row->unit, value);
	case GM_TYPE_SIGNAL:
		return parse_signal(text, value);
	case GM_TYPE_TEXT:
		return parse_text(row, text, value);
	case GM_TYPE_DIVISIONS:
		return parse_divisions(text, value);
	}
	return false;
}
