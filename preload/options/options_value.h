/*
 * options_value.h - convert the value of one option from text and back, with one function for each type.
 *
 * Thread context: any. No malloc, no stdio, no locale, no state.
 */
#ifndef GM_PRELOAD_OPTIONS_VALUE_H
#define GM_PRELOAD_OPTIONS_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/options/text.h"

#define GM_UNLIMITED UINT64_MAX		/* value of a SIZE option that is "unlimited" */
#define GM_TEXT_BYTES 1024u
#define GM_DIVISION_BINS 16u		/* for sizes up to 1 MiB, 2 MiB, ... 32 GiB and more */

typedef char gm_option_text[GM_TEXT_BYTES];
struct gm_divisions { uint32_t bins[GM_DIVISION_BINS]; };
struct gm_options;			/* options.h */

enum gm_option_type {
	GM_TYPE_SIZE, GM_TYPE_SIZE_MB, GM_TYPE_COUNT, GM_TYPE_BOOL, GM_TYPE_FRACTION,
	GM_TYPE_CHOICE, GM_TYPE_SET, GM_TYPE_SIGNAL, GM_TYPE_TEXT, GM_TYPE_DIVISIONS
};

struct gm_option_row {			/* one row of options.def */
	const char *name, *initial, *unit;
	uint64_t min, max;
	enum gm_option_type type;
	size_t offset;			/* in struct gm_options */
};

extern const struct gm_signal_name { const char *name; uint8_t number; } gm_signal_names[];

/* Parse @text and store the value of @row in @options. Returns false and changes nothing when @text is
 * not allowed for the row. */
bool gm_value_parse(const struct gm_option_row *row, struct gm_slice text,
		    struct gm_options *options);

/* Append the value to @line, as a user could write it. */
void gm_value_format(const struct gm_option_row *row, const struct gm_options *options,
		     struct gm_line *line);

/* Append the allowed values to @line, such as "a number from 0 to 32 (files)". */
void gm_value_allowed(const struct gm_option_row *row, struct gm_line *line);

#endif
