/*
 * writer.h - a document written as it comes: as JSON, or as a pickle. Single-threaded.
 *
 * Pickles are of protocol 2 and use only what PyTorch's viewer can read: no batch of more than 1,000
 * items; a text is written once, and after that by its number.
 */
#ifndef GM_TOOLS_WRITER_H
#define GM_TOOLS_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum gm_writer_type { GM_WRITER_LIST, GM_WRITER_TUPLE, GM_WRITER_DICT };

struct gm_writer;

/* Write to @out. NULL: out of memory. */
struct gm_writer *gm_writer_pickle(FILE *out);
struct gm_writer *gm_writer_json(FILE *out);

/* How many bytes of this document have been written; of JSON alone. */
uint64_t gm_writer_bytes(const struct gm_writer *writer);

/* End it. Returns 0, -ENOMEM, -EMSGSIZE (JSON beyond 8 GiB), -EOVERFLOW (limit.h), or the error of a
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

/* The name and the value of a member. */
void gm_writer_put_string(struct gm_writer *writer, const char *name, const char *text);
void gm_writer_put_int(struct gm_writer *writer, const char *name, int64_t integer);
void gm_writer_put_bool(struct gm_writer *writer, const char *name, bool truth);

/* What jansson has. */
void gm_writer_put(struct gm_writer *writer, const json_t *value);

/* Has the list or dict that the caller knows as @key (not 0) been written before? Then it is written
 * again, and that is all. Else false, and what is begun next is remembered as @key. JSON cannot refer to
 * what is written already: of it only the text of @frames is kept, for a stack comes with many events. */
bool gm_writer_again(struct gm_writer *writer, uint64_t key, bool frames);

#endif
