/*
 * given.c - what a verb was given: see given.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/verbs/given.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show/show.h"
#include "tools/verbs/verbs.h"

int gm_given_bad(const char *verb, const char *word, const char *why)
{
	fprintf(stderr, "gpumem %s: %s: ", verb, gm_show_clean(word));
	fprintf(stderr, "%s\n", gm_show_clean(why));
	return GM_EXIT_INPUT;
}

bool gm_given_has_device(const json_t *root, const char *device)
{
	const json_t *one;
	size_t i;

	if (!device || !strcmp(device, "host"))
		return true;
	json_array_foreach(gm_json_list(root, "devices"), i, one) {
		char text[24];

		snprintf(text, sizeof(text), "%lld", (long long)gm_json_number(one, "device"));
		if (!strcmp(text, device))
			return true;
	}
	return false;
}

int gm_given_device(const char *verb, const char *device, const char *word,
		    const struct gm_loaded *loaded, size_t count)
{
	char why[80];

	for (size_t i = 0; i < count; i++)
		if (gm_given_has_device(loaded[i].root, device))
			return GM_EXIT_OK;
	snprintf(why, sizeof(why), "there is no device %.20s in %s", device,
		 count == 1 ? "it" : "any of them");
	return gm_given_bad(verb, word, why);
}

int gm_given_count(const char *text, size_t *ret)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	*ret = strtoul(text, &end, 10);
	return *end ? -EINVAL : 0;
}

/* Is @ending, with its point, among those of @list, which are parted by blanks? */
static bool is_among(const char *list, const char *ending)
{
	size_t length = strlen(ending);

	for (const char *at = list; (at = strcasestr(at, ending)); at++)
		if (!at[length] || at[length] == ' ')
			return true;
	return false;
}

int gm_given_output(const char *verb, const char *path, const char *own)
{
	static const char known[] = ".svg .html .json .csv .pickle .pkl .folded .prom .png .jpg .jpeg "
				    ".gif .bmp .webp .pdf .ps .eps .gz .zst .xz .bz2 .zip";
	const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
	const char *ending = name ? strrchr(name, '.') : NULL;

	if (!ending || !ending[1] || strchr(ending, ' ') || is_among(own, ending) || !is_among(known, ending))
		return 0;
	fprintf(stderr, "gpumem %s: %s: what is written is no %s: name it %.*s\n", verb, gm_show_clean(path),
		gm_show_clean(ending), (int)strcspn(own, " "), own);
	return GM_EXIT_USAGE;
}
