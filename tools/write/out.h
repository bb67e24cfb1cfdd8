/*
 * out.h - bytes on their way to a file, as many as the input allows (limit.h). Single-threaded.
 */
#ifndef GM_TOOLS_OUT_H
#define GM_TOOLS_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gm_out {
	FILE *file;
	uint64_t left;			/* bytes that may still be written */
	int error;			/* of a write, or -EOVERFLOW; then nothing more is written */
};

struct gm_out gm_out_to(FILE *file);

/* Hand on what is left; the file stays open. Returns 0 or -errno. */
int gm_out_end(struct gm_out *out);

void gm_out_put(struct gm_out *out, const void *bytes, size_t count);
void gm_out_text(struct gm_out *out, const char *text);

/* At most 4,095 bytes of it. */
void gm_out_format(struct gm_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* printf takes five times as long as these, and an event has nine numbers. gm_out_digits: the digits of
 * a number, from the returned place of @digits to its end. */
#define GM_DIGITS 24u
size_t gm_out_digits(char digits[GM_DIGITS], uint64_t word, bool negative);
void gm_out_number(struct gm_out *out, int64_t number);
void gm_out_word(struct gm_out *out, uint64_t word);

#endif
