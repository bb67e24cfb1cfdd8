/*
 * flags.c - the library's options as flags of a command line: see flags.h.
 *
 * Names come from the one table; values are judged by the library's own code. One thread.
 */
#define _GNU_SOURCE
#include "tools/verbs/flags.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/options/options.h"
#include "tools/show/show.h"

static const char *const names[] = {
#define GM_OPTION(name, ...) #name,
#include "preload/options/options.def"
};

static bool taken[sizeof(names) / sizeof(names[0])];

/* Is @word (of @length) the option @name, '-' standing for '_'? */
static int is_name(const char *word, size_t length, const char *name)
{
	if (strlen(name) != length)
		return 0;
	for (size_t i = 0; i < length; i++)
		if (name[i] != (word[i] == '-' ? '_' : word[i]))
			return 0;
	return 1;
}

bool gm_flags_is(const char *word, size_t length)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_name(word, length, names[i]))
			return true;
	return false;
}

int gm_flags_take(int argc, char **argv, int *index)
{
	const char *word = argv[*index];
	const char *equals = strchr(word, '=');
	const char *value = equals ? equals + 1 : NULL;
	size_t length;
	char variable[96] = "GPUMEM_";

	if (strncmp(word, "--", 2)) {
		fprintf(stderr, "gpumem: '%s' is not an option\n", word);
		return -EINVAL;
	}
	word += 2;
	length = equals ? (size_t)(equals - word) : strlen(word);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!is_name(word, length, names[i]))
			continue;
		if (!value && *index + 1 < argc && strncmp(argv[*index + 1], "--", 2))
			value = argv[++*index];
		if (!value) {
			fprintf(stderr, "gpumem: --%s needs a value\n", names[i]);
			return -EINVAL;
		}
		for (size_t c = 0; c < strlen(names[i]) && c + 8 < sizeof(variable); c++)
			variable[7 + c] = (char)toupper((unsigned char)names[i][c]);
		taken[i] = true;
		return setenv(variable, value, 1) ? -errno : 0;
	}
	fprintf(stderr, "gpumem: there is no option --%.*s (gpumem options lists them)\n",
		(int)length, word);
	return -EINVAL;
}

/* A complaint of the library's: "GPUMEM_STACKS=nativ is not allowed: it takes ...; using all". */
static void judged(void *arg, const char *line)
{
	const char *end = strstr(line, "; using ");
	int *result = arg;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char start[96] = "GPUMEM_";
		size_t length = 7;

		for (const char *c = names[i]; *c; c++)
			start[length++] = (char)toupper((unsigned char)*c);
		start[length++] = '=';
		if (!taken[i] || strncmp(line, start, length))
			continue;
		line += length;
		fprintf(stderr, "gpumem: --%s=%.*s\n", names[i],
			(int)(end && end > line ? end - line : (ptrdiff_t)strlen(line)),
			gm_show_clean(line));
		*result = -EINVAL;
		return;
	}
}

int gm_flags_check(void)
{
	struct gm_options options;
	int result = 0;

	gm_options_read(&options, environ, judged, &result);
	return result;
}
