/*
 * show.c - text for people: see show.h. One thread, no signal context.
 */
#define _GNU_SOURCE
#include "tools/show.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/load.h"
#include "tools/units.h"
#include "tools/verbs.h"

/* How many bytes the letter at @at has, 0 when it is none. */
static size_t letter(const unsigned char *at)
{
	size_t more = *at < 0x80 ? 0 : *at >= 0xc2 && *at < 0xe0 ? 1 : (*at & 0xf0) == 0xe0 ? 2 :
		      *at >= 0xf0 && *at < 0xf5 ? 3 : 4;

	for (size_t i = 1; i <= more; i++)
		if (more == 4 || (at[i] & 0xc0) != 0x80)
			return 0;
	/* Longer than need be, a surrogate, beyond the last: JSON takes none of them. */
	if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
	    (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f))
		return 0;
	return more + 1;
}

char *gm_show_repair(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at;) {
		size_t bytes = letter(at);

		if (!bytes)
			*at = '?';
		at += bytes ? bytes : 1;
	}
	return text;
}

const char *gm_show_clean(const char *text)
{
	static char texts[4][1024];
	static unsigned int next;
	char *at = texts[next++ % 4];
	size_t n = 0;

	for (; n < sizeof(texts[0]) - 1 && text[n]; n++) {
		bool bad = gm_show_control(text + n);

		at[n] = bad ? '?' : text[n];
		if (bad && (unsigned char)text[n] == 0xc2 && n + 1 < sizeof(texts[0]) - 1)
			at[++n] = '?';
	}
	at[n] = '\0';
	return gm_show_repair(at);
}

const char *gm_show_cut(const char *text, size_t bytes)
{
	char *cut = (char *)(uintptr_t)gm_show_clean(text);
	size_t length = strlen(cut);

	if (length > bytes) {
		while (bytes && ((unsigned char)cut[bytes] & 0xc0) == 0x80)
			bytes--;
		cut[bytes] = '\0';
	}
	return cut;
}

const char *gm_show_time(int64_t time_us)
{
	static char text[64];
	time_t seconds = (time_t)(time_us / 1000000);
	struct tm tm;

	text[0] = '\0';
	if (time_us > 0 && gmtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm);
	return text;
}

const char *gm_show_bytes(int64_t bytes)
{
	static char texts[4][40];
	static unsigned int next;
	char *at = texts[next++ % 4];

	at[0] = '-';
	gm_units_bytes(bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes, at + (bytes < 0),
		       sizeof(texts[0]) - 1);
	return at;
}

const char *gm_show_count(int64_t count, const char *one)
{
	static char texts[4][48];
	static unsigned int next;
	char *at = texts[next++ % 4];

	snprintf(at, sizeof(texts[0]), "%" PRId64 " %s%s", count, one, count == 1 ? "" : "s");
	return at;
}

const char *gm_show_module_path(const json_t *root, int64_t module)
{
	const json_t *entry = module > 0 ? json_array_get(gm_json_list(root, "modules"),
							  (size_t)module) : NULL;

	return gm_json_text(entry, "path");
}

const char *gm_show_module(const json_t *root, int64_t module)
{
	const char *path = gm_show_module_path(root, module);
	const char *slash = strrchr(path, '/');

	return !path[0] ? "(unknown)" : gm_show_clean(slash && slash[1] ? slash + 1 : path);
}

const char *gm_show_device(const json_t *object)
{
	static char text[32];
	const json_t *device = json_object_get(object, "device");

	snprintf(text, sizeof(text), json_is_integer(device) ? "device %lld" : "the host",
		 (long long)json_integer_value(device));
	return text;
}

void gm_show_op(FILE *out, const struct gm_show_op *op)
{
	const char *what = !strcmp(op->action, "alloc") ? "an allocation" :
			   !strncmp(op->action, "free", 4) ? "a free" : gm_show_clean(op->action);

	fprintf(out, "  in flight in thread %lld: %s of ", (long long)op->thread, what);
	if (op->size)
		fprintf(out, "%s of ", gm_show_bytes(op->size));
	fprintf(out, "%s memory on %s", gm_show_clean(op->kind), op->device);
	if (op->address)
		fprintf(out, " at %#llx", (unsigned long long)op->address);
	fputs(op->took_effect ? " (the driver had carried it out)\n" : "\n", out);
}

static bool in_color(FILE *out)
{
	const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(fileno(out)) && !(none && *none) && term && strcmp(term, "dumb");
}

void gm_show_heading(FILE *out, const char *format, ...)
{
	bool color = in_color(out);
	va_list args;

	va_start(args, format);
	fputs(color ? "\033[1m" : "", out);
	vfprintf(out, format, args);
	fputs(color ? "\033[0m\n" : "\n", out);
	va_end(args);
}

int gm_show_end(const char *verb, int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	fprintf(stderr, "gpumem %s: the output could not be written: %s\n", verb, strerror(errno));
	return GM_EXIT_FAILED;
}
