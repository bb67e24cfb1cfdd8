/*
 * sink.c - bytes on their way to a file: see sink.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/write/sink.h"

#include <errno.h>
#include <stdlib.h>

#include "tools/read/limit.h"

const char gm_sink_pairs[201] =
	"00010203040506070809"
	"10111213141516171819"
	"20212223242526272829"
	"30313233343536373839"
	"40414243444546474849"
	"50515253545556575859"
	"60616263646566676869"
	"70717273747576777879"
	"80818283848586878889"
	"90919293949596979899";

int gm_sink_open(struct gm_sink *sink, FILE *file)
{
	*sink = (struct gm_sink){
		.file = file, .fd = fileno(file), .bytes = malloc(GM_SINK_BYTES),
		.pieces = calloc(GM_SINK_PIECES + 2, sizeof(*sink->pieces)), .left = gm_limit_output(),
	};
	errno = 0;
	if (sink->bytes && sink->pieces && sink->fd >= 0 && fflush(file))	/* what was put there before */
		sink->error = errno ? -errno : -EIO;
	if (sink->bytes && sink->pieces)
		return 0;
	free(sink->bytes);
	free(sink->pieces);
	return -ENOMEM;
}

/* @done bytes of the first pieces of @at are written: those that are left. */
static struct iovec *pass(struct iovec *at, int *count, size_t done)
{
	while (*count && done >= at->iov_len) {
		done -= at->iov_len;
		at++;
		--*count;
	}
	if (*count) {
		at->iov_base = (char *)at->iov_base + done;
		at->iov_len -= done;
	}
	return at;
}

static void hand_on(struct gm_sink *sink, struct iovec *at, int count)
{
	uint64_t bytes = 0;

	at = pass(at, &count, 0);
	for (int i = 0; i < count; i++)
		bytes += at[i].iov_len;
	if (bytes > sink->left && !sink->error)
		sink->error = -EOVERFLOW;
	sink->left -= sink->error ? 0 : bytes;
	while (count && !sink->error) {
		bool whole = sink->fd < 0;
		ssize_t n;

		errno = 0;
		n = whole ? (ssize_t)fwrite_unlocked(at->iov_base, 1, at->iov_len, sink->file) :
			    writev(sink->fd, at, count);
		if ((n < 0 && errno != EINTR) || (whole && (size_t)n != at->iov_len) || !n)
			sink->error = errno ? -errno : -EIO;
		else if (n > 0)
			at = pass(at, &count, (size_t)n);
	}
}

/* What was put since the last piece becomes one. */
static void end_piece(struct gm_sink *sink)
{
	if (sink->count > sink->start)
		sink->pieces[sink->piece_count++] = (struct iovec){
			sink->bytes + sink->start, sink->count - sink->start
		};
	sink->start = sink->count;
}

void gm_sink_flush(struct gm_sink *sink)
{
	end_piece(sink);
	hand_on(sink, sink->pieces, sink->piece_count);
	sink->count = sink->start = 0;
	sink->piece_count = 0;
}

/* A piece takes a few lines of the kernel: short ones are copied. */
void gm_sink_put_kept(struct gm_sink *sink, const void *bytes, size_t count)
{
	if (count < 512) {
		gm_sink_put(sink, bytes, count);
		return;
	}
	end_piece(sink);
	sink->pieces[sink->piece_count++] = (struct iovec){ (void *)(uintptr_t)bytes, count };
	if (sink->piece_count >= GM_SINK_PIECES)
		gm_sink_flush(sink);
}

void gm_sink_put_large(struct gm_sink *sink, const void *bytes, size_t count)
{
	gm_sink_flush(sink);
	if (count > GM_SINK_BYTES) {
		hand_on(sink, &(struct iovec){ (void *)(uintptr_t)bytes, count }, 1);
		return;
	}
	memcpy(sink->bytes, bytes, count);
	sink->count = count;
}

int gm_sink_close(struct gm_sink *sink)
{
	if (sink->bytes)
		gm_sink_flush(sink);
	free(sink->bytes);
	free(sink->pieces);
	sink->bytes = NULL;
	sink->pieces = NULL;
	return sink->error;
}
