/*
 * heap_conf.c - the heap's settings from text, in the grammar of PYTORCH_CUDA_ALLOC_CONF.
 *
 * Keys, limits and the filling of lists are PyTorch's; what PyTorch lets pass (a missing
 * separator, trailing garbage) is an error here. For the tools, which set no locale.
 */
#include "allocator/heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_BYTES 160u
#define MIB (UINT64_C(1) << 20)

struct word { const char *text; size_t length; };

struct reader {
	const char *at;
	char *error;
	bool rounding_given;
};

static int fail(struct reader *in, struct word subject, const char *what)
{
	snprintf(in->error, ERROR_BYTES, "%.*s: %s", (int)subject.length, subject.text, what);
	return -EINVAL;
}

static bool is(struct word word, const char *text)
{
	return word.length == strlen(text) && !memcmp(word.text, text, word.length);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

/* The next token: one of , : [ ] or a run of anything else. Length 0 at the end. */
static struct word next(struct reader *in)
{
	struct word word;

	while (is_blank(*in->at))
		in->at++;
	word.text = in->at;
	if (*in->at && strchr(",:[]", *in->at))
		in->at++;
	else
		while (*in->at && !strchr(",:[]", *in->at) && !is_blank(*in->at))
			in->at++;
	word.length = (size_t)(in->at - word.text);
	return word;
}

static bool number(struct word word, uint64_t *ret)
{
	errno = 0;
	*ret = strtoull(word.text, NULL, 10);
	return word.length && strspn(word.text, "0123456789") >= word.length && !errno;
}

static bool fraction(struct word word, double *ret)
{
	char *end;

	*ret = strtod(word.text, &end);
	return word.length && strspn(word.text, "0123456789.") >= word.length && end == word.text + word.length;
}

static bool is_power2(uint64_t n)
{
	return n && !(n & (n - 1));
}

static unsigned int bin_of(uint64_t megabytes)
{
	unsigned int bin = 63u - (unsigned int)__builtin_clzll(megabytes);

	return bin < GM_HEAP_DIVISION_BINS ? bin : GM_HEAP_DIVISION_BINS - 1;
}

/* [256:1,512:2,>:8]: the first value fills what is below it, '>' what is above the last. */
static int division_list(struct reader *in, struct gm_heap_config *config, struct word key)
{
	uint32_t *bins = config->roundup_power2_divisions;
	unsigned int filled = 0;
	bool first = true;
	struct word word;

	do {
		struct word bound = next(in);
		uint64_t megabytes = 0, value;
		unsigned int end;

		if (!is(next(in), ":"))
			return fail(in, key, "expected [size:divisions,...]");
		word = next(in);
		if (!number(word, &value) || (value && !is_power2(value)) || value > UINT32_MAX)
			return fail(in, key, "divisions must be 0 or a power of two");
		if (is(bound, ">")) {
			end = GM_HEAP_DIVISION_BINS;
		} else {
			if (!number(bound, &megabytes) || !is_power2(megabytes))
				return fail(in, key, "sizes are powers of two, in MiB, or '>'");
			end = bin_of(megabytes) + 1;
		}
		for (unsigned int i = first ? 0 : end == GM_HEAP_DIVISION_BINS ? filled : end - 1;
		     i < end; i++)
			bins[i] = (uint32_t)value;
		filled = end;
		first = false;
		word = next(in);
	} while (is(word, ","));
	return is(word, "]") ? 0 : fail(in, key, "expected ']'");
}

static int divisions(struct reader *in, struct gm_heap_config *config, struct word key)
{
	struct word word = next(in);
	uint64_t value;

	memset(config->roundup_power2_divisions, 0, sizeof(config->roundup_power2_divisions));
	if (is(word, "["))
		return division_list(in, config, key);
	if (!number(word, &value) || (value && !is_power2(value)) || value > UINT32_MAX)
		return fail(in, key, "must be 0, a power of two, or a list");
	for (unsigned int i = 0; i < GM_HEAP_DIVISION_BINS; i++)
		config->roundup_power2_divisions[i] = (uint32_t)value;
	return 0;
}

/* @unlimited: that is a value, too. */
static int megabytes(struct reader *in, struct word key, uint64_t at_least, bool unlimited,
		     uint64_t *ret)
{
	struct word word = next(in);
	uint64_t value;

	if (unlimited && is(word, "unlimited")) {
		*ret = GM_HEAP_UNLIMITED;
		return 0;
	}
	if (!number(word, &value) || value > UINT64_MAX / MIB)
		return fail(in, key, "must be a number of MiB");
	if (value * MIB < at_least)
		return fail(in, key, "too small: it may not be below large_segment_size_mb");
	*ret = value * MIB;
	return 0;
}

static int skip_value(struct reader *in, struct word key)
{
	struct word word = next(in);

	if (!word.length)
		return fail(in, key, "has no value");
	if (is(word, "["))
		while (word.length && !is(word, "]"))
			word = next(in);
	return word.length ? 0 : fail(in, key, "expected ']'");
}

static int setting(struct reader *in, struct gm_heap_config *config, struct word key)
{
	int r;

	if (is(key, "large_segment_size_mb"))
		return skip_value(in, key);	/* taken by the first pass */
	if (is(key, "max_split_size_mb"))
		return megabytes(in, key, config->large_segment_size, true,
				 &config->max_split_size);
	if (is(key, "max_non_split_rounding_mb")) {
		in->rounding_given = true;
		return megabytes(in, key, config->large_segment_size, true,
				 &config->max_non_split_rounding);
	}
	if (is(key, "garbage_collection_threshold")) {
		r = fraction(next(in), &config->garbage_collection_threshold) &&
		    config->garbage_collection_threshold > 0 &&
		    config->garbage_collection_threshold < 1;
		return r ? 0 : fail(in, key, "must be above 0.0 and below 1.0");
	}
	if (is(key, "roundup_power2_divisions"))
		return divisions(in, config, key);
	return skip_value(in, key);
}

/* One pass over all settings; @sizes: only large_segment_size_mb, on which others depend. */
static int pass(struct reader *in, struct gm_heap_config *config, const char *text, bool sizes)
{
	struct word word;
	int r = 0;

	in->at = text;
	do {
		struct word key = next(in);

		if (!key.length && !*in->at)
			return 0;
		if (!is(next(in), ":"))
			return fail(in, key, "expected key:value");
		if (!sizes) {
			r = setting(in, config, key);
		} else if (is(key, "large_segment_size_mb")) {
			r = megabytes(in, key, 0, false, &config->large_segment_size);
			if (!r && config->large_segment_size <= GM_HEAP_LARGE_REQUEST)
				r = fail(in, key, "must be above 10");
		} else {
			r = skip_value(in, key);
		}
		if (r)
			return r;
		word = next(in);
	} while (is(word, ","));
	return word.length ? fail(in, word, "expected ',' between settings") : 0;
}

int gm_heap_config_parse(struct gm_heap_config *config, const char *text, char *ret_error)
{
	struct reader in = { .error = ret_error };
	struct gm_heap_config parsed = *config;
	int r;

	ret_error[0] = '\0';
	r = pass(&in, &parsed, text, true);
	if (!r)
		r = pass(&in, &parsed, text, false);
	if (r)
		return r;
	if (!in.rounding_given)
		parsed.max_non_split_rounding = parsed.large_segment_size;
	*config = parsed;
	return 0;
}
