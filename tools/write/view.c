/*
 * view.c - the page of `gpumem view`: see view.h. One thread.
 */
#include "tools/write/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tools/write/embed.h"
#include "tools/write/writer.h"

/* The snapshots replace this text of the page. */
#define PLACE "<!--gpumem snapshots-->"

/* The built page is embedded in the command. GM_VIEW_PAGE is undefined where the page is not built, and for linters. */
#ifdef GM_VIEW_PAGE
GM_EMBED(gm_view_page_bytes, GM_VIEW_PAGE);
#else
static const char gm_view_page_bytes[1];
#define gm_view_page_bytes_end gm_view_page_bytes
#endif

const char *gm_view_page(size_t *ret_bytes)
{
	*ret_bytes = (size_t)((uintptr_t)gm_view_page_bytes_end - (uintptr_t)gm_view_page_bytes);
	return *ret_bytes ? gm_view_page_bytes : NULL;
}

/* ---- base64 of zlib's output -------------------------------------------------------------------- */

static void put_base64(struct gm_out *out, const unsigned char *from, size_t count)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char text[4096];
	size_t at = 0;

	for (size_t i = 0; i < count; i += 3) {
		unsigned word = (unsigned)from[i] << 16 | (i + 1 < count ? (unsigned)from[i + 1] << 8 : 0) |
				(i + 2 < count ? from[i + 2] : 0u);

		text[at++] = letters[word >> 18];
		text[at++] = letters[word >> 12 & 63];
		text[at++] = i + 1 < count ? letters[word >> 6 & 63] : '=';
		text[at++] = i + 2 < count ? letters[word & 63] : '=';
		if (at == sizeof(text)) {
			gm_out_put(out, text, at);
			at = 0;
		}
	}
	gm_out_put(out, text, at);
}

/* A compression on its way to the page. base64 takes three bytes at a time: @held bytes, 2 at most, wait at the
 * beginning of @buffer. */
struct squeeze { z_stream z; unsigned char buffer[3 * 16384]; size_t held; };

static int squeeze(struct gm_out *out, struct squeeze *s, int flush)
{
	int r;

	do {
		size_t whole;

		s->z.next_out = s->buffer + s->held;
		s->z.avail_out = (uInt)(sizeof(s->buffer) - s->held);
		r = deflate(&s->z, flush);
		whole = sizeof(s->buffer) - s->z.avail_out;
		s->held = r == Z_STREAM_END ? 0 : whole % 3;
		put_base64(out, s->buffer, whole - s->held);
		memmove(s->buffer, s->buffer + whole - s->held, s->held);
	} while (!out->error && (s->z.avail_in || (flush == Z_FINISH && r == Z_OK)));
	return out->error;
}

static int put_compressed(struct gm_out *out, const struct gm_pack *pack)
{
	struct squeeze *s = calloc(1, sizeof(*s));
	size_t at = 0;
	int r = 0;

	/* 15 + 16: a window of 32 KiB, and the header of gzip, which browsers unpack. 8 (memLevel): columns differ, so
	 * shorter blocks compress better than the longest ones. */
	if (!s || deflateInit2(&s->z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(s);
		return -ENOMEM;
	}
	while (!r && at < pack->count) {
		size_t part = pack->count - at < (1u << 24) ? pack->count - at : 1u << 24;

		s->z.next_in = pack->bytes + at;
		s->z.avail_in = (uInt)part;
		at += part;
		r = squeeze(out, s, at < pack->count ? Z_NO_FLUSH : Z_FINISH);
	}
	deflateEnd(&s->z);
	free(s);
	return r;
}

int gm_view_write(FILE *file, const struct gm_pack *packs, size_t count)
{
	size_t bytes;
	const char *page = gm_view_page(&bytes), *place = page ? strstr(page, PLACE) : NULL;
	struct gm_out out = gm_out_to(file);
	int r = 0;

	if (!place)
		return -ENOSYS;
	gm_out_put(&out, page, (size_t)(place - page));
	for (size_t i = 0; !r && i < count; i++) {
		gm_out_text(&out, "<script type=\"text/plain\" class=\"snapshot\">");
		r = put_compressed(&out, &packs[i]);
		gm_out_text(&out, "</script>\n");
	}
	place += strlen(PLACE);
	gm_out_put(&out, place, bytes - (size_t)(place - page));
	return r ? r : gm_out_end(&out);
}
