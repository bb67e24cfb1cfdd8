/*
 * jsonw.h - write JSON to a file descriptor, streamed through one buffer that the caller owns.
 *
 * Uses no malloc, no stdio and no locale, so that it works after a crash. Errors stick: after the first
 * error nothing more is written, and gm_jsonw_finish returns that error.
 *
 * Thread context: one thread for each writer. Signal context: as write(2).
 */
#ifndef GM_RECORDER_JSONW_H
#define GM_RECORDER_JSONW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_JSONW_BUFFER 65536u
#define GM_JSONW_DEPTH 32u

/*
 * Takes the values of a document in place of their text: @type '{' or '[' begins an object or an array, '}' ends the
 * innermost one; 's' is a string or a key of @number bytes at @text, 'i' the integer @number, 'r' @number bytes of JSON
 * at @text (gm_jsonw_raw), 'b' a record of @number bytes at @text (gm_jsonw_record). Returns 0 or -errno.
 */
struct gm_jsonw_sink {
	int (*take)(struct gm_jsonw_sink *sink, char type, const char *text, int64_t number);
};

struct gm_jsonw {
	struct gm_jsonw_sink *sink;	/* NULL: the document is written to @fd */
	int fd;
	uint64_t device, inode;		/* of @fd at the beginning */
	int error;			/* 0, or the first -errno */
	uint32_t used;			/* bytes in @buffer */
	uint32_t depth;
	bool comma;			/* the next value or key needs a comma first */
	char nesting[GM_JSONW_DEPTH];	/* '{' or '[' */
	uint64_t flushed;		/* bytes written to the descriptor, or given to the sink */
	uint64_t limit;			/* the most bytes; more are -EFBIG */
	char buffer[GM_JSONW_BUFFER];
};

/* Begin a document. If the program closes @fd and opens its own file under that number, nothing is
 * written to that file, and the error is -EBADF. @limit: the most bytes that the document may have;
 * UINT64_MAX: no limit. */
void gm_jsonw_init(struct gm_jsonw *w, int fd, uint64_t limit);

/* Write out the buffer. Returns 0, or the first error: -errno of write(2); -EFBIG past the limit; -EINVAL
 * when an object or array was not ended, or ended twice. */
int gm_jsonw_finish(struct gm_jsonw *w);

void gm_jsonw_object(struct gm_jsonw *w);
void gm_jsonw_array(struct gm_jsonw *w);
void gm_jsonw_end(struct gm_jsonw *w);		/* the innermost object or array */
void gm_jsonw_key(struct gm_jsonw *w, const char *key);

void gm_jsonw_i64(struct gm_jsonw *w, int64_t value);

/* Values from 2^63 on are written as negative numbers (two's complement), because the integers of readers
 * are signed (jansson, PyTorch). */
static inline void gm_jsonw_u64(struct gm_jsonw *w, uint64_t value)
{
	gm_jsonw_i64(w, (int64_t)value);
}

void gm_jsonw_bool(struct gm_jsonw *w, bool value);
void gm_jsonw_null(struct gm_jsonw *w);

/* Write @length bytes as a string. Invalid UTF-8 becomes U+FFFD; control characters are escaped. */
void gm_jsonw_bytes(struct gm_jsonw *w, const char *text, size_t length);
void gm_jsonw_text(struct gm_jsonw *w, const char *text);	/* NUL terminated; NULL writes null */

/* Write a value that is already JSON (a number, a quoted word), of less than 64 bytes. */
void gm_jsonw_raw(struct gm_jsonw *w, const char *json, size_t length);

/* Give a record that stands for an object to the sink. False: there is no sink, and nothing was written. */
bool gm_jsonw_record(struct gm_jsonw *w, const void *record, size_t bytes);

/* Write a member of an object: its key and its value. The first two write the key and the opening bracket. */
void gm_jsonw_key_object(struct gm_jsonw *w, const char *key);
void gm_jsonw_key_array(struct gm_jsonw *w, const char *key);
void gm_jsonw_key_u64(struct gm_jsonw *w, const char *key, uint64_t value);
void gm_jsonw_key_i64(struct gm_jsonw *w, const char *key, int64_t value);
void gm_jsonw_key_bool(struct gm_jsonw *w, const char *key, bool value);
void gm_jsonw_key_text(struct gm_jsonw *w, const char *key, const char *value);
void gm_jsonw_key_bytes(struct gm_jsonw *w, const char *key, const char *text, size_t length);

/* As above, but the value is null unless @known. */
void gm_jsonw_key_u64_if(struct gm_jsonw *w, const char *key, bool known, uint64_t value);
void gm_jsonw_key_i64_if(struct gm_jsonw *w, const char *key, bool known, int64_t value);

/* Return the length (2 to 4) of the well-formed UTF-8 sequence at @s, which is not ASCII. Returns 0 for an ill-formed
 * one, and in @ret_bad how many bytes one U+FFFD is to replace: the longest valid beginning of a sequence, as Unicode
 * recommends (chapter 3.9). */
static inline unsigned int gm_utf8_length(const unsigned char *s, size_t left, unsigned int *ret_bad)
{
	unsigned char low = 0x80, high = 0xbf;
	unsigned int length, i;

	*ret_bad = 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		length = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		length = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		length = 4;
	else
		return 0;
	if (s[0] == 0xe0)
		low = 0xa0;		/* shorter forms exist */
	else if (s[0] == 0xed)
		high = 0x9f;		/* surrogates */
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f;		/* past U+10FFFF */
	for (i = 1; i < length; i++) {
		if (i >= left || s[i] < low || s[i] > high) {
			*ret_bad = i;
			return 0;
		}
		low = 0x80;
		high = 0xbf;
	}
	return length;
}

/* Is the character at @c one that a terminal obeys, or one that changes the order of other characters on the
 * screen? These are the control characters (C0, DEL, and C1 in two bytes, U+0080 to U+009F), the line breaks
 * U+2028 and U+2029, and the twelve that set the direction of writing. Returns the length of the character; 0:
 * it is none of these. */
static inline size_t gm_utf8_control(const unsigned char *c)
{
	if (c[0] < 0x80)
		return (c[0] && c[0] < 0x20) || c[0] == 0x7f;
	if (c[0] == 0xc2)
		return c[1] >= 0x80 && c[1] < 0xa0 ? 2 : 0;
	if (c[0] == 0xd8)
		return c[1] == 0x9c ? 2 : 0;			/* U+061C */
	if (c[0] != 0xe2)
		return 0;
	if (c[1] == 0x80)					/* U+200E, U+200F, U+2028 to U+202E */
		return c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae) ? 3 : 0;
	return c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9 ? 3 : 0;	/* U+2066 to U+2069 */
}

#endif
