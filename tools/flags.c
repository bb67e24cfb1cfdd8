/*
 * flags.c - the library's options as flags of a command line: see flags.h.
 *
 * Names come from the one table; values are judged by the library itself, in one place.
 */
#include "tools/flags.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define GM_OPTION(name, ...) #name,
#include "preload/options.def"
};

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
		return setenv(variable, value, 1) ? -errno : 0;
	}
	fprintf(stderr, "gpumem: there is no option --%.*s (gpumem options lists them)\n",
		(int)length, word);
	return -EINVAL;
}
