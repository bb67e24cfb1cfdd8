/*
 * sink.c - bytes on their way to a file: see sink.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/sink.h"

#include <errno.h>
#include <stdlib.h>

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
	*sink = (struct gm_sink){ .file = file, .bytes = malloc(GM_SINK_BYTES) };
	return sink->bytes ? 0 : -ENOMEM;
}

static void hand_on(struct gm_sink *sink, const void *bytes, size_t count)
{
	errno = 0;
	if (!sink->error && fwrite_unlocked(bytes, 1, count, sink->file) != count)
		sink->error = errno ? -errno : -EIO;
}

void gm_sink_put_large(struct gm_sink *sink, const void *bytes, size_t count)
{
	hand_on(sink, sink->bytes, sink->count);
	sink->count = 0;
	if (count > GM_SINK_BYTES) {
		hand_on(sink, bytes, count);
		return;
	}
	memcpy(sink->bytes, bytes, count);
	sink->count = count;
}

int gm_sink_close(struct gm_sink *sink)
{
	if (sink->bytes)
		hand_on(sink, sink->bytes, sink->count);
	free(sink->bytes);
	sink->bytes = NULL;
	return sink->error;
}
