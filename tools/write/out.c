/*
 * out.c - buffered output with a limit: see writer.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/write/writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "tools/read/input.h"

struct gm_out gm_out_to(FILE *file)
{
	return (struct gm_out){ .file = file, .left = gm_limit_output() };
}

static void write_out(struct gm_out *out, const void *bytes, size_t count)
{
	errno = 0;
	if (!out->error && fwrite_unlocked(bytes, 1, count, out->file) != count)
		out->error = errno ? -errno : -EIO;
}

int gm_out_end(struct gm_out *out)
{
	write_out(out, out->buffer, out->used);
	out->used = 0;
	errno = 0;
	if (!out->error && (fflush(out->file) || ferror(out->file)))
		out->error = errno ? -errno : -EIO;
	return out->error;
}

void gm_out_put(struct gm_out *out, const void *bytes, size_t count)
{
	if (out->error)
		return;
	if (count > out->left) {
		out->error = -EOVERFLOW;
		return;
	}
	out->left -= count;
	if (count > sizeof(out->buffer) - out->used) {
		write_out(out, out->buffer, out->used);
		out->used = 0;
	}
	if (count > sizeof(out->buffer)) {
		write_out(out, bytes, count);
		return;
	}
	memcpy(out->buffer + out->used, bytes, count);
	out->used += count;
}

void gm_out_text(struct gm_out *out, const char *text)
{
	gm_out_put(out, text, strlen(text));
}

void gm_out_format(struct gm_out *out, const char *format, ...)
{
	char text[4096];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	gm_out_put(out, text, length < (int)sizeof(text) ? (size_t)length : sizeof(text) - 1);
}

size_t gm_out_digits(char digits[GM_DIGITS], uint64_t word, bool negative)
{
	size_t at = GM_DIGITS;

	do
		digits[--at] = (char)('0' + word % 10);
	while (word /= 10);
	if (negative)
		digits[--at] = '-';
	return at;
}

void gm_out_number(struct gm_out *out, int64_t number)
{
	char digits[GM_DIGITS];
	size_t at = gm_out_digits(digits, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, number < 0);

	gm_out_put(out, digits + at, GM_DIGITS - at);
}

void gm_out_word(struct gm_out *out, uint64_t word)
{
	char digits[GM_DIGITS];
	size_t at = gm_out_digits(digits, word, false);

	gm_out_put(out, digits + at, GM_DIGITS - at);
}
