/*
 * writer.h - write JSON and pickles value by value, without a tree in memory. Single-threaded.
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
 * Buffered output, with the limit that the size of the input sets (gm_limit_output).
 */

struct gm_out {
	FILE *file;
	uint64_t left;			/* bytes that may still be written */
	int error;			/* of a write, or -EOVERFLOW; then nothing more is written */
	size_t used;			/* bytes of @buffer, which is here because stdio is slow for a few bytes */
	char buffer[4096];
};

struct gm_out gm_out_to(FILE *file);

/* Write what is still buffered; the file stays open. Return 0 or -errno. */
int gm_out_end(struct gm_out *out);

void gm_out_put(struct gm_out *out, const void *bytes, size_t count);
void gm_out_text(struct gm_out *out, const char *text);

/* Write formatted text, cut to 4,095 bytes. */
void gm_out_format(struct gm_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write a number in decimal. printf takes five times as long, and an event has nine numbers. gm_out_digits writes the
 * digits to the end of @digits and returns where they begin. */
#define GM_DIGITS 24u
size_t gm_out_digits(char digits[GM_DIGITS], uint64_t word, bool negative);
void gm_out_number(struct gm_out *out, int64_t number);
void gm_out_word(struct gm_out *out, uint64_t word);

/* ---- writer.c --------------------------------------------------------------------------------- */

/*
 * A document as JSON or as a pickle. Pickles have protocol 2 and only what PyTorch's viewer can read: batches of at
 * most 1,000 items. A text is written once, and later by its number in the memo.
 */

enum gm_writer_type { GM_WRITER_LIST, GM_WRITER_TUPLE, GM_WRITER_DICT };

struct gm_writer;

/* Write to @out. NULL: out of memory. */
struct gm_writer *gm_writer_open(FILE *out, bool pickle);

/* Write each item of JSON on a line of its own from now on, indented by @blanks for each level. */
void gm_writer_indent(struct gm_writer *writer, unsigned int blanks);

/* Return the number of bytes of this document so far. */
uint64_t gm_writer_bytes(const struct gm_writer *writer);

/* End the document and free @writer; the file stays open. Return 0 or the first error: -ENOMEM, -EMSGSIZE (JSON beyond
 * 8 GiB, or nested too deep), -EOVERFLOW (gm_limit_output), or that of a write. */
int gm_writer_close(struct gm_writer *writer);

/* Write one value, or begin or end a list or dict. In a dict, names (texts) and values alternate. Several JSON
 * documents in a row are one a line. */
void gm_writer_begin(struct gm_writer *writer, enum gm_writer_type type);
void gm_writer_end(struct gm_writer *writer);
void gm_writer_null(struct gm_writer *writer);
void gm_writer_bool(struct gm_writer *writer, bool truth);
void gm_writer_int(struct gm_writer *writer, int64_t integer);
void gm_writer_word(struct gm_writer *writer, uint64_t word);
void gm_writer_real(struct gm_writer *writer, double real);
void gm_writer_text(struct gm_writer *writer, const char *text, size_t bytes);
void gm_writer_string(struct gm_writer *writer, const char *text);	/* as gm_writer_text, up to the NUL */

/* Write the name and the value of a member of a dict; gm_writer_put_begin begins the value. */
void gm_writer_put_begin(struct gm_writer *writer, const char *name, enum gm_writer_type type);
void gm_writer_put_string(struct gm_writer *writer, const char *name, const char *text);
void gm_writer_put_int(struct gm_writer *writer, const char *name, int64_t integer);
void gm_writer_put_bool(struct gm_writer *writer, const char *name, bool truth);

/* Write a value of jansson's; gm_writer_put_members writes the members of @object into the dict that is begun. */
void gm_writer_put(struct gm_writer *writer, const json_t *value);
void gm_writer_put_members(struct gm_writer *writer, const json_t *object);

/* If a list or dict was written under @key (the caller's own number, not 0), write it again and return true. Else
 * return false, and remember the next list or dict under @key. Return true after an error, too, so that the caller
 * writes nothing. A pickle refers to the earlier value. JSON cannot, so the text of the value is kept if it is a list
 * of @frames, because many events have the same stack. */
bool gm_writer_again(struct gm_writer *writer, uint64_t key, bool frames);

/* ---- snapshot_write.c ------------------------------------------------------------------------- */

/* Write a snapshot as the JSON of docs/snapshot.md. Return 0 or -errno. */
int gm_snapshot_json(const struct gm_snapshot *snapshot, FILE *out);

#endif
