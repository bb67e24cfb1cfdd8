/*
 * writer.h - documents written as they come. Single-threaded.
 */
#ifndef GM_TOOLS_WRITER_H
#define GM_TOOLS_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/read/snapshot.h"

/* ---- out.c ------------------------------------------------------------------------------------ */

/*
 * Bytes on their way to a file, as many as the input allows (limit.c).
 */

struct gm_out {
	FILE *file;
	uint64_t left;			/* bytes that may still be written */
	int error;			/* of a write, or -EOVERFLOW; then nothing more is written */
	size_t used;			/* of @buffer: most pieces are of a few bytes, and stdio is slow for those */
	char buffer[4096];
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

/* ---- writer.c --------------------------------------------------------------------------------- */

/*
 * A document as JSON, or as a pickle. Pickles are of protocol 2 and use only what PyTorch's viewer can read: no
 * batch of more than 1,000 items; a text is written once, and after that by its number.
 */

enum gm_writer_type { GM_WRITER_LIST, GM_WRITER_TUPLE, GM_WRITER_DICT };

struct gm_writer;

/* Write to @out. NULL: out of memory. */
struct gm_writer *gm_writer_open(FILE *out, bool pickle);

/* From now on each item of JSON has a line of its own, indented by @blanks for each level. */
void gm_writer_indent(struct gm_writer *writer, unsigned int blanks);

/* How many bytes of this document have been written; of JSON alone. */
uint64_t gm_writer_bytes(const struct gm_writer *writer);

/* End it. Returns 0, -ENOMEM, -EMSGSIZE (JSON beyond 8 GiB), -EOVERFLOW (limit.c), or the error of a
 * write. */
int gm_writer_close(struct gm_writer *writer);

/* In a dict, names (texts) and values come in turn. Several documents of JSON are lines. */
void gm_writer_begin(struct gm_writer *writer, enum gm_writer_type type);
void gm_writer_end(struct gm_writer *writer);
void gm_writer_null(struct gm_writer *writer);
void gm_writer_bool(struct gm_writer *writer, bool truth);
void gm_writer_int(struct gm_writer *writer, int64_t integer);
void gm_writer_word(struct gm_writer *writer, uint64_t word);
void gm_writer_real(struct gm_writer *writer, double real);
void gm_writer_text(struct gm_writer *writer, const char *text, size_t bytes);
void gm_writer_string(struct gm_writer *writer, const char *text);	/* the same, up to its NUL */

/* The name and the value of a member; of the first, its beginning. */
void gm_writer_put_begin(struct gm_writer *writer, const char *name, enum gm_writer_type type);
void gm_writer_put_string(struct gm_writer *writer, const char *name, const char *text);
void gm_writer_put_int(struct gm_writer *writer, const char *name, int64_t integer);
void gm_writer_put_bool(struct gm_writer *writer, const char *name, bool truth);

/* What jansson has; the members of an object that it has, within a dict that is begun. */
void gm_writer_put(struct gm_writer *writer, const json_t *value);
void gm_writer_put_members(struct gm_writer *writer, const json_t *object);

/* If a list or dict was written under @key (the caller's own number, not 0), write it again and return true.
 * Else return false, and remember under @key what is begun next. A pickle refers to what it has already. JSON
 * cannot, so only the text of a list of @frames is kept, as many events have the same stack. */
bool gm_writer_again(struct gm_writer *writer, uint64_t key, bool frames);

/* ---- snapshot_write.c ------------------------------------------------------------------------- */

/*
 * A snapshot as the JSON of docs/snapshot.md.
 */

/* Returns 0 or -errno. */
int gm_snapshot_json(const struct gm_snapshot *snapshot, FILE *out);

#endif
