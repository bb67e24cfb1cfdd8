/*
 * suppress.c - known leaks: see groups.h.
 */
#define _GNU_SOURCE
#include "tools/show/groups.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/read/input.h"

/* Return what is wrong with @line, one clause in static memory; NULL: nothing. A word and a single colon begin a rule
 * of another sort, or a misspelled one, which would match nothing as a pattern. */
static const char *fault_of(const char *line)
{
	static char text[96];
	size_t word;

	line += strspn(line, " \t");
	word = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	if (!word || line[word] != ':' || line[word + 1] == ':')
		return NULL;
	if (strncmp(line, "leak:", 5)) {
		snprintf(text, sizeof(text), "'%.*s' begins no rule: leak:PATTERN does",
			 (int)(word < 40 ? word + 1 : 40), line);
		return text;
	}
	return line[5 + strspn(line + 5, " \t\r\n")] ? NULL : "leak: has no pattern";
}

/* Return the pattern of a line for fnmatch, in which only * is special; the caller frees it. NULL: the line is empty
 * or a comment, or memory is short. */
static char *pattern_of(char *text)
{
	size_t length;
	char *pattern, *at;

	text += strspn(text, " \t");
	if (!strncmp(text, "leak:", 5))
		text += 5;
	length = strcspn(text, "\r\n");
	while (length && (text[length - 1] == ' ' || text[length - 1] == '\t'))
		length--;
	if (!length || *text == '#')
		return NULL;
	at = pattern = malloc(2 * length + 3);
	if (!pattern)
		return NULL;
	if (*text == '^')
		text++, length--;
	else
		*at++ = '*';
	for (size_t i = 0; i < length; i++) {
		if (text[i] == '$' && i + 1 == length)
			break;
		if (strchr("?[]\\", text[i]))
			*at++ = '\\';
		*at++ = text[i];
	}
	if (!length || text[length - 1] != '$')
		*at++ = '*';
	*at = '\0';
	return pattern;
}

int gm_suppressions_read(struct gm_suppressions *suppressions, const char *path, char *ret_error,
			 size_t bytes)
{
	int fd = gm_input_open(path, ret_error, bytes), r = 0;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	size_t room = 0, number = 0;
	char *line = NULL;

	if (fd < 0)
		return fd;
	if (!file) {
		close(fd);
		snprintf(ret_error, bytes, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	while (!r && getline(&line, &room, file) > 0) {
		const char *fault = fault_of(line);
		char *pattern = fault ? NULL : pattern_of(line), **place;

		number++;
		if (fault) {
			snprintf(ret_error, bytes, "line %zu: %s", number, fault);
			r = -EINVAL;
		}
		if (!pattern)
			continue;
		place = gm_list_add(&suppressions->patterns, &suppressions->count, sizeof(*place));
		if (place)
			*place = pattern;
		else
			free(pattern);
		r = place ? 0 : -ENOMEM;
	}
	if (!r && ferror(file))
		r = -EIO;
	if (r && r != -EINVAL)
		snprintf(ret_error, bytes, "%s", strerror(-r));
	free(line);
	fclose(file);
	return r;
}

void gm_suppressions_free(struct gm_suppressions *suppressions)
{
	for (size_t i = 0; i < suppressions->count; i++)
		free(suppressions->patterns[i]);
	free(suppressions->patterns);
	suppressions->patterns = NULL;
	suppressions->count = 0;
}

static bool matches(const char *pattern, const struct gm_frame *frame)
{
	return !fnmatch(pattern, frame->name, 0) || !fnmatch(pattern, frame->symbol, 0) ||
	       !fnmatch(pattern, frame->file, 0) || !fnmatch(pattern, frame->module, 0);
}

bool gm_suppressed(struct gm_suppressions *suppressions, const struct gm_scene *scene, const struct gm_life *life)
{
	size_t count;
	const uint32_t *ids = gm_stack(&scene->stacks, life->stack, &count);

	if (suppressions->since != 0 && life->time_us < gm_show_moment(scene->snapshot, suppressions->since))
		return true;
	for (size_t p = 0; p < suppressions->count; p++)
		for (size_t i = 0; i < count; i++)
			if (matches(suppressions->patterns[p], &scene->stacks.frames[ids[i]])) {
				suppressions->matched++;
				return true;
			}
	return false;
}
