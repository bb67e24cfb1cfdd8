/*
 * sink.h - bytes on their way to a file, many small ones: stdio's locks and checks for each take
 * longer than the bytes. What has a descriptor is written to past stdio, and what is said often goes
 * there from where it is kept. Single-threaded; nothing else may write to the file meanwhile.
 */
#ifndef GM_TOOLS_SINK_H
#define GM_TOOLS_SINK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#define GM_SINK_BYTES ((size_t)1 << 16)

#define GM_SINK_PIECES 512

struct gm_sink {
	FILE *file;
	int fd;				/* the file's, -1: it has none */
	char *bytes;			/* GM_SINK_BYTES */
	size_t count, start;		/* where those begin that are in no piece yet */
	struct iovec *pieces;		/* of @bytes and of what others keep, in their order */
	int piece_count;
	uint64_t left;			/* bytes that may still be written: see limit.h */
	int error;			/* -errno of a write that failed, -EOVERFLOW; then nothing more is written */
};

/* Returns 0 or -ENOMEM. gm_sink_close hands on what is left, and does not close the file; it returns
 * 0 or -errno. */
int gm_sink_open(struct gm_sink *sink, FILE *file);
int gm_sink_close(struct gm_sink *sink);

/* Write all that was put. */
void gm_sink_flush(struct gm_sink *sink);

/* gm_sink_put, of bytes that stay where they are until the next gm_sink_flush or gm_sink_close. */
void gm_sink_put_kept(struct gm_sink *sink, const void *bytes, size_t count);

/* gm_sink_put, of what has no room. */
void gm_sink_put_large(struct gm_sink *sink, const void *bytes, size_t count);

static inline void gm_sink_put(struct gm_sink *sink, const void *bytes, size_t count)
{
	if (__builtin_expect(count > GM_SINK_BYTES - sink->count, 0)) {
		gm_sink_put_large(sink, bytes, count);
		return;
	}
	memcpy(sink->bytes + sink->count, bytes, count);
	sink->count += count;
}

static inline void gm_sink_text(struct gm_sink *sink, const char *text)
{
	gm_sink_put(sink, text, strlen(text));
}

extern const char gm_sink_pairs[201];	/* "00" to "99" */

/* @value in decimal, at the end of @room. Returns where it begins; @room[23] is its last digit. */
static inline char *gm_sink_digits(char room[24], uint64_t value, bool negative)
{
	size_t at = 24;

	while (value >= 10) {
		memcpy(room + (at -= 2), gm_sink_pairs + value % 100 * 2, 2);
		value /= 100;
	}
	if (value || at == 24)
		room[--at] = (char)('0' + value);
	if (negative)
		room[--at] = '-';
	return room + at;
}

static inline void gm_sink_word(struct gm_sink *sink, uint64_t value)
{
	char room[24], *at = gm_sink_digits(room, value, false);

	gm_sink_put(sink, at, (size_t)(room + 24 - at));
}

static inline void gm_sink_number(struct gm_sink *sink, int64_t value)
{
	char room[24], *at = gm_sink_digits(room, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);

	gm_sink_put(sink, at, (size_t)(room + 24 - at));
}

#endif
