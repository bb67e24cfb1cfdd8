/*
 * options.h - the options as values; options.def has their table.
 *
 * The options are read once, at the first CUDA call, from GPUMEM_CONF and GPUMEM_<NAME> (which wins), into
 * one struct that nobody changes afterwards. A bad value leaves its option at the default. The caller's
 * function gets one line for each bad value and each unknown name, up to 16, and one more when there are
 * others.
 *
 * Thread context: any one thread. Signal context: none. No malloc, no stdio, no locale.
 */
#ifndef GM_PRELOAD_OPTIONS_H
#define GM_PRELOAD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/options/options_value.h"

#define GM_VALUE_SIZE uint64_t
#define GM_VALUE_SIZE_MB uint64_t	/* bytes */
#define GM_VALUE_COUNT uint64_t
#define GM_VALUE_BOOL bool
#define GM_VALUE_FRACTION double
#define GM_VALUE_CHOICE uint32_t	/* index of the word in the list, from 0 */
#define GM_VALUE_SET uint32_t		/* bit i: word i of the list */
#define GM_VALUE_SIGNAL uint32_t	/* signal number; 0: none */
#define GM_VALUE_TEXT gm_option_text
#define GM_VALUE_DIVISIONS struct gm_divisions

enum gm_option_id {
#define GM_OPTION(name, type, dflt, min, max, unit, help) GM_OPTION_##name,
#include "preload/options/options.def"
	GM_OPTION_COUNT
};

enum gm_option_source { GM_SOURCE_DEFAULT, GM_SOURCE_CONF, GM_SOURCE_VARIABLE, GM_SOURCE_LIBRARY };

struct gm_options {
#define GM_OPTION(name, type, dflt, min, max, unit, help) GM_VALUE_##type name;
#include "preload/options/options.def"
	uint8_t source[GM_OPTION_COUNT];	/* enum gm_option_source */
};

/* Values of CHOICE options, and bits of SET options. Those of history_enabled and context are in
 * recorder/journal/format.h. */
enum { GM_ALLOCATOR_CACHING, GM_ALLOCATOR_NATIVE };
enum { GM_FREE_AUTO, GM_FREE_DEFERRED, GM_FREE_SYNC };
enum { GM_FILL_NONE, GM_FILL_ZERO, GM_FILL_POISON };
enum { GM_STACKS_NONE, GM_STACKS_PYTHON, GM_STACKS_NATIVE, GM_STACKS_ALL };
enum { GM_ON_NONE = 1, GM_ON_EXIT = 2, GM_ON_SIGNAL = 4, GM_ON_OOM = 8, GM_ON_CRASH = 16 };

/* Receives one complaint: a whole sentence, without a newline. */
typedef void gm_option_said(void *arg, const char *line);

/* Fill @ret from @environment (as environ; NULL: none). Passes every complaint to @said, which may be NULL.
 * Never fails: an option with a bad value keeps its default. */
void gm_options_read(struct gm_options *ret, char *const *environment,
		     gm_option_said *said, void *arg);

/* Fill in the settings of a heap, except its limit, from @options. */
struct gm_heap_config;
void gm_options_heap(const struct gm_options *options, struct gm_heap_config *ret);

/* Fill in the settings of a heap from @text, in the grammar of GPUMEM_CONF and PYTORCH_CUDA_ALLOC_CONF.
 * @others: ignore unknown keys. Returns 0, or -EINVAL with one sentence about the first mistake in
 * @ret_error. */
#define GM_OPTION_ERROR_BYTES 320u
int gm_options_heap_parse(struct gm_heap_config *ret, const char *text, bool others,
			  char ret_error[GM_OPTION_ERROR_BYTES]);

/* Write the value of one option into @buffer, as a user could write it, cut to @bytes. Returns the
 * length of the uncut text. */
size_t gm_options_format(const struct gm_options *options, enum gm_option_id id,
			 char *buffer, size_t bytes);

const char *gm_options_name(enum gm_option_id id);
const char *gm_options_source(const struct gm_options *options, enum gm_option_id id);

#endif
